// Memory of devices for the intermediates of calls, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CUDA_SCRATCH_H
#define HALYARD_RUNTIME_CUDA_SCRATCH_H

#include <pthread.h>

#include <cstdint>

namespace halyard::cuda {

class Launches;

/** Blocks of memory of devices. A block serves one stream, in whose order the calls that use it run one after the
 * other; calls under way at the same time have blocks of their own. Its owner must release() it. */
class DeviceScratchPool {
public:
    DeviceScratchPool() = default;
    DeviceScratchPool(const DeviceScratchPool &) = delete;
    DeviceScratchPool &operator=(const DeviceScratchPool &) = delete;

    /** Frees the blocks that no call uses, when the device is done with them. */
    void release();

private:
    friend class DeviceScratch;

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

    pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
    Block blocks_[max_blocks];
};

/** The memory of one call, from which it takes piece by piece. */
class DeviceScratch {
public:
    /** `bytes`: of all pieces, each rounded up by piece_bytes(); nothing is allocated for 0. Fails the check of
     * `launches` if there is no memory, or if it would have to grow while the stream is being captured. */
    DeviceScratch(Launches &launches, int64_t bytes);
    ~DeviceScratch();
    DeviceScratch(const DeviceScratch &) = delete;
    DeviceScratch &operator=(const DeviceScratch &) = delete;

    /** What a piece of `bytes` bytes takes: pieces begin where any access is aligned. */
    static constexpr int64_t piece_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

    /** Null for 0 bytes, and after a failure. */
    char *take(int64_t bytes) {
        char *const piece = data_ && bytes > 0 ? data_ + taken_ : nullptr;
        taken_ += piece_bytes(bytes);
        return piece;
    }

private:
    DeviceScratchPool &pool_;
    int block_ = -1;
    char *data_ = nullptr;
    int64_t taken_ = 0;
};

}  // namespace halyard::cuda

#endif
