// Places in a cache on a device.
#include "cuda/attention/kv_cache.h"

namespace halyard::cuda {
namespace {

/** A tensor [(batch,) tokens, heads, head_dim]. */
DeviceHeads heads_of(const View &view) {
    const int axis = view.rank - 3;
    return {view.data,
            view.dtype,
            axis > 0 ? view.shape[0] : 1,
            view.shape[axis],
            view.shape[axis + 1],
            view.shape[axis + 2],
            axis > 0 ? view.strides[0] : 0,
            view.strides[axis],
            view.strides[axis + 1]};
}

}  // namespace

SequenceRun run_of_sequences(const halyard_kv_cache &cache, int64_t layer, const int64_t *sequences, int64_t b,
                             int64_t batch) {
    const int64_t sequence = sequence_at(sequences, b), length = cache.length(layer, sequence);
    int64_t count = 1;
    while (b + count < batch && sequence_at(sequences, b + count) == sequence + count &&
           cache.length(layer, sequence + count) == length) {
        count++;
    }
    return {b, count};
}

DeviceHeads cached_keys(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t count, int64_t position,
                        int64_t tokens) {
    const KvLayout &layout = cache.layout;
    const int64_t size = size_of(layout.dtype), head_stride = layout.head_bytes() / size;
    return {cache.head(layer, sequence, 0) + position * layout.head_dim * size,
            layout.dtype,
            count,
            tokens,
            cache.n_kv_heads,
            layout.head_dim,
            cache.n_kv_heads * head_stride,
            layout.head_dim,
            head_stride};
}

DeviceHeads cached_values(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t count,
                          int64_t position, int64_t tokens) {
    DeviceHeads values = cached_keys(cache, layer, sequence, count, position, tokens);
    const KvLayout &layout = cache.layout;
    values.data += KvLayout::round_up(layout.max_positions) * layout.head_dim * size_of(layout.dtype);
    return values;
}

halyard_status append(Checker &check, const halyard_context &context, halyard_kv_cache &cache, int64_t layer,
                      const int64_t *sequences, const View &k, const View &v) {
    const DeviceHeads keys = heads_of(k), values = heads_of(v);
    for (int64_t b = 0; b < keys.batch;) {
        const SequenceRun run = run_of_sequences(cache, layer, sequences, b, keys.batch);
        const int64_t sequence = sequence_at(sequences, b), position = cache.length(layer, sequence);
        convert_heads(check, context, cache.device_id, keys.batch_from(b, run.count),
                      cached_keys(cache, layer, sequence, run.count, position, keys.tokens));
        convert_heads(check, context, cache.device_id, values.batch_from(b, run.count),
                      cached_values(cache, layer, sequence, run.count, position, keys.tokens));
        b += run.count;
    }
    for (int64_t b = 0; b < keys.batch && !check.failed(); b++) {
        cache.length(layer, sequence_at(sequences, b)) += keys.tokens;
    }
    return check.status();
}

halyard_status read(Checker &check, const halyard_context &context, const halyard_kv_cache &cache, int64_t layer,
                    int64_t sequence, int64_t first, const View &k, const View &v) {
    if (!k.empty()) {
        const DeviceHeads to = heads_of(k);
        convert_heads(check, context, cache.device_id, cached_keys(cache, layer, sequence, 1, first, to.tokens), to);
    }
    if (!v.empty()) {
        const DeviceHeads to = heads_of(v);
        convert_heads(check, context, cache.device_id, cached_values(cache, layer, sequence, 1, first, to.tokens), to);
    }
    return check.status();
}

}  // namespace halyard::cuda
