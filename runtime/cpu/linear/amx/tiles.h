// The instructions of AMX on tiles, and their shapes.
//
// TDPBF16PS multiplies a tile of 16 rows and 16 pairs of inputs by one of 16 pairs and 16 columns, and adds the product to a
// tile of sums: of each element
//
//     sum += (sum over the earlier inputs of the pairs) + (sum over the later inputs of the pairs)
//
// where both sums in parentheses start from 0, each pair a fused multiply-add, and denormals count as 0. So an element
// depends on its inputs, 32 at a time and in order, and on nothing else: not on the rows beside it.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_AMX_TILES_H
#define HALYARD_RUNTIME_CPU_LINEAR_AMX_TILES_H

#include <cstdint>

#include "layout/matmul.h"

namespace halyard::amx {
namespace {

constexpr int tile_pairs = amx_step_inputs / 2;
constexpr int line_bytes = 64;  // of a row of a tile
constexpr int panel_sum_bytes = panel_width * sizeof(float);

// The instructions. Of the compilers' intrinsics, GCC's take nothing but literals and do not say what memory they read.
template<int tile>
void clear() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
}
template<int tile>
void load(const char *rows, int64_t pitch) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(pitch), "i"(tile) : "memory");
}
/** Does not keep them in the first-level cache. */
template<int tile>
void load_past_cache(const char *rows, int64_t pitch) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(pitch), "i"(tile) : "memory");
}
template<int tile>
void store(char *rows, int64_t pitch) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(pitch), "i"(tile) : "memory");
}
template<int sum, int x, int w>
void add_product() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(w));
}
/** Leaves no tile in use: a thread's state is small again, and nothing is left behind in users' threads. */
inline void release() {
    __asm__ volatile("tilerelease");
}

/** Rows of every tile, and bytes of one of its rows. */
struct alignas(64) Configuration {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, int rows_of_tile, int bytes) {
        rows[tile] = static_cast<uint8_t>(rows_of_tile);
        row_bytes[tile] = static_cast<uint16_t>(bytes);
    }
    void load() const { __asm__ volatile("ldtilecfg %0" : : "m"(*this)); }
};

}  // namespace
}  // namespace halyard::amx

#endif
