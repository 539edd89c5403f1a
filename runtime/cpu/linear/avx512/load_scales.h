// Scales of 16 columns on AVX-512, and how its functions are declared.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AVX512_LOAD_SCALES_H
#define HALYARD_RUNTIME_CPU_LINEAR_AVX512_LOAD_SCALES_H

#include <immintrin.h>

#include "layout/dtype.h"

// Functions take the instructions one by one, so that nothing that is inlined elsewhere is compiled with them.
#define HALYARD_AVX512_FEATURES "avx512f,avx512bw,avx512vl,avx512dq,fma"
#define HALYARD_AVX512 __attribute__((target(HALYARD_AVX512_FEATURES)))
#define HALYARD_AVX512_INLINE HALYARD_AVX512 __attribute__((always_inline)) inline

namespace halyard {
namespace {

/** In f32, from what they are stored in. */
template<DType dtype>
HALYARD_AVX512_INLINE __m512 load_scales(const char *scales) {
    if constexpr (dtype == DType::f32) {
        return _mm512_loadu_ps(scales);
    } else {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(scales));
        return dtype == DType::f16 ? _mm512_cvtph_ps(halves)
                                   : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
}

}  // namespace
}  // namespace halyard

#endif
