// Outputs too large to stay in any cache are written around the caches.
//
// An ordinary store of a line that is not in cache first reads the line: a norm then moves three streams through memory
// instead of two. Halide has no non-temporal stores. Elementwise kernels, norms and softmax have a streamed form that does
// (cmake/host/streamed_form.h), for outputs that begin at a line. Otherwise rows are written into a tile that stays in cache, and the
// tile is copied out by stores that bypass it. While that lasts the kernel of a norm reads nothing, so the copy prefetches input that
// it will read later, line by line between its stores. Softmax prefetches its next rows while it computes exponentials
// (docs/results/kernel-notes.md has what each bought).
#ifndef HALYARD_RUNTIME_CPU_OPS_STREAMING_H
#define HALYARD_RUNTIME_CPU_OPS_STREAMING_H

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/context.h"
#include "core/parameters.h"

namespace halyard {

/** Whether calls on more than three quarters of the last-level cache stream if nobody says otherwise. */
extern const bool outputs_stream;

/** Whether a call that moves `bytes_moved` in all should stream. `streams`: whether its family does. */
bool should_stream(const halyard_context &context, int64_t bytes_moved, bool streams);
inline bool rows_stream() {
    return parameters.row_streams < 0 ? outputs_stream : parameters.row_streams != 0;
}

constexpr int64_t streamed_line = 64;

/** Whether every row begins at a line, as the streamed form of a kernel needs it. */
inline bool begins_lines(const char *data, int64_t pitch_bytes) {
    return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(pitch_bytes)) % streamed_line == 0;
}

/** Copies around the caches, and prefetches as many bytes at `next`, which need not exist, unless it is null. The destination needs no
 *  alignment. */
using StreamCopy = void (*)(char *destination, const char *source, int64_t bytes, const char *next);
StreamCopy stream_copy(halyard_isa isa);

/** Orders streamed stores before whatever the thread does next. */
void stream_fence();

/** Whole lines, one after the other; the destination is aligned. */
using CopyLines = void (*)(char *destination, const char *source, int64_t lines, const char *next);

/** Into the second-level cache: the first is full of the tile. */
inline void prefetch_line(const char *next, int64_t offset) {
    if (next) {
        __builtin_prefetch(next + offset, 0, 2);
    }
}

/** A StreamCopy of a CopyLines. A line written in part would be read first after all, so ends are copied as ever. */
template<CopyLines copy>
void copy_whole_lines(char *destination, const char *source, int64_t bytes, const char *next) {
    const int64_t misaligned = -reinterpret_cast<intptr_t>(destination) & (streamed_line - 1);
    const int64_t head = std::min(misaligned, bytes);
    const int64_t lines = (bytes - head) / streamed_line, tail = head + lines * streamed_line;
    if (head > 0) {
        memcpy(destination, source, head);
    }
    copy(destination + head, source + head, lines, next);
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

    /** Copies compact rows of the tile to rows that are `pitch` bytes apart, and prefetches as many bytes of rows at `next`,
     *  `next_pitch` bytes apart, unless it is null. */
    void store_rows(char *destination, int64_t row_bytes, int64_t rows, int64_t pitch, const char *next,
                    int64_t next_pitch) const {
        for (int64_t row = 0; row < rows; row++) {
            copy_(destination + row * pitch, bytes_ + row * row_bytes, row_bytes,
                  next ? next + row * next_pitch : nullptr);
        }
    }

private:
    bool enabled_;
    StreamCopy copy_;
    alignas(64) char bytes_[capacity];
};

}  // namespace halyard

#endif
