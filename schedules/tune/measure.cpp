// See measure.h.
#include "measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace halyard::tune {
namespace {

constexpr double least_gain = 0.02;
constexpr double noises = 3;

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

/** How much the ratio must differ from 1 to mean anything. */
double threshold(const Gain &gain, double noise) {
    return std::max(least_gain, noises * std::max(noise, gain.error));
}

}  // namespace

std::vector<std::vector<double>> sample_rounds(const std::vector<Competitor *> &competitors, const Effort &effort,
                                               std::mt19937 &random, const std::function<bool()> &stop) {
    std::vector<std::vector<double>> seconds(competitors.size());
    // Every one is called once before it counts; the first one's times say how many calls make a sample.
    std::int64_t calls = 1;
    for (Competitor *competitor : competitors) {
        competitor->enter();
        competitor->seconds(1);
    }
    competitors.front()->enter();
    for (double time = competitors.front()->seconds(calls); time < effort.seconds_per_sample && !stop();
         time = competitors.front()->seconds(calls)) {
        const double wanted = static_cast<double>(calls) * effort.seconds_per_sample / std::max(time, 1e-9);
        if (wanted < 1.5 * static_cast<double>(calls)) {
            calls = std::max<std::int64_t>(calls, std::llround(wanted));
            break;
        }
        // A first short sample may have been slow: approach in steps.
        calls = std::llround(std::min(wanted, 20.0 * static_cast<double>(calls)));
    }

    std::vector<std::size_t> order(competitors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int round = 0; round < effort.rounds; round++) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<double> times(competitors.size());
        for (const std::size_t i : order) {
            if (stop()) {
                return seconds;  // whole rounds only
            }
            competitors[i]->enter();
            times[i] = competitors[i]->seconds(calls) / static_cast<double>(calls);
        }
        for (std::size_t i = 0; i < times.size(); i++) {
            seconds[i].push_back(times[i]);
        }
    }
    return seconds;
}

double median_of(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) {
        return *middle;
    }
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

Gain gain_over(const std::vector<double> &incumbent, const std::vector<double> &candidate) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < std::min(incumbent.size(), candidate.size()); i++) {
        ratios.push_back(incumbent[i] / candidate[i]);
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

double noise_of(const Gain &incumbent_over_itself) {
    return std::max(std::fabs(incumbent_over_itself.ratio - 1), incumbent_over_itself.error);
}

bool is_beyond_noise(const Gain &gain, double noise) {
    return gain.ratio - 1 > threshold(gain, noise) && gain.low > 1;
}

bool is_slower_beyond_noise(const Gain &gain, double noise) {
    return 1 / gain.ratio - 1 > threshold(gain, noise) && gain.high < 1;
}

}  // namespace halyard::tune
