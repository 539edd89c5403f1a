// Where memory is: of the process, or of a CUDA device.
#ifndef HALYARD_RUNTIME_CORE_DEVICE_H
#define HALYARD_RUNTIME_CORE_DEVICE_H

#include "core/check.h"

namespace halyard {

struct Device {
    bool on_cuda = false;
    int device_id = 0;  // of the CUDA device

    bool operator==(const Device &other) const {
        return on_cuda == other.on_cuda && (!on_cuda || device_id == other.device_id);
    }
    bool operator!=(const Device &other) const { return !(*this == other); }
    DLDevice dlpack() const { return {on_cuda ? kDLCUDA : kDLCPU, on_cuda ? device_id : 0}; }
};

/** The device of a tensor, a cache or packed weights. */
template<typename Thing>
Device device_of(const Thing &thing) {
    return {thing.on_cuda, thing.device_id};
}

/** A device in words. */
class DeviceName {
public:
    explicit DeviceName(Device device);
    const char *get() const { return text_; }

private:
    char text_[32];
};

/** Refuses a thing that is not where another is. `is`: how it came there. */
void check_device(Checker &check, const char *name, Device device, const char *other_name, Device other,
                  const char *is = "is on");

/** Where something is to be made of a tensor: `wanted` or, where that is all zero, where the tensor is. What is on a
 *  device cannot be made elsewhere. */
Device choose_device(Checker &check, const char *tensor_name, DLDevice tensor, DLDevice wanted);

/** Memory at whole cache lines; null, with a message, if there is none for `what`. */
char *allocate_at(Checker &check, Device device, int64_t bytes, const char *what);
/** Frees it when calls on a device are done with it. Null is allowed. */
void free_at(Device device, void *memory);

}  // namespace halyard

#endif
