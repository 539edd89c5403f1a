// Making a stack: where its blocks are.
#include <array>
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

/** [any number of rows, hidden_size], or nothing if `tensor` is null. */
View check_table(Checker &check, const char *name, const DLTensor *tensor, int64_t hidden_size) {
    const View view = tensor ? check.tensor(name, tensor) : View();
    if (check.failed() || !tensor) {
        return view;
    }
    if (view.rank != 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
    } else if (view.shape[1] != hidden_size || view.shape[0] < 1) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is [%lld, %lld], but must have 1 row or more of %lld features", name,
                   static_cast<long long>(view.shape[0]), static_cast<long long>(view.shape[1]),
                   static_cast<long long>(hidden_size));
    }
    return view;
}

/** What a stack is made of; `data` of a view is null where it is absent. */
struct StackSources {
    MatrixSource embed_tokens, lm_head;  // the same where they are tied
    bool tied = false;
    CodeSource embed_codes;
    View embed_positions, embed_types;
    View embed_norm, embed_norm_bias, norm, norm_bias;
};

constexpr MatrixNames embed_names = HALYARD_MATRIX_NAMES("embed_tokens", "embed_tokens_codes", nullptr),
                      head_names = HALYARD_MATRIX_NAMES("lm_head", "lm_head_codes", "lm_head_packed");

/** Codes of which a row is read at a time. */
CodeSource check_embed_codes(Checker &check, const MatrixSource &table) {
    if (check.failed() || !table.codes) {
        return {};
    }
    Checker on_cpu(check.function());
    const CodeSource codes = check_codes(on_cpu, embed_names.codes, *table.codes, true);
    if (!on_cpu.failed() && codes.format->block_inputs == 0) {
        on_cpu.fail(HALYARD_UNSUPPORTED, "embed_tokens_codes.format is %s, but must be one of GGUF (Q8_0 to Q6_K)",
                    codes.format->name);
    }
    check.take_over(on_cpu);
    return codes;
}

