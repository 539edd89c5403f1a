// What a block's gradients need: what the forward call saves, and where the gradients go.
#ifndef HALYARD_RUNTIME_BLOCKS_BLOCK_GRADIENTS_H
#define HALYARD_RUNTIME_BLOCKS_BLOCK_GRADIENTS_H

#include "blocks/block.h"

namespace halyard {

/** What run_block_saving() leaves for run_block_gradients(), f32 like x but for the width. Views that a block does not need have no
 *  width. */
struct SavedTensors {
    View qkv;                  // side by side; q and k rotated, unless their heads go through norms
    View rotated;              // then q and k behind these
    View attended;             // what attention gave
    View log_sum_exp;          // of its scores
    View output;               // of the output projection, where a norm follows
    View sum;                  // x + attention, where a norm follows
    View middle;               // what the feed-forward network gets
    View gate_sums, up_sums;   // before its activation; of one matrix the first alone
    View ffn_output, ffn_sum;  // as after attention
    int64_t bytes = 0;

    /** For x in one of the caller's blocks of memory, which begins at a cache line; null to learn the size. */
    SavedTensors(const halyard_block &block, const View &x, void *memory);
};

/** Views of halyard_block_gradients; empty where nobody wants them. */
struct BlockGradients {
    bool in_out = false, accumulate = false;
    View qkv_proj, qkv_bias;         // the joined matrix; or these three
    View projections[3], biases[3];  // of q, k and v
    View o_proj, o_bias, gate_proj, gate_bias, up_proj, up_bias, down_proj, down_bias, q_norm, k_norm;
    struct Norm {
        View weight, bias;
    } attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;

    /** Calls visit(view) for each. */
    template<typename Visit>
    void each(const Visit &visit) const {
        for (const View *view : {&qkv_proj,
                                 &qkv_bias,
                                 &projections[0],
                                 &projections[1],
                                 &projections[2],
                                 &biases[0],
                                 &biases[1],
                                 &biases[2],
                                 &o_proj,
                                 &o_bias,
                                 &gate_proj,
                                 &gate_bias,
                                 &up_proj,
                                 &up_bias,
                                 &down_proj,
                                 &down_bias,
                                 &q_norm,
                                 &k_norm,
                                 &attention_norm.weight,
                                 &attention_norm.bias,
                                 &ffn_norm.weight,
                                 &ffn_norm.bias,
                                 &attention_post_norm.weight,
                                 &attention_post_norm.bias,
                                 &ffn_post_norm.weight,
                                 &ffn_post_norm.bias}) {
            visit(*view);
        }
    }
};

/** Refuses a block that has no gradients: on a device, of weights that are not plain f32, or with a gate whose activation has none.
 *  `name`: of the block. */
void check_trainable(Checker &check, const halyard_block &block, const char *name);

/** Checks where gradients go, and that they overlap neither each other nor the block's weights. */
BlockGradients check_block_gradients(Checker &check, const halyard_block &block,
                                     const halyard_block_gradients &gradients);

/** y = block(x) with the bits of run_block(), for checked arguments in f32. */
void run_block_saving(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                      const SavedTensors &saved, const View &y);

/** The gradients, dx among them, which may be dy. */
void run_block_gradients(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                         const SavedTensors &saved, const View &dy, const BlockGradients &gradients, const View &dx);

}  // namespace halyard

#endif
