// One case to measure: a kernel of the catalogue on one shape, type, cache state and thread count, with its
// tensors. Ours and every peer run the same BenchmarkCase on the same values.
#ifndef HALYARD_BENCH_CASES_BENCHMARK_CASE_H
#define HALYARD_BENCH_CASES_BENCHMARK_CASE_H

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operations/layers.h"
#include "operations/operations.h"
#include "operations/tensor_operations.h"
#include "operations/transformers.h"
#include "sample.h"
#include "timing/streams.h"

namespace halyard::bench {

using operations::BlockForm;
using operations::Cost;
using operations::HeadShape;
using operations::LayerForm;

/** The tensors of one call. Which of them a kernel has is said by the kernel. */
struct OperandSet {
    std::vector<Matrix> inputs;                             // x; gate, up; x, residual
    std::vector<Matrix> outputs;                            // y; residual_out, y
    std::vector<DLTensor *> arguments;                      // these and weight and bias in the order of an Operation
    operations::LayerTensors layer;                         // the same of a layer
    std::vector<std::shared_ptr<halyard_weights>> weights;  // of layers: the first product's, then the second's
    std::shared_ptr<halyard_kv_cache> cache;                // of attention and blocks that decode
    std::shared_ptr<const halyard_block> block;             // of blocks
    std::shared_ptr<Buffer> saved;                          // what a block's forward call saves for its gradients
};

struct BenchmarkCase;
class Model;
class Trainee;

/** A row of the catalogue: an operation, with what peers and reports know it by. */
struct Kernel {
    std::string name;       // "rms_norm", "swiglu.interleaved"
    std::string operation;  // the name peers know it by: that of the function, "swiglu_packed" included
    std::string group;      // what the report shows together: "norms", "activations", "gated units", ...
    bool common = true;     // or a variant that the work list's group "common" leaves out
    // Which of the descriptions it is.
    const operations::Operation *tensors = nullptr;
    std::optional<LayerForm> layer;
    /** Whether the call makes gradients. A layer's are dx and those of its parameters, attention's are dq, dk and dv; a block goes
     *  forward and backward, and a model takes a whole training step. */
    bool is_gradient = false;
    std::optional<HeadShape> attention;
    std::optional<BlockForm> block;  // of blocks and models
    std::string file;                // of a model in a GGUF file of the user's
    std::int64_t vocabulary = 0;     // rows of the table whose gradient it is
    /** Whether rows of x are rounded to 8 bits: HALYARD_PRODUCTS_INT8. */
    bool has_int8_products() const { return (layer && layer->int8_products) || (block && block->int8_products); }
    /** Bits of the codes of its quantized matrices; 0 of a file's, which may have several. */
    int code_bits() const { return layer ? (layer->q4_k ? 4 : layer->quantization.bits) : block->quantization.bits; }
    /** Scalars of `tensors`; of attention a soft cap, if any; of an optimizer its numbers, of a training step those and the norm that
     *  gradients are clipped to. */
    std::vector<double> scalars;
    std::vector<std::size_t> state;  // of an optimizer: the input that each output, written in place, begins as
    // The tensors that it has.
    int inputs = 1, outputs = 1;
    int row_sums = 0;                       // outputs that are sums over rows, f32 [d]
    int input_width = 1, output_width = 1;  // of the widest, in multiples of d
    bool has_weight = false, has_bias = false;
    std::optional<Dtype> cast_to;                     // the output's type where it is another
    halyard_glu_layout layout = HALYARD_GLU_GATE_UP;  // of packed gated units
    /** Makes operands and samples of what is no operation on tensors of rows. */
    std::function<void(BenchmarkCase &bench_case)> prepare;
    /** One call of the library on one set of operands. */
    std::function<halyard_status(BenchmarkCase &bench_case, OperandSet &set)> call;
};

/** One BenchmarkCase per row of the report. */
struct CaseId {
    const Kernel *kernel;
    Dtype dtype;
    std::int64_t rows, d;
    bool cold;
    int threads;
    std::int64_t d_out = 0;  // of layers: the width of the (first) product
    /** Positions that attention, blocks and models find cached. 0: `rows` tokens of one sequence, which are all of it.
     * Otherwise one token of each of `rows` sequences, with so many positions before it. */
    std::int64_t cached = 0;
    /** Tokens of each sequence in a training step; `rows` counts those of all. */
    std::int64_t length = 0;

