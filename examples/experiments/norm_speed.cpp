// Experiment 2: time of RMSNorm and LayerNorm at d 4096, in cache and on more tokens than any cache holds.
//
// Contenders take turns in rounds, in another order each round, and what counts is the ratio within a round: a slow
// phase of the machine meets both sides of it. RMSNorm takes part twice, which shows how much of a difference is noise.
#include "csv.h"
#include "experiments.h"
#include "norm_operations.h"
#include "normal.h"

#include <halyard/halyard.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <vector>

namespace experiments {
namespace {

constexpr std::int64_t d = 4096;
constexpr float eps = 1e-5f;
constexpr std::int64_t in_cache = 32;  // rows that, read and written, fit a cache of 1 MB of each core
constexpr float partial = 0.0625f;     // of the row, in pRMSNorm (Zhang and Sennrich 2019)

struct Contender {
    const char *name;
    std::function<void()> call;
};

double seconds_of(const Contender &contender, std::int64_t calls) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < calls; i++) {
        contender.call();
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/** Calls that together take long enough for the clock. The calls made here also warm caches and threads. */
std::int64_t calls_per_sample(const Contender &contender) {
    constexpr double enough = 5e-3;
    std::int64_t calls = 1;
    while (seconds_of(contender, calls) < enough) {
        calls *= 2;
    }
    return calls;
}

struct Case {
    const char *dtype;
    std::int64_t rows;
    int threads;
};

/** Measures a case and writes a line for each contender and round. */
template<class Element>
void measure(const Case &what, int rounds, Csv &csv) {
    halyard::Context context;
    context.set_num_threads(what.threads);
    const auto stored = [&](std::int64_t rows, std::uint64_t seed) {
        Normal normal(seed);
        const std::vector<float> row = normal.values(d, 1);
        std::vector<Element> elements(static_cast<std::size_t>(rows * d));
        // Every row has equal values: time does not depend on them.
        halyard::cast({row.data(), {rows, d}, {0, 1}}, {elements, {rows, d}}, context);
        return elements;
    };
    const std::vector<Element> x_values = stored(what.rows, 1), weight = stored(1, 2), bias = stored(1, 3);
    std::vector<Element> y_values(x_values.size());
    const halyard::ConstTensor x(x_values, {what.rows, d});
    const halyard::Tensor y(y_values, {what.rows, d});

    const auto rms_norm = [&] { halyard::rms_norm(x, weight, eps, y, context); };
    const std::vector<Contender> contenders = {
        {"LayerNorm", [&] { halyard::layer_norm(x, weight, bias, eps, y, context); }},
        {"RMSNorm", rms_norm},
        {"RMSNorm again", rms_norm},
        {"pRMSNorm", [&] { halyard::partial_rms_norm(x, weight, eps, 0, partial, y, context); }},
        {"copy", [&] { halyard::cast(x, y, context); }},
    };
    std::vector<std::int64_t> calls;
    std::vector<std::size_t> order;
    for (const Contender &contender : contenders) {
        order.push_back(order.size());
        calls.push_back(calls_per_sample(contender));
    }
    std::mt19937 generator(1);
    for (int round = 0; round < rounds; round++) {
        std::shuffle(order.begin(), order.end(), generator);
        for (const std::size_t i : order) {
            const double seconds = seconds_of(contenders[i], calls[i]) / static_cast<double>(calls[i]);
            csv.line(what.dtype, what.rows, d, what.threads, contenders[i].name, round, seconds);
        }
    }
}

}  // namespace

void norm_speed(const std::filesystem::path &directory, const NormSpeedOptions &options) {
    write_norm_operations(directory, d, partial);

    halyard::Context context;
    context.set_num_threads(options.threads);
    const int all = context.num_threads();
    std::vector<Case> cases;
    for (const char *dtype : {"f32", "bf16"}) {
        cases.push_back({dtype, 1, 1});
        cases.push_back({dtype, in_cache, 1});
        if (all > 1) {
            cases.push_back({dtype, in_cache, all});
        }
        cases.push_back({dtype, options.tokens, all});
    }
    Csv csv(directory / "norm_speed.csv", {"dtype", "rows", "d", "threads", "operation", "round", "seconds"});
    for (const Case &each : cases) {
        if (each.dtype == std::string_view("f32")) {
            measure<float>(each, options.rounds, csv);
        } else {
            measure<halyard::bf16>(each, options.rounds, csv);
        }
    }
    csv.close();
}

}  // namespace experiments
