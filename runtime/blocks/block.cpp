// Blocks: attention and a feed-forward network with norms and residuals, as calls of the functions that compute them.
//
// What lies between the calls is in a workspace, in the compute dtype, which is f32 or, on a device, that of x and the
// weights: q, k and v side by side in one tensor, which one product or three write, and two tensors like x. Attention leaves
// its result where q was. Tensors of the caller that are of this dtype are read and written where they are; others are cast
// once when they come and once when they go. y is written last, by calls that take their memory before they write.
#include "blocks/block_calls.h"

#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"

namespace halyard {

void Norm::set(Checker &check, const NormKind &kind, int64_t features) {
    View row;
    row.shape[0] = features;
    norm = kind.norm;
    scalars = norm == HALYARD_NORM_RMS ? rms_norm_scalars(check, "norm_flags", row, kind.eps, kind.flags, 1.0f)
                                       : layer_norm_scalars(check, row, kind.eps);
}

void run_norm(Checker &check, const halyard_context *context, const Norm &norm, const View &x, const View &y) {
    if (norm.norm != HALYARD_NORM_NONE) {
        run_call(check, context, &Backend::norm, {norm.norm, x, norm.weight, norm.bias, y, norm.scalars});
    }
}

void run_cast(Checker &check, const halyard_context *context, const View &x, const View &y) {
    run_call(check, context, &Backend::elementwise, {x, y});
}

void record_weights(Checker &check, const char *prefix, const halyard_block &block) {
    block.each_matrix(
        [&](const char *name, const PackedMatrix &matrix) { check.record(prefix, name, *matrix.weights); });
}

void check_clear_of_packed(Checker &check, const View &result, const PackedMatrix &matrix) {
    if (matrix.weights && !matrix.owned) {
        const halyard_weights &weights = *matrix.weights;
        check.no_overlap(result, memory_view("a matrix that came packed", weights.block, weights.bytes), false);
    }
}

void check_clear_of_packed(Checker &check, const View &result, const halyard_block &block) {
    block.each_matrix([&](const char *, const PackedMatrix &matrix) { check_clear_of_packed(check, result, matrix); });
}

bool rounds_in_block(const halyard_context *context, const halyard_block &block, DType activations) {
    bool rounds = !block.device.on_cuda;
    block.each_matrix([&](const char *, const PackedMatrix &matrix) {
        rounds = rounds && rounds_between(context_or_default(context), *matrix.weights, activations);
    });
    return rounds;
}

void check_sequences(Checker &check, const CachedSequences &sequences) {
    if (check.failed() || !sequences.cache) {
        return;
    }
    const long long available = sequences.cache->n_sequences;
    if (sequences.batch > available) {
        check.fail(HALYARD_INVALID_ARGUMENT, "cache has %lld sequences, but the batch has %lld", available,
                   static_cast<long long>(sequences.batch));
    }
    for (int64_t i = 0; i < sequences.batch && !check.failed(); i++) {
        const int64_t index = sequences.index(i);
        if (index < 0 || index >= available) {
            check.fail(HALYARD_INVALID_ARGUMENT, "sequences[%lld] is %lld, but must be in [0, %lld), which cache has",
                       static_cast<long long>(i), static_cast<long long>(index), available);
        }
    }
    const int64_t repeated = check.failed() ? -1 : sequences.find_repeated();
    if (repeated >= 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "sequences[%lld] is %lld, as is one before it",
                   static_cast<long long>(repeated), static_cast<long long>(sequences.index(repeated)));
    }
}

void check_block_call(Checker &check, const halyard_block &block, const char *block_name,
                      const CachedSequences &sequences, int64_t layer, const char *tokens_name, int64_t tokens) {
    const halyard_block_config &c = block.config;
    const halyard_kv_cache *const cache = sequences.cache;
    if (check.failed()) {
        return;
    }
    if (cache && !c.causal) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is not causal, which it must be where there is a cache", block_name);
        return;
    }
    if (cache && (cache->n_kv_heads != c.num_key_value_heads || cache->layout.head_dim != c.head_dim)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "cache has %lld kv heads of head_dim %lld, but %s has %lld of head_dim %lld",
                   static_cast<long long>(cache->n_kv_heads), static_cast<long long>(cache->layout.head_dim),
                   block_name, static_cast<long long>(c.num_key_value_heads), static_cast<long long>(c.head_dim));
        return;
    }
    for (int64_t i = 0; i < (cache ? sequences.batch : 1) && !check.failed(); i++) {
        const int64_t length = sequences.length(layer, i);
        if (cache && tokens > cache->layout.max_positions - length) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s has %lld tokens, but cache has %lld of %lld positions left in layer %lld of sequence %lld",
                       tokens_name, static_cast<long long>(tokens),
                       static_cast<long long>(cache->layout.max_positions - length),
                       static_cast<long long>(cache->layout.max_positions), static_cast<long long>(layer),
                       static_cast<long long>(sequences.index(i)));
        } else if (block.rope && tokens > c.max_position_embeddings - length) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s has %lld tokens from position %lld on, but max_position_embeddings of %s is %lld",
                       tokens_name, static_cast<long long>(tokens), static_cast<long long>(length), block_name,
                       static_cast<long long>(c.max_position_embeddings));
        }
    }
}

