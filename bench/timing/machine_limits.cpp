// See machine_limits.h. A limit is the best of several samples: whatever else ran on the machine only ever made one slower.
// For the same reason a limit that another measurement shows to be too low is measured again.
#include "machine_limits.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "operations/isas.h"

namespace halyard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double least_sample = 2e-3;  // seconds
constexpr int samples = 15, least_samples = 5;
// Seconds of sampling, once there are `least_samples`: a pass over a large set takes long.
constexpr double enough = 0.2;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/** Seconds of one pass, the shortest over samples of at least `least` seconds each; `run(n)` makes n passes. */
double best_time(const std::function<void(long)> &run, double least, int samples) {
    double best = 1e30, total = 0;
    long count = 1;
    for (int sample = 0; sample < least_samples || (sample < samples && total < enough);) {
        const Clock::time_point start = Clock::now();
        run(count);
        const double seconds = seconds_since(start);
        if (seconds < least) {
            const double grown = std::min(10.0, 1.2 * least / std::max(seconds, 1e-9));
            count = static_cast<long>(static_cast<double>(count) * grown) + 1;
            continue;
        }
        best = std::min(best, seconds / static_cast<double>(count));
        total += seconds;
        sample++;
    }
    return best;
}

struct Level {
    const char *name;
    std::size_t working_set;  // of one thread if private to a core
    bool is_private;
};

std::vector<Level> levels_of(const Machine &machine) {
    std::vector<Level> levels;
    if (machine.l1 != 0) {
        levels.push_back({"L1", machine.l1 / 2, true});
    }
    if (machine.l2 != 0) {
        levels.push_back({"L2", machine.l2 / 2, true});
    }
    if (machine.l3 != 0) {
        // A virtual machine may report the whole host's cache: a quarter of it is still most likely to be in it.
        levels.push_back({"L3", machine.l3 / 4, false});
    }
    levels.push_back({"memory", machine.cold_set(), false});
    return levels;
}

/** Lays the streams out one after the other in `arena` so that they take `working_set` bytes together. */
StreamArguments place(Stream stream, std::size_t working_set, const Buffer &arena) {
    const auto length = static_cast<std::size_t>(static_cast<double>(working_set) / bytes_moved(stream)) / 4096 * 4096;
    char *start = arena.data();
    char *parts[4] = {start, start + length, start + 2 * length, start + 3 * length};
    switch (stream) {
    case stream_read2_write1:
        return {parts[0], parts[1], parts[2], nullptr, length};
    case stream_read2_write2:
        return {parts[0], parts[1], parts[2], parts[3], length};
    case stream_read:
    case stream_write:
        return {parts[0], nullptr, parts[0], nullptr, length};
    case stream_double:
        return {parts[0], nullptr, start + length / 2, nullptr, length};
    default:
        return {parts[0], nullptr, parts[1], nullptr, length};
    }
}

/** What thread `index` of `parts` does of a stream: whole cache lines on both sides. */
StreamArguments part_of(Stream stream, const StreamArguments &s, int parts, int index) {
    constexpr std::size_t unit = 128;
    const Share share = share_of(s.bytes / unit, parts, index);
    const std::size_t first = share.first * unit;
    const std::size_t last = index + 1 == parts ? s.bytes : share.last * unit;
    const std::size_t read_first = stream == stream_double ? first / 2 : first;
    const std::size_t write_first = stream == stream_halve ? first / 2 : first;
    return {s.a + read_first, s.b + first, s.c + write_first, s.d + first, last - first};
}

}  // namespace

const char *name_of(Stream stream) {
    const char *names[] = {"read",           "write",          "copy",  "copy, non-temporal",
                           "read 2 write 1", "read 2 write 2", "halve", "double"};
    return names[stream];
}

double bytes_moved(Stream stream) {
    const double moved[] = {1, 1, 2, 2, 3, 4, 1.5, 1.5};
    return moved[stream];
}

