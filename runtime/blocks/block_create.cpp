// Making a block: its tensors checked, packed and converted once, where the block is to be.
#include <array>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <new>

#include "blocks/block.h"
#include "core/check_shapes.h"
#include "core/handles/rope.h"
#include "core/handles/shared_rope.h"
#include "core/view.h"

namespace halyard {
namespace {

/** What a block is made of; `data` of a vector is null where it is absent. */
struct BlockSources {
    explicit BlockSources(const halyard_block_weights &w);

    MatrixSource qkv[3], joined;  // q_proj, k_proj, v_proj; or qkv_proj
    MatrixSource o, gate, up, down;
    View qkv_bias[3], joined_bias;
    View o_bias, gate_bias, up_bias, down_bias, q_norm, k_norm;
    struct Norm {
        View weight, bias;
    } attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;
};

#define NAMES(matrix) HALYARD_MATRIX_NAMES(#matrix, "codes." #matrix, "packed." #matrix)
constexpr MatrixNames q_proj_names = NAMES(q_proj), k_proj_names = NAMES(k_proj), v_proj_names = NAMES(v_proj),
                      qkv_proj_names = NAMES(qkv_proj), o_proj_names = NAMES(o_proj), up_proj_names = NAMES(up_proj),
                      down_proj_names = NAMES(down_proj),
                      gate_proj_names = HALYARD_MATRIX_NAMES("gate_proj", "codes.gate_proj", nullptr);
#undef NAMES

MatrixSource source(const MatrixNames &names, const DLTensor *tensor, const halyard_codes *codes,
                    const halyard_weights *packed) {
    MatrixSource matrix;
    matrix.names = &names;
    matrix.tensor = tensor;
    matrix.codes = codes;
    matrix.packed = packed;
    return matrix;
}

BlockSources::BlockSources(const halyard_block_weights &w)
    : qkv{source(q_proj_names, w.q_proj, w.codes.q_proj, w.packed.q_proj),
          source(k_proj_names, w.k_proj, w.codes.k_proj, w.packed.k_proj),
          source(v_proj_names, w.v_proj, w.codes.v_proj, w.packed.v_proj)},
      joined(source(qkv_proj_names, w.qkv_proj, w.codes.qkv_proj, w.packed.qkv_proj)),
      o(source(o_proj_names, w.o_proj, w.codes.o_proj, w.packed.o_proj)),
      gate(source(gate_proj_names, w.gate_proj, w.codes.gate_proj, nullptr)),
      up(source(up_proj_names, w.up_proj, w.codes.up_proj, w.packed.up_proj)),
      down(source(down_proj_names, w.down_proj, w.codes.down_proj, w.packed.down_proj)) {}

void check_attention_sources(Checker &check, MatrixChecks &checks, const halyard_block_config &c,
                             const halyard_block_weights &w, BlockSources &s) {
    const int64_t query = c.num_attention_heads * c.head_dim, key = c.num_key_value_heads * c.head_dim;
    const struct {
        const char *bias_name;
        const DLTensor *bias;
        int64_t features;
    } parts[] = {{"q_proj_bias", w.q_proj_bias, query},
                 {"k_proj_bias", w.k_proj_bias, key},
                 {"v_proj_bias", w.v_proj_bias, key}};
    if (s.joined.given()) {
        for (int i = 0; i < 3; i++) {
            checks.absent(s.qkv[i], "so is qkv_proj, which holds q, k and v");
            checks.absent(parts[i].bias_name, parts[i].bias, "the biases of qkv_proj are qkv_proj_bias");
        }
        checks.require(s.joined, query + 2 * key, c.hidden_size);
        s.joined_bias = check_vector(check, "qkv_proj_bias", w.qkv_proj_bias, query + 2 * key);
    } else {
        for (int i = 0; i < 3; i++) {
            checks.require(s.qkv[i], parts[i].features, c.hidden_size, ", and neither is qkv_proj");
            s.qkv_bias[i] = check_vector(check, parts[i].bias_name, parts[i].bias, parts[i].features);
        }
        checks.absent("qkv_proj_bias", w.qkv_proj_bias, "qkv_proj is not");
    }
    checks.require(s.o, c.hidden_size, query);
    s.o_bias = check_vector(check, "o_proj_bias", w.o_proj_bias, c.hidden_size);
    s.q_norm = check_vector(check, "q_norm", w.q_norm, c.head_dim);
    s.k_norm = check_vector(check, "k_norm", w.k_norm, c.head_dim);
}

void check_ffn_sources(Checker &check, MatrixChecks &checks, const halyard_block_config &c,
                       const halyard_block_weights &w, BlockSources &s) {
    if (!c.gated_mlp) {
        checks.absent(s.gate, "gated_mlp is 0");
        checks.absent("gate_proj_bias", w.gate_proj_bias, "gated_mlp is 0");
    } else if (s.up.packed) {
        checks.absent(s.gate, "so is packed.up_proj, which holds gate and up");
    } else {
        checks.require(s.gate, c.intermediate_size, c.hidden_size, ", but gated_mlp is set");
    }
    if (c.gated_mlp) {
        s.gate_bias = check_vector(check, "gate_proj_bias", w.gate_proj_bias, c.intermediate_size);
    }
    checks.require(s.up, c.intermediate_size, c.hidden_size, "", c.gated_mlp != 0);
    if (!check.failed() && s.gate.given() && !s.gate.tensor != !s.up.tensor) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is given with %s, but both must be tensors or both codes",
                   s.gate.name(), s.up.name());
    }
    s.up_bias = check_vector(check, "up_proj_bias", w.up_proj_bias, c.intermediate_size);
    checks.require(s.down, c.hidden_size, c.intermediate_size);
    s.down_bias = check_vector(check, "down_proj_bias", w.down_proj_bias, c.hidden_size);
}

