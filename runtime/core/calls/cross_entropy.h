// A call of cross entropy, its arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_CROSS_ENTROPY_H
#define HALYARD_RUNTIME_CORE_CALLS_CROSS_ENTROPY_H

#include "core/calls/integers.h"

namespace halyard {

/** Which targets count. */
struct CountedTargets {
    const Integers &targets;
    const int64_t *ignored;  // null: all count

    bool counts(int64_t target) const { return !ignored || target != *ignored; }
};

/** losses = -log(softmax(logits)[target]) and dlogits = scale (softmax(logits) - one_hot(target)), row by row, in f32; 0 where a
 *  target does not count. Losses and dlogits are empty where they are not wanted. */
struct CrossEntropyCall {
    const View &logits;
    const CountedTargets &counted;
    float scale;
    const View &losses, &dlogits;
    const View &y = dlogits.data ? dlogits : losses;
};

}  // namespace halyard

#endif