const StreamTable &streams_of(halyard_isa isa) {
#if defined(__aarch64__)
    return isa == HALYARD_ISA_NEON_BFMMLA  ? streams_neon_bfmmla
           : isa == HALYARD_ISA_NEON_BFDOT ? streams_neon_bfdot
           : isa >= HALYARD_ISA_NEON_FP16  ? streams_neon_fp16  // BFMLALB multiplies as many values as FMLA
                                           : streams_neon;
#else
    return isa == HALYARD_ISA_AMX           ? streams_amx
           : isa == HALYARD_ISA_AVX512_BF16 ? streams_avx512_bf16
           : isa >= HALYARD_ISA_AVX512      ? streams_avx512
           : isa == HALYARD_ISA_AVX2        ? streams_avx2
                                            : streams_sse41;
#endif
}

halyard_isa isa_of_products(halyard_isa isa, operations::Dtype dtype) {
    if (dtype == operations::Dtype::bf16) {
        return isa;
    }
    return isa >= HALYARD_ISA_NEON_BFDOT                              ? HALYARD_ISA_NEON_BF16
           : isa == HALYARD_ISA_AVX512_BF16 || isa == HALYARD_ISA_AMX ? HALYARD_ISA_AVX512
                                                                      : isa;
}

int byte_products(halyard_isa isa, int bits) {
    return bits == 8 && !streams_of(isa).multiplies_whole_bytes() ? 2 : 1;
}

void run_stream(const StreamTable &table, Stream stream, Loop loop, const StreamArguments &arguments, Team &team) {
    const auto run = (loop == Loop::plain ? table.plain : table.hinted)[stream];
    if (team.size() == 1) {
        run(arguments);
        return;
    }
    team.run([&](int index) { run(part_of(stream, arguments, team.size(), index)); });
}

namespace {

/** Measures single limits of a machine on one number of threads. */
class LimitMeter {
public:
    LimitMeter(const StreamTable &with, const Buffer &memory, int threads)
        : table(with), arena(memory), team(threads) {}

    double flops(halyard_isa isa, bool int8) {
        constexpr std::int64_t rounds = 1000;
        const StreamTable &of_isa = streams_of(isa);
        const Chains &multiply_adds = int8 ? of_isa.byte_multiply_adds : of_isa.multiply_adds;
        const int count = team.size();
        std::vector<float> sinks(static_cast<std::size_t>(count) * 16);
        const double seconds = best_time(
            [&](long passes) {
                team.run([&](int index) {
                    sinks[static_cast<std::size_t>(index) * 16] = multiply_adds.run(rounds * passes);
                });
            },
            least_sample, samples);
        return count * rounds * multiply_adds.operations / seconds;
    }

    /** By the faster of the two loops that read. */
    double bandwidth(Stream stream, std::size_t working_set) {
        const double one = bandwidth(stream, table.plain[stream], working_set);
        return stream == stream_read ? std::max(one, bandwidth(stream, table.hinted[stream], working_set)) : one;
    }

private:
    double bandwidth(Stream stream, void (*run)(StreamArguments), std::size_t working_set) {
        const StreamArguments arguments = place(stream, working_set, arena);
        const double seconds = best_time(
            [&](long passes) {
                team.run([&](int index) {
                    const StreamArguments part = part_of(stream, arguments, team.size(), index);
                    for (long pass = 0; pass < passes; pass++) {
                        run(part);
                    }
                });
            },
            least_sample, samples);
        return static_cast<double>(arguments.bytes) * bytes_moved(stream) / seconds;
    }

