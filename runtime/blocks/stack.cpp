// Stacks: token embedding, blocks, the last norm and the output projection.
//
// The residual stream is one tensor in the context's scratch, f32 or, on a device, of the type of the blocks' matrices,
// which the blocks change in place. With a cache, tokens go through all blocks part by part; what the output projection
// reads is kept until the last part is through, so that logits are written at the end, by calls that take their memory
// before they write.
#include "blocks/stack.h"

#include <climits>
#include <cstdio>
#include <initializer_list>

#include "core/cast.h"
#include "core/check_shapes.h"
#include "core/dltensor_view.h"
#include "core/handles/kv_cache.h"
#include "core/integers.h"
#include "core/workspace.h"
#include "cpu/linear/gemm.h"
#include "cuda/ops/embedding.h"
#include "cuda/transfers.h"

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

/** Strides in elements. */
View view_of(Place place, const TypedMemory &memory, std::initializer_list<int64_t> shape,
             std::initializer_list<int64_t> strides) {
    View view;
    view.data = memory.data;
    view.dtype = memory.dtype;
    view.on_cuda = place.on_cuda;
    view.device_id = place.device_id;
    view.rank = static_cast<int>(shape.size());
    view.elements = view.span = 1;
    for (int axis = 0; axis < view.rank; axis++) {
        view.shape[axis] = shape.begin()[axis];
        view.strides[axis] = strides.begin()[axis];
        view.elements *= view.shape[axis];
        view.span += (view.shape[axis] - 1) * view.strides[axis];
    }
    return view;
}

/** One call. */
class StackRun {
public:
    StackRun(Checker &check, const halyard_context *context, const halyard_stack &stack, const Integers &ids,
             const CachedSequences &sequences, const halyard_stack_options &options, const View &logits)
        : check_(check), context_(context), stack_(stack), ids_(ids), sequences_(sequences), options_(options),
          logits_(logits), width_(stack.config.hidden_size),
          part_(sequences.cache ? std::min(ids.tokens, max_part_tokens) : ids.tokens),
          kept_(options.all_logits ? ids.tokens : part_) {}

    void run() {
        const halyard_context &context = context_or_default(context_);
        const int64_t rows = ids_.batch * kept_, logit_rows = logits_.shape[0] * logits_.shape[1];
        int64_t stream_elements;
        if (__builtin_mul_overflow(rows, width_, &stream_elements) || stream_elements > INT64_MAX / 16) {
            check_.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld tokens", static_cast<long long>(rows));
            return;
        }
        const int64_t part_rows = ids_.batch * part_;
        threads_ =
            static_cast<int>(std::min<int64_t>(threads_for(context, part_rows * width_ * float_size), part_rows));
        const bool on_cuda = stack_.place.on_cuda, wide_logits = stack_.softcaps.get() && logits_.dtype != DType::f32;
        const int64_t embedded = on_cuda ? part_rows * width_ : 0;
        const int64_t position_rows = !on_cuda ? threads_ * width_ : stack_.embed_positions.data ? embedded : 0;
        const int64_t bytes[] = {stream_elements * size_of(stack_.stream),
                                 embedded * float_size,
                                 position_rows * float_size,
                                 logit_rows * float_size,
                                 wide_logits ? logits_.elements * float_size : 0,
                                 brings_logits() ? logits_.elements * size_of(logits_.dtype) : 0};
        with_scratch(check_, context, stack_.place, rows, bytes, [&](char *const *memory) {
            stream_ = {memory[0], stack_.stream};
            embedded_ = reinterpret_cast<float *>(memory[1]);
            position_rows_ = reinterpret_cast<float *>(memory[2]);
            for (int64_t first = 0; first < ids_.tokens && !check_.failed(); first += part_) {
                run_part(first, std::min(part_, ids_.tokens - first));
            }
            make_logits(reinterpret_cast<float *>(memory[3]), memory[4], memory[5]);
        });
        if (check_.failed() && sequences_.cache) {
            const int64_t last = stack_.n_layers - 1;
            for (int64_t i = 0; i < ids_.batch; i++) {
                const int64_t length = sequences_.length(last, i) - done_;
                for (int64_t layer = 0; layer < stack_.n_layers; layer++) {
                    sequences_.shorten(layer, i, length);
                }
            }
        }
    }

private:
    static constexpr int64_t float_size = sizeof(float);

