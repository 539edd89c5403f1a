// Threads for loops.
#ifndef HALYARD_EXPERIMENTS_POOL_H
#define HALYARD_EXPERIMENTS_POOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace experiments {

/** Threads that stay: new ones for each loop would take as long as the loop. */
class Pool {
public:
    using Work = std::function<void(std::int64_t)>;

    explicit Pool(int threads) {
        for (int i = 1; i < threads; i++) {
            threads_.emplace_back([this] { serve(); });
        }
    }
    ~Pool() {
        begin(0, nullptr);
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }

    /** One thread at a time may call it; any number where the pool has no threads of its own. */
    void run(std::int64_t count, const Work &work) {
        if (threads_.empty()) {
            for (std::int64_t i = 0; i < count; i++) {
                work(i);
            }
            return;
        }
        begin(count, &work);
        take(work);
        while (busy_ > 0) {
            std::this_thread::yield();
        }
    }

private:
    void begin(std::int64_t count, const Work *work) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            work_ = work, count_ = count, next_ = 0, busy_ = threads_.size();
            loops_++;
        }
        wake_.notify_all();
    }

    void take(const Work &work) {
        for (std::int64_t i; (i = next_++) < count_;) {
            work(i);
        }
    }

    void serve() {
        for (int seen = 0;; busy_--) {
            // The next loop mostly comes before a thread would have gone to sleep and been woken.
            for (int i = 0; i < 200 && loops_ == seen; i++) {
                std::this_thread::yield();
            }
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return loops_ != seen; });
            seen = loops_;
            const Work *work = work_;
            lock.unlock();
            if (work == nullptr) {
                return;
            }
            take(*work);
        }
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    const Work *work_ = nullptr;  // null: the end
    std::int64_t count_ = 0;
    std::atomic<std::int64_t> next_{0};
    std::atomic<std::size_t> busy_{0};
    std::atomic<int> loops_{0};
};

}  // namespace experiments

#endif
