// The cache of keys and values: its handles and their lengths.
#include "core/handles/kv_cache.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "core/check_options.h"
#include "core/system/huge_pages.h"
#include "cuda/transfers.h"

namespace halyard {
namespace {

constexpr int64_t cache_alignment = 64;

/** What follows from the options of a cache. */
struct CacheGeometry {
    KvLayout layout = {};
    int64_t bytes = 0;
};

CacheGeometry check_cache_options(Checker &check, const halyard_kv_cache_options *options) {
    CacheGeometry geometry;
    if (!check.not_null("options", options)) {
        return geometry;
    }
    const halyard_kv_cache_options &o = *options;
    check_range(check, "n_layers", o.n_layers, 1, INT64_MAX);
    check_range(check, "n_sequences", o.n_sequences, 1, INT64_MAX);
    check_range(check, "n_kv_heads", o.n_kv_heads, 1, INT64_MAX);
    check_range(check, "head_dim", o.head_dim, 1, max_cache_head_dim);
    check_range(check, "max_positions", o.max_positions, 1, INT64_MAX);
    // As of a tensor with nothing in it.
    int64_t no_elements = 0;
    DLTensor stored = {};
    stored.device = {kDLCPU, 0};
    stored.ndim = 1;
    stored.dtype = o.dtype;
    stored.shape = &no_elements;
    geometry.layout = {check.tensor("dtype", &stored).dtype, o.head_dim, o.max_positions};
    if (check.failed()) {
        return geometry;
    }
    const int64_t position_bytes = (o.head_dim + geometry.layout.value_columns()) * static_cast<int64_t>(sizeof(float));
    bool too_large = o.max_positions > INT64_MAX / position_bytes - 2 * cache_alignment;
    if (!too_large) {
        int64_t sequences;  // of all layers
        too_large = __builtin_mul_overflow(o.n_layers, o.n_sequences, &sequences) ||
                    sequences > INT64_MAX / static_cast<int64_t>(sizeof(int64_t)) ||
                    __builtin_mul_overflow(geometry.layout.head_bytes(), o.n_kv_heads, &geometry.bytes) ||
                    __builtin_mul_overflow(geometry.bytes, sequences, &geometry.bytes);
    }
    if (too_large) {
        check.fail(
            HALYARD_INVALID_ARGUMENT,
            "options ask for more than 2^63 bytes: n_layers %lld, n_sequences %lld, n_kv_heads %lld, head_dim %lld, "
            "max_positions %lld",
            static_cast<long long>(o.n_layers), static_cast<long long>(o.n_sequences),
            static_cast<long long>(o.n_kv_heads), static_cast<long long>(o.head_dim),
            static_cast<long long>(o.max_positions));
    }
    return geometry;
}

}  // namespace

void check_sequence(Checker &check, const halyard_kv_cache &cache, const char *name, int64_t sequence) {
    if (!check.failed() && (sequence < 0 || sequence >= cache.n_sequences)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be in [0, %lld), the cache's n_sequences", name,
                   static_cast<long long>(sequence), static_cast<long long>(cache.n_sequences));
    }
}

// A head begins on small pages, so that a short sequence takes the memory that it fills. Huge pages follow where the
// first one could have been filled: attention reads them a twentieth faster.
void expect_positions(const halyard_kv_cache &cache, int64_t layer, int64_t sequence, int64_t tokens) {
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
    for (int64_t head = 0; head < cache.n_kv_heads && cache.owned && !cache.on_cuda && begin < end; head++) {
        const char *const data = cache.head(layer, sequence, head);
        const intptr_t first = next_page(data + begin);
        const intptr_t last = std::min(next_page(data + end), next_page(data + head_bytes + 1) - huge_page_bytes);
        if (first < last) {
            madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
        }
    }
}

}  // namespace halyard

using halyard::Checker;

halyard_status halyard_kv_cache_size(const halyard_kv_cache_options *options, int64_t *bytes) {
    Checker check("halyard_kv_cache_size");
    const halyard::CacheGeometry geometry = halyard::check_cache_options(check, options);
    if (check.not_null("bytes", bytes)) {
        *bytes = geometry.bytes;
    }
    return check.status();
}

