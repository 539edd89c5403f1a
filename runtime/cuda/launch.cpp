// Launches, and the functions that the host code of Halide's kernels calls, which here do nothing but launch.
#include "cuda/launch.h"

#include "HalideRuntime.h"

namespace halyard::cuda {

Launches::Launches(Checker &check, const halyard_context &context, int ordinal)
    : check_(check), ordinal_(ordinal), driver_(cuda::driver(check)),
      stream_(static_cast<Stream>(context.cuda_stream)) {
    if (!driver_) {
        return;
    }
    device_ = cuda::device(check, *driver_, ordinal);
    if (!device_) {
        return;
    }
    Context current = nullptr;
    if (driver_->context_current(&current) != success || current != device_->context) {
        pushed_ = succeeded(check, *driver_, driver_->context_push(device_->context), "making the context current");
    }
}

Launches::~Launches() {
    if (pushed_) {
        Context popped;
        driver_->context_pop(&popped);
    }
}

Function Launches::load(Kernel kernel, DType dtype, Access access) {
    return check_.failed() ? nullptr : function(check_, *driver_, *device_, kernel, dtype, access);
}

void Launches::run(Kernel kernel, DType dtype, Access access, void **arguments) {
    if (check_.failed()) {
        return;
    }
    kernel_ = kernel;
    dtype_ = dtype;
    access_ = access;
    host_function(kernel, dtype, access)(arguments);
}

int Launches::launch(const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared_bytes, const size_t *sizes,
                     void **arguments, const int8_t *is_buffer) {
    constexpr int max_parameters = 64;
    void *parameters[max_parameters];
    int count = 0;
    for (; sizes[count] != 0 && count < max_parameters; count++) {
        parameters[count] =
            is_buffer[count] ? &static_cast<halide_buffer_t *>(arguments[count])->device : arguments[count];
    }
    const Function f = load(kernel_, dtype_, access_);
    if (!f) {
        return -1;
    }
    const Result launched = driver_->launch(f, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes,
                                            stream_, parameters, nullptr);
    return succeeded(check_, *driver_, launched, "launching a kernel") ? 0 : -1;
}

void prepare(Checker &check, int ordinal) {
    Launches launches(check, context_or_default(nullptr), ordinal);
    for (int k = 0; k < kernel_count; k++) {
        for (int d = 0; d < dtype_count; d++) {
            for (const Access access : {Access::words, Access::elements, Access::staged}) {
                if (host_function(static_cast<Kernel>(k), static_cast<DType>(d), access)) {
                    launches.load(static_cast<Kernel>(k), static_cast<DType>(d), access);
                }
            }
        }
    }
}

}  // namespace halyard::cuda

extern "C" {

int halide_cuda_initialize_kernels(void *, void **, const char *, int) {
    return 0;
}

void halide_cuda_finalize_kernels(void *, void *) {}

int halide_cuda_run(void *launches, void *, const char *, int grid_x, int grid_y, int grid_z, int block_x, int block_y,
                    int block_z, int shared_bytes, size_t *sizes, void **arguments, int8_t *is_buffer) {
    const unsigned grid[3] = {unsigned(grid_x), unsigned(grid_y), unsigned(grid_z)};
    const unsigned block[3] = {unsigned(block_x), unsigned(block_y), unsigned(block_z)};
    return static_cast<halyard::cuda::Launches *>(launches)->launch(grid, block, unsigned(shared_bytes), sizes,
                                                                    arguments, is_buffer);
}

const halide_device_interface_t *halide_cuda_device_interface() {
    return nullptr;
}

int halide_copy_to_device(void *, halide_buffer_t *, const halide_device_interface_t *) {
    return 0;
}
}