    /** Whether logits are made on a device and then brought to memory of the process. */
    bool brings_logits() const { return stack_.place.on_cuda && !logits_.on_cuda; }

    /** Where the stream of a token of the call is. */
    TypedMemory row(int64_t sequence, int64_t token) const {
        return stream_.from((sequence * kept_ + token % kept_) * width_);
    }

    View stream_view(const TypedMemory &from, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> strides) const {
        return view_of(stack_.place, from, shape, strides);
    }

    void run_part(int64_t first, int64_t count) {
        const View part = stream_view(row(0, first), {ids_.batch, count, width_}, {kept_ * width_, width_, 1});
        embed(first, count, part);
        observe(0, first, part);
        // What comes after the last keys and values is of use where somebody sees it.
        const bool seen = options_.all_logits || options_.observer, ends = first + count == ids_.tokens;
        const int64_t outputs = seen ? count : ends ? 1 : 0;
        for (int64_t layer = 0; layer < stack_.n_layers && !check_.failed(); layer++) {
            run_block(check_, context_, *stack_.blocks[layer], part, sequences_, layer,
                      layer + 1 < stack_.n_layers ? count : outputs, part);
            observe(layer + 1, first, part);
        }
        if (check_.failed()) {
            return;
        }
        done_ += count;
        if (seen) {
            norm(part);
            observe(stack_.n_layers + 1, first, part);
        } else if (ends) {
            norm(stream_view(row(0, ids_.tokens - 1), {ids_.batch, width_}, {kept_ * width_, 1}));
        }
    }

    void embed(int64_t first, int64_t count, const View &part) {
        if constexpr (has_cuda) {
            if (stack_.place.on_cuda) {
                embed_on_device(first, count, part);
                return;
            }
        }
        const int64_t rows = ids_.batch * count;
        const int parts = static_cast<int>(std::min<int64_t>(threads_, rows));
        run_tasks(context_or_default(context_), parts, [&](int index) {
            for (int64_t n = rows * index / parts; n < rows * (index + 1) / parts; n++) {
                const int64_t sequence = n / count, token = first + n % count;
                embed_token(ids_.at(sequence, token), position(sequence, n % count),
                            reinterpret_cast<float *>(row(sequence, token).data), position_rows_ + index * width_);
            }
        });
    }

    /** Of a token of the part that comes next: those of the parts before are in the cache. */
    int64_t position(int64_t sequence, int64_t token) const { return sequences_.length(0, sequence) + token; }

    void embed_token(int64_t id, int64_t position, float *to, float *position_row) const {
        widen_row(stack_.embed_tokens, id, to);
        const float multiplier = stack_.config.embedding_multiplier;
        if (multiplier != 1.0f) {
            for (int64_t i = 0; i < width_; i++) {
                to[i] *= multiplier;
            }
        }
        if (stack_.embed_positions.data) {
            widen_row(stack_.embed_positions, position, position_row);
            Buffer<2> sum, other;
            sum.set(to, width_, 1, 0);
            other.set(position_row, width_, 1, 0);
            kernel_function(kernels::add, DType::f32, isa_)({sum, other, sum});
        }
    }

    void widen_row(const View &table, int64_t index, float *to) const {
        widen(isa_, {table.data + index * table.strides[0] * size_of(table.dtype), table.dtype}, to, 0, width_, 1);
    }

