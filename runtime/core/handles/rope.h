// The handle of rotary position embedding: its table of cosines and sines.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_ROPE_H
#define HALYARD_RUNTIME_CORE_HANDLES_ROPE_H

#include "core/check.h"
#include "core/dispatch.h"
#include "core/handles/device_copies.h"
#include "halyard/attention.h"

struct halyard_rope {
    halyard_rope_options options;  // with rotary_dim filled in
    const float *cosines, *sines;  // [position][rotary_dim / 2]
    void *mapped;                  // where both lie
    int64_t mapped_bytes;
    mutable halyard::DeviceCopies on_devices;  // of `mapped`

    /** Pairs of features that turn together. */
    int64_t pairs() const { return options.rotary_dim / 2; }
};

namespace halyard {

constexpr int64_t max_rope_head_dim = 1024;

/** A table for options that are checked here; null after a failure. */
halyard_rope *make_rope(Checker &check, const halyard_rope_options &options);

/** Null is allowed. */
void free_rope(halyard_rope *rope);

}  // namespace halyard

#endif
