// Memory for the intermediates of calls, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CORE_SCRATCH_H
#define HALYARD_RUNTIME_CORE_SCRATCH_H

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace halyard {

/** What a call has of a pool. */
struct ScratchMemory {
    char *data = nullptr;
    int block = -1;  // its number in the pool; negative if the memory is the call's own
};

/** Blocks of memory, one for each call that was under way at the same time. Its owner must release() it. */
class ScratchPool {
public:
    ScratchPool() = default;
    ScratchPool(const ScratchPool &) = delete;
    ScratchPool &operator=(const ScratchPool &) = delete;

    /** So many bytes, which begin at a cache line; `data` is null where there is no memory. */
    ScratchMemory take(int64_t bytes);
    void give_back(const ScratchMemory &memory);

    /** Frees the blocks that no call uses. */
    void release();

private:
    // A call has a block for itself; there is no lock that a fork could leave locked.
    struct Block {
        std::atomic<uint32_t> user{0};  // the process_number() of the call that has it
        std::atomic<int64_t> bytes{0};
        char *data = nullptr;  // means something if there are bytes

        bool free() const;
        /** Makes it the call's; false if another one was quicker. */
        bool take();
        void give_back() { user.store(0, std::memory_order_release); }
        /** There may be no memory: then it has no bytes. */
        void resize(int64_t wanted);
    };

    int best_for(int64_t wanted) const;

    // More calls at once than this allocate for themselves.
    static constexpr int max_blocks = 64;
    Block blocks_[max_blocks];
};

/** Blocks of memory of devices. A block serves one stream, in whose order the calls that use it run one after the
 * other; calls under way at the same time have blocks of their own. Its owner must free them
 *  (Backend::release_scratch). */
struct DeviceScratchPool {
    struct Block {
        char *data = nullptr;
        int64_t bytes = 0;
        int device = 0;
        void *stream = nullptr;
        bool used = false;
        bool captured = false;  // a graph may hold its address: it stays until release()
    };

    // A call that finds no place fails.
    static constexpr int max_blocks = 64;

    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    Block blocks[max_blocks];
};

}  // namespace halyard

#endif
