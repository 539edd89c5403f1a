// Memory of devices for the intermediates of calls, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CUDA_SCRATCH_H
#define HALYARD_RUNTIME_CUDA_SCRATCH_H

#include "core/context.h"

namespace halyard::cuda {

class Launches;

/** Frees the blocks that no call uses, when the device is done with them. */
void release_scratch(const halyard_context &context);

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
