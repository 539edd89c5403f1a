// What GEMM kernels that are written by hand have in common: what they read and write, and the loops over panels and tiles of rows.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_WRITTEN_TILES_H
#define HALYARD_RUNTIME_CPU_LINEAR_WRITTEN_TILES_H

#include <cstdint>
#include <type_traits>

#include "layout/codes.h"
#include "layout/dtype.h"
#include "layout/matmul.h"

namespace halyard {
namespace {

/** What a tile reads and writes. Pitches are in elements. */
template<typename X>
struct WrittenTile {
    const X *x;
    const uint32_t *w;
    const float *so_far;
    float *sum;
    int64_t x_tile, w_panel, sum_row, sum_tile;
    const char *next;       // weights to prefetch meanwhile
    int64_t next_panel;     // bytes
    int64_t next_tile = 0;  // bytes that a tile prefetches of each panel
    int next_step;          // bytes of these at a time
    bool first;             // there is nothing so far

    /** `a`: the arguments of a kernel. */
    template<typename Arguments>
    explicit WrittenTile(const Arguments &a)
        : x(a.x.template data<const X>()), w(a.w.template data<const uint32_t>()),
          so_far(a.so_far.template data<const float>()), sum(a.sum.template data<float>()), x_tile(a.x.stride(2)),
          sum_row(a.sum.stride(2)), sum_tile(a.sum.stride(3)), next(a.next.template data<const char>()),
          next_panel(a.next.stride(1)), next_step(a.next_step.value()), first(a.first.value()) {}

    void skip_panels(int panels) {
        w += panels * w_panel;
        so_far += panels * panel_width;
        sum += panels * panel_width;
        next += panels * next_panel;
    }
    void skip_tile() {
        x += x_tile;
        so_far += sum_tile;
        sum += sum_tile;
        next += next_tile;
    }
};

/** And of quantized weights: their scales, in f32 with offsets or as they are stored in 16 bits, and the sums of x over groups for
 *  the offsets. Scales are counted in bytes. */
template<typename X, DType scale_dtype>
struct QuantizedTile : WrittenTile<X> {
    static constexpr DType dtype_of_scales = scale_dtype;
    static constexpr bool has_offsets = scale_dtype == DType::f32;
    static constexpr int64_t scales_row = panel_width * size_of(scale_dtype),
                             scales_group = has_offsets ? scale_vectors * scales_row : scales_row;

    const float *x_sums;
    const char *scales;
    int64_t x_sums_row, x_sums_tile, scales_panel;

    template<typename Arguments>
    explicit QuantizedTile(const Arguments &a)
        : WrittenTile<X>(a), x_sums(a.x_sums.template data<const float>()),
          scales(a.scales.template data<const char>()), x_sums_row(a.x_sums.stride(1)), x_sums_tile(a.x_sums.stride(2)),
          scales_panel(a.scales.stride(3) * size_of(scale_dtype)) {}

    void skip_panels(int panels) {
        WrittenTile<X>::skip_panels(panels);
        scales += panels * scales_panel;
    }
    void skip_tile() {
        WrittenTile<X>::skip_tile();
        x_sums += x_sums_tile;
    }
};

/** Calls multiply(tile, panels), where the latter is a constant, for all tiles of `wide` panels, and at last of one panel each. */
template<int wide, typename Tile, typename Multiply>
void each_panels(Tile at, int panels, const Multiply &multiply) {
    for (; panels >= wide; panels -= wide) {
        multiply(at, std::integral_constant<int, wide>());
        at.skip_panels(wide);
    }
    for (; panels > 0; panels--) {
        multiply(at, std::integral_constant<int, 1>());
        at.skip_panels(1);
    }
}

/** And for all tiles of rows of these. */
template<int wide, typename Tile, typename Multiply>
void each_tile(const Tile &at, int panels, int tiles, const Multiply &multiply) {
    each_panels<wide>(at, panels, [&](Tile tile, auto some) {
        for (int i = 0; i < tiles; i++) {
            multiply(tile, some);
            tile.skip_tile();
        }
    });
}

}  // namespace
}  // namespace halyard

#endif
