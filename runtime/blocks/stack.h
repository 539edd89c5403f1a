// What a stack holds, and what its functions share.
#ifndef HALYARD_RUNTIME_BLOCKS_STACK_H
#define HALYARD_RUNTIME_BLOCKS_STACK_H

#include "blocks/block.h"
#include "core/calls/integers.h"

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
    bool tied = false;              // lm_head is embed_tokens
    const halyard_block **blocks = nullptr;
    int64_t n_layers = 0;
};

namespace halyard {

/** The kinds of the tokens, all 0 where none are given. */
Integers check_types(Checker &check, const DLTensor *types, const Integers &ids, bool has_types);

/** What a call writes: [width] for each sequence or, if `all`, for each token. */
struct ResultKind {
    const char *name;
    bool all;
    int64_t width;
    const char *width_name;
    bool is_logits;
};

/** As [batch, 1 or T, width]. */
View check_result(Checker &check, const ResultKind &kind, const DLTensor *result, const Integers &ids);

/** Refuses a cache that does not fit, and more tokens than there are positions. */
void check_stack_call(Checker &check, const halyard_stack &stack, const CachedSequences &sequences, int64_t tokens);

/** logits = lm_head(hidden), with soft caps. `in_f32`: the same as logits or, where soft caps come before they are rounded, a tensor like
 *  them. `sums`: empty, or f32, what the tanh of soft caps is applied to. */
void run_lm_head(Checker &check, const halyard_context *context, const halyard_stack &stack, const View &hidden,
                 bool rounded, const View &sums, const View &in_f32, const View &logits);

}  // namespace halyard

#endif