StackSources check_sources(Checker &check, const halyard_stack_config &c, const halyard_stack_weights &w) {
    StackSources s;
    s.embed_tokens.names = &embed_names;
    s.embed_tokens.tensor = w.embed_tokens;
    s.embed_tokens.codes = w.embed_tokens_codes;
    MatrixChecks(check, HALYARD_WEIGHT_OUT_IN).require(s.embed_tokens, c.vocab_size, c.hidden_size);
    s.embed_codes = check_embed_codes(check, s.embed_tokens);
    s.embed_positions = check_table(check, "embed_positions", w.embed_positions, c.hidden_size);
    s.embed_types = check_table(check, "embed_types", w.embed_types, c.hidden_size);
    const char *const absent =
        c.embed_norm == HALYARD_NORM_NONE ? "embed_norm of config is HALYARD_NORM_NONE" : nullptr;
    s.embed_norm = check_norm_vector(check, "embed_norm", w.embed_norm, c.embed_norm, false, absent, c.hidden_size);
    s.embed_norm_bias =
        check_norm_vector(check, "embed_norm_bias", w.embed_norm_bias, c.embed_norm, true, absent, c.hidden_size);
    s.norm = check_norm_vector(check, "norm", w.norm, c.norm, false, nullptr, c.hidden_size);
    s.norm_bias = check_norm_vector(check, "norm_bias", w.norm_bias, c.norm, true, nullptr, c.hidden_size);
    s.lm_head.names = &head_names;
    s.lm_head.tensor = w.lm_head;
    s.lm_head.codes = w.lm_head_codes;
    s.lm_head.packed = w.lm_head_packed;
    s.tied = !s.lm_head.given();
    if (s.tied) {
        s.lm_head = s.embed_tokens;
    } else {
        MatrixChecks checks(check, HALYARD_WEIGHT_OUT_IN);
        checks.require(s.lm_head, c.vocab_size, c.hidden_size);
        if (c.no_lm_head) {
            checks.absent(s.lm_head, "no_lm_head is set");
        }
    }
    return s;
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
    const DType first = blocks[0]->dtype;
    for (int64_t i = 1; i < n_layers; i++) {
        if (blocks[i]->dtype != first) {
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

/** Refuses matrices that cannot be used where the blocks are. */
CodeLayout check_places(Checker &check, const StackSources &s, const halyard_quantization &quantization,
                        Device device) {
    if (s.embed_tokens.view.on_cuda) {
        check_device(check, "embed_tokens", device_of(s.embed_tokens.view), "blocks[0]", device);
    }
    check_matrix_device(check, s.embed_tokens, "blocks[0]", device);
    check_matrix_device(check, s.lm_head, "blocks[0]", device);
    return check_quantization(check, quantization, device);
}

/** The vectors of a stack, and where they are. */
std::array<ParamSource, 4> vector_sources(const StackSources &s, halyard_stack &stack) {
    const int64_t hidden = stack.config.hidden_size;
    return {{ParamSource::of_norm(&stack.embed_norm.weight, s.embed_norm, hidden),
             ParamSource::of_norm(&stack.embed_norm.bias, s.embed_norm_bias, hidden),
             ParamSource::of_norm(&stack.norm.weight, s.norm, hidden),
             ParamSource::of_norm(&stack.norm.bias, s.norm_bias, hidden)}};
}

/** Refuses a stack that cannot take other numbers where its own are, and sources of another form. */
void check_updatable(Checker &check, const halyard_stack &stack, const StackSources &s) {
    if (!check.failed() && stack.device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "stack is on a CUDA device, but only those of processors can be updated");
    }
    if (!check.failed() && (stack.embed_codes.format || s.embed_codes.format || s.lm_head.codes || s.lm_head.packed ||
                            (stack.lm_head.weights && (!stack.lm_head.owned || stack.lm_head.weights->codes)))) {
        check.fail(HALYARD_UNSUPPORTED, "stack has quantized or packed matrices, and cannot be updated");
    }
    if (!check.failed() && (s.embed_tokens.view.data != stack.embed_tokens.data || s.tied != stack.tied)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   s.tied != stack.tied ? "lm_head is %s, but the stack was made %s one of its own"
                                        : "embed_tokens is another table than the stack was made with",
                   s.tied ? "null" : "given", stack.tied ? "without" : "with");
    }
    if (!check.failed() && stack.lm_head.weights && s.lm_head.view.dtype != stack.lm_head.weights->dtype) {
        check.fail(HALYARD_INVALID_ARGUMENT, "lm_head has dtype %s, but the stack was made with %s",
                   dtype_name(s.lm_head.view.dtype), dtype_name(stack.lm_head.weights->dtype));
    }
}

/** Makes what a stack has besides its blocks. */
void fill(Checker &check, const halyard_context *context, const StackSources &s, const CodeLayout &quantization,
          halyard_stack &stack) {
    const halyard_stack_config &c = stack.config;
    const halyard_context &with = context_or_default(context);
    stack.tied = s.tied;
    stack.embed_tokens = s.embed_tokens.view;
    stack.embed_codes = s.embed_codes;
    stack.embed_positions = s.embed_positions;
    stack.embed_types = s.embed_types;
    stack.embed_norm.set(check, {c.embed_norm, c.rms_norm_eps, c.norm_flags}, c.hidden_size);
    stack.norm.set(check, {c.norm, c.rms_norm_eps, c.norm_flags}, c.hidden_size);
    const std::array<ParamSource, 4> vectors = vector_sources(s, stack);
    int64_t bytes = 0;
    stack.norm_memory = make_param_vectors(check, with, stack.device, stack.residual_dtype, vectors.data(), 4, bytes);
    make_softcaps(check, with, stack);
    if (!c.no_lm_head) {
        stack.lm_head = MatrixPacker(check, context, HALYARD_WEIGHT_OUT_IN, stack.device, quantization)
                            .pack(stack.lm_head, s.lm_head);
    }
    if (stack.device.on_cuda && stack.lm_head.weights && s.tied) {
        // What the output projection reads are the table's own rows.
        const halyard_weights &head = *stack.lm_head.weights;
        stack.embed_tokens = view_of(const_cast<char *>(head.matrix), head.dtype, stack.device,
                                     {c.vocab_size, c.hidden_size}, {head.pitch, 1});
    }
    stack.tables[0] = bring_table(check, with, stack.device, stack.embed_tokens);
    stack.tables[1] = bring_table(check, with, stack.device, stack.embed_positions);
    stack.tables[2] = bring_table(check, with, stack.device, stack.embed_types);
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
    const StackSources sources = check.failed() ? StackSources() : check_sources(check, c, *weights);
    check_blocks(check, blocks, n_layers, c.hidden_size);
    const CodeLayout quantization =
        check.failed() ? CodeLayout() : check_places(check, sources, weights->quantization, blocks[0]->device);
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
    fill(check, context, sources, quantization, *made);
    if (!check.failed() && !copy_blocks(*made, blocks, n_layers)) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    if (check.failed()) {
        halyard_stack_destroy(made);
        return check.status();
    }
    *stack = made;
    return HALYARD_OK;
}

halyard_status halyard_stack_update(const halyard_context *context, halyard_stack *stack,
                                    const halyard_stack_weights *weights) {
    Checker check("halyard_stack_update");
    check.set_context(context);
    check.not_null("stack", stack);
    check.not_null("weights", weights);
    if (check.failed()) {
        return check.status();
    }
    const StackSources sources = check_sources(check, stack->config, *weights);
    check_updatable(check, *stack, sources);
    if (check.failed()) {
        return check.status();
    }
    const std::array<ParamSource, 4> vectors = vector_sources(sources, *stack);
    constexpr const char *names[] = {"embed_norm", "embed_norm_bias", "norm", "norm_bias"};
    check_vectors_present(check, vectors.data(), names, 4);
    if (!check.failed() && stack->lm_head.owned) {
        MatrixPacker(check, context, HALYARD_WEIGHT_OUT_IN, stack->device, CodeLayout())
            .pack(stack->lm_head, sources.lm_head);
    }
    if (!check.failed()) {
        cpu_backend.convert_vectors(check, context_or_default(context), 0, vectors.data(), 4);
    }
    return check.status();
}

void halyard_stack_destroy(halyard_stack *stack) {
    if (stack) {
        halyard_weights_destroy(stack->lm_head.owned);
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
