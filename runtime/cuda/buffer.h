// A kernel's buffer argument of any rank in device memory.
#ifndef HALYARD_RUNTIME_CUDA_BUFFER_H
#define HALYARD_RUNTIME_CUDA_BUFFER_H

#include "HalideRuntime.h"

namespace halyard::cuda {

template<int rank>
class DeviceBufferOf {
public:
    DeviceBufferOf() {
        buffer_.dim = dims_;
        for (halide_dimension_t &dim : dims_) {
            dim = {0, 1, 0, 0};
        }
        dims_[0].stride = 1;
    }
    DeviceBufferOf(const DeviceBufferOf &) = delete;
    DeviceBufferOf &operator=(const DeviceBufferOf &) = delete;

    void set_data(const void *data) { buffer_.device = reinterpret_cast<uintptr_t>(data); }
    void set_dim(int dim, int64_t extent, int64_t stride) {
        dims_[dim].extent = static_cast<int32_t>(extent);
        dims_[dim].stride = static_cast<int32_t>(stride);
    }
    void *argument() { return &buffer_; }

private:
    halide_buffer_t buffer_ = {};
    halide_dimension_t dims_[rank];
};

}  // namespace halyard::cuda

#endif
