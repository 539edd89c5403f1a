// See machine_limits.h. A limit is the best of several samples: whatever else ran on the machine only ever made one slower.
#include "machine_limits.h"

#include <algorithm>
#include <chrono>

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

const StreamTable &streams_of([[maybe_unused]] halyard_isa isa) {
#if defined(__aarch64__)
    return streams_neon;  // whatever it computes with halves, it moves and multiplies floats the same way
#else
    return isa == HALYARD_ISA_AVX512 ? streams_avx512 : isa == HALYARD_ISA_AVX2 ? streams_avx2 : streams_sse41;
#endif
}

void run_stream(const StreamTable &table, Stream stream, Stores stores, const StreamArguments &arguments, Team &team) {
    const auto run = stores == Stores::ordinary ? table.run[stream] : table.run_nontemporal[stream];
    if (team.size() == 1) {
        run(arguments);
        return;
    }
    team.run([&](int index) { run(part_of(stream, arguments, team.size(), index)); });
}

Limits measure_limits(const Machine &machine, halyard_isa isa, int threads,
                      const std::function<void(const std::string &)> &progress, const std::function<bool()> &stop) {
    Limits limits;
    limits.isa = isa;
    std::vector<int> thread_counts{1};
    if (threads > 1) {
        thread_counts.push_back(threads);
    }
    const Buffer arena(machine.cold_set());
    const StreamTable &table = streams_of(isa);
    for (const int count : thread_counts) {
        Team team(count);
        for (int i = 0; i <= isa; i++) {
            const auto each = static_cast<halyard_isa>(i);
            if (halyard_isa_supported(each) == 0 || stop()) {
                continue;
            }
            progress(std::string("peak multiply-add rate, ") + halyard_isa_name(each));
            constexpr std::int64_t rounds = 1000;
            std::vector<float> sinks(static_cast<std::size_t>(count) * 16);
            const double seconds = best_time(
                [&](long passes) {
                    team.run([&](int index) {
                        sinks[static_cast<std::size_t>(index) * 16] = streams_of(each).multiply_add(rounds * passes);
                    });
                },
                least_sample, samples);
            limits.flops.push_back({each, count, count * rounds * streams_of(each).flops_per_iteration / seconds});
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
                const StreamArguments arguments = place(stream, set, arena);
                const double seconds = best_time(
                    [&](long passes) {
                        team.run([&](int index) {
                            const StreamArguments part = part_of(stream, arguments, count, index);
                            for (long pass = 0; pass < passes; pass++) {
                                table.run[stream](part);
                            }
                        });
                    },
                    least_sample, samples);
                limits.bandwidth.push_back({stream, level.name, set, count,
                                            static_cast<double>(arguments.bytes) * bytes_moved(stream) / seconds});
            }
        }
    }
    return limits;
}

}  // namespace halyard::bench
