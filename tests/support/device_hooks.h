// What a program that calls a real device has to do about tests whose tensors are in memory of the process: let the
// device see that memory, wait for what a call has put into its stream, and fetch what is in the device's own memory.
// Without such a program what is called a device's memory can be read as it is, and the others are nothing.
#ifndef HALYARD_TESTS_DEVICE_HOOKS_H
#define HALYARD_TESTS_DEVICE_HOOKS_H

#include <cstddef>
#include <cstring>

namespace halyard::tests {

struct DeviceHooks {
    void (*mapped)(void *memory, std::size_t bytes) = nullptr;  // whole pages that a tensor lies in
    void (*unmapping)(void *memory) = nullptr;
    void (*called)() = nullptr;  // a call has returned
    void (*fetch)(void *to, const void *from, std::size_t bytes) = nullptr;
};

inline DeviceHooks device_hooks;

inline void memory_mapped(void *memory, std::size_t bytes) {
    if (device_hooks.mapped != nullptr) {
        device_hooks.mapped(memory, bytes);
    }
}

inline void memory_unmapping(void *memory) {
    if (device_hooks.unmapping != nullptr) {
        device_hooks.unmapping(memory);
    }
}

/** Copies from memory of a device. */
inline void fetch_from_device(void *to, const void *from, std::size_t bytes) {
    if (device_hooks.fetch != nullptr) {
        device_hooks.fetch(to, from, bytes);
    } else {
        std::memcpy(to, from, bytes);
    }
}

/** Passes on what a call returned, when the device is done with it. */
template<typename Status>
Status finished(Status status) {
    if (device_hooks.called != nullptr) {
        device_hooks.called();
    }
    return status;
}

}  // namespace halyard::tests

#endif
