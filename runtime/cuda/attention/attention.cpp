// Attention on a device: new keys and values to where they are read, then block of queries by block the splits of the
// positions that they see, and the joining of the splits. Where a block has many queries in 16 bits and cuBLASLt is
// there, positions that all of them see are split by GEMMs; what only some see, and tokens one by one, by the
// kernel that reads keys and values once for a few rows.
//
// A block has as many queries (of all heads, and of several sequences) as have room for their partial results and
// scores, so that the memory does not grow with the product of the lengths.
#include "cuda/backend.h"

#include <algorithm>

#include "core/workspace.h"
#include "cuda/attention/attention_plan.h"
#include "cuda/attention/attention_products.h"
#include "cuda/attention/kv_cache.h"
#include "cuda/attention/rope.h"
#include "cuda/kernel_call.h"
#include "cuda/launch.h"
#include "cuda/linear/gemm.h"

namespace halyard::cuda {
namespace {

// Positions, and masks counted from them, stay in 32 bits; so do the elements between the first and the last along an
// axis of a launch.
constexpr int64_t max_device_positions = int64_t{1} << 30;
constexpr int64_t max_attention_reach = int64_t{1} << 28;
constexpr int64_t max_attention_grid = 65535;

int64_t within_reach(int64_t count, int64_t stride) {
    return std::max<int64_t>(1, std::min(count, max_attention_reach / std::max<int64_t>(stride, 1)));
}

/** One call. */
class DeviceAttention {
public:
    DeviceAttention(Checker &check, const halyard_context &context, const AttentionCall &call, const DevicePlan &plan)
        : check_(check), context_(context), call_(call), plan_(plan), ordinal_(call.q.view.device_id),
          launches_(check, context, ordinal_) {}

    void run() {
        Workspace workspace(context_, device_of(call_.q.view));
        const int64_t norm_weight_bytes = call_.q.head_dim * static_cast<int64_t>(sizeof(float));
        const auto partial = workspace.book(plan_.partial_bytes), queries = workspace.book(plan_.query_bytes);
        const auto rounded_queries = workspace.book(plan_.rounded_query_bytes);
        const auto scores = workspace.book(plan_.score_bytes), weights = workspace.book(plan_.weight_bytes);
        const auto product_memory = workspace.book(plan_.products ? product_workspace_bytes(launches_) : 0);
        const auto staged = workspace.book(plan_.staged_bytes);
        const auto key_copy = workspace.book(plan_.key_copy_bytes), value_copy = workspace.book(plan_.value_copy_bytes);
        const auto q_norm_weight = workspace.book(norm_weight_bytes), k_norm_weight = workspace.book(norm_weight_bytes);
        if (!workspace.allocate(check_)) {
            return;
        }
        partial_ = workspace[partial];
        queries_ = workspace[queries];
        rounded_queries_ = workspace[rounded_queries];
        scores_ = workspace[scores];
        weights_ = workspace[weights];
        workspace_ = workspace[product_memory];
        staged_ = workspace[staged];
        key_copy_ = workspace[key_copy];
        value_copy_ = workspace[value_copy];
        q_weight_ = weight_in_f32(call_.q_norm_weight, workspace[q_norm_weight]);
        k_weight_ = weight_in_f32(call_.k_norm_weight, workspace[k_norm_weight]);
        for (int64_t b = 0; b < call_.q.batch;) {
            SequenceRun run = {b, call_.q.batch - b};
            if (call_.cache) {
                run = run_of_sequences(*call_.cache, call_.layer, call_.sequences, b, call_.q.batch);
            }
            attend(run);
            b += run.count;
        }
    }

private:
    View weight_in_f32(const View &weight, char *memory) {
        View result = weight;
        if (weight.data && weight.dtype != DType::f32) {
            result = view_of(memory, DType::f32, {true, ordinal_}, {weight.width()}, {1});
            cast(check_, context_, weight, result);
        }
        return result;
    }

    // ---- keys and values ----

    /** Norm and rope of compact heads in f32, of which the first token has this position. */
    void prepare(const DeviceHeads &heads, const View &weight, int64_t position) {
        if (weight.data) {
            const int64_t rows = heads.batch * heads.tokens * heads.heads;
            const View view =
                view_of(heads.data, DType::f32, {true, ordinal_}, {rows, heads.head_dim}, {heads.head_dim, 1});
            norm(check_, context_, {HALYARD_NORM_RMS, view, weight, View(), view, call_.rms});
        }
        if (call_.rope) {
            DevicePositions positions;
            positions.first = position;
            rotate(check_, context_, ordinal_, *call_.rope, positions, heads, heads);
        }
    }

