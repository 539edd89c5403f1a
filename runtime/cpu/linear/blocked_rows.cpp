// See blocked_rows.h.
#include "cpu/linear/blocked_rows.h"

#include <algorithm>
#include <cstring>

#include "core/parameters.h"

namespace halyard {

void BlockedRows::clear_from(int64_t used, int64_t features) const {
    for (int64_t block = 0; block < blocks(features) && used < rows; block++) {
        memset(at(used, block), 0, static_cast<size_t>((rows - used) * row_bytes()));
        if (groups.sums) {
            std::fill_n(sums_at(used, block, features), (rows - used) * sums_pitch(), 0.0f);
        }
    }
}

namespace {

/** The sum of `count` values, a multiple of 16: of 16 lanes by themselves, and of the lanes by halves. */
template<typename ValueAt>
float sum_of_lanes(int64_t count, const ValueAt &value_at) {
    float lanes[16] = {};
    for (int64_t i = 0; i < count; i += 16) {
        for (int lane = 0; lane < 16; lane++) {
            lanes[lane] += value_at(i + lane);
        }
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int lane = 0; lane < half; lane++) {
            lanes[lane] += lanes[lane + half];
        }
    }
    return lanes[0];
}

float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

}  // namespace

void BlockedRows::complete(int64_t begin, int64_t end, int64_t features) const {
    for (int64_t block = 0; block < blocks(features) && groups.inputs > 0; block++) {
        const int64_t inputs = std::min<int64_t>(k_block, features - block * k_block),
                      whole = CodeLayout::whole_inputs(groups.inputs, inputs);
        for (int64_t row = begin; row < end; row++) {
            if (form == XForm::int8) {
                complete_int8(row, block, features);
                continue;
            }
            char *const words = at(row, block);
            const int64_t word_inputs = form == XForm::pairs ? 2 : 1, used = (inputs + word_inputs - 1) / word_inputs;
            memset(words + 4 * used, 0, static_cast<size_t>(4 * (whole / word_inputs - used)));
            float *const sums = sums_at(row, block, features);
            for (int64_t first = 0, group = 0; first < whole && sums; first += groups.inputs, group++) {
                const int64_t count = std::min<int64_t>(groups.inputs, whole - first);
                if (form == XForm::pairs) {
                    const auto *const pairs = reinterpret_cast<const uint32_t *>(words) + first / 2;
                    sums[group] = sum_of_lanes(count, [&](int64_t i) {
                        return float_of(i % 2 == 0 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
                    });
                } else {
                    const float *const values = reinterpret_cast<const float *>(words) + first;
                    sums[group] = sum_of_lanes(count, [&](int64_t i) { return values[i]; });
                }
            }
        }
    }
}

XForm form_of_x(halyard_isa isa, DType x, DType weights) {
    return x == DType::bf16 && weights == DType::bf16 && tile_kernels().tallest(isa, XForm::pairs) > 0 ? XForm::pairs
                                                                                                       : XForm::f32;
}

XForm form_of_x(const halyard_context &context, halyard_isa isa, DType x, const halyard_weights &weights) {
    if (!weights.codes) {
        return form_of_x(isa, x, weights.dtype);
    }
    if (context.products == HALYARD_PRODUCTS_INT8) {
        return XForm::int8;
    }
    const TileKind pairs = tile_kind_of_codes(XForm::pairs, weights.codes.bits);
    const bool multiplied = is_amx(isa, XForm::pairs) || tile_kernels().width(isa, pairs, DType::f32, 1) > 0;
    return x == DType::bf16 && multiplied ? XForm::pairs : XForm::f32;
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
    if (form == XForm::int8) {
        store_int8(isa, row, feature, values, features, count);
        return;
    }
    const int64_t block = feature / k_block, in_block = feature % k_block;
    if (form == XForm::f32 && (!rounded || values.dtype == DType::bf16)) {
        widen(isa, values, floats_at(row, block) + in_block, x_pitch, features, count);
        return;
    }
    constexpr int64_t most_rows = 8;
    alignas(64) uint16_t memory[most_rows * k_block];
    const TypedRows in_memory = {reinterpret_cast<char *>(memory), DType::bf16, k_block};
    for (int64_t first = 0; first < count; first += most_rows) {
        const int64_t rows = std::min(most_rows, count - first);
        const TypedRows given = {values.row(first), values.dtype, values.pitch};
        const bool is_rounded = values.dtype == DType::bf16;
        if (!is_rounded) {
            cast(isa, given, in_memory, features, rows);
        }
        const TypedRows from = is_rounded ? given : in_memory;
        if (form == XForm::f32) {
            widen(isa, from, floats_at(row + first, block) + in_block, x_pitch, features, rows);
        }
        for (int64_t i = 0; i < rows && form == XForm::pairs; i++) {
            to_pairs(from.row(i), features, at(row + first + i, block) + 2 * in_block);
        }
    }
}

void BlockedRows::store_int8(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
                             int64_t count) const {
    const int unit = groups.unit();
    const int64_t block = feature / k_block, units = (features + unit - 1) / unit, whole = units * unit;
    const KernelCall<arguments::RoundToInt8> round(kernel_function(
        unit == min_int8_unit ? kernels::round_to_int8_16 : kernels::round_to_int8_32, DType::f32, isa));
    alignas(64) float wide[k_block];
    std::fill(wide + features, wide + whole, 0.0f);
    Buffer<2, float> x, scales;
    Buffer<2> numbers;
    Buffer<2, int32_t> sums;
    for (int64_t i = 0; i < count; i++) {
        widen(isa, {values.row(i), values.dtype}, wide, 0, features, 1);
        char *const to = at(row + i, block);
        x.set(wide, whole, 1, 0);
        scales.set(reinterpret_cast<float *>(to + x_int8_scales), units, 1, 0);
        numbers.set(to, whole, 1, 0);
        sums.set(reinterpret_cast<int32_t *>(to + x_int8_corrections), units, 1, 0);
        round({.x = x, .scales = scales, .numbers = numbers, .sums = sums});
    }
}

void BlockedRows::complete_int8(int64_t row, int64_t block, int64_t features) const {
    const int64_t inputs = std::min<int64_t>(k_block, features - block * k_block), unit = groups.unit(),
                  units = (inputs + unit - 1) / unit, group_units = groups.inputs / unit;
    char *const stored = at(row, block);
    const auto *const scales = reinterpret_cast<const float *>(stored + x_int8_scales);
    auto *const corrections = reinterpret_cast<int32_t *>(stored + x_int8_corrections);
    float *const sums = sums_at(row, block, features);
    for (int64_t first = 0, group = 0; first < units && sums; first += group_units, group++) {
        double sum = 0;  // products are exact
        for (int64_t u = first; u < std::min(units, first + group_units); u++) {
            sum += static_cast<double>(scales[u]) * corrections[u];
        }
        sums[group] = static_cast<float>(sum);
    }
    for (int64_t u = 0; u < units; u++) {
        corrections[u] *= -groups.center;
    }
}

namespace {

/** `count` values of a row in an order. */
template<typename Bits>
void gather_values(const char *row, const int32_t *order, int64_t count, char *to) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + i * sizeof(Bits), row + order[i] * sizeof(Bits), sizeof(Bits));
    }
}

}  // namespace

