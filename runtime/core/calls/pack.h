// What a matrix is packed from.
#ifndef HALYARD_RUNTIME_CORE_CALLS_PACK_H
#define HALYARD_RUNTIME_CORE_CALLS_PACK_H

#include "core/handles/packed_weights.h"

namespace halyard {

/** The checked sources of a packed matrix. */
struct PackSources {
    View weight, up, norm_weight, norm_bias;  // `data` is null where there is none
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    bool gated = false, norm_folded = false, unit_offset = false;
    int64_t in_features = 0, out_features = 0;
    // Where the packed matrix is to be.
    bool to_cuda = false;
    int device_id = 0;
    Geometry geometry = {};  // of the packed form for processors
};

}  // namespace halyard

#endif
