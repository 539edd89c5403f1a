// Threads for tests: work done by several at once, and a caller's parallel-for.
#ifndef HALYARD_TESTS_THREADS_H
#define HALYARD_TESTS_THREADS_H

#include <thread>
#include <vector>

namespace halyard::tests {

/** Calls work(0) to work(count - 1), each on a thread of its own, the last one started first; returns when all are done. */
template<typename Work>
void run_at_once(int count, const Work &work) {
    std::vector<std::thread> threads;
    for (int i = count - 1; i >= 0; i--) {
        threads.emplace_back(work, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

/** A parallel-for that runs tasks on new threads, the last first, and counts. */
struct ReverseThreads {
    int calls = 0, tasks = 0;

    static void run(void *user, int count, void (*task)(void *closure, int index), void *closure) {
        auto &self = *static_cast<ReverseThreads *>(user);
        self.calls++;
        self.tasks += count;
        run_at_once(count, [=](int index) { task(closure, index); });
    }
};

}  // namespace halyard::tests

#endif
