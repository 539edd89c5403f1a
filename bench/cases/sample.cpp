// See sample.h.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace halyard::bench {

double Sample::worst_error(const Matrix &y) const {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    double worst = known_error;
    std::size_t next = 0;
    for (std::int64_t row = 0; row < y.rows(); row++) {
        const operations::Row got = y.row(row);
        if (std::any_of(got.begin(), got.end(), [](double value) { return std::isnan(value); })) {
            return infinite;
        }
        if (next == rows.size() || rows[next] != row) {
            continue;
        }
        double largest = std::numeric_limits<double>::min(), error = 0;
        for (std::size_t i = 0; i < columns.size(); i++) {
            const double value = expected[next][i];
            largest = std::max(largest, std::fabs(value));
            error = std::max(error, std::fabs(got[static_cast<std::size_t>(columns[i])] - value));
        }
        worst = std::max(worst, error / largest);
        next++;
    }
    return worst;
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
