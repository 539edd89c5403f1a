// Copies, each made once.
#include "cuda/copies.h"

#include <pthread.h>

#include <algorithm>

#include "cuda/launch.h"

namespace halyard::cuda {
namespace {

// Guards the making of copies; a call in steady state does not take it.
pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

// The driver copies rows of less than 2 GB.
constexpr int64_t copied_at_once = int64_t{1} << 30;

/** The address of the copy; 0 after a failure. */
DevicePointer make_copy(Launches &launches, const void *data, int64_t bytes) {
    Checker &check = launches.check();
    const Driver &driver = *launches.driver();
    int capturing = 0;
    if (!succeeded(check, driver, driver.stream_is_capturing(launches.stream(), &capturing),
                   "asking for the stream's state")) {
        return 0;
    }
    if (capturing) {
        check.fail(HALYARD_DEVICE_ERROR,
                   "the stream is being captured, and a table has to be copied to the device, which a "
                   "call before must do");
        return 0;
    }
    DevicePointer pointer = 0;
    if (!succeeded(check, driver, driver.memory_allocate(&pointer, static_cast<size_t>(bytes)),
                   "allocating memory for a table on the device")) {
        return 0;
    }
    bool copied = true;
    for (int64_t done = 0; done < bytes && copied; done += copied_at_once) {
        Copy2D copy = {};
        copy.source_memory = Copy2D::host;
        copy.source_host = static_cast<const char *>(data) + done;
        copy.target_memory = Copy2D::device;
        copy.target_device = pointer + static_cast<DevicePointer>(done);
        copy.source_pitch = copy.target_pitch = copy.width =
            static_cast<size_t>(std::min(copied_at_once, bytes - done));
        copy.rows = 1;
        copied = succeeded(check, driver, driver.copy_2d(&copy, launches.stream()), "copying a table to the device");
    }
    // Other streams may use it next.
    if (!copied ||
        !succeeded(check, driver, driver.stream_synchronize(launches.stream()), "copying a table to the device")) {
        driver.memory_free(pointer);
        return 0;
    }
    return pointer;
}

}  // namespace

const char *DeviceCopies::get(Launches &launches, const void *data, int64_t bytes) {
    if (launches.check().failed()) {
        return nullptr;
    }
    std::atomic<char *> &slot = copies_[launches.ordinal()];
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

void DeviceCopies::release() {
    for (int ordinal = 0; ordinal < max_devices; ordinal++) {
        char *const copy = copies_[ordinal].exchange(nullptr);
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
