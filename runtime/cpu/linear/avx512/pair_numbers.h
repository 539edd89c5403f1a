// Codes of 4 and 8 bits as pairs of numbers in bf16, the earlier one in the upper half of a lane.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AVX512_PAIR_NUMBERS_H
#define HALYARD_RUNTIME_CPU_LINEAR_AVX512_PAIR_NUMBERS_H

#include "cpu/linear/avx512/vectors.h"

namespace halyard {
namespace {

/** prepared() words of codes, and of<i>() these their pair i. `few_products`: see ByteNumbers. */
template<int bits, bool few_products>
class PairNumbers;

/** Pairs of codes of 4 bits become pairs of numbers by one instruction that Halide does not make: vpermw looks both up in a register of 32
 *  numbers, by the lowest five bits of each half of a lane. */
template<bool few_products>
class PairNumbers<4, few_products> {
public:
    HALYARD_AVX512_INLINE explicit PairNumbers(uint32_t) {
        // -8 to 7 in bf16, twice: the fifth bit is another code's.
        alignas(64) static constexpr uint16_t numbers[32] = {
            0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
            0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
            0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
        table_ = _mm512_load_si512(numbers);
        // Bytes 1 and 3 to the lower half, 0 and 2 to the upper one: both then have, from the lowest bits on, their codes of pairs
        // 0, 2, 1 and 3.
        order_ = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10, 13, 15, 12, 14));
    }
    HALYARD_AVX512_INLINE __m512i prepared(__m512i word) const { return _mm512_shuffle_epi8(word, order_); }
    template<int pair>
    HALYARD_AVX512_INLINE __m512i of(__m512i halves) const {
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(halves, pair % 2 * 8 + pair / 2 * 4), table_);
    }

private:
    __m512i table_, order_;
};

template<bool few_products>
class PairNumbers<8, few_products> : public ByteNumbers<few_products> {
    using OfF32 = ByteNumbers<few_products>;

public:
    HALYARD_AVX512_INLINE explicit PairNumbers(uint32_t flip) : OfF32(flip) {}
    /** A number in f32 has zeros where the other of a pair goes. */
    template<int pair>
    HALYARD_AVX512_INLINE __m512i of(__m512i word) const {
        const __m512i earlier = _mm512_castps_si512(OfF32::template of<2 * pair>(word)),
                      later = _mm512_castps_si512(OfF32::template of<2 * pair + 1>(word));
        return _mm512_or_si512(earlier, _mm512_srli_epi32(later, 16));
    }
};

}  // namespace
}  // namespace halyard

#endif
