// Blocks: attention and a feed-forward network with norms and residuals, as calls of the functions that compute them.
//
// What lies between the calls is in the context's scratch, and f32 or, on a device, of the type of x and the weights:
// q, k and v side by side, and two sets of rows as wide as x. Attention leaves its result where q was. Tensors of the
// caller that are of this type are read and written where they are; others are cast once when they come and once when
// they go. y is written last, by calls that take their memory before they write.
#include "blocks/block.h"

#include <cstring>

#include "core/check_options.h"
#include "core/check_shapes.h"
#include "core/dltensor_view.h"
#include "core/handles/kv_cache.h"
#include "core/workspace.h"

namespace halyard {
namespace {

/** The calls that a block is made of, one after another until one fails. */
class BlockCalls {
public:
    BlockCalls(const halyard_context *context, const halyard_block &block, const BlockArguments &arguments)
        : context_(context), block_(block), arguments_(arguments) {}

    halyard_status status() const { return status_; }
    /** Whether keys and values went to the cache. */
    bool appended() const { return appended_; }

    void cast(const DLTensor *x, DLTensor *y) {
        if (!failed()) {
            status_ = halyard_cast(context_, x, y);
        }
    }
    void add(const DLTensor *a, const DLTensor *b, DLTensor *y) {
        if (!failed()) {
            status_ = halyard_add(context_, a, b, y);
        }
    }
    void norm(const NormVectors &vectors, const DLTensor *x, DLTensor *y) {
        if (!failed()) {
            status_ = apply_norm(context_, block_.norm_kind(), vectors, x, y);
        }
    }
    void linear(const DLTensor *x, const halyard_weights *weights, const KeptVector &bias, const DLTensor *residual,
                DLTensor *y) {
        if (!failed()) {
            halyard_linear_options options = {};
            options.bias = bias.get();
            options.residual = residual;
            status_ = halyard_linear(context_, x, weights, &options, y);
        }
    }
    /** y may be q. */
    void attention(const DLTensor *q, const DLTensor *k, const DLTensor *v, const CachedSequences &sequences,
                   int64_t layer, DLTensor *y) {
        if (failed()) {
            return;
        }
        if (!sequences.cache) {
            status_ = halyard_attention(context_, q, k, v, &arguments_.attention, y);
            return;
        }
        status_ = halyard_attention_cached(context_, q, k, v, sequences.cache, layer, sequences.indices,
                                           &arguments_.attention, y);
        appended_ = !failed();
    }
    void ffn(const DLTensor *x, DLTensor *y) {
        if (!failed()) {
            status_ = halyard_ffn(context_, x, block_.up, block_.down, &arguments_.ffn, y);
        }
    }

private:
    bool failed() const { return status_ != HALYARD_OK; }

