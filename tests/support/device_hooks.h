// What a program that calls a real device has to do about tests whose tensors are in memory of the process: let the
// device see that memory, and wait for what a call has put into its stream. Nothing, unless the program says so.
#ifndef HALYARD_TESTS_DEVICE_HOOKS_H
#define HALYARD_TESTS_DEVICE_HOOKS_H

#include <cstddef>

namespace halyard::tests {

struct DeviceHooks {
    void (*mapped)(void *memory, std::size_t bytes) = nullptr;  // whole pages that a tensor lies in
    void (*unmapping)(void *memory) = nullptr;
    void (*called)() = nullptr;  // a call has returned
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
