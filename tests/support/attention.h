// Attention in the tests: calls on guarded tensors, and what they must give.
#ifndef HALYARD_TESTS_ATTENTION_H
#define HALYARD_TESTS_ATTENTION_H

#include <memory>
#include <string>
#include <vector>

#include "halyard/attention.h"
#include "operations/reference_attention.h"
#include "support/linear.h"

namespace halyard::tests {

/** A call and its operands. */
struct AttentionForm {
    Dtype q = Dtype::f32, k = Dtype::f32, v = Dtype::f32, y = Dtype::f32;
    std::int64_t batch = 0;  // 0: rank 3
    std::int64_t queries = 1, keys = 1;
    std::int64_t heads = 1, kv_heads = 1, head_dim = 16;
    bool causal = true;
    std::int64_t window = 0;
    float scale = 0, softcap = 0;
    bool norm = false;  // of q and k
    unsigned norm_flags = 0;
    Dtype norm_type = Dtype::f32;
    std::int64_t rotary_dim = 0;  // 0: no rope
    bool interleaved = false;
    std::int64_t gap = 0;  // elements after each head's features
    Placement placement = Placement::ends_at_guard;
    std::uint64_t seed = 1;

    std::int64_t batches() const { return batch == 0 ? 1 : batch; }
    std::int64_t group() const { return heads / kv_heads; }
};

/** Deleters of handles. */
struct DestroyRope {
    void operator()(halyard_rope *rope) const { halyard_rope_destroy(rope); }
};
struct DestroyCache {
    void operator()(halyard_kv_cache *cache) const { halyard_kv_cache_destroy(cache); }
};
using Rope = std::unique_ptr<halyard_rope, DestroyRope>;
using Cache = std::unique_ptr<halyard_kv_cache, DestroyCache>;

Rope make_rope(std::int64_t head_dim, std::int64_t rotary_dim, bool interleaved, std::int64_t max_positions);
Cache make_cache(Dtype type, std::int64_t sequences, std::int64_t kv_heads, std::int64_t head_dim,
                 std::int64_t max_positions, std::int64_t layers = 1, DLDevice device = {kDLCPU, 0});

/** As many queries as keys. */
AttentionForm square(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

/** Tokens [first, first + count) of a tensor [(batch,) tokens, heads, head_dim], or with as many other `axes` after the tokens; with
 * `sequence` not negative of that batch index alone. */
struct TokenView {
    TokenView(const Tensor &tensor, std::int64_t first, std::int64_t count, std::int64_t sequence = -1,
              std::size_t axes = 2);
    TokenView(const TokenView &) = delete;
    TokenView &operator=(const TokenView &) = delete;

    DLTensor view;

private:
    Shape shape, strides;
};

class AttentionCase {
public:
    explicit AttentionCase(const AttentionForm &form);

    const AttentionForm form;
    Tensor q, k, v, y;
    Tensor log_sum_exp;  // written if options has it
    std::unique_ptr<Tensor> q_norm_weight, k_norm_weight;
    Rope rope;
    halyard_attention_options options{};

    halyard_status run(const halyard_context *context) { return run(context, y); }
    /** Into another tensor of the shape and type of y. */
    halyard_status run(const halyard_context *context, Tensor &result);
    /** Tokens [first, first + count) of all sequences by way of a cache that holds those before. */
    halyard_status run_cached(const halyard_context *context, halyard_kv_cache *cache, std::int64_t first,
                              std::int64_t count, Tensor &result);
    /** By row of y; log_sum_exp by token. `cached`: with keys and values rounded to this type; the others: see AttentionRule. */
    Matrix expected(Dtype cached = Dtype::f32, double sum_roundings = AttentionRule().sum_roundings,
                    Dtype products = Dtype::f32, Matrix *log_sum_exp = nullptr) const;
    testing::AssertionResult check(const Matrix &expected) const;
    testing::AssertionResult surroundings_intact() const;
    std::string describe() const;
    /** What a processor rounds queries and weights to, with keys and values in a type. */
    Dtype products(Dtype keys) const { return keys == Dtype::bf16 && form.q == Dtype::bf16 ? keys : Dtype::f32; }

private:
    Form tensor_form(std::int64_t tokens, std::int64_t heads) const;
    Form log_sum_exp_form() const;
};

}  // namespace halyard::tests

#endif
