// Blocks and stacks, and their training.
#include "fuzz/c_api_session.h"

namespace halyard::tests {
namespace {

void read_hidden(void *user, std::int64_t, std::int64_t, const DLTensor *hidden) {
    const std::int64_t count = hidden->shape[0] * hidden->shape[1] * hidden->shape[2];
    float sum = 0;
    for (std::int64_t i = 0; i < count; i++) {
        sum += static_cast<const float *>(hidden->data)[i];
    }
    *static_cast<volatile float *>(user) = sum;
}

}  // namespace

/** Features of blocks: few, or as many as a block of GGUF has. */
constexpr std::int64_t few = 16, coded = 32, block_head_dim = 8;

/** Width of the network, so that its down projection has whole blocks of GGUF too. */
constexpr std::int64_t wide_of(std::int64_t hidden) {
    return hidden == coded ? 32 : 24;
}

halyard_block_config Session::block_config(std::int64_t hidden) {
    halyard_block_config c{};
    c.hidden_size = number(hidden);
    c.intermediate_size = number(wide_of(hidden));
    c.num_attention_heads = number(hidden / block_head_dim);
    c.num_key_value_heads = number(static_cast<std::int64_t>(in_.in(0, 2)));
    c.head_dim = number(in_.one_in(2) ? INT64_C(8) : INT64_C(0));
    c.norm = value<halyard_norm>(3);
    c.norm_placement = value<halyard_norm_placement>(5);
    c.rms_norm_eps = number(1e-5f);
    c.norm_flags = in_.one_in(4) ? flags() : 0;
    c.hidden_act = value<halyard_activation>(10);
    c.swish_beta = number(1.5f);
    c.gated_mlp = in_.one_in(2);
    c.causal = !in_.one_in(4);
    c.sliding_window = number(in_.one_in(4) ? INT64_C(3) : INT64_C(0));
    c.query_pre_attn_scalar = number(0.0f);
    c.attn_logit_softcapping = number(in_.one_in(4) ? 30.0f : 0.0f);
    if (in_.one_in(2)) {
        c.rope = rope_options(in_.one_in(2) ? 8 : 0);
    }
    c.max_position_embeddings = number(INT64_C(20));
    return c;
}

/** Puts codes of matrices of 32 features into `codes`, which has place for 8, and `w`. */
void Session::coded_matrices(Call &call, std::int64_t kv, halyard_codes *codes, halyard_block_weights &w) {
    const bool mixed = in_.one_in(3);
    const auto format = [&] {
        return in_.of({HALYARD_CODES_Q8_0, HALYARD_CODES_Q4_1, HALYARD_CODES_INT8, HALYARD_CODES_AWQ});
    };
    const halyard_code_format of_all = format();
    const auto matrix = [&](std::int64_t out) {
        halyard_codes numbers{};
        numbers.format = mixed ? format() : of_all;
        numbers.in_features = coded;
        numbers.out_features = out;
        *codes = codes_of(call, numbers);
        return codes++;
    };
    if (in_.one_in(4)) {
        w.codes.qkv_proj = matrix(coded + 2 * kv);
    } else {
        w.codes.q_proj = matrix(coded);
        w.codes.k_proj = matrix(kv);
        w.codes.v_proj = matrix(kv);
    }
    w.codes.o_proj = matrix(coded);
    w.codes.gate_proj = in_.one_in(2) ? matrix(coded) : nullptr;
    w.codes.up_proj = matrix(coded);
    w.codes.down_proj = matrix(coded);
}

/** Some of the biases and norms that go with the matrices. */
void Session::block_vectors(Call &call, const halyard_block_config &config, std::int64_t hidden, std::int64_t kv,
                            halyard_block_weights &w) {
    const auto vector = [&](std::int64_t width) {
        return in_.one_in(5) ? call.input(Shape().with(width), dtype()) : nullptr;
    };
    const std::int64_t wide = wide_of(hidden);
    if (w.qkv_proj || w.codes.qkv_proj) {
        w.qkv_proj_bias = vector(hidden + 2 * kv);
    } else {
        w.q_proj_bias = vector(hidden);
        w.k_proj_bias = vector(kv);
        w.v_proj_bias = vector(kv);
    }
    w.o_proj_bias = vector(hidden);
    w.q_norm = vector(block_head_dim);
    w.k_norm = vector(block_head_dim);
    w.gate_proj_bias = config.gated_mlp ? vector(wide) : nullptr;
    w.up_proj_bias = vector(wide);
    w.down_proj_bias = vector(hidden);
    if (config.norm != HALYARD_NORM_NONE) {
        w.attention_norm = vector(hidden);
        w.ffn_norm = vector(hidden);
    }
    if (config.norm == HALYARD_NORM_LAYER) {
        w.attention_norm_bias = vector(hidden);
        w.ffn_norm_bias = vector(hidden);
    }
    if (config.norm_placement == HALYARD_SANDWICH_NORM || config.norm_placement == HALYARD_DOUBLE_NORM) {
        w.attention_post_norm = vector(hidden);
        w.ffn_post_norm = vector(hidden);
    }
    if (in_.rarely()) {
        w.attention_post_norm_bias = vector(hidden);
        w.ffn_post_norm_bias = vector(hidden);
    }
}

void Session::block_create() {
    const int block_place = in_.in(0, places - 1);
    halyard_block *&block = blocks_[block_place];
    Call call(in_, tensor_memory());
    const std::int64_t hidden = in_.one_in(3) ? coded : few, wide = wide_of(hidden);
    halyard_block_config config = block_config(hidden);
    const DLDataType type = dtype();
    halyard_block_weights w{};
    w.layout = value<halyard_weight_layout>(2);
    const auto matrix = [&](std::int64_t out, std::int64_t in) {
        return call.input(w.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in),
                          type);
    };
    const std::int64_t kv_heads = config.num_key_value_heads,
                       kv = kv_heads == 1 || kv_heads == 2 ? kv_heads * block_head_dim : hidden;
    halyard_codes codes[8] = {};
    if (hidden == coded) {
        coded_matrices(call, kv, codes, w);
        config.gated_mlp = w.codes.gate_proj != nullptr;
    } else if (in_.one_in(2)) {
        w.qkv_proj = matrix(hidden + 2 * kv, hidden);
    } else {
        w.q_proj = matrix(hidden, hidden);
        w.k_proj = matrix(kv, hidden);
        w.v_proj = matrix(kv, hidden);
    }
    if (hidden == few || in_.rarely()) {
        w.o_proj = matrix(hidden, hidden);
        w.gate_proj = config.gated_mlp ? matrix(wide, hidden) : nullptr;
        w.up_proj = matrix(wide, hidden);
        w.down_proj = matrix(hidden, wide);
    }
    block_vectors(call, config, hidden, kv, w);
    w.device = device();
    w.quantization = quantization();
    if (call.may_be_made() && block && in_.one_in(3)) {
        call.returned("halyard_block_update", halyard_block_update(context(), block, in_.rarely() ? nullptr : &w));
    } else if (call.may_be_made()) {
        destroy(block);
        halyard_weights *&borrowed = block_weights_[block_place];
        if (w.codes.o_proj && in_.one_in(3) &&
            halyard_weights_pack_codes(nullptr, w.codes.o_proj, nullptr, nullptr, 0, &borrowed) == HALYARD_OK) {
            w.packed.o_proj = borrowed;
            w.codes.o_proj = in_.rarely() ? w.codes.o_proj : nullptr;
        }
        make("halyard_block_create", call, block, [&](halyard_block **made) {
            return halyard_block_create(context(), in_.rarely() ? nullptr : &config, &w, made);
        });
    }
}

