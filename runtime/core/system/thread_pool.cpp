// A pool of threads for calls that last microseconds: workers spin for a short while after each job before they sleep,
// and a job is handed over by two atomic stores.
#include "core/system/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "core/system/floating_point.h"

namespace halyard {
namespace {

// Whatever the default is: `ulimit -s` or the program may have made it smaller than what tasks need.
constexpr size_t min_stack_bytes = 1 << 20;

// A worker looks for the next job this many times before it sleeps: some tens of microseconds, about the cost of
// waking it again.
constexpr int spins_before_sleep = 2000;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

template<typename Condition>
void spin_until(Condition condition) {
    for (int spins = 0; !condition(); spins++) {
        if (spins < spins_before_sleep) {
            pause();
        } else {
            sched_yield();
        }
    }
}

struct alignas(64) Claim {
    std::atomic<uint64_t> taken_in{0};  // the generation whose index this was last claimed in
};

struct Pool {
    constexpr Pool() = default;  // there from the start, for calls before the library's constructors run

    // Held by the caller whose job runs.
    pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

    // The job, in the cache line that workers watch; written by its owner while no worker is inside one.
    // Workers 1 to count - 1 may enter job `generation` while `open` is that generation; `inside` counts them.
    alignas(64) void (*task)(void *, int) = nullptr;
    void *closure = nullptr;
    int count = 0;
    std::atomic<uint64_t> generation{0};
    std::atomic<uint64_t> open{0};
    alignas(64) std::atomic<int> inside{0};
    alignas(64) std::atomic<int> unfinished{0};
    Claim claims[max_threads];

    // Sleeping.
    pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    std::atomic<int> sleepers{0};
    std::atomic<bool> stop{false};

    int workers = 0;
    pthread_t threads[max_threads] = {};
};

Pool pool;

// Takes the indices of the job, its own first.
void work(int self, uint64_t generation) {
    const int count = pool.count;
    for (int i = 0; i < count; i++) {
        const int index = self + i < count ? self + i : self + i - count;
        uint64_t last = pool.claims[index].taken_in.load(std::memory_order_relaxed);
        if (last != generation && pool.claims[index].taken_in.compare_exchange_strong(last, generation)) {
            pool.task(pool.closure, index);
            pool.unfinished.fetch_sub(1, std::memory_order_release);
        }
    }
}

uint64_t wait_for_job(uint64_t seen) {
    for (int i = 0; i < spins_before_sleep; i++) {
        const uint64_t now = pool.generation.load(std::memory_order_acquire);
        if (now != seen || pool.stop.load(std::memory_order_relaxed)) {
            return now;
        }
        pause();
    }
    pthread_mutex_lock(&pool.sleep_lock);
    pool.sleepers.fetch_add(1);
    while (pool.generation.load() == seen && !pool.stop.load()) {
        pthread_cond_wait(&pool.wake, &pool.sleep_lock);
    }
    pool.sleepers.fetch_sub(1);
    pthread_mutex_unlock(&pool.sleep_lock);
    return pool.generation.load(std::memory_order_acquire);
}

void *worker(void *argument) {
    const DefaultFloatingPoint floating_point;  // not that of the thread that started this one
    const int self = static_cast<int>(reinterpret_cast<intptr_t>(argument));
    uint64_t seen = 0;
    while (true) {
        seen = wait_for_job(seen);
        if (pool.stop.load(std::memory_order_relaxed)) {
            return nullptr;
        }
        // Entering first and looking second lets the owner close the job and then wait for `inside` to fall to 0.
        pool.inside.fetch_add(1);
        if (pool.open.load() == seen && self < pool.count) {
            work(self, seen);
        }
        pool.inside.fetch_sub(1, std::memory_order_release);
    }
}

void start_workers(int wanted) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are for the program's threads
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    size_t stack_bytes = 0;
    pthread_attr_getstacksize(&attributes, &stack_bytes);
    pthread_attr_setstacksize(&attributes, std::max(stack_bytes, min_stack_bytes));
    while (pool.workers < wanted) {
        void *self = reinterpret_cast<void *>(static_cast<intptr_t>(pool.workers + 1));
        if (pthread_create(&pool.threads[pool.workers], &attributes, worker, self) != 0) {
            break;  // fewer threads do the same work
        }
        pool.workers++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Before the code is unmapped or the process ends, the workers must be gone.
__attribute__((destructor)) void on_unload() {
    pthread_mutex_lock(&pool.sleep_lock);
    pool.stop.store(true);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep_lock);
    for (int i = 0; i < pool.workers; i++) {
        pthread_join(pool.threads[i], nullptr);
    }
    pool.workers = 0;
}

}  // namespace

void run_on_pool(int count, void (*task)(void *closure, int index), void *closure) {
    if (pool.stop.load(std::memory_order_relaxed) || pthread_mutex_trylock(&pool.busy) != 0) {
        for (int i = 0; i < count; i++) {
            task(closure, i);
        }
        return;
    }
    if (pool.workers < count - 1) {
        start_workers(count - 1);
    }

    pool.task = task;
    pool.closure = closure;
    pool.count = count;
    pool.unfinished.store(count, std::memory_order_relaxed);
    const uint64_t generation = pool.generation.load(std::memory_order_relaxed) + 1;
    pool.open.store(generation);
    pool.generation.store(generation);
    if (pool.sleepers.load() > 0) {
        pthread_mutex_lock(&pool.sleep_lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep_lock);
    }

    work(0, generation);
    spin_until([] { return pool.unfinished.load(std::memory_order_acquire) == 0; });
    pool.open.store(0);
    spin_until([] { return pool.inside.load() == 0; });
    pthread_mutex_unlock(&pool.busy);
}

// The parent's workers and its job are not the child's.
void renew_thread_pool() {
    const bool stop = pool.stop.load();
    new (&pool) Pool;
    pool.stop.store(stop);
}

}  // namespace halyard
