// See google_benchmark.h.
#include "google_benchmark.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "timing/row_limits.h"

namespace halyard::bench {
namespace {

double seconds_per_call(Contender &contender) {
    using Clock = std::chrono::steady_clock;
    for (int count = 1;; count *= 2) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < count; i++) {
            contender.step();
        }
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (seconds > 5e-3) {
            return seconds / count;
        }
    }
}

/** The faster of two reads or copies, or as long as a roofline's multiply-adds take. */
double limit_seconds(BenchmarkCase &bench_case) {
    Team team(bench_case.id.threads);
    std::vector<double> seconds;
    for (const auto &limit : limits_of(bench_case, halyard_context_isa(bench_case.context.get()), team)) {
        seconds.push_back(seconds_per_call(*limit));
    }
    if (bench_case.id.has_roofline()) {
        return std::max(std::min(seconds[0], seconds[1]), seconds[2]);
    }
    return *std::min_element(seconds.begin(), seconds.end());
}

/** The row at hand, which Google Benchmark calls several times before it goes to the next. */
class Row {
public:
    Row(const CaseId &id, std::size_t cold_set, halyard_isa isa) : bench_case(id, cold_set, isa) {
        bench_case.spoil_outputs();
        bench_case.call(0);
        if (!(bench_case.accuracy().error <= bench_case.tolerance())) {
            throw std::runtime_error("the result is wrong");
        }
        limit = limit_seconds(bench_case);
    }

    void run(benchmark::State &state) {
        const CaseId &id = bench_case.id;
        const auto call = [this](std::size_t set) { bench_case.id.kernel->call(bench_case, bench_case.sets[set]); };
        Local(call, bench_case.sets.size()).run(state);
        state.SetBytesProcessed(static_cast<std::int64_t>(id.bytes_moved()) * state.iterations());
        constexpr auto per_second = benchmark::Counter::kIsIterationInvariantRate;
        if (id.has_roofline()) {
            state.counters["flops"] = benchmark::Counter(id.flops(), per_second);
        }
        state.counters["fraction_of_limit"] = benchmark::Counter(limit, per_second);  // seconds in each second
    }

private:
    BenchmarkCase bench_case;
    double limit = 0;
};

}  // namespace

bool run_google_benchmark(const std::vector<CaseId> &rows, std::vector<std::string> options, std::size_t cold_set,
                          halyard_isa isa) {
    options.insert(options.begin(), "halyard-bench");
    std::vector<char *> arguments;
    for (std::string &option : options) {
        arguments.push_back(option.data());
    }
    auto count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (count > 1) {
        throw std::runtime_error("Google Benchmark does not know '" + std::string(arguments[1]) + "'");
    }
    benchmark::AddCustomContext("halyard_version", halyard_version());
    benchmark::AddCustomContext("halyard_isa", halyard_isa_name(isa));

    std::unique_ptr<Row> row;
    const CaseId *of_row = nullptr;
    bool all_right = true;
    for (const CaseId &id : rows) {
        const auto run = [&](benchmark::State &state) {
            try {
                if (of_row != &id) {
                    of_row = nullptr;
                    row.reset();  // two need not fit into memory
                    row = std::make_unique<Row>(id, cold_set, isa);
                    of_row = &id;
                }
                row->run(state);
            } catch (const std::exception &error) {
                state.SkipWithError(error.what());
                all_right = false;
            }
        };
        benchmark::RegisterBenchmark(id.name().c_str(), run)->UseRealTime();
    }
    benchmark::RunSpecifiedBenchmarks();
    return all_right;
}

}  // namespace halyard::bench
