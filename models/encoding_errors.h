// What it costs to encode a tensor: errors, and numbers that no format has, which are refused.
#ifndef HALYARD_MODELS_ENCODING_ERRORS_H
#define HALYARD_MODELS_ENCODING_ERRORS_H

#include <cstdint>
#include <future>
#include <string>
#include <system_error>
#include <vector>

#include "stored_tensor.h"

namespace halyard::models {

/// Squared errors and squared values, summed, and the largest error.
struct EncodingErrors {
    double squared_errors = 0, squared_values = 0, largest = 0;

    void add(const EncodingErrors &other) noexcept;
    /// A row of a tensor, and what it became; of one length.
    void add(const std::vector<float> &row, const std::vector<float> &decoded) noexcept;
    /// Root of the sum of squared errors over that of squared values.
    double relative() const noexcept;
};

/// Refuses a row that holds NaN or Inf. `to` is the name of a format.
void check_finite(const std::vector<float> &row, const StoredTensor &stored, std::string_view to);
/// Refuses a row that became NaN or Inf.
void check_decoded(const std::vector<float> &decoded, const StoredTensor &stored, std::string_view to);

/// Calls rows.encode(first, end) for shares of rows.count() with so many threads, or fewer if the system gives no more. Shares
/// begin at multiples of `unit`.
template<class Rows>
EncodingErrors encode_in_parallel(const Rows &rows, int threads, std::int64_t unit = 1) {
    std::vector<std::future<EncodingErrors>> others;
    const std::int64_t share = ((rows.count() + threads - 1) / threads + unit - 1) / unit * unit;
    std::int64_t first = 0;
    try {
        for (; first + share < rows.count(); first += share) {
            others.push_back(
                std::async(std::launch::async, [&rows, first, share] { return rows.encode(first, first + share); }));
        }
    } catch (const std::system_error &) {
        // This thread does the rest.
    }
    EncodingErrors sum = rows.encode(first, rows.count());
    for (std::future<EncodingErrors> &other : others) {
        sum.add(other.get());
    }
    return sum;
}

}  // namespace halyard::models

#endif
