// The choice of the next token.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "halyard/model.hpp"
#include "support/files.h"

namespace halyard::tests {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

SamplingOptions random(double temperature, std::int64_t top_k = 0, double top_p = 1, std::uint64_t seed = 1) {
    SamplingOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.seed = seed;
    return options;
}

/** How often each token is chosen in `count` trials. */
std::vector<int> counts(const SamplingOptions &options, const std::vector<float> &logits, int count) {
    Sampler sampler(options);
    std::vector<int> result(logits.size());
    for (int i = 0; i < count; i++) {
        result.at(static_cast<std::size_t>(sampler(logits)))++;
    }
    return result;
}

TEST(Sampler, TakesTheMostLikelyTokenAndTheFirstAmongEquals) {
    Sampler greedy;
    EXPECT_EQ(greedy({1, 3, 2}), 1);
    EXPECT_EQ(greedy({5, 3, 5}), 0);
    EXPECT_EQ(greedy({-infinity, -3, -infinity}), 1);
    EXPECT_EQ(greedy({7}), 0);
}

TEST(Sampler, FollowsTheSoftmax) {
    const std::vector<float> logits = {0, 1, -infinity, 2, -1};
    constexpr int trials = 100000;
    for (const double temperature : {0.5, 1.0, 3.0}) {
        const std::vector<int> chosen = counts(random(temperature), logits, trials);
        double sum = 0;
        for (const float logit : logits) {
            sum += std::exp(logit / temperature);
        }
        for (std::size_t token = 0; token < logits.size(); token++) {
            const double p = std::exp(logits[token] / temperature) / sum;
            // Five standard deviations.
            EXPECT_NEAR(chosen[token], trials * p, 5 * std::sqrt(trials * p * (1 - p)))
                << token << " at " << temperature;
        }
    }
}

TEST(Sampler, GivesTheSameTokensForTheSameSeed) {
    std::vector<float> logits(1000);
    for (std::size_t i = 0; i < logits.size(); i++) {
        logits[i] = std::sin(static_cast<float>(i));
    }
    for (const SamplingOptions &options : {random(1), random(0.7, 50), random(1.3, 0, 0.9), random(1, 40, 0.8)}) {
        Sampler first(options), second(options);
        SamplingOptions other = options;
        other.seed++;
        Sampler third(other);
        int same = 0;
        for (int i = 0; i < 100; i++) {
            const std::int64_t token = first(logits);
            EXPECT_EQ(second(logits), token);
            same += third(logits) == token;
        }
        EXPECT_LT(same, 30);
    }
    // The generator is the standard's mt19937_64, the same everywhere.
    Sampler sampler(random(1, 0, 1, 5489));
    EXPECT_EQ(sampler(std::vector<float>(1000, 0.0f)), 786);  // it begins with 0.7868 of 2^64
}

TEST(Sampler, DoesNotDependOnTheCallersRounding) {
    const std::vector<float> logits(10, 0.0f);
    const auto chosen = [&](int rounding) {
        Sampler sampler(random(3.0, 0, 0.9, 7));
        std::fesetround(rounding);
        std::vector<std::int64_t> tokens;
        for (int i = 0; i < 1000; i++) {
            tokens.push_back(sampler(logits));
        }
        EXPECT_EQ(std::fegetround(), rounding);
        std::fesetround(FE_TONEAREST);
        return tokens;
    };
    const std::vector<std::int64_t> nearest = chosen(FE_TONEAREST);
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        EXPECT_EQ(chosen(rounding), nearest) << rounding;
    }
}

TEST(Sampler, KeepsToTheMostLikely) {
    const std::vector<float> logits = {0, 3, 1, 3, 2};
    const std::vector<int> of_two = counts(random(5, 2), logits, 1000);
    EXPECT_EQ(of_two[1] + of_two[3], 1000);
    EXPECT_GT(of_two[1], 400);
    EXPECT_GT(of_two[3], 400);
    EXPECT_EQ(counts(random(5, 1), logits, 100)[1], 100);
    const std::vector<int> of_all = counts(random(5, 50), logits, 1000);
    EXPECT_GT(*std::min_element(of_all.begin(), of_all.end()), 50);

    // Probabilities 0.1, 0.2, 0.3, 0.4: 0.65 needs the last two, 0.75 three.
    const std::vector<float> steps = {std::log(1.0f), std::log(2.0f), std::log(3.0f), std::log(4.0f)};
    const std::vector<int> most = counts(random(1, 0, 0.65), steps, 7000);
    EXPECT_EQ(most[2] + most[3], 7000);
    EXPECT_NEAR(most[2], 3000, 5 * std::sqrt(7000 * 3.0 / 7 * 4 / 7));
    const std::vector<int> three = counts(random(1, 0, 0.75), steps, 1000);
    EXPECT_EQ(three[0], 0);
    EXPECT_GT(three[1], 100);
    EXPECT_EQ(counts(random(1, 0, 1e-9), steps, 100)[3], 100);
    // top_p takes one of the two that top_k leaves.
    EXPECT_EQ(counts(random(1, 2, 0.5), steps, 100)[3], 100);
}

TEST(Sampler, RefusesWhatHasNoMeaning) {
    const auto options_refused = [](const SamplingOptions &options, const char *word) {
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { Sampler sampler(options); }, "halyard::Sampler: ", word);
    };
    EXPECT_TRUE(options_refused(random(-1), "temperature"));
    EXPECT_TRUE(options_refused(random(std::numeric_limits<double>::quiet_NaN()), "temperature"));
    EXPECT_TRUE(options_refused(random(std::numeric_limits<double>::infinity()), "temperature"));
    EXPECT_TRUE(options_refused(random(1, -1), "top_k"));
    EXPECT_TRUE(options_refused(random(1, 0, 0), "top_p"));
    EXPECT_TRUE(options_refused(random(1, 0, 1.5), "top_p"));
    EXPECT_TRUE(options_refused(random(1, 0, std::numeric_limits<double>::quiet_NaN()), "top_p"));
    const auto refused = [](const std::vector<float> &logits, const char *word) {
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { Sampler()(logits); }, "halyard::Sampler: ", word);
    };
    EXPECT_TRUE(refused({}, "no logits"));
    EXPECT_TRUE(refused({1, std::nanf(""), 2}, "NaN"));
    EXPECT_TRUE(refused({1, infinity}, "+Inf"));
    EXPECT_TRUE(refused({-infinity, -infinity}, "-Inf"));
}

}  // namespace
}  // namespace halyard::tests
