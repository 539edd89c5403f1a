// C functions as Python has them, where that is otherwise: arguments in another order, without some, or several together.
#ifndef HALYARD_PYTHON_CORE_ADAPTERS_H
#define HALYARD_PYTHON_CORE_ADAPTERS_H

#include "halyard/attention.h"
#include "halyard/block.h"
#include "halyard/halyard.h"
#include "parts.h"

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

/** What a Block is made of: the options of create_block(). */
struct BlockDescription {
    halyard_block_config config;
    halyard_weight_layout layout;
    halyard_quantization quantization;
    const Parts *parts;
};

inline halyard_status create_block(const halyard_context *context, BlockDescription *description,
                                   halyard_block **block) {
    halyard_block_weights weights = description->parts->block;
    weights.layout = description->layout;
    weights.quantization = description->quantization;
    return halyard_block_create(context, &description->config, &weights, block);
}

/** What a Stack is made of: the options of create_stack(). */
struct StackDescription {
    halyard_stack_config config;
    halyard_quantization quantization;
    const Parts *parts;
};

inline halyard_status create_stack(const halyard_context *context, StackDescription *description,
                                   halyard_stack **stack) {
    halyard_stack_weights weights = description->parts->stack;
    weights.quantization = description->quantization;
    return halyard_stack_create(context, &description->config, &weights, description->parts->blocks,
                                description->parts->block_count, stack);
}

}  // namespace halyard::python

#endif
