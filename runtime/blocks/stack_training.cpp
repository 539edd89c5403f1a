// Training of stacks: the forward call that saves what gradients need, and the gradients of all its parts, last to first.
#include <cstdio>

#include "blocks/block_gradients.h"
#include "blocks/stack.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"

namespace halyard {
namespace {

/** What a forward call leaves in the caller's memory: what goes into a norm of the embedding, into each block and into the last norm, what
 *  each block saves, and what the tanh of soft caps is applied to. */
class SavedStack {
public:
    /** `memory`: null to learn the size. */
    SavedStack(const halyard_stack &stack, int64_t batch, int64_t tokens, char *memory)
        : stack_(stack), batch_(batch), tokens_(tokens), memory_(memory) {
        const int64_t hidden = stack.config.hidden_size;
        bytes_ = place(stack.embed_norm.norm != HALYARD_NORM_NONE ? hidden : 0, bytes_, embedded);
        bytes_ = place(stack.softcaps.data ? stack.config.vocab_size : 0, bytes_, logit_sums);
        first_block_ = bytes_;
        for (int64_t layer = 0; layer < stack.n_layers; layer++) {
            bytes_ = after_block(layer, bytes_);
        }
        bytes_ = place(hidden, bytes_, last);
    }

    View embedded, logit_sums, last;

    int64_t bytes() const { return bytes_; }
    /** What goes into a block; of the number of blocks `last`. */
    View input(int64_t layer) const {
        if (layer == stack_.n_layers) {
            return last;
        }
        View x;
        place(stack_.config.hidden_size, start_of(layer), x);
        return x;
    }
    SavedTensors of_block(int64_t layer) const {
        View x;
        const int64_t offset = place(stack_.config.hidden_size, start_of(layer), x);
        return SavedTensors(*stack_.blocks[layer], x, memory_ ? memory_ + offset : nullptr);
    }

private:
    /** Where it ends. */
    int64_t place(int64_t width, int64_t offset, View &view) const {
        view = view_of(memory_ && width > 0 ? memory_ + offset : nullptr, DType::f32, Device(),
                       {batch_, tokens_, width}, {tokens_ * width, width, 1});
        return offset + (view.elements * size_of(DType::f32) + 63) / 64 * 64;
    }
    int64_t after_block(int64_t layer, int64_t offset) const {
        View x;
        offset = place(stack_.config.hidden_size, offset, x);
        return offset + SavedTensors(*stack_.blocks[layer], x, nullptr).bytes;
    }
    int64_t start_of(int64_t layer) const {
        int64_t offset = first_block_;
        for (int64_t before = 0; before < layer; before++) {
            offset = after_block(before, offset);
        }
        return offset;
    }

