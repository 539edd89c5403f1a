// Outputs too large to stay in any cache are written around the caches.
//
// An ordinary store of a line that is not in cache first reads the line: a norm then moves three streams through memory
// instead of two. Halide has no non-temporal stores, so a task's kernel writes into a tile that stays in cache, and the
// tile is copied out by stores that bypass it. While that lasts the task reads nothing, so it may also prefetch input
// that it will read later (docs/results/kernel-notes.md has what both bought).
#ifndef HALYARD_RUNTIME_CPU_OPS_STREAMING_H
#define HALYARD_RUNTIME_CPU_OPS_STREAMING_H

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/context.h"
#include "core/parameters.h"

namespace halyard {

/** Whether norms and softmax on more than the caches hold stream if nobody says otherwise. */
extern const bool rows_stream;

/** Whether elementwise calls do. */
bool elementwise_streams(halyard_isa isa);

/** Whether elementwise tasks that stream prefetch their input if nobody says otherwise. */
bool prefetches_ahead(halyard_isa isa);

/** Whether a call that moves `bytes_moved` in all should stream. `streams`: whether its family does. */
bool should_stream(const halyard_context &context, int64_t bytes_moved, bool streams);
/** `parameter`: negative where nobody says otherwise. */
inline bool family_streams(int64_t parameter, bool by_default) {
    return parameter < 0 ? by_default : parameter != 0;
}

constexpr int64_t streamed_line = 64;

/** Copies around the caches; the destination needs no alignment. */
using StreamCopy = void (*)(char *destination, const char *source, int64_t bytes);
StreamCopy stream_copy(halyard_isa isa);

/** Asks for bytes that will be read soon. They need not exist. */
void prefetch(const char *data, int64_t bytes);

/** Orders streamed stores before whatever the thread does next. */
void stream_fence();

/** Whole lines, one after the other; the destination is aligned. */
using CopyLines = void (*)(char *destination, const char *source, int64_t lines);

/** A StreamCopy of a CopyLines. A line written in part would be read first after all, so ends are copied as ever. */
template<CopyLines copy>
void copy_whole_lines(char *destination, const char *source, int64_t bytes) {
    const int64_t misaligned = -reinterpret_cast<intptr_t>(destination) & (streamed_line - 1);
    const int64_t head = std::min(misaligned, bytes);
    const int64_t lines = (bytes - head) / streamed_line, tail = head + lines * streamed_line;
    if (head > 0) {
        memcpy(destination, source, head);
    }
    copy(destination + head, source + head, lines);
    if (bytes > tail) {
        memcpy(destination + tail, source + tail, bytes - tail);
    }
}

/** Where a kernel writes on the way to an output, on the task's stack. */
template<int64_t capacity>
class Tile {
public:
    /** Does not stream if `enabled` is false. */
    Tile(bool enabled, halyard_isa isa) : enabled_(enabled), copy_(stream_copy(isa)) {}
    ~Tile() {
        if (enabled_) {
            stream_fence();
        }
    }
    Tile(const Tile &) = delete;
    Tile &operator=(const Tile &) = delete;

    char *data() { return bytes_; }

    /** Copies compact rows of the tile to memory rows that are `pitch` bytes apart. */
    void store(char *destination, int64_t row_bytes, int64_t rows, int64_t pitch) const {
        if (pitch == row_bytes) {
            copy_(destination, bytes_, row_bytes * rows);
            return;
        }
        for (int64_t row = 0; row < rows; row++) {
            copy_(destination + row * pitch, bytes_ + row * row_bytes, row_bytes);
        }
    }

    /** As store(), and prefetches as many bytes of rows at `next`, `next_pitch` bytes apart, or of a later block. */
    void store_and_prefetch(char *destination, int64_t row_bytes, int64_t rows, int64_t pitch, const char *next,
                            int64_t next_pitch) const {
        constexpr int64_t slice = 1024;
        if (parameters.row_prefetch_blocks == 0) {
            return store(destination, row_bytes, rows, pitch);
        }
        next += (parameters.row_prefetch_blocks - 1) * rows * next_pitch;
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t i = 0; i < row_bytes; i += slice) {
                const int64_t bytes = std::min(slice, row_bytes - i);
                prefetch(next + row * next_pitch + i, bytes);
                copy_(destination + row * pitch + i, bytes_ + row * row_bytes + i, bytes);
            }
        }
    }

private:
    bool enabled_;
    StreamCopy copy_;
    alignas(64) char bytes_[capacity];
};

}  // namespace halyard

#endif
