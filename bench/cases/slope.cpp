// See slope.h.
#include "slope.h"

#include <cmath>

namespace halyard::bench {

using operations::BlockParameter;
using operations::Row;

double way_of(std::size_t parameter) {
    return parameter % 2 == 0 ? 1.0 : -0.5;
}

Row moved(const Row &values, double offset) {
    Row all;
    for (const double value : values) {
        all.push_back(static_cast<float>(value * (1 + offset)));
    }
    return all;
}

operations::WeightMatrix moved(const operations::WeightMatrix &matrix, double offset) {
    operations::WeightMatrix result = matrix;
    result.columns = [offset, columns = matrix.columns](std::int64_t first, std::int64_t count) {
        Row row = columns(first, count);
        for (double &value : row) {
            value *= 1 + offset;
        }
        return row;
    };
    return result;
}

operations::BlockValues moved_block(const BenchmarkCase &bench_case, const std::string &prefix, double offset,
                                    std::size_t &number) {
    operations::BlockValues values = block_values(bench_case, prefix);
    for (const BlockParameter &each : operations::block_parameters(*bench_case.id.kernel->block)) {
        const double factor = offset * way_of(++number);
        if (each.vector) {
            each.vector(values) = moved(each.vector(values), factor);
        } else {
            each.matrix(values) = moved(each.matrix(values), factor);
        }
    }
    return values;
}

void Growth::add(const Matrix &gradient, double way, bool is_vector,
                 const std::function<Row(std::int64_t row)> &values) {
    double of_tensor = 0;
    for (std::int64_t row = 0; row < gradient.rows(); row++) {
        const Row slopes = gradient.row(row), at = values(row);
        const Row low = is_vector ? moved(at, -slope_step * way) : at,
                  high = is_vector ? moved(at, slope_step * way) : at;
        for (std::size_t i = 0; i < at.size(); i++) {
            of_tensor += slopes[i] * (is_vector ? (high[i] - low[i]) / (2 * slope_step) : at[i] * way);
        }
    }
    sum += of_tensor;
    magnitude += std::fabs(of_tensor);
}

double Growth::error(double below, double above) const {
    return std::fabs((above - below) / (2 * slope_step) - sum) / magnitude;
}

}  // namespace halyard::bench
