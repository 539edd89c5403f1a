// One piece of work to measure: a kernel of the catalogue on one shape, type, cache state and thread count, with its
// tensors. Ours and every peer run the same Work on the same values.
#ifndef HALYARD_BENCH_WORK_H
#define HALYARD_BENCH_WORK_H

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halyard/block.h"
#include "matrix.h"
#include "sample.h"
#include "streams.h"

namespace halyard::bench {

/** Parameters every row uses: the usual values of published models. */
constexpr float layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f, beta = 1.0f, partial_p = 0.0625f;

/** The tensors of one call. Which of them a kernel has is said by the kernel. */
struct Operands {
    std::vector<Matrix> inputs;                                   // x; gate, up; x, residual
    std::vector<Matrix> outputs;                                  // y; residual_out, y
    std::vector<std::shared_ptr<const halyard_weights>> weights;  // of layers: the first product's, then the second's
    std::shared_ptr<halyard_kv_cache> cache;                      // of attention and blocks that decode
    std::shared_ptr<const halyard_block> block;                   // of blocks
};

/** What a kernel computes for one row, as float64 references give it. */
using Reference = std::function<std::vector<tests::Row>(const std::vector<tests::Row> &inputs, const tests::Row &weight,
                                                        const tests::Row &bias)>;

/** How far outputs are from the float64 reference. */
struct Accuracy {
    /** The largest error relative to the largest value of the same row and output; infinite where a NaN stands. */
    double error = 0;
    /** The largest error in units in the last place of the exact result; negative where it is not counted: products
     *  cancel, so that a small element has a large one whoever computes it. */
    double ulps = -1;
};

struct Work;
class Layer;
class Attention;
class Block;
class Model;

/** What a kernel of the families `linear` and `ffn` computes: products with weight matrices and what surrounds them. */
struct LayerForm {
    bool is_ffn = false;  // two products: d -> d_out -> d; otherwise one, d -> d_out
    bool gated = false;   // the first product is a gate and an up matrix
    bool has_bias = false;
    halyard_activation activation = HALYARD_IDENTITY;  // of the first product, or of its gate
    float beta = 0;                                    // of HALYARD_SWISH
    halyard_norm norm = HALYARD_NORM_NONE;             // of x, before the first product
    bool deferred_norm = false;                        // folded into the weights
    bool has_residual = false;                         // a tensor of its own for one product; x for an FFN

    int matrices() const { return 1 + (gated ? 1 : 0) + (is_ffn ? 1 : 0); }
};

/** Head h of the queries uses head h / (heads / kv_heads) of keys and values. */
struct HeadShape {
    std::int64_t heads, kv_heads, head_dim;

    std::int64_t query_width() const { return heads * head_dim; }
    std::int64_t kv_width() const { return kv_heads * head_dim; }
};

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

    bool is_model() const { return vocabulary > 0; }
    /** Elements of the matrices of one block. */
    std::int64_t block_elements() const {
        return 2 * d * (heads.query_width() + heads.kv_width()) + (gated ? 3 : 2) * d * d_ff;
    }
};

/** A row of the catalogue: what is called, what it moves, and what it should give. */
struct Kernel {
    std::string name;       // "rms_norm", "swiglu.interleaved"
    std::string operation;  // the name peers know it by: that of the function, "swiglu_packed" included
    std::string group;      // what the report shows together: "norms", "activations", "gated units", ...
    bool common = true;     // or a variant that the work list's group "common" leaves out
    Stream stream;          // the memory traffic of its tensors but weight and bias
    int inputs = 1, outputs = 1;
    int input_width = 1;  // in multiples of d
    bool has_weight = false, has_bias = false;
    std::optional<Dtype> cast_to;                     // the output's type where it is another
    halyard_glu_layout layout = HALYARD_GLU_GATE_UP;  // of packed gated units
    // One of these three is there for kernels that have neither `stream` nor `reference`.
    std::optional<LayerForm> layer;
    std::optional<HeadShape> attention;
    std::optional<BlockForm> block;  // of blocks and models
    /** Makes operands and sample of what is no layer and not rows x d. */
    std::function<void(Work &work)> prepare;
    /** One call of the library on one set of operands. */
    std::function<halyard_status(Work &work, Operands &set)> call;
    Reference reference;
};

