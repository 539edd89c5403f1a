// Tensors of the benchmark, and matrices whose values repeat, so that a reference or another process can know them all
// without holding them.
#ifndef HALYARD_BENCH_CASES_MATRIX_H
#define HALYARD_BENCH_CASES_MATRIX_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "halyard/halyard.h"
#include "operations/quantized.h"
#include "operations/reference_linear.h"
#include "timing/buffer.h"

namespace halyard::bench {

using operations::Dtype;

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
    operations::Row row(std::int64_t index) const;

private:
    void describe();

    Dtype type;
    std::int64_t shape[2];
    Buffer buffer;
};

/** A matrix's view with one axis: a vector, if it has one row. */
DLTensor vector_view(const Matrix &matrix);
/** A parameter, with a view of one axis: values round `mean`. */
std::unique_ptr<Matrix> random_vector(Dtype dtype, std::int64_t width, unsigned seed, double mean);

/** A matrix as torch.nn.Linear holds it, [out, in], filled by Matrix::fill_random. */
class PeriodicMatrix {
public:
    PeriodicMatrix(Dtype dtype, std::int64_t out, std::int64_t in, unsigned seed, double deviation);

    std::int64_t out() const { return outs; }
    std::int64_t in() const { return ins; }
    std::size_t bytes() const { return static_cast<std::size_t>(outs * ins) * operations::size_of(dtype); }
    Matrix whole() const { return filled(outs, ins); }
    /** [1, random_period]: what it repeats. */
    Matrix period() const { return filled(1, static_cast<std::int64_t>(random_period)); }
    /** Row `index` or a part of it, and its product with x. */
    operations::Row row(std::int64_t index) const { return row(index, 0, ins); }
    operations::Row row(std::int64_t index, std::int64_t first, std::int64_t count) const;
    double dot(const operations::Row &x, std::int64_t index) const;
    /** For references: as it is or as packing quantizes it. */
    operations::WeightMatrix weights(const halyard_quantization &quantization = {}) const;

private:
    Matrix filled(std::int64_t rows, std::int64_t width) const;
    std::size_t place_of(std::int64_t element) const { return static_cast<std::size_t>(element) % random_period; }

    Dtype dtype;
    std::int64_t outs, ins;
    unsigned seed;
    double deviation;
    operations::Row values;  // what it repeats, or all of it
};

/** The matrices and vectors that a layer, a block or a model is made with, by name: the library, the references and peers take
 * them from here. Of a cache, the keys and values in it. */
struct Parameters {
    std::map<std::string, PeriodicMatrix> matrices;          // [out, in]
    std::map<std::string, operations::Q4KMatrix> blocks;     // what those become that are in blocks
    std::map<std::string, std::unique_ptr<Matrix>> vectors;  // [1, out]

    /** Values of a deviation of 1 / sqrt(in), as before a training, or of this. */
    void add_matrix(const std::string &name, Dtype dtype, std::int64_t out, std::int64_t in, unsigned seed,
                    double deviation = 0);
    void add_vector(const std::string &name, Dtype dtype, std::int64_t width, unsigned seed, double mean);

    /** Null, or empty, where there is none. */
    const DLTensor *vector(const std::string &name) const;
    operations::Row values(const std::string &name) const;
};

}  // namespace halyard::bench

#endif