void Session::block_other() {
    halyard_block *&block = blocks_[in_.in(0, places - 1)];
    halyard_block_config config, before;
    std::memset(&config, 0x5a, sizeof config);
    before = config;
    const int kind = in_.in(0, 11);
    if (kind == 0) {
        returned("halyard_block_get_config", halyard_block_get_config(block, in_.rarely() ? nullptr : &config), config,
                 before);
        if ((halyard_block_bytes(block) > 0) != (block != nullptr)) {
            failed("halyard_block_bytes is wrong");
        }
        count_call("halyard_block_bytes", true);
        return;
    }
    if (kind == 1) {
        destroy(block);
        count_call("halyard_block_destroy", true);
        return;
    }
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const int batch = in_.in(0, 2);
    const DLDataType type = dtype();
    const std::int64_t width = in_.one_in(3) ? coded : few;
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(in_.in(0, 4)).with(width);
    const DLTensor *x = call.input(shape, type);
    DLTensor *y = call.output(shape, type);
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const Lengths lengths(cache);
        const halyard_status status = halyard_block_forward(
            context(), block, x, cache, number(static_cast<std::int64_t>(in_.in(0, 1))), sequences, y);
        call.returned("halyard_block_forward", status);
        lengths.check("halyard_block_forward", status, cache);
    }
}

