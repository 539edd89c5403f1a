// Making a stack: where its blocks are.
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "blocks/stack.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "core/view.h"

namespace halyard {
namespace {

void complete_stack_config(Checker &check, halyard_stack_config &c) {
    check_range(check, "vocab_size", c.vocab_size, 1, max_features);
    check_range(check, "hidden_size", c.hidden_size, 1, max_columns);
    check.finite("embedding_multiplier", c.embedding_multiplier);
    if (c.embedding_multiplier == 0.0f) {
        c.embedding_multiplier = 1.0f;
    }
    check_norm_kind(check, {c.norm, c.rms_norm_eps, c.norm_flags}, c.embed_norm == HALYARD_NORM_RMS);
    if (!check.failed() && (c.embed_norm < HALYARD_NORM_NONE || c.embed_norm > HALYARD_NORM_LAYER)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "embed_norm is %d, which is no value of halyard_norm", c.embed_norm);
    }
    check.softcap("final_logit_softcapping", c.final_logit_softcapping);
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
        } else if (blocks[i]->device != blocks[0]->device) {
            char name[32];
            snprintf(name, sizeof(name), "blocks[%lld]", static_cast<long long>(i));
            check_device(check, name, blocks[i]->device, "blocks[0]", blocks[0]->device);
        }
    }
}

