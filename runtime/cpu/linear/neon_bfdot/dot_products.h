// Pairs of bf16 by BFDOT, which adds both products of a pair in one instruction and rounds in its own way:
//
//     sum = odd(sum + odd(earlier product + later product))
//
// odd() cuts the value off at 24 bits and sets the last one if anything was lost. Products are exact, and denormals count as 0.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_NEON_BFDOT_DOT_PRODUCTS_H
#define HALYARD_RUNTIME_CPU_LINEAR_NEON_BFDOT_DOT_PRODUCTS_H

#include "cpu/linear/neon_bf16/pair_tiles.h"

namespace halyard {
namespace {

struct DotProducts {
    static constexpr int steps = 1;

    template<int, int pair>
    HALYARD_INLINE static float32x4_t add(float32x4_t sum, uint32x4_t w, uint32x4_t x) {
        __asm__("bfdot %0.4s, %1.8h, %2.2h[%3]" : "+w"(sum) : "w"(w), "w"(x), "n"(pair));
        return sum;
    }
};

}  // namespace
}  // namespace halyard

#endif
