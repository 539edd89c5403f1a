// The storage types as the tests see them: integer code of their own, so that a wrong conversion in the library
// cannot hide behind the same code here.
#ifndef HALYARD_OPERATIONS_DTYPE_H
#define HALYARD_OPERATIONS_DTYPE_H

#include <cstddef>
#include <cstdint>

#include "dlpack/dlpack.h"
#include "halyard/config.h"

namespace halyard::operations {

enum class Dtype { f32, f16, bf16 };

/** The types that the library was built with. */
inline constexpr Dtype all_dtypes[] = {
#if HALYARD_HAS_F32
    Dtype::f32,
#endif
#if HALYARD_HAS_F16
    Dtype::f16,
#endif
#if HALYARD_HAS_BF16
    Dtype::bf16,
#endif
};

const char *name_of(Dtype dtype);
std::size_t size_of(Dtype dtype);
DLDataType dlpack_type(Dtype dtype);

/** The value that the low bits of `bits` stand for; exact. */
double decode(Dtype dtype, std::uint32_t bits);

/** The bits of `value` rounded once to the type: to nearest even, overflow to infinity. */
std::uint32_t encode(Dtype dtype, double value);

/** `value` rounded once to the type. */
double round_to(Dtype dtype, double value);

bool is_nan(Dtype dtype, std::uint32_t bits);

/** Spacing of the type's numbers just above |value|, the denormal spacing below the normal range. */
double spacing(Dtype dtype, double value);

/** Spacing of f32 numbers at |value|: one ULP. Quick, for walks over billions of values. */
double ulp_f32(double value);

/** Largest finite value. */
double max_finite(Dtype dtype);
/** Smallest normal value. */
double min_normal(Dtype dtype);
/** Smallest positive value. */
double min_denormal(Dtype dtype);

std::uint32_t bits_of(float value);
float float_from_bits(std::uint32_t bits);

}  // namespace halyard::operations

#endif