/** One Work per row of the report. */
struct WorkId {
    const Kernel *kernel;
    Dtype dtype;
    std::int64_t rows, d;
    bool cold;
    int threads;
    std::int64_t d_out = 0;  // of layers: the width of the (first) product
    /** Of attention, blocks and models. 0: `rows` tokens of one sequence, which are all of it. Otherwise one token of
     * each of `rows` sequences, with so many positions before it. */
    std::int64_t cached = 0;

    /** "rms_norm/f32/64x4096/hot/2t", "linear/f32/8x4096x11008/cold/2t", "block.gpt2/f32/prompt128/hot/2t",
     *  "attention.32x128/bf16/decode8x1024/cold/2t" */
    std::string name() const;
    /** Whether the limit is a read and multiply-adds, not a copy. */
    bool has_roofline() const { return kernel->layer || has_heads(); }
    bool has_heads() const { return kernel->attention || kernel->block; }
    bool is_model() const { return kernel->block && kernel->block->is_model(); }
    const HeadShape &heads() const { return kernel->attention ? *kernel->attention : kernel->block->heads; }
    bool decodes() const { return cached > 0; }
    std::int64_t sequences() const { return decodes() ? rows : 1; }
    std::int64_t tokens() const { return decodes() ? 1 : rows; }
    Dtype output_dtype() const { return kernel->cast_to.value_or(dtype); }
    std::int64_t output_width() const { return kernel->layer && !kernel->layer->is_ffn ? d_out : d; }
    Stream stream() const;
    /** Bytes that one call reads and writes: each tensor once, without the vectors weight and bias; with matrices, keys
     *  and values. */
    std::size_t bytes_moved() const;
    /** Bytes of matrices. */
    std::size_t weight_bytes() const;
    /** Bytes of the keys and values that the queries see. */
    std::size_t cache_bytes() const;
    /** Multiplications and additions of the products, those of scores and values with what the queries see. */
    double flops() const;
    /** How many operand sets there are: one if hot, else enough to leave every cache before coming round. */
    std::size_t set_count(std::size_t cold_set) const;
};

struct Work {
    /** Whose operands are made: those of the library, with its packed weights, or only what a peer needs. */
    enum class Side { ours, peer };

    Work(const WorkId &id, std::size_t cold_set, halyard_isa isa, Side side = Side::ours);

    WorkId id;
    std::shared_ptr<halyard_context> context;
    std::vector<Operands> sets;            // as many as WorkId::set_count
    std::unique_ptr<Matrix> weight, bias;  // of a norm
    // What the row's kernel is, for peers.
    std::shared_ptr<const Layer> layer;
    std::shared_ptr<const Attention> attention;
    std::shared_ptr<const Block> block;
    std::shared_ptr<const Model> model;
    std::unique_ptr<const Sample> sample;  // of all these
    std::size_t cold_set;                  // bytes
    std::size_t resident = 0;              // of models: how much larger the process became

    /** Calls the library on operand set `set`; throws if it refuses. */
    void call(std::size_t set);

    /** Of set 0's outputs. Large tensors are judged by rows spread over them. */
    Accuracy accuracy() const;
    /** What Accuracy::error may be: room for another order of summation, and two roundings to the storage type. */
    double tolerance() const;
    /** The same for a peer, which may round to a 16-bit type after every step of a model: the errors of its blocks are
     *  independent of each other and add up like the root of their number. */
    double peer_tolerance() const;
    /** Fills set 0's outputs with NaN, so that nothing passes that was not written. */
    void spoil_outputs();

private:
    std::vector<std::int64_t> sampled_rows() const;
};

/** Every kernel of tensors of rows, in the order of the report. */
const std::vector<Kernel> &catalogue();
/** Every layer. */
const std::vector<Kernel> &layer_catalogue();
/** Attention with these heads: "attention.32-8x128". */
const Kernel &attention_kernel(const HeadShape &heads);
/** A block of this form: "block.MODEL", or with a vocabulary a whole model: "model.MODEL". */
const Kernel &block_kernel(const std::string &model, const BlockForm &form);

}  // namespace halyard::bench

#endif
