// See tiles.h. A file of its own, so that the tuner can put tables with other widths in its place.
#include "tiles.h"

namespace halyard {
namespace {

constexpr Tiles all_tiles() {
    Tiles tiles;
    tiles.set_all();
    return tiles;
}

constexpr Tiles tiles_of_build = all_tiles();

}  // namespace

const Tiles &tile_table() {
    return tiles_of_build;
}

}  // namespace halyard
