// See gradient_block.h.
#include "cpu/attention/backward/gradient_block.h"

#include <cstring>

namespace halyard {
namespace {

// Keys, or queries of dQ, that take the products together: of few, a mask leaves out more.
constexpr int64_t strip_rows = 48;

static_assert(gradient_keys >= gradient_queries + gradient_lanes, "the kernel sees no further than a block of keys");

bool all_finite(const float *values, int64_t count) {
    constexpr uint32_t exponent = 0x7f800000u;
    bool special = false;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        std::memcpy(&bits, values + i, sizeof(bits));
        special |= (bits & exponent) == exponent;
    }
    return !special;
}

FloatMatrix rows_of(const Heads &tensor, int64_t b, int64_t token, int64_t count, int64_t head) {
    return {reinterpret_cast<const float *>(tensor.at(b, token, head)), count, tensor.head_dim, tensor.token_stride};
}

void copy_rows(const FloatMatrix &from, float *to, int64_t pitch) {
    for (int64_t row = 0; row < from.rows; row++) {
        std::copy_n(from.data + row * from.pitch, from.columns, to + row * pitch);
    }
}

/** Tokens of a head, where they are wanted. */
void store(const float *rows, int64_t pitch, const Heads &tensor, int64_t b, int64_t token, int64_t count,
           int64_t head) {
    for (int64_t row = 0; tensor.view.data && row < count; row++) {
        std::copy_n(rows + row * pitch, tensor.head_dim, reinterpret_cast<float *>(tensor.at(b, token + row, head)));
    }
}

}  // namespace

GradientBlock::GradientBlock(halyard_isa isa, const AttentionBackwardCall &call, const Visibility &visibility,
                             float *memory)
    : call_(call), visibility_(visibility), columns_(GradientMemory::columns(call.q.head_dim)),
      memory_(memory, call.q.head_dim), product_(isa, call.q.head_dim, strip_rows),
      gradient_(kernel_function(kernels::attention_gradient, DType::f32, isa)),
      cap_(kernel_function(kernels::attention_softcap, DType::f32, isa)),
      cap_gradient_(kernel_function(kernels::attention_softcap_gradient, DType::f32, isa)),
      dot_(kernel_function(kernels::row_dot, DType::f32, isa)) {
    for (float *const piece : {memory_.log_sum_exp, memory_.dot, memory_.no_dot}) {
        std::fill_n(piece, gradient_queries + gradient_lanes, 0.0f);
    }
}

void GradientBlock::begin_keys(int64_t b, int64_t head, int64_t first, int64_t count) {
    b_ = b;
    key_head_ = head;
    first_key_ = first;
    keys_ = count;
    const FloatMatrix keys = rows_of(call_.k, b, first, count, head);
    copy_rows(keys, memory_.keys, x_pitch);
    copy_rows(rows_of(call_.v, b, first, count, head), memory_.values, x_pitch);
    pack_panels(keys, false, 0, columns_ / panel_width, memory_.key_panels);
    finite_keys_ = !visibility_.limited() || all_finite(memory_.key_panels, keys_ * columns_);
    std::fill_n(memory_.dk, keys_ * columns_, 0.0f);
    std::fill_n(memory_.dv, keys_ * columns_, 0.0f);
}

void GradientBlock::store_keys() const {
    store(memory_.dk, columns_, call_.dk, b_, first_key_, keys_, key_head_);
    store(memory_.dv, columns_, call_.dv, b_, first_key_, keys_, key_head_);
}

void GradientBlock::add_queries(int64_t head, int64_t first, int64_t count) {
    head_ = head;
    first_query_ = first;
    queries_ = count;
    masked_ = first_seeing(keys_ - 1) > 0 || end_seeing(0) < queries_;
    load_queries();
    if (masked_ && call_.dq.view.data) {
        for (int64_t query = 0; query < queries_; query++) {
            std::fill_n(memory_.transposed + query * x_pitch, keys_, 0.0f);
        }
    }
    for (int64_t key = 0; key < keys_; key += strip_rows) {
        add_strip(key, std::min(strip_rows, keys_ - key));
    }
}

void GradientBlock::load_queries() {
    const FloatMatrix q = rows_of(call_.q, b_, first_query_, queries_, head_),
                      dy = rows_of(call_.dy, b_, first_query_, queries_, head_);
    const int64_t features = columns_ / panel_width, queries = (queries_ + panel_width - 1) / panel_width;
    pack_panels(q, false, 0, features, memory_.q_panels);
    pack_panels(dy, false, 0, features, memory_.dy_panels);
    pack_panels(q, true, 0, queries, memory_.q_turned);
    pack_panels(dy, true, 0, queries, memory_.dy_turned);
    finite_queries_ = !masked_ || (all_finite(memory_.q_panels, queries_ * columns_) &&
                                   all_finite(memory_.dy_panels, queries_ * columns_));
    load_dots(dy, rows_of(call_.result, b_, first_query_, queries_, head_));
    const View &sums = call_.log_sum_exp;
    const int64_t *const strides = sums.strides + sums.rank - 2;
    const float *const from =
        reinterpret_cast<const float *>(sums.data) + (sums.rank > 2 ? b_ * sums.strides[0] : 0) + head_ * strides[1];
    for (int64_t query = 0; query < queries_; query++) {
        memory_.log_sum_exp[query] = from[(first_query_ + query) * strides[0]];
    }
}

