// See row_tiles.h.
#include "cpu/attention/row_tiles.h"

#include "core/parameters.h"
#include "cpu/linear/blocked_rows.h"

namespace halyard {
namespace {

// The softmax takes whole blocks of its virtual lanes.
constexpr int64_t softmax_lanes = 64;

constexpr int64_t round_down(int64_t n, int64_t to) {
    return n / to * to;
}
constexpr int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/** What the GEMMs of `rows` rows cost in tiles of `height`; 0 if there are no such tiles. A load of a panel's values
 *  costs about as much as another row, and panels that are left over by the tiles' width half as much again as others.
 *  */
int64_t cost_of_tiles(halyard_isa isa, XForm form, int64_t head_dim, int64_t rows, int height) {
    const DType dtype = form == XForm::pairs ? DType::bf16 : DType::f32;
    const int64_t tiles = (rows + height - 1) / height;
    const bool prefetch4 =
        tiles >= prefetch4_interval && tile_kernels().width(isa, tile_kind(form, true), dtype, height) > 0;
    const int width = tile_kernels().width(isa, tile_kind(form, prefetch4), dtype, height);
    if (width == 0) {
        return 0;
    }
    const auto cost = [&](int64_t panels) { return 2 * panels + panels % width; };
    const int64_t values = round_up(head_dim, panel_width) / panel_width, keys = k_block / panel_width;
    return tiles * (height + 1) * (cost(keys) * head_dim + cost(values) * k_block);
}

/** Tiles of AMX go by two, which share what they read of keys. */
int amx_rows(int64_t rows) {
    if (rows <= amx_tile_rows) {
        return static_cast<int>(rows);
    }
    const int64_t halves = round_up(rows, 2 * amx_tile_rows) / amx_tile_rows;
    return static_cast<int>(2 * ((rows + halves - 1) / halves));
}

}  // namespace

int best_tile_rows(halyard_isa isa, XForm form, int64_t head_dim, int64_t rows) {
    if (is_amx(isa, form)) {
        return amx_rows(rows);
    }
    int best = 1;
    int64_t least = cost_of_tiles(isa, form, head_dim, rows, 1);
    for (int height = 2; height <= std::min<int64_t>(rows, max_tile_rows); height++) {
        const int64_t cost = cost_of_tiles(isa, form, head_dim, rows, height);
        if (cost > 0 && cost <= least) {
            least = cost;
            best = height;
        }
    }
    return best;
}

XForm form_of_products(halyard_isa isa, bool rounded, DType cache) {
    return keeps_bits(isa) || isa == HALYARD_ISA_AMX ? form_of_x(isa, rounded ? DType::bf16 : DType::f32, cache)
                                                     : XForm::f32;
}

int64_t best_attention_rows(halyard_isa isa, XForm form, int64_t head_dim) {
    if (parameters.attention_rows > 0) {
        return std::min(parameters.attention_rows, max_attention_rows);
    }
    if (is_amx(isa, form)) {
        return max_attention_rows;
    }
    int64_t best = max_attention_rows, least = cost_of_tiles(isa, form, head_dim, best, 1);
    for (int height = 2; height <= max_tile_rows; height++) {
        const int64_t rows = round_down(max_attention_rows, height);
        const int64_t cost = cost_of_tiles(isa, form, head_dim, rows, height);
        if (cost > 0 && cost * best <= least * rows) {
            least = cost;
            best = rows;
        }
    }
    return best;
}

void RowTiles::begin(const QueryBlock &block, const Visibility &visibility) {
    block_ = block;
    visibility_ = visibility;
    tile_rows_ = best_tile_rows(isa, form, layout.head_dim, rows());
    count_ = (rows() + tile_rows_ - 1) / tile_rows_;
    widens_ = form == XForm::f32 && layout.dtype != DType::f32 && count_ >= parameters.attention_widen_tiles;
    prefetch4_ = !is_amx(isa, form) && count_ >= prefetch4_interval &&
                 tile_kernels().width(isa, tile_kind(form, true), multiplied(), tile_rows_) > 0;
}

void RowTiles::look_at(int64_t key_block) {
    const int64_t base = key_block * k_block, positions = std::min<int64_t>(k_block, visibility_.keys - base);
    const auto in_block = [&](int64_t position) { return std::clamp<int64_t>(position - base, 0, positions); };
    const auto first_seen = [&](int64_t row) {
        return in_block(visibility_.first(block_.position + row / block_.heads));
    };
    const auto end_seen = [&](int64_t row) { return in_block(visibility_.end(block_.position + row / block_.heads)); };
    for (int64_t i = 0; i < count_; i++) {
        TileKeys &keys = keys_[i];
        keys.first = first_seen(row(i));
        keys.end = end_seen(end_row(i) - 1);
        if (keys.first < keys.end) {
            keys.first = round_down(keys.first, inputs_together(isa, form, layout.dtype));
        }
        keys.column = round_down(keys.first, softmax_lanes);
        keys.columns = round_up(keys.end, softmax_lanes) - keys.column;
        keys.masked = first_seen(end_row(i) - 1) > keys.column || end_seen(row(i)) < keys.column + keys.columns;
        for (int64_t r = row(i); keys.masked && r < end_row(i); r++) {
            visible_[r][0] = static_cast<int32_t>(first_seen(r) - keys.column);
            visible_[r][1] = static_cast<int32_t>(end_seen(r) - keys.column);
        }
    }
}

}  // namespace halyard
