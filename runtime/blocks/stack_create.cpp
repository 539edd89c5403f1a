// Making a stack: where its blocks are.
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "blocks/stack.h"
#include "core/check_options.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "cuda/transfers.h"

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
        } else if (blocks[i]->place != blocks[0]->place) {
            char name[32];
            snprintf(name, sizeof(name), "blocks[%lld]", static_cast<long long>(i));
            check_place(check, name, blocks[i]->place, "blocks[0]", blocks[0]->place);
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

/** The softcaps of all logits. */
void make_softcaps(Checker &check, const halyard_context *context, halyard_stack &stack) {
    const int64_t count = stack.config.vocab_size;
    const float softcap = stack.config.final_logit_softcapping;
    if (check.failed() || softcap == 0.0f) {
        return;
    }
    stack.softcap_memory =
        allocate_at(check, stack.place, count * static_cast<int64_t>(sizeof(float)), "soft caps of logits");
    if (check.failed()) {
        return;
    }
    float *const softcaps = static_cast<float *>(stack.softcap_memory);
    stack.softcaps.set(softcaps, DType::f32, stack.place.dlpack(), count);
    if constexpr (has_cuda) {
        if (stack.place.on_cuda) {
            cuda::Launches launches(check, context_or_default(context), stack.place.device_id);
            cuda::fill_floats(launches, softcaps, softcap, count);
            cuda::wait(launches, "filling memory of the device");
            return;
        }
    }
    std::fill_n(softcaps, count, softcap);
}

/** The rows of a matrix [out, in] that is packed for a device. */
View packed_rows(const halyard_weights &weights) {
    View view;
    view.name = "embed_tokens";
    view.data = const_cast<char *>(weights.matrix);
    view.dtype = weights.dtype;
    view.on_cuda = true;
    view.device_id = weights.device_id;
    view.rank = 2;
    view.shape[0] = weights.out_features;
    view.shape[1] = weights.in_features;
    view.strides[0] = weights.pitch;
    view.strides[1] = 1;
    view.elements = view.shape[0] * view.shape[1];
    view.span = (view.shape[0] - 1) * view.strides[0] + view.shape[1];
    return view;
}

/** Sees to it that a table is where the stack is. Null or the memory of the copy. */
char *bring_table(Checker &check, const halyard_context *context, Place place, View &table) {
    if constexpr (has_cuda) {
        if (!check.failed() && table.data && place.on_cuda && !table.on_cuda) {
            const int64_t row_bytes = table.width() * size_of(table.dtype), rows = table.shape[0];
            char *const copy = allocate_at(check, place, rows * row_bytes, "a table");
            cuda::Launches launches(check, context_or_default(context), place.device_id);
            const char *const what = "copying a table to the device";
            const int64_t pitch = table.strides[0] * size_of(table.dtype);
            // The driver copies several rows where they share no memory and are not 2 GB apart.
            const int64_t at_once = pitch >= row_bytes && pitch <= INT_MAX ? rows : 1;
            for (int64_t row = 0; row < rows; row += at_once) {
                cuda::copy_rows(launches, {copy + row * row_bytes, true, row_bytes},
                                {table.data + row * pitch, false, pitch}, row_bytes, at_once, what);
            }
            cuda::wait(launches, what);
            table.data = copy;
            table.strides[0] = table.width();
            table.span = table.elements;
            table.on_cuda = true;
            table.device_id = place.device_id;
            return copy;
        }
    }
    return nullptr;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_stack_create(const halyard_context *context, const halyard_stack_config *config,
                                    const halyard_stack_weights *weights, const halyard_block *const *blocks,
                                    int64_t n_layers, halyard_stack **stack) {
    Checker check("halyard_stack_create", Devices::cpu_or_cuda);
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
    if (!check.failed() && embed_tokens.on_cuda) {
        check_place(check, "embed_tokens", place_of(embed_tokens), "blocks[0]", blocks[0]->place);
    }
    if (check.failed()) {
        return check.status();
    }

    void *const memory = malloc(sizeof(halyard_stack));
    if (!memory) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    halyard_stack *const made = new (memory) halyard_stack;
    made->config = c;
    made->place = blocks[0]->place;
    made->stream = made->place.on_cuda ? common_dtype(blocks, n_layers) : DType::f32;
    made->embed_tokens = embed_tokens;
    made->embed_positions = embed_positions;
    const VectorSource vectors[] = {{&made->norm.weight, norm, c.hidden_size},
                                    {&made->norm.bias, norm_bias, c.hidden_size}};
    int64_t bytes = 0;
    made->norm_memory =
        make_kept_vectors(check, context_or_default(context), made->place, made->stream, vectors, 2, bytes);
    if (!check.failed() && !copy_blocks(*made, blocks, n_layers)) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a stack");
    }
    make_softcaps(check, context, *made);
    if (!check.failed()) {
        halyard_pack_options options = {};
        options.device = made->place.dlpack();
        const halyard_status status = halyard_weights_pack(context, lm_head, &options, nullptr, 0, &made->lm_head);
        if (status != HALYARD_OK) {
            fail_as(check, status);
        }
    }
    if (!check.failed() && made->place.on_cuda && !weights->lm_head) {
        // What the output projection reads are the table's own rows.
        made->embed_tokens = packed_rows(*made->lm_head);
    }
    made->tables[0] = bring_table(check, context, made->place, made->embed_tokens);
    made->tables[1] = bring_table(check, context, made->place, made->embed_positions);
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
        free_at(stack->place, stack->norm_memory);
        free_at(stack->place, stack->softcap_memory);
        for (char *const table : stack->tables) {
            free_at(stack->place, table);
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