    const halyard_context *context_;
    const halyard_block &block_;
    const BlockArguments &arguments_;
    halyard_status status_ = HALYARD_OK;
    bool appended_ = false;
};

}  // namespace

halyard_status fail_as(Checker &check, halyard_status status) {
    char message[512];
    strncpy(message, halyard_last_error(), sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    return check.fail(status, "%s", message);
}

halyard_status apply_norm(const halyard_context *context, const NormKind &kind, const NormVectors &vectors,
                          const DLTensor *x, DLTensor *y) {
    switch (kind.norm) {
    case HALYARD_NORM_RMS:
        return halyard_rms_norm(context, x, vectors.weight.get(), kind.eps, kind.flags, y);
    case HALYARD_NORM_LAYER:
        return halyard_layer_norm(context, x, vectors.weight.get(), vectors.bias.get(), kind.eps, y);
    case HALYARD_NORM_NONE:
        break;
    }
    return HALYARD_OK;
}

int64_t CachedSequences::length(int64_t layer, int64_t i) const {
    return cache ? cache->length(layer, index(i)) : 0;
}

void CachedSequences::shorten(int64_t layer, int64_t i, int64_t length) const {
    int64_t &present = cache->length(layer, index(i));
    present = present < length ? present : length;
}

void check_sequences(Checker &check, const CachedSequences &sequences) {
    if (check.failed() || !sequences.cache) {
        return;
    }
    halyard_kv_cache &cache = *sequences.cache;
    const long long available = cache.n_sequences;
    if (sequences.batch > available) {
        check.fail(HALYARD_INVALID_ARGUMENT, "cache has %lld sequences, but the batch has %lld", available,
                   static_cast<long long>(sequences.batch));
        return;
    }
    cache.calls++;
    for (int64_t i = 0; i < sequences.batch && !check.failed(); i++) {
        const long long place = i, index = sequences.index(i);
        if (index < 0 || index >= available) {
            check.fail(HALYARD_INVALID_ARGUMENT, "sequences[%lld] is %lld, but must be in [0, %lld), which cache has",
                       place, index, available);
        } else if (cache.marks[index] == cache.calls) {
            check.fail(HALYARD_INVALID_ARGUMENT, "sequences[%lld] is %lld, as is one before it", place, index);
        } else {
            cache.marks[index] = cache.calls;
        }
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

namespace {

/** Those of run_block(). `memory`: two sets of rows as wide as x, and one of q, k and v. */
void call_in_turn(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                  const CachedSequences &sequences, int64_t layer, int64_t outputs, const View &y,
                  char *const *memory) {
    const int64_t width = block.config.hidden_size, head_dim = block.config.head_dim;
    const int64_t qkv_width = block.qkv_features(), query = block.query_features(), key = block.key_features();
    const int64_t query_heads = block.config.num_attention_heads, key_heads = block.config.num_key_value_heads;
    const DType between = block.between(x.dtype);
    LocalTensor rows_a(x, {memory[0], between}, width, width), rows_b(x, {memory[1], between}, width, width);
    const TypedMemory rows_of_heads = {memory[2], between};
    LocalTensor qkv(x, rows_of_heads, qkv_width, qkv_width), attended(x, rows_of_heads, qkv_width, query);
    LocalTensor q(x, rows_of_heads, qkv_width, query_heads, head_dim);
    LocalTensor k(x, rows_of_heads.from(query), qkv_width, key_heads, head_dim);
    LocalTensor v(x, rows_of_heads.from(query + key), qkv_width, key_heads, head_dim);
    LocalTensor given(x), result(y);

    // `stream` holds x plus attention; `spare` is free for what is not added yet. An x of their type is the input
    // itself, and y the place of the output; else the input becomes the stream in place.
    const bool same = x.dtype == between;
    DLTensor *const spare = rows_a.get(), *const stream = rows_b.get();
    DLTensor *const input = same ? given.get() : stream, *const output = same ? result.get() : spare;
    const BlockArguments &arguments = block.arguments(between);
    BlockCalls calls(context, block, arguments);
    if (!same) {
        calls.cast(given.get(), input);
    }

    if (block.norms_input()) {
        calls.norm(arguments.attention_norm, input, spare);
    }
    calls.linear(block.norms_input() ? spare : input, block.qkv, arguments.qkv_bias, nullptr, qkv.get());
    calls.attention(q.get(), k.get(), v.get(), sequences, layer, q.get());
    for (LocalTensor *const tensor : {&rows_a, &rows_b, &attended, &given, &result}) {
        tensor->keep_last(x.rank - 2, outputs);
    }
    if (block.norms_output()) {
        calls.linear(attended.get(), block.o, arguments.o_bias, nullptr, spare);
        calls.norm(block.norms_input() ? arguments.attention_post_norm : arguments.attention_norm, spare, spare);
        calls.add(input, spare, stream);
    } else {
        calls.linear(attended.get(), block.o, arguments.o_bias, input, stream);
    }
    if (block.norms_sum()) {
        calls.norm(arguments.attention_norm, stream, stream);
    }

    calls.ffn(stream, output);
    if (block.norms_output()) {
        calls.norm(block.norms_input() ? arguments.ffn_post_norm : arguments.ffn_norm, output, output);
        calls.add(stream, output, output);
    }
    if (block.norms_sum()) {
        calls.norm(arguments.ffn_norm, output, output);
    }
    if (!same) {
        calls.cast(output, result.get());
    }

    if (calls.status() != HALYARD_OK) {
        for (int64_t i = 0; i < sequences.batch && calls.appended(); i++) {
            sequences.shorten(layer, i, sequences.length(layer, i) - x.shape[x.rank - 2]);
        }
        fail_as(check, calls.status());
    }
}

}  // namespace

halyard_status run_block(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                         const CachedSequences &sequences, int64_t layer, int64_t outputs, const View &y) {
    const int64_t rows = row_count(x), width = block.config.hidden_size, qkv_width = block.qkv_features();
    const int64_t size = size_of(block.between(x.dtype));
    if (rows > INT64_MAX / (2 * size) / (qkv_width + 2 * width)) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld tokens", static_cast<long long>(rows));
    }
    const int64_t bytes[] = {rows * width * size, rows * width * size, rows * qkv_width * size};
    with_scratch(check, context_or_default(context), block.place, rows, bytes, [&](char *const *memory) {
        call_in_turn(check, context, block, x, sequences, layer, outputs, y, memory);
    });
    return check.status();
}

}  // namespace halyard

using namespace halyard;

halyard_status halyard_block_forward(const halyard_context *context, const halyard_block *block, const DLTensor *x,
                                     halyard_kv_cache *cache, int64_t layer, const int64_t *sequences, DLTensor *y) {
    Checker check("halyard_block_forward", Devices::cpu_or_cuda);
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
    check_place(check, "block", block->place, "x", place_of(xs));
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
    return run_block(check, context, *block, xs, cached, layer, xs.shape[xs.rank - 2], ys);
}
