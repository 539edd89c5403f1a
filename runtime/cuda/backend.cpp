// The table of functions on CUDA devices.
#include "cuda/backend.h"

#include "cuda/copies.h"
#include "cuda/driver.h"
#include "cuda/launch.h"
#include "cuda/scratch.h"
#include "cuda/transfers.h"

namespace halyard {
namespace {

char *allocate_on_device(Checker &check, int device, int64_t bytes, const char *) {
    return cuda::allocate(check, device, bytes);
}

char *allocate_cache_on_device(Checker &check, int device, int64_t bytes) {
    return cuda::allocate(check, device, bytes);
}

void free_cache_on_device(int device, char *memory, int64_t) {
    cuda::release(device, memory);
}

}  // namespace

const Backend cuda_backend = {cuda::elementwise,
                              cuda::norm,
                              cuda::softmax,
                              cuda::norm_statistics,
                              cuda::linear,
                              cuda::ffn,
                              cuda::attention,
                              cuda::rope,
                              cuda::kv_append,
                              cuda::kv_read,
                              cuda::packed_bytes,
                              cuda::pack,
                              cuda::free_weights,
                              allocate_on_device,
                              cuda::release,
                              allocate_cache_on_device,
                              free_cache_on_device,
                              cuda::prepare,
                              cuda::free_copies,
                              cuda::release_scratch,
                              cuda::leave_driver_to_parent};

}  // namespace halyard
