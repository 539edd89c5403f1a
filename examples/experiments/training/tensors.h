// Matrices and parameters of the training experiments: f32, or f64 for the tests that compare gradients with differences.
#ifndef HALYARD_EXPERIMENTS_TRAINING_TENSORS_H
#define HALYARD_EXPERIMENTS_TRAINING_TENSORS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace experiments::training {

template<class T>
struct Matrix {
    Matrix() = default;
    Matrix(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count), columns(column_count), values(static_cast<std::size_t>(row_count * column_count)) {}

    T *row(std::int64_t i) { return values.data() + i * columns; }
    const T *row(std::int64_t i) const { return values.data() + i * columns; }

    std::int64_t rows = 0, columns = 0;
    std::vector<T> values;
};

/** What is trained, and how the loss changes with it. */
template<class T>
struct Parameter {
    Parameter(std::int64_t rows, std::int64_t columns) : value(rows, columns), gradient(rows, columns) {}

    Matrix<T> value, gradient;
};
template<class T>
using Parameters = std::vector<Parameter<T> *>;

/** Threads of all calls of this folder; no result depends on them. */
void set_threads(int count);  // 0: all

/** Calls work(i) for each i below `count`, on all threads. */
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)> &work);
/** Calls work(begin, end) for ranges of `size`, which together are those below `count`. */
void parallel_ranges(std::int64_t count, std::int64_t size,
                     const std::function<void(std::int64_t, std::int64_t)> &work);

/** a b, with a [m, k] and b [k, n]. */
template<class T>
Matrix<T> product(const Matrix<T> &a, const Matrix<T> &b);
/** a b^T, with a [m, k] and b [n, k]. */
template<class T>
Matrix<T> product_transposed(const Matrix<T> &a, const Matrix<T> &b);

/** y(i) = f(x(i)), slope(i) = f'(x(i)). */
enum class Function { identity, relu, gelu, gelu_tanh, silu, sigmoid };
template<class T>
void apply(Function function, const Matrix<T> &x, Matrix<T> &y, Matrix<T> &slope);

/** In tiles, of which both sides stay in cache. */
template<class T>
Matrix<T> transposed(const Matrix<T> &a) {
    constexpr std::int64_t side = 16;
    Matrix<T> result(a.columns, a.rows);
    for (std::int64_t i = 0; i < a.rows; i += side) {
        for (std::int64_t j = 0; j < a.columns; j++) {
            for (std::int64_t k = i; k < std::min(i + side, a.rows); k++) {
                result.row(j)[k] = a.row(k)[j];
            }
        }
    }
    return result;
}

/** to(i) = f(to(i), x(i)) */
template<class T, class F>
void combine(Matrix<T> &to, const Matrix<T> &x, const F &f) {
    parallel_ranges(to.rows, 16, [&](std::int64_t begin, std::int64_t end) {
        std::transform(to.row(begin), to.row(end), x.row(begin), to.row(begin), f);
    });
}
template<class T>
void add(Matrix<T> &to, const Matrix<T> &x) {
    combine(to, x, std::plus<T>());
}
template<class T>
void multiply(Matrix<T> &to, const Matrix<T> &x) {
    combine(to, x, std::multiplies<T>());
}

}  // namespace experiments::training

#endif
