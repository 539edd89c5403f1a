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

#include "buffer.h"
#include "halyard/halyard.h"
#include "reference.h"
#include "streams.h"

namespace halyard::bench {

using tests::Dtype;

/** Parameters every row uses: the usual values of published models. */
constexpr float layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f, beta = 1.0f, partial_p = 0.0625f;

/** Random tensors repeat after this many values: a prime, so that no vector or row sees the same ones in the same
 * place. */
constexpr std::size_t random_period = 65521;

/** A two-dimensional compact tensor and its DLPack view. */
class Matrix {
public:
    Matrix(Dtype dtype, std::int64_t rows, std::int64_t width);
    Matrix(Matrix &&other) noexcept;

    DLTensor view{};
    Dtype dtype() const { return type; }
    std::int64_t rows() const { return shape[0]; }
    std::int64_t width() const { return shape[1]; }
    std::size_t bytes() const { return buffer.size(); }
    char *data() const { return buffer.data(); }
    /** Normally distributed values around `mean`, the same for the same seed. */
    void fill_random(unsigned seed, double mean, double deviation);
    tests::Row row(std::int64_t index) const;

private:
    void describe();

    Dtype type;
    std::int64_t shape[2];
    Buffer buffer;
};

/** The tensors of one call. Which of them a kernel has is said by the kernel. */
struct Operands {
    std::vector<Matrix> inputs;                                   // x; gate, up; x, residual
    std::vector<Matrix> outputs;                                  // y; residual_out, y
    std::vector<std::shared_ptr<const halyard_weights>> weights;  // of layers: the first product's, then the second's
};

/** What a kernel computes for one row, as float64 references give it. */
using Reference = std::function<std::vector<tests::Row>(const std::vector<tests::Row> &inputs, const tests::Row &weight,
                                                        const tests::Row &bias)>;

struct Work;
class Layer;

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

/** A row of the catalogue: what is called, what it moves, and what it should give. */
struct Kernel {
    std::string name;       // "rms_norm", "swiglu.interleaved"
    std::string operation;  // the name peers know it by: that of the function, "swiglu_packed" included
    bool common = true;     // or a variant that only the full mode measures
    Stream stream;          // the memory traffic of its tensors but weight and bias
    int inputs = 1, outputs = 1;
    int input_width = 1;  // in multiples of d
    bool has_weight = false, has_bias = false;
    std::optional<Dtype> cast_to;                     // the output's type where it is another
    halyard_glu_layout layout = HALYARD_GLU_GATE_UP;  // of packed gated units
    std::optional<LayerForm> layer;                   // of layers, which have no `stream` and no `reference`
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

    /** "rms_norm/f32/64x4096/hot/2t", "linear/f32/8x4096x11008/cold/2t" */
    std::string name() const;
    Dtype output_dtype() const { return kernel->cast_to.value_or(dtype); }
    std::int64_t output_width() const { return kernel->layer && !kernel->layer->is_ffn ? d_out : d; }
    Stream stream() const;
    /** Bytes that one call reads and writes: each tensor once, without the vectors weight and bias; with the matrices
     * of layers. */
    std::size_t bytes_moved() const;
    /** Bytes of a layer's matrices. */
    std::size_t weight_bytes() const;
    /** Multiplications and additions of a layer's products. */
    double flops() const;
    /** How many operand sets there are: one if hot, else enough to leave every cache before coming round. */
    std::size_t set_count(std::size_t cold_set) const;
};

struct Work {
    Work(const WorkId &id, std::size_t cold_set, halyard_isa isa);

    WorkId id;
    std::shared_ptr<halyard_context> context;
    std::vector<Operands> sets;            // as many as WorkId::set_count
    std::unique_ptr<Matrix> weight, bias;  // of a norm
    std::shared_ptr<const Layer> layer;    // of layers

    /** Calls the library on operand set `set`; throws if it refuses. */
    void call(std::size_t set);

    /** Largest error of set 0's outputs, relative to the largest value of the same row and output in the reference;
     *  infinite where a NaN stands. Large tensors are judged by rows spread over them. */
    double worst_error() const;
    /** What worst_error may be: room for another order of summation, and two roundings to the storage type. */
    double tolerance() const;
    /** Fills set 0's outputs with NaN, so that nothing passes that was not written. */
    void spoil_outputs();

private:
    std::vector<std::int64_t> sampled_rows() const;
};

/** Every kernel but layers, in the order of the report. */
const std::vector<Kernel> &catalogue();
/** Every layer. */
const std::vector<Kernel> &layer_catalogue();

}  // namespace halyard::bench

#endif
