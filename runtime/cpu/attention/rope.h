// The rotation of one token on the processor.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ROPE_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ROPE_H

#include "core/handles/rope.h"

namespace halyard {

/** Rotates one token's heads, f32: y may be x; pitches in floats from head to head. Features that are not rotated are
 *  copied. */
void rotate(halyard_isa isa, const halyard_rope &rope, int64_t position, const float *x, int64_t x_pitch, int64_t heads,
            float *y, int64_t y_pitch);

}  // namespace halyard

#endif
