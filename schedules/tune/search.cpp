// See search.h.
#include "search.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace halyard::tune {
namespace {

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return values.size() % 2 == 1 ? *middle : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/** How many of n sorted values lie below the lower of the two order statistics: of equal sides, the median is below it
 * in one of 200 cases at most. */
std::size_t surely_outside(std::size_t n) {
    constexpr double most = 0.005;
    double term = std::pow(0.5, static_cast<double>(n)), tail = term;  // chances of 0 and of at most 0 values below it
    std::size_t outside = 0;
    while (true) {
        term *= static_cast<double>(n - outside) / static_cast<double>(outside + 1);
        tail += term;
        if (tail > most || 2 * (outside + 1) >= n) {
            return outside;
        }
        outside++;
    }
}

/** How much a ratio must differ from 1 to mean anything. */
double threshold(const Gain &gain, double noise) {
    constexpr double least_gain = 0.02, noises = 3;
    return std::max(least_gain, noises * std::max(noise, gain.error));
}

}  // namespace

Gain gain_over(const std::vector<double> &defaults, const std::vector<double> &candidate) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(defaults.size(), candidate.size()); i++) {
        ratios.push_back(defaults[i] / candidate[i]);
    }
    if (ratios.empty()) {
        return {1, HUGE_VAL};
    }
    Gain gain;
    gain.ratio = median_of(ratios);
    std::sort(ratios.begin(), ratios.end());
    const std::size_t outside = surely_outside(ratios.size());
    gain.low = ratios[outside];
    gain.high = ratios[ratios.size() - 1 - outside];
    for (double &ratio : ratios) {
        ratio = std::fabs(ratio - gain.ratio);
    }
    // Of normal noise the deviation is 1.4826 of these medians, and a median's error 1.2533 of a mean's.
    gain.error = 1.4826 * 1.2533 * median_of(ratios) / std::sqrt(static_cast<double>(ratios.size()));
    return gain;
}

Gain mean_gain(const std::vector<Gain> &gains) {
    double logarithms = 0, lows = 0, highs = 0, squares = 0;
    for (const Gain &gain : gains) {
        logarithms += std::log(gain.ratio);
        lows += std::log(gain.low);
        highs += std::log(gain.high);
        squares += gain.error * gain.error;
    }
    const auto n = static_cast<double>(std::max<std::size_t>(1, gains.size()));
    return {std::exp(logarithms / n), std::sqrt(squares) / n, std::exp(lows / n), std::exp(highs / n)};
}

double noise_of(const Gain &over_itself) {
    return std::max(std::fabs(over_itself.ratio - 1), over_itself.error);
}

bool is_beyond_noise(const Gain &gain, double noise) {
    return gain.ratio - 1 > threshold(gain, noise) && gain.low > 1;
}

bool is_slower_beyond_noise(const Gain &gain, double noise) {
    return 1 / gain.ratio - 1 > threshold(gain, noise) && gain.high < 1;
}

const std::vector<Effort> &efforts() {
    // Samples are short and many: on a busy machine some are interrupted, and the others remain.
    static const std::vector<Effort> all = {
        {"quick", 12, {5, 1e-3}, {25, 1e-3}, false},
        {"normal", 32, {9, 1e-3}, {45, 1.5e-3}, true},
        {"exhaustive", SIZE_MAX, {15, 2e-3}, {99, 3e-3}, true},
    };
    return all;
}

const Effort &effort_named(const std::string &name) {
    for (const Effort &effort : efforts()) {
        if (effort.name == name) {
            return effort;
        }
    }
    throw std::invalid_argument("no effort is called '" + name + "'");
}

std::vector<Choice> worthy_choices(const SearchSpace &space, const schedules::TargetInfo &target,
                                   const Choice &defaults) {
    std::vector<Choice> choices = {Choice()};
    for (const schedules::Tunable &parameter : space.parameters) {
        std::vector<Choice> longer;
        for (const Choice &choice : choices) {
            for (const int value : parameter.values) {
                longer.push_back(choice);
                longer.back()[parameter.name] = value;
            }
        }
        choices = std::move(longer);
    }
    const auto unworthy = [&](const Choice &choice) { return choice == defaults || !space.fits(choice, target); };
    choices.erase(std::remove_if(choices.begin(), choices.end(), unworthy), choices.end());
    return choices;
}

Decision search(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &defaults,
                const Effort &effort, std::mt19937 &random, Evaluator &evaluator) {
    constexpr std::size_t finalists = 3;
    Decision decision;
    decision.defaults = decision.best = defaults;
    std::vector<Choice> choices = worthy_choices(space, target, defaults);
    if (choices.size() > effort.choices) {
        std::shuffle(choices.begin(), choices.end(), random);
        choices.resize(effort.choices);
    }
    decision.tried = static_cast<int>(choices.size());
    choices = evaluator.admitted(choices);

    // Measures, and puts the best in front.
    Evaluator::Result result;
    const auto rank = [&](const Sampling &sampling, bool is_final) {
        result = evaluator.compare(choices, sampling, is_final);
        if (evaluator.stopped() || result.gains.size() != choices.size()) {
            return false;
        }
        std::vector<std::size_t> order(choices.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return mean_gain(result.gains[a]).ratio > mean_gain(result.gains[b]).ratio;
        });
        std::vector<Choice> ranked;
        std::vector<std::vector<Gain>> gains;
        for (const std::size_t i : order) {
            ranked.push_back(choices[i]);
            gains.push_back(result.gains[i]);
        }
        choices = ranked;
        result.gains = gains;
        return true;
    };
    if (evaluator.stopped() || (choices.size() > finalists && !rank(effort.screen, false))) {
        return decision;
    }
    choices.resize(std::min(choices.size(), finalists));
    for (int repetition = 0; repetition < 2 && !choices.empty(); repetition++) {
        if (!rank(effort.final, true)) {
            return decision;
        }
        choices.resize(1);
        const Gain gain = mean_gain(result.gains[0]);
        decision.noise = std::max(decision.noise, noise_of(mean_gain(result.again)));
        if (repetition == 0 || gain.ratio < decision.gain.ratio) {
            decision.gain = gain;
        }
        decision.best = choices[0];
        decision.is_better = is_beyond_noise(gain, decision.noise);
        for (std::size_t i = 0; i < result.again.size(); i++) {
            decision.is_better =
                decision.is_better && !is_slower_beyond_noise(result.gains[0][i], noise_of(result.again[i]));
        }
        if (!decision.is_better) {
            break;
        }
    }
    decision.is_made = true;
    return decision;
}

}  // namespace halyard::tune
