// Conversion of vectors to f32.
#include "wide_vector.h"

#include <stdlib.h>

#include "rows.h"

namespace halyard {
namespace {

constexpr int64_t cache_line = 64;

/** Whole cache lines. */
int64_t vector_bytes(int64_t floats) {
    return (floats * static_cast<int64_t>(sizeof(float)) + cache_line - 1) / cache_line * cache_line;
}

}  // namespace

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

float *make_wide_vectors(const halyard_context &context, const VectorSource *sources, int count, int64_t &bytes) {
    bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += sources[i].present() ? vector_bytes(sources[i].total_width()) : 0;
    }
    void *block = nullptr;
    if (posix_memalign(&block, cache_line, static_cast<size_t>(std::max(bytes, cache_line))) != 0) {
        return nullptr;
    }
    char *memory = static_cast<char *>(block);
    const halyard_isa isa = best_isa(context.max_isa);
    for (int i = 0; i < count; i++) {
        const VectorSource &source = sources[i];
        if (!source.present()) {
            continue;
        }
        WideVector &target = *source.target;
        target.width = source.total_width();
        target.tensor.data = memory;
        target.tensor.device = {kDLCPU, 0};
        target.tensor.ndim = 1;
        target.tensor.dtype = {kDLFloat, 32, 1};
        target.tensor.shape = &target.width;
        float *place = reinterpret_cast<float *>(memory);
        for (int p = 0; p < source.parts; p++) {
            const View &view = source.part[p];
            if (view.data) {
                Buffer from, to;
                void *arguments[] = {from.argument(), to.argument()};
                from.set(view.data, source.width[p], 1, 0);
                to.set(place, source.width[p], 1, 0);
                kernel_function(Kernel::cast_to_f32, view.dtype, isa)(arguments);
            } else {
                std::fill_n(place, source.width[p], -0.0f);
            }
            place += source.width[p];
        }
        memory += vector_bytes(target.width);
    }
    return static_cast<float *>(block);
}

}  // namespace halyard
