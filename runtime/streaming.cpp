// Non-temporal copies, and the size from which they pay.
#include "streaming.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace halyard {
namespace {

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

namespace {

constexpr int64_t line = 64;

// Whole lines, one after the other; the destination is aligned.
using CopyLines = void (*)(char *destination, const char *source, int64_t lines);

void copy_lines(char *destination, const char *source, int64_t lines) {
    for (int64_t i = 0; i < lines * line; i += line) {
        for (int64_t j = i; j < i + line; j += 16) {
            _mm_stream_si128(reinterpret_cast<__m128i *>(destination + j),
                             _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + j)));
        }
    }
}

__attribute__((target("avx"))) void copy_lines_avx(char *destination, const char *source, int64_t lines) {
    for (int64_t i = 0; i < lines * line; i += line) {
        for (int64_t j = i; j < i + line; j += 32) {
            _mm256_stream_si256(reinterpret_cast<__m256i *>(destination + j),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source + j)));
        }
    }
}

__attribute__((target("avx512f"))) void copy_lines_avx512(char *destination, const char *source, int64_t lines) {
    for (int64_t i = 0; i < lines * line; i += line) {
        _mm512_stream_si512(reinterpret_cast<__m512i *>(destination + i), _mm512_loadu_si512(source + i));
    }
}

template<CopyLines copy>
void copy_bytes(char *destination, const char *source, int64_t bytes) {
    // Whole lines only: a line written in part would be read first after all.
    const int64_t misaligned = -reinterpret_cast<intptr_t>(destination) & (line - 1);
    const int64_t head = std::min(misaligned, bytes);
    const int64_t lines = (bytes - head) / line, tail = head + lines * line;
    if (head > 0) {
        memcpy(destination, source, head);
    }
    copy(destination + head, source + head, lines);
    if (bytes > tail) {
        memcpy(destination + tail, source + tail, bytes - tail);
    }
}

}  // namespace

StreamCopy stream_copy(halyard_isa isa) {
    return isa >= HALYARD_ISA_AVX512 ? copy_bytes<copy_lines_avx512>
           : isa >= HALYARD_ISA_AVX2 ? copy_bytes<copy_lines_avx>
                                     : copy_bytes<copy_lines>;
}

void fetch(const char *data, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += line) {
        // Into the second level: the first is full of the tile.
        __builtin_prefetch(data + i, 0, 2);
    }
}

void stream_fence() {
    _mm_sfence();
}

#else

bool should_stream(const halyard_context &, int64_t) {
    return false;
}

StreamCopy stream_copy(halyard_isa) {
    return [](char *destination, const char *source, int64_t bytes { memcpy(destination, source, bytes); };
}

void fetch(const char *, int64_t) {
}

void stream_fence() {
}

#endif

}  // namespace halyard