    /** Appends the new keys and values of sequences to the cache. */
    void append(const SequenceRun &run, int64_t position) {
        const int64_t sequence = call_.sequence(run.first), tokens = call_.k.tokens;
        const DeviceHeads k = device_heads(call_.k).batch_from(run.first, run.count);
        const DeviceHeads v = device_heads(call_.v).batch_from(run.first, run.count);
        const DeviceHeads keys = cached_keys(*call_.cache, call_.layer, sequence, run.count, position, tokens);
        convert_heads(check_, context_, ordinal_, v,
                      cached_values(*call_.cache, call_.layer, sequence, run.count, position, tokens));
        store_keys(k, position, keys);
    }

    /** Keys, of which the first token has this position, to where they are read, normed and rotated in f32. */
    void store_keys(const DeviceHeads &k, int64_t position, const DeviceHeads &to) {
        if (!plan_.keys_change) {
            convert_heads(check_, context_, ordinal_, k, to);
            return;
        }
        for (int64_t t = 0; t < k.tokens; t += plan_.staged_tokens) {
            const int64_t count = std::min(plan_.staged_tokens, k.tokens - t);
            const int64_t batch_at_once = std::max<int64_t>(1, plan_.staged_tokens / count);
            for (int64_t b = 0; b < k.batch; b += batch_at_once) {
                const int64_t batch = std::min(batch_at_once, k.batch - b);
                const DeviceHeads staged = compact_heads(staged_, DType::f32, batch, count, k.heads, k.head_dim);
                convert_heads(check_, context_, ordinal_, k.batch_from(b, batch).tokens_from(t, count), staged);
                prepare(staged, k_weight_, position + t);
                convert_heads(check_, context_, ordinal_, staged, to.batch_from(b, batch).tokens_from(t, count));
            }
        }
    }

    struct KeysAndValues {
        DeviceHeads keys, values;
    };

    /** All keys and values of sequences, as the kernel may read them. */
    KeysAndValues keys_and_values(const SequenceRun &run, int64_t first_key, int64_t keys) {
        if (call_.cache) {
            const int64_t sequence = call_.sequence(run.first);
            append(run, first_key);
            return {cached_keys(*call_.cache, call_.layer, sequence, run.count, 0, keys),
                    cached_values(*call_.cache, call_.layer, sequence, run.count, 0, keys)};
        }
        const DeviceHeads k = device_heads(call_.k), v = device_heads(call_.v);
        const auto copy = [&](char *memory) {
            return compact_heads(memory, plan_.stored_dtype, k.batch, k.tokens, k.heads, k.head_dim);
        };
        KeysAndValues read = {k, v};
        if (plan_.copy_keys) {
            read.keys = copy(key_copy_);
            store_keys(k, 0, read.keys);
        }
        if (plan_.copy_values) {
            read.values = copy(value_copy_);
            convert_heads(check_, context_, ordinal_, v, read.values);
        }
        return read;
    }

    // ---- queries ----

    void attend(const SequenceRun &run) {
        const int64_t first_key = call_.first_key(run.first), keys = call_.keys(run.first);
        const int64_t first_query = keys - call_.q.tokens;
        const KeysAndValues stored = keys_and_values(run, first_key, keys);
        for (int64_t b = 0; b < run.count; b += plan_.batch) {
            const int64_t batch = std::min(plan_.batch, run.count - b);
            const KeysAndValues part = {stored.keys.batch_from(b, batch), stored.values.batch_from(b, batch)};
            for (int64_t t = 0; t < call_.q.tokens; t += plan_.queries) {
                attend(run.first + b, batch, t, std::min(plan_.queries, call_.q.tokens - t), first_query + t, part);
            }
        }
    }

    /** Queries of a launch and what each sees, and where their partial results go: those of split i, counted from the
     * first that they see, are [sequence][head of keys][row], with padding after the rows. */
    struct QueryBlock {
        int64_t first, batch;       // sequences
        int64_t token, tokens;      // of y
        int64_t position;           // of the first token
        int64_t before, after;      // a query at p sees positions > p - before and < p + after
        int64_t rows, head_floats;  // (query, head of the group); of a head's partial results
        int64_t split_floats;

