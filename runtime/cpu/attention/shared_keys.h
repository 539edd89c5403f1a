// Heads of keys and values, and their blocks, as the threads of one call take them.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_SHARED_KEYS_H
#define HALYARD_RUNTIME_CPU_ATTENTION_SHARED_KEYS_H

#include <atomic>
#include <cstdint>

namespace halyard {

/** A head of keys and values. */
struct KeyHead {
    std::atomic<bool> taken{false};     // by a thread
    std::atomic<char *> data{nullptr};  // as the kernels read it, from then on
    std::atomic<int32_t> claimed{0};    // items
    std::atomic<int32_t> packed{0};     // items of packing that are done
};

/** The blocks of keys that a block of queries sees: its own thread takes them from the first on, helpers from the last
 *  on. */
class SharedKeys {
public:
    /** Takes the next of `blocks`; false if none is left. */
    bool take_first(int64_t blocks) {
        int64_t taken;
        return take(blocks, 1, taken);
    }
    /** Takes the last one that is left, and gives its index. */
    bool take_last(int64_t blocks, int64_t &index) {
        int64_t taken;
        if (!take(blocks, one_of_helpers, taken)) {
            return false;
        }
        index = blocks - 1 - taken / one_of_helpers;
        return true;
    }
    void helper_done() { done_.fetch_add(1, std::memory_order_release); }
    /** To be asked when none is left. */
    bool helpers_done() const {
        return done_.load(std::memory_order_acquire) == taken_.load(std::memory_order_relaxed) / one_of_helpers;
    }

private:
    bool take(int64_t blocks, int64_t one, int64_t &before) {
        before = taken_.load(std::memory_order_relaxed);
        do {
            if (before % one_of_helpers + before / one_of_helpers >= blocks) {
                return false;
            }
        } while (!taken_.compare_exchange_weak(before, before + one, std::memory_order_relaxed));
        return true;
    }

    static constexpr int64_t one_of_helpers = int64_t{1} << 32;
    std::atomic<int64_t> taken_{0}, done_{0};
};

}  // namespace halyard

#endif
