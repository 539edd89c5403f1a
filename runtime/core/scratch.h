// Memory for the intermediates of a call, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CORE_SCRATCH_H
#define HALYARD_RUNTIME_CORE_SCRATCH_H

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace halyard {

/** Blocks of memory, one for each call that was under way at the same time. Its owner must release() it. */
class ScratchPool {
public:
    ScratchPool() = default;
    ScratchPool(const ScratchPool &) = delete;
    ScratchPool &operator=(const ScratchPool &) = delete;

    /** Frees the blocks that no call uses. */
    void release();

private:
    friend class Scratch;

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

    Block *best_for(int64_t wanted);

    // More calls at once than this allocate for themselves.
    static constexpr int max_blocks = 64;
    Block blocks_[max_blocks];
};

/** The memory of one call, from which it takes piece by piece. */
class Scratch {
public:
    /** `bytes`: of all pieces, each rounded up by piece_bytes(). */
    Scratch(ScratchPool &pool, int64_t bytes);
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    /** Whether there was no memory. */
    bool failed() const { return data_ == nullptr; }

    /** What a piece of `bytes` bytes takes of the scratch: whole cache lines, and one that keeps pieces apart. */
    static constexpr int64_t piece_bytes(int64_t bytes) { return (bytes + 127) / 64 * 64; }

    template<typename T>
    T *take(int64_t count) {
        char *piece = data_ + taken_;
        taken_ += piece_bytes(count * static_cast<int64_t>(sizeof(T)));
        return reinterpret_cast<T *>(piece);
    }

private:
    ScratchPool::Block *block_;  // null if the memory is the call's own
    char *data_ = nullptr;
    int64_t taken_ = 0;
};

}  // namespace halyard

#endif
