// Places, whether they go together, and their memory.
#include "core/device.h"

#include <cstdio>

#include "core/backend.h"

namespace halyard {

DeviceName::DeviceName(Device device) {
    snprintf(text_, sizeof(text_), device.on_cuda ? "CUDA device %d" : "the CPU", device.device_id);
}

void check_device(Checker &check, const char *name, Device device, const char *other_name, Device other,
                  const char *is) {
    if (!check.failed() && device != other) {
        check.fail(HALYARD_UNSUPPORTED, "%s %s %s, but %s is on %s", name, is, DeviceName(device).get(), other_name,
                   DeviceName(other).get());
    }
}

Device choose_device(Checker &check, const char *tensor_name, DLDevice tensor, DLDevice wanted) {
    if (check.failed()) {
        return {};
    }
    const DLDevice chosen = type_of(wanted) == 0 ? tensor : wanted;
    const bool from_cuda = has_cuda && type_of(tensor) == kDLCUDA;
    if (type_of(chosen) == kDLCUDA && !has_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "device is a CUDA device, but this library was built without CUDA kernels");
    } else if (type_of(chosen) != kDLCPU && type_of(chosen) != kDLCUDA && type_of(wanted) != 0) {
        check.fail(HALYARD_UNSUPPORTED, "device has type %d, but must be the CPU (kDLCPU) or a CUDA device (kDLCUDA)",
                   type_of(chosen));
    } else if (from_cuda && (type_of(chosen) != kDLCUDA || chosen.device_id != tensor.device_id)) {
        check.fail(HALYARD_UNSUPPORTED, "%s is on CUDA device %d, from which it cannot be packed for another device",
                   tensor_name, tensor.device_id);
    }
    return {has_cuda && type_of(chosen) == kDLCUDA, chosen.device_id};
}

char *allocate_at(Checker &check, Device device, int64_t bytes, const char *what) {
    if (check.failed()) {
        return nullptr;
    }
    return backend_of(device.on_cuda).allocate(check, device.device_id, bytes, what);
}

void free_at(Device device, void *memory) {
    if (memory) {
        backend_of(device.on_cuda).free(device.device_id, memory);
    }
}

}  // namespace halyard
