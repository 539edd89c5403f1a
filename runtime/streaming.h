// Outputs too large to stay in any cache are written around the caches.
//
// An ordinary store of a line that is not in cache first reads the line: a norm then moves three streams through memory
// instead of two. Halide has no non-temporal stores, so a task's kernel writes into a tile that stays in cache, and the
// tile is copied out by stores that bypass it.
#ifndef HALYARD_RUNTIME_STREAMING_H
#define HALYARD_RUNTIME_STREAMING_H

#include <cstdint>

#include "check.h"
#include "context.h"

namespace halyard {

/** Whether a call that moves `bytes_moved` in all should stream. */
bool should_stream(const halyard_context &context, int64_t bytes_moved);

/** Where a kernel writes on the way to `output`: the output itself, or a tile on the task's stack. */
template<int64_t capacity>
class Tile {
public:
    /** Does not stream if `enabled` is false. */
    explicit Tile(bool enabled) : enabled_(enabled) {}
    ~Tile();
    Tile(const Tile &) = delete;
    Tile &operator=(const Tile &) = delete;

    bool enabled() const { return enabled_; }
    char *data() { return bytes_; }

    /** Copies compact rows of the tile to memory rows that are `pitch` bytes apart. */
    void store(char *destination, int64_t row_bytes, int64_t rows, int64_t pitch) const;

private:
    bool enabled_;
    alignas(64) char bytes_[capacity];
};

/** Copies around the caches; the destination needs no alignment. */
void stream_copy(char *destination, const char *source, int64_t bytes);
/** Orders streamed stores before whatever the thread does next. */
void stream_fence();

template<int64_t capacity>
Tile<capacity>::~Tile() {
    if (enabled_) {
        stream_fence();
    }
}

template<int64_t capacity>
void Tile<capacity>::store(char *destination, int64_t row_bytes, int64_t rows, int64_t pitch) const {
    if (pitch == row_bytes) {
        stream_copy(destination, bytes_, row_bytes * rows);
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        stream_copy(destination + row * pitch, bytes_ + row * row_bytes, row_bytes);
    }
}

}  // namespace halyard

#endif
