// What a stack holds.
#ifndef HALYARD_RUNTIME_BLOCKS_STACK_H
#define HALYARD_RUNTIME_BLOCKS_STACK_H

#include "blocks/block.h"

struct halyard_stack {
    halyard_stack_config config = {};
    halyard::Device device;  // of the blocks and all that follows
    halyard::DType residual_dtype = halyard::DType::f32;
    // The caller's memory or, on a device, `tables` or lm_head's matrix; `data` of the others is null without.
    halyard::View embed_tokens, embed_positions, embed_types;
    halyard::CodeSource embed_codes;  // in place of embed_tokens; `format` is null without
    halyard::Norm embed_norm, norm;
    // final_logit_softcapping [vocab_size] and its reciprocal [1] in f32, where there is one
    halyard::View softcaps, softcap_reciprocal;
    void *norm_memory = nullptr, *softcap_memory = nullptr;
    char *tables[3] = {};           // copies on the device
    halyard::PackedMatrix lm_head;  // none with no_lm_head
    const halyard_block **blocks = nullptr;
    int64_t n_layers = 0;
};

#endif