        int64_t last_position() const { return position + tokens - 1; }
    };

    /** Queries [token, token + tokens) of sequences, the first at this position. */
    void attend(int64_t b, int64_t batch, int64_t token, int64_t tokens, int64_t position,
                const KeysAndValues &stored) {
        load(b, batch, token, tokens, position);
        const int64_t window =
            call_.sliding_window > 0 ? std::min(call_.sliding_window, max_device_positions) : max_device_positions;
        const int64_t head_floats = plan_.padded_rows(tokens) * plan_.pitch;
        const QueryBlock block = {b,
                                  batch,
                                  token,
                                  tokens,
                                  position,
                                  window,
                                  call_.causal ? 1 : window,
                                  tokens * plan_.group,
                                  head_floats,
                                  batch * call_.k.heads * head_floats};
        const int64_t keys = stored.keys.tokens;
        const int64_t first = std::clamp<int64_t>(position - block.before + 1, 0, keys);
        const int64_t end = std::clamp<int64_t>(block.last_position() + block.after, first, keys);
        const int64_t first_split = first / split_positions;
        const int64_t end_split = end > first ? divide_up(end, split_positions) : first_split;
        // Positions that every query sees.
        const int64_t all_first = std::clamp<int64_t>(block.last_position() - block.before + 1, 0, keys);
        const int64_t all_end = std::clamp<int64_t>(position + block.after, 0, keys);
        int64_t product_split = divide_up(all_first, split_positions), product_end = all_end / split_positions;
        if (!plan_.products || (product_end - product_split) * split_positions < least_product_positions) {
            product_split = product_end = end_split;
        }

        int64_t made = launch_splits(block, first_split, product_split, 0, stored);
        if (product_split < product_end) {
            round_queries(block, plan_.stored_dtype);
        }
        constexpr int64_t at_once = product_positions / split_positions;
        for (int64_t split = product_split; split < product_end; split += at_once) {
            multiply(block, split, std::min(split + at_once, product_end), made++, stored);
        }
        made = launch_splits(block, product_end, end_split, made, stored);
        join(block, made);
    }

    char *partial_at(const QueryBlock &block, int64_t split, int64_t sequence = 0, int64_t head = 0) const {
        const int64_t floats = split * block.split_floats + (sequence * call_.k.heads + head) * block.head_floats;
        return partial_ + floats * static_cast<int64_t>(sizeof(float));
    }

    /** Positions of splits [from, end) by the kernel that takes one at a time, as the results `made` and after. Returns
     * the number of the next. */
    int64_t launch_splits(const QueryBlock &block, int64_t from, int64_t end, int64_t made,
                          const KeysAndValues &stored) {
        // As many as the elements between the first and the last allow.
        const DeviceHeads &k = stored.keys, &v = stored.values;
        const int64_t splits = end - from, heads = call_.k.heads, batch = block.batch;
        const int64_t positions_at_once = std::max<int64_t>(
            1, std::min({splits, max_attention_grid,
                         within_reach(k.tokens, std::max(k.token_stride, v.token_stride)) / split_positions}));
        const int64_t heads_at_once =
            within_reach(std::min(heads, max_attention_grid), std::max(k.head_stride, v.head_stride));
        const int64_t batch_at_once = heads_at_once < heads ? 1
                                                            : within_reach(std::min(batch, max_attention_grid / heads),
                                                                           std::max(k.batch_stride, v.batch_stride));
        for (int64_t s = 0; s < splits; s += positions_at_once) {
            for (int64_t h = 0; h < heads; h += heads_at_once) {
                for (int64_t i = 0; i < batch; i += batch_at_once) {
                    const Piece piece = {from + s, std::min(positions_at_once, splits - s),
                                         h,        std::min(heads_at_once, heads - h),
                                         i,        std::min(batch_at_once, batch - i)};
                    launch_piece(block, piece, partial_at(block, made + s, i, h), stored);
                }
            }
        }
        return made + splits;
    }

