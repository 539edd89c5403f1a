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
    bool on_cuda;      // where heads lie plainly, see cuda/attention/kv_cache.h
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

/** Sequences of a cache, one for each of a call's batch. Without a cache they hold nothing. */
struct CachedSequences {
    halyard_kv_cache *cache;
    const int64_t *indices;  // null: 0, 1, ...
    int64_t batch;

    int64_t index(int64_t i) const { return sequence_at(indices, i); }
    /** Positions that a layer of the i-th sequence holds. */
    int64_t length(int64_t layer, int64_t i) const { return cache ? cache->length(layer, index(i)) : 0; }
    /** The first batch index whose sequence is also one before it; -1 if all are distinct. All are in range. */
    int64_t find_repeated() const;
};

/** Checks that a call may append `tokens` positions to a layer: that there are such a layer and sequences, that they are
 *  distinct, and that all have room. */
void check_append(Checker &check, const CachedSequences &sequences, int64_t layer, int64_t tokens);

/** What a call appends to `layers` layers from one on, which hold equally many positions of a sequence. The only place
 *  where lengths grow. Without a cache nothing happens. */
class CacheAppend {
public:
    CacheAppend(const CachedSequences &sequences, int64_t first_layer, int64_t layers)
        : sequences_(sequences), first_layer_(first_layer), layers_(layers) {}

    const CachedSequences &sequences() const { return sequences_; }

    /** Calls store(), which writes the keys and values of so many tokens behind those of a layer. They count from then
     *  on, unless that failed. */
    template<typename Store>
    void run(const Checker &check, int64_t layer, int64_t tokens, const Store &store) {
        if (!check.failed()) {
            expect(layer, tokens);
            store();
        }
        if (!check.failed()) {
            grow(layer, tokens);
        }
    }

    /** Forgets everything. */
    void roll_back();

private:
    void expect(int64_t layer, int64_t tokens) const;
    void grow(int64_t layer, int64_t tokens);

    const CachedSequences sequences_;
    const int64_t first_layer_, layers_;
    int64_t appended_ = 0;  // to the first layer
};

/** Checks that a tensor is where the cache is, and shares no memory with it. */
void check_clear_of_cache(Checker &check, const View &view, const halyard_kv_cache &cache);

}  // namespace halyard

#endif
