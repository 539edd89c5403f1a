// See measure.h.
#include "measure.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

namespace halyard::bench {
namespace {

/** Keeps the one result of a run. The library's own reporters would print it, and warn of Debian's Google Benchmark,
 *  which is compiled with assertions: none of them is inside a timed loop (see loop_overhead). */
class Collector : public benchmark::BenchmarkReporter {
public:
    bool ReportContext(const Context &) override { return true; }
    void ReportRuns(const std::vector<Run> &runs) override {
        iterations = runs.front().iterations;
        seconds = runs.front().real_accumulated_time;
    }
    benchmark::IterationCount iterations = 0;
    double seconds = 0;
};

/** Whether a thread of the process other than the calling one is running or ready to run. */
bool has_running_thread(const std::string &process) {
    const std::string self = std::to_string(gettid());
    std::error_code ignored;
    for (const auto &thread : std::filesystem::directory_iterator("/proc/" + process + "/task", ignored)) {
        std::string line;
        std::ifstream file(thread.path() / "stat");
        std::getline(file, line);  // number (name) state ...
        const std::size_t name_end = line.rfind(") ");
        if (name_end != std::string::npos && line[name_end + 2] == 'R' && thread.path().filename() != self) {
            return true;
        }
    }
    return false;
}

/** Waits until no thread of this process or of `others` runs: the worker threads of thread pools, ours and those of
 *  OpenMP, go on waiting in a loop for some milliseconds after a call, and would take a core from the next contender.
 */
void wait_until_idle(const std::vector<pid_t> &others) {
    constexpr int most_polls = 200;
    for (int i = 0; i < most_polls; i++) {
        usleep(500);
        const bool busy = has_running_thread("self") || std::any_of(others.begin(), others.end(), [](pid_t process) {
                              return process > 0 && has_running_thread(std::to_string(process));
                          });
        if (!busy) {
            return;
        }
    }
}

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) {
        return *middle;
    }
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

double sample(Contender &contender, double seconds, benchmark::IterationCount &iterations) {
    benchmark::ClearRegisteredBenchmarks();
    auto *registered = benchmark::RegisterBenchmark("sample", [&](benchmark::State &state) { contender.run(state); });
    if (contender.times_itself()) {
        registered->UseManualTime();
    } else {
        registered->UseRealTime();
    }
    if (iterations == 0) {
        registered->MinTime(seconds);
    } else {
        registered->Iterations(iterations);
    }
    Collector collector;
    benchmark::RunSpecifiedBenchmarks(&collector, ".");
    iterations = std::max<benchmark::IterationCount>(collector.iterations, 1);
    return collector.seconds / static_cast<double>(iterations);
}

Estimate estimate(std::vector<double> values) {
    if (values.empty()) {
        return {};
    }
    Estimate result;
    result.samples = static_cast<int>(values.size());
    result.median = median_of(values);
    result.least = *std::min_element(values.begin(), values.end());
    for (double &value : values) {
        value = std::fabs(value - result.median);
    }
    result.mad = median_of(values);
    return result;
}

std::vector<std::vector<double>> measure(const std::vector<Contender *> &contenders, const Plan &plan) {
    std::vector<std::vector<double>> seconds(contenders.size());
    std::vector<benchmark::IterationCount> iterations(contenders.size(), 0);
    std::vector<std::size_t> order(contenders.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 generator(1);  // the same orders in every run
    // Round -1 finds the numbers of iterations.
    for (int round = -1; round < plan.rounds; round++) {
        // In another order each round, so that nobody always comes after the same one, whose traces he would bear.
        std::shuffle(order.begin(), order.end(), generator);
        for (const std::size_t i : order) {
            Contender &contender = *contenders[i];
            if (plan.stop()) {
                return seconds;
            }
            if (!contender.failure.empty()) {
                continue;
            }
            wait_until_idle(plan.processes);
            const double time = sample(contender, plan.seconds_per_sample, iterations[i]);
            if (!contender.failure.empty()) {
                seconds[i].clear();
            } else if (round >= 0) {
                seconds[i].push_back(time);
            }
        }
    }
    return seconds;
}

double loop_overhead() {
    const auto nothing = [](std::size_t set) { benchmark::DoNotOptimize(set); };
    Local<decltype(nothing)> contender(nothing, 1);
    benchmark::IterationCount iterations = 0;
    return sample(contender, 1e-2, iterations);
}

}  // namespace halyard::bench
