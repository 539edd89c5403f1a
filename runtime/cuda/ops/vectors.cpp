// Parameter vectors by kernels that convert: what is in memory of the process is copied to the device as it is before.
#include <algorithm>

#include "core/view.h"
#include "core/workspace.h"
#include "cuda/ops/operations.h"
#include "cuda/transfers.h"

namespace halyard::cuda {

void convert_vectors(Checker &check, const halyard_context &context, int ordinal, const ParamSource *sources,
                     int count) {
    const halyard::Device device = {true, ordinal};
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
    Workspace workspace(context, device);
    const auto staged = workspace.book(staged_bytes);
    if (!workspace.allocate(check)) {
        return;
    }
    for (int i = 0; i < count; i++) {
        const ParamSource &source = sources[i];
        if (!source.present()) {
            continue;
        }
        const DType dtype = source.target->dtype;
        const unsigned negative_zeros = dtype == DType::f32 ? 0x80000000u : 0x80008000u;
        char *to = source.target->data;
        // An odd half of a word more lies within the vector's memory, which is whole pieces.
        fill_words(launches, to, negative_zeros, (source.total_width() * size_of(dtype) + 3) / 4 * 4);
        for (int p = 0; p < source.parts; p++) {
            const View &part = source.part[p];
            const int64_t width = source.width[p];
            if (part.data && !part.on_cuda) {
                copy_bytes(launches, {workspace[staged], true, 0}, {part.data, false, 0}, width * size_of(part.dtype),
                           "copying a vector to the device");
            }
            if (part.data && !check.failed()) {
                char *const from = part.on_cuda ? part.data : workspace[staged];
                cast(check, context, view_of(from, part.dtype, device, {width}, {1}),
                     view_of(to, dtype, device, {width}, {1}));
            }
            to += width * size_of(dtype);
        }
    }
    // The sources may be gone when this has returned, and the memory may be used in another stream.
    wait(launches, "converting vectors");
}

}  // namespace halyard::cuda
