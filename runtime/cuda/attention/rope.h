// Rotary position embedding of tensors of a CUDA device, their arguments checked. Returns when the work is in the
// stream.
#ifndef HALYARD_RUNTIME_CUDA_ATTENTION_ROPE_H
#define HALYARD_RUNTIME_CUDA_ATTENTION_ROPE_H

#include "core/handles/rope.h"
#include "cuda/heads.h"

namespace halyard::cuda {

/** Where the tokens are. Strides count positions. */
struct DevicePositions {
    const char *data = nullptr;  // int32 or int64, in memory of the device; null: token t has position first + t
    bool wide = false;           // int64
    int64_t batch_stride = 0, token_stride = 0;
    int64_t first = 0;
};

/** y may be x. A token whose position the table does not have becomes NaN. */
void rotate(Checker &check, const halyard_context &context, int ordinal, const halyard_rope &rope,
            const DevicePositions &positions, const DeviceHeads &x, const DeviceHeads &y);

}  // namespace halyard::cuda

#endif
