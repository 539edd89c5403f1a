// The cache of keys and values on the processor: from tensors of any dtype to the end of cached sequences, and back.
#include "core/cast.h"
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
        : heads_(heads), isa_(isa), pitch_(heads.token_stride), dtype_(heads.view.dtype) {}

    /** Calls move(rows) for pieces of [first, end), positions of the cache of which the first is that token of the
     *  tensor, with what the tensor holds. */
    template<typename Move>
    void read(int64_t batch, int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(heads_.at(batch, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            if (dtype_ != DType::f32) {
                cast(isa_, {data, dtype_, pitch_}, tile(), heads_.head_dim, count);
            }
            move(rows_at(data, position, count));
        });
    }

    /** Calls move(rows) as read() does, but the tensor gets what it makes of the rows. */
    template<typename Move>
    void write(int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(heads_.at(0, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            move(rows_at(data, position, count));
            if (dtype_ != DType::f32) {
                cast(isa_, tile(), {data, dtype_, pitch_}, heads_.head_dim, count);
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

    TypedRows tile() { return {reinterpret_cast<char *>(tile_), DType::f32, heads_.head_dim}; }

    /** Pieces that fit into the tile, and end with whole panels of keys. */
    template<typename Visit>
    void each_piece(char *data, int64_t first, int64_t end, const Visit &visit) const {
        const int64_t at_once = tile_floats / heads_.head_dim / panel_width * panel_width;
        for (int64_t position = first, count; position < end; position += count) {
            count = std::min(end, (position / at_once + 1) * at_once) - position;
            visit(data + (position - first) * pitch_ * size_of(dtype_), position, count);
        }
    }

    static constexpr int64_t tile_floats = panel_width * max_cache_head_dim;

    const Heads &heads_;
    const halyard_isa isa_;
    const int64_t pitch_;
    const DType dtype_;
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
    const auto length = [&](int64_t b) { return call.cache->length(call.layer, sequence_at(call.sequences, b)); };
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