namespace halyard {
namespace {

/** Memory for a cache where it is to lie; null, with a message, if there is none. */
char *memory_for_cache(Checker &check, DLDevice device, int64_t bytes) {
    if (type_of(device) == kDLCPU) {
        char *const memory = map_pages(bytes, false);
        if (!memory) {
            check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a cache of %lld bytes", static_cast<long long>(bytes));
        }
        return memory;
    }
    if constexpr (has_cuda) {
        return cuda::allocate(check, device.device_id, bytes);
    }
    return nullptr;
}

halyard_status create_cache(Checker &check, const halyard_kv_cache_options *options, DLDevice device, void *memory,
                            int64_t bytes, halyard_kv_cache **cache) {
    const CacheGeometry geometry = check_cache_options(check, options);
    check.not_null("cache", cache);
    if (!check.failed() && memory) {
        if (reinterpret_cast<uintptr_t>(memory) % cache_alignment != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "memory is misaligned: the address must be a multiple of %d",
                       static_cast<int>(cache_alignment));
        }
        if (bytes < geometry.bytes) {
            check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but the cache needs %lld",
                       static_cast<long long>(bytes), static_cast<long long>(geometry.bytes));
        }
    } else if (!check.failed() && bytes != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but memory is null", static_cast<long long>(bytes));
    }
    if (check.failed()) {
        return check.status();
    }
    const int64_t n_layers = options->n_layers, n_sequences = options->n_sequences;
    void *handle = malloc(sizeof(halyard_kv_cache));
    void *lengths = handle ? calloc(n_layers * n_sequences, sizeof(int64_t)) : nullptr;
    void *marks = lengths ? calloc(n_sequences, sizeof(uint64_t)) : nullptr;
    if (!marks) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for what is known of %lld sequences in %lld layers",
                   static_cast<long long>(n_sequences), static_cast<long long>(n_layers));
    }
    char *const data = check.failed() ? nullptr
                       : memory       ? static_cast<char *>(memory)
                                      : memory_for_cache(check, device, geometry.bytes);
    if (!data) {
        free(marks);
        free(lengths);
        free(handle);
        return check.status();
    }
    *cache = new (handle) halyard_kv_cache{geometry.layout,
                                           n_layers,
                                           n_sequences,
                                           options->n_kv_heads,
                                           data,
                                           geometry.bytes,
                                           memory == nullptr,
                                           static_cast<int64_t *>(lengths),
                                           static_cast<uint64_t *>(marks),
                                           0,
                                           type_of(device) == kDLCUDA,
                                           device.device_id};
    return HALYARD_OK;
}

}  // namespace
}  // namespace halyard

halyard_status halyard_kv_cache_create(const halyard_kv_cache_options *options, void *memory, int64_t bytes,
                                       halyard_kv_cache **cache) {
    Checker check("halyard_kv_cache_create");
    return halyard::create_cache(check, options, {kDLCPU, 0}, memory, bytes, cache);
}

halyard_status halyard_kv_cache_create_on_device(const halyard_kv_cache_options *options, DLDevice device, void *memory,
                                                 int64_t bytes, halyard_kv_cache **cache) {
    Checker check("halyard_kv_cache_create_on_device");
    if (halyard::type_of(device) != kDLCPU && !(halyard::has_cuda && halyard::type_of(device) == kDLCUDA)) {
        return check.fail(HALYARD_UNSUPPORTED, "device is of type %d, but must be the CPU (kDLCPU)%s",
                          halyard::type_of(device), halyard::has_cuda ? " or a CUDA device (kDLCUDA)" : "");
    }
    return halyard::create_cache(check, options, device, memory, bytes, cache);
}

void halyard_kv_cache_destroy(halyard_kv_cache *cache) {
    if (cache) {
        if (cache->owned) {
            if constexpr (halyard::has_cuda) {
                if (cache->on_cuda) {
                    halyard::cuda::release(cache->device_id, cache->data);
                }
            }
            if (!cache->on_cuda) {
                munmap(cache->data, cache->bytes);
            }
        }
        free(cache->marks);
        free(cache->lengths);
        free(cache);
    }
}

halyard_status halyard_kv_cache_get_options(const halyard_kv_cache *cache, halyard_kv_cache_options *options) {
    Checker check("halyard_kv_cache_get_options");
    check.not_null("cache", cache);
    if (check.not_null("options", options)) {
        const halyard::KvLayout &layout = cache->layout;
        const uint8_t code = layout.dtype == halyard::DType::bf16 ? kDLBfloat : kDLFloat;
        const uint8_t bits = static_cast<uint8_t>(8 * halyard::size_of(layout.dtype));
        *options = {cache->n_layers, cache->n_sequences,   cache->n_kv_heads,
                    layout.head_dim, layout.max_positions, {code, bits, 1}};
    }
    return check.status();
}

int64_t halyard_kv_cache_length(const halyard_kv_cache *cache, int64_t layer, int64_t sequence) {
    if (!cache || layer < 0 || layer >= cache->n_layers || sequence < 0 || sequence >= cache->n_sequences) {
        return -1;
    }
    return cache->length(layer, sequence);
}

halyard_status halyard_kv_cache_truncate(halyard_kv_cache *cache, int64_t sequence, int64_t length) {
    Checker check("halyard_kv_cache_truncate");
    if (!check.not_null("cache", cache)) {
        return check.status();
    }
    halyard::check_sequence(check, *cache, "sequence", sequence);
    halyard::check_range(check, "length", length, 0, cache->layout.max_positions);
    for (int64_t layer = 0; layer < cache->n_layers && !check.failed(); layer++) {
        cache->length(layer, sequence) = std::min(cache->length(layer, sequence), length);
    }
    return check.status();
}
