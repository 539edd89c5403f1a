#include "encoding_errors.h"

#include <algorithm>
#include <cmath>

#include "fail.h"

namespace halyard::models {

namespace {

bool are_finite(const std::vector<float> &row) {
    return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
}

[[noreturn]] void refuse_tensor(const StoredTensor &stored, std::string_view to, const char *why) {
    refuse(stored.tensor->file, ": tensor ", in_quotes(stored.tensor->name), ", to become ", to, ", ", why);
}

}  // namespace

void EncodingErrors::add(const EncodingErrors &other) noexcept {
    squared_errors += other.squared_errors;
    squared_values += other.squared_values;
    largest = std::max(largest, other.largest);
}

void EncodingErrors::add(const std::vector<float> &row, const std::vector<float> &decoded) noexcept {
    for (std::size_t i = 0; i < row.size(); i++) {
        const double value = row[i], error = std::fabs(decoded[i] - value);
        squared_values += value * value;
        squared_errors += error * error;
        largest = std::max(largest, error);
    }
}

double EncodingErrors::relative() const noexcept {
    return squared_values > 0 ? std::sqrt(squared_errors / squared_values) : 0;
}

void check_finite(const std::vector<float> &row, const StoredTensor &stored, std::string_view to) {
    if (!are_finite(row)) {
        refuse_tensor(stored, to, "holds NaN or Inf, which cannot be encoded: repair the model");
    }
}

void check_decoded(const std::vector<float> &decoded, const StoredTensor &stored, std::string_view to) {
    if (!are_finite(decoded)) {
        refuse_tensor(stored, to, "holds numbers that are too large for this format");
    }
}

}  // namespace halyard::models
