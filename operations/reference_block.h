// Independent float64 references of transformer blocks and stacks, with the error that f32 arithmetic may make on the
// way, estimated element by element.
#ifndef HALYARD_OPERATIONS_REFERENCE_BLOCK_H
#define HALYARD_OPERATIONS_REFERENCE_BLOCK_H

#include "halyard/block.h"
#include "reference_linear.h"

namespace halyard::operations {

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
    // What a product takes: queries and the weights of values too where `stored` is this type.
    Dtype products = Dtype::f32;
};

/** What the block makes of the tokens of a whole sequence, before it is rounded to y's type. */
Matrix block(const BlockValues &values, const std::vector<Row> &x, const Rounding &rounding = {});

/** A head of keys or values, [head_dim], at a position. */
using HeadAt = std::function<Row(std::int64_t position, std::int64_t head)>;

/** A token of a sequence, of which keys, rotated, and values are known at the positions before it. */
struct LateToken {
    Row x;
    std::int64_t position;
    HeadAt keys, values;
};

/** As block(), of single tokens, where the whole of their sequences would be too much. */
Matrix block_of_tokens(const BlockValues &values, const std::vector<LateToken> &tokens);

/** What a block with the norm first makes of tokens for later ones to see: [kv heads * head_dim]. */
struct KeyValue {
    Row key, value;  // the key before it is rotated
};
std::vector<KeyValue> keys_and_values(const BlockValues &values, const std::vector<Row> &x);
/** One head, as keys and queries are rotated. */
Row rotated(const BlockValues &values, const Row &head, std::int64_t position);

struct StackValues {
    halyard_stack_config config{};
    std::vector<Row> embed_tokens, embed_positions, embed_types;  // all but the first may be empty
    NormValues embed_norm, norm;
    WeightMatrix lm_head;
    std::vector<const BlockValues *> blocks;
};

/** The residual stream, each before it is rounded to its type, and logits of a whole sequence. */
struct StackResult {
    std::vector<Matrix> hidden;  // the embedding, after each block, after the last norm
    Matrix logits;
};
/** token_types: as many as input_ids, or none for 0. */
StackResult stack(const StackValues &values, const std::vector<std::int64_t> &input_ids, const Rounding &rounding = {},
                  const std::vector<std::int64_t> &token_types = {});

}  // namespace halyard::operations

#endif
