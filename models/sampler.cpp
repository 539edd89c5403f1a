// The next token from logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fail.h"
#include "floating_point.h"
#include "halyard/model.hpp"

namespace halyard {

namespace {

[[noreturn]] void refuse_sampling(const std::string &what) {
    throw Error(HALYARD_INVALID_ARGUMENT, ("halyard::Sampler: " + what).c_str());
}

}  // namespace

Sampler::Sampler(const SamplingOptions &options) : options_(options), generator_(options.seed) {
    if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
        refuse_sampling("temperature is not finite and >= 0");
    }
    if (options.top_k < 0) {
        refuse_sampling("top_k is negative");
    }
    if (!(options.top_p > 0 && options.top_p <= 1)) {
        refuse_sampling("top_p is not in (0, 1]");
    }
}

std::int64_t Sampler::operator()(const float *logits, std::int64_t count) {
    const models::DefaultFloatingPoint floating_point;
    if (logits == nullptr || count < 1) {
        refuse_sampling("there are no logits");
    }
    const float *const end = logits + count;
    if (std::any_of(logits, end, [](float logit) { return std::isnan(logit); })) {
        refuse_sampling("a logit is NaN");
    }
    const float *const largest = std::max_element(logits, end);
    if (std::isinf(*largest)) {
        refuse_sampling(*largest > 0 ? "a logit is +Inf" : "every logit is -Inf");
    }
    if (options_.temperature == 0) {
        return largest - logits;
    }

    // The candidates: all, in order; or the most likely ones, the likeliest first, the lower token first among equals.
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), 0);
    const bool few = options_.top_k > 0 && options_.top_k < count;
    if (few || options_.top_p < 1) {
        const auto kept = tokens.begin() + static_cast<std::ptrdiff_t>(few ? options_.top_k : count);
        std::partial_sort(tokens.begin(), kept, tokens.end(), [logits](std::int64_t a, std::int64_t b) {
            return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
        });
        tokens.erase(kept, tokens.end());
    }
    // Sums of weights up to each candidate.
    std::vector<double> sums(tokens.size());
    double sum = 0;
    for (std::size_t i = 0; i < tokens.size(); i++) {
        sum += std::exp((static_cast<double>(logits[tokens[i]]) - *largest) / options_.temperature);
        sums[i] = sum;
    }
    if (options_.top_p < 1) {
        const auto last = std::lower_bound(sums.begin(), sums.end() - 1, options_.top_p * sum);
        sum = *last;
        sums.erase(last + 1, sums.end());
    }
    // 53 random bits: a number in [0, 1).
    const double chosen = std::ldexp(static_cast<double>(generator_() >> 11), -53) * sum;
    const auto at = std::upper_bound(sums.begin(), sums.end() - 1, chosen);
    return tokens[static_cast<std::size_t>(at - sums.begin())];
}

}  // namespace halyard
