// Stacks: token embedding, blocks, the last norm and the output projection.
//
// The residual is one tensor in a workspace, f32 or, on a device, of the dtype of the blocks' matrices, which the blocks
// change in place. With a cache, tokens go through all blocks part by part; what the output projection reads is kept until
// the last part is through, so that logits are written at the end, by calls that take their memory before they write.
#include "blocks/stack.h"

#include <algorithm>

#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"

namespace halyard {
namespace {

/** Tokens of a sequence that go through the blocks together where there is a cache. */
constexpr int64_t max_part_tokens = 512;

/** One call. */
class StackRun {
public:
    StackRun(Checker &check, const halyard_context *context, const halyard_stack &stack, const Integers &ids,
             const Integers &types, const CachedSequences &sequences, const halyard_stack_options &options,
             const ResultKind &kind, const View &result)
        : check_(check), context_(context), stack_(stack), ids_(ids), types_(types),
          append_(sequences, 0, stack.n_layers), options_(options), kind_(kind), result_(result),
          width_(stack.config.hidden_size), part_(sequences.cache ? std::min(ids.tokens, max_part_tokens) : ids.tokens),
          kept_(kind.all ? ids.tokens : part_) {}

    void run() {
        const bool f32_first = kind_.is_logits && stack_.softcaps.data && result_.dtype != DType::f32;
        const bool made_elsewhere = device_of(result_) != stack_.device;
        Workspace workspace(context_or_default(context_), stack_.device);
        const auto rows = [&](int64_t tokens) {
            int64_t count;
            return __builtin_mul_overflow(ids_.batch, tokens, &count) ? INT64_MAX : count;
        };
        const int64_t row_bytes = width_ * size_of(stack_.residual_dtype);
        const auto residual = workspace.book(rows(kept_), row_bytes);
        const auto added = workspace.book(stack_.embed_types.data ? rows(part_) : 0, row_bytes);
        const auto f32_logits = workspace.book<float>(f32_first ? result_.elements : 0);
        const auto made_there = workspace.book(made_elsewhere ? result_.elements : 0, size_of(result_.dtype));
        if (workspace.allocate(check_)) {
            residual_ = view_of(workspace[residual], stack_.residual_dtype, stack_.device, {ids_.batch, kept_, width_},
                                {kept_ * width_, width_, 1});
            added_ = view_of(workspace[added], stack_.residual_dtype, stack_.device, {ids_.batch, part_, width_},
                             {part_ * width_, width_, 1});
            for (int64_t first = 0; first < ids_.tokens && !check_.failed(); first += part_) {
                run_part(first, std::min(part_, ids_.tokens - first));
            }
            const int64_t tokens = result_.shape[1], width = result_.width();
            const View made = made_elsewhere ? view_of(workspace[made_there], result_.dtype, stack_.device,
                                                       {result_.shape[0], tokens, width}, {tokens * width, width, 1})
                                             : result_;
            if (kind_.is_logits) {
                run_lm_head(check_, context_, stack_, this->residual(ids_.tokens - tokens, tokens),
                            rounds(*stack_.lm_head.weights), View(),
                            f32_first ? view_like(made, workspace[f32_logits], DType::f32, width, width) : made, made);
            } else {
                run_cast(check_, context_, residual_, made);
            }
            if (made_elsewhere && !check_.failed()) {
                backend_of(stack_.device.on_cuda)
                    .copy(check_, context_or_default(context_), stack_.device.device_id, made, result_);
            }
        }
        if (check_.failed()) {
            append_.roll_back();
        }
    }

private:
    /** The residuals of `count` tokens of each sequence from one on. */
    View residual(int64_t first, int64_t count) const { return part_of(residual_, 1, first % kept_, count); }

