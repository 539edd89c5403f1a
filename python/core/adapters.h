// C functions with the arguments in the order that Python has them, where it has another, and without those it does not offer.
#ifndef HALYARD_PYTHON_CORE_ADAPTERS_H
#define HALYARD_PYTHON_CORE_ADAPTERS_H

#include "halyard/attention.h"
#include "halyard/halyard.h"

namespace halyard::python {

/** Python has the matrix first, with a gate beside it; C has the gate first, with `up` beside it. */
inline const DLTensor *order_gate(const DLTensor *matrix, halyard_pack_options *options) {
    const DLTensor *gate = options->up;
    if (gate == nullptr) {
        return matrix;
    }
    options->up = matrix;
    return gate;
}

inline halyard_status pack_weights(const halyard_context *context, const DLTensor *matrix,
                                   halyard_pack_options *options, halyard_weights **weights) {
    const DLTensor *first = order_gate(matrix, options);
    return halyard_weights_pack(context, first, options, nullptr, 0, weights);
}

inline halyard_status update_weights(const halyard_context *context, halyard_weights *weights, const DLTensor *matrix,
                                     halyard_pack_options *options) {
    const DLTensor *first = order_gate(matrix, options);
    return halyard_weights_update(context, weights, first, options);
}

inline halyard_status pack_codes(const halyard_context *context, const halyard_codes *codes,
                                 halyard_weights **weights) {
    return halyard_weights_pack_codes(context, codes, nullptr, nullptr, 0, weights);
}

inline halyard_status create_cache(const halyard_kv_cache_options *options, halyard_kv_cache **cache) {
    return halyard_kv_cache_create(options, nullptr, 0, cache);
}

inline halyard_status truncate_cache(halyard_kv_cache *cache, int64_t length, int64_t sequence) {
    return halyard_kv_cache_truncate(cache, sequence, length);
}

}  // namespace halyard::python

#endif