/** The type that all matrices of the blocks have; f32 if they have none in common. */
DType common_dtype(const halyard_block *const *blocks, int64_t n_layers) {
    const DType first = blocks[0]->qkv->dtype;
    for (int64_t i = 1; i < n_layers; i++) {
        if (blocks[i]->qkv->dtype != first) {
            return DType::f32;
        }
    }
    return first;
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

/** A soft cap for each logit of a token, and what they are divided by. */
void make_softcaps(Checker &check, const halyard_context &context, halyard_stack &stack) {
    const int64_t count = stack.config.vocab_size;
    const float softcap = stack.config.final_logit_softcapping;
    if (check.failed() || softcap == 0.0f) {
        return;
    }
    constexpr int64_t aligned = 64;  // elements, for the second to begin where any access is aligned
    const int64_t second = (count + aligned - 1) / aligned * aligned;
    stack.softcap_memory =
        allocate_at(check, stack.device, (second + 1) * static_cast<int64_t>(sizeof(float)), "soft caps of logits");
    if (check.failed()) {
        return;
    }
    float *const softcaps = static_cast<float *>(stack.softcap_memory), *const reciprocal = softcaps + second;
    const Backend &backend = backend_of(stack.device.on_cuda);
    backend.fill(check, context, stack.device.device_id, softcaps, softcap, count);
    backend.fill(check, context, stack.device.device_id, reciprocal, 1.0f / softcap, 1);
    stack.softcaps = view_of(softcaps, DType::f32, stack.device, {count}, {1});
    stack.softcap_reciprocal = view_of(reciprocal, DType::f32, stack.device, {1}, {1});
}

/** Sees to it that a table is where the stack is. Null or the memory of the copy. */
char *bring_table(Checker &check, const halyard_context &context, Device device, View &table) {
    if (check.failed() || !table.data || device_of(table) == device) {
        return nullptr;
    }
    char *const memory = allocate_at(check, device, table.elements * size_of(table.dtype), "a table");
    if (memory) {
        const View copy = view_of(memory, table.dtype, device, {table.shape[0], table.width()}, {table.width(), 1});
        backend_of(device.on_cuda).copy(check, context, device.device_id, table, copy);
        table = copy;
    }
    return memory;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_create(const halyard_context *context, const halyard_stack_config *config,
                                    const halyard_stack_weights *weights, const halyard_block *const *blocks,
                                    int64_t n_layers, halyard_stack **stack) {
    Checker check("halyard_stack_create", Devices::cpu_or_cuda);
    check.set_context(context);
    check.not_null("config", config);
    check.not_null("weights", weights);
    if (!check.not_null("stack", stack)) {
        return check.status();
    }
    halyard_stack_config c = *config;
    complete_stack_config(check, c);
    const View embed_tokens = check_table(check, "embed_tokens", weights->embed_tokens, c.vocab_size, c.hidden_size);
    const auto added_table = [&](const char *name, const DLTensor *tensor) {
        return tensor ? check_table(check, name, tensor, -1, c.hidden_size) : View();
    };
    const View embed_positions = added_table("embed_positions", weights->embed_positions);
    const View embed_types = added_table("embed_types", weights->embed_types);
    const char *const absent =
        c.embed_norm == HALYARD_NORM_NONE ? "embed_norm of config is HALYARD_NORM_NONE" : nullptr;
    const View embed_norm =
        check_norm_vector(check, "embed_norm", weights->embed_norm, c.embed_norm, false, absent, c.hidden_size);
    const View embed_norm_bias = check_norm_vector(check, "embed_norm_bias", weights->embed_norm_bias, c.embed_norm,
                                                   true, absent, c.hidden_size);
    const View norm = check_norm_vector(check, "norm", weights->norm, c.norm, false, nullptr, c.hidden_size);
    const View norm_bias =
        check_norm_vector(check, "norm_bias", weights->norm_bias, c.norm, true, nullptr, c.hidden_size);
    const View lm_head =
        weights->lm_head ? check_table(check, "lm_head", weights->lm_head, c.vocab_size, c.hidden_size) : embed_tokens;
    if (!check.failed() && c.no_lm_head && weights->lm_head) {
        check.fail(HALYARD_INVALID_ARGUMENT, "lm_head is given, but no_lm_head is set");
    }
    check_blocks(check, blocks, n_layers, c.hidden_size);
    if (!check.failed() && embed_tokens.on_cuda) {
        check_device(check, "embed_tokens", device_of(embed_tokens), "blocks[0]", blocks[0]->device);
    }
    const CodeLayout codes =
        check.failed() ? CodeLayout() : check_quantization(check, weights->quantization, blocks[0]->device);
    if (check.failed()) {
        return check.status();
    }

    void *const memory = malloc(sizeof(halyard_stack));
    if (!memory) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    halyard_stack *const made = new (memory) halyard_stack;
    made->config = c;
    made->device = blocks[0]->device;
    made->residual_dtype = made->device.on_cuda ? common_dtype(blocks, n_layers) : DType::f32;
    made->embed_tokens = embed_tokens;
    made->embed_positions = embed_positions;
    made->embed_types = embed_types;
    made->embed_norm.set(check, {c.embed_norm, c.rms_norm_eps, c.norm_flags}, c.hidden_size);
    made->norm.set(check, {c.norm, c.rms_norm_eps, c.norm_flags}, c.hidden_size);
    const ParamSource vectors[] = {{&made->embed_norm.weight, embed_norm, c.hidden_size},
                                   {&made->embed_norm.bias, embed_norm_bias, c.hidden_size},
                                   {&made->norm.weight, norm, c.hidden_size},
                                   {&made->norm.bias, norm_bias, c.hidden_size}};
    const halyard_context &with = context_or_default(context);
    int64_t bytes = 0;
    made->norm_memory = make_param_vectors(check, with, made->device, made->residual_dtype, vectors, 4, bytes);
    if (!check.failed() && !copy_blocks(*made, blocks, n_layers)) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    make_softcaps(check, with, *made);
    if (!check.failed() && !c.no_lm_head) {
        made->lm_head = pack_matrix(check, context, lm_head, View(), HALYARD_WEIGHT_OUT_IN, made->device, codes);
    }
    if (!check.failed() && made->device.on_cuda && made->lm_head && !weights->lm_head) {
        // What the output projection reads are the table's own rows.
        made->embed_tokens = view_of(const_cast<char *>(made->lm_head->matrix), made->lm_head->dtype, made->device,
                                     {c.vocab_size, c.hidden_size}, {made->lm_head->pitch, 1});
    }
    made->tables[0] = bring_table(check, with, made->device, made->embed_tokens);
    made->tables[1] = bring_table(check, with, made->device, made->embed_positions);
    made->tables[2] = bring_table(check, with, made->device, made->embed_types);
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
        free_at(stack->device, stack->norm_memory);
        free_at(stack->device, stack->softcap_memory);
        for (char *const table : stack->tables) {
            free_at(stack->device, table);
        }
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
