// See blocked_rows.h.
#include "cpu/linear/blocked_rows.h"

#include <algorithm>
#include <cstring>

#include "cpu/linear/gemm_plan.h"

namespace halyard {

void BlockedRows::clear_from(int64_t used, int64_t features) const {
    for (int64_t block = 0; block < blocks(features) && used < rows; block++) {
        memset(at(used, block), 0, static_cast<size_t>((rows - used) * row_bytes()));
    }
}

XForm form_of_x(halyard_isa isa, DType x, DType weights) {
    return x == DType::bf16 && weights == DType::bf16 && tile_kernels().tallest(isa, XForm::pairs) > 0 ? XForm::pairs
                                                                                                       : XForm::f32;
}

namespace {

/** Consecutive values as pairs. */
void to_pairs(const char *values, int64_t count, char *pairs) {
    const auto word = [](uint32_t pair) { return pair << 16 | pair >> 16; };  // the earlier one comes in the lower half
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t pair;
        memcpy(&pair, values + 4 * i, 4);
        pair = word(pair);
        memcpy(pairs + 4 * i, &pair, 4);
    }
    if (count % 2 != 0) {
        uint16_t last;
        memcpy(&last, values + 2 * (count - 1), 2);
        const uint32_t pair = word(last);
        memcpy(pairs + 2 * (count - 1), &pair, 4);
    }
}

}  // namespace

void BlockedRows::store(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
                        int64_t count) const {
    const int64_t block = feature / k_block, in_block = feature % k_block;
    if (form == XForm::f32 && (!rounded || values.dtype == DType::bf16)) {
        widen(isa, values, floats_at(row, block) + in_block, x_pitch, features, count);
        return;
    }
    alignas(64) uint16_t rounded_row[k_block];
    TypedRows of_row = {reinterpret_cast<char *>(rounded_row), DType::bf16};
    for (int64_t i = 0; i < count; i++) {
        if (values.dtype == DType::bf16) {
            of_row.data = values.row(i);
        } else {
            cast(isa, {values.row(i), values.dtype}, of_row, features, 1);
        }
        if (form == XForm::pairs) {
            to_pairs(of_row.data, features, at(row + i, block) + 2 * in_block);
        } else {
            widen(isa, of_row, floats_at(row + i, block) + in_block, 0, features, 1);
        }
    }
}

void SourceRows::copy(halyard_isa isa, int64_t begin, int64_t end, int64_t features, const BlockedRows &blocked) const {
    for (int64_t k = 0; k < features; k += k_block) {
        int64_t row = begin;
        const Part part = {first + begin, first + end, k, std::min<int64_t>(k + k_block, features)};
        rows.for_each_piece(part, max_block_rows, k_block, [&](const Rows::Piece &piece) {
            blocked.store(isa, row, k, {piece.data[0], dtype, piece.pitch[0]}, piece.columns, piece.rows);
            row += piece.rows;
        });
    }
}

void load_rows(const halyard_context &context, halyard_isa isa, const SourceRows &x, int64_t rows, int64_t features,
               const BlockedRows &blocked) {
    const int threads =
        static_cast<int>(std::min<int64_t>(threads_for(context, rows * features * size_of(x.dtype)), rows));
    run_tasks(context, threads,
              [&](int index) { x.copy(isa, rows * index / threads, rows * (index + 1) / threads, features, blocked); });
    blocked.clear_from(rows, features);
}

}  // namespace halyard
