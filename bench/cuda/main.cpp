// How fast the library's operations are on a GPU.
//
//   cuda_bench PLAN [--json FILE] [--filter TEXT]
//
// Each operation has so many sets of operands that they take three times what the second-level cache holds. A graph of
// many calls, each on the next set, is launched between two events: its time over the number of calls, the median of
// several launches, with quartiles. Besides the time that the processor takes for one call that is not part of a graph.
// A copy within the device's memory says what the memory can do.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "benchmark_case.h"

namespace halyard::bench::cuda {
namespace {

constexpr int least_calls = 20, most_calls = 200, repetitions = 15, most_sets = 4096;
constexpr double warm_up_us = 200e3, graph_us = 20e3;

struct Time {
    double median = 0, low = 0, high = 0;  // us
};

Time time_of(Gpu &gpu, int calls, const std::function<void()> &bench_case) {
    double us[repetitions];
    double warm = 0;
    do {
        const double once = gpu.microseconds(bench_case);
        warm += std::max(once, 1.0);
    } while (warm < warm_up_us && !gpu.stand_in);
    for (double &each : us) {
        each = gpu.microseconds(bench_case) / calls;
    }
    std::sort(us, us + repetitions);
    return {us[repetitions / 2], us[repetitions / 4], us[repetitions - 1 - repetitions / 4]};
}

/** Bytes read and written in a second by a copy that no cache can hold. */
double copy_rate(Gpu &gpu) {
    const std::int64_t bytes = std::max<std::int64_t>(8 * gpu.l2_bytes, std::int64_t{64} << 20);
    const std::uint64_t from = gpu.allocate(bytes), to = gpu.allocate(bytes);
    gpu.fill(from, bytes);
    constexpr int copies = 10;
    const Time time = time_of(gpu, copies, [&] {
        for (int i = 0; i < copies; i++) {
            gpu.copy(from, to, bytes);
        }
    });
    gpu.free(from);
    gpu.free(to);
    return 2.0 * static_cast<double>(bytes) / (time.median * 1e-6);
}

struct Measured {
    Time time;
    double call_us = 0;  // of the processor
    int sets = 0, calls = 0;
};

Measured measure(Gpu &gpu, const halyard_context *context, BenchmarkCase &bench_case) {
    Measured m;
    const std::int64_t wanted = 3 * gpu.l2_bytes / bench_case.set_bytes + 1;
    m.sets = static_cast<int>(
        std::min<std::int64_t>({std::max<std::int64_t>(wanted, 2), most_sets,
                                std::max<std::int64_t>(1, gpu.memory_bytes / 2 / bench_case.set_bytes)}));
    bench_case.make_sets(gpu, m.sets);
    const double first = gpu.microseconds([&] { bench_case.call(context, 0); });
    const double second = std::min(first, gpu.microseconds([&] { bench_case.call(context, 0); }));
    // Every set once, for what is chosen by address.
    for (int set = 0; set < m.sets; set++) {
        bench_case.call(context, set);
    }
    gpu.wait();
    m.calls = std::max(m.sets, std::clamp(static_cast<int>(graph_us / std::max(second, 1.0)), least_calls, most_calls));
    Gpu::Graph graph(gpu, [&] {
        for (int i = 0; i < m.calls; i++) {
            bench_case.call(context, i % m.sets);
        }
    });
    m.time = time_of(gpu, m.calls, [&] { graph.launch(); });

    constexpr int calls = 100;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++) {
        bench_case.call(context, i % m.sets);
    }
    m.call_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / calls;
    gpu.wait();
    return m;
}

int run(const std::string &plan, const std::string &json, const std::string &filter) {
    const std::vector<CaseId> cases = read_plan(plan);
    const halyard_status prepared = halyard_cuda_prepare(0);
    if (prepared == HALYARD_NO_DEVICE) {
        return say_no_device(halyard_last_error());
    }
    if (prepared != HALYARD_OK) {
        stop(halyard_last_error());
    }
    Gpu gpu(0);
    halyard_context *context = nullptr;
    if (halyard_context_create(&context) != HALYARD_OK ||
        halyard_context_set_cuda_stream(context, gpu.stream) != HALYARD_OK) {
        stop(halyard_last_error());
    }
    const double copied = copy_rate(gpu);
    std::printf("%s, second-level cache %.0f MB, copies %.0f GB/s\n", gpu.name.c_str(),
                static_cast<double>(gpu.l2_bytes) / 1e6, copied / 1e9);
    if (gpu.stand_in) {
        std::printf("THIS IS NO GPU: NO NUMBER BELOW MEANS ANYTHING.\n");
    }
    std::printf("%-36s %10s %10s %10s %8s %7s %9s %9s\n", "", "us", "low", "high", "GB/s", "% copy", "TFLOP/s",
                "call us");
    std::ofstream file;
    if (!json.empty()) {
        file.open(json);
        if (!file) {
            stop(json + " cannot be written");
        }
    }
    nlohmann::ordered_json result = {{"device", gpu.name},           {"stand_in", gpu.stand_in},
                                     {"library", halyard_version()}, {"copy_gbps", copied / 1e9},
                                     {"l2_bytes", gpu.l2_bytes},     {"rows", nlohmann::json::array()}};
    for (const CaseId &c : cases) {
        if (c.name().find(filter) == std::string::npos) {
            continue;
        }
        const std::unique_ptr<BenchmarkCase> bench_case = make_case(c);
        if (!bench_case) {
            stop(plan + " asks for " + c.name() + ", which is not known");
        }
        const Measured m = measure(gpu, context, *bench_case);
        const double gbps = static_cast<double>(bench_case->model_bytes) / m.time.median / 1e3;
        const double tflops = bench_case->flops / m.time.median / 1e6;
        std::printf("%-36s %10.2f %10.2f %10.2f %8.0f %7.1f %9.1f %9.2f\n", c.name().c_str(), m.time.median, m.time.low,
                    m.time.high, gbps, 1e11 * gbps / copied, tflops, m.call_us);
        std::fflush(stdout);
        result["rows"].push_back({{"operation", c.operation},
                                  {"dtype", c.dtype},
                                  {"rows", c.rows},
                                  {"width", c.width},
                                  {"hidden", c.hidden},
                                  {"us", m.time.median},
                                  {"low", m.time.low},
                                  {"high", m.time.high},
                                  {"gbps", gbps},
                                  {"tflops", tflops},
                                  {"call_us", m.call_us},
                                  {"sets", m.sets},
                                  {"calls", m.calls}});
    }
    if (file.is_open()) {
        file << result.dump(1) << "\n";
    }
    halyard_context_destroy(context);
    return 0;
}

}  // namespace
}  // namespace halyard::bench::cuda

int main(int count, char **arguments) {
    CLI::App app{"Measures the library's operations on the first GPU."};
    std::string plan, json, filter;
    app.add_option("PLAN", plan, "the cases, one a line")->required();
    app.add_option("--json", json, "a file for the result");
    app.add_option("--filter", filter, "only cases whose name has this text");
    CLI11_PARSE(app, count, arguments);
    return halyard::bench::cuda::run(plan, json, filter);
}