void check_norm_sources(Checker &check, const halyard_block_config &c, const halyard_block_weights &w,
                        BlockSources &s) {
    const bool twice = c.norm_placement == HALYARD_SANDWICH_NORM || c.norm_placement == HALYARD_DOUBLE_NORM;
    const char *const unless_twice =
        twice ? nullptr : "norm_placement is neither HALYARD_SANDWICH_NORM nor HALYARD_DOUBLE_NORM";
    const struct {
        const char *name, *bias_name;
        const DLTensor *weight, *bias;
        const char *absent;
        BlockSources::Norm &norm;
    } norms[] = {
        {"attention_norm", "attention_norm_bias", w.attention_norm, w.attention_norm_bias, nullptr, s.attention_norm},
        {"ffn_norm", "ffn_norm_bias", w.ffn_norm, w.ffn_norm_bias, nullptr, s.ffn_norm},
        {"attention_post_norm", "attention_post_norm_bias", w.attention_post_norm, w.attention_post_norm_bias,
         unless_twice, s.attention_post_norm},
        {"ffn_post_norm", "ffn_post_norm_bias", w.ffn_post_norm, w.ffn_post_norm_bias, unless_twice, s.ffn_post_norm}};
    for (const auto &n : norms) {
        n.norm.weight = check_norm_vector(check, n.name, n.weight, c.norm, false, n.absent, c.hidden_size);
        n.norm.bias = check_norm_vector(check, n.bias_name, n.bias, c.norm, true, n.absent, c.hidden_size);
    }
}

BlockSources check_sources(Checker &check, const halyard_block_config &config, const halyard_block_weights &weights) {
    BlockSources sources(weights);
    if (!check.failed() && weights.layout != HALYARD_WEIGHT_OUT_IN && weights.layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_weight_layout",
                   weights.layout);
        return sources;
    }
    MatrixChecks checks(check, weights.layout);
    check_attention_sources(check, checks, config, weights, sources);
    check_ffn_sources(check, checks, config, weights, sources);
    check_norm_sources(check, config, weights, sources);
    return sources;
}

