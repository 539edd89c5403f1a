// Blocks and stacks for the tests of a device.
#ifndef HALYARD_TESTS_CUDA_BLOCKS_ON_DEVICE_H
#define HALYARD_TESTS_CUDA_BLOCKS_ON_DEVICE_H

#include "stand_ins.h"
#include "support/stack.h"

namespace halyard::tests {

constexpr DLDevice other_device = {kDLCUDA, 1}, processor = {kDLCPU, 0};

inline BlockForm on_device(BlockForm form, bool sources_on_device = true) {
    form.device = cuda_device;
    form.sources_on_device = sources_on_device;
    return form;
}

inline StackForm on_device(StackForm form, bool sources_on_device = true) {
    form.block = on_device(form.block, sources_on_device);
    return form;
}

/** Makes a call with no allocation that succeeds, with one, with two and so on, until it succeeds itself. Until then it
 * must say that there is no memory; after(failed) is called behind each. Returns how often it failed. */
template<typename Call, typename After>
long failures_for_memory(const char *function, const Call &call, const After &after) {
    for (long failures = 0;; failures++) {
        SCOPED_TRACE(std::to_string(failures) + " allocations succeed");
        halyard_status status = HALYARD_OK;
        {
            const FewAllocations few(failures);
            status = call();
        }
        const bool failed = status != HALYARD_OK;
        if (failed) {
            EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, function, "allocating"));
        }
        after(failed);
        if (!failed) {
            return failures;
        }
    }
}

}  // namespace halyard::tests

#endif
