// Blocks, their tensors and caches, and calls.
#include "support/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

const char *const placements[] = {"pre", "post", "post-sublayer", "sandwich", "double"};
const char *const norms[] = {"no norm", "RMSNorm", "LayerNorm"};

halyard_kv_cache_options cache_options(const BlockForm &form, Dtype dtype, std::int64_t layers, std::int64_t sequences,
                                       std::int64_t positions) {
    return {layers, sequences, form.kv_heads(), form.head_dim(), positions, dlpack_type(dtype)};
}

/** The kinds of rotary embedding, numbered. */
halyard_rope_options rope_kind(int kind) {
    halyard_rope_options rope{};
    rope.rope_theta = kind == 0 ? 0 : kind % 2 == 0 ? 10000 : 500;
    rope.interleaved = kind == 2 || kind == 5;
    rope.rotary_dim = kind == 3 ? 6 : 0;
    if (kind == 4) {
        rope.scaling = HALYARD_ROPE_LINEAR;
        rope.factor = 4;
    } else if (kind == 5) {
        rope.scaling = HALYARD_ROPE_LLAMA3;
        rope.factor = 8;
        rope.low_freq_factor = 1;
        rope.high_freq_factor = 4;
        rope.original_max_position_embeddings = 32;
    }
    return rope;
}

}  // namespace

std::int64_t BlockForm::kv_heads() const {
    return config.num_key_value_heads != 0 ? config.num_key_value_heads : config.num_attention_heads;
}

std::int64_t BlockForm::head_dim() const {
    return config.head_dim != 0 ? config.head_dim : config.hidden_size / config.num_attention_heads;
}

std::string BlockForm::describe() const {
    const halyard_block_config &c = config;
    std::string text = "block " + std::to_string(c.hidden_size) + " wide, ff " + std::to_string(c.intermediate_size) +
                       (c.gated_mlp != 0 ? " gated " : " ") + layer_activation(c.hidden_act).name + ", heads " +
                       std::to_string(c.num_attention_heads) + "/" + std::to_string(kv_heads()) + " of " +
                       std::to_string(head_dim()) + ", " + norms[c.norm] + " " + placements[c.norm_placement] +
                       " flags " + std::to_string(c.norm_flags) + ", matrices " + name_of(matrices) + ", vectors " +
                       name_of(vectors) + (layout == HALYARD_WEIGHT_IN_OUT ? " [in, out]" : "");
    text += c.causal != 0 ? ", causal" : "";
    text += c.sliding_window != 0 ? ", window " + std::to_string(c.sliding_window) : "";
    text += c.attn_logit_softcapping != 0 ? ", soft cap" : "";
    text += c.query_pre_attn_scalar != 0 ? ", own scale" : "";
    text += c.rope.rope_theta != 0 ? ", rope" : "";
    return text + (joined ? ", qkv_proj" : "") + (biases ? ", biases" : "") + (norm_vectors ? "" : ", bare norms") +
           (head_norms ? ", head norms" : "");
}

halyard_block_config small_preset(const std::string &preset, std::int64_t head_dim, bool grouped) {
    halyard_block_config config{};
    EXPECT_EQ(halyard_block_config_preset(preset.c_str(), &config), HALYARD_OK) << halyard_last_error();
    config.num_attention_heads = grouped ? 4 : 3;
    config.num_key_value_heads = grouped ? 2 : 0;
    config.head_dim = head_dim;
    config.hidden_size = 33;
    config.intermediate_size = 51;
    config.max_position_embeddings = config.rope.rope_theta != 0 ? 700 : 0;
    return config;
}

std::vector<std::string> block_presets() {
    std::vector<std::string> names;
    for (const char *const *name = halyard_block_presets(); *name != nullptr; name++) {
        names.emplace_back(*name);
    }
    return names;
}

BlockForm preset_block(const std::string &preset) {
    BlockForm form;
    form.config = small_preset(preset);
    form.biases = preset == "original_2017" || preset == "bert" || preset == "gpt2";
    return form;
}