/** Where the block is to be: where its tensors and packed matrices are, unless it is said. */
Device choose_block_device(Checker &check, const BlockSources &s, DLDevice wanted) {
    const MatrixSource *const all[] = {&s.o, &s.qkv[0], &s.qkv[1], &s.qkv[2], &s.joined, &s.gate, &s.up, &s.down};
    const MatrixSource *placed = nullptr;
    for (const MatrixSource *const matrix : all) {
        placed = placed || !(matrix->tensor || matrix->packed) ? placed : matrix;
    }
    const DLDevice place = !placed          ? DLDevice{kDLCPU, 0}
                           : placed->tensor ? placed->tensor->device
                                            : device_of(*placed->packed).dlpack();
    const Device device =
        check.failed() ? Device() : choose_device(check, (placed ? *placed : s.o).name(), place, wanted);
    for (const MatrixSource *const matrix : all) {
        check_matrix_device(check, *matrix, "the block", device);
    }
    const DLDevice tensors = check.device_of_tensors();
    if (has_cuda && type_of(tensors) == kDLCUDA) {
        check_device(check, check.first_tensor(), {true, tensors.device_id}, "the block", device);
    }
    return device;
}

void pack_matrices(MatrixPacker &packer, const BlockSources &s, halyard_block &block) {
    if (s.joined.given()) {
        block.qkv[0] = packer.pack(block.qkv[0], s.joined);
    } else {
        packer.pack_qkv(s.qkv, block.qkv);
    }
    block.o = packer.pack(block.o, s.o);
    block.up = s.gate.given() ? packer.pack(block.up, s.gate, &s.up) : packer.pack(block.up, s.up);
    block.down = packer.pack(block.down, s.down);
}

/** The dtype that all matrices have; f32 if they have none in common. */
DType dtype_of_matrices(const halyard_block &block) {
    DType dtype = block.o.weights->dtype;
    block.each_matrix(
        [&](const char *, const PackedMatrix &matrix) { dtype = matrix.weights->dtype == dtype ? dtype : DType::f32; });
    return dtype;
}

using VectorSources = std::array<ParamSource, 15>;

/** The vectors of a block, and where `arguments` has them. */
VectorSources vector_sources(const BlockSources &s, const halyard_block &block, BlockArguments &arguments) {
    const int64_t hidden = block.config.hidden_size, intermediate = block.config.intermediate_size;
    ParamSource qkv_bias(&arguments.qkv_bias);
    if (s.joined.given()) {
        qkv_bias.add(s.joined_bias, block.qkv_features());
    } else {
        qkv_bias.add(s.qkv_bias[0], block.query_features());
        qkv_bias.add(s.qkv_bias[1], block.key_features());
        qkv_bias.add(s.qkv_bias[2], block.key_features());
    }
    return {{
        qkv_bias,
        {&arguments.o_bias, s.o_bias, hidden},
        {&arguments.gate_bias, s.gate_bias, intermediate},
        {&arguments.up_bias, s.up_bias, intermediate},
        {&arguments.down_bias, s.down_bias, hidden},
        ParamSource::of_norm(&arguments.q_norm, s.q_norm, block.config.head_dim),
        ParamSource::of_norm(&arguments.k_norm, s.k_norm, block.config.head_dim),
        ParamSource::of_norm(&arguments.attention_norm.weight, s.attention_norm.weight, hidden),
        ParamSource::of_norm(&arguments.attention_norm.bias, s.attention_norm.bias, hidden),
        ParamSource::of_norm(&arguments.ffn_norm.weight, s.ffn_norm.weight, hidden),
        ParamSource::of_norm(&arguments.ffn_norm.bias, s.ffn_norm.bias, hidden),
        ParamSource::of_norm(&arguments.attention_post_norm.weight, s.attention_post_norm.weight, hidden),
        ParamSource::of_norm(&arguments.attention_post_norm.bias, s.attention_post_norm.bias, hidden),
        ParamSource::of_norm(&arguments.ffn_post_norm.weight, s.ffn_post_norm.weight, hidden),
        ParamSource::of_norm(&arguments.ffn_post_norm.bias, s.ffn_post_norm.bias, hidden),
    }};
}

/** Memory with the vectors in a dtype, to which `arguments` points then; null on failure. */
void *convert_vectors(Checker &check, const halyard_context *context, const BlockSources &s, halyard_block &block,
                      DType dtype, BlockArguments &arguments) {
    if (check.failed()) {
        return nullptr;
    }
    const VectorSources vectors = vector_sources(s, block, arguments);
    int64_t bytes = 0;
    void *const memory = make_param_vectors(check, context_or_default(context), block.device, dtype, vectors.data(),
                                            static_cast<int>(vectors.size()), bytes);
    block.bytes += bytes;
    return memory;
}

