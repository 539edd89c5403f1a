// The GEMMs of attention: tiles of rows by panels of keys or values, with the kernels of halyard_linear.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_PRODUCTS_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_PRODUCTS_H

#include <optional>

#include "cpu/attention/row_tiles.h"
#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/tile_call.h"

namespace halyard {

/** Panels of one kernel call. AMX, whose kernel takes any number of them, gets few, so that those that tiles do not see are left out. */
inline int panels_of_call(halyard_isa isa, XForm form, DType panels, TileKind kind, int tile_rows) {
    return is_amx(isa, form) ? max_tile_panels : tile_kernels().width(isa, kind, panels, tile_rows);
}

/** Rows by panels of the form and dtype it was made for. */
class TileProduct {
public:
    TileProduct(halyard_isa isa, XForm form, DType panels, TileKind kind, int tile_rows)
        : tile_rows_(tile_rows), parts_(is_amx(isa, form) && tile_rows > amx_tile_rows ? 2 : 1) {
        if (form == XForm::pairs) {
            pairs_.emplace(isa, panels, kind, tile_rows);
        } else {
            matmul_.emplace(isa, panels, kind, tile_rows);
        }
    }

    /** sums = x w for tiles of rows from `row` on, over `inputs` inputs from `first` on, or, with `adds`, sums + x w. `w`: from
     *  that input on. */
    void operator()(const BlockedRows &x, int64_t row, int64_t first, int64_t tiles, const Panels &w, int64_t panels,
                    int64_t inputs, float *sums, int64_t sums_pitch, const Prefetch &prefetch, bool adds = false) {
        const TileCall call = {.x = x.at(row, 0) + (pairs_ ? first / 2 : first) * 4,
                               .x_row_bytes = x.row_bytes(),
                               .tile_rows = tile_rows_ / parts_,
                               .tiles = tiles * parts_,
                               .panels = panels,
                               .depth = inputs,
                               .next = {prefetch.data ? prefetch.data : w.data, prefetch.panel_bytes, prefetch.step},
                               .first = !adds,
                               .sums = sums,
                               .sums_pitch = sums_pitch};
        if (pairs_) {
            (*pairs_)(call, w);
        } else {
            (*matmul_)(call, w);
        }
    }

private:
    const int tile_rows_;
    const int parts_;  // tiles of the kernel in one of the rows
    std::optional<MatmulCall> matmul_;
    std::optional<PairsCall> pairs_;
};

/** Keys or values of a block in f32, for which `memory` has room. */
inline Panels widened_part(halyard_isa isa, const Panels &matrix, int64_t panel, int64_t panels, int64_t input,
                           int64_t inputs, float *memory) {
    const Panels in_f32 = {reinterpret_cast<const char *>(memory), DType::f32,
                           matrix.stride / size_of(matrix.dtype) * size_of(DType::f32)};
    widen_panels(isa, matrix.from(panel, input), in_f32.from(panel, input), inputs, panels);
    return in_f32;
}

/** Both products of one query block. */
class AttentionProducts {
public:
    explicit AttentionProducts(const RowTiles &tiles) : tiles_(tiles) {}

    /** Takes the kernels for the tiles. */
    void begin() {
        product_.emplace(tiles_.isa, tiles_.form, tiles_.multiplied(), tile_kind(tiles_.form, tiles_.prefetch4()),
                         tiles_.tile_rows());
    }

    /** scores[row][key] = query . key, of the keys that tiles see. `next` is read after. */
    void scores(const BlockedRows &queries, const Panels &keys, const Panels &next, float *scores);
    /** values[row] = sum of weight value over the keys that the row's tile sees. `next` is read after. */
    void weigh(const BlockedRows &weights, const Panels &values, const Panels &next, float *into);

private:
    bool prefetches_ahead() const;
    int64_t panels_at_once(int64_t panels) const;
    Prefetch prefetch_ahead(const Panels &w, int64_t bytes) const;
    Prefetch prefetch_next(const Panels &next, int64_t inputs, int64_t tiles) const;

    const RowTiles &tiles_;
    std::optional<TileProduct> product_;
};

}  // namespace halyard

#endif