    const halyard_stack &stack_;
    const int64_t batch_, tokens_;
    char *const memory_;
    int64_t bytes_ = 0, first_block_ = 0;
};

/** What both calls take. `data` of the ids is null after a failure. */
struct StackInput {
    Integers ids, types;
    View result;  // logits or hidden states, or their gradient: [batch, T, width]
    View memory;  // of what is saved
};

// ---- Checks ----

void check_trainable_stack(Checker &check, const halyard_stack &stack) {
    for (int64_t layer = 0; layer < stack.n_layers && !check.failed(); layer++) {
        char name[32];
        snprintf(name, sizeof(name), "blocks[%lld]", static_cast<long long>(layer));
        check_trainable(check, *stack.blocks[layer], name);
    }
    if (!check.failed() && stack.embed_codes.format) {
        check.fail(HALYARD_UNSUPPORTED, "stack has embed_tokens_codes, of which there is no gradient");
    }
    if (stack.lm_head.weights) {
        check_plain_weights(check, "lm_head", *stack.lm_head.weights);
    }
}

/** `writes`: the result is written, else it is a gradient that is read. */
StackInput check_stack_input(Checker &check, const halyard_stack *stack, const DLTensor *input_ids,
                             const DLTensor *token_types, const void *saved, int64_t bytes, const char *result_name,
                             const DLTensor *result, bool writes) {
    StackInput input;
    check.not_null("stack", stack);
    if (check.failed()) {
        return input;
    }
    check_trainable_stack(check, *stack);
    input.ids = check.failed() ? Integers() : check_integers(check, "input_ids", input_ids);
    input.types =
        check.failed() ? Integers() : check_types(check, token_types, input.ids, stack->embed_types.data != nullptr);
    const halyard_stack_config &c = stack->config;
    const bool is_logits = stack->lm_head.weights;
    const ResultKind kind = {result_name, true, is_logits ? c.vocab_size : c.hidden_size,
                             is_logits ? "the vocab_size of stack" : "the hidden_size of stack", is_logits};
    input.result = check.failed() ? View() : check_result(check, kind, result, input.ids);
    check_f32(check, input.result);
    if (check.failed()) {
        return input;
    }
    check_stack_call(check, *stack, {nullptr, nullptr, input.ids.batch}, input.ids.tokens);
    const int64_t needed = SavedStack(*stack, input.ids.batch, input.ids.tokens, nullptr).bytes();
    check_range(check, "bytes", bytes, needed, INT64_MAX);
    if (needed > 0) {
        check.not_null("saved", saved);
    }
    if (!check.failed() && reinterpret_cast<uintptr_t>(saved) % 64 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "saved must be aligned to 64 bytes");
    }
    input.memory = saved ? memory_view("saved", saved, needed) : View();
    check_in_range(check, "input_ids", input.ids, "vocab_size", c.vocab_size);
    if (stack->embed_types.data) {
        check_in_range(check, "token_types", input.types, "the number of rows of embed_types",
                       stack->embed_types.shape[0]);
    }
    const std::initializer_list<const View *> others = {&stack->embed_tokens, &stack->embed_positions,
                                                        &stack->embed_types,  &input.ids.memory,
                                                        &input.types.memory,  &input.memory};
    for (const View *const other : others) {
        check.no_overlap(writes ? input.result : no_view, *other, false);
        check.no_overlap(writes ? input.memory : no_view, other == &input.memory ? no_view : *other, false);
    }
    return input;
}

/** Views of halyard_stack_gradients, but for the blocks'. */
struct StackGradients {
    View embed_tokens, embed_positions, embed_types, lm_head;
    BlockGradients::Norm embed_norm, norm;

    template<typename Visit>
    void each(const Visit &visit) const {
        for (const View *view : {&embed_tokens, &embed_positions, &embed_types, &lm_head, &embed_norm.weight,
                                 &embed_norm.bias, &norm.weight, &norm.bias}) {
            visit(*view);
        }
    }
};

/** A gradient of a table: null, or f32 of its shape; refused where there is no table. */
View check_table_gradient(Checker &check, const char *name, const DLTensor *tensor, const View &table) {
    if (!check.failed() && tensor && !table.data) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but the stack was made without", name);
    }
    return check_matrix_gradient(check, name, tensor, table.shape[0], table.width());
}

void check_norm_gradient(Checker &check, const char *name, const DLTensor *tensor, const View &parameter, View &to) {
    if (!check.failed() && tensor && !parameter.data) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but the stack was made without", name);
    }
    to = check_vector_gradient(check, name, tensor, parameter.width());
}

StackGradients check_stack_gradients(Checker &check, const halyard_stack &stack, const halyard_stack_gradients &g) {
    StackGradients to;
    to.embed_tokens = check_table_gradient(check, "gradients.embed_tokens", g.embed_tokens, stack.embed_tokens);
    to.embed_positions =
        check_table_gradient(check, "gradients.embed_positions", g.embed_positions, stack.embed_positions);
    to.embed_types = check_table_gradient(check, "gradients.embed_types", g.embed_types, stack.embed_types);
    if (!check.failed() && g.lm_head && (stack.tied || !stack.lm_head.weights)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   stack.tied ? "gradients.lm_head is given, but lm_head is embed_tokens, whose gradient has it"
                              : "gradients.lm_head is given, but the stack has none");
    }
    to.lm_head = check_table_gradient(check, "gradients.lm_head", g.lm_head, stack.embed_tokens);
    check_norm_gradient(check, "gradients.embed_norm", g.embed_norm, stack.embed_norm.weight, to.embed_norm.weight);
    check_norm_gradient(check, "gradients.embed_norm_bias", g.embed_norm_bias, stack.embed_norm.bias,
                        to.embed_norm.bias);
    check_norm_gradient(check, "gradients.norm", g.norm, stack.norm.weight, to.norm.weight);
    check_norm_gradient(check, "gradients.norm_bias", g.norm_bias, stack.norm.bias, to.norm.bias);
    return to;
}