/** Refuses a block that cannot take other numbers where its own are, and sources of another form. */
void check_updatable(Checker &check, const halyard_block &block, const BlockSources &s) {
    if (!check.failed() && block.device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "block is on a CUDA device, but only those of processors can be updated");
    }
    for (const MatrixSource *const matrix :
         {&s.qkv[0], &s.qkv[1], &s.qkv[2], &s.joined, &s.o, &s.gate, &s.up, &s.down}) {
        if (!check.failed() && (matrix->codes || matrix->packed)) {
            check.fail(HALYARD_UNSUPPORTED, "%s is given, but a block is updated by tensors", matrix->name());
        }
    }
    block.each_matrix([&](const char *name, const PackedMatrix &matrix) {
        if (!check.failed() && (!matrix.owned || matrix.weights->codes)) {
            check.fail(HALYARD_UNSUPPORTED, "block was made with %s %s, and cannot be updated", name,
                       matrix.owned ? "quantized" : "packed");
        }
    });
    if (!check.failed() && s.o.view.dtype != block.o.weights->dtype) {
        check.fail(HALYARD_INVALID_ARGUMENT, "matrices have dtype %s, but block was made with %s",
                   dtype_name(s.o.view.dtype), dtype_name(block.o.weights->dtype));
    }
}

constexpr const char *vector_names[] = {"the biases of q, k and v",
                                        "o_proj_bias",
                                        "gate_proj_bias",
                                        "up_proj_bias",
                                        "down_proj_bias",
                                        "q_norm",
                                        "k_norm",
                                        "attention_norm",
                                        "attention_norm_bias",
                                        "ffn_norm",
                                        "ffn_norm_bias",
                                        "attention_post_norm",
                                        "attention_post_norm_bias",
                                        "ffn_post_norm",
                                        "ffn_post_norm_bias"};
static_assert(std::size(vector_names) == std::tuple_size_v<VectorSources>);

void make_table(Checker &check, const halyard_context *context, halyard_block &block) {
    const halyard_rope_options &options = block.config.rope;
    if (check.failed() || options.rope_theta == 0) {
        return;
    }
    block.rope = acquire_rope(check, options);
    if (!check.failed()) {
        block.bytes += block.rope->mapped_bytes;
        backend_of(block.device.on_cuda)
            .prepare_rope(check, context_or_default(context), block.device.device_id, *block.rope);
    }
}

/** What does not change from call to call. */
void prepare_calls(Checker &check, const halyard_block &block, BlockArguments &arguments) {
    const halyard_block_config &c = block.config;
    AttentionCall &a = arguments.attention;
    a.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.query_pre_attn_scalar)));
    a.causal = c.causal != 0;
    a.sliding_window = c.sliding_window;
    a.softcap = c.attn_logit_softcapping;
    a.rope = block.rope;
    a.q_norm_weight = arguments.q_norm;
    a.k_norm_weight = arguments.k_norm;
    Norm head_norm;
    head_norm.set(check, {HALYARD_NORM_RMS, c.rms_norm_eps, c.norm_flags}, c.head_dim);
    a.rms = head_norm.scalars;

    for (Norm *norm :
         {&arguments.attention_norm, &arguments.ffn_norm, &arguments.attention_post_norm, &arguments.ffn_post_norm}) {
        norm->set(check, block.norm_kind(), c.hidden_size);
    }
    FfnCall &f = arguments.ffn;
    f.up = block.up.weights;
    f.down = block.down.weights;
    if (block.norms_input()) {
        f.norm = c.norm;
        f.norm_weight = arguments.ffn_norm.weight;
        f.norm_bias = arguments.ffn_norm.bias;
        f.rms = arguments.ffn_norm.scalars;
    }
    f.activation = c.hidden_act;
    f.beta = c.swish_beta;
    f.residual = !block.norms_output();
    f.bias = c.gated_mlp ? arguments.gate_bias : arguments.up_bias;
    f.bias_up = c.gated_mlp ? arguments.up_bias : View();
    f.bias_down = arguments.down_bias;
}

}  // namespace

