// How much of the machine other programs use while this one and its peers measure.
#ifndef HALYARD_BENCH_TIMING_BUSY_ELSEWHERE_H
#define HALYARD_BENCH_TIMING_BUSY_ELSEWHERE_H

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace halyard::bench {

/** These processes, and those that they started, and so on. */
std::vector<pid_t> with_descendants(const std::vector<pid_t> &processes);

/** Adds up over the times between begin() and end(): what a peer does to prepare a row, such as compiling, is none of them. */
class BusyElsewhere {
public:
    explicit BusyElsewhere(int machine_processors) : processors(machine_processors) {}
    /** `processes` measure as this one does. */
    void begin(const std::vector<pid_t> &processes);
    void end();
    /** The share of the machine's processor time that others took, from 0 to 1. */
    double share() const;

private:
    using Clock = std::chrono::steady_clock;
    double used() const;
    int processors;
    std::vector<pid_t> own;
    Clock::time_point start;
    double used_before = 0, elsewhere = 0, seconds = 0;
};

}  // namespace halyard::bench

#endif
