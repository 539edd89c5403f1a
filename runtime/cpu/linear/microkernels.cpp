// The table of microkernels (cpu/linear/microkernels.h). It is a file of its own, so that the tuner can link a table with
// other tile widths in its place.
#include "cpu/linear/microkernels.h"

namespace halyard {
namespace {

constexpr TileKernels tiles_of_build;

}  // namespace

const TileKernels &tile_kernels() {
    return tiles_of_build;
}

}  // namespace halyard
