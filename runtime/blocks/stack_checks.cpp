// The checks of a call's arguments that the functions of a stack share, and the output projection.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "blocks/stack.h"
#include "core/view.h"

namespace halyard {

Integers check_types(Checker &check, const DLTensor *types, const Integers &ids, bool has_types) {
    if (!types) {
        static const int64_t zero = 0;
        Integers zeros = ids;
        zeros.data = reinterpret_cast<const char *>(&zero);
        zeros.is_int64 = true;
        zeros.batch_stride = zeros.token_stride = 0;
        std::fill(std::begin(zeros.strides), std::end(zeros.strides), 0);
        zeros.memory = View();
        return zeros;
    }
    const Integers checked = check_integers(check, "token_types", types);
    if (!check.failed() && !has_types) {
        check.fail(HALYARD_INVALID_ARGUMENT, "token_types is given, but the stack has no embed_types");
    } else if (!check.failed() &&
               (checked.rank != ids.rank || checked.batch != ids.batch || checked.tokens != ids.tokens)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "token_types has another shape than input_ids");
    }
    return checked;
}

View check_result(Checker &check, const ResultKind &kind, const DLTensor *result, const Integers &ids) {
    const View given = check.output(kind.name, result);
    const int rank = (ids.rank == 2) + kind.all + 1;
    if (!check.failed() && given.rank != rank) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have rank %d: %s", kind.name, given.rank, rank,
                   kind.all ? "an axis more than input_ids" : "that of input_ids, without all_logits");
    }
    const struct {
        bool present;
        int64_t extent;
        const char *of;
    } axes[] = {{ids.rank == 2, ids.batch, "the batch of input_ids"},
                {kind.all, ids.tokens, "the tokens of input_ids"},
                {true, kind.width, kind.width_name}};
    View view = given;
    view.rank = 3;
    int axis = 0;
    for (int i = 0; i < 3 && !check.failed(); i++) {
        view.shape[i] = axes[i].present ? axes[i].extent : 1;
        view.strides[i] = axes[i].present ? given.strides[axis] : 0;
        if (axes[i].present && given.shape[axis] != axes[i].extent) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s has extent %lld on axis %d, but must have %lld, %s", kind.name,
                       static_cast<long long>(given.shape[axis]), axis, static_cast<long long>(axes[i].extent),
                       axes[i].of);
        }
        axis += axes[i].present;
    }
    return view;
}

void check_stack_call(Checker &check, const halyard_stack &stack, const CachedSequences &sequences, int64_t tokens) {
    check_sequences(check, sequences);
    if (check.failed()) {
        return;
    }
    const halyard_kv_cache *const cache = sequences.cache;
    if (cache && cache->n_layers < stack.n_layers) {
        check.fail(HALYARD_INVALID_ARGUMENT, "cache has %lld layers, but the stack has %lld",
                   static_cast<long long>(cache->n_layers), static_cast<long long>(stack.n_layers));
        return;
    }
    for (int64_t i = 0; i < (cache ? sequences.batch : 1) && !check.failed(); i++) {
        const int64_t length = sequences.length(0, i);
        for (int64_t layer = 1; layer < stack.n_layers && cache && !check.failed(); layer++) {
            if (sequences.length(layer, i) != length) {
                check.fail(HALYARD_INVALID_ARGUMENT,
                           "cache has %lld positions in layer %lld of sequence %lld, but %lld in layer 0",
                           static_cast<long long>(sequences.length(layer, i)), static_cast<long long>(layer),
                           static_cast<long long>(sequences.index(i)), static_cast<long long>(length));
            }
        }
        const View &positions = stack.embed_positions;
        if (!check.failed() && positions.data && tokens > positions.shape[0] - length) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "input_ids has %lld tokens from position %lld on, but embed_positions has %lld",
                       static_cast<long long>(tokens), static_cast<long long>(length),
                       static_cast<long long>(positions.shape[0]));
        }
    }
    for (int64_t layer = 0; layer < stack.n_layers && !check.failed(); layer++) {
        char name[32];
        snprintf(name, sizeof(name), "blocks[%lld]", static_cast<long long>(layer));
        check_block_call(check, *stack.blocks[layer], name, sequences, layer, "input_ids", tokens);
    }
}

void run_lm_head(Checker &check, const halyard_context *context, const halyard_stack &stack, const View &hidden,
                 bool rounded, const View &sums, const View &in_f32, const View &logits) {
    const int64_t batch = logits.shape[0], tokens = logits.shape[1], vocab = logits.shape[2];
    LinearCall call;
    call.x = hidden;
    call.y = in_f32;
    call.weights = stack.lm_head.weights;
    call.rounded = rounded;
    call.sums = sums;
    if (stack.softcaps.data) {
        // softcap tanh(x W / softcap): quotient and tanh in the matmul's epilogue.
        call.row_scale = view_of(stack.softcap_reciprocal.data, DType::f32, stack.device, {batch, tokens}, {0, 0});
        call.activation = HALYARD_TANH;
    }
    run_call(check, context, &Backend::linear, call);
    if (stack.softcaps.data) {
        const View softcaps = view_of(stack.softcaps.data, DType::f32, stack.device, {batch, tokens, vocab}, {0, 0, 1});
        run_call(check, context, &Backend::elementwise, {kernels::bilinear, in_f32, softcaps, 0.0f, in_f32});
        if (in_f32.dtype != logits.dtype) {
            run_cast(check, context, in_f32, logits);
        }
    }
}

}  // namespace halyard