/** Gradients of what a block has, most of the time. */
void Session::block_gradients(Call &call, const halyard_block_config &config, halyard_block_gradients &g) {
    g.layout = value<halyard_weight_layout>(1);
    g.accumulate = in_.in(0, 1);
    const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size,
                       query = config.num_attention_heads * config.head_dim,
                       key = config.num_key_value_heads * config.head_dim;
    const auto matrix = [&](std::int64_t out, std::int64_t in) {
        const Shape shape = g.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
        return in_.one_in(3) ? nullptr : call.output(shape, f32);
    };
    const auto vector = [&](std::int64_t width) {
        return in_.one_in(8) ? call.output(Shape().with(width), f32) : nullptr;
    };
    if (in_.one_in(3)) {
        g.qkv_proj = matrix(query + 2 * key, hidden);
        g.qkv_proj_bias = vector(query + 2 * key);
    } else {
        g.q_proj = matrix(query, hidden);
        g.k_proj = matrix(key, hidden);
        g.v_proj = matrix(key, hidden);
        g.k_proj_bias = vector(key);
    }
    g.o_proj = matrix(hidden, query);
    g.o_proj_bias = vector(hidden);
    g.q_norm = vector(config.head_dim);
    g.gate_proj = config.gated_mlp || in_.rarely() ? matrix(wide, hidden) : nullptr;
    g.up_proj = matrix(wide, hidden);
    g.down_proj = matrix(hidden, wide);
    g.up_proj_bias = vector(wide);
    g.attention_norm = vector(hidden);
    g.ffn_norm = vector(hidden);
    g.ffn_post_norm = vector(hidden);
}

void Session::block_training() {
    const halyard_block *const block = blocks_[in_.in(0, places - 1)];
    halyard_block_config config{};
    config.hidden_size = few;
    halyard_block_get_config(block, &config);
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2);
    const std::int64_t tokens = in_.in(0, 4);
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(tokens).with(config.hidden_size);
    std::int64_t bytes = 0;
    count_call("halyard_block_saved_size", halyard_block_saved_size(block, std::max(batch, 1), tokens,
                                                                    in_.rarely() ? nullptr : &bytes) == HALYARD_OK);
    const bool saves = in_.one_in(2);
    char *const memory = call.bytes(bytes, saves);
    const DLTensor *const x = call.input(shape, f32);
    const std::int64_t given = number(bytes);
    if (saves) {
        DLTensor *const y = call.output(shape, f32);
        if (call.may_be_made() && given <= bytes) {
            call.returned("halyard_block_forward_saving",
                          halyard_block_forward_saving(context(), block, x, memory, given, y));
        }
        return;
    }
    const DLTensor *const dy = call.input(shape, f32);
    DLTensor *const dx = call.output(shape, f32);
    halyard_block_gradients gradients{};
    block_gradients(call, config, gradients);
    if (call.may_be_made() && given <= bytes) {
        call.returned("halyard_block_backward",
                      halyard_block_backward(context(), block, x, memory, given, dy, &gradients, dx));
    }
}

