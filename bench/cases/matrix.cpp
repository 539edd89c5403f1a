// See matrix.h.
#include "matrix.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace halyard::bench {

// ---- Matrix ----

Matrix::Matrix(Dtype dtype, std::int64_t rows, std::int64_t width)
    : type(dtype), shape{rows, width}, buffer(static_cast<std::size_t>(rows * width) * operations::size_of(dtype)) {
    describe();
}

Matrix::Matrix(Matrix &&other) noexcept
    : type(other.type), shape{other.shape[0], other.shape[1]}, buffer(std::move(other.buffer)) {
    describe();
}

void Matrix::describe() {
    view = {buffer.data(), {kDLCPU, 0}, 2, operations::dlpack_type(type), shape, nullptr, 0};
}

void Matrix::fill_random(unsigned seed, double mean, double deviation) {
    constexpr std::size_t period = random_period;
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(mean, deviation);
    const std::size_t size = operations::size_of(type), count = buffer.size() / size;
    for (std::size_t i = 0; i < std::min(period, count); i++) {
        const std::uint32_t bits = operations::encode(type, normal(generator));
        std::memcpy(buffer.data() + i * size, &bits, size);
    }
    for (std::size_t i = period; i < count; i += period) {
        std::memcpy(buffer.data() + i * size, buffer.data(), std::min(period, count - i) * size);
    }
}

operations::Row Matrix::row(std::int64_t index) const {
    const std::size_t size = operations::size_of(type);
    const char *start = buffer.data() + static_cast<std::size_t>(index * width()) * size;
    operations::Row values(static_cast<std::size_t>(width()));
    for (std::size_t i = 0; i < values.size(); i++) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, start + i * size, size);
        values[i] = operations::decode(type, bits);
    }
    return values;
}

DLTensor vector_view(const Matrix &matrix) {
    DLTensor view = matrix.view;
    view.ndim = 1;
    view.shape++;
    return view;
}

std::unique_ptr<Matrix> random_vector(Dtype dtype, std::int64_t width, unsigned seed, double mean) {
    auto vector = std::make_unique<Matrix>(dtype, 1, width);
    vector->fill_random(seed, mean, 0.1);
    vector->view = vector_view(*vector);
    return vector;
}

// ---- PeriodicMatrix ----

PeriodicMatrix::PeriodicMatrix(Dtype type, std::int64_t out, std::int64_t in, unsigned with_seed, double with_deviation)
    : dtype(type), outs(out), ins(in), seed(with_seed), deviation(with_deviation),
      values(filled(1, std::min(out * in, static_cast<std::int64_t>(random_period))).row(0)) {}

Matrix PeriodicMatrix::filled(std::int64_t rows, std::int64_t width) const {
    Matrix matrix(dtype, rows, width);
    matrix.fill_random(seed, 0.0, deviation);
    return matrix;
}

operations::Row PeriodicMatrix::row(std::int64_t index, std::int64_t first, std::int64_t count) const {
    operations::Row result(static_cast<std::size_t>(count));
    std::size_t place = place_of(index * ins + first);
    for (double &value : result) {
        value = values[place];
        place = place + 1 == random_period ? 0 : place + 1;
    }
    return result;
}

operations::WeightMatrix PeriodicMatrix::weights(const halyard_quantization &quantization) const {
    operations::WeightMatrix matrix;
    matrix.in = ins;
    matrix.out = outs;
    matrix.columns = [this, quantization](std::int64_t first, std::int64_t count) {
        operations::Row columns(static_cast<std::size_t>(ins * count));
        for (std::int64_t n = 0; n < count; n++) {
            const operations::Row as_given = row(first + n);
            const operations::Row of_output =
                quantization.bits == 0 ? as_given : operations::quantized_values(as_given, quantization);
            for (std::int64_t k = 0; k < ins; k++) {
                columns[static_cast<std::size_t>(k * count + n)] = of_output[static_cast<std::size_t>(k)];
            }
        }
        return columns;
    };
    return matrix;
}

double PeriodicMatrix::dot(const operations::Row &x, std::int64_t index) const {
    std::size_t place = place_of(index * ins);
    double sums[4] = {0, 0, 0, 0};
    for (std::size_t k = 0; k < x.size();) {
        const std::size_t end = std::min(x.size(), k + random_period - place);
        for (; k + 4 <= end; k += 4, place += 4) {
            for (std::size_t i = 0; i < 4; i++) {
                sums[i] += x[k + i] * values[place + i];
            }
        }
        for (; k < end; k++, place++) {
            sums[0] += x[k] * values[place];
        }
        place = 0;
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

// ---- Parameters ----

void Parameters::add_matrix(const std::string &name, Dtype dtype, std::int64_t out, std::int64_t in, unsigned seed,
                            double deviation) {
    matrices.try_emplace(name, dtype, out, in, seed,
                         deviation != 0 ? deviation : 1 / std::sqrt(static_cast<double>(in)));
}

void Parameters::add_vector(const std::string &name, Dtype dtype, std::int64_t width, unsigned seed, double mean) {
    vectors[name] = random_vector(dtype, width, seed, mean);
}

const DLTensor *Parameters::vector(const std::string &name) const {
    const auto found = vectors.find(name);
    return found != vectors.end() ? &found->second->view : nullptr;
}

operations::Row Parameters::values(const std::string &name) const {
    const auto found = vectors.find(name);
    return found != vectors.end() ? found->second->row(0) : operations::Row();
}

}  // namespace halyard::bench
