// Products of any number of rows with panels, for the gradients of attention.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_ROW_PRODUCT_H
#define HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_ROW_PRODUCT_H

#include "cpu/attention/attention_products.h"

namespace halyard {

/** Products of f32 rows at x_pitch with panels, in tiles of a height that suits the heads and one lower tile for what is left. */
class RowProduct {
public:
    /** usual_rows: how many rows most products have. */
    RowProduct(halyard_isa isa, int64_t head_dim, int64_t usual_rows)
        : isa_(isa), height_(best_tile_rows(isa, XForm::f32, head_dim, usual_rows)), tall_(product_of(height_)) {}

    /** sums = x w, or with `adds` sums + x w, over `inputs` inputs. */
    void operator()(const float *x, int64_t rows, const Panels &w, int64_t panels, int64_t inputs, float *sums,
                    int64_t pitch, bool adds) {
        const int64_t tiles = rows / height_, rest = rows % height_;
        if (tiles > 0) {
            multiply(tall_, height_, tiles, x, w, panels, inputs, sums, pitch, adds);
        }
        if (rest > 0) {
            const int64_t row = rows - rest;
            TileProduct low = product_of(static_cast<int>(rest));
            multiply(low, static_cast<int>(rest), 1, x + row * x_pitch, w, panels, inputs, sums + row * pitch, pitch,
                     adds);
        }
    }

private:
    TileProduct product_of(int tile_rows) const {
        return TileProduct(isa_, XForm::f32, DType::f32, TileKind::f32, tile_rows);
    }

    void multiply(TileProduct &product, int tile_rows, int64_t tiles, const float *x, const Panels &w, int64_t panels,
                  int64_t inputs, float *sums, int64_t pitch, bool adds) const {
        const BlockedRows rows = {reinterpret_cast<char *>(const_cast<float *>(x)), tiles * tile_rows, XForm::f32};
        const int width = tile_kernels().width(isa_, TileKind::f32, DType::f32, tile_rows);
        for (int64_t panel = 0; panel < panels; panel += width) {
            const Panels of = w.from(panel, 0);
            product(rows, 0, 0, tiles, of, std::min<int64_t>(width, panels - panel), inputs, sums + panel * panel_width,
                    pitch, {of.data, 0, 0}, adds);
        }
    }

    const halyard_isa isa_;
    const int height_;
    TileProduct tall_;
};

}  // namespace halyard

#endif
