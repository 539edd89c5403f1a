// Non-temporal copies, and the size from which they pay.
#include "streaming.h"

#include <atomic>
#include <cstdio>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace halyard {
namespace {

constexpr int64_t default_last_level_cache = 32 << 20;

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
    return largest > 0 ? largest : default_last_level_cache;
}

int64_t last_level_cache() {
    static std::atomic<int64_t> size{0};  // constant-initialized; every thread finds the same value
    int64_t known = size.load(std::memory_order_relaxed);
    if (known == 0) {
        known = read_last_level_cache();
        size.store(known, std::memory_order_relaxed);
    }
    return known;
}

}  // namespace

#if defined(__SSE2__)

bool should_stream(const halyard_context &context, int64_t bytes_moved) {
    if (context.streaming_min_bytes >= 0) {
        return bytes_moved >= context.streaming_min_bytes;
    }
    // Calls below this size are many and short: they do not even ask.
    constexpr int64_t smallest_last_level_cache = 2 << 20;
    return bytes_moved > smallest_last_level_cache && bytes_moved > last_level_cache();
}

void stream_copy(char *destination, const char *source, int64_t bytes) {
    // Whole lines only: a line written in part would be read first after all.
    constexpr int64_t line = 64;
    const int64_t misaligned = -reinterpret_cast<intptr_t>(destination) & (line - 1);
    const int64_t head = misaligned < bytes ? misaligned : bytes;
    memcpy(destination, source, head);
    int64_t i = head;
    for (; i + line <= bytes; i += line) {
        for (int64_t j = i; j < i + line; j += 16) {
            _mm_stream_si128(reinterpret_cast<__m128i *>(destination + j),
                             _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + j)));
        }
    }
    memcpy(destination + i, source + i, bytes - i);
}

void stream_fence() {
    _mm_sfence();
}

#else

bool should_stream(const halyard_context &, int64_t) {
    return false;
}

void stream_copy(char *destination, const char *source, int64_t bytes) {
    memcpy(destination, source, bytes);
}

void stream_fence() {
}

#endif

}  // namespace halyard
