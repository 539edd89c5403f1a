// Calls of token embedding and its gradient, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_EMBED_H
#define HALYARD_RUNTIME_CORE_CALLS_EMBED_H

#include "core/calls/codes.h"
#include "core/calls/integers.h"
#include "core/handles/kv_cache.h"

namespace halyard {

/** y[i, t] = multiplier * tokens[id] + positions[position]: of ids[i, first + t], and of the t-th position after those that
 *  sequence i holds. In f32, and then rounded to y's dtype. */
struct EmbedCall {
    const View &tokens;
    const CodeSource &codes;  // in place of `tokens`, in a format of GGUF; `format` is null without
    const View &positions;    // `data` is null where there are none
    float multiplier;
    const Integers &ids;
    int64_t first;
    const CachedSequences &sequences;
    View y;  // [batch, tokens, width]

    int64_t id(int64_t i, int64_t t) const { return ids.at(i, first + t); }
    int64_t position(int64_t i, int64_t t) const { return sequences.length(0, i) + t; }
};

/** y[id] = what is there, or 0, + the sum of the rows of dy whose id it is, in their order. In f32. */
struct EmbedBackwardCall {
    const Integers &ids;
    const View &dy;
    bool accumulate;
    const View &y;  // [ids, width]
};

}  // namespace halyard

#endif