    /** Positions of splits [from, end), which all queries see, as one of which the result is number `made`. */
    void multiply(const QueryBlock &block, int64_t from, int64_t end, int64_t made, const KeysAndValues &stored) {
        const int64_t first = from * split_positions, count = (end - from) * split_positions;
        attend_by_products(context_, launches_,
                           {rounded_queries_, stored.keys.tokens_from(first, count),
                            stored.values.tokens_from(first, count), block.rows, plan_.padded_rows(block.tokens),
                            call_.scale, call_.softcap, scores_, weights_, partial_at(block, made), plan_.pitch},
                           workspace_);
    }

    /** The loaded queries in the type that GEMMs take. */
    void round_queries(const QueryBlock &block, DType dtype) {
        const int64_t d = call_.q.head_dim, rows = block.batch * call_.k.heads * block.rows;
        cast(check_, context_, view_of(queries_, DType::f32, {true, ordinal_}, {rows, d}, {d, 1}),
             view_of(rounded_queries_, dtype, {true, ordinal_}, {rows, d}, {d, 1}));
    }

    /** The queries in f32 after norm and rope, [sequence][head of keys][query][head of the group]. */
    void load(int64_t b, int64_t batch, int64_t token, int64_t tokens, int64_t position) {
        const Heads &q = call_.q;
        const int64_t size = size_of(q.view.dtype), group = plan_.group, d = q.head_dim, heads = call_.k.heads;
        const int64_t sequence_floats = heads * tokens * group * d;
        char *const from = q.at(b, token, 0);
        // Tensors have four axes here: one of the first three goes into a loop unless it is short anyway.
        if (tokens == 1) {
            convert(view_of(from, q.view.dtype, {true, ordinal_}, {batch, heads, group, d},
                            {q.batch_stride, group * q.head_stride, q.head_stride, 1}),
                    view_of(queries_, DType::f32, {true, ordinal_}, {batch, heads, group, d},
                            {sequence_floats, group * d, d, 1}));
        } else {
            for (int64_t i = 0; i < batch; i++) {
                char *const to = queries_ + i * sequence_floats * static_cast<int64_t>(sizeof(float));
                convert(view_of(from + i * q.batch_stride * size, q.view.dtype, {true, ordinal_},
                                {heads, group, tokens, d}, {group * q.head_stride, q.head_stride, q.token_stride, 1}),
                        view_of(to, DType::f32, {true, ordinal_}, {heads, group, tokens, d},
                                {tokens * group * d, d, group * d, 1}));
            }
        }
        prepare(compact_heads(queries_, DType::f32, batch * heads, tokens, group, d), q_weight_, position);
    }

    void convert(const View &from, const View &to) { cast(check_, context_, from, to); }

    struct Piece {
        int64_t split, splits, head, heads, sequence, sequences;
    };

    void launch_piece(const QueryBlock &block, const Piece &piece, char *partial, const KeysAndValues &stored) {
        const int64_t d = call_.q.head_dim, all_heads = call_.k.heads;
        const int64_t base = piece.split * split_positions, rows = block.rows, tiles = divide_up(rows, split_rows);
        const Access access = access_to(stored.keys, stored.values);
        const int64_t per_word = access == Access::words ? 4 / size_of(stored.keys.dtype) : 1;
        const auto at = [&](const DeviceHeads &heads) {
            return heads.data +
                   (piece.sequence * heads.batch_stride + base * heads.token_stride + piece.head * heads.head_stride) *
                       size_of(heads.dtype);
        };
        Buffer<4, float> q;
        Buffer<4> keys, values;
        const int64_t head_floats = rows * d;
        q.set_data(queries_ +
                   (piece.sequence * all_heads + piece.head) * head_floats * static_cast<int64_t>(sizeof(float)));
        q.set_dim(0, d, 1);
        q.set_dim(1, rows, d);
        q.set_dim(2, piece.heads, head_floats);
        q.set_dim(3, piece.sequences, all_heads * head_floats);
        const int64_t positions = std::min(stored.keys.tokens - base, piece.splits * split_positions);
        for (Buffer<4> *buffer : {&keys, &values}) {
            const DeviceHeads &heads = buffer == &keys ? stored.keys : stored.values;
            buffer->set_data(at(heads));
            buffer->set_dim(0, d / per_word, 1);
            buffer->set_dim(1, positions, positions > 1 ? heads.token_stride / per_word : 0);
            buffer->set_dim(2, piece.heads, piece.heads > 1 ? heads.head_stride / per_word : 0);
            buffer->set_dim(3, piece.sequences, piece.sequences > 1 ? heads.batch_stride / per_word : 0);
        }
        Buffer<5, float> out;
        out.set_data(partial);
        out.set_dim(0, d + split_statistics, 1);
        out.set_dim(1, split_rows, plan_.pitch);
        out.set_dim(2, tiles, split_rows * plan_.pitch);
        out.set_dim(3, piece.splits, block.split_floats);
        out.set_dim(4, piece.heads * piece.sequences, block.head_floats);
        launches_.run(kernels::attention_split, stored.keys.dtype, access,
                      {.q = q,
                       .keys = keys,
                       .values = values,
                       .scale = call_.scale,
                       .softcap = call_.softcap,
                       .first_split = static_cast<int32_t>(piece.split),
                       .base = static_cast<int32_t>(base),
                       .end_position = static_cast<int32_t>(stored.keys.tokens),
                       .first_query = static_cast<int32_t>(block.position),
                       .group = static_cast<int32_t>(plan_.group),
                       .before = static_cast<int32_t>(block.before),
                       .after = static_cast<int32_t>(block.after),
                       .out = out});
    }

