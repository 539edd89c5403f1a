// Opening the driver and loading kernels: what is said where that fails, and that the right images load. The groups run in
// different surroundings, see CMakeLists.txt.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "halyard/halyard.h"

namespace halyard::tests {
namespace {

/** halyard_relu of two rows on `device`; nothing is at the address, as nothing is launched. */
halyard_status call(DLDevice x_device, DLDevice y_device) {
    static float memory[32];
    std::int64_t shape[] = {2, 16};
    DLTensor x{}, y{};
    for (DLTensor *tensor : {&x, &y}) {
        tensor->ndim = 2;
        tensor->dtype = {kDLFloat, 32, 1};
        tensor->shape = shape;
        tensor->data = memory;
    }
    x.device = x_device;
    y.device = y_device;
    return halyard_relu(nullptr, &x, &y);
}

halyard_status call(int device) {
    return call({kDLCUDA, device}, {kDLCUDA, device});
}

void expect_message(halyard_status got, halyard_status expected, const std::string &part) {
    EXPECT_EQ(got, expected) << halyard_last_error();
    EXPECT_NE(std::string(halyard_last_error()).find(part), std::string::npos) << halyard_last_error();
}

/** Both ways to find out. */
void expect_both(halyard_status expected, const std::string &part) {
    expect_message(call(0), expected, part);
    expect_message(halyard_cuda_prepare(0), expected, part);
    // And the processor is as good as ever.
    EXPECT_EQ(call({kDLCPU, 0}, {kDLCPU, 0}), HALYARD_OK) << halyard_last_error();
}

TEST(NoDriver, IsSaid) {
    expect_both(HALYARD_NO_DEVICE, "there is no CUDA driver: libcuda.so.1");
}

TEST(OldDriver, IsSaid) {
    expect_both(HALYARD_NO_DEVICE, "the CUDA driver is too old: it is for CUDA 10.2, the kernels need 11.0");
}

TEST(NoDevice, IsSaid) {
    expect_both(HALYARD_NO_DEVICE, "finds no GPU");
}

TEST(OldDevice, IsSaid) {
    expect_both(HALYARD_NO_DEVICE, "has compute capability 7.5, but the kernels need 8.0");
}

TEST(Failing, IsSaidInTheDriversWords) {
    const std::string function = std::getenv("STAND_IN_FAIL");
    if (function == "cuInit") {
        expect_both(HALYARD_NO_DEVICE, "the CUDA driver cannot be used: out of memory");
    } else {
        expect_message(call(0), HALYARD_OUT_OF_MEMORY, "failed: out of memory");
    }
}

TEST(Device, OfAnyNumberThatThereIsWorks) {
    EXPECT_EQ(call(0), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(call(1), HALYARD_OK) << halyard_last_error();
    expect_message(call(2), HALYARD_NO_DEVICE, "there is no CUDA device 2: the driver has 2");
    expect_message(call(-1), HALYARD_NO_DEVICE, "there is no CUDA device -1");
    expect_message(halyard_cuda_prepare(2), HALYARD_NO_DEVICE, "there is no CUDA device 2");
}

TEST(Device, IsTheSameForAllTensors) {
    expect_message(call({kDLCUDA, 0}, {kDLCUDA, 1}), HALYARD_UNSUPPORTED,
                   "y is on CUDA device 1, but x is on CUDA device 0");
    expect_message(call({kDLCUDA, 0}, {kDLCPU, 0}), HALYARD_UNSUPPORTED, "y is on the CPU, but x is on CUDA device 0");
    expect_message(call({kDLCPU, 0}, {kDLCUDA, 0}), HALYARD_UNSUPPORTED, "y is on CUDA device 0, but x is on the CPU");
    expect_message(call({kDLCUDAHost, 0}, {kDLCUDAHost, 0}), HALYARD_UNSUPPORTED, "or a CUDA device (kDLCUDA)");
}

TEST(Device, TakesItsStreamFromTheContext) {
    halyard_context *context = nullptr;
    ASSERT_EQ(halyard_context_create(&context), HALYARD_OK);
    EXPECT_EQ(halyard_context_set_cuda_stream(context, nullptr), HALYARD_OK);
    EXPECT_EQ(halyard_context_set_cuda_stream(nullptr, nullptr), HALYARD_INVALID_ARGUMENT);
    halyard_context_destroy(context);
}

/** Whether `work` gives true in a forked child. */
template<typename Work>
bool holds_in_child(const Work &work) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(work() ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

TEST(Fork, LeavesTheDriverToTheProcessThatHasOpenedIt) {
    EXPECT_TRUE(holds_in_child([] { return call(0) == HALYARD_OK; })) << "a child may open it";
    halyard_context *context = nullptr;
    ASSERT_EQ(halyard_context_create(&context), HALYARD_OK);
    ASSERT_EQ(call(0), HALYARD_OK) << halyard_last_error();
    const auto refused = [context] {
        halyard_context_release_scratch(context);
        return call(0) == HALYARD_NO_DEVICE &&
               std::string(halyard_last_error()).find("forked from one that uses CUDA") != std::string::npos &&
               halyard_cuda_prepare(0) == HALYARD_NO_DEVICE && call({kDLCPU, 0}, {kDLCPU, 0}) == HALYARD_OK;
    };
    EXPECT_TRUE(holds_in_child(refused));
    EXPECT_TRUE(holds_in_child([&] { return holds_in_child(refused); })) << "nor may a child's child";
    EXPECT_EQ(call(0), HALYARD_OK) << halyard_last_error();
    halyard_context_destroy(context);
}

TEST(Images, LoadForTheDevice) {
    EXPECT_EQ(halyard_cuda_prepare(0), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(call(0), HALYARD_OK) << halyard_last_error();
}

}  // namespace
}  // namespace halyard::tests
