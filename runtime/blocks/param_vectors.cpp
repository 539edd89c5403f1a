// Vectors that are kept: their memory, and the conversion of those for processors.
#include "blocks/param_vectors.h"

#include "core/cast.h"
#include "core/context.h"
#include "core/dltensor_view.h"
#include "cuda/ops/vectors.h"

namespace halyard {
namespace {

constexpr int64_t cache_line = 64;

/** Whole cache lines or, on a device, whole pieces of what a warp reads at once. */
int64_t vector_bytes(int64_t features, DType dtype, Place place) {
    const int64_t alignment = place.on_cuda ? 256 : cache_line;
    return (features * size_of(dtype) + alignment - 1) / alignment * alignment;
}

void convert_on_processor(const halyard_context &context, const VectorSource &source) {
    const halyard_isa isa = best_isa(context.max_isa);
    float *place = static_cast<float *>(source.target->tensor.data);
    for (int p = 0; p < source.parts; p++) {
        const View &view = source.part[p];
        if (view.data) {
            widen(isa, {view.data, view.dtype}, place, 0, source.width[p], 1);
        } else {
            std::fill_n(place, source.width[p], -0.0f);
        }
        place += source.width[p];
    }
}

}  // namespace

void KeptVector::set(void *data, DType dtype, DLDevice device, int64_t features) {
    width = features;
    tensor.data = data;
    tensor.device = device;
    tensor.ndim = 1;
    tensor.dtype = dlpack_type(dtype);
    tensor.shape = &width;
}

bool VectorSource::present() const {
    for (int i = 0; i < parts; i++) {
        if (part[i].data) {
            return true;
        }
    }
    return false;
}

int64_t VectorSource::total_width() const {
    int64_t total = 0;
    for (int i = 0; i < parts; i++) {
        total += width[i];
    }
    return total;
}

void *make_kept_vectors(Checker &check, const halyard_context &context, Place place, DType dtype,
                        const VectorSource *sources, int count, int64_t &bytes) {
    bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += sources[i].present() ? vector_bytes(sources[i].total_width(), dtype, place) : 0;
    }
    char *const memory = allocate_at(check, place, std::max(bytes, cache_line), "biases and norms");
    if (!memory) {
        return nullptr;
    }
    char *next = memory;
    for (int i = 0; i < count; i++) {
        if (sources[i].present()) {
            const int64_t width = sources[i].total_width();
            sources[i].target->set(next, dtype, place.dlpack(), width);
            next += vector_bytes(width, dtype, place);
        }
    }
    if constexpr (has_cuda) {
        if (place.on_cuda) {
            cuda::convert_vectors(check, context, place.device_id, dtype, sources, count, memory, bytes);
            return memory;
        }
    }
    for (int i = 0; i < count; i++) {
        if (sources[i].present()) {
            convert_on_processor(context, sources[i]);
        }
    }
    return memory;
}

}  // namespace halyard
