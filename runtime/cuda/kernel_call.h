// Kernels of devices with the names and types of their arguments: as core/kernel_call.h, with buffers in device memory.
#ifndef HALYARD_RUNTIME_CUDA_KERNEL_CALL_H
#define HALYARD_RUNTIME_CUDA_KERNEL_CALL_H

#include "core/kernel_call.h"

namespace halyard::cuda {

template<int rank, typename Element = Stored>
using Buffer = BufferIn<Memory::device, rank, Element>;
template<int rank, typename Element = Stored>
using BufferArgument = BufferArgumentIn<Memory::device, rank, Element>;

#include "kernels/device_calls.inc"

}  // namespace halyard::cuda

#endif
