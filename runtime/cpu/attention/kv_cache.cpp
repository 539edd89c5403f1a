// Copies of keys and values: from tensors of any dtype to the end of cached sequences, and back.
#include <climits>

#include "core/handles/kv_cache.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "cuda/attention/kv_cache.h"

namespace halyard {
namespace {

// Positions of a head that a thread moves before it takes others; whole panels of keys.
constexpr int64_t window_positions = 64;

/** What a tensor of heads must be for a cache: [(batch,) T, n_kv_heads, head_dim]. */
void check_heads(Checker &check, const View &view, const halyard_kv_cache &cache, bool batch_allowed) {
    if (check.failed()) {
        return;
    }
    if (view.rank != 3 && !(batch_allowed && view.rank == 4)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have rank 3%s", view.name, view.rank,
                   batch_allowed ? " or 4" : "");
        return;
    }
    const int64_t heads = view.shape[view.rank - 2];
    if (heads != cache.n_kv_heads || view.width() != cache.layout.head_dim) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld heads of %lld features, but the cache has %lld of %lld",
                   view.name, static_cast<long long>(heads), static_cast<long long>(view.width()),
                   static_cast<long long>(cache.n_kv_heads), static_cast<long long>(cache.layout.head_dim));
    }
}

void check_layer(Checker &check, const halyard_kv_cache &cache, int64_t layer) {
    if (!check.failed() && (layer < 0 || layer >= cache.n_layers)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layer is %lld, but must be in [0, %lld), the cache's n_layers",
                   static_cast<long long>(layer), static_cast<long long>(cache.n_layers));
    }
}

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
    HeadRows(const View &view, halyard_isa isa)
        : view_(view), pitch_(view.strides[view.rank - 3]), size_(size_of(view.dtype)),
          widen_(kernel_function(Kernel::cast_to_f32, view.dtype, isa)),
          narrow_(kernel_function(view.dtype == DType::f16 ? Kernel::cast_to_f16 : Kernel::cast_to_bf16, DType::f32,
                                  isa)) {}

    /** Calls move(rows) for pieces of [first, end), positions of the cache of which the first is that token of the
     *  tensor, with what the tensor holds. */
    template<typename Move>
    void read(int64_t batch, int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(at(batch, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            if (view_.dtype != DType::f32) {
                convert(data, count, true);
            }
            move(rows_at(data, position, count));
        });
    }

    /** The same, but the tensor gets what move() makes of the rows. */
    template<typename Move>
    void write(int64_t token, int64_t head, int64_t first, int64_t end, const Move &move) {
        each_piece(at(0, token, head), first, end, [&](char *data, int64_t position, int64_t count) {
            move(rows_at(data, position, count));
            if (view_.dtype != DType::f32) {
                convert(data, count, false);
            }
        });
    }

private:
    char *at(int64_t batch, int64_t token, int64_t head) const {
        const int64_t offset =
            (view_.rank == 4 ? batch * view_.strides[0] : 0) + token * pitch_ + head * view_.strides[view_.rank - 2];
        return view_.data + offset * size_;
    }

    PositionRows rows_at(char *data, int64_t position, int64_t count) {
        if (view_.dtype == DType::f32) {
            return {position, count, reinterpret_cast<float *>(data), pitch_};
        }
        return {position, count, tile_, view_.width()};
    }

    /** Pieces that fit into the tile, and end with whole panels of keys. */
    template<typename Visit>
    void each_piece(char *data, int64_t first, int64_t end, const Visit &visit) const {
        const int64_t at_once = tile_floats / view_.width() / panel_width * panel_width;
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
            tensor_.set(data + i * pitch_ * size_, view_.width(), rows, pitch_);
            rows_.set(tile_ + i * view_.width(), view_.width(), rows, view_.width());
            void *to_tile[] = {tensor_.argument(), rows_.argument()};
            void *from_tile[] = {rows_.argument(), tensor_.argument()};
            (widen ? widen_ : narrow_)(widen ? to_tile : from_tile);
        }
    }

    static constexpr int64_t tile_floats = panel_width * max_cache_head_dim;

    const View &view_;
    const int64_t pitch_, size_;
    const KernelFunction widen_, narrow_;
    Buffer tensor_, rows_;
    alignas(64) float tile_[tile_floats];
};

