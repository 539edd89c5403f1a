// See copies.h.
#include "cuda/copies.h"

#include <pthread.h>

#include "cuda/transfers.h"

namespace halyard::cuda {
namespace {

// Guards the making of copies; a call in steady state does not take it.
pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

/** The address of the copy; 0 after a failure. */
DevicePointer make_copy(Launches &launches, const void *data, int64_t bytes) {
    Checker &check = launches.check();
    const Driver &driver = *launches.driver();
    if (capturing(launches)) {
        check.fail(HALYARD_DEVICE_ERROR,
                   "the stream is being captured, and a table has to be copied to the device, which a "
                   "call before must do");
    }
    DevicePointer pointer = 0;
    if (check.failed() || !succeeded(check, driver, driver.memory_allocate(&pointer, static_cast<size_t>(bytes)),
                                     "allocating memory for a table on the device")) {
        return 0;
    }
    const char *const what = "copying a table to the device";
    copy_bytes(launches, {reinterpret_cast<const void *>(pointer), true, 0}, {data, false, 0}, bytes, what);
    // Other streams may use it next.
    wait(launches, what);
    if (check.failed()) {
        driver.memory_free(pointer);
        return 0;
    }
    return pointer;
}

}  // namespace

const char *copy_on_device(Launches &launches, DeviceCopies &copies, const void *data, int64_t bytes) {
    if (launches.check().failed()) {
        return nullptr;
    }
    std::atomic<char *> &slot = copies.copies[launches.ordinal()];
    char *known = slot.load(std::memory_order_acquire);
    if (!known) {
        pthread_mutex_lock(&copying);
        known = slot.load(std::memory_order_acquire);
        if (!known) {
            known = reinterpret_cast<char *>(make_copy(launches, data, bytes));
            slot.store(known, std::memory_order_release);
        }
        pthread_mutex_unlock(&copying);
    }
    return known;
}

void free_copies(DeviceCopies &copies) {
    for (int ordinal = 0; ordinal < DeviceCopies::max_devices; ordinal++) {
        char *const copy = copies.copies[ordinal].exchange(nullptr);
        if (copy) {
            Checker check("freeing a table");
            const Launches launches(check, context_or_default(nullptr), ordinal);
            if (!check.failed()) {
                // Waits for what uses the memory.
                launches.driver()->memory_free(reinterpret_cast<DevicePointer>(copy));
            }
        }
    }
}

}  // namespace halyard::cuda