void BlockedRows::store_row(halyard_isa isa, int64_t row, const TypedRows &values, int64_t features) const {
    alignas(64) char in_order[k_block * sizeof(float)];
    const int64_t size = size_of(values.dtype);
    for (int64_t k = 0; k < features; k += k_block) {
        const int64_t count = std::min<int64_t>(k_block, features - k);
        if (!groups.order) {
            store(isa, row, k, {values.data + k * size, values.dtype}, count, 1);
            continue;
        }
        const int32_t *const order = groups.order + k;
        if (values.dtype == DType::f32) {
            gather_values<uint32_t>(values.data, order, count, in_order);
        } else {
            gather_values<uint16_t>(values.data, order, count, in_order);
        }
        store(isa, row, k, {in_order, values.dtype}, count, 1);
    }
}

void SourceRows::copy(halyard_isa isa, int64_t begin, int64_t end, int64_t features, const BlockedRows &blocked) const {
    if (blocked.groups.order) {
        int64_t row = begin;
        rows.for_each_piece({first + begin, first + end, 0, features}, 1, features, [&](const Rows::Piece &piece) {
            blocked.store_row(isa, row++, {piece.data[0], dtype}, features);
        });
        blocked.complete(begin, end, features);
        return;
    }
    for (int64_t k = 0; k < features; k += k_block) {
        int64_t row = begin;
        const Part part = {first + begin, first + end, k, std::min<int64_t>(k + k_block, features)};
        rows.for_each_piece(part, max_block_rows, k_block, [&](const Rows::Piece &piece) {
            blocked.store(isa, row, k, {piece.data[0], dtype, piece.pitch[0]}, piece.columns, piece.rows);
            row += piece.rows;
        });
    }
    blocked.complete(begin, end, features);
}

void load_rows(const halyard_context &context, halyard_isa isa, const SourceRows &x, int64_t rows, int64_t features,
               const BlockedRows &blocked) {
    const int threads =
        static_cast<int>(std::min<int64_t>(threads_for(context, rows * features * size_of(x.dtype)), rows));
    run_tasks(context, threads,
              [&](int index) { x.copy(isa, rows * index / threads, rows * (index + 1) / threads, features, blocked); });
    blocked.clear_from(rows, features);
}

void complete_rows(const halyard_context &context, const BlockedRows &blocked, int64_t rows, int64_t features) {
    if (blocked.groups.inputs > 0) {
        const int threads = static_cast<int>(
            std::min<int64_t>(threads_for(context, rows * features * static_cast<int64_t>(sizeof(float))), rows));
        run_tasks(context, threads,
                  [&](int index) { blocked.complete(rows * index / threads, rows * (index + 1) / threads, features); });
    }
    blocked.clear_from(rows, features);
}

void restore_rows(const halyard_context &context, halyard_isa isa, const BlockedRows &from, int64_t rows,
                  int64_t features, const BlockedRows &to) {
    const int threads = static_cast<int>(
        std::min<int64_t>(threads_for(context, rows * features * static_cast<int64_t>(sizeof(float))), rows));
    run_tasks(context, threads, [&](int index) {
        alignas(64) float in_order[k_block];
        for (int64_t row = rows * index / threads; row < rows * (index + 1) / threads; row++) {
            for (int64_t k = 0; k < features; k += k_block) {
                const int64_t count = std::min<int64_t>(k_block, features - k);
                for (int64_t i = 0; i < count; i++) {
                    const int64_t feature = to.groups.order ? to.groups.order[k + i] : k + i;
                    in_order[i] = from.floats_at(row, feature / k_block)[feature % k_block];
                }
                to.store(isa, row, k, {reinterpret_cast<char *>(in_order), DType::f32}, count, 1);
            }
        }
    });
}

int64_t x_bytes(const halyard_context &context, halyard_isa isa, DType dtype, const halyard_weights &weights,
                int64_t rows) {
    return BlockedRows::bytes(form_of_x(context, isa, dtype, weights), Tiling::max_rows(rows), weights.in_features,
                              XGroups::of(weights));
}

}  // namespace halyard