/** Calls task(batch, head, first, end) for pieces of the positions [first, first + tokens), first = first_of(batch), of
 *  all heads, on the context's threads if it is much to copy. Pieces end at multiples of window_positions, so that no
 *  two threads write to the same panel of keys. */
template<typename FirstOf, typename Task>
void run_windows(const halyard_context &context, const View &view, const FirstOf &first_of, const Task &task) {
    const int64_t batch = view.rank == 4 ? view.shape[0] : 1;
    const int64_t tokens = view.shape[view.rank - 3], heads = view.shape[view.rank - 2];
    const int64_t windows = (tokens + window_positions - 2) / window_positions + 1;  // that the tokens may touch
    const int64_t bytes = 4 * view.elements * size_of(view.dtype);  // keys and values, read and written
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

void check_append(Checker &check, halyard_kv_cache &cache, int64_t layer, const int64_t *sequences, int64_t batch,
                  int64_t tokens) {
    check_layer(check, cache, layer);
    if (!check.failed() && batch > cache.n_sequences) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has a batch of %lld, but the cache has n_sequences %lld",
                   static_cast<long long>(batch), static_cast<long long>(cache.n_sequences));
    }
    if (check.failed()) {
        return;
    }
    cache.calls++;
    for (int64_t i = 0; i < batch; i++) {
        const int64_t sequence = sequence_at(sequences, i);
        check_sequence(check, cache, "sequences", sequence);
        if (check.failed()) {
            return;
        }
        if (cache.marks[sequence] == cache.calls) {
            check.fail(HALYARD_INVALID_ARGUMENT, "sequences holds %lld twice", static_cast<long long>(sequence));
            return;
        }
        cache.marks[sequence] = cache.calls;
        const int64_t length = cache.length(layer, sequence);
        if (tokens > cache.layout.max_positions - length) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "k has %lld tokens, but sequence %lld holds %lld positions in layer %lld and the cache has "
                       "max_positions %lld",
                       static_cast<long long>(tokens), static_cast<long long>(sequence), static_cast<long long>(length),
                       static_cast<long long>(layer), static_cast<long long>(cache.layout.max_positions));
            return;
        }
    }
    for (int64_t i = 0; i < batch; i++) {
        expect_positions(cache, layer, sequence_at(sequences, i), tokens);
    }
}

void check_clear_of_cache(Checker &check, const View &view, const halyard_kv_cache &cache) {
    if (!check.failed() && (view.on_cuda != cache.on_cuda || (view.on_cuda && view.device_id != cache.device_id))) {
        check.fail(HALYARD_UNSUPPORTED, "%s is on %s, but the cache is on %s: both must be on one device", view.name,
                   view.on_cuda ? "a CUDA device" : "the CPU",
                   !cache.on_cuda ? "the CPU"
                   : view.on_cuda ? "another one"
                                  : "a CUDA device");
    }
    check.no_overlap(view, memory_view("the memory of the cache", cache.data, cache.bytes), false);
}

}  // namespace halyard

using halyard::Checker;

