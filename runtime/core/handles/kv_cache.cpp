// The cache of keys and values: checks of calls that read and append to it, and the lengths of its sequences.
#include "core/handles/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/system/huge_pages.h"

namespace halyard {

void check_layer(Checker &check, const halyard_kv_cache &cache, int64_t layer) {
    if (!check.failed() && (layer < 0 || layer >= cache.n_layers)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layer is %lld, but must be in [0, %lld), the cache's n_layers",
                   static_cast<long long>(layer), static_cast<long long>(cache.n_layers));
    }
}

void check_sequence(Checker &check, const halyard_kv_cache &cache, const char *name, int64_t sequence) {
    if (!check.failed() && (sequence < 0 || sequence >= cache.n_sequences)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be in [0, %lld), the cache's n_sequences", name,
                   static_cast<long long>(sequence), static_cast<long long>(cache.n_sequences));
    }
}

int64_t CachedSequences::find_repeated() const {
    constexpr int64_t at_once = 4096;  // sequences
    for (int64_t first = 0; first < cache->n_sequences && indices && batch > 1; first += at_once) {
        uint64_t seen[at_once / 64] = {};
        for (int64_t i = 0; i < batch; i++) {
            const int64_t bit = indices[i] - first;
            if (bit >= 0 && bit < at_once) {
                if (seen[bit / 64] >> bit % 64 & 1) {
                    return i;
                }
                seen[bit / 64] |= uint64_t{1} << bit % 64;
            }
        }
    }
    return -1;
}

void check_append(Checker &check, const CachedSequences &sequences, int64_t layer, int64_t tokens) {
    const halyard_kv_cache &cache = *sequences.cache;
    check_layer(check, cache, layer);
    if (!check.failed() && sequences.batch > cache.n_sequences) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has a batch of %lld, but the cache has n_sequences %lld",
                   static_cast<long long>(sequences.batch), static_cast<long long>(cache.n_sequences));
    }
    for (int64_t i = 0; i < sequences.batch && !check.failed(); i++) {
        check_sequence(check, cache, "sequences", sequences.index(i));
    }
    const int64_t repeated = check.failed() ? -1 : sequences.find_repeated();
    if (repeated >= 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "sequences holds %lld twice",
                   static_cast<long long>(sequences.index(repeated)));
    }
    for (int64_t i = 0; i < sequences.batch && !check.failed(); i++) {
        const int64_t length = sequences.length(layer, i);
        if (tokens > cache.layout.max_positions - length) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "k has %lld tokens, but sequence %lld holds %lld positions in layer %lld and the cache has "
                       "max_positions %lld",
                       static_cast<long long>(tokens), static_cast<long long>(sequences.index(i)),
                       static_cast<long long>(length), static_cast<long long>(layer),
                       static_cast<long long>(cache.layout.max_positions));
        }
    }
}

namespace {

/** Asks for huge pages where the next `tokens` positions of a sequence will fill them. A head begins on small pages, so
 *  that a short sequence takes the memory that it fills. Huge pages follow where the first one could have been filled:
 *  attention reads them a twentieth faster. */
void ask_for_huge_pages(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t tokens) {
    const KvLayout &layout = cache.layout;
    const int64_t length = cache.length(layer, sequence), head_bytes = layout.head_bytes();
    const auto touched = [&](int64_t positions) {  // bytes of a head, whole blocks
        const int64_t blocks = (positions + k_block - 1) / k_block;
        return std::min(head_bytes, layout.block_offset(blocks) * size_of(layout.dtype));
    };
    const int64_t begin = std::max(touched(length), huge_page_bytes), end = touched(length + tokens);
    const auto next_page = [](const char *address) {
        return (reinterpret_cast<intptr_t>(address) + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
    };
    for (int64_t head = 0; head < cache.n_kv_heads && begin < end; head++) {
        const char *const data = cache.head(layer, sequence, head);
        const intptr_t first = next_page(data + begin);
        const intptr_t last = std::min(next_page(data + end), next_page(data + head_bytes + 1) - huge_page_bytes);
        if (first < last) {
            madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
        }
    }
}

}  // namespace

void CacheAppend::expect(int64_t layer, int64_t tokens) const {
    const halyard_kv_cache *const cache = sequences_.cache;
    for (int64_t i = 0; i < sequences_.batch && cache && cache->owned && !cache->on_cuda; i++) {
        ask_for_huge_pages(*cache, layer, sequences_.index(i), tokens);
    }
}

void CacheAppend::grow(int64_t layer, int64_t tokens) {
    for (int64_t i = 0; i < sequences_.batch && sequences_.cache; i++) {
        sequences_.cache->length(layer, sequences_.index(i)) += tokens;
    }
    appended_ += layer == first_layer_ ? tokens : 0;
}

void CacheAppend::roll_back() {
    for (int64_t i = 0; i < sequences_.batch && sequences_.cache; i++) {
        const int64_t before = sequences_.length(first_layer_, i) - appended_;
        for (int64_t layer = first_layer_; layer < first_layer_ + layers_; layer++) {
            sequences_.cache->length(layer, sequences_.index(i)) = before;
        }
    }
    appended_ = 0;
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
