// What the tests of a device share: tensors that say they are on one, and what the stand-in libraries count and
// pretend.
#ifndef HALYARD_TESTS_CUDA_STAND_INS_H
#define HALYARD_TESTS_CUDA_STAND_INS_H

#include <dlfcn.h>

#include <gtest/gtest.h>

#include "support/tensor.h"

namespace halyard::tests {

constexpr DLDevice cuda_device = {kDLCUDA, 0};

template<typename... Tensors>
void to_device(Tensors &...tensors) {
    ((tensors.view.device = cuda_device), ...);
}

/** Whether the driver is the stand-in, which can be asked and told more than the original. */
inline bool on_stand_in() {
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver != nullptr && dlsym(driver, "stand_in_allocations") != nullptr;
}

/** A function of a stand-in, which has been opened by then; null, and a failure, if it is not one. */
template<typename Function>
Function of_stand_in(const char *library, const char *function) {
    void *const opened = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void *const address = opened != nullptr ? dlsym(opened, function) : nullptr;
    EXPECT_NE(address, nullptr) << library << " is not the stand-in with " << function;
    return reinterpret_cast<Function>(address);
}

/** What a function without arguments of a stand-in says; -1 if there is none. */
inline long count(const char *library, const char *function) {
    const auto counted = of_stand_in<long (*)()>(library, function);
    return counted != nullptr ? counted() : -1;
}

/** How often memory of the device has been allocated. */
inline long allocations() {
    return count("libcuda.so.1", "stand_in_allocations");
}

/** Pieces of it that have not been freed. */
inline long allocated() {
    return on_stand_in() ? count("libcuda.so.1", "stand_in_allocated") : -1;
}

/** Lets so many allocations succeed and no more, as long as this lives. */
class FewAllocations {
public:
    explicit FewAllocations(long count) { limit(count); }
    ~FewAllocations() { limit(-1); }
    FewAllocations(const FewAllocations &) = delete;
    FewAllocations &operator=(const FewAllocations &) = delete;

private:
    static void limit(long count) {
        if (const auto set = of_stand_in<void (*)(long)>("libcuda.so.1", "stand_in_limit_allocations")) {
            set(count);
        }
    }
};

/** Whether streams are being captured. */
inline void capture(bool on) {
    if (const auto set = of_stand_in<void (*)(int)>("libcuda.so.1", "stand_in_capture")) {
        set(on ? 1 : 0);
    }
}

/** They are as long as this lives. */
class Capture {
public:
    Capture() { capture(true); }
    ~Capture() { capture(false); }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;
};

}  // namespace halyard::tests

#endif
