// Products of one row by vectors of AVX-512, with the bits of tiles (tiles.h).
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AMX_PRODUCT_BY_VECTORS_H
#define HALYARD_RUNTIME_CPU_LINEAR_AMX_PRODUCT_BY_VECTORS_H

#include "cpu/linear/avx512/vectors.h"

namespace halyard::amx {
namespace {

HALYARD_AVX512_INLINE __m512 upper_half(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)));
}
HALYARD_AVX512_INLINE __m512 lower_half(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

/** What an instruction on tiles adds to the sums of a row and some panels. */
template<int panels>
class ProductByVectors {
public:
    HALYARD_AVX512_INLINE ProductByVectors() {
#pragma GCC unroll 8
        for (int panel = 0; panel < panels; panel++) {
            earlier_[panel] = later_[panel] = Avx512::zero();
        }
    }
    /** Adds `pairs` pairs of x and of each panel. `numbers`: takes the inputs out of words. */
    template<int pairs, int pair = 0, typename Numbers>
    HALYARD_AVX512_INLINE void add(const Numbers &numbers, const __m512i *words, const uint32_t *x) {
        if constexpr (pair < pairs) {
            const __m512i both = _mm512_set1_epi32(static_cast<int>(x[pair]));
            const __m512 x_earlier = upper_half(both), x_later = lower_half(both);
#pragma GCC unroll 8
            for (int panel = 0; panel < panels; panel++) {
                Avx512::add_product(x_earlier, numbers.template of<2 * pair>(words[panel]), earlier_[panel]);
                Avx512::add_product(x_later, numbers.template of<2 * pair + 1>(words[panel]), later_[panel]);
            }
            add<pairs, pair + 1>(numbers, words, x);
        }
    }
    HALYARD_AVX512_INLINE void add_to(__m512 *sums) const {
#pragma GCC unroll 8
        for (int panel = 0; panel < panels; panel++) {
            sums[panel] = _mm512_add_ps(sums[panel], _mm512_add_ps(earlier_[panel], later_[panel]));
        }
    }

private:
    __m512 earlier_[panels], later_[panels];
};

}  // namespace
}  // namespace halyard::amx

#endif
