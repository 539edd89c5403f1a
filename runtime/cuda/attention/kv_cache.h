// The cache of keys and values in the memory of a device: keys and values lie plainly there, those of a head one
// position after the other, its keys before its values.
#ifndef HALYARD_RUNTIME_CUDA_ATTENTION_KV_CACHE_H
#define HALYARD_RUNTIME_CUDA_ATTENTION_KV_CACHE_H

#include "core/handles/kv_cache.h"
#include "cuda/heads.h"

namespace halyard::cuda {

/** Sequences whose places follow each other, and that are equally long. */
struct SequenceRun {
    int64_t first, count;  // batch indices
};

/** The run that begins with batch index `b` of `batch`. */
SequenceRun run_of_sequences(const halyard_kv_cache &cache, int64_t layer, const int64_t *sequences, int64_t b,
                             int64_t batch);

/** Places for `tokens` positions of `count` sequences, from this sequence and position on. */
DeviceHeads cached_keys(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t count, int64_t position,
                        int64_t tokens);
DeviceHeads cached_values(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t count,
                          int64_t position, int64_t tokens);

}  // namespace halyard::cuda

#endif
