// The cache of keys and values: the public functions.
#include "core/handles/kv_cache.h"

#include <cstdlib>
#include <new>

#include "core/backend.h"
#include "core/view.h"

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

}  // namespace
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
    const bool on_cuda = type_of(device) == kDLCUDA;
    void *handle = malloc(sizeof(halyard_kv_cache));
    void *lengths = handle ? calloc(n_layers * n_sequences, sizeof(int64_t)) : nullptr;
    if (!lengths) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for what is known of %lld sequences in %lld layers",
                   static_cast<long long>(n_sequences), static_cast<long long>(n_layers));
    }
    char *const data = check.failed() ? nullptr
                       : memory       ? static_cast<char *>(memory)
                                      : backend_of(on_cuda).allocate_cache(check, device.device_id, geometry.bytes);
    if (!data) {
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
                                           on_cuda,
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
    if (halyard::type_of(device) != kDLCPU && !(halyard::device_backend() && halyard::type_of(device) == kDLCUDA)) {
        return check.fail(HALYARD_UNSUPPORTED, "device is of type %d, but must be the CPU (kDLCPU)%s",
                          halyard::type_of(device), halyard::device_backend() ? " or a CUDA device (kDLCUDA)" : "");
    }
    return halyard::create_cache(check, options, device, memory, bytes, cache);
}

void halyard_kv_cache_destroy(halyard_kv_cache *cache) {
    if (cache) {
        if (cache->owned) {
            halyard::backend_of(cache->on_cuda).free_cache(cache->device_id, cache->data, cache->bytes);
        }
        free(cache->lengths);
        free(cache);
    }
}

halyard_status halyard_kv_cache_get_options(const halyard_kv_cache *cache, halyard_kv_cache_options *options) {
    Checker check("halyard_kv_cache_get_options");
    check.not_null("cache", cache);
    if (check.not_null("options", options)) {
        const halyard::KvLayout &layout = cache->layout;
        *options = {cache->n_layers, cache->n_sequences,   cache->n_kv_heads,
                    layout.head_dim, layout.max_positions, halyard::dlpack_type(layout.dtype)};
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

halyard_status halyard_kv_cache_append(const halyard_context *context, halyard_kv_cache *cache, int64_t layer,
                                       const int64_t *sequences, const DLTensor *k, const DLTensor *v) {
    using namespace halyard;
    Checker check("halyard_kv_cache_append", Devices::cpu_or_cuda);
    check.set_context(context);
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
    CacheAppend append({cache, sequences, batch}, layer, 1);
    check_append(check, append.sequences(), layer, tokens);
    if (!check.failed() && !ks.empty()) {
        append.run(check, layer, tokens, [&] {
            backend_of(cache->on_cuda)
                .kv_append(check, context_or_default(context), {cache, layer, sequences, Heads(ks), Heads(vs)});
        });
    }
    return check.status();
}

halyard_status halyard_kv_cache_read(const halyard_context *context, const halyard_kv_cache *cache, int64_t layer,
                                     int64_t sequence, int64_t first, DLTensor *k, DLTensor *v) {
    using namespace halyard;
    Checker check("halyard_kv_cache_read", Devices::cpu_or_cuda);
    check.set_context(context);
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
    const Heads none;
    backend_of(cache->on_cuda)
        .kv_read(check, context_or_default(context),
                 {cache, layer, sequence, first, k ? Heads(ks) : none, v ? Heads(vs) : none});
    return check.status();
}
