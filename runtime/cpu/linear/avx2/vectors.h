// Vectors of AVX2 as kernels that are written by hand take them, and how their functions are declared.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AVX2_VECTORS_H
#define HALYARD_RUNTIME_CPU_LINEAR_AVX2_VECTORS_H

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "layout/codes.h"
#include "layout/dtype.h"

#define HALYARD_AVX2 __attribute__((target("avx2,fma,f16c")))
#define HALYARD_AVX2_INLINE HALYARD_AVX2 __attribute__((always_inline)) inline

namespace halyard {
namespace {

struct Avx2 {
    using Int = __m256i;
    using Float = __m256;
    static constexpr int lanes = 8;

    HALYARD_AVX2_INLINE static Float zero() { return _mm256_setzero_ps(); }
    HALYARD_AVX2_INLINE static Float floats(const float *from) { return _mm256_loadu_ps(from); }
    HALYARD_AVX2_INLINE static Int words(const uint32_t *from) {
        return _mm256_loadu_si256(reinterpret_cast<const Int *>(from));
    }
    /** Scales in f32, from what they are stored in. */
    template<DType dtype>
    HALYARD_AVX2_INLINE static Float scales(const char *from) {
        if constexpr (dtype == DType::f32) {
            return _mm256_loadu_ps(reinterpret_cast<const float *>(from));
        } else {
            const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
            return dtype == DType::f16 ? _mm256_cvtph_ps(halves)
                                       : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
        }
    }
    /** The bytes that scales of two levels are multiplied with. */
    template<ScaleKind kind>
    HALYARD_AVX2_INLINE static Float factors(const char *from) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
        return _mm256_cvtepi32_ps(kind == ScaleKind::two_levels_signed ? _mm256_cvtepi8_epi32(bytes)
                                                                       : _mm256_cvtepu8_epi32(bytes));
    }
    HALYARD_AVX2_INLINE static Float all(float value) { return _mm256_set1_ps(value); }
    HALYARD_AVX2_INLINE static void store(float *to, Float value) { _mm256_storeu_ps(to, value); }
    HALYARD_AVX2_INLINE static Int broadcast(const void *from) {
        int32_t word;
        memcpy(&word, from, 4);
        return _mm256_set1_epi32(word);
    }
    HALYARD_AVX2_INLINE static Float broadcast_float(const void *from) { return _mm256_castsi256_ps(broadcast(from)); }
    HALYARD_AVX2_INLINE static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
    HALYARD_AVX2_INLINE static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
    HALYARD_AVX2_INLINE static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
    HALYARD_AVX2_INLINE static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    /** sum += a b, with all three in registers: GCC overwrites a factor and then runs out of registers, or loads one again for each
     *  product. */
    HALYARD_AVX2_INLINE static void add_product(Float a, Float b, Float &sum) {
        __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    }
    HALYARD_AVX2_INLINE static Float fms(Float a, Float b, Float c) { return _mm256_fmsub_ps(a, b, c); }
};

}  // namespace
}  // namespace halyard

#endif
