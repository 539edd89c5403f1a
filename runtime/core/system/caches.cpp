// See caches.h.
#include "core/system/caches.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace halyard {
namespace {

constexpr int64_t default_second_level_cache = 512 << 10;
constexpr int64_t default_last_level_cache = 32 << 20;

// A virtual machine is told the size of its host's whole cache and has the use of a few processors' part of it.
constexpr int64_t most_per_processor = 16 << 20;

/** Bytes of the largest cache of the first processor. (sysconf() adds up all last-level caches on some machines.) */
int64_t read_last_level_cache() {
    int64_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char path[80];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (!file) {
            break;
        }
        long long size = 0;
        char unit = 0;
        if (fscanf(file, "%lld%c", &size, &unit) >= 1) {
            size *= unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
            largest = size > largest ? size : largest;
        }
        fclose(file);
    }
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return std::min(largest > 0 ? largest : default_last_level_cache, most_per_processor * std::max(1L, processors));
}

/** Older versions of glibc ask the processor every time, which takes long in a virtual machine. */
int64_t read_second_level_cache() {
    const long size = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return size > 0 ? size : default_second_level_cache;
}

/** `size`: 0 until it was read. Every thread reads the same. */
int64_t read_once(std::atomic<int64_t> &size, int64_t (*read)()) {
    int64_t known = size.load(std::memory_order_relaxed);
    if (known == 0) {
        known = read();
        size.store(known, std::memory_order_relaxed);
    }
    return known;
}

}  // namespace

int64_t second_level_cache() {
    static std::atomic<int64_t> size{0};
    return read_once(size, read_second_level_cache);
}

int64_t last_level_cache() {
    static std::atomic<int64_t> size{0};
    return read_once(size, read_last_level_cache);
}

}  // namespace halyard
