// The gradients of attention on the processor, from the log-sum-exp of the forward call: no matrix of all scores.
//
// A task is a block of keys of one head. It takes the heads of q that share these keys one after the other, and of each the
// blocks of queries that see some of them, upward. With keys as rows and queries as columns:
//
//     S = K Q^T    P = exp(scale S - lse)    dP = V dO^T    dS = scale P (dP - D)
//     dV += P dO   dK += dS Q                dQ += dS^T K
//
// Rows of dK and dV belong to the task alone. A block of dQ goes from task to task in the order of their keys.
#include <sched.h>

#include <atomic>
#include <cstring>
#include <new>

#include "core/workspace.h"
#include "cpu/attention/attention_products.h"
#include "cpu/backend.h"
#include "cpu/linear/activation_panels.h"

namespace halyard {
namespace {

// Part of the numerics: dQ adds sums over so many keys, dK and dV over so many queries.
constexpr int64_t keys_at_once = 192, queries_at_once = 128;
static_assert(keys_at_once <= k_block && queries_at_once <= k_block, "a block of sums each");

// Keys, or queries of dQ, that take the products together: of few, a mask leaves out more.
constexpr int64_t strip_rows = 48;

// Columns of the kernel between the products at a time.
constexpr int64_t lanes_at_once = 32;

/** n, rounded up to whole ones of a size. */
constexpr int64_t whole(int64_t n, int64_t of) {
    return (n + of - 1) / of * of;
}

/** What the threads of one call share. */
struct GradientWork {
    const AttentionBackwardCall &call;
    halyard_isa isa;
    int64_t key_heads, key_blocks, query_blocks;
    std::atomic<int32_t> *turns =
        nullptr;  // [batch][head of q][block of queries]: the block of keys whose part of dQ is next
    std::atomic<int64_t> next{0};

    int64_t group() const { return call.q.heads / call.k.heads; }
    int64_t columns() const { return whole(call.q.head_dim, panel_width); }
    /** Where the first query lies. */
    int64_t first_position() const { return call.k.tokens - call.q.tokens; }
};

/** One thread's memory. */
struct GradientMemory {
    float *keys, *values;         // [key][x_pitch]
    float *scores, *products;     // S, then P; dP, then dS: [key][x_pitch]
    float *transposed;            // dS^T: [query][x_pitch]
    float *dk, *dv, *dq;          // [key or query][columns]
    float *key_panels;            // keys x features
    float *q_panels, *dy_panels;  // queries x features
    float *q_turned, *dy_turned;  // features x queries
    float *log_sum_exp, *dot;     // [query]

    static int64_t floats(int64_t columns) { return GradientMemory().place(nullptr, columns); }

    /** Returns how many floats it takes. */
    int64_t place(float *memory, int64_t columns) {
        int64_t used = 0;
        const auto take = [&](float *&piece, int64_t floats) {
            piece = memory ? memory + used : nullptr;
            used += whole(floats, panel_width);
        };
        for (float **piece : {&keys, &values, &scores, &products}) {
            take(*piece, keys_at_once * x_pitch);
        }
        take(transposed, queries_at_once * x_pitch);
        for (float **piece : {&dk, &dv, &key_panels}) {
            take(*piece, keys_at_once * columns);
        }
        for (float **piece : {&dq, &q_panels, &dy_panels, &q_turned, &dy_turned}) {
            take(*piece, queries_at_once * columns);
        }
        for (float **piece : {&log_sum_exp, &dot}) {
            take(*piece, queries_at_once + lanes_at_once);
        }
        return used;
    }
};

/** Products of rows at x_pitch with panels, in tiles of a height that suits the heads and one lower tile for what is left. */
class RowProduct {
public:
    RowProduct(halyard_isa isa, int64_t head_dim)
        : isa_(isa), height_(best_tile_rows(isa, XForm::f32, head_dim, strip_rows)), tall_(product_of(height_)) {}

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
    TileProduct product_of(int tile_rows) const { return TileProduct(isa_, XForm::f32, DType::f32, false, tile_rows); }

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

/** One thread's part. */
class GradientWorker {
public:
    GradientWorker(GradientWork &work, float *memory)
        : work_(work), call_(work.call), columns_(work.columns()), product_(work.isa, work.call.q.head_dim),
          gradient_(kernel_function(kernels::attention_gradient, DType::f32, work.isa)),
          dot_(kernel_function(kernels::row_dot, DType::f32, work.isa)) {
        memory_.place(memory, columns_);
        std::fill_n(memory_.log_sum_exp, queries_at_once + lanes_at_once, 0.0f);
        std::fill_n(memory_.dot, queries_at_once + lanes_at_once, 0.0f);
    }

