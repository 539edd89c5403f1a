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
    std::vector<Matrix> inputs;   // x; gate, up; x, residual
    std::vector<Matrix> outputs;  // y; residual_out, y
};

/** What a kernel computes for one row, as float64 references give it. */
using Reference = std::function<std::vector<tests::Row>(const std::vector<tests::Row> &inputs, const tests::Row &weight,
                                                        const tests::Row &bias)>;

struct Work;

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

    /** "rms_norm/f32/64x4096/hot/2t" */
    std::string name() const;
    Dtype output_dtype() const { return kernel->cast_to.value_or(dtype); }
    Stream stream() const;
    /** Bytes that one call reads and writes: each tensor once, without weight and bias. */
    std::size_t bytes_moved() const;
};

struct Work {
    Work(const WorkId &id, std::size_t cold_set, halyard_isa isa);

    WorkId id;
    std::shared_ptr<halyard_context> context;
    std::vector<Operands> sets;  // one if hot, else enough to leave every cache before coming round
    std::unique_ptr<Matrix> weight, bias;

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

/** Every kernel, in the order of the report. */
const std::vector<Kernel> &catalogue();

}  // namespace halyard::bench

#endif
