// Memory of devices for the intermediates of calls, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CORE_DEVICE_SCRATCH_POOL_H
#define HALYARD_RUNTIME_CORE_DEVICE_SCRATCH_POOL_H

#include <pthread.h>

#include <cstdint>

namespace halyard {

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
