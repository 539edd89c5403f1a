// Making a stack.
#include <climits>
#include <cstdlib>
#include <new>

#include "check_options.h"
#include "rows.h"
#include "stack.h"
#include "weights_block.h"

namespace halyard {
namespace {

void complete_stack_config(Checker &check, halyard_stack_config &c) {
    check_range(check, "vocab_size", c.vocab_size, 1, max_features);
    check_range(check, "hidden_size", c.hidden_size, 1, max_columns);
    check.finite("embedding_multiplier", c.embedding_multiplier);
    if (c.embedding_multiplier == 0.0f) {
        c.embedding_multiplier = 1.0f;
    }
    check_norm_kind(check, {c.norm, c.rms_norm_eps, c.norm_flags}, false);
    check.finite_not_negative("final_logit_softcapping", c.final_logit_softcapping);
}

/** [rows, hidden_size]; any number of rows if `rows` is negative. */
View check_table(Checker &check, const char *name, const DLTensor *tensor, int64_t rows, int64_t hidden_size) {
    const View view = check.tensor(name, tensor);
    if (check.failed()) {
        return view;
    }
    if (view.rank != 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
    } else if (rows >= 0 && (view.shape[0] != rows || view.shape[1] != hidden_size)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is [%lld, %lld], but must be [%lld, %lld]", name,
                   static_cast<long long>(view.shape[0]), static_cast<long long>(view.shape[1]),
                   static_cast<long long>(rows), static_cast<long long>(hidden_size));
    } else if (view.shape[1] != hidden_size || view.shape[0] < 1) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is [%lld, %lld], but must have 1 row or more of %lld features", name,
                   static_cast<long long>(view.shape[0]), static_cast<long long>(view.shape[1]),
                   static_cast<long long>(hidden_size));
    }
    return view;
}

void check_blocks(Checker &check, const halyard_block *const *blocks, int64_t n_layers, int64_t hidden_size) {
    if (!check.not_null("blocks", blocks)) {
        return;
    }
    check_range(check, "n_layers", n_layers, 1, INT_MAX);
    for (int64_t i = 0; i < n_layers && !check.failed(); i++) {
        if (!blocks[i]) {
            check.fail(HALYARD_INVALID_ARGUMENT, "blocks[%lld] is null", static_cast<long long>(i));
        } else if (blocks[i]->config.hidden_size != hidden_size) {
            check.fail(HALYARD_INVALID_ARGUMENT, "blocks[%lld] has hidden_size %lld, but the stack has %lld",
                       static_cast<long long>(i), static_cast<long long>(blocks[i]->config.hidden_size),
                       static_cast<long long>(hidden_size));
        }
    }
}

/** False if there is no memory. */
bool copy_blocks(halyard_stack &stack, const halyard_block *const *blocks, int64_t n_layers) {
    const size_t bytes = static_cast<size_t>(n_layers) * sizeof(*blocks);
    stack.blocks = static_cast<const halyard_block **>(malloc(bytes));
    if (stack.blocks) {
        memcpy(stack.blocks, blocks, bytes);
        stack.n_layers = n_layers;
    }
    return stack.blocks != nullptr;
}

/** False if there is no memory. */
bool fill_softcaps(halyard_stack &stack) {
    const int64_t count = stack.config.vocab_size;
    if (stack.config.final_logit_softcapping == 0.0f) {
        return true;
    }
    stack.softcaps = static_cast<float *>(malloc(static_cast<size_t>(count) * sizeof(float)));
    if (stack.softcaps) {
        std::fill_n(stack.softcaps, count, stack.config.final_logit_softcapping);
    }
    return stack.softcaps != nullptr;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_create(const halyard_context *context, const halyard_stack_config *config,
                                    const halyard_stack_weights *weights, const halyard_block *const *blocks,
                                    int64_t n_layers, halyard_stack **stack) {
    Checker check("halyard_stack_create");
    check.not_null("config", config);
    check.not_null("weights", weights);
    if (!check.not_null("stack", stack)) {
        return check.status();
    }
    halyard_stack_config c = *config;
    complete_stack_config(check, c);
    const View embed_tokens = check_table(check, "embed_tokens", weights->embed_tokens, c.vocab_size, c.hidden_size);
    const View embed_positions =
        weights->embed_positions ? check_table(check, "embed_positions", weights->embed_positions, -1, c.hidden_size)
                                 : View();
    const View norm = check_norm_vector(check, "norm", weights->norm, c.norm, false, nullptr, c.hidden_size);
    const View norm_bias =
        check_norm_vector(check, "norm_bias", weights->norm_bias, c.norm, true, nullptr, c.hidden_size);
    const DLTensor *const lm_head = weights->lm_head ? weights->lm_head : weights->embed_tokens;
    if (weights->lm_head) {
        check_table(check, "lm_head", lm_head, c.vocab_size, c.hidden_size);
    }
    check_blocks(check, blocks, n_layers, c.hidden_size);
    if (check.failed()) {
        return check.status();
    }

    void *const memory = malloc(sizeof(halyard_stack));
    if (!memory) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    halyard_stack *const made = new (memory) halyard_stack;
    made->config = c;
    made->embed_tokens = embed_tokens;
    made->embed_positions = embed_positions;
    const VectorSource vectors[] = {{&made->norm.weight, norm, c.hidden_size},
                                    {&made->norm.bias, norm_bias, c.hidden_size}};
    int64_t bytes = 0;
    made->vectors = make_wide_vectors(context_or_default(context), vectors, 2, bytes);
    if (!made->vectors || !copy_blocks(*made, blocks, n_layers) || !fill_softcaps(*made)) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    } else {
        const halyard_status status = halyard_weights_pack(context, lm_head, nullptr, nullptr, 0, &made->lm_head);
        if (status != HALYARD_OK) {
            fail_as(check, status);
        }
    }
    if (check.failed()) {
        halyard_stack_destroy(made);
        return check.status();
    }
    *stack = made;
    return HALYARD_OK;
}

void halyard_stack_destroy(halyard_stack *stack) {
    if (stack) {
        halyard_weights_destroy(stack->lm_head);
        free(stack->vectors);
        free(stack->softcaps);
        free(stack->blocks);
        free(stack);
    }
}

halyard_status halyard_stack_get_config(const halyard_stack *stack, halyard_stack_config *config) {
    Checker check("halyard_stack_get_config");
    check.not_null("stack", stack);
    if (check.not_null("config", config)) {
        *config = stack->config;
    }
    return check.status();
}
