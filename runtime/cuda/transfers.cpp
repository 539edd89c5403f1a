// Calls of the driver that get, move and free memory.
#include "cuda/transfers.h"

#include <algorithm>
#include <cstring>

namespace halyard::cuda {
namespace {

DevicePointer device_address(const void *pointer) {
    return reinterpret_cast<DevicePointer>(pointer);
}

// The driver copies rows of less than 2 GB.
constexpr int64_t copied_at_once = int64_t{1} << 30;

}  // namespace

char *allocate(Checker &check, int ordinal, int64_t bytes) {
    const Launches launches(check, context_or_default(nullptr), ordinal);
    DevicePointer pointer = 0;
    if (check.failed() ||
        !succeeded(check, *launches.driver(), launches.driver()->memory_allocate(&pointer, static_cast<size_t>(bytes)),
                   "allocating memory on the device")) {
        return nullptr;
    }
    return reinterpret_cast<char *>(pointer);
}

void release(int ordinal, void *data) {
    Checker check("freeing memory of a device");
    const Launches launches(check, context_or_default(nullptr), ordinal);
    if (!check.failed()) {
        launches.driver()->memory_free(device_address(data));
    }
}

void copy_rows(Launches &launches, const CopyEnd &target, const CopyEnd &source, int64_t width, int64_t rows,
               const char *what) {
    if (launches.check().failed() || width == 0 || rows == 0) {
        return;
    }
    Copy2D c = {};
    c.source_memory = source.on_device ? Copy2D::device : Copy2D::host;
    c.source_host = source.data;
    c.source_device = source.on_device ? device_address(source.data) : 0;
    c.source_pitch = static_cast<size_t>(rows > 1 ? source.pitch : width);
    c.target_memory = target.on_device ? Copy2D::device : Copy2D::host;
    c.target_host = const_cast<void *>(target.data);
    c.target_device = target.on_device ? device_address(target.data) : 0;
    c.target_pitch = static_cast<size_t>(rows > 1 ? target.pitch : width);
    c.width = static_cast<size_t>(width);
    c.rows = static_cast<size_t>(rows);
    succeeded(launches.check(), *launches.driver(), launches.driver()->copy_2d(&c, launches.stream()), what);
}

void copy_bytes(Launches &launches, const CopyEnd &target, const CopyEnd &source, int64_t bytes, const char *what) {
    for (int64_t done = 0; done < bytes; done += copied_at_once) {
        const auto from = [&](const CopyEnd &end) {
            return CopyEnd{static_cast<const char *>(end.data) + done, end.on_device, 0};
        };
        copy_rows(launches, from(target), from(source), std::min(copied_at_once, bytes - done), 1, what);
    }
}

void fill_words(Launches &launches, void *data, unsigned word, int64_t bytes) {
    if (!launches.check().failed() && bytes > 0) {
        succeeded(
            launches.check(), *launches.driver(),
            launches.driver()->fill_32(device_address(data), word, static_cast<size_t>(bytes / 4), launches.stream()),
            "filling memory of the device");
    }
}

void fill_floats(Launches &launches, float *data, float value, int64_t count) {
    unsigned word;
    static_assert(sizeof(word) == sizeof(value), "floats have 32 bits");
    memcpy(&word, &value, sizeof(word));
    fill_words(launches, data, word, count * static_cast<int64_t>(sizeof(value)));
}

void wait(Launches &launches, const char *what) {
    if (!launches.check().failed()) {
        succeeded(launches.check(), *launches.driver(), launches.driver()->stream_synchronize(launches.stream()), what);
    }
}

bool capturing(Launches &launches) {
    int status = 0;
    return !launches.check().failed() &&
           succeeded(launches.check(), *launches.driver(),
                     launches.driver()->stream_is_capturing(launches.stream(), &status),
                     "asking for the stream's state") &&
           status != 0;
}

}  // namespace halyard::cuda
