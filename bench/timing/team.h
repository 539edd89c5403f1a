// A few threads that split a loop the way the library under test does, for the streams that are its limit.
//
// The library's own pool is part of what is measured, so the limit must not use it. Workers wait for the next call in a
// loop, for less than a millisecond, and then sleep: back-to-back calls cost little, and an idle team takes no
// processor from whatever is measured next.
#ifndef HALYARD_BENCH_TIMING_TEAM_H
#define HALYARD_BENCH_TIMING_TEAM_H

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace halyard::bench {

class Team {
public:
    explicit Team(int threads);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;

    int size() const { return static_cast<int>(workers.size()) + 1; }
    /** Runs task(i) for i in [0, size()), task(0) on the calling thread. */
    void run(const std::function<void(int)> &task);

private:
    void bench_case(int index);

    std::vector<std::thread> workers;
    const std::function<void(int)> *current = nullptr;
    std::atomic<unsigned> generation{0};
    std::atomic<int> unfinished{0}, asleep{0};
    std::atomic<bool> stopping{false};
    std::mutex mutex;
    std::condition_variable wake;
};

/** The part [first, last) of `count` equal items that thread `index` of `parts` takes. */
struct Share {
    std::size_t first, last;
};
inline Share share_of(std::size_t count, int parts, int index) {
    const auto n = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(index);
    return {count * i / n, count * (i + 1) / n};
}

}  // namespace halyard::bench

#endif
