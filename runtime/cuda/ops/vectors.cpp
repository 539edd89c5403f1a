// Vectors by kernels that convert: what is in memory of the process is copied to the device as it is before.
#include "cuda/ops/vectors.h"

#include "core/handles/rope.h"
#include "cuda/heads.h"
#include "cuda/transfers.h"

namespace halyard::cuda {

void convert_vectors(Checker &check, const halyard_context &context, int ordinal, DType dtype,
                     const VectorSource *sources, int count, char *memory, int64_t bytes) {
    int64_t staged_bytes = 0;
    for (int i = 0; i < count; i++) {
        for (int p = 0; p < sources[i].parts; p++) {
            const View &part = sources[i].part[p];
            if (part.data && !part.on_cuda) {
                staged_bytes = std::max(staged_bytes, sources[i].width[p] * size_of(part.dtype));
            }
        }
    }
    Launches launches(check, context, ordinal);
    DeviceScratch scratch(launches, DeviceScratch::piece_bytes(staged_bytes));
    char *const staged = scratch.take(staged_bytes);
    const unsigned negative_zeros = dtype == DType::f32 ? 0x80000000u : 0x80008000u;
    fill_words(launches, memory, negative_zeros, bytes);
    for (int i = 0; i < count && !check.failed(); i++) {
        const VectorSource &source = sources[i];
        char *to = static_cast<char *>(source.target->tensor.data);
        for (int p = 0; p < source.parts && source.present(); p++) {
            const View &part = source.part[p];
            const int64_t width = source.width[p];
            if (part.data) {
                if (!part.on_cuda) {
                    copy_bytes(launches, {staged, true, 0}, {part.data, false, 0}, width * size_of(part.dtype),
                               "copying a vector to the device");
                }
                const View from = view_of(part.on_cuda ? part.data : staged, part.dtype, ordinal, {width}, {1});
                if (!check.failed()) {
                    cast(check, context, from, view_of(to, dtype, ordinal, {width}, {1}));
                }
            }
            to += width * size_of(dtype);
        }
    }
    // The sources may be gone when this has returned, and the memory may be used in another stream.
    wait(launches, "converting vectors");
}

}  // namespace halyard::cuda
