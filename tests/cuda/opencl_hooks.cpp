// What the host code of OpenCL kernels calls: their launches go the way of the CUDA ones.
#include "HalideRuntime.h"

extern "C" {

int halide_cuda_run(void *user_context, void *state, const char *entry, int grid_x, int grid_y, int grid_z, int block_x,
                    int block_y, int block_z, int shared_bytes, size_t *sizes, void **arguments, int8_t *is_buffer);

int halide_opencl_run(void *user_context, void *state, const char *entry, int grid_x, int grid_y, int grid_z,
                      int block_x, int block_y, int block_z, int shared_bytes, size_t *sizes, void **arguments,
                      int8_t *is_buffer) {
    return halide_cuda_run(user_context, state, entry, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                           sizes, arguments, is_buffer);
}

int halide_opencl_initialize_kernels(void *, void **, const char *, int) {
    return 0;
}

void halide_opencl_finalize_kernels(void *, void *) {}

const halide_device_interface_t *halide_opencl_device_interface() {
    return nullptr;
}
}