/** Refuses gradients that overlap what a call reads, weights, or each other, those of all blocks among them. */
void check_gradients_apart(Checker &check, const halyard_stack &stack, const StackInput &input,
                           const halyard_stack_gradients &g, const StackGradients &own) {
    const auto apart_from_inputs = [&](const View &gradient) {
        for (const View *const other : {&input.result, &input.memory, &input.ids.memory, &input.types.memory,
                                        &stack.embed_tokens, &stack.embed_positions, &stack.embed_types}) {
            check.no_overlap(gradient, *other, false);
        }
    };
    own.each([&](const View &gradient) {
        apart_from_inputs(gradient);
        own.each([&](const View &other) { check.no_overlap(gradient, &gradient == &other ? no_view : other, false); });
    });
    for (int64_t layer = 0; g.blocks && layer < stack.n_layers && !check.failed(); layer++) {
        check.set_place("blocks", layer);
        const BlockGradients of = check_block_gradients(check, *stack.blocks[layer], g.blocks[layer]);
        of.each([&](const View &gradient) {
            apart_from_inputs(gradient);
            own.each([&](const View &other) { check.no_overlap(gradient, other, false); });
        });
        for (int64_t before = 0; before < layer && !check.failed(); before++) {
            const BlockGradients other = check_block_gradients(check, *stack.blocks[before], g.blocks[before]);
            of.each([&](const View &gradient) {
                other.each([&](const View &view) { check.no_overlap(gradient, view, false); });
            });
        }
    }
    check.set_place(nullptr, 0);
}

// ---- Work ----

/** One forward call. */
void run_saving(Checker &check, const halyard_context *context, const halyard_stack &stack, const StackInput &input,
                const SavedStack &saved) {
    const int64_t hidden = stack.config.hidden_size, rows = input.ids.batch * input.ids.tokens;
    const CachedSequences sequences = {nullptr, nullptr, input.ids.batch};
    const bool normalizes = stack.norm.norm != HALYARD_NORM_NONE, makes_logits = stack.lm_head.weights;
    Workspace workspace(context_or_default(context), Device());
    const auto spare_piece =
        workspace.book<float>(stack.embed_types.data || (normalizes && makes_logits) ? rows : 0, hidden);
    if (!workspace.allocate(check)) {
        return;
    }
    const View spare = view_like(saved.last, workspace[spare_piece], DType::f32, hidden, hidden);
    const View &first = saved.input(0), &embedded = saved.embedded.data ? saved.embedded : first;
    run_call(check, context, &Backend::embed,
             {stack.embed_tokens, stack.embed_codes, stack.embed_positions, stack.config.embedding_multiplier,
              input.ids, 0, sequences, embedded});
    if (stack.embed_types.data) {
        run_call(check, context, &Backend::embed,
                 {stack.embed_types, {}, View(), 1.0f, input.types, 0, sequences, spare});
        run_call(check, context, &Backend::elementwise, {kernels::add, embedded, spare, embedded});
    }
    run_norm(check, context, stack.embed_norm, embedded, first);
    for (int64_t layer = 0; layer < stack.n_layers && !check.failed(); layer++) {
        run_block_saving(check, context, *stack.blocks[layer], saved.input(layer), saved.of_block(layer),
                         saved.input(layer + 1));
    }
    const View &normalized = !makes_logits ? input.result : normalizes ? spare : saved.last;
    if (normalizes) {
        run_norm(check, context, stack.norm, saved.last, normalized);
    } else if (!makes_logits) {
        run_cast(check, context, saved.last, normalized);
    }
    if (makes_logits) {
        run_lm_head(check, context, stack, normalized, false, saved.logit_sums.data ? saved.logit_sums : View(),
                    input.result, input.result);
    }
}

