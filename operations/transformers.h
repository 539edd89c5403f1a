// Attention, transformer blocks and models: their sizes, the work of a call, and the calls.
#ifndef HALYARD_OPERATIONS_TRANSFORMERS_H
#define HALYARD_OPERATIONS_TRANSFORMERS_H

#include <functional>

#include "cost.h"
#include "dtype.h"
#include "halyard/attention.h"
#include "halyard/block.h"
#include "reference_attention.h"

namespace halyard::operations {

/** Head h of the queries uses head h / (heads / kv_heads) of keys and values. */
struct HeadShape {
    std::int64_t heads, kv_heads, head_dim;

    std::int64_t query_width() const { return heads * head_dim; }
    std::int64_t kv_width() const { return kv_heads * head_dim; }
};

/** The last `queries` of the `positions` of each sequence. */
struct Span {
    std::int64_t sequences, queries, positions;

    std::int64_t rows() const { return sequences * queries; }
    /** Pairs of a query and a position that it sees: all or, causal, itself and those before it. */
    double seen(bool causal) const;
};

Cost attention_cost(const HeadShape &heads, const Span &span, Dtype type, bool causal = true);

/** Causal attention of compact tensors [sequences, tokens, heads, head_dim]; with a cache these are appended to it. */
halyard_status call_attention(const halyard_context *context, const DLTensor &q, const DLTensor &k, const DLTensor &v,
                              halyard_kv_cache *cache, float softcap, DLTensor &y);

/** All heads of one query that sees positions [0, count), in float64. */
using RowAt = std::function<Row(std::int64_t position)>;  // [kv width]
Row attend(const HeadShape &shape, const Row &q, std::int64_t count, const RowAt &keys, const RowAt &values,
           double softcap = 0);

/** A transformer block; with a vocabulary a model of `layers` such blocks. */
struct BlockForm {
    const char *preset;  // of halyard_block_config_preset
    std::int64_t d, d_ff;
    HeadShape heads;
    halyard_norm norm;
    halyard_activation activation;
    bool gated, has_bias;
    double rope_theta;  // 0: no rotary embedding
    std::int64_t layers = 1, vocabulary = 0;
    halyard_quantization quantization{};  // of the matrices, but the embedding
    bool causal = true;
    double element_bytes = 0;    // not 0: of an element of the matrices, where these are quantized in several formats
    bool int8_products = false;  // rows of x are rounded to 8 bits: HALYARD_PRODUCTS_INT8

    bool is_quantized() const { return quantization.bits != 0 || element_bytes != 0; }
    bool is_model() const { return vocabulary > 0; }
    /** Elements of the matrices of one block. */
    std::int64_t block_elements() const {
        return 2 * d * (heads.query_width() + heads.kv_width()) + (gated ? 3 : 2) * d * d_ff;
    }
    /** What a call costs; a model makes logits of the last token of each sequence. */
    Cost cost(const Span &span, Dtype type) const;
    float eps() const;
    /** What makes such a block. */
    halyard_status config(std::int64_t max_positions, halyard_block_config &result) const;
};

}  // namespace halyard::operations

#endif
