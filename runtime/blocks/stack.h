// What a stack holds.
#ifndef HALYARD_RUNTIME_BLOCKS_STACK_H
#define HALYARD_RUNTIME_BLOCKS_STACK_H

#include "blocks/block.h"

struct halyard_stack {
    halyard_stack_config config = {};
    halyard::Place place;                         // of the blocks and all that follows
    halyard::DType stream = halyard::DType::f32;  // of the residual stream and the vectors of `norm`
    // The caller's memory or, on a device, `tables` or lm_head's matrix; `data` of the second is null without.
    halyard::View embed_tokens, embed_positions;
    halyard::NormVectors norm;
    halyard::KeptVector softcaps;  // [vocab_size] times final_logit_softcapping in f32, where there is one
    void *norm_memory = nullptr, *softcap_memory = nullptr;
    char *tables[2] = {};  // copies on the device
    halyard_weights *lm_head = nullptr;
    const halyard_block **blocks = nullptr;
    int64_t n_layers = 0;

    halyard::NormKind norm_kind() const { return {config.norm, config.rms_norm_eps, config.norm_flags}; }
};

#endif