void Session::stack_create() {
    const int place = in_.in(0, places - 1);
    Call call(in_, tensor_memory());
    const halyard_block *blocks[places];
    const int count = in_.in(1, places);
    for (int i = 0; i < count; i++) {
        blocks[i] = blocks_[in_.in(0, places - 1)];
    }
    halyard_block_config of_first{};
    const bool whole = halyard_block_get_config(blocks[0], &of_first) == HALYARD_OK && of_first.hidden_size == coded;
    const std::int64_t hidden = whole ? coded : few;
    halyard_stack_config config{};
    config.vocab_size = number(INT64_C(12));
    config.hidden_size = number(hidden);
    config.embedding_multiplier = number(in_.one_in(2) ? 0.0f : 4.0f);
    config.norm = value<halyard_norm>(3);
    config.rms_norm_eps = number(1e-5f);
    config.norm_flags = in_.one_in(4) ? flags() : 0;
    config.final_logit_softcapping = number(in_.one_in(2) ? 0.0f : 30.0f);
    halyard_stack_weights w{};
    const Shape table = Shape().with(12).with(hidden);
    halyard_codes numbers{}, table_codes{}, head_codes{};
    numbers.format = in_.of({HALYARD_CODES_Q8_0, HALYARD_CODES_Q5_0, HALYARD_CODES_INT8});
    numbers.in_features = hidden;
    numbers.out_features = 12;
    if (hidden == coded && in_.one_in(2)) {
        table_codes = codes_of(call, numbers);
        w.embed_tokens_codes = &table_codes;
    } else {
        w.embed_tokens = call.input(table, dtype());
    }
    head_codes = hidden == coded ? codes_of(call, numbers) : numbers;
    w.lm_head_codes = hidden == coded && in_.one_in(3) ? &head_codes : nullptr;
    w.embed_positions = in_.one_in(3) ? call.input(Shape().with(20).with(hidden), dtype()) : nullptr;
    config.embed_norm = in_.one_in(3) ? value<halyard_norm>(3) : HALYARD_NORM_NONE;
    config.no_lm_head = in_.one_in(4);
    w.embed_types = in_.one_in(3) ? call.input(Shape().with(2).with(hidden), dtype()) : nullptr;
    w.embed_norm = in_.one_in(4) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.embed_norm_bias = in_.one_in(8) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.norm = in_.one_in(3) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.norm_bias = in_.one_in(8) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.lm_head = in_.one_in(3) ? call.input(table, dtype()) : nullptr;
    w.quantization = quantization();
    if (!call.may_be_made()) {
        return;
    }
    if (stacks_[place] && in_.one_in(3)) {
        call.returned("halyard_stack_update",
                      halyard_stack_update(context(), stacks_[place], in_.rarely() ? nullptr : &w));
        return;
    }
    halyard_stack_destroy(stacks_[place]);
    stacks_[place] = nullptr;
    std::memset(stack_blocks_[place], 0, sizeof stack_blocks_[place]);
    const std::int64_t n_layers = in_.rarely() ? in_.of({INT64_C(0), INT64_C(-1), INT64_MIN}) : count;
    make("halyard_stack_create", call, stacks_[place], [&](halyard_stack **made) {
        return halyard_stack_create(context(), in_.rarely() ? nullptr : &config, &w, in_.rarely() ? nullptr : blocks,
                                    n_layers, made);
    });
    if (stacks_[place]) {
        std::memcpy(stack_blocks_[place], blocks, sizeof blocks[0] * static_cast<std::size_t>(count));
    }
}

