// The calls that a block is made of, on views that have been checked.
#ifndef HALYARD_RUNTIME_BLOCKS_BLOCK_CALLS_H
#define HALYARD_RUNTIME_BLOCKS_BLOCK_CALLS_H

#include "blocks/block.h"
#include "core/view.h"

namespace halyard {

/** The calls that a block is made of. */
class BlockCalls {
public:
    BlockCalls(Checker &check, const halyard_context *context, const halyard_block &block, bool rounded)
        : check_(check), context_(context), block_(block), rounded_(rounded) {}

    void cast(const View &x, const View &y) { run_cast(check_, context_, x, y); }
    void add(const View &a, const View &b, const View &y) {
        run_call(check_, context_, &Backend::elementwise, {kernels::add, a, b, y});
    }
    void norm(const Norm &norm, const View &x, const View &y) { run_norm(check_, context_, norm, x, y); }
    void linear(const View &x, const PackedMatrix &matrix, const View &bias, const View &residual, const View &y) {
        LinearCall call;
        call.weights = matrix.weights;
        call.x = x;
        call.bias = bias;
        call.residual = residual;
        call.y = y;
        call.rounded = rounded_;
        run_call(check_, context_, &Backend::linear, call);
    }
    /** q, k and v side by side. */
    void qkv(const View &x, const View &bias, const View &qkv) {
        if (block_.joined()) {
            linear(x, block_.qkv[0], bias, View(), qkv);
            return;
        }
        int64_t first = 0;
        for (const PackedMatrix &matrix : block_.qkv) {
            const int64_t features = matrix.weights->out_features;
            linear(x, matrix, bias.data ? part_of(bias, 0, first, features) : View(), View(),
                   part_of(qkv, qkv.rank - 1, first, features));
            first += features;
        }
    }
    /** Its result goes to where q is, side by side with k and v. */
    void attention(const AttentionCall &arguments, const View &qkv, CacheAppend &append, int64_t layer) {
        const int axis = qkv.rank - 1;
        const int64_t query = block_.query_features(), key = block_.key_features();
        AttentionCall call = arguments;
        call.q = call.y = Heads(split_heads(part_of(qkv, axis, 0, query), block_.config.num_attention_heads));
        call.k = Heads(split_heads(part_of(qkv, axis, query, key), block_.config.num_key_value_heads));
        call.v = Heads(split_heads(part_of(qkv, axis, query + key, key), block_.config.num_key_value_heads));
        call.cache = append.sequences().cache;
        call.sequences = append.sequences().indices;
        call.layer = layer;
        call.rounded = rounded_;
        append.run(check_, layer, call.k.tokens, [&] { run_call(check_, context_, &Backend::attention, call); });
    }
    void ffn(const FfnCall &arguments, const View &x, const View &y) {
        FfnCall call = arguments;
        call.x = x;
        call.y = y;
        call.rounded = rounded_;
        run_call(check_, context_, &Backend::ffn, call);
    }

private:
    Checker &check_;
    const halyard_context *context_;
    const halyard_block &block_;
    const bool rounded_;
};

}  // namespace halyard

#endif
