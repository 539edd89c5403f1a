// Places in a cache on a device.
#include "cuda/attention/kv_cache.h"

#include "cuda/backend.h"

namespace halyard::cuda {

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

void kv_append(Checker &check, const halyard_context &context, const KvAppendCall &call) {
    const halyard_kv_cache &cache = *call.cache;
    const DeviceHeads keys = device_heads(call.k), values = device_heads(call.v);
    for (int64_t b = 0; b < keys.batch;) {
        const SequenceRun run = run_of_sequences(cache, call.layer, call.sequences, b, keys.batch);
        const int64_t sequence = sequence_at(call.sequences, b), position = cache.length(call.layer, sequence);
        convert_heads(check, context, cache.device_id, keys.batch_from(b, run.count),
                      cached_keys(cache, call.layer, sequence, run.count, position, keys.tokens));
        convert_heads(check, context, cache.device_id, values.batch_from(b, run.count),
                      cached_values(cache, call.layer, sequence, run.count, position, keys.tokens));
        b += run.count;
    }
}

void kv_read(Checker &check, const halyard_context &context, const KvReadCall &call) {
    const halyard_kv_cache &cache = *call.cache;
    const auto copy = [&](const Heads &to, auto cached) {
        if (!to.view.empty()) {
            convert_heads(check, context, cache.device_id,
                          cached(cache, call.layer, call.sequence, 1, call.first, to.tokens), device_heads(to));
        }
    };
    copy(call.k, cached_keys);
    copy(call.v, cached_values);
}

}  // namespace halyard::cuda
