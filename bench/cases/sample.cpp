// See sample.h.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace halyard::bench {

Sample::Sample(std::int64_t of_rows, std::int64_t most_rows, std::int64_t of_columns, std::int64_t most_columns)
    : rows(spread(of_rows, most_rows)), columns(spread(of_columns, most_columns)) {}

void Sample::expect(const operations::Row &row) {
    operations::Row &picked = expected.emplace_back();
    for (const std::int64_t column : columns) {
        picked.push_back(row[static_cast<std::size_t>(column)]);
    }
}

void Accuracy::add(const operations::Row &got, const operations::Row &exact, Dtype dtype) {
    double largest = std::numeric_limits<double>::min(), furthest = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
        const double distance =
            std::isnan(got[i]) ? std::numeric_limits<double>::infinity() : std::fabs(got[i] - exact[i]);
        largest = std::max(largest, std::fabs(exact[i]));
        furthest = std::max(furthest, distance);
        ulps = ulps < 0 ? ulps : std::max(ulps, distance / operations::spacing(dtype, exact[i]));
    }
    error = std::max(error, furthest / largest);
}

double Sample::worst_error(const Matrix &y) const {
    Accuracy worst{known_error, -1};
    std::size_t next = 0;
    for (std::int64_t row = 0; row < y.rows(); row++) {
        const operations::Row got = y.row(row);
        if (std::any_of(got.begin(), got.end(), [](double value) { return std::isnan(value); })) {
            return std::numeric_limits<double>::infinity();
        }
        if (next < rows.size() && rows[next] == row) {
            operations::Row picked;
            for (const std::int64_t column : columns) {
                picked.push_back(got[static_cast<std::size_t>(column)]);
            }
            worst.add(picked, expected[next++], y.dtype());
        }
    }
    return worst.error;
}

std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most) {
    const std::int64_t n = std::min(count, most);
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < n; i++) {
        places.push_back(n == 1 ? count - 1 : i * (count - 1) / (n - 1));
    }
    return places;
}

}  // namespace halyard::bench
