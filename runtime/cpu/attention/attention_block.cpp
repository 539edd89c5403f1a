// See attention_block.h.
#include "cpu/attention/attention_block.h"

#include <cstring>

#include "cpu/attention/hidden_values.h"

namespace halyard {

int64_t AttentionBlock::scratch_floats(int64_t rows, const KvLayout &layout) {
    const int64_t columns = layout.value_columns();
    const int64_t widened = layout.dtype == DType::f32 ? 0 : k_block * (layout.key_inputs() + columns);
    return 2 * PartialResult::tile_rows(rows) * (x_pitch + x_pair_pitch) + 6 * PartialResult::statistics_pitch(rows) +
           2 * PartialResult::floats(rows, columns) + widened;
}

AttentionBlock::AttentionBlock(halyard_isa isa, int64_t max_rows, const KvLayout &layout, float scale, float softcap,
                               bool rounded, float *scratch)
    : max_rows_(max_rows), tiles_(isa, form_of_products(isa, rounded, layout.dtype), layout), products_(tiles_),
      softmax_(isa, scale, softcap) {
    const int64_t rows = PartialResult::tile_rows(max_rows), pitch = PartialResult::statistics_pitch(max_rows);
    const auto take = [&scratch](int64_t floats) {
        float *const piece = scratch;
        scratch += floats;
        return piece;
    };
    const auto multiplied = [&](float *values) {
        float *const memory = tiles_.form == XForm::pairs ? take(rows * x_pair_pitch) : values;
        return BlockedRows{reinterpret_cast<char *>(memory), rows, tiles_.form, rounded};
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
    widened_keys_ = scratch;
    widened_values_ = widened_keys_ + k_block * layout.key_inputs();
}

void AttentionBlock::begin(const QueryBlock &block, const Visibility &visibility) {
    tiles_.begin(block, visibility);
    products_.begin();
    has_result_ = false;
    const int64_t idle = tiles_.count() * tiles_.tile_rows() - block.rows();
    memset(multiplied_queries_.at(block.rows(), 0), 0, static_cast<size_t>(idle * multiplied_queries_.row_bytes()));
}

/** Brings values into the form in which they are multiplied, if that is another. */
void AttentionBlock::convert(const BlockedRows &into, const float *values, int64_t row, int64_t rows, int64_t column,
                             int64_t columns) const {
    if (into.rounded && columns > 0) {
        const float *const first = values + row * x_pitch + column;
        into.store(tiles_.isa, row, column, {reinterpret_cast<char *>(const_cast<float *>(first)), DType::f32, x_pitch},
                   columns, rows);
    }
}

void AttentionBlock::attend(const char *head, int64_t block, bool more, const PartialResult &result) {
    const KvLayout &layout = tiles_.layout;
    tiles_.look_at(block);
    const int64_t size = size_of(layout.dtype);
    Panels keys = {head + layout.block_offset(block) * size, layout.dtype, layout.key_panel_stride() * size};
    Panels values = {head + layout.values_offset(block) * size, layout.dtype, layout.value_panel_stride(block) * size};
    const Panels after_keys = values, after_values = {more ? head + layout.block_offset(block + 1) * size : nullptr,
                                                      layout.dtype, keys.stride};
    if (tiles_.widens()) {
        const int64_t first = tiles_[0].first, end = tiles_[tiles_.count() - 1].end, panel = first / panel_width;
        keys = widened_part(tiles_.isa, keys, panel, (end + panel_width - 1) / panel_width - panel, 0, layout.head_dim,
                            widened_keys_);
        values = widened_part(tiles_.isa, values, 0, layout.value_columns() / panel_width, first, end - first,
                              widened_values_);
    }
    products_.scores(multiplied_queries_, keys, after_keys, scores_);
    for (int64_t i = 0; i < tiles_.count(); i++) {
        softmax_(tiles_, i, scores_, result.statistics, PartialResult::statistics_pitch(max_rows_));
        const int64_t row = tiles_.row(i);
        convert(weights_, scores_, row, tiles_.end_row(i) - row, tiles_[i].column, tiles_[i].columns);
    }
    products_.weigh(weights_, values, after_values, result.values);
    leave_out_hidden_values(tiles_, weights_, values, widened_values_, result.values);
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
    const int64_t pitch = PartialResult::statistics_pitch(max_rows_), columns = tiles_.layout.value_columns();
    const int64_t rows = tiles_.rows(), whole = PartialResult::statistics_pitch(rows);
    float *const merged = statistics_[so_far_.statistics == statistics_[0]];
    before_.set(so_far_.statistics, whole, 2, pitch);
    of_block_.set(block.statistics, whole, 2, pitch);
    factors_buffer_.set(factors_, whole, 2, pitch);
    merged_.set(merged, whole, 2, pitch);
    values_before_.set(so_far_.values, columns, rows, columns);
    values_.set(block.values, columns, rows, columns);
    kernel_function(kernels::attention_merge, DType::f32, tiles_.isa)({.so_far = before_,
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
               static_cast<size_t>(PartialResult::floats(max_rows_, tiles_.layout.value_columns())) * sizeof(float));
    }
    return so_far_;
}

}  // namespace halyard
