// The GEMM kernels of rows in 8 bits on AVX2, of 1 to 4 rows.
//
// vpmaddubsw multiplies unsigned by signed bytes and adds neighbours, in 16 bits.
#include <cstdint>

#include "cpu/linear/avx2/vectors.h"

#define HALYARD_INT8_ISA avx2
#define HALYARD_INT8_TARGET HALYARD_AVX2

namespace halyard::avx2 {
namespace {

#define HALYARD_VECTOR HALYARD_AVX2_INLINE

struct Vector : Avx2 {
    /** Sums take 4 to 8 of 16 registers. */
    static constexpr int tile_vectors(int, int rows) { return rows == 1 ? 4 : 2; }

    /** In this order: compilers add products to each other first, and run out of registers. */
    HALYARD_VECTOR static Int pinned(Int sum) {
        __asm__("" : "+x"(sum));
        return sum;
    }

    template<int bits>
    struct Codes;
    template<int bits>
    struct Numbers;
    template<int bits>
    struct Sums;
};

// Codes of 4 bits: the lower and the upper half of bytes, which are four inputs apart. The sum of a unit, 32 inputs of at most
// 15 * 127, stays below 2^15, so that it is widened once a unit.

template<>
struct Vector::Codes<4> {
    HALYARD_VECTOR void load(const uint32_t *words, Int) {
        const Int all = _mm256_loadu_si256(reinterpret_cast<const Int *>(words)), four_bits = _mm256_set1_epi8(15);
        lower = _mm256_and_si256(all, four_bits);
        upper = _mm256_and_si256(_mm256_srli_epi16(all, 4), four_bits);
    }
    Int lower, upper;
};

template<>
struct Vector::Numbers<4> {
    HALYARD_VECTOR explicit Numbers(const char *x) : lower(broadcast(x)), upper(broadcast(x + 4)) {}
    Int lower, upper;
};

template<>
struct Vector::Sums<4> {
    HALYARD_VECTOR void begin(const char *) { sum = _mm256_setzero_si256(); }
    HALYARD_VECTOR void add(const Codes<4> &codes, const Numbers<4> &numbers) {
        sum = pinned(_mm256_add_epi16(sum, _mm256_maddubs_epi16(codes.lower, numbers.lower)));
        sum = pinned(_mm256_add_epi16(sum, _mm256_maddubs_epi16(codes.upper, numbers.upper)));
    }
    HALYARD_VECTOR Int total(const char *correction) const {
        return Vector::add(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), broadcast(correction));
    }
    Int sum;
};

// Codes of 8 bits, less their center: |c| is unsigned, and x gets its sign. Two products, 128 * 127 each, stay below 2^15.

template<>
struct Vector::Codes<8> {
    HALYARD_VECTOR void load(const uint32_t *words, Int flip) {
        signed_codes = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const Int *>(words)), flip);
        magnitudes = _mm256_abs_epi8(signed_codes);
    }
    Int signed_codes, magnitudes;
};

template<>
struct Vector::Numbers<8> {
    HALYARD_VECTOR explicit Numbers(const char *x) : all(broadcast(x)) {}
    Int all;
};

template<>
struct Vector::Sums<8> {
    HALYARD_VECTOR void begin(const char *) { sum = _mm256_setzero_si256(); }
    HALYARD_VECTOR void add(const Codes<8> &codes, const Numbers<8> &numbers) {
        const Int pairs = _mm256_maddubs_epi16(codes.magnitudes, _mm256_sign_epi8(numbers.all, codes.signed_codes));
        sum = pinned(_mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
    }
    HALYARD_VECTOR Int total(const char *) const { return sum; }
    Int sum;
};

#undef HALYARD_VECTOR

}  // namespace
}  // namespace halyard::avx2

#include "cpu/linear/int8_tiles.h"
#undef HALYARD_INT8_ISA
#undef HALYARD_INT8_TARGET

#define HALYARD_INT8_KERNEL(name, dtype, ...)                                                                          \
    extern "C" int hk_matmul_int8_##name##_##dtype##_avx2_argv(void **arguments) {                                     \
        using namespace halyard;                                                                                       \
        return avx2::multiply_int8_panels<__VA_ARGS__>(arguments);                                                     \
    }
HALYARD_INT8_KERNELS
#undef HALYARD_INT8_KERNEL
