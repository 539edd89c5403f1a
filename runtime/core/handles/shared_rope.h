// Tables of angles that blocks with equal options share: one for the layers of a model, not one for each.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_SHARED_ROPE_H
#define HALYARD_RUNTIME_CORE_HANDLES_SHARED_ROPE_H

#include "core/handles/rope.h"

namespace halyard {

/** The table for these options, which has no zeros that stand for defaults. Null after a failure. */
const halyard_rope *acquire_rope(Checker &check, const halyard_rope_options &options);

/** The last one to release a table frees it. Null is allowed. */
void release_rope(const halyard_rope *rope);

}  // namespace halyard

#endif
