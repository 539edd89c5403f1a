// Memory of the process that does not change, and its copies on the devices that have asked for it.
#ifndef HALYARD_RUNTIME_CUDA_COPIES_H
#define HALYARD_RUNTIME_CUDA_COPIES_H

#include <atomic>
#include <cstdint>

namespace halyard::cuda {

class Launches;

/** Its owner must release() it. */
class DeviceCopies {
public:
    /** The copy on the device of `launches`, which the first call makes, and waits for. Null after a failure. */
    const char *get(Launches &launches, const void *data, int64_t bytes);

    /** Frees all copies. */
    void release();

private:
    static constexpr int max_devices = 64;

    std::atomic<char *> copies_[max_devices] = {};
};

}  // namespace halyard::cuda

#endif
