// See tiles.h. A file of its own, so that the tuner can put tables with other widths in its place.
#include "cpu/linear/microkernels.h"

namespace halyard {
namespace {

constexpr TileKernels tiles_of_build;

}  // namespace

const TileKernels &tile_kernels() {
    return tiles_of_build;
}

}  // namespace halyard
