// Stacks: token embedding, blocks, the last norm and the output projection.
//
// The residual is one tensor in a workspace, f32 or, on a device, of the dtype of the blocks' matrices, which the blocks
// change in place. With a cache, tokens go through all blocks part by part; what the output projection reads is kept until
// the last part is through, so that logits are written at the end, by calls that take their memory before they write.
#include "blocks/stack.h"

#include <algorithm>
#include <cstdio>

#include "core/calls/integers.h"
#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"

namespace halyard {
namespace {

/** Tokens of a sequence that go through the blocks together where there is a cache. */
constexpr int64_t max_part_tokens = 512;

// ---- Arguments ----

void check_ids_in_range(Checker &check, const Integers &ids, int64_t vocab_size) {
    for (int64_t i = 0; i < ids.batch && !check.failed(); i++) {
        for (int64_t t = 0; t < ids.tokens && !check.failed(); t++) {
            const int64_t id = ids.at(i, t);
            if (id >= 0 && id < vocab_size) {
                continue;
            }
            const long long token = t, value = id, size = vocab_size;
            if (ids.rank == 1) {
                check.fail(HALYARD_INVALID_ARGUMENT, "input_ids[%lld] is %lld, but vocab_size is %lld", token, value,
                           size);
            } else {
                check.fail(HALYARD_INVALID_ARGUMENT, "input_ids[%lld, %lld] is %lld, but vocab_size is %lld",
                           static_cast<long long>(i), token, value, size);
            }
        }
    }
}

/** [vocab_size] for each sequence or, if `all`, for each token: as [batch, 1 or T, vocab_size]. */
View check_logits(Checker &check, const DLTensor *logits, const Integers &ids, bool all, int64_t vocab_size) {
    const View given = check.output("logits", logits);
    const int rank = (ids.rank == 2) + all + 1;
    if (!check.failed() && given.rank != rank) {
        check.fail(HALYARD_INVALID_ARGUMENT, "logits has rank %d, but must have rank %d: %s", given.rank, rank,
                   all ? "an axis more than input_ids" : "that of input_ids, without all_logits");
    }
    const struct {
        bool present;
        int64_t extent;
        const char *of;
    } axes[] = {{ids.rank == 2, ids.batch, "the batch of input_ids"},
                {all, ids.tokens, "the tokens of input_ids"},
                {true, vocab_size, "the vocab_size of stack"}};
    View view = given;
    view.rank = 3;
    int axis = 0;
    for (int i = 0; i < 3 && !check.failed(); i++) {
        view.shape[i] = axes[i].present ? axes[i].extent : 1;
        view.strides[i] = axes[i].present ? given.strides[axis] : 0;
        if (axes[i].present && given.shape[axis] != axes[i].extent) {
            check.fail(HALYARD_INVALID_ARGUMENT, "logits has extent %lld on axis %d, but must have %lld, %s",
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

// ---- Work ----

/** One call. */
class StackRun {
public:
    StackRun(Checker &check, const halyard_context *context, const halyard_stack &stack, const Integers &ids,
             const CachedSequences &sequences, const halyard_stack_options &options, const View &logits)
        : check_(check), context_(context), stack_(stack), ids_(ids), append_(sequences, 0, stack.n_layers),
          options_(options), logits_(logits), width_(stack.config.hidden_size),
          part_(sequences.cache ? std::min(ids.tokens, max_part_tokens) : ids.tokens),
          kept_(options.all_logits ? ids.tokens : part_) {}

    void run() {
        const bool f32_first = stack_.softcaps.data && logits_.dtype != DType::f32;
        const bool made_elsewhere = device_of(logits_) != stack_.device;
        Workspace workspace(context_or_default(context_), stack_.device);
        int64_t tokens;
        if (__builtin_mul_overflow(ids_.batch, kept_, &tokens)) {
            tokens = INT64_MAX;
        }
        const auto residual = workspace.book(tokens, width_ * size_of(stack_.residual_dtype));
        const auto f32_logits = workspace.book<float>(f32_first ? logits_.elements : 0);
        const auto logits = workspace.book(made_elsewhere ? logits_.elements : 0, size_of(logits_.dtype));
        if (workspace.allocate(check_)) {
            residual_ = view_of(workspace[residual], stack_.residual_dtype, stack_.device, {ids_.batch, kept_, width_},
                                {kept_ * width_, width_, 1});
            for (int64_t first = 0; first < ids_.tokens && !check_.failed(); first += part_) {
                run_part(first, std::min(part_, ids_.tokens - first));
            }
            const int64_t vocab = logits_.width();
            const View made = made_elsewhere ? view_of(workspace[logits], logits_.dtype, stack_.device,
                                                       {logits_.shape[0], logits_.shape[1], vocab},
                                                       {logits_.shape[1] * vocab, vocab, 1})
                                             : logits_;
            make_logits(made, f32_first ? view_like(made, workspace[f32_logits], DType::f32, vocab, vocab) : made);
            if (made_elsewhere && !check_.failed()) {
                backend_of(stack_.device.on_cuda)
                    .copy(check_, context_or_default(context_), stack_.device.device_id, made, logits_);
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
                 {stack_.embed_tokens, stack_.embed_positions, stack_.config.embedding_multiplier, ids_, first,
                  append_.sequences(), part});
        observe(0, first, part);
        // What comes after the last keys and values is of use where somebody sees it.
        const bool seen = options_.all_logits || options_.observer, ends = first + count == ids_.tokens;
        const int64_t outputs = seen ? count : ends ? 1 : 0;
        for (int64_t layer = 0; layer < stack_.n_layers && !check_.failed(); layer++) {
            run_block(check_, context_, *stack_.blocks[layer], part, append_, layer,
                      layer + 1 < stack_.n_layers ? count : outputs, rounds(*stack_.blocks[layer]->qkv), part);
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
    bool rounds(const halyard_weights &weights) const {
        return !stack_.device.on_cuda && rounds_between(context_or_default(context_), weights.dtype, weights.dtype);
    }

    void observe(int64_t layer, int64_t first, View part) const {
        if (options_.observer && !check_.failed()) {
            const DLTensor tensor = dltensor_of(part);
            options_.observer(options_.user, layer, first, &tensor);
        }
    }

    /** `in_f32`: the same as logits or, where soft caps come before they are rounded, a tensor like them. */
    void make_logits(const View &logits, const View &in_f32) {
        const int64_t batch = logits.shape[0], tokens = logits.shape[1], vocab = logits.shape[2];
        LinearCall call;
        call.x = residual(ids_.tokens - tokens, tokens);
        call.y = in_f32;
        call.weights = stack_.lm_head;
        call.rounded = rounds(*stack_.lm_head);
        if (stack_.softcaps.data) {
            // softcap tanh(x W / softcap): quotient and tanh in the matmul's epilogue.
            call.row_scale =
                view_of(stack_.softcap_reciprocal.data, DType::f32, stack_.device, {batch, tokens}, {0, 0});
            call.activation = HALYARD_TANH;
        }
        run_call(check_, context_, &Backend::linear, call);
        if (stack_.softcaps.data) {
            const View softcaps =
                view_of(stack_.softcaps.data, DType::f32, stack_.device, {batch, tokens, vocab}, {0, 0, 1});
            run_call(check_, context_, &Backend::elementwise, {kernels::bilinear, in_f32, softcaps, 0.0f, in_f32});
            if (in_f32.dtype != logits.dtype) {
                run_cast(check_, context_, in_f32, logits);
            }
        }
    }

    Checker &check_;
    const halyard_context *const context_;
    const halyard_stack &stack_;
    const Integers &ids_;
    CacheAppend append_;
    const halyard_stack_options &options_;
    const View logits_;
    const int64_t width_;
    const int64_t part_;  // tokens of a sequence that go through the blocks at a time
    const int64_t kept_;  // tokens of a sequence whose residuals are kept
    View residual_;       // [batch][kept_][width_]
};

/** Refuses logits and a cache that do not go with the stack: logits may be in memory of the process besides. */
void check_devices(Checker &check, const halyard_context *context, const halyard_stack &stack, const View &logits,
                   const halyard_kv_cache *cache) {
    if (cache) {
        check_device(check, "cache", device_of(*cache), "stack", stack.device);
        if (device_of(logits) == device_of(*cache)) {
            check_clear_of_cache(check, logits, *cache);
        }
    }
    if (logits.on_cuda) {
        check_device(check, "logits", device_of(logits), "stack", stack.device);
    } else if (stack.device.on_cuda && !check.failed() &&
               backend_of(true).capturing(check, context_or_default(context), stack.device.device_id)) {
        check.fail(HALYARD_DEVICE_ERROR,
                   "the stream is being captured, but logits is on the CPU, and the call would wait for them");
    }
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_forward(const halyard_context *context, const halyard_stack *stack,
                                     const DLTensor *input_ids, halyard_kv_cache *cache, const int64_t *sequences,
                                     const halyard_stack_options *options, DLTensor *logits) {
    Checker check("halyard_stack_forward", Devices::cpu_or_cuda);
    check.set_context(context);
    const halyard_stack_options none = {};
    const halyard_stack_options &o = options ? *options : none;
    check.not_null("stack", stack);
    // The ids are on the CPU wherever the stack is.
    Checker check_ids("halyard_stack_forward");
    const Integers ids = check.failed() ? Integers() : check_integers(check_ids, "input_ids", input_ids);
    if (check.failed() || check_ids.failed()) {
        return check.failed() ? check.status() : check_ids.status();
    }
    record_weights(check, "blocks[0].", *stack->blocks[0]);
    check.record("", "lm_head", *stack->lm_head);
    const View logits_view = check_logits(check, logits, ids, o.all_logits != 0, stack->config.vocab_size);
    if (!check.failed() && ids.batch > 0 && ids.tokens == 0 && !o.all_logits) {
        check.fail(HALYARD_INVALID_ARGUMENT, "input_ids has no tokens, so there is no last one to give logits of");
    }
    const CachedSequences cached = {cache, sequences, ids.batch};
    check_stack_call(check, *stack, cached, ids.tokens);
    if (check.failed() || ids.batch == 0 || ids.tokens == 0) {
        return check.status();
    }
    check_devices(check, context, *stack, logits_view, cache);
    check.no_overlap(logits_view, stack->embed_tokens, false);
    check.no_overlap(logits_view, stack->embed_positions, false);
    check.no_overlap(logits_view, ids.memory, false);
    if (cache && !cache->on_cuda) {
        check_clear_of_cache(check, ids.memory,
                             *cache);  // a part of a prompt is read after keys of another are written
    }
    check_ids_in_range(check, ids, stack->config.vocab_size);
    if (!check.failed()) {
        StackRun(check, context, *stack, ids, cached, o, logits_view).run();
    }
    return check.status();
}
