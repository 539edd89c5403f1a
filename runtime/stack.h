// What a stack holds.
#ifndef HALYARD_RUNTIME_STACK_H
#define HALYARD_RUNTIME_STACK_H

#include "block.h"

struct halyard_stack {
    halyard_stack_config config = {};
    halyard::View embed_tokens, embed_positions;  // the caller's memory; `data` of the second is null without
    halyard::NormVectors norm;
    float *vectors = nullptr;  // what `norm` points into
    halyard_weights *lm_head = nullptr;
    float *softcaps = nullptr;  // [vocab_size] times final_logit_softcapping, where there is one
    const halyard_block **blocks = nullptr;
    int64_t n_layers = 0;

    halyard::NormKind norm_kind() const { return {config.norm, config.rms_norm_eps, config.norm_flags}; }
};

#endif
