// How a result grows when all parameters grow at once, each in its own way: what gradients say of it, beside what the float64
// reference does.
#ifndef HALYARD_BENCH_CASES_SLOPE_H
#define HALYARD_BENCH_CASES_SLOPE_H

#include "operands.h"

namespace halyard::bench {

/** How far parameters go from what they are, as a part of it, for the slope of the reference. */
constexpr double slope_step = 0x1p-13;

/** Parameters go their own ways, so that no two gradients can be exchanged. */
double way_of(std::size_t parameter);
/** Values times 1 + offset, rounded to f32: the reference takes vectors so. */
operations::Row moved(const operations::Row &values, double offset);
/** A matrix of them, in float64. */
operations::WeightMatrix moved(const operations::WeightMatrix &matrix, double offset);
/** block_values() with each parameter moved by `offset` times its way; they are parameters `number` + 1 and so on, and it is counted on. */
operations::BlockValues moved_block(const BenchmarkCase &bench_case, const std::string &prefix, double offset,
                                    std::size_t &number);

/** The growth that gradients say, one tensor after the other. */
class Growth {
public:
    /** Adds a tensor with its gradient. Vectors are moved in f32, matrices in float64. */
    void add(const Matrix &gradient, double way, bool is_vector,
             const std::function<operations::Row(std::int64_t row)> &values);
    /** How far it is from the slope between two results of the reference, in units of all that was added. */
    double error(double below, double above) const;

private:
    double sum = 0, magnitude = 0;
};

}  // namespace halyard::bench

#endif
