// Vectors of AVX-512 as kernels that are written by hand take them, and how their functions are declared.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AVX512_VECTORS_H
#define HALYARD_RUNTIME_CPU_LINEAR_AVX512_VECTORS_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// GCC's own header leaves a register undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>
#include <cstring>

#include "layout/codes.h"
#include "layout/dtype.h"

// Functions take the instructions one by one, so that nothing that is inlined elsewhere is compiled with them.
#define HALYARD_AVX512_FEATURES "avx512f,avx512bw,avx512vl,avx512dq,fma"
#define HALYARD_AVX512 __attribute__((target(HALYARD_AVX512_FEATURES)))
#define HALYARD_AVX512_INLINE HALYARD_AVX512 __attribute__((always_inline)) inline

namespace halyard {
namespace {

struct Avx512 {
    using Int = __m512i;
    using Float = __m512;
    static constexpr int lanes = 16;

    HALYARD_AVX512_INLINE static Float zero() { return _mm512_setzero_ps(); }
    HALYARD_AVX512_INLINE static Float floats(const float *from) { return _mm512_loadu_ps(from); }
    HALYARD_AVX512_INLINE static Int words(const uint32_t *from) { return _mm512_loadu_si512(from); }
    /** Scales in f32, from what they are stored in. */
    template<DType dtype>
    HALYARD_AVX512_INLINE static Float scales(const char *from) {
        if constexpr (dtype == DType::f32) {
            return _mm512_loadu_ps(from);
        } else {
            const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
            return dtype == DType::f16 ? _mm512_cvtph_ps(halves)
                                       : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
        }
    }
    /** The bytes that scales of two levels are multiplied with. */
    template<ScaleKind kind>
    HALYARD_AVX512_INLINE static Float factors(const char *from) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
        return _mm512_cvtepi32_ps(kind == ScaleKind::two_levels_signed ? _mm512_cvtepi8_epi32(bytes)
                                                                       : _mm512_cvtepu8_epi32(bytes));
    }
    HALYARD_AVX512_INLINE static Float all(float value) { return _mm512_set1_ps(value); }
    HALYARD_AVX512_INLINE static void store(float *to, Float value) { _mm512_storeu_ps(to, value); }
    HALYARD_AVX512_INLINE static Int broadcast(const void *from) {
        int32_t word;
        memcpy(&word, from, 4);
        return _mm512_set1_epi32(word);
    }
    HALYARD_AVX512_INLINE static Float broadcast_float(const void *from) {
        return _mm512_castsi512_ps(broadcast(from));
    }
    HALYARD_AVX512_INLINE static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
    HALYARD_AVX512_INLINE static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
    HALYARD_AVX512_INLINE static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
    HALYARD_AVX512_INLINE static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    /** sum += a b */
    HALYARD_AVX512_INLINE static void add_product(Float a, Float b, Float &sum) { sum = fma(a, b, sum); }
    HALYARD_AVX512_INLINE static Float fms(Float a, Float b, Float c) { return _mm512_fmsub_ps(a, b, c); }
};

/** The numbers in f32 that words of codes of 8 bits hold: by a shift to the top, one back and a conversion, all beside the pipes that
 *  multiply; or, where these have time, by two instructions that take them too. */
template<bool few_products>
class ByteNumbers;

template<>
class ByteNumbers<false> {
public:
    HALYARD_AVX512_INLINE explicit ByteNumbers(uint32_t flip) : flip_(_mm512_set1_epi32(static_cast<int>(flip))) {}
    HALYARD_AVX512_INLINE __m512i prepared(__m512i word) const { return _mm512_xor_si512(word, flip_); }
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i word) const {
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(word, 24 - code_shift(8, input)), 24));
    }

private:
    const __m512i flip_;
};

template<>
class ByteNumbers<true> {
public:
    HALYARD_AVX512_INLINE explicit ByteNumbers(uint32_t flip)
        : center_(_mm512_set1_ps(flip == 0 ? 0.0f : 128.0f)), even_(_mm512_add_ps(center_, _mm512_set1_ps(0x1p23f))),
          odd_(_mm512_add_ps(center_, _mm512_set1_ps(0x1p15f))) {}
    HALYARD_AVX512_INLINE __m512i prepared(__m512i word) const { return word; }
    /** Bits 0 to 7 of 2^23 count ones, and bits 8 to 15 of 2^15: a code takes their place, and the power is subtracted. */
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i word) const {
        constexpr bool odd = input % 2 != 0;
        const __m512i half = input < 2 ? word : _mm512_srli_epi32(word, 16),
                      mask = _mm512_set1_epi32(odd ? 0xff00 : 0xff),
                      power = _mm512_castps_si512(_mm512_set1_ps(odd ? 0x1p15f : 0x1p23f));
        constexpr int and_then_or = 0xea;
        const __m512i raised = _mm512_ternarylogic_epi32(half, mask, power, and_then_or);
        return _mm512_sub_ps(_mm512_castsi512_ps(raised), odd ? odd_ : even_);
    }

private:
    const __m512 center_, even_, odd_;
};

/** The numbers in f32 that words of codes hold: of<i>() prepared() words is the one of input i. `few_products`: see ByteNumbers. */
template<int bits, bool few_products>
class CodeNumbers : public ByteNumbers<few_products> {
public:
    HALYARD_AVX512_INLINE explicit CodeNumbers(uint32_t flip) : ByteNumbers<few_products>(flip) {}
};

/** A code of 4 bits becomes a number by one instruction that Halide does not make: vpermps looks it up in a register of 16 numbers, by
 *  the lowest four bits of a lane, whatever lies above them. */
template<bool few_products>
class CodeNumbers<4, few_products> {
public:
    HALYARD_AVX512_INLINE explicit CodeNumbers(uint32_t)
        : table_(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)) {}
    HALYARD_AVX512_INLINE __m512i prepared(__m512i word) const { return word; }
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i word) const {
        return _mm512_permutexvar_ps(_mm512_srli_epi32(word, code_shift(4, input)), table_);
    }

private:
    const __m512 table_;
};

}  // namespace
}  // namespace halyard

#endif
