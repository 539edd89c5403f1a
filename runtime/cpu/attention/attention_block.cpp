// One block of queries and one block of keys at a time.
//
// Scores are a GEMM of the rows of the queries and the packed keys, the result one of the rows of exponentials and
// the packed values; both are made by the tile kernels of halyard_linear. Tiles of rows whose mask ends within the
// block do not multiply what lies beyond. Rows never wait for others: what a row gets depends on its own keys alone.
#include "cpu/attention/attention_block.h"

#include <cstring>
#include <limits>

#include "core/cast.h"
#include "core/parameters.h"

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

int best_tile_rows(halyard_isa isa, XForm form, int64_t head_dim, int64_t rows) {
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

bool has_nan(const float *values, int64_t count) {
    bool found = false;
    for (int64_t i = 0; i < count; i++) {
        found |= values[i] != values[i];
    }
    return found;
}

}  // namespace

XForm form_of_products(halyard_isa isa, bool rounded, DType cache) {
    return keeps_bits(isa) ? form_of_x(isa, rounded ? DType::bf16 : DType::f32, cache) : XForm::f32;
}

int64_t best_attention_rows(halyard_isa isa, XForm form, int64_t head_dim) {
    if (parameters.attention_rows > 0) {
        return std::min(parameters.attention_rows, max_attention_rows);
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

int64_t AttentionBlock::scratch_floats(int64_t rows, const KvLayout &layout) {
    const int64_t columns = layout.value_columns();
    const int64_t widened = layout.dtype == DType::f32 ? 0 : k_block * (layout.key_inputs() + columns);
    return 2 * PartialResult::tile_rows(rows) * (x_pitch + x_pair_pitch) + 6 * PartialResult::statistics_pitch(rows) +
           2 * PartialResult::floats(rows, columns) + widened;
}

AttentionBlock::AttentionBlock(halyard_isa isa, int64_t max_rows, const KvLayout &layout, float scale, float softcap,
                               bool rounded, float *scratch)
    : isa_(isa), max_rows_(max_rows), layout_(layout), scale_(scale), softcap_(softcap) {
    const int64_t rows = PartialResult::tile_rows(max_rows), pitch = PartialResult::statistics_pitch(max_rows);
    const auto take = [&scratch](int64_t floats) {
        float *const piece = scratch;
        scratch += floats;
        return piece;
    };
    const XForm form = form_of_products(isa, rounded, layout.dtype);
    const auto multiplied = [&](float *values) {
        float *const memory = form == XForm::pairs ? take(rows * x_pair_pitch) : values;
        return BlockedRows{reinterpret_cast<char *>(memory), rows, form, rounded};
    };
    queries_ = take(rows * x_pitch);
    scores_ = take(rows * x_pitch);
    multiplied_queries_ = multiplied(queries_);
    weights_ = multiplied(scores_);
    for (float *&result : results_) {
        result = take(PartialResult::floats(max_rows, layout.value_columns()));
    }
    for (float *&statistics : statistics_) {
        statistics = take(2 * pitch);
    }
    factors_ = take(2 * pitch);
    widened_ = scratch;
}

void AttentionBlock::begin(const QueryBlock &block, const Visibility &visibility) {
    block_ = block;
    visibility_ = visibility;
    has_result_ = false;
    const XForm form = multiplied_queries_.form;
    tile_rows_ = best_tile_rows(isa_, form, layout_.head_dim, block.rows());
    tiles_ = (block.rows() + tile_rows_ - 1) / tile_rows_;
    widen_ = form == XForm::f32 && layout_.dtype != DType::f32 && tiles_ >= parameters.attention_widen_tiles;
    prefetch4_ = tiles_ >= prefetch4_interval &&
                 tile_kernels().width(isa_, tile_kind(form, true), widen_ ? DType::f32 : layout_.dtype, tile_rows_) > 0;
    const int64_t idle = tiles_ * tile_rows_ - block.rows();
    memset(multiplied_queries_.at(block.rows(), 0), 0, static_cast<size_t>(idle * multiplied_queries_.row_bytes()));
}

int64_t AttentionBlock::first_block() const {
    return visibility_.first(block_.position) / k_block;
}

int64_t AttentionBlock::end_block() const {
    return (visibility_.end(block_.position + block_.queries - 1) + k_block - 1) / k_block;
}

void AttentionBlock::find_tiles(int64_t block) {
    const int64_t base = block * k_block, positions = std::min<int64_t>(k_block, visibility_.keys - base);
    const auto in_block = [&](int64_t position) { return std::clamp<int64_t>(position - base, 0, positions); };
    for (int64_t i = 0; i < tiles_; i++) {
        Tile &tile = tile_[i];
        const int64_t begin = tile_row(i), end = tile_end_row(i);
        const auto first_seen = [&](int64_t row) {
            return in_block(visibility_.first(block_.position + row / block_.heads));
        };
        const auto end_seen = [&](int64_t row) {
            return in_block(visibility_.end(block_.position + row / block_.heads));
        };
        tile.first = first_seen(begin);
        tile.end = end_seen(end - 1);
        if (tile.first < tile.end) {
            tile.first = round_down(tile.first, row_inputs(layout_.dtype));
        }
        tile.column = round_down(tile.first, softmax_lanes);
        tile.columns = round_up(tile.end, softmax_lanes) - tile.column;
        tile.masked = first_seen(end - 1) > tile.column || end_seen(begin) < tile.column + tile.columns;
        if (tile.masked) {
            for (int64_t row = begin; row < end; row++) {
                visible_[row][0] = static_cast<int32_t>(first_seen(row) - tile.column);
                visible_[row][1] = static_cast<int32_t>(end_seen(row) - tile.column);
            }
        }
    }
}

Panels AttentionBlock::widened(const Panels &matrix, int64_t panel, int64_t panels, int64_t input, int64_t inputs,
                               float *memory) {
    const Panels in_f32 = {reinterpret_cast<const char *>(memory), DType::f32,
                           matrix.stride / size_of(matrix.dtype) * size_of(DType::f32)};
    widen_panels(isa_, matrix.from(panel, input), in_f32.from(panel, input), inputs, panels);
    return in_f32;
}

void AttentionBlock::attend(const char *head, int64_t block, bool more, const PartialResult &result) {
    find_tiles(block);
    const int64_t size = size_of(layout_.dtype);
    Panels keys = {head + layout_.block_offset(block) * size, layout_.dtype, layout_.key_panel_stride() * size};
    Panels values = {head + layout_.values_offset(block) * size, layout_.dtype,
                     layout_.value_panel_stride(block) * size};
    const Panels after_keys = values, after_values = {more ? head + layout_.block_offset(block + 1) * size : nullptr,
                                                      layout_.dtype, keys.stride};
    if (widen_) {
        const int64_t first = tile_[0].first, end = tile_[tiles_ - 1].end, panel = first / panel_width;
        keys = widened(keys, panel, (end + panel_width - 1) / panel_width - panel, 0, layout_.head_dim, widened_);
        values = widened(values, 0, layout_.value_columns() / panel_width, first, end - first,
                         widened_ + k_block * layout_.key_inputs());
    }
    scores(keys, after_keys);
    softmax(result);
    weigh(values, after_values, result);
}

int64_t AttentionBlock::panels_at_once(DType dtype, int64_t panels) const {
    const int64_t width = tile_kernels().width(isa_, tile_kind(weights_.form, prefetch4_), dtype, tile_rows_);
    if (tiles_ > 1 || dtype != DType::f32) {
        return width;
    }
    // A single tile reads keys and values once: f32 panels one after the other, as they lie in memory, which is what kernels
    // do with every number of panels but their own. Of 16-bit ones the additions of one would keep the next waiting.
    return panels == width ? std::max<int64_t>(1, panels - 1) : panels;
}

AttentionBlock::Prefetch AttentionBlock::prefetch_ahead(const Panels &w, int64_t bytes) const {
    return {w.data + (w.dtype == DType::f32 ? parameters.attention_prefetch_bytes : bytes), w.stride,
            input_bytes(prefetch_interval(prefetch4_, w.dtype), w.dtype)};
}

/** All of what comes next, if that is not more than a line with each prefetch. */
AttentionBlock::Prefetch AttentionBlock::prefetch_next(const Panels &next, int64_t inputs, int64_t tiles) const {
    const int64_t interval = prefetch_interval(prefetch4_, widen_ ? DType::f32 : layout_.dtype);
    const int64_t line = interval * panel_width * size_of(next.dtype);
    const int64_t prefetches = std::max<int64_t>(1, inputs / interval * tiles);
    return {next.data, next.stride, next.data ? std::min(line, (next.stride + prefetches - 1) / prefetches) : 0};
}

void AttentionBlock::scores(const Panels &keys, const Panels &next) {
    const int64_t first_panel = tile_[0].first / panel_width;
    const int64_t end_panel = (tile_[tiles_ - 1].end + panel_width - 1) / panel_width;
    const int64_t at_once = panels_at_once(keys.dtype, end_panel - first_panel);
    int64_t first_tile = 0, end_tile = 0;  // of those that see some of the panels
    for (int64_t panel = first_panel; panel < end_panel; panel += at_once) {
        const int64_t panels = std::min<int64_t>(at_once, end_panel - panel), after = panel + panels;
        while (tile_[first_tile].end <= panel * panel_width) {
            first_tile++;
        }
        while (end_tile < tiles_ && tile_[end_tile].first < after * panel_width) {
            end_tile++;
        }
        const int64_t row = tile_row(first_tile), tiles = end_tile - first_tile;
        const Panels w = keys.from(panel, 0);
        const Prefetch prefetch =
            tiles_ == 1 ? prefetch_ahead(w, panels * keys.stride)
                        : prefetch_next(after < end_panel ? keys.from(after, 0) : next, layout_.head_dim, tiles);
        multiply(multiplied_queries_, row, 0, tile_rows_, tiles, prefetch4_, w, panels, layout_.head_dim,
                 scores_ + row * x_pitch + panel * panel_width, x_pitch, prefetch);
    }
}

void AttentionBlock::softmax(const PartialResult &result) {
    const auto cap = kernel_function(kernels::attention_softcap, DType::f32, isa_);
    const auto exponentials = kernel_function(kernels::attention_softmax, DType::f32, isa_);
    const int64_t pitch = PartialResult::statistics_pitch(max_rows_);
    for (int64_t i = 0; i < tiles_; i++) {
        const Tile &tile = tile_[i];
        const int64_t row = tile_row(i), rows = tile_end_row(i) - row;
        s_.set(scores_ + row * x_pitch + tile.column, tile.columns, rows, x_pitch);
        if (softcap_ > 0.0f) {
            cap({.s = s_, .scale = scale_, .cap = softcap_, .y = s_});
        }
        visible_buffer_.set(visible_[row], 2, rows, 2);
        limits_buffer_.set(limits_[row], 3, rows, 3);
        maximum_.set(result.statistics + row, rows);
        sum_.set(result.statistics + pitch + row, rows);
        exponentials({.s = s_,
                      .visible = visible_buffer_,
                      .masked = tile.masked,
                      .scale = softcap_ > 0.0f ? 1.0f : scale_,
                      .limits = limits_buffer_,
                      .maximum = maximum_,
                      .weights = s_,
                      .sum = sum_});
        convert(weights_, scores_, row, rows, tile.column, tile.columns);
    }
}

void AttentionBlock::weigh(const Panels &values, const Panels &next, const PartialResult &result) {
    const int64_t columns = layout_.value_columns(), panels = columns / panel_width;
    const int64_t at_once = panels_at_once(values.dtype, panels);
    for (int64_t i = 0; i < tiles_;) {
        const Tile &tile = tile_[i];
        int64_t end = i + 1;
        while (end < tiles_ && tile_[end].first == tile.first && tile_[end].end == tile.end) {
            end++;
        }
        const int64_t row = tile_row(i), inputs = tile.end - tile.first, tiles = end - i;
        float *const sums = result.values + row * columns;
        if (inputs <= 0) {
            memset(sums, 0, static_cast<size_t>(tiles * tile_rows_ * columns) * sizeof(float));
        }
        for (int64_t panel = 0; panel < panels && inputs > 0; panel += at_once) {
            const int64_t count = std::min<int64_t>(at_once, panels - panel), after = panel + count;
            const Panels w = values.from(panel, tile.first);
            const Prefetch prefetch =
                tiles_ == 1 ? prefetch_ahead(w, parameters.attention_prefetch_bytes_16_bit)
                            : prefetch_next(after < panels ? values.from(after, tile.first) : next, inputs, tiles);
            multiply(weights_, row, tile.first, tile_rows_, tiles, prefetch4_, w, count, inputs,
                     sums + panel * panel_width, columns, prefetch);
        }
        i = end;
    }
    // Positions that a row does not see have weight 0. Should one hold Inf or NaN, the product of the two is NaN.
    for (int64_t i = 0; i < tiles_; i++) {
        for (int64_t row = tile_row(i); tile_[i].masked && row < tile_end_row(i); row++) {
            if (has_nan(result.values + row * columns, columns)) {
                repair(values, result, tile_[i], row);
            }
        }
    }
}

void AttentionBlock::repair(const Panels &values, const PartialResult &result, const Tile &tile, int64_t row) {
    const int64_t columns = layout_.value_columns(), panels = columns / panel_width;
    const int64_t first = tile.column + visible_[row][0], end = tile.column + visible_[row][1];
    float *const sums = result.values + row * columns;
    if (first >= end) {
        memset(sums, 0, static_cast<size_t>(columns) * sizeof(float));
        return;
    }
    // Products of pairs flush denormals, so that others would give the row other bits.
    const bool by_pairs = weights_.form == XForm::pairs;
    const int64_t row_first = round_down(first, row_inputs(values.dtype)), from = by_pairs ? row_first : first;
    Panels seen = values;
    if (by_pairs) {
        seen = seen_alone(values, panels, first, end);
    } else if (values.dtype != DType::f32) {
        // Every position is a row of panels in f32.
        seen = widened(values, 0, panels, row_first, end - row_first, widened_ + k_block * layout_.key_inputs());
    }
    const int width = tile_kernels().width(isa_, tile_kind(weights_.form, false), seen.dtype, 1);
    for (int64_t panel = 0; panel < panels; panel += width) {
        const Panels w = seen.from(panel, from);
        multiply(weights_, row, from, 1, 1, false, w, std::min<int64_t>(width, panels - panel), end - from,
                 sums + panel * panel_width, columns, {w.data, 0, 0});
    }
}

/** A copy of the pairs that hold positions [first, end), with zeros for others. */
Panels AttentionBlock::seen_alone(const Panels &values, int64_t panels, int64_t first, int64_t end) {
    char *const memory = reinterpret_cast<char *>(widened_ + k_block * layout_.key_inputs());
    const Panels copy = {memory, values.dtype, values.stride};
    const int64_t begin = round_down(first, 2);
    for (int64_t panel = 0; panel < panels; panel++) {
        uint32_t *const pairs =
            reinterpret_cast<uint32_t *>(memory + panel * values.stride + input_bytes(begin, values.dtype));
        memcpy(pairs, values.from(panel, begin).data, static_cast<size_t>(input_bytes(end - begin, values.dtype)));
        // The earlier position of a pair is the upper half.
        uint32_t *const last = pairs + (end - 1 - begin) / 2 * panel_width;
        for (int64_t i = 0; i < panel_width; i++) {
            pairs[i] &= first > begin ? 0x0000ffffu : 0xffffffffu;
            last[i] &= end % 2 != 0 ? 0xffff0000u : 0xffffffffu;
        }
    }
    return copy;
}

/** Brings values into the form in which they are multiplied, if that is another. */
void AttentionBlock::convert(const BlockedRows &into, const float *values, int64_t row, int64_t rows, int64_t column,
                             int64_t columns) const {
    if (into.rounded && columns > 0) {
        const float *const first = values + row * x_pitch + column;
        into.store(isa_, row, column, {reinterpret_cast<char *>(const_cast<float *>(first)), DType::f32, x_pitch},
                   columns, rows);
    }
}

void AttentionBlock::multiply(const BlockedRows &x, int64_t row, int64_t first, int rows, int64_t tiles, bool prefetch4,
                              const Panels &w, int64_t panels, int64_t inputs, float *sums, int64_t sums_pitch,
                              const Prefetch &prefetch) {
    w_.set_data(w.data);
    w.describe(w_, inputs, panels);
    sums_.set_data(sums);
    sums_.set_dim(0, panel_width, 1);
    sums_.set_dim(1, panels, panel_width);
    sums_.set_dim(2, rows, sums_pitch);
    sums_.set_dim(3, tiles, rows * sums_pitch);
    next_.set_data(prefetch.data ? prefetch.data : w.data);
    next_.set_dim(1, panels, prefetch.panel_bytes);
    const auto call = [&](const auto &kernel, auto &buffer, int64_t steps) {
        buffer.set_dim(0, steps, 1);
        buffer.set_dim(1, rows, x.row_bytes() / 4);
        buffer.set_dim(2, tiles, rows * x.row_bytes() / 4);
        kernel({.x = buffer,
                .w = w_,
                .so_far = sums_,
                .first = true,
                .depth = static_cast<int32_t>(steps),
                .next = next_,
                .next_step = static_cast<int32_t>(prefetch.step),
                .sum = sums_});
    };
    if (x.form == XForm::pairs) {
        pairs_.set_data(x.at(row, 0) + first / 2 * 4);
        call(kernel_function(TileKernels::pairs_kernel(prefetch4, rows), w.dtype, isa_), pairs_, (inputs + 1) / 2);
    } else {
        x_.set_data(x.floats_at(row, 0) + first);
        call(kernel_function(TileKernels::kernel(prefetch4, rows), w.dtype, isa_), x_, inputs);
    }
}

void AttentionBlock::add(const char *head, int64_t block, bool more) {
    const PartialResult result = PartialResult::at(results_[has_result_], max_rows_);
    attend(head, block, more, result);
    add(result);
}

void AttentionBlock::add(const PartialResult &block) {
    if (!has_result_) {
        so_far_ = block;
        has_result_ = true;
        return;
    }
    const int64_t pitch = PartialResult::statistics_pitch(max_rows_), columns = layout_.value_columns();
    const int64_t rows = block_.rows(), whole = round_up(rows, 16);
    float *const merged = statistics_[so_far_.statistics == statistics_[0]];
    before_.set(so_far_.statistics, whole, 2, pitch);
    of_block_.set(block.statistics, whole, 2, pitch);
    factors_buffer_.set(factors_, whole, 2, pitch);
    merged_.set(merged, whole, 2, pitch);
    values_before_.set(so_far_.values, columns, rows, columns);
    values_.set(block.values, columns, rows, columns);
    kernel_function(kernels::attention_merge, DType::f32, isa_)({.so_far = before_,
                                                                 .block = of_block_,
                                                                 .values_so_far = values_before_,
                                                                 .values = values_,
                                                                 .factors = factors_buffer_,
                                                                 .statistics = merged_,
                                                                 .y = values_before_});
    so_far_.statistics = merged;
}

PartialResult AttentionBlock::result() {
    if (!has_result_) {
        so_far_ = PartialResult::at(results_[0], max_rows_);
        memset(results_[0], 0,
               static_cast<size_t>(PartialResult::floats(max_rows_, layout_.value_columns())) * sizeof(float));
    }
    return so_far_;
}

}  // namespace halyard
