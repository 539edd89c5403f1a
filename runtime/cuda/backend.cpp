// The table of functions on CUDA devices.
#include "cuda/backend.h"

#include <climits>

#include "cuda/copies.h"
#include "cuda/driver.h"
#include "cuda/launch.h"
#include "cuda/scratch.h"
#include "cuda/transfers.h"

namespace halyard {
namespace cuda {
namespace {

char *allocate_on_device(Checker &check, int device, int64_t bytes, const char *) {
    return allocate(check, device, bytes);
}

char *allocate_cache_on_device(Checker &check, int device, int64_t bytes) {
    return allocate(check, device, bytes);
}

void free_cache_on_device(int device, char *memory, int64_t) {
    release(device, memory);
}

void copy(Checker &check, const halyard_context &context, int device, const View &from, const View &to) {
    const char *const what = to.on_cuda ? "copying a tensor to the device" : "copying a tensor from the device";
    Launches launches(check, context, device);
    if (!to.on_cuda) {
        wait(launches, what);
    }
    const int row_axis = to.rank - 2;
    const int64_t size = size_of(to.dtype), row_bytes = to.width() * size, rows = to.shape[row_axis];
    const auto end_of = [&](const View &view, int64_t outer, int64_t row) {
        const int64_t offset = (row_axis > 0 ? outer * view.strides[0] : 0) + row * view.strides[row_axis];
        return CopyEnd{view.data + offset * size, view.on_cuda, view.strides[row_axis] * size};
    };
    // The driver copies several rows where they share no memory and are not 2 GB apart.
    const auto copies_together = [&](const View &view) {
        const int64_t pitch = view.strides[row_axis] * size;
        return pitch >= row_bytes && pitch <= INT_MAX;
    };
    const int64_t at_once = copies_together(from) && copies_together(to) ? rows : 1;
    for (int64_t outer = 0; outer < (row_axis > 0 ? to.shape[0] : 1); outer++) {
        for (int64_t row = 0; row < rows; row += at_once) {
            copy_rows(launches, end_of(to, outer, row), end_of(from, outer, row), row_bytes, at_once, what);
        }
    }
    wait(launches, what);
}

void fill(Checker &check, const halyard_context &context, int device, float *data, float value, int64_t count) {
    Launches launches(check, context, device);
    fill_floats(launches, data, value, count);
    wait(launches, "filling memory of the device");
}

void prepare_rope(Checker &check, const halyard_context &context, int device, const halyard_rope &rope) {
    Launches launches(check, context, device);
    copy_on_device(launches, rope.on_devices, rope.mapped, rope.mapped_bytes);
}

bool stream_is_captured(Checker &check, const halyard_context &context, int device) {
    Launches launches(check, context, device);
    return capturing(launches);
}

}  // namespace
}  // namespace cuda

const Backend cuda_backend = {
    .elementwise = cuda::elementwise,
    .norm = cuda::norm,
    .softmax = cuda::softmax,
    .norm_statistics = cuda::norm_statistics,
    .linear = cuda::linear,
    .ffn = cuda::ffn,
    .attention = cuda::attention,
    .rope = cuda::rope,
    .kv_append = cuda::kv_append,
    .kv_read = cuda::kv_read,
    .embed = cuda::embed,
    .packed_bytes = cuda::packed_bytes,
    .pack = cuda::pack,
    .free_weights = cuda::free_weights,
    .allocate = cuda::allocate_on_device,
    .free = cuda::release,
    .allocate_cache = cuda::allocate_cache_on_device,
    .free_cache = cuda::free_cache_on_device,
    .convert_vectors = cuda::convert_vectors,
    .copy = cuda::copy,
    .fill = cuda::fill,
    .prepare_rope = cuda::prepare_rope,
    .capturing = cuda::stream_is_captured,
    .take_scratch = cuda::take_scratch,
    .give_back_scratch = cuda::give_back_scratch,
    .prepare = cuda::prepare,
    .free_copies = cuda::free_copies,
    .release_scratch = cuda::release_scratch,
    .after_fork_in_child = cuda::leave_driver_to_parent,
};

}  // namespace halyard
