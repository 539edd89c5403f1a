// Memory of the process that does not change, and its copies on the devices that have asked for it.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_DEVICE_COPIES_H
#define HALYARD_RUNTIME_CORE_HANDLES_DEVICE_COPIES_H

#include <atomic>

namespace halyard {

/** By number of the device; null where there is none. Its owner must free them (Backend::free_copies). */
struct DeviceCopies {
    static constexpr int max_devices = 64;

    std::atomic<char *> copies[max_devices] = {};
};

}  // namespace halyard

#endif
