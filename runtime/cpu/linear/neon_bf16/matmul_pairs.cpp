// Pairs of bf16 by BFMLALT and BFMLALB, to the bit what generators/matmul.cpp says.
//
// Either widens one input of each pair of w and multiplies it by one element of x: a fused multiply-add of f32 like any other. T
// takes the upper halves, where the earlier inputs are, and so goes first.
#include "cpu/linear/neon_bf16/pair_tiles.h"

namespace halyard {
namespace {

/** Not by the compiler's intrinsics, for which GCC 12 chooses registers of x that they cannot name: an element is one of the
 *  lower 16. */
struct MultiplyAdds {
    static constexpr int steps = 2;

    template<int step, int pair>
    HALYARD_INLINE static float32x4_t add(float32x4_t sum, uint32x4_t w, uint32x4_t x) {
        if constexpr (step == 0) {
            __asm__("bfmlalt %0.4s, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(x), "n"(2 * pair + 1));
        } else {
            __asm__("bfmlalb %0.4s, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(w), "x"(x), "n"(2 * pair));
        }
        return sum;
    }
};

template<int rows, int panels>
using Tile = Sums<MultiplyAdds, rows, panels>;

}  // namespace
}  // namespace halyard

HALYARD_PAIR_TILES(neon_bf16, halyard::Tile)
