// What the stand-in for the CUDA driver (tests/cuda/stand_in_driver.cpp) tells tests and can be told.
#ifndef HALYARD_TESTS_SUPPORT_STAND_IN_H
#define HALYARD_TESTS_SUPPORT_STAND_IN_H

#include <dlfcn.h>

#include <gtest/gtest.h>

namespace halyard::tests::stand_in {

template<typename Function>
Function function(const char *name) {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    void *const address = library != nullptr ? dlsym(library, name) : nullptr;
    EXPECT_NE(address, nullptr) << name;
    return reinterpret_cast<Function>(address);
}

/** How often memory of the device has been allocated. */
inline long allocations() {
    return function<long (*)()>("stand_in_allocations")();
}

/** Pieces of it that have not been freed. */
inline long allocated() {
    return function<long (*)()>("stand_in_allocated")();
}

/** Lets so many allocations succeed and no more, as long as this lives. */
class FewAllocations {
public:
    explicit FewAllocations(long count) { function<void (*)(long)>("stand_in_limit_allocations")(count); }
    ~FewAllocations() { function<void (*)(long)>("stand_in_limit_allocations")(-1); }
    FewAllocations(const FewAllocations &) = delete;
    FewAllocations &operator=(const FewAllocations &) = delete;
};

/** Streams are being captured as long as this lives. */
class Capture {
public:
    Capture() { function<void (*)(int)>("stand_in_capture")(1); }
    ~Capture() { function<void (*)(int)>("stand_in_capture")(0); }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;
};

}  // namespace halyard::tests::stand_in

#endif