BlockForm mixed_block(int number, halyard_norm norm, halyard_norm_placement placement, halyard_activation activation,
                      bool gated) {
    BlockForm form;
    halyard_block_config &c = form.config;
    c.hidden_size = 30 + number % 5;
    c.intermediate_size = 40 + number % 9;
    c.num_attention_heads = 4;
    c.num_key_value_heads = std::int64_t{1} << number % 3;
    c.head_dim = number % 4 == 0 ? 16 : 10;
    c.norm = norm;
    c.norm_placement = placement;
    c.rms_norm_eps = 1e-5f;
    c.norm_flags = norm == HALYARD_NORM_RMS ? static_cast<unsigned>(number) % 4 : 0;
    c.hidden_act = activation;
    c.swish_beta = activation == HALYARD_SWISH ? 1.5f : 0.0f;
    c.gated_mlp = gated ? 1 : 0;
    c.causal = number % 3 != 0;
    c.sliding_window = number % 5 == 1 ? 1 : number % 5 == 3 ? 4 : 0;
    c.query_pre_attn_scalar = number % 7 == 2 ? 24.5f : 0.0f;
    c.attn_logit_softcapping = number % 4 == 1 ? 1.5f : 0.0f;
    c.rope = rope_kind(number % 6);
    c.max_position_embeddings = 40;
    form.matrices = all_dtypes[number / 2 % 3];
    form.vectors = all_dtypes[number % 3];
    form.layout = number % 2 == 0 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
    form.joined = number % 4 < 2;
    form.biases = number % 3 == 1;
    form.norm_vectors = number % 11 != 5;
    form.head_norms = number % 5 == 2;
    form.seed = static_cast<std::uint64_t>(number);
    return form;
}

// ---- Tensors -----------------------------------------------------------------------------------------------------

const DLTensor *BlockTensors::matrix(std::int64_t out, std::int64_t in, WeightMatrix &matrix) {
    const bool out_in = form.layout == HALYARD_WEIGHT_OUT_IN;
    const std::uint64_t seed = form.seed * 64 + tensors.size();
    const double size = 1 / std::sqrt(static_cast<double>(in));
    Form own;
    own.shape = out_in ? Shape{out, in} : Shape{in, out};
    own.strides = padded_strides(own.shape, static_cast<std::int64_t>(tensors.size() % 3));
    tensors.push_back(std::make_unique<Tensor>(form.matrices, own));
    Tensor &tensor = *tensors.back();
    matrix.in = in;
    matrix.out = out;
    matrix.values.resize(static_cast<std::size_t>(in * out));
    for (std::int64_t k = 0; k < in; k++) {
        for (std::int64_t n = 0; n < out; n++) {
            const std::uint32_t bits = encode(form.matrices, bell(seed, k, n) * size);
            tensor.set_bits(out_in ? n : k, out_in ? k : n, bits);
            matrix.values[static_cast<std::size_t>(k * out + n)] = decode(form.matrices, bits);
        }
    }
    return &tensor.view;
}

/** The outputs of q, k and v one after another. */
const DLTensor *BlockTensors::joined_matrix() {
    const WeightMatrix *const parts[] = {&values.q, &values.k, &values.v};
    const std::int64_t in = values.q.in, out = values.q.out + values.k.out + values.v.out;
    const bool out_in = form.layout == HALYARD_WEIGHT_OUT_IN;
    tensors.push_back(std::make_unique<Tensor>(form.matrices, compact_form(out_in ? Shape{out, in} : Shape{in, out})));
    Tensor &tensor = *tensors.back();
    std::int64_t first = 0;
    for (const WeightMatrix *part : parts) {
        for (std::int64_t k = 0; k < in; k++) {
            for (std::int64_t n = 0; n < part->out; n++) {
                const double value = part->values[static_cast<std::size_t>(k * part->out + n)];
                tensor.set(out_in ? first + n : k, out_in ? k : first + n, value);
            }
        }
        first += part->out;
    }
    return &tensor.view;
}

const DLTensor *BlockTensors::vector(std::int64_t width, double centre, Row &row, double size) {
    const std::uint64_t seed = form.seed * 64 + tensors.size();
    tensors.push_back(std::make_unique<Tensor>(form.vectors, compact_form({width})));
    tensors.back()->fill([&](std::int64_t, std::int64_t i) { return centre + size * bell(seed, 0, i); });
    row = tensors.back()->row_values(0);
    return &tensors.back()->view;
}