    const StreamTable &table;
    const Buffer &arena;
    Team team;
};

/** How far below what another measurement shows a limit may be. */
constexpr double tolerance = 0.05;

std::string name_of_peak(halyard_isa isa, bool int8) {
    return std::string("peak multiply-add rate") + (int8 ? " of bytes, " : ", ") + halyard_isa_name(isa);
}

std::string threads_text(int threads) {
    return std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

}  // namespace

bool is_below(const FlopsLimit &limit, const FlopsLimit &shown) {
    return limit.isa == shown.isa && limit.int8 == shown.int8 && limit.threads >= shown.threads &&
           limit.flops < (1 - tolerance) * shown.flops;
}

bool is_below(const BandwidthLimit &limit, const BandwidthLimit &shown) {
    // The names of levels are in the order of their distance from the core: L1, L2, L3, memory.
    const bool is_nearer = limit.level < shown.level && limit.stream != stream_copy_nontemporal;
    return limit.stream == shown.stream && (limit.level == shown.level || is_nearer) &&
           limit.threads >= shown.threads && limit.bandwidth < (1 - tolerance) * shown.bandwidth;
}

void repeat_contradicted(Limits &limits, const std::vector<FlopsLimit> &shown, const Machine &machine,
                         const std::function<bool()> &stop) {
    // On shared hosts two processors are one core's for seconds at a time: what such a time spoiled needs waiting.
    constexpr int repeats = 8;
    constexpr std::chrono::milliseconds pause{500};
    std::vector<FlopsLimit> shown_flops = shown;
    shown_flops.insert(shown_flops.end(), limits.flops.begin(), limits.flops.end());
    const std::vector<BandwidthLimit> shown_bandwidth = limits.bandwidth;
    const StreamTable &table = streams_of(limits.isa);
    std::unique_ptr<Buffer> arena;
    // A limit is the best of all samples, so that of two which contradict each other the lower one is wrong.
    const auto repeat = [&](auto &limit, const auto &all_shown, const auto &measure) {
        const auto is_contradicted = [&] {
            return std::any_of(all_shown.begin(), all_shown.end(),
                               [&](const auto &each) { return is_below(limit, each); });
        };
        for (int i = 0; i < repeats && is_contradicted() && !stop(); i++) {
            if (arena == nullptr) {
                arena = std::make_unique<Buffer>(machine.cold_set());
            }
            if (i > 0) {
                std::this_thread::sleep_for(pause);
            }
            LimitMeter meter(table, *arena, limit.threads);
            measure(meter);
        }
        return is_contradicted();
    };
    limits.contradictions.clear();
    for (FlopsLimit &limit : limits.flops) {
        if (repeat(limit, shown_flops, [&](LimitMeter &meter) {
                limit.flops = std::max(limit.flops, meter.flops(limit.isa, limit.int8));
            })) {
            limits.contradictions.push_back(name_of_peak(limit.isa, limit.int8) + ", " + threads_text(limit.threads));
        }
    }
    for (BandwidthLimit &limit : limits.bandwidth) {
        if (repeat(limit, shown_bandwidth, [&](LimitMeter &meter) {
                limit.bandwidth = std::max(limit.bandwidth, meter.bandwidth(limit.stream, limit.working_set));
            })) {
            limits.contradictions.push_back(limit.level + " " + name_of(limit.stream) + ", " +
                                            threads_text(limit.threads));
        }
    }
}

Limits measure_limits(const Machine &machine, halyard_isa isa, int threads,
                      const std::function<void(const std::string &)> &progress, const std::function<bool()> &stop) {
    Limits limits;
    limits.isa = isa;
    std::vector<int> thread_counts{1};
    if (threads > 1) {
        thread_counts.push_back(threads);
    }
    {
        const Buffer arena(machine.cold_set());
        for (const int count : thread_counts) {
            LimitMeter meter(streams_of(isa), arena, count);
            for (const halyard_isa each : operations::built_isas) {
                if (each > isa || halyard_isa_supported(each) == 0 || stop()) {
                    continue;
                }
                for (const bool int8 : {false, true}) {
                    if (!int8 || isa_of_products(each, operations::Dtype::f32) == each) {
                        progress(name_of_peak(each, int8));
                        limits.flops.push_back({each, count, meter.flops(each, int8), int8});
                    }
                }
            }
            for (const Level &level : levels_of(machine)) {
                for (int i = 0; i < stream_count; i++) {
                    const auto stream = static_cast<Stream>(i);
                    if (stop()) {
                        return limits;
                    }
                    progress(std::string(level.name) + " " + name_of(stream));
                    const std::size_t set =
                        level.is_private ? level.working_set * static_cast<std::size_t>(count) : level.working_set;
                    limits.bandwidth.push_back({stream, level.name, set, count, meter.bandwidth(stream, set)});
                }
            }
        }
    }
    progress("what contradicts another limit, again");
    repeat_contradicted(limits, {}, machine, stop);
    return limits;
}

}  // namespace halyard::bench