    /** The same in f32 for all tokens at once, and then rounded to the type of the stream. */
    void embed_on_device(int64_t first, int64_t count, const View &part) {
        const auto each = [&](const View &table, float multiplier, float *to, auto number) {
            cuda::Launches launches(check_, context_or_default(context_), stack_.place.device_id);
            cuda::RowGather gather(launches, table, multiplier, to);
            for (int64_t i = 0; i < ids_.batch; i++) {
                for (int64_t t = 0; t < count; t++) {
                    gather.add(number(i, t));
                }
            }
            gather.finish();
        };
        each(stack_.embed_tokens, stack_.config.embedding_multiplier, embedded_,
             [&](int64_t i, int64_t t) { return ids_.at(i, first + t); });
        const auto rows = [&](float *data) {
            return stream_view({reinterpret_cast<char *>(data), DType::f32}, {ids_.batch, count, width_},
                               {count * width_, width_, 1});
        };
        LocalTensor embedded(rows(embedded_)), positions(rows(position_rows_)), to(part);
        if (stack_.embed_positions.data) {
            each(stack_.embed_positions, 1.0f, position_rows_, [&](int64_t i, int64_t t) { return position(i, t); });
            then(halyard_add, context_, embedded.get(), positions.get(), embedded.get());
        }
        then(halyard_cast, context_, embedded.get(), to.get());
    }

    void observe(int64_t layer, int64_t first, const View &part) const {
        if (options_.observer && !check_.failed()) {
            options_.observer(options_.user, layer, first, LocalTensor(part).get());
        }
    }

    void norm(const View &rows) {
        LocalTensor tensor(rows);
        then(apply_norm, context_, stack_.norm_kind(), stack_.norm, tensor.get(), tensor.get());
    }

    /** scales: one for each row of logits; f32_logits: where they are made if they cannot be made where they go; here:
     *  the same if that is not where the stack is. */
    void make_logits(float *scales, char *f32_logits, char *here) {
        const int64_t batch = logits_.shape[0], tokens = logits_.shape[1], vocab = logits_.shape[2];
        const View made = brings_logits()
                              ? stream_view({here, logits_.dtype}, {batch, tokens, vocab}, {tokens * vocab, vocab, 1})
                              : logits_;
        LocalTensor x(stream_view(row(0, ids_.tokens - tokens), {batch, tokens, width_}, {kept_ * width_, width_, 1}));
        LocalTensor logits(made), wide(made, {f32_logits, DType::f32}, vocab, vocab);
        if (!stack_.softcaps.get()) {
            then(halyard_linear, context_, x.get(), stack_.lm_head, nullptr, logits.get());
            bring_logits(made);
            return;
        }
        // softcap tanh(x W / softcap): quotient and tanh in the product's epilogue; then times a row of softcaps, which
        // stands for all rows.
        fill(scales, batch * tokens, 1.0f / stack_.config.final_logit_softcapping);
        char *const caps = static_cast<char *>(stack_.softcaps.get()->data);
        LocalTensor quotient(stream_view({reinterpret_cast<char *>(scales), DType::f32}, {batch, tokens}, {tokens, 1}));
        LocalTensor softcaps(stream_view({caps, DType::f32}, {batch, tokens, vocab}, {0, 0, 1}));
        halyard_linear_options options = {};
        options.row_scale = quotient.get();
        options.activation = HALYARD_TANH;
        const bool is_wide = logits_.dtype == DType::f32;
        DLTensor *const target = is_wide ? logits.get() : wide.get();
        then(halyard_linear, context_, x.get(), stack_.lm_head, &options, target);
        then(halyard_bilinear, context_, target, softcaps.get(), target);
        if (!is_wide) {
            then(halyard_cast, context_, target, logits.get());
        }
        bring_logits(made);
    }

    void fill(float *data, int64_t count, float value) {
        if constexpr (has_cuda) {
            if (stack_.place.on_cuda) {
                cuda::Launches launches(check_, context_or_default(context_), stack_.place.device_id);
                cuda::fill_floats(launches, data, value, count);
                return;
            }
        }
        std::fill_n(data, count, value);
    }