/** D, the sums of dy y. */
void GradientBlock::load_dots(const FloatMatrix &dy, const FloatMatrix &y) {
    // Kernels count elements in 32 bits: rows that are further apart go one by one.
    constexpr int64_t max_pitch = INT32_MAX / gradient_queries;
    const int64_t at_once = std::max(dy.pitch, y.pitch) <= max_pitch ? queries_ : 1;
    for (int64_t row = 0; row < queries_; row += at_once) {
        dy_rows_.set(dy.data + row * dy.pitch, dy.columns, at_once, dy.pitch);
        y_rows_.set(y.data + row * y.pitch, y.columns, at_once, y.pitch);
        dots_.set(memory_.dot + row, 1, at_once, 1);
        dot_({.a = dy_rows_, .b = y_rows_, .y = dots_});
    }
}

/** dK and dV of keys [key, key + count), and their part of dS^T. */
void GradientBlock::add_strip(int64_t key, int64_t count) {
    const int64_t first = first_seeing(key), end = end_seeing(key + count - 1);
    if (first >= end) {
        return;
    }
    const int64_t panel = first / panel_width, column = panel * panel_width, place = key * x_pitch + column;
    const int64_t panels = (end - column + panel_width - 1) / panel_width, features = call_.q.head_dim;
    product_(memory_.keys + key * x_pitch, count, by_queries(memory_.q_turned).from(panel, 0), panels, features,
             memory_.scores + place, x_pitch, false);
    product_(memory_.values + key * x_pitch, count, by_queries(memory_.dy_turned).from(panel, 0), panels, features,
             memory_.products + place, x_pitch, false);
    make_gradients(key, count, column, end - column);
    if (call_.dv.view.data) {
        add_to_keys(memory_.scores, key, count, memory_.dy_panels, memory_.dv);
    }
    if (call_.dk.view.data) {
        add_to_keys(memory_.products, key, count, memory_.q_panels, memory_.dk);
    }
    if (call_.dq.view.data) {
        transpose_strip(key, count, column, end);
    }
}

/** P and dS of keys [key, key + count) and queries [column, column + columns). */
void GradientBlock::make_gradients(int64_t key, int64_t count, int64_t column, int64_t columns) {
    const int64_t place = key * x_pitch + column, width = GradientMemory::whole(columns, gradient_lanes);
    scores_.set(memory_.scores + place, width, count, x_pitch);
    products_.set(memory_.products + place, width, count, x_pitch);
    sums_.set(memory_.log_sum_exp + column, width);
    dots_of_queries_.set(memory_.dot + column, width);
    no_dots_.set(memory_.no_dot, width);
    const bool capped = call_.softcap > 0.0f;
    if (capped) {
        cap_({.s = scores_, .scale = call_.scale, .cap = call_.softcap, .y = scores_});
        cap_gradient_({.s = scores_,
                       .dp = products_,
                       .dot = dots_of_queries_,
                       .scale = call_.scale,
                       .cap = call_.softcap,
                       .y = products_});
    }
    const int64_t at = position() + column;
    const auto from_column = [&](int64_t query) { return static_cast<int32_t>(query - at); };
    gradient_({.s = scores_,
               .dp = products_,
               .log_sum_exp = sums_,
               .dot = capped ? no_dots_ : dots_of_queries_,
               .scale = capped ? 1.0f : call_.scale,
               .first = from_column(visibility_.first_seeing(first_key_ + key, at - gradient_keys, at + gradient_keys)),
               .end = from_column(visibility_.end_seeing(first_key_ + key, at - gradient_keys, at + gradient_keys)),
               .p = scores_,
               .ds = products_});
}

/** sums += factors rows, for keys [key, key + count). Where a query's row holds Inf or NaN, keys that it does not see are kept from
 *  their product with 0. */
void GradientBlock::add_to_keys(const float *factors, int64_t key, int64_t count, const float *panels, float *sums) {
    const int64_t at_once = finite_queries_ ? count : 1;
    for (int64_t row = key; row < key + count; row += at_once) {
        const int64_t from = first_seeing(row), end = end_seeing(row + at_once - 1);
        if (from < end) {
            product_(factors + row * x_pitch + from, at_once, by_features(panels, queries_).from(0, from),
                     columns_ / panel_width, end - from, sums + row * columns_, columns_, true);
        }
    }
}

/** Takes the queries [column, end). */
void GradientBlock::transpose_strip(int64_t key, int64_t count, int64_t column, int64_t end) {
    for (int64_t k = key; k < key + count; k += panel_width) {
        for (int64_t query = column; query < end; query += panel_width) {
            transpose_tile(memory_.products + k * x_pitch + query, x_pitch,
                           std::min<int64_t>(panel_width, key + count - k), std::min<int64_t>(panel_width, end - query),
                           memory_.transposed + query * x_pitch + k, x_pitch);
        }
    }
}

void GradientBlock::add_to_dq(bool first) {
    if (!call_.dq.view.data) {
        return;
    }
    std::fill_n(memory_.dq, queries_ * columns_, 0.0f);
    if (!first) {
        copy_rows(rows_of(call_.dq, b_, first_query_, queries_, head_), memory_.dq, columns_);
    }
    const int64_t at_once = !masked_ || finite_keys_ ? strip_rows : 1;
    for (int64_t query = 0; query < queries_; query += at_once) {
        const int64_t count = std::min(at_once, queries_ - query);
        const int64_t from = first_seen(query), end = end_seen(query + count - 1);
        if (from < end) {
            product_(memory_.transposed + query * x_pitch + from, count,
                     by_features(memory_.key_panels, keys_).from(0, from), columns_ / panel_width, end - from,
                     memory_.dq + query * columns_, columns_, true);
        }
    }
    store(memory_.dq, columns_, call_.dq, b_, first_query_, queries_, head_);
}

}  // namespace halyard