View check_norm_vector(Checker &check, const char *name, const DLTensor *vector, halyard_norm norm, bool is_bias,
                       const char *absent, int64_t features) {
    if (check.failed() || !vector) {
        return View();
    }
    const char *const reason = absent                                ? absent
                               : norm == HALYARD_NORM_NONE           ? "norm is HALYARD_NORM_NONE"
                               : is_bias && norm == HALYARD_NORM_RMS ? "an RMSNorm has no bias"
                                                                     : nullptr;
    if (reason) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but %s", name, reason);
        return View();
    }
    return check_vector(check, name, vector, features);
}

}  // namespace halyard

using namespace halyard;

halyard_status halyard_block_create(const halyard_context *context, const halyard_block_config *config,
                                    const halyard_block_weights *weights, halyard_block **block) {
    Checker check("halyard_block_create", Devices::cpu_or_cuda);
    check.set_context(context);
    check.not_null("config", config);
    check.not_null("weights", weights);
    if (!check.not_null("block", block)) {
        return check.status();
    }
    halyard_block_config complete = *config;
    complete_block_config(check, complete, weights->q_norm || weights->k_norm);
    if (check.failed()) {
        return check.status();
    }
    const BlockSources sources = check_sources(check, complete, *weights);
    const Device device = choose_block_device(check, sources, weights->device);
    const CodeLayout quantization =
        check.failed() ? CodeLayout() : check_quantization(check, weights->quantization, device);
    if (check.failed()) {
        return check.status();
    }

    void *const memory = malloc(sizeof(halyard_block));
    if (!memory) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a block");
    }
    halyard_block *const made = new (memory) halyard_block;
    made->config = complete;
    made->device = device;
    make_table(check, context, *made);
    MatrixPacker packer(check, context, weights->layout, device, quantization);
    pack_matrices(packer, sources, *made);
    made->dtype = check.failed() ? DType::f32 : dtype_of_matrices(*made);
    made->vectors_f32 = convert_vectors(check, context, sources, *made, DType::f32, made->arguments_f32);
    if (device.on_cuda && made->dtype != DType::f32) {
        made->vectors_16_bit = convert_vectors(check, context, sources, *made, made->dtype, made->arguments_16_bit);
    }
    prepare_calls(check, *made, made->arguments_f32);
    prepare_calls(check, *made, made->arguments_16_bit);
    if (check.failed()) {
        halyard_block_destroy(made);
        return check.status();
    }
    made->each_matrix([&](const char *, const PackedMatrix &matrix) { made->bytes += matrix.owned_bytes(); });
    *block = made;
    return HALYARD_OK;
}

halyard_status halyard_block_update(const halyard_context *context, halyard_block *block,
                                    const halyard_block_weights *weights) {
    Checker check("halyard_block_update");
    check.set_context(context);
    check.not_null("block", block);
    check.not_null("weights", weights);
    if (check.failed()) {
        return check.status();
    }
    const BlockSources sources = check_sources(check, block->config, *weights);
    check_updatable(check, *block, sources);
    if (check.failed()) {
        return check.status();
    }
    const VectorSources vectors = vector_sources(sources, *block, block->arguments_f32);
    check_vectors_present(check, vectors.data(), vector_names, static_cast<int>(vectors.size()));
    MatrixPacker packer(check, context, weights->layout, block->device, CodeLayout());
    if (!check.failed()) {
        pack_matrices(packer, sources, *block);
    }
    if (!check.failed()) {
        cpu_backend.convert_vectors(check, context_or_default(context), 0, vectors.data(),
                                    static_cast<int>(vectors.size()));
    }
    return check.status();
}

void halyard_block_destroy(halyard_block *block) {
    if (block) {
        block->each_matrix([](const char *, const PackedMatrix &matrix) { halyard_weights_destroy(matrix.owned); });
        release_rope(block->rope);
        free_at(block->device, block->vectors_f32);
        free_at(block->device, block->vectors_16_bit);
        free(block);
    }
}

halyard_status halyard_block_get_config(const halyard_block *block, halyard_block_config *config) {
    Checker check("halyard_block_get_config");
    check.not_null("block", block);
    if (check.not_null("config", config)) {
        *config = block->config;
    }
    return check.status();
}

int64_t halyard_block_bytes(const halyard_block *block) {
    return block ? block->bytes : 0;
}
