// See team.h.
#include "team.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halyard::bench {

namespace {
constexpr int spins_before_sleep = 10000;  // some hundred microseconds

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#else
    asm volatile("yield");
#endif
}
}  // namespace

Team::Team(int threads) {
    for (int i = 1; i < threads; i++) {
        workers.emplace_back([this, i] { bench_case(i); });
    }
}

Team::~Team() {
    {
        const std::lock_guard<std::mutex> lock(mutex);
        stopping = true;
        generation++;
    }
    wake.notify_all();
    for (std::thread &worker : workers) {
        worker.join();
    }
}

void Team::run(const std::function<void(int)> &task) {
    if (!workers.empty()) {
        current = &task;
        unfinished = static_cast<int>(workers.size());
        generation++;
        if (asleep != 0) {
            // The lock orders this with a worker between its last look at `generation` and its sleep.
            const std::lock_guard<std::mutex> lock(mutex);
            wake.notify_all();
        }
    }
    task(0);
    while (unfinished != 0) {
        pause();
    }
}

void Team::bench_case(int index) {
    unsigned seen = 0;
    while (true) {
        for (int i = 0; generation == seen && i < spins_before_sleep; i++) {
            pause();
        }
        if (generation == seen) {
            std::unique_lock<std::mutex> lock(mutex);
            asleep++;
            wake.wait(lock, [&] { return generation != seen; });
            asleep--;
        }
        seen = generation;
        if (stopping) {
            return;
        }
        (*current)(index);
        unfinished--;
    }
}

}  // namespace halyard::bench
