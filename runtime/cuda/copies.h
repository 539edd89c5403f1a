// Copies of memory of the process on devices, each made once.
#ifndef HALYARD_RUNTIME_CUDA_COPIES_H
#define HALYARD_RUNTIME_CUDA_COPIES_H

#include <cstdint>

#include "core/handles/device_copies.h"

namespace halyard::cuda {

class Launches;

/** The copy of `data` on the device of `launches`, which the first call makes, and waits for. Null after a failure. */
const char *copy_on_device(Launches &launches, DeviceCopies &copies, const void *data, int64_t bytes);

void free_copies(DeviceCopies &copies);

}  // namespace halyard::cuda

#endif
