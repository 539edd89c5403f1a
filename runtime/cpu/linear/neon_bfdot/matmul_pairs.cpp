// Pairs of bf16 by BFDOT.
#include "cpu/linear/neon_bfdot/dot_products.h"

namespace halyard {
namespace {

template<int rows, int panels>
using Tile = Sums<DotProducts, rows, panels>;

}  // namespace
}  // namespace halyard

HALYARD_PAIR_TILES(neon_bfdot, halyard::Tile)