    /** Takes tasks until none is left: the first blocks of all heads, which most queries see, and then the next. */
    void run() {
        const int64_t tasks = work_.key_heads * work_.key_blocks;
        for (int64_t task; (task = work_.next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
            key_block_ = task / work_.key_heads;
            b_ = task % work_.key_heads / call_.k.heads;
            gradients_of_keys(task % work_.key_heads % call_.k.heads);
        }
    }

private:
    void gradients_of_keys(int64_t key_head) {
        first_key_ = key_block_ * keys_at_once;
        keys_ = std::min(keys_at_once, call_.k.tokens - first_key_);
        load_keys(key_head);
        std::fill_n(memory_.dk, keys_ * columns_, 0.0f);
        std::fill_n(memory_.dv, keys_ * columns_, 0.0f);
        const int64_t seen_from = call_.causal ? std::max<int64_t>(0, first_key_ - work_.first_position()) : 0;
        for (int64_t i = 0; i < work_.group(); i++) {
            for (int64_t block = seen_from / queries_at_once; block < work_.query_blocks; block++) {
                add_queries(key_head * work_.group() + i, block);
            }
        }
        store(memory_.dk, call_.dk, first_key_, keys_, key_head);
        store(memory_.dv, call_.dv, first_key_, keys_, key_head);
    }

    void load_keys(int64_t head) {
        const FloatMatrix keys = rows_of(call_.k, b_, first_key_, keys_, head);
        copy_rows(keys, memory_.keys, x_pitch);
        copy_rows(rows_of(call_.v, b_, first_key_, keys_, head), memory_.values, x_pitch);
        pack_panels(keys, false, 0, columns_ / panel_width, memory_.key_panels);
        finite_keys_ = !call_.causal || all_finite(memory_.key_panels, keys_ * columns_);
    }

    /** Everything of one block of queries of a head of q. */
    void add_queries(int64_t head, int64_t block) {
        first_query_ = block * queries_at_once;
        queries_ = std::min(queries_at_once, call_.q.tokens - first_query_);
        // Key i is seen by queries from i + hidden_ on.
        const int64_t hidden = first_key_ - work_.first_position() - first_query_;
        hidden_ = call_.causal ? std::max(hidden, -keys_at_once) : -keys_at_once;
        masked_ = hidden_ + keys_ > 1;
        load_queries(head);
        if (masked_ && call_.dq.view.data) {
            for (int64_t query = 0; query < queries_; query++) {
                std::fill_n(memory_.transposed + query * x_pitch, keys_, 0.0f);
            }
        }
        for (int64_t key = 0; key < keys_ && key + hidden_ < queries_; key += strip_rows) {
            add_strip(key, std::min(strip_rows, keys_ - key));
        }
        if (call_.dq.view.data) {
            add_to_dq(head, block);
        }
    }

    void load_queries(int64_t head) {
        const FloatMatrix q = rows_of(call_.q, b_, first_query_, queries_, head),
                          dy = rows_of(call_.dy, b_, first_query_, queries_, head);
        const int64_t features = columns_ / panel_width, queries = (queries_ + panel_width - 1) / panel_width;
        pack_panels(q, false, 0, features, memory_.q_panels);
        pack_panels(dy, false, 0, features, memory_.dy_panels);
        pack_panels(q, true, 0, queries, memory_.q_turned);
        pack_panels(dy, true, 0, queries, memory_.dy_turned);
        finite_queries_ = !masked_ || (all_finite(memory_.q_panels, queries_ * columns_) &&
                                       all_finite(memory_.dy_panels, queries_ * columns_));
        load_dots(dy, rows_of(call_.result, b_, first_query_, queries_, head));
        const View &sums = call_.log_sum_exp;
        const int64_t *const strides = sums.strides + sums.rank - 2;
        const float *const from =
            reinterpret_cast<const float *>(sums.data) + (sums.rank > 2 ? b_ * sums.strides[0] : 0) + head * strides[1];
        for (int64_t query = 0; query < queries_; query++) {
            memory_.log_sum_exp[query] = from[(first_query_ + query) * strides[0]];
        }
    }

    /** D, the sums of dy y. */
    void load_dots(const FloatMatrix &dy, const FloatMatrix &y) {
        // Kernels count elements in 32 bits: rows that are further apart go one by one.
        constexpr int64_t max_pitch = INT32_MAX / queries_at_once;
        const int64_t at_once = std::max(dy.pitch, y.pitch) <= max_pitch ? queries_ : 1;
        for (int64_t row = 0; row < queries_; row += at_once) {
            dy_rows_.set(dy.data + row * dy.pitch, dy.columns, at_once, dy.pitch);
            y_rows_.set(y.data + row * y.pitch, y.columns, at_once, y.pitch);
            dots_.set(memory_.dot + row, 1, at_once, 1);
            dot_({.a = dy_rows_, .b = y_rows_, .y = dots_});
        }
    }

    /** The first query of the block that sees a key; at most all. */
    int64_t first_seeing(int64_t key) const { return std::clamp<int64_t>(key + hidden_, 0, queries_); }
    /** How many keys of the block a query sees. */
    int64_t keys_seen(int64_t query) const { return std::clamp<int64_t>(query - hidden_ + 1, 0, keys_); }

    Panels by_features(const float *panels, int64_t inputs) const {
        return packed_panels(inputs, columns_, panels).first;
    }
    Panels by_queries(const float *panels) const { return packed_panels(call_.q.head_dim, queries_, panels).first; }

    /** dK and dV of keys [key, key + count), and their part of dS^T. */
    void add_strip(int64_t key, int64_t count) {
        const int64_t panel = first_seeing(key) / panel_width, column = panel * panel_width,
                      place = key * x_pitch + column;
        const int64_t panels = (queries_ - column + panel_width - 1) / panel_width, features = call_.q.head_dim;
        product_(memory_.keys + key * x_pitch, count, by_queries(memory_.q_turned).from(panel, 0), panels, features,
                 memory_.scores + place, x_pitch, false);
        product_(memory_.values + key * x_pitch, count, by_queries(memory_.dy_turned).from(panel, 0), panels, features,
                 memory_.products + place, x_pitch, false);
        const int64_t width = whole(queries_ - column, lanes_at_once);
        scores_.set(memory_.scores + place, width, count, x_pitch);
        products_.set(memory_.products + place, width, count, x_pitch);
        sums_.set(memory_.log_sum_exp + column, width);
        dots_of_queries_.set(memory_.dot + column, width);
        gradient_({.s = scores_,
                   .dp = products_,
                   .log_sum_exp = sums_,
                   .dot = dots_of_queries_,
                   .scale = call_.scale,
                   .first = static_cast<int32_t>(key + hidden_ - column),
                   .p = scores_,
                   .ds = products_});
        if (call_.dv.view.data) {
            add_to_keys(memory_.scores, key, count, memory_.dy_panels, memory_.dv);
        }
        if (call_.dk.view.data) {
            add_to_keys(memory_.products, key, count, memory_.q_panels, memory_.dk);
        }
        if (call_.dq.view.data) {
            transpose_strip(key, count, column);
        }
    }

    /** sums += factors rows, for keys [key, key + count). Where a query's row holds Inf or NaN, keys that it does not see are kept from
     *  their product with 0. */
    void add_to_keys(const float *factors, int64_t key, int64_t count, const float *panels, float *sums) {
        const int64_t at_once = finite_queries_ ? count : 1;
        for (int64_t row = key; row < key + count; row += at_once) {
            const int64_t from = first_seeing(row);
            if (from < queries_) {
                product_(factors + row * x_pitch + from, at_once, by_features(panels, queries_).from(0, from),
                         columns_ / panel_width, queries_ - from, sums + row * columns_, columns_, true);
            }
        }
    }

    void transpose_strip(int64_t key, int64_t count, int64_t column) {
        for (int64_t k = key; k < key + count; k += panel_width) {
            for (int64_t query = column; query < queries_; query += panel_width) {
                transpose_tile(memory_.products + k * x_pitch + query, x_pitch,
                               std::min<int64_t>(panel_width, key + count - k),
                               std::min<int64_t>(panel_width, queries_ - query),
                               memory_.transposed + query * x_pitch + k, x_pitch);
            }
        }
    }

    /** When the blocks of keys before this one have added theirs. */
    void add_to_dq(int64_t head, int64_t block) {
        std::atomic<int32_t> &turn = work_.turns[(b_ * call_.q.heads + head) * work_.query_blocks + block];
        for (int spins = 0; turn.load(std::memory_order_acquire) != key_block_; spins++) {
            if (spins > 2000) {
                sched_yield();
            }
        }
        std::fill_n(memory_.dq, queries_ * columns_, 0.0f);
        if (key_block_ > 0) {
            copy_rows(rows_of(call_.dq, b_, first_query_, queries_, head), memory_.dq, columns_);
        }
        const bool together = !masked_ || finite_keys_;
        for (int64_t query = 0; query < queries_;) {
            const int64_t count = together ? std::min(strip_rows, queries_ - query) : 1;
            const int64_t inputs = keys_seen(query + count - 1);
            if (inputs > 0) {
                product_(memory_.transposed + query * x_pitch, count, by_features(memory_.key_panels, keys_),
                         columns_ / panel_width, inputs, memory_.dq + query * columns_, columns_, true);
            }
            query += count;
        }
        store(memory_.dq, call_.dq, first_query_, queries_, head);
        turn.store(static_cast<int32_t>(key_block_ + 1), std::memory_order_release);
    }

    /** Tokens of a head, where they are wanted. */
    void store(const float *rows, const Heads &tensor, int64_t token, int64_t count, int64_t head) const {
        for (int64_t row = 0; tensor.view.data && row < count; row++) {
            std::copy_n(rows + row * columns_, tensor.head_dim,
                        reinterpret_cast<float *>(tensor.at(b_, token + row, head)));
        }
    }

    GradientWork &work_;
    const AttentionBackwardCall &call_;
    const int64_t columns_;
    GradientMemory memory_;
    RowProduct product_;
    const KernelCall<arguments::AttentionGradient> gradient_;
    const KernelCall<arguments::RowDot> dot_;
    Buffer<2, float> scores_, products_, dy_rows_, y_rows_, dots_;
    Buffer<1, float> sums_, dots_of_queries_;

    // Where the thread is.
    int64_t key_block_ = 0, b_ = 0, first_key_ = 0, keys_ = 0, first_query_ = 0, queries_ = 0;
    int64_t hidden_ = 0;
    bool masked_ = false, finite_keys_ = true, finite_queries_ = true;
};

/** What queries get that have no keys. */
void clear_dq(const Heads &dq) {
    for (int64_t b = 0; dq.view.data && b < dq.batch; b++) {
        for (int64_t token = 0; token < dq.tokens; token++) {
            for (int64_t head = 0; head < dq.heads; head++) {
                std::memset(dq.at(b, token, head), 0, static_cast<size_t>(dq.head_dim) * sizeof(float));
            }
        }
    }
}

}  // namespace

void cpu::attention_backward(Checker &check, const halyard_context &context, const AttentionBackwardCall &call) {
    const Heads &q = call.q, &k = call.k;
    const auto blocks = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
    GradientWork work = {call, best_isa(context.max_isa), k.batch * k.heads, blocks(k.tokens, keys_at_once),
                         blocks(q.tokens, queries_at_once)};
    if (work.key_blocks == 0) {
        clear_dq(call.dq);
        return;
    }
    // Five products of this size.
    const double bytes = 5 * static_cast<double>(sizeof(float)) * static_cast<double>(k.tokens * k.head_dim) *
                         static_cast<double>(work.key_heads) *
                         static_cast<double>(blocks(q.tokens * work.group(), max_tile_rows));
    const int64_t tasks = work.key_heads * work.key_blocks;
    const int64_t threads =
        std::min(tasks, static_cast<int64_t>(std::clamp(bytes / static_cast<double>(parameters.attention_thread_bytes),
                                                        1.0, static_cast<double>(thread_bound(context)))));
    const int64_t turns = call.dq.view.data ? q.batch * q.heads * work.query_blocks : 0;
    Workspace workspace(context, device_of(q.view));
    const int64_t thread_bytes =
        Workspace::piece_bytes(GradientMemory::floats(work.columns()) * static_cast<int64_t>(sizeof(float)));
    const auto of_threads = workspace.book(threads, thread_bytes);
    const auto of_turns = workspace.book<std::atomic<int32_t>>(turns);
    if (!workspace.allocate(check)) {
        return;
    }
    work.turns = workspace[of_turns];
    for (int64_t i = 0; i < turns; i++) {
        new (work.turns + i) std::atomic<int32_t>(0);
    }
    run_tasks(context, static_cast<int>(threads), [&](int index) {
        GradientWorker(work, reinterpret_cast<float *>(workspace[of_threads] + index * thread_bytes)).run();
    });
}

}  // namespace halyard
