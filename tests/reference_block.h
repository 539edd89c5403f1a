// Independent float64 references of transformer blocks and stacks, with the error that f32 arithmetic may make on the
// way, estimated element by element.
#ifndef HALYARD_TESTS_REFERENCE_BLOCK_H
#define HALYARD_TESTS_REFERENCE_BLOCK_H

#include "halyard/block.h"
#include "reference_linear.h"

namespace halyard::tests {

/** The vectors of a norm; empty where they are absent. */
struct NormValues {
    Row weight, bias;
};

/** What a block was made with. Vectors are empty where they are absent. */
struct BlockValues {
    halyard_block_config config{};  // zeros that stand for defaults may be left
    WeightMatrix q, k, v, o, up, down;
    WeightMatrix gate;  // empty where there is none
    Row q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
    Row q_norm, k_norm;
    NormValues attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;

    std::int64_t kv_heads() const;
    std::int64_t head_dim() const;
};

/** The types of what is kept on the way. */
struct Rounding {
    Dtype stored = Dtype::f32;   // keys and values
    Dtype between = Dtype::f32;  // vectors, and what lies between the products; the residual stream of a stack
};

/** What the block makes of the tokens of a whole sequence, before it is rounded to y's type. */
Matrix block(const BlockValues &values, const std::vector<Row> &x, const Rounding &rounding = {});

struct StackValues {
    halyard_stack_config config{};
    std::vector<Row> embed_tokens, embed_positions;  // the second may be empty
    NormValues norm;
    WeightMatrix lm_head;
    std::vector<const BlockValues *> blocks;
};

/** The residual stream, each before it is rounded to its type, and logits of a whole sequence. */
struct StackResult {
    std::vector<Matrix> hidden;  // the embedding, after each block, after the last norm
    Matrix logits;
};
StackResult stack(const StackValues &values, const std::vector<std::int64_t> &input_ids, const Rounding &rounding = {});

}  // namespace halyard::tests

#endif
