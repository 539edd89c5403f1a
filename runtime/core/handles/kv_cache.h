// The cache of keys and values: where its heads lie, and how positions get into them and out again.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_KV_CACHE_H
#define HALYARD_RUNTIME_CORE_HANDLES_KV_CACHE_H

#include "core/check.h"
#include "halyard/attention.h"
#include "layout/kv.h"

struct halyard_kv_cache {
    halyard::KvLayout layout;  // of each head
    int64_t n_layers, n_sequences, n_kv_heads;
    char *data;  // [layer][sequence][head], layout.head_bytes() each
    int64_t bytes;
    bool owned;        // `data` is freed with the cache
    int64_t *lengths;  // [layer][sequence]
    uint64_t *marks;   // [sequence]: the last call that named it
    uint64_t calls;    // that marked sequences
    bool on_cuda;      // where heads lie plainly, see cuda/kv_cache.h
    int device_id;

    char *head(int64_t layer, int64_t sequence, int64_t head) const {
        return data + ((layer * n_sequences + sequence) * n_kv_heads + head) * layout.head_bytes();
    }
    int64_t &length(int64_t layer, int64_t sequence) const { return lengths[layer * n_sequences + sequence]; }
};

namespace halyard {

constexpr int64_t max_cache_head_dim = 1024;

void check_layer(Checker &check, const halyard_kv_cache &cache, int64_t layer);
void check_sequence(Checker &check, const halyard_kv_cache &cache, const char *name, int64_t sequence);

/** The sequence of batch index `i`. */
inline int64_t sequence_at(const int64_t *sequences, int64_t i) {
    return sequences ? sequences[i] : i;
}

/** Checks that a call may append `tokens` positions to a layer of `batch` sequences: that there are such a layer and
 *  sequences, that they are distinct, and that all have room. If so, memory for them is made ready. */
void check_append(Checker &check, halyard_kv_cache &cache, int64_t layer, const int64_t *sequences, int64_t batch,
                  int64_t tokens);

/** Asks for huge pages where the next `tokens` positions of a sequence will fill them. To be called before they are
 *  stored. */
void expect_positions(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t tokens);

/** Checks that a tensor is where the cache is, and shares no memory with it. */
void check_clear_of_cache(Checker &check, const View &view, const halyard_kv_cache &cache);

}  // namespace halyard

#endif
