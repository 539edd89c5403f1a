// Keys and values between f32 rows and the panels of a cache.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_KV_PACK_H
#define HALYARD_RUNTIME_CPU_ATTENTION_KV_PACK_H

#include "core/dispatch.h"
#include "layout/kv.h"

namespace halyard {

/** Stores `count` positions of one head from f32 rows, on the calling thread. Pitches in floats from position to
 *  position; k or v may be null. */
void store_keys_values(halyard_isa isa, const KvLayout &layout, char *head, int64_t first_position, int64_t count,
                       const float *k, int64_t k_pitch, const float *v, int64_t v_pitch);

/** The inverse: positions of one head as f32 rows. k or v may be null. */
void load_keys_values(halyard_isa isa, const KvLayout &layout, const char *head, int64_t first_position, int64_t count,
                      float *k, int64_t k_pitch, float *v, int64_t v_pitch);

}  // namespace halyard

#endif
