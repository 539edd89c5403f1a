// The cache of keys and values on the processor: from tensors of any dtype to the end of cached sequences, and back.
#include <climits>

#include "core/calls/ops.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "cpu/attention/kv_pack.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

// Positions of a head that a thread moves before it takes others; whole panels of keys.
constexpr int64_t window_positions = 64;

/** f32 rows of so many positions from one on. */
struct PositionRows {
    int64_t position, count;
    float *rows;
    int64_t pitch;
};

/** Positions of one head of a tensor, as the f32 rows that go into the cache or come out of it. Other dtypes than f32
 *  go by way of a tile. */
class HeadRows {
public:
    HeadRows(const Heads &heads, halyard_isa isa)
        : heads_(heads), pitch_(heads.token_stride), dtype_(heads.view.dtype), size_(size_of(dtype_)),
          widen_(kernel_function(Kernel::cast_to_f32, dtype_, isa)),
          narrow_(kernel_function(cast_kernel(dtype_), DType::f32, isa)) {}

    /** Calls move(rows) for pieces of [first, end), positions of the cache of which the first is that token of the
     *  tensor, with what the tensor holds. */
    template<typename Move>
    void read(int64_t batch, int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(heads_.at(batch, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            if (dtype_ != DType::f32) {
                convert(data, count, true);
            }
            move(rows_at(data, position, count));
        });
    }

    /** The same, but the tensor gets what move() makes of the rows. */
    template<typename Move>
    void write(int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(heads_.at(0, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            move(rows_at(data, position, count));
            if (dtype_ != DType::f32) {
                convert(data, count, false);
            }
        });
    }

private:
    PositionRows rows_at(char *data, int64_t position, int64_t count) {
        if (dtype_ == DType::f32) {
            return {position, count, reinterpret_cast<float *>(data), pitch_};
        }
        return {position, count, tile_, heads_.head_dim};
    }

    /** Pieces that fit into the tile, and end with whole panels of keys. */
    template<typename Visit>
    void each_piece(char *data, int64_t first, int64_t end, const Visit &visit) const {
        const int64_t at_once = tile_floats / heads_.head_dim / panel_width * panel_width;
        for (int64_t position = first, count; position < end; position += count) {
            count = std::min(end, (position / at_once + 1) * at_once) - position;
            visit(data + (position - first) * pitch_ * size_, position, count);
        }
    }

    /** From the tensor to the tile, or back. */
    void convert(char *data, int64_t count, bool widen) {
        // As a rectangle, unless its rows are too far apart for the kernels' 32-bit indices.
        const int64_t rows = pitch_ < INT_MAX / count ? count : 1;
        for (int64_t i = 0; i < count; i += rows) {
            tensor_.set(data + i * pitch_ * size_, heads_.head_dim, rows, pitch_);
            rows_.set(tile_ + i * heads_.head_dim, heads_.head_dim, rows, heads_.head_dim);
            void *to_tile[] = {tensor_.argument(), rows_.argument()};
            void *from_tile[] = {rows_.argument(), tensor_.argument()};
            (widen ? widen_ : narrow_)(widen ? to_tile : from_tile);
        }
    }

    static constexpr int64_t tile_floats = panel_width * max_cache_head_dim;

    const Heads &heads_;
    const int64_t pitch_;
    const DType dtype_;
    const int64_t size_;
    const KernelFunction widen_, narrow_;
    Buffer tensor_, rows_;
    alignas(64) float tile_[tile_floats];
};

/** Calls task(batch, head, first, end) for pieces of the positions [first, first + tokens), first = first_of(batch), of
 *  all heads, on the context's threads if it is much to copy. Pieces end at multiples of window_positions, so that no
 *  two threads write to the same panel of keys. */
template<typename FirstOf, typename Task>
void run_windows(const halyard_context &context, const Heads &of, const FirstOf &first_of, const Task &task) {
    const int64_t batch = of.batch, tokens = of.tokens, heads = of.heads;
    const int64_t windows = (tokens + window_positions - 2) / window_positions + 1;  // that the tokens may touch
    const int64_t bytes = 4 * of.view.elements * size_of(of.view.dtype);  // keys and values, read and written
    run_ranges(context, batch * heads * windows, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; item++) {
            const int64_t b = item / windows / heads, first = first_of(b);
            const int64_t window = (first / window_positions + item % windows) * window_positions;
            const int64_t piece = std::max(first, window);
            const int64_t piece_end = std::min(first + tokens, window + window_positions);
            if (piece < piece_end) {
                task(b, item / windows % heads, piece, piece_end);
            }
        }
    });
}

}  // namespace

void cpu::kv_append(Checker &, const halyard_context &context, const KvAppendCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const auto length = [&](int64_t b) -> int64_t & {
        return call.cache->length(call.layer, sequence_at(call.sequences, b));
    };
    run_windows(context, call.k, length, [&](int64_t b, int64_t head, int64_t first, int64_t end) {
        char *const stored = call.cache->head(call.layer, sequence_at(call.sequences, b), head);
        const int64_t token = first - length(b);
        HeadRows(call.k, isa).read(b, token, head, first, end, [&](const PositionRows &p) {
            store_keys_values(isa, call.cache->layout, stored, p.position, p.count, p.rows, p.pitch, nullptr, 0);
        });
        HeadRows(call.v, isa).read(b, token, head, first, end, [&](const PositionRows &p) {
            store_keys_values(isa, call.cache->layout, stored, p.position, p.count, nullptr, 0, p.rows, p.pitch);
        });
    });
    for (int64_t b = 0; b < call.k.batch; b++) {
        length(b) += call.k.tokens;
    }
}

void cpu::kv_read(Checker &, const halyard_context &context, const KvReadCall &call) {
    const bool k = call.k.view.data, v = call.v.view.data;
    const halyard_isa isa = best_isa(context.max_isa);
    run_windows(
        context, k ? call.k : call.v, [&](int64_t) { return call.first; },
        [&](int64_t, int64_t head, int64_t begin, int64_t end) {
            const char *const stored = call.cache->head(call.layer, call.sequence, head);
            if (k) {
                HeadRows(call.k, isa).write(begin - call.first, head, begin, end, [&](const PositionRows &p) {
                    load_keys_values(isa, call.cache->layout, stored, p.position, p.count, p.rows, p.pitch, nullptr, 0);
                });
            }
            if (v) {
                HeadRows(call.v, isa).write(begin - call.first, head, begin, end, [&](const PositionRows &p) {
                    load_keys_values(isa, call.cache->layout, stored, p.position, p.count, nullptr, 0, p.rows, p.pitch);
                });
            }
        });
}

}  // namespace halyard
