// Parameter vectors one after another in one piece of memory.
#include "blocks/param_vectors.h"

#include <algorithm>

#include "core/view.h"

namespace halyard {
namespace {

constexpr int64_t cache_line = 64;

/** Whole cache lines or, on a device, whole pieces of what a warp reads at once. */
int64_t vector_bytes(const ParamSource &source, DType dtype, Device device) {
    const int64_t alignment = device.on_cuda ? 256 : cache_line;
    const int64_t bytes = source.total_width() * size_of(source.dtype_for(dtype));
    return source.present() ? (bytes + alignment - 1) / alignment * alignment : 0;
}

}  // namespace

void *make_param_vectors(Checker &check, const halyard_context &context, Device device, DType dtype,
                         const ParamSource *sources, int count, int64_t &bytes) {
    bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += vector_bytes(sources[i], dtype, device);
    }
    char *const memory = allocate_at(check, device, std::max(bytes, cache_line), "biases and norms");
    char *next = memory;
    for (int i = 0; i < count && memory; i++) {
        if (sources[i].present()) {
            *sources[i].target = view_of(next, sources[i].dtype_for(dtype), device, {sources[i].total_width()}, {1});
            next += vector_bytes(sources[i], dtype, device);
        }
    }
    if (memory) {
        backend_of(device.on_cuda).convert_vectors(check, context, device.device_id, sources, count);
    }
    return memory;
}

void check_vectors_present(Checker &check, const ParamSource *sources, const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        const bool had = sources[i].target->data != nullptr;
        if (!check.failed() && sources[i].present() != had) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s: %s, but there was %s when it was made", names[i],
                       had ? "null" : "given", had ? "one" : "none");
        }
    }
}

}  // namespace halyard