    /** From the device to memory of the process, when all that the stream has been given is done. */
    void bring_logits(const View &made) {
        if constexpr (has_cuda) {
            if (brings_logits()) {
                const char *const what = "copying logits from the device";
                cuda::Launches launches(check_, context_or_default(context_), stack_.place.device_id);
                cuda::wait(launches, what);
                const int64_t size = size_of(made.dtype), width = made.shape[2] * size, tokens = made.shape[1],
                              pitch = logits_.strides[1] * size;
                // The driver copies several rows that are not 2 GB apart.
                const int64_t at_once = pitch <= INT_MAX ? tokens : 1;
                for (int64_t i = 0; i < made.shape[0]; i++) {
                    for (int64_t t = 0; t < tokens; t += at_once) {
                        cuda::copy_rows(launches,
                                        {logits_.data + i * logits_.strides[0] * size + t * pitch, false, pitch},
                                        {made.data + (i * tokens + t) * width, true, width}, width, at_once, what);
                    }
                }
                cuda::wait(launches, what);
            }
        }
    }

    /** Calls a function, unless something has failed. */
    template<typename... Parameters, typename... Arguments>
    void then(halyard_status (*function)(Parameters...), const Arguments &...arguments) {
        if (!check_.failed()) {
            const halyard_status status = function(arguments...);
            if (status != HALYARD_OK) {
                fail_as(check_, status);
            }
        }
    }

    Checker &check_;
    const halyard_context *const context_;
    const halyard_stack &stack_;
    const Integers &ids_;
    const CachedSequences &sequences_;
    const halyard_stack_options &options_;
    const View logits_;
    const int64_t width_;
    const int64_t part_;  // tokens of a sequence that go through the blocks at a time
    const int64_t kept_;  // tokens of a sequence that the stream holds
    const halyard_isa isa_ = best_isa(context_or_default(context_).max_isa);
    int threads_ = 1;                             // of the embedding
    int64_t done_ = 0;                            // tokens of a sequence that went through all blocks
    TypedMemory stream_ = {nullptr, DType::f32};  // [batch][kept_][width_]
    float *embedded_ = nullptr;                   // [batch][part_][width_], on a device
    float *position_rows_ = nullptr;              // [threads_][width_] or, on a device, as embedded_
};

/** Refuses logits and a cache that do not go with the stack's place: logits may be in memory of the process besides. */
void check_places(Checker &check, const halyard_context *context, const halyard_stack &stack, const View &logits,
                  const halyard_kv_cache *cache) {
    if (cache) {
        check_place(check, "cache", place_of(*cache), "stack", stack.place);
        if (place_of(logits) == place_of(*cache)) {
            check_clear_of_cache(check, logits, *cache);
        }
    }
    if (logits.on_cuda) {
        check_place(check, "logits", place_of(logits), "stack", stack.place);
    } else if constexpr (has_cuda) {
        if (stack.place.on_cuda && !check.failed()) {
            cuda::Launches launches(check, context_or_default(context), stack.place.device_id);
            if (cuda::capturing(launches)) {
                check.fail(HALYARD_DEVICE_ERROR,
                           "the stream is being captured, but logits is on the CPU, and the call would wait for them");
            }
        }
    }
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_forward(const halyard_context *context, const halyard_stack *stack,
                                     const DLTensor *input_ids, halyard_kv_cache *cache, const int64_t *sequences,
                                     const halyard_stack_options *options, DLTensor *logits) {
    Checker check("halyard_stack_forward", Devices::cpu_or_cuda);
    const halyard_stack_options none = {};
    const halyard_stack_options &o = options ? *options : none;
    check.not_null("stack", stack);
    // The ids are on the CPU wherever the stack is.
    Checker check_ids("halyard_stack_forward");
    const Integers ids = check.failed() ? Integers() : check_integers(check_ids, "input_ids", input_ids);
    if (check.failed() || check_ids.failed()) {
        return check.failed() ? check.status() : check_ids.status();
    }
    const View logits_view = check_logits(check, logits, ids, o.all_logits != 0, stack->config.vocab_size);
    if (!check.failed() && ids.batch > 0 && ids.tokens == 0 && !o.all_logits) {
        check.fail(HALYARD_INVALID_ARGUMENT, "input_ids has no tokens, so there is no last one to give logits of");
    }
    const CachedSequences cached = {cache, sequences, ids.batch};
    check_stack_call(check, *stack, cached, ids.tokens);
    if (check.failed() || ids.batch == 0 || ids.tokens == 0) {
        return check.status();
    }
    check_places(check, context, *stack, logits_view, cache);
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
