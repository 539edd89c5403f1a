// Tables of angles that blocks with equal options share: one for the layers of
// a model, not one for each.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_SHARED_ROPE_H
#define HALYARD_RUNTIME_CORE_HANDLES_SHARED_ROPE_H

#include "halyard/attention.h"

namespace halyard {

/** The table for these options, which has no zeros that stand for defaults. On
 * failure null, and the status; the message is that of halyard_rope_create. */
const halyard_rope *acquire_rope(const halyard_rope_options &options, halyard_status &status);

/** The last one to release a table frees it. Null is allowed. */
void release_rope(const halyard_rope *rope);

/** Nothing changes between these two, which stand round fork(). */
void lock_shared_ropes();
void unlock_shared_ropes();

}  // namespace halyard

#endif