/** One backward call. */
class StackBackward {
public:
    StackBackward(Checker &check, const halyard_context *context, const halyard_stack &stack, const StackInput &input,
                  const SavedStack &saved, const halyard_stack_gradients &given, const StackGradients &gradients)
        : check_(check), context_(context), stack_(stack), input_(input), saved_(saved), given_(given),
          gradients_(gradients), accumulate_(given.accumulate != 0) {}

    void run() {
        const int64_t hidden = stack_.config.hidden_size, rows = input_.ids.batch * input_.ids.tokens;
        const bool scales = stack_.config.embedding_multiplier != 1.0f && gradients_.embed_tokens.data;
        Workspace workspace(context_or_default(context_), Device());
        const auto d_piece = workspace.book<float>(rows, hidden), spare_piece = workspace.book<float>(rows, hidden);
        const auto positions = workspace.book<int64_t>(gradients_.embed_positions.data ? input_.ids.tokens : 0);
        const auto multipliers = workspace.book<float>(scales ? hidden : 0);
        if (!workspace.allocate(check_)) {
            return;
        }
        const View d = view_like(saved_.last, workspace[d_piece], DType::f32, hidden, hidden),
                   spare = view_like(saved_.last, workspace[spare_piece], DType::f32, hidden, hidden);
        from_result(d, spare);
        for (int64_t layer = stack_.n_layers - 1; layer >= 0 && !check_.failed(); layer--) {
            const halyard_block &block = *stack_.blocks[layer];
            const BlockGradients to =
                given_.blocks ? check_block_gradients(check_, block, given_.blocks[layer]) : BlockGradients();
            run_block_gradients(check_, context_, block, saved_.input(layer), saved_.of_block(layer), d, to, d);
        }
        if (saved_.embedded.data) {
            norm(stack_.embed_norm, saved_.embedded, d, gradients_.embed_norm, d);
        }
        to_tables(d, workspace[positions], workspace[multipliers]);
    }

private:
    /** d, of what the last norm gets. */
    void from_result(const View &d, const View &spare) {
        const bool normalizes = stack_.norm.norm != HALYARD_NORM_NONE;
        if (!stack_.lm_head.weights) {
            if (normalizes) {
                norm(stack_.norm, saved_.last, input_.result, gradients_.norm, d);
            } else {
                run_cast(check_, context_, input_.result, d);
            }
            return;
        }
        if (normalizes) {
            run_norm(check_, context_, stack_.norm, saved_.last, spare);
        }
        LinearBackwardCall call;
        call.weights = stack_.lm_head.weights;
        call.x = normalizes ? spare : saved_.last;
        call.dy = input_.result;
        if (stack_.softcaps.data) {
            // The result is c tanh(s), s = x W / c, so the gradient of x W is dy tanh'(s).
            const ActivationKernels tanh = activation_kernels(HALYARD_TANH, 0.0f);
            call.activated = true;
            call.activation = tanh.gradient;
            call.sums = saved_.logit_sums;
        }
        call.accumulate = accumulate_;
        call.dx = d;
        call.dweight = stack_.tied ? gradients_.embed_tokens : gradients_.lm_head;
        call.y = any_output({&call.dx, &call.dweight});
        run_call(check_, context_, &Backend::linear_backward, call);
        if (normalizes) {
            norm(stack_.norm, saved_.last, d, gradients_.norm, d);
        }
    }

    void norm(const Norm &norm, const View &x, const View &dy, const BlockGradients::Norm &to, const View &dx) {
        run_call(check_, context_, &Backend::norm_backward,
                 {norm.norm, x, norm.weight, dy, no_view, norm.scalars, accumulate_, dx, to.weight, to.bias});
    }

