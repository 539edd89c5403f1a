// Rotary position embedding: the table of cosines and sines, and the rotation of one token.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_ROPE_H
#define HALYARD_RUNTIME_CORE_HANDLES_ROPE_H

#include "core/dispatch.h"
#include "cuda/copies.h"
#include "halyard/attention.h"

struct halyard_rope {
    halyard_rope_options options;  // with rotary_dim filled in
    const float *cosines, *sines;  // [position][rotary_dim / 2]
    void *mapped;                  // where both lie
    int64_t mapped_bytes;
    mutable halyard::cuda::DeviceCopies on_devices;  // of `mapped`

    /** Pairs of features that turn together. */
    int64_t pairs() const { return options.rotary_dim / 2; }
};

namespace halyard {

/** The kernel that copies elements of a dtype. */
constexpr Kernel copy_kernel(DType dtype) {
    constexpr Kernel to[] = {
#define HALYARD_DTYPE(name) Kernel::cast_to_##name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    };
    return to[static_cast<int>(dtype)];
}

/** Rotates one token's heads, f32: y may be x; pitches in floats from head to head. Features that are not rotated are
 *  copied. */
void rotate(halyard_isa isa, const halyard_rope &rope, int64_t position, const float *x, int64_t x_pitch, int64_t heads,
            float *y, int64_t y_pitch);

}  // namespace halyard

#endif