void BlockTensors::norm(const DLTensor *&weight, const DLTensor *&bias, NormValues &norm_values) {
    const bool unit_offset = (form.config.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
    if (form.config.norm != HALYARD_NORM_NONE && form.norm_vectors) {
        weight = form.fine_norms ? vector(form.config.hidden_size, fine_norm, norm_values.weight, fine_norm_size)
                                 : vector(form.config.hidden_size, unit_offset ? 0 : 1, norm_values.weight);
        if (form.config.norm == HALYARD_NORM_LAYER) {
            bias = vector(form.config.hidden_size, 0, norm_values.bias);
        }
    }
}

BlockTensors::BlockTensors(const BlockForm &form) : form(form) {
    const halyard_block_config &c = form.config;
    const std::int64_t hidden = c.hidden_size, query = c.num_attention_heads * form.head_dim();
    const std::int64_t key = form.kv_heads() * form.head_dim();
    values.config = c;
    weights.layout = form.layout;
    weights.q_proj = matrix(query, hidden, values.q);
    weights.k_proj = matrix(key, hidden, values.k);
    weights.v_proj = matrix(key, hidden, values.v);
    weights.q_proj_bias = bias(query, values.q_bias);
    weights.k_proj_bias = bias(key, values.k_bias);
    weights.v_proj_bias = bias(key, values.v_bias);
    if (form.joined) {
        weights.qkv_proj = joined_matrix();
        weights.q_proj = weights.k_proj = weights.v_proj = nullptr;
        weights.q_proj_bias = weights.k_proj_bias = weights.v_proj_bias = nullptr;
        if (form.biases) {
            Row all = values.q_bias;
            all.insert(all.end(), values.k_bias.begin(), values.k_bias.end());
            all.insert(all.end(), values.v_bias.begin(), values.v_bias.end());
            Row unused;
            weights.qkv_proj_bias = vector(query + 2 * key, 0, unused);
            tensors.back()->fill([&](std::int64_t, std::int64_t i) { return all[static_cast<std::size_t>(i)]; });
        }
    }
    weights.o_proj = matrix(hidden, query, values.o);
    weights.o_proj_bias = bias(hidden, values.o_bias);
    if (form.head_norms) {
        const bool unit_offset = (c.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
        weights.q_norm = vector(form.head_dim(), unit_offset ? 0 : 1, values.q_norm);
        weights.k_norm = vector(form.head_dim(), unit_offset ? 0 : 1, values.k_norm);
    }
    if (c.gated_mlp != 0) {
        weights.gate_proj = matrix(c.intermediate_size, hidden, values.gate);
        weights.gate_proj_bias = bias(c.intermediate_size, values.gate_bias);
    }
    weights.up_proj = matrix(c.intermediate_size, hidden, values.up);
    weights.up_proj_bias = bias(c.intermediate_size, values.up_bias);
    weights.down_proj = matrix(hidden, c.intermediate_size, values.down);
    weights.down_proj_bias = bias(hidden, values.down_bias);
    norm(weights.attention_norm, weights.attention_norm_bias, values.attention_norm);
    norm(weights.ffn_norm, weights.ffn_norm_bias, values.ffn_norm);
    if (c.norm_placement == HALYARD_SANDWICH_NORM || c.norm_placement == HALYARD_DOUBLE_NORM) {
        norm(weights.attention_post_norm, weights.attention_post_norm_bias, values.attention_post_norm);
        norm(weights.ffn_post_norm, weights.ffn_post_norm_bias, values.ffn_post_norm);
    }
    if (form.device.device_type != kDLCPU) {
        weights.device = form.device;
        for (const auto &tensor : tensors) {
            tensor->view.device = form.sources_on_device ? form.device : tensor->view.device;
        }
    }
}

Block::Block(const BlockForm &form, const halyard_context *context) : form(form) {
    const BlockTensors tensors(form);
    EXPECT_EQ(halyard_block_create(context, &form.config, &tensors.weights, &block), HALYARD_OK)
        << halyard_last_error() << "; " << form.describe();
    values = tensors.values;
}

// ---- Caches and tokens -------------------------------------------------------------------------------------------

BlockCache::BlockCache(const halyard_kv_cache_options &options, DLDevice device) {
    EXPECT_EQ(halyard_kv_cache_create_on_device(&options, device, nullptr, 0, &cache), HALYARD_OK)
        << halyard_last_error();
}

BlockCache::BlockCache(const BlockForm &form, Dtype dtype, std::int64_t layers, std::int64_t sequences,
                       std::int64_t positions)
    : BlockCache(cache_options(form, dtype, layers, sequences, positions), form.device) {}

TokenRows::TokenRows(const DLTensor &tensor, const Shape &strides, std::int64_t first, std::int64_t count)
    : view(tensor), shape(tensor.shape, tensor.shape + tensor.ndim), steps(strides) {
    const std::size_t axis = shape.size() - 2;
    shape[axis] = count;
    view.byte_offset += static_cast<std::uint64_t>(first * steps[axis] * view.dtype.bits / 8);
    view.shape = shape.data();
    view.strides = steps.data();
}

// ---- Calls -------------------------------------------------------------------------------------------------------

BlockCall::BlockCall(const Block &block, Dtype type, const Shape &leading, std::int64_t x_gap, std::int64_t y_gap,
                     std::uint64_t seed)
    : block(block), x(type, call_form(type, type, leading).form_of(block.width(), x_gap)),
      y(type, call_form(type, type, leading).form_of(block.width(), y_gap)) {
    fill_rows(x, seed);
    x.view.device = y.view.device = block.form.device;
}

halyard_status BlockCall::run(const halyard_context *context) {
    return finished(halyard_block_forward(context, block.get(), &x.view, nullptr, 0, nullptr, &y.view));
}

halyard_status BlockCall::run(const halyard_context *context, const BlockCache &cache, std::int64_t layer,
                              const std::int64_t *sequences) {
    return finished(halyard_block_forward(context, block.get(), &x.view, cache.get(), layer, sequences, &y.view));
}

void BlockCall::run_in_parts(const halyard_context *context, const BlockCache &cache,
                             const std::vector<std::int64_t> &parts) {
    std::int64_t first = 0;
    for (std::size_t i = 0; first < tokens(); i++) {
        const std::int64_t count = std::min(parts[i % parts.size()], tokens() - first);
        TokenRows from(x.view, x.strides(), first, count), to(y.view, y.strides(), first, count);
        ASSERT_EQ(finished(halyard_block_forward(context, block.get(), &from.view, cache.get(), 0, nullptr, &to.view)),
                  HALYARD_OK)
            << halyard_last_error();
        first += count;
    }
}

void BlockCall::begin_sequence(const halyard_context *context, const BlockCache &cache, std::int64_t layer,
                               std::int64_t sequence, std::int64_t count, BlockCall &next, std::int64_t index) {
    for (std::int64_t t = 0; t < next.tokens(); t++) {
        std::memcpy(next.x.at(index * next.tokens() + t, 0), x.at(count + t, 0),
                    static_cast<std::size_t>(x.width()) * size_of(x.dtype()));
    }
    const TokenRows from(x.view, x.strides(), 0, count);
    TokenRows to(y.view, y.strides(), 0, count);
    ASSERT_EQ(
        finished(halyard_block_forward(context, block.get(), &from.view, cache.get(), layer, &sequence, &to.view)),
        HALYARD_OK)
        << halyard_last_error();
}

Matrix BlockCall::expected(Dtype stored) const {
    const bool narrow = block.form.device.device_type == kDLCUDA && x.dtype() == block.form.matrices;
    const bool rounds =
        block.form.device.device_type == kDLCPU && block.form.matrices == Dtype::bf16 && x.dtype() == Dtype::bf16;
    const Rounding rounding = {stored, narrow ? x.dtype() : Dtype::f32, rounds ? Dtype::bf16 : Dtype::f32};
    Matrix all;
    const std::vector<Row> rows = rows_of(x);
    for (std::int64_t i = 0; i < batch(); i++) {
        const auto first = rows.begin() + i * tokens();
        const Matrix one = halyard::tests::block(block.values, {first, first + tokens()}, rounding);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

testing::AssertionResult BlockCall::surroundings_intact() const {
    return x.surroundings_intact() && y.surroundings_intact()
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "memory outside a tensor was written";
}

}  // namespace halyard::tests