void run_block(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
               CacheAppend &append, int64_t layer, int64_t outputs, bool rounded, const View &y) {
    const int64_t tokens = row_count(x), width = block.config.hidden_size, qkv_width = block.qkv_features();
    const DType compute = block.compute_dtype(x.dtype);
    const BlockArguments &arguments = block.arguments(compute);
    Workspace workspace(context_or_default(context), block.device);
    const auto spare_piece = workspace.book(tokens, width * size_of(compute));
    const auto sum_piece = workspace.book(tokens, width * size_of(compute));
    const auto qkv_piece = workspace.book(tokens, qkv_width * size_of(compute));
    if (!workspace.allocate(check)) {
        return;
    }
    // `sum` holds x plus attention; `spare` is free for what is not added yet. An x of their dtype is the input itself, and
    // y the place of the output; else the input becomes the sum in place.
    const bool same = x.dtype == compute;
    View spare = view_like(x, workspace[spare_piece], compute, width, width);
    View sum = view_like(x, workspace[sum_piece], compute, width, width);
    const View qkv = view_like(x, workspace[qkv_piece], compute, qkv_width, qkv_width);
    View input = same ? x : sum;
    BlockCalls calls(check, context, block, rounded);
    if (!same) {
        calls.cast(x, input);
    }

    if (block.norms_input()) {
        calls.norm(arguments.attention_norm, input, spare);
    }
    calls.qkv(block.norms_input() ? spare : input, arguments.qkv_bias, qkv);
    calls.attention(arguments.attention, qkv, append, layer);

    const int token_axis = x.rank - 2;
    const auto last = [&](const View &view) {
        return part_of(view, token_axis, view.shape[token_axis] - outputs, outputs);
    };
    const View attended = last(part_of(qkv, x.rank - 1, 0, block.query_features())), result = last(y);
    spare = last(spare);
    sum = last(sum);
    input = last(input);
    const View &output = same ? result : spare;
    // Where the input of a sublayer goes through a norm, that behind it is the second one.
    const Norm &attention_norm = block.norms_input() ? arguments.attention_post_norm : arguments.attention_norm;
    const Norm &ffn_norm = block.norms_input() ? arguments.ffn_post_norm : arguments.ffn_norm;
    if (block.norms_output()) {
        calls.linear(attended, block.o, arguments.o_bias, View(), spare);
        calls.norm(attention_norm, spare, spare);
        calls.add(input, spare, sum);
    } else {
        calls.linear(attended, block.o, arguments.o_bias, input, sum);
    }
    if (block.norms_sum()) {
        calls.norm(attention_norm, sum, sum);
    }

    calls.ffn(arguments.ffn, sum, output);
    if (block.norms_output()) {
        calls.norm(ffn_norm, output, output);
        calls.add(sum, output, output);
    }
    if (block.norms_sum()) {
        calls.norm(ffn_norm, output, output);
    }
    if (!same) {
        calls.cast(output, result);
    }
}

}  // namespace halyard

using namespace halyard;

halyard_status halyard_block_forward(const halyard_context *context, const halyard_block *block, const DLTensor *x,
                                     halyard_kv_cache *cache, int64_t layer, const int64_t *sequences, DLTensor *y) {
    Checker check("halyard_block_forward", Devices::cpu_or_cuda);
    check.set_context(context);
    check.not_null("block", block);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    check.no_overlap(ys, xs, true);
    if (check.failed()) {
        return check.status();
    }
    if (xs.rank != 2 && xs.rank != 3) {
        return check.fail(HALYARD_INVALID_ARGUMENT,
                          "x has rank %d, but must be [T, hidden_size] or [batch, T, hidden_size]", xs.rank);
    }
    record_weights(check, "", *block);
    check_clear_of_packed(check, ys, *block);
    check_device(check, "block", block->device, "x", device_of(xs));
    check_width(check, xs, block->config.hidden_size, "the hidden_size of block");
    const CachedSequences cached = {cache, sequences, xs.rank == 3 ? xs.shape[0] : 1};
    check_sequences(check, cached);
    if (!check.failed() && cache) {
        check_range(check, "layer", layer, 0, cache->n_layers - 1);
        check_clear_of_cache(check, xs, *cache);
        check_clear_of_cache(check, ys, *cache);
    }
    check_block_call(check, *block, "block", cached, layer, "x", xs.shape[xs.rank - 2]);
    if (check.failed() || xs.empty()) {
        return check.status();
    }
    CacheAppend append(cached, layer, 1);
    run_block(check, context, *block, xs, append, layer, xs.shape[xs.rank - 2],
              rounds_in_block(context, *block, xs.dtype), ys);
    if (check.failed()) {
        append.roll_back();
    }
    return check.status();
}