halyard_status halyard_kv_cache_append(const halyard_context *context, halyard_kv_cache *cache, int64_t layer,
                                       const int64_t *sequences, const DLTensor *k, const DLTensor *v) {
    using namespace halyard;
    Checker check("halyard_kv_cache_append", Devices::cpu_or_cuda);
    check.not_null("cache", cache);
    const View ks = check.tensor("k", k), vs = check.tensor("v", v);
    if (check.failed()) {
        return check.status();
    }
    check_heads(check, ks, *cache, true);
    check.same_shape(ks, vs);
    check_clear_of_cache(check, ks, *cache);
    check_clear_of_cache(check, vs, *cache);
    if (check.failed()) {
        return check.status();
    }
    const int64_t batch = ks.rank == 4 ? ks.shape[0] : 1, tokens = ks.shape[ks.rank - 3];
    check_append(check, *cache, layer, sequences, batch, tokens);
    if (check.failed() || ks.empty()) {
        return check.status();
    }
    const halyard_context &c = context_or_default(context);
    if constexpr (has_cuda) {
        if (cache->on_cuda) {
            return cuda::append(check, c, *cache, layer, sequences, ks, vs);
        }
    }
    const halyard_isa isa = best_isa(c.max_isa);
    const auto length = [&](int64_t b) -> int64_t & { return cache->length(layer, sequence_at(sequences, b)); };
    run_windows(c, ks, length, [&](int64_t b, int64_t head, int64_t first, int64_t end) {
        char *const stored = cache->head(layer, sequence_at(sequences, b), head);
        const int64_t token = first - length(b);
        HeadRows(ks, isa).read(b, token, head, first, end, [&](const PositionRows &p) {
            store_keys_values(isa, cache->layout, stored, p.position, p.count, p.rows, p.pitch, nullptr, 0);
        });
        HeadRows(vs, isa).read(b, token, head, first, end, [&](const PositionRows &p) {
            store_keys_values(isa, cache->layout, stored, p.position, p.count, nullptr, 0, p.rows, p.pitch);
        });
    });
    for (int64_t b = 0; b < batch; b++) {
        length(b) += tokens;
    }
    return HALYARD_OK;
}

halyard_status halyard_kv_cache_read(const halyard_context *context, const halyard_kv_cache *cache, int64_t layer,
                                     int64_t sequence, int64_t first, DLTensor *k, DLTensor *v) {
    using namespace halyard;
    Checker check("halyard_kv_cache_read", Devices::cpu_or_cuda);
    if (!check.not_null("cache", cache)) {
        return check.status();
    }
    check_layer(check, *cache, layer);
    check_sequence(check, *cache, "sequence", sequence);
    View ks, vs;
    if (k) {
        ks = check.output("k", k);
        check_heads(check, ks, *cache, false);
        check_clear_of_cache(check, ks, *cache);
    }
    if (v) {
        vs = check.output("v", v);
        check_heads(check, vs, *cache, false);
        check_clear_of_cache(check, vs, *cache);
    }
    if (k && v) {
        check.same_shape(ks, vs);
        check.no_overlap(ks, vs, false);
    }
    if (check.failed() || (!k && !v)) {
        return check.status();
    }
    const int64_t length = cache->length(layer, sequence), tokens = (k ? ks : vs).shape[0];
    if (first < 0 || first > length || tokens > length - first) {
        return check.fail(HALYARD_INVALID_ARGUMENT,
                          "first is %lld and %s has %lld tokens, but sequence %lld holds %lld positions",
                          static_cast<long long>(first), k ? "k" : "v", static_cast<long long>(tokens),
                          static_cast<long long>(sequence), static_cast<long long>(length));
    }
    const halyard_context &c = context_or_default(context);
    if constexpr (has_cuda) {
        if (cache->on_cuda) {
            return cuda::read(check, c, *cache, layer, sequence, first, ks, vs);
        }
    }
    const halyard_isa isa = best_isa(c.max_isa);
    run_windows(
        c, k ? ks : vs, [&](int64_t) { return first; },
        [&](int64_t, int64_t head, int64_t begin, int64_t end) {
            const char *const stored = cache->head(layer, sequence, head);
            if (k) {
                HeadRows(ks, isa).write(begin - first, head, begin, end, [&](const PositionRows &p) {
                    load_keys_values(isa, cache->layout, stored, p.position, p.count, p.rows, p.pitch, nullptr, 0);
                });
            }
            if (v) {
                HeadRows(vs, isa).write(begin - first, head, begin, end, [&](const PositionRows &p) {
                    load_keys_values(isa, cache->layout, stored, p.position, p.count, nullptr, 0, p.rows, p.pitch);
                });
            }
        });
    return HALYARD_OK;
}