    void run_part(int64_t first, int64_t count) {
        const View part = residual(first, count);
        run_call(check_, context_, &Backend::embed,
                 {stack_.embed_tokens, stack_.embed_codes, stack_.embed_positions, stack_.config.embedding_multiplier,
                  ids_, first, append_.sequences(), part});
        if (stack_.embed_types.data) {
            const View added = part_of(added_, 1, 0, count);
            run_call(check_, context_, &Backend::embed,
                     {stack_.embed_types, {}, View(), 1.0f, types_, first, append_.sequences(), added});
            run_call(check_, context_, &Backend::elementwise, {kernels::add, part, added, part});
        }
        run_norm(check_, context_, stack_.embed_norm, part, part);
        observe(0, first, part);
        // What comes after the last keys and values is of use where somebody sees it.
        const bool seen = kind_.all || options_.observer, ends = first + count == ids_.tokens;
        const int64_t outputs = seen ? count : ends ? 1 : 0;
        for (int64_t layer = 0; layer < stack_.n_layers && !check_.failed(); layer++) {
            run_block(check_, context_, *stack_.blocks[layer], part, append_, layer,
                      layer + 1 < stack_.n_layers ? count : outputs, rounds(*stack_.blocks[layer]), part);
            observe(layer + 1, first, part);
        }
        if (seen) {
            run_norm(check_, context_, stack_.norm, part, part);
            observe(stack_.n_layers + 1, first, part);
        } else if (ends) {
            const View last = residual(ids_.tokens - 1, 1);
            run_norm(check_, context_, stack_.norm, last, last);
        }
    }

    /** On a processor, where the residual is f32, the activations count as of the dtype of the matrices. */
    bool rounds(const halyard_block &block) const { return rounds_in_block(context_, block, block.dtype); }
    bool rounds(const halyard_weights &weights) const {
        return !stack_.device.on_cuda && rounds_between(context_or_default(context_), weights, weights.dtype);
    }

    void observe(int64_t layer, int64_t first, View part) const {
        if (options_.observer && !check_.failed()) {
            const DLTensor tensor = dltensor_of(part);
            options_.observer(options_.user, layer, first, &tensor);
        }
    }

