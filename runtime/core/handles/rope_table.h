// The cosines and sines of rotary position embedding.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_ROPE_TABLE_H
#define HALYARD_RUNTIME_CORE_HANDLES_ROPE_TABLE_H

#include "halyard/attention.h"

namespace halyard {

/** Fills [max_positions][rotary_dim / 2] each, on the default context's threads. The options are in order.
 *
 *  Angles err by less than 2^-50 + position * 2^-57, so that an entry is within half an ULP of the true one but for
 *  that. */
void fill_rope_table(const halyard_rope_options &options, float *cosines, float *sines);

}  // namespace halyard

#endif
