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

constexpr double least_gain = 0.02;

/** How much a ratio must differ from 1 to mean anything. */
double threshold(const Gain &gain, double noise) {
    constexpr double noises = 3;
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
    // The deviation of normal noise is 1.4826 of these medians, and a median's error 1.2533 of a mean's.
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

bool may_gain(const Gain &gain) {
    constexpr double errors = 3;
    return gain.ratio + errors * gain.error > 1 + least_gain;
}

const std::vector<Effort> &efforts() {
    // Samples are short and many: on a busy machine some are interrupted, and the others remain.
    static const std::vector<Effort> all = {
        {"quick", 12, {5, 1e-3}, {25, 1e-3}, false},
        {"normal", 32, {9, 1e-3}, {45, 1e-3}, true},
        {"exhaustive", SIZE_MAX, {15, 1e-3}, {45, 2e-3}, true},
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

    // Measures, and puts the best in front; without those that were given up.
    struct Ranked {
        Choice choice;
        std::vector<Gain> gains;
        Gain mean;
    };
    std::vector<Ranked> ranked;
    std::vector<Gain> again;
    const auto rank = [&](const std::vector<Choice> &compared, const Sampling &sampling, bool is_final) {
        Evaluator::Result result = evaluator.compare(compared, sampling, is_final);
        again = result.again;
        ranked.clear();
        for (std::size_t i = 0; i < result.gains.size(); i++) {
            if (result.gains[i].size() == again.size()) {
                ranked.push_back({compared[i], result.gains[i], mean_gain(result.gains[i])});
            }
        }
        std::stable_sort(ranked.begin(), ranked.end(),
                         [](const Ranked &a, const Ranked &b) { return a.mean.ratio > b.mean.ratio; });
    };
    const auto take = [&decision](const Ranked &best) {
        decision.best = best.choice;
        decision.ratio = best.mean.ratio;
        decision.error = best.mean.error;
    };

    rank(evaluator.admitted(choices), effort.screen, false);
    decision.noise = noise_of(mean_gain(again));
    if (!ranked.empty() && ranked[0].mean.ratio > 1) {
        take(ranked[0]);
    }
    ranked.erase(std::remove_if(ranked.begin(), ranked.end(), [](const Ranked &each) { return !may_gain(each.mean); }),
                 ranked.end());
    ranked.resize(std::min(ranked.size(), finalists));
    for (int repetition = 0; repetition < 2 && !ranked.empty() && !evaluator.stopped(); repetition++) {
        choices.clear();
        for (const Ranked &each : ranked) {
            choices.push_back(each.choice);
        }
        rank(choices, effort.final, true);
        if (ranked.empty()) {
            break;  // stopped
        }
        ranked.resize(1);
        const Gain gain = ranked[0].mean;
        const double noise = noise_of(mean_gain(again));
        decision.noise = repetition == 0 ? noise : std::max(decision.noise, noise);
        if (repetition == 0 || gain.ratio < decision.ratio) {
            take(ranked[0]);
        }
        decision.is_better = is_beyond_noise(gain, decision.noise);
        for (std::size_t i = 0; i < again.size(); i++) {
            decision.is_better = decision.is_better && !is_slower_beyond_noise(ranked[0].gains[i], noise_of(again[i]));
        }
        if (!decision.is_better) {
            break;
        }
    }
    decision.is_made = !evaluator.stopped();
    return decision;
}

}  // namespace halyard::tune
