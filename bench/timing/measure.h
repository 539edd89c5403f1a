// Timing: contenders for one piece of work, in interleaved rounds, with Google Benchmark.
//
// Google Benchmark's runner finds the number of iterations and times each sample. What it does not offer is the order:
// its random interleaving shuffles all samples of all benchmarks, whereas a ratio is best taken from neighbours. So
// each sample is one run of it over one registered benchmark: round by round, ours, its limit, each peer, ours again,
// in an order that changes from round to round. Ratios are formed within a round, so that a slow phase of the machine
// meets both sides, and the median over the rounds counts. Ours against ours again is the noise of the row.
#ifndef HALYARD_BENCH_TIMING_MEASURE_H
#define HALYARD_BENCH_TIMING_MEASURE_H

#include <benchmark/benchmark.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace halyard::bench {

/** Something that does one piece of work again and again: the library, a peer, or the copy that is the limit. */
class Contender {
public:
    virtual ~Contender() = default;
    /** Some untimed calls, then the timed loop. */
    virtual void run(benchmark::State &state) = 0;
    /** One call without a clock, of what is a call in this process. */
    virtual void step() {}
    /** True if run() reports the time itself. */
    virtual bool times_itself() const { return false; }
    /** Why it stopped working, if it did. */
    std::string failure;
};

/** A contender that is a call in this process: call(i) works on operand set i of `sets`. */
template<typename Call>
class Local : public Contender {
public:
    Local(Call bench_case, std::size_t set_count) : call(std::move(bench_case)), sets(set_count) {}
    void run(benchmark::State &state) override;
    void step() override {
        call(next);
        next = next + 1 == sets ? 0 : next + 1;
    }

private:
    Call call;
    std::size_t sets, next = 0;
};

/** Median, median absolute deviation, and least value. */
struct Estimate {
    double median = 0, mad = 0, least = 0;
    int samples = 0;
};
Estimate estimate(std::vector<double> values);

struct Plan {
    int rounds;
    double seconds_per_sample;
    std::vector<pid_t> processes;  // beside this one, to be idle before a sample starts
    std::function<bool()> stop;    // asked between samples
};

/** Seconds per call: one per round for each contender; none for those that failed. Fewer rounds if stopped. */
std::vector<std::vector<double>> measure(const std::vector<Contender *> &contenders, const Plan &plan);

/** One sample of `iterations` calls; if 0, of as many as make `seconds`. Returns seconds per call and sets
 * `iterations`. */
double sample(Contender &contender, double seconds, benchmark::IterationCount &iterations);

/** Seconds per call of a contender that does nothing: what the timing loop itself adds. */
double loop_overhead();

// ---- implementation of the template ----

/** Runs call() untimed until caches, branch predictors, clocks and threads are as in a long loop. */
template<typename Call>
void warm_up(const Call &call, bool cold) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(cold ? 0 : 3);
    do {
        call();
    } while (Clock::now() < end);
}

template<typename Call>
void Local<Call>::run(benchmark::State &state) {
    warm_up([this] { Local::step(); }, sets > 1);
    for (auto _ : state) {
        Local::step();
    }
}

}  // namespace halyard::bench

#endif