    void join(const QueryBlock &block, int64_t splits) {
        const Heads &y = call_.y;
        const int64_t heads = call_.k.heads, group = plan_.group, batch = block.batch, tokens = block.tokens;
        const int64_t tokens_at_once = within_reach(tokens, y.token_stride);
        const int64_t heads_at_once = within_reach(heads, group * y.head_stride);
        const int64_t batch_at_once =
            heads_at_once < heads ? 1 : within_reach(std::min(batch, max_attention_grid / heads), y.batch_stride);
        for (int64_t i = 0; i < batch; i += batch_at_once) {
            for (int64_t h = 0; h < heads; h += heads_at_once) {
                for (int64_t t = 0; t < tokens; t += tokens_at_once) {
                    const int64_t sequences = std::min(batch_at_once, batch - i),
                                  own_heads = std::min(heads_at_once, heads - h);
                    const int64_t own_tokens = std::min(tokens_at_once, tokens - t);
                    Buffer<4, float> partial;
                    partial.set_data(partial_at(block, 0, i, h) +
                                     t * group * plan_.pitch * static_cast<int64_t>(sizeof(float)));
                    partial.set_dim(0, y.head_dim + split_statistics, 1);
                    partial.set_dim(1, own_tokens * group, plan_.pitch);
                    partial.set_dim(2, splits, block.split_floats);
                    partial.set_dim(3, own_heads * sequences, block.head_floats);
                    Buffer<5> to;
                    to.set_data(y.at(block.first + i, block.token + t, h * group));
                    to.set_dim(0, y.head_dim, 1);
                    to.set_dim(1, group, group > 1 ? y.head_stride : 0);
                    to.set_dim(2, own_tokens, own_tokens > 1 ? y.token_stride : 0);
                    to.set_dim(3, own_heads, own_heads > 1 ? group * y.head_stride : 0);
                    to.set_dim(4, sequences, sequences > 1 ? y.batch_stride : 0);
                    launches_.run(kernels::attention_join, y.view.dtype, Access::elements, {partial, to});
                }
            }
        }
    }

    Checker &check_;
    const halyard_context &context_;
    const AttentionCall &call_;
    const DevicePlan &plan_;
    const int ordinal_;
    Launches launches_;
    char *partial_, *queries_, *rounded_queries_, *scores_, *weights_, *workspace_;
    char *staged_, *key_copy_, *value_copy_;
    View q_weight_, k_weight_;
};

}  // namespace

void attention(Checker &check, const halyard_context &context, const AttentionCall &call) {
    const DevicePlan plan(call);
    if (plan.longest >= max_device_positions || call.q.tokens >= max_device_positions) {
        check.fail(HALYARD_UNSUPPORTED, "%s has %lld positions, but on a CUDA device at most %lld are supported",
                   plan.longest >= max_device_positions ? "k" : "q",
                   static_cast<long long>(std::max(plan.longest, call.q.tokens)),
                   static_cast<long long>(max_device_positions - 1));
        return;
    }
    if ((plan.group - 1) * call.y.head_stride > max_attention_reach) {
        check.fail(HALYARD_UNSUPPORTED, "y has heads %lld elements apart, which is too far on a CUDA device",
                   static_cast<long long>(call.y.head_stride));
        return;
    }
    DeviceAttention(check, context, call, plan).run();
}

}  // namespace halyard::cuda