    Checker &check_;
    const halyard_context *const context_;
    const halyard_stack &stack_;
    const Integers &ids_, &types_;
    CacheAppend append_;
    const halyard_stack_options &options_;
    const ResultKind &kind_;
    const View result_;
    const int64_t width_;
    const int64_t part_;  // tokens of a sequence that go through the blocks at a time
    const int64_t kept_;  // tokens of a sequence whose residuals are kept
    View residual_;       // [batch][kept_][width_]
    View added_;          // [batch][part_][width_]: rows of embed_types
};

/** Refuses a result and a cache that do not go with the stack: the result may be in memory of the process besides. */
void check_devices(Checker &check, const halyard_context *context, const halyard_stack &stack, const char *name,
                   const View &result, const halyard_kv_cache *cache) {
    if (cache) {
        check_device(check, "cache", device_of(*cache), "stack", stack.device);
        if (device_of(result) == device_of(*cache)) {
            check_clear_of_cache(check, result, *cache);
        }
    }
    if (result.on_cuda) {
        check_device(check, name, device_of(result), "stack", stack.device);
    } else if (stack.device.on_cuda && !check.failed() &&
               backend_of(true).capturing(check, context_or_default(context), stack.device.device_id)) {
        check.fail(HALYARD_DEVICE_ERROR,
                   "the stream is being captured, but %s is on the CPU, and the call would wait for it", name);
    }
}

halyard_status run_stack(Checker &check, const halyard_context *context, const halyard_stack &stack,
                         const Integers &ids, const Integers &types, const CachedSequences &sequences,
                         const halyard_stack_options &options, const ResultKind &kind, const DLTensor *result) {
    record_weights(check, "blocks[0].", *stack.blocks[0]);
    if (kind.is_logits) {
        check.record("", "lm_head", *stack.lm_head.weights);
    }
    const View view = check_result(check, kind, result, ids);
    if (!check.failed() && ids.batch > 0 && ids.tokens == 0 && !kind.all) {
        check.fail(HALYARD_INVALID_ARGUMENT, "input_ids has no tokens, so there is no last one to give logits of");
    }
    check_stack_call(check, stack, sequences, ids.tokens);
    if (check.failed() || ids.batch == 0 || ids.tokens == 0) {
        return check.status();
    }
    const halyard_kv_cache *const cache = sequences.cache;
    check_devices(check, context, stack, kind.name, view, cache);
    check.no_overlap(view, stack.embed_tokens, false);
    check.no_overlap(view, stack.embed_codes.codes.memory, false);
    check.no_overlap(view, stack.embed_positions, false);
    check.no_overlap(view, stack.embed_types, false);
    check_clear_of_packed(check, view, stack.lm_head);
    for (int64_t layer = 0; layer < stack.n_layers; layer++) {
        check_clear_of_packed(check, view, *stack.blocks[layer]);
    }
    for (const Integers *const integers : {&ids, &types}) {
        check.no_overlap(view, integers->memory, false);
        if (cache && !cache->on_cuda && integers->memory.data) {
            // A part of a prompt is read after keys of another are written.
            check_clear_of_cache(check, integers->memory, *cache);
        }
    }
    check_in_range(check, "input_ids", ids, "vocab_size", stack.config.vocab_size);
    if (stack.embed_types.data) {
        check_in_range(check, "token_types", types, "the number of rows of embed_types", stack.embed_types.shape[0]);
    }
    if (!check.failed()) {
        StackRun(check, context, stack, ids, types, sequences, options, kind, view).run();
    }
    return check.status();
}

/** Both functions, which differ in what they write. */
halyard_status call_stack(const char *function, const halyard_context *context, const halyard_stack *stack,
                          const DLTensor *input_ids, halyard_kv_cache *cache, const int64_t *sequences,
                          const halyard_stack_options *options, const DLTensor *result, bool is_logits) {
    Checker check(function, Devices::cpu_or_cuda);
    check.set_context(context);
    const halyard_stack_options none = {};
    const halyard_stack_options &o = options ? *options : none;
    check.not_null("stack", stack);
    if (!check.failed() && is_logits && !stack->lm_head.weights) {
        check.fail(HALYARD_INVALID_ARGUMENT, "stack has no lm_head, so it gives hidden states and no logits");
    }
    // The ids are on the CPU wherever the stack is.
    Checker check_ids(function);
    const Integers ids = check.failed() ? Integers() : check_integers(check_ids, "input_ids", input_ids);
    const Integers types = check.failed() || check_ids.failed()
                               ? Integers()
                               : check_types(check_ids, o.token_types, ids, stack->embed_types.data != nullptr);
    check.take_over(check_ids);
    if (check.failed()) {
        return check.status();
    }
    const halyard_stack_config &c = stack->config;
    const ResultKind kind = is_logits
                                ? ResultKind{"logits", o.all_logits != 0, c.vocab_size, "the vocab_size of stack", true}
                                : ResultKind{"hidden", true, c.hidden_size, "the hidden_size of stack", false};
    return run_stack(check, context, *stack, ids, types, {cache, sequences, ids.batch}, o, kind, result);
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_forward(const halyard_context *context, const halyard_stack *stack,
                                     const DLTensor *input_ids, halyard_kv_cache *cache, const int64_t *sequences,
                                     const halyard_stack_options *options, DLTensor *logits) {
    return call_stack("halyard_stack_forward", context, stack, input_ids, cache, sequences, options, logits, true);
}

halyard_status halyard_stack_hidden_states(const halyard_context *context, const halyard_stack *stack,
                                           const DLTensor *input_ids, halyard_kv_cache *cache, const int64_t *sequences,
                                           const halyard_stack_options *options, DLTensor *hidden) {
    return call_stack("halyard_stack_hidden_states", context, stack, input_ids, cache, sequences, options, hidden,
                      false);
}