void Session::stack_other() {
    const int place = in_.in(0, places - 1);
    halyard_stack *&stack = stacks_[place];
    halyard_stack_config config, before;
    std::memset(&config, 0x5a, sizeof config);
    before = config;
    const int kind = in_.in(0, 11);
    if (kind == 0) {
        returned("halyard_stack_get_config", halyard_stack_get_config(stack, in_.rarely() ? nullptr : &config), config,
                 before);
        return;
    }
    if (kind == 1) {
        halyard_stack_destroy(stack);
        stack = nullptr;
        std::memset(stack_blocks_[place], 0, sizeof stack_blocks_[place]);
        count_call("halyard_stack_destroy", true);
        return;
    }
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const int batch = in_.in(0, 2);
    float seen = 0;
    halyard_stack_options options{};
    options.all_logits = in_.one_in(2);
    options.observer = in_.one_in(4) ? read_hidden : nullptr;
    options.user = &seen;
    const Shape first = batch == 0 ? Shape() : Shape().with(batch);
    const Shape tokens = first.with(in_.rarely() ? 0 : in_.in(1, 4));
    const DLTensor *ids = call.indices(tokens, 12);
    const bool hidden = in_.one_in(4);
    options.token_types = in_.one_in(4) ? call.indices(tokens, 2) : nullptr;
    DLTensor *result = call.output(
        hidden ? tokens.with(in_.one_in(3) ? coded : few) : (options.all_logits ? tokens : first).with(12), dtype());
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const Lengths lengths(cache);
        const char *const name = hidden ? "halyard_stack_hidden_states" : "halyard_stack_forward";
        const halyard_stack_options *const given = !options.all_logits && in_.one_in(4) ? nullptr : &options;
        const halyard_status status =
            hidden ? halyard_stack_hidden_states(context(), stack, ids, cache, sequences, given, result)
                   : halyard_stack_forward(context(), stack, ids, cache, sequences, given, result);
        call.returned(name, status);
        lengths.check(name, status, cache);
    }
}

void Session::stack_training() {
    const int place = in_.in(0, places - 1);
    halyard_stack *const stack = stacks_[place];
    halyard_stack_config config{};
    config.hidden_size = few;
    config.vocab_size = 12;
    halyard_stack_get_config(stack, &config);
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2);
    const std::int64_t tokens = in_.in(0, 4);
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(tokens);
    std::int64_t bytes = 0;
    count_call("halyard_stack_saved_size", halyard_stack_saved_size(stack, std::max(batch, 1), tokens,
                                                                    in_.rarely() ? nullptr : &bytes) == HALYARD_OK);
    const bool saves = in_.one_in(2);
    char *const memory = call.bytes(bytes, saves);
    const DLTensor *const ids = call.indices(shape, 12);
    const DLTensor *const types = in_.one_in(4) ? call.indices(shape, 2) : nullptr;
    const std::int64_t given = number(bytes);
    const Shape of_result = shape.with(config.no_lm_head ? config.hidden_size : config.vocab_size);
    if (saves) {
        DLTensor *const result = call.output(of_result, f32);
        if (call.may_be_made() && given <= bytes) {
            call.returned("halyard_stack_forward_saving",
                          halyard_stack_forward_saving(context(), stack, ids, types, memory, given, result));
        }
        return;
    }
    const DLTensor *const dresult = call.input(of_result, f32);
    const Shape table = Shape().with(config.vocab_size).with(config.hidden_size),
                vector = Shape().with(config.hidden_size);
    halyard_stack_gradients gradients{};
    gradients.accumulate = in_.in(0, 1);
    gradients.embed_tokens = in_.one_in(3) ? nullptr : call.output(table, f32);
    gradients.lm_head = in_.one_in(4) ? call.output(table, f32) : nullptr;
    gradients.embed_positions = in_.one_in(4) ? call.output(Shape().with(20).with(config.hidden_size), f32) : nullptr;
    gradients.norm = in_.one_in(4) ? call.output(vector, f32) : nullptr;
    gradients.norm_bias = in_.one_in(8) ? call.output(vector, f32) : nullptr;
    gradients.embed_norm = in_.one_in(8) ? call.output(vector, f32) : nullptr;
    halyard_block_gradients of_blocks[places] = {};
    for (int i = 0; i < places && stack_blocks_[place][i] && in_.one_in(2); i++) {
        halyard_block_config of_block{};
        halyard_block_get_config(stack_blocks_[place][i], &of_block);
        block_gradients(call, of_block, of_blocks[i]);
    }
    gradients.blocks = in_.one_in(3) ? nullptr : of_blocks;
    if (call.may_be_made() && given <= bytes) {
        call.returned("halyard_stack_backward",
                      halyard_stack_backward(context(), stack, ids, types, memory, given, dresult, &gradients));
    }
}

}  // namespace halyard::tests