    /** Gradients of the tables, from d, which is scaled in place at last. */
    void to_tables(const View &d, int64_t *positions, float *multipliers) {
        const auto table = [&](const Integers &ids, bool accumulate, const View &to) {
            if (to.data) {
                run_call(check_, context_, &Backend::embed_backward, {ids, d, accumulate, to});
            }
        };
        if (gradients_.embed_positions.data) {
            for (int64_t t = 0; t < input_.ids.tokens; t++) {
                positions[t] = t;
            }
            Integers numbers = input_.ids;
            numbers.data = reinterpret_cast<const char *>(positions);
            numbers.is_int64 = true;
            numbers.batch_stride = 0;
            numbers.token_stride = 1;
            numbers.strides[0] = 0;
            numbers.strides[numbers.rank - 1] = 1;
            table(numbers, accumulate_, gradients_.embed_positions);
        }
        table(input_.types, accumulate_, gradients_.embed_types);
        if (multipliers) {
            const int64_t hidden = stack_.config.hidden_size;
            std::fill_n(multipliers, hidden, stack_.config.embedding_multiplier);
            const View factors =
                view_of(multipliers, DType::f32, Device(), {d.shape[0], d.shape[1], hidden}, {0, 0, 1});
            run_call(check_, context_, &Backend::elementwise, {kernels::bilinear, d, factors, 0.0f, d});
        }
        // A tied table has the gradient of the output projection already.
        table(input_.ids, accumulate_ || (stack_.tied && stack_.lm_head.weights), gradients_.embed_tokens);
    }

    Checker &check_;
    const halyard_context *const context_;
    const halyard_stack &stack_;
    const StackInput &input_;
    const SavedStack &saved_;
    const halyard_stack_gradients &given_;
    const StackGradients &gradients_;
    const bool accumulate_;
};

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_saved_size(const halyard_stack *stack, int64_t batch, int64_t tokens, int64_t *bytes) {
    Checker check("halyard_stack_saved_size");
    check.not_null("stack", stack);
    check_range(check, "batch", batch, 0, INT32_MAX);
    check_range(check, "tokens", tokens, 0, INT32_MAX);
    check.not_null("bytes", bytes);
    if (!check.failed()) {
        check_trainable_stack(check, *stack);
    }
    if (check.failed()) {
        return check.status();
    }
    if (batch * tokens > INT64_MAX / SavedStack(*stack, 1, 1, nullptr).bytes()) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "batch times tokens is %lld, for which no memory is large enough",
                          static_cast<long long>(batch * tokens));
    }
    *bytes = SavedStack(*stack, batch, tokens, nullptr).bytes();
    return check.status();
}

halyard_status halyard_stack_forward_saving(const halyard_context *context, const halyard_stack *stack,
                                            const DLTensor *input_ids, const DLTensor *token_types, void *saved,
                                            int64_t bytes, DLTensor *result) {
    Checker check("halyard_stack_forward_saving");
    check.set_context(context);
    const StackInput input =
        check_stack_input(check, stack, input_ids, token_types, saved, bytes, "result", result, true);
    if (!check.failed() && !input.result.empty()) {
        run_saving(check, context, *stack, input,
                   SavedStack(*stack, input.ids.batch, input.ids.tokens, static_cast<char *>(saved)));
    }
    return check.status();
}

halyard_status halyard_stack_backward(const halyard_context *context, const halyard_stack *stack,
                                      const DLTensor *input_ids, const DLTensor *token_types, const void *saved,
                                      int64_t bytes, const DLTensor *dresult,
                                      const halyard_stack_gradients *gradients) {
    Checker check("halyard_stack_backward");
    check.set_context(context);
    check.not_null("gradients", gradients);
    const StackInput input =
        check_stack_input(check, stack, input_ids, token_types, saved, bytes, "dresult", dresult, false);
    if (check.failed()) {
        return check.status();
    }
    const StackGradients to = check_stack_gradients(check, *stack, *gradients);
    check_gradients_apart(check, *stack, input, *gradients, to);
    if (!check.failed()) {
        const SavedStack of(*stack, input.ids.batch, input.ids.tokens, static_cast<char *>(const_cast<void *>(saved)));
        StackBackward(check, context, *stack, input, of, *gradients, to).run();
    }
    return check.status();
}