    /** "rms_norm/f32/64x4096/hot/2t", "linear/f32/8x4096x11008/cold/2t", "block.gpt2/f32/prompt128/hot/2t",
     *  "attention.32x128/bf16/decode8x1024/cold/2t", "training_step.gpt2/f32/4x64/cold/2t" */
    std::string name() const;
    /** Whether the limit is a read and multiply-adds, not a copy. */
    bool has_roofline() const { return kernel->layer || has_heads() || kernel->vocabulary > 0; }
    bool has_heads() const { return kernel->attention || kernel->block; }
    bool is_model() const { return kernel->block && kernel->block->is_model(); }
    bool is_training_step() const { return is_model() && kernel->is_gradient; }
    const HeadShape &heads() const { return kernel->attention ? *kernel->attention : kernel->block->heads; }
    bool decodes() const { return cached > 0; }
    std::int64_t sequences() const { return decodes() ? rows : length > 0 ? rows / length : 1; }
    std::int64_t tokens() const { return decodes() ? 1 : length > 0 ? length : rows; }
    Dtype output_dtype() const { return kernel->cast_to.value_or(dtype); }
    std::int64_t output_width() const { return kernel->layer ? kernel->layer->output_width(d, d_out) : d; }
    /** The memory traffic of its tensors. */
    Stream stream() const;
    Cost cost() const;
    std::size_t bytes_moved() const { return cost().bytes; }
    std::size_t weight_bytes() const { return cost().weight_bytes; }
    double flops() const { return cost().flops; }
    /** How many of them are in bytes: products of rows in 8 bits with quantized matrices, but not of attention. */
    double int8_flops() const;
    /** How many operand sets there are: one if hot, else enough to leave every cache before coming round. */
    std::size_t set_count(std::size_t cold_set) const;
};

/** Throws what the library says if it refused. */
void require(halyard_status status);

struct BenchmarkCase {
    BenchmarkCase(const CaseId &id, std::size_t cold_set, halyard_isa isa);

    CaseId id;
    std::shared_ptr<halyard_context> context;
    std::vector<OperandSet> sets;          // as many as CaseId::set_count
    std::unique_ptr<Matrix> weight, bias;  // of a norm
    Parameters parameters;                 // of layers, blocks and models; what a cache holds
    /** Tokens that a model caches first, or the text of a training step; a loss's targets, an embedding's ids. */
    std::vector<std::int64_t> tokens;
    std::shared_ptr<const Model> model;
    std::shared_ptr<Trainee> trainee;
    std::vector<Sample> samples;  // of outputs made with these, one after the other
    std::size_t cold_set;         // bytes
    std::size_t resident = 0;     // of models: how much larger the process became

    /** An input of the operand sets; one of no width is none. */
    struct Input {
        std::int64_t width;
        double deviation;  // of its values, round 0
    };
    void make_sets(const std::vector<Input> &inputs, std::int64_t output_width);

    /** Calls the library on operand set `set`; throws if it refuses. */
    void call(std::size_t set);

    /** Errors of set 0's outputs. Large tensors are judged by rows spread over them. */
    Accuracy accuracy() const;
    /** What Accuracy::error may be: room for another order of summation, and two roundings to the storage type. A model in 16 bits rounds in
     *  each of its blocks: these errors are independent of each other and add up like the root of their number. Rows in 8 bits as for a
     *  peer. */
    double tolerance() const;
    /** As tolerance(), for a peer, which may quantize activations, and whose gradients in a training step go through all blocks. */
    double peer_tolerance() const;
    /** Fills set 0's outputs with NaN, so that nothing passes that was not written; those of an optimizer are as they began. */
    void spoil_outputs();
    /** Makes every set's outputs what an optimizer begins with. */
    void begin_steps();

private:
    /** In the order of an Operation's operands: inputs, weight, bias, outputs. */
    std::vector<const Matrix *> matrices(const OperandSet &set) const;
};

/** Every kernel of tensors of rows, in the order of the report. */
const std::vector<Kernel> &catalogue();
/** Every layer. */
const std::vector<Kernel> &layer_catalogue();
/** An operation on tensors of rows. */
Kernel tensor_kernel(const operations::Operation &operation);
Kernel layer_kernel(const std::string &name, const LayerForm &form);
/** A linear layer's gradients. */
Kernel layer_gradient_kernel(const std::string &name, const LayerForm &form);
/** The gradients of a feed-forward network with its norm. */
Kernel ffn_gradient_kernel(const std::string &name, const LayerForm &form);
/** Every optimizer: a step in place. */
const std::vector<Kernel> &optimizer_catalogue();
/** Attention with these heads: "attention.32-8x128". */
const Kernel &attention_kernel(const HeadShape &heads);
/** Its gradients: "attention_backward.32-8x128". */
const Kernel &attention_gradient_kernel(const HeadShape &heads);
Kernel make_attention(const HeadShape &heads, double softcap = 0);
/** Cross entropy and its gradient: "cross_entropy". */
const Kernel &cross_entropy_kernel();
/** The gradient of an embedding's table of so many rows: "embedding_backward.50257". */
const Kernel &embedding_gradient_kernel(std::int64_t vocabulary);
/** A block of this form: "block.MODEL", or with a vocabulary a whole model: "model.MODEL". */
const Kernel &block_kernel(const std::string &model, const BlockForm &form);
/** Forward and backward of such a block: "block_backward.MODEL". */
const Kernel &block_gradient_kernel(const std::string &model, const BlockForm &form);
/** A training step of such a model: "training_step.MODEL". */
const Kernel &training_step_kernel(const std::string &model, const BlockForm &form);
/** The model of a GGUF file: "model.NAME" by the file's name, "model.NAME.int8" with x in 8 bits. Throws what is wrong with the file. */
const Kernel &file_kernel(const std::string &path, bool int8_products);

}  // namespace halyard::bench

#endif
