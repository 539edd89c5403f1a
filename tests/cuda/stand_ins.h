// What the tests of a device share: tensors that say they are on one, and what the stand-in libraries count and
// pretend, which tests have to do without on a real device.
#ifndef HALYARD_TESTS_CUDA_STAND_INS_H
#define HALYARD_TESTS_CUDA_STAND_INS_H

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "halyard/halyard.h"
#include "support/tensor.h"

namespace halyard::tests {

constexpr DLDevice cuda_device = {kDLCUDA, 0};
/** One that no machine has. */
constexpr DLDevice no_such_device = {kDLCUDA, 99};

template<typename... Tensors>
void to_device(Tensors &...tensors) {
    ((tensors.view.device = cuda_device), ...);
}

/** Positions of tokens as a device reads them, int32 or int64. */
class PositionsOnDevice {
public:
    template<typename Integer>
    PositionsOnDevice(const std::vector<Integer> &values, const Shape &extents)
        : memory(Dtype::f32, {{static_cast<std::int64_t>(values.size() * sizeof(Integer) / sizeof(float))},
                              {},
                              Placement::ends_at_guard,
                              0,
                              0}),
          shape(extents) {
        std::memcpy(memory.at(0, 0), values.data(), values.size() * sizeof(Integer));
        view = {memory.view.data,
                cuda_device,
                static_cast<int>(shape.size()),
                {kDLInt, 8 * sizeof(Integer), 1},
                shape.data(),
                nullptr,
                0};
    }
    DLTensor view;

private:
    Tensor memory;
    Shape shape;
};

inline void expect_message(halyard_status got, halyard_status expected, const std::string &part) {
    EXPECT_EQ(got, expected) << halyard_last_error();
    EXPECT_NE(std::string(halyard_last_error()).find(part), std::string::npos) << halyard_last_error();
}

/** Whether the driver is the stand-in, which can be asked and told more than the original. */
inline bool on_stand_in() {
    static void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver != nullptr && dlsym(driver, "stand_in_allocations") != nullptr;
}

/** Tests of what a real driver does not do when it is told to: refuse memory, count, pretend that it captures. */
class OnStandIn : public testing::Test {
protected:
    void SetUp() override {
        if (!on_stand_in()) {
            GTEST_SKIP() << "with the stand-in alone";
        }
    }
};

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

/** Whether cuBLASLt is to be used, where it is. */
inline bool has_blaslt() {
    const char *const text = std::getenv("HALYARD_CUBLASLT");
    return text == nullptr || std::strcmp(text, "off") != 0;
}

/** Products that the stand-in for it has computed; -1 where there is none. */
inline long products_by_blaslt() {
    return on_stand_in() && has_blaslt() ? count("libcublasLt.so.13", "stand_in_products") : -1;
}

/** How often memory of the device has been allocated; always -1 where nobody counts. */
inline long allocations() {
    return on_stand_in() ? count("libcuda.so.1", "stand_in_allocations") : -1;
}

/** Pieces of it that have not been freed. */
inline long allocated() {
    return count("libcuda.so.1", "stand_in_allocated");
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

/** Streams are being captured as long as this lives. */
class Capture {
public:
    Capture() { capture(true); }
    ~Capture() { capture(false); }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;

private:
    static void capture(bool on) {
        if (const auto set = of_stand_in<void (*)(int)>("libcuda.so.1", "stand_in_capture")) {
            set(on ? 1 : 0);
        }
    }
};

}  // namespace halyard::tests

#endif
