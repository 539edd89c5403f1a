// Making a block: its tensors checked, packed and converted once, where the block is to be.
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

/** The checked tensors of a block; `data` is null where one is absent. */
struct BlockSources {
    View qkv[3];  // q_proj, k_proj, v_proj; or qkv_proj alone
    View o, gate, up, down;
    View qkv_bias[3];
    View o_bias, gate_bias, up_bias, down_bias, q_norm, k_norm;
    struct Norm {
        View weight, bias;
    } attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;
    bool joined = false;  // qkv_proj
};

class SourceChecks {
public:
    SourceChecks(Checker &check, halyard_weight_layout layout) : check_(check), layout_(layout) {}

    View matrix(const char *name, const DLTensor *tensor, int64_t out, int64_t in) {
        const View view = check_.tensor(name, tensor);
        if (check_.failed()) {
            return view;
        }
        if (view.rank != 2) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
            return view;
        }
        const bool out_in = layout_ == HALYARD_WEIGHT_OUT_IN;
        const int64_t rows = out_in ? out : in, columns = out_in ? in : out;
        if (view.shape[0] != rows || view.shape[1] != columns) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s is [%lld, %lld], but must be [%lld, %lld] (layout is %s)", name,
                        static_cast<long long>(view.shape[0]), static_cast<long long>(view.shape[1]),
                        static_cast<long long>(rows), static_cast<long long>(columns),
                        out_in ? "[out, in]" : "[in, out]");
        }
        if (first_.data) {
            check_.same_dtype(first_, view);
        } else {
            first_ = view;
        }
        return view;
    }

    void absent(const char *name, const DLTensor *tensor, const char *reason) {
        if (!check_.failed() && tensor) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but %s", name, reason);
        }
    }

private:
    Checker &check_;
    const halyard_weight_layout layout_;
    View first_;  // of the matrices, whose dtype all have
};

void check_attention_sources(Checker &check, SourceChecks &checks, const halyard_block_config &c,
                             const halyard_block_weights &w, BlockSources &s) {
    const int64_t query = c.num_attention_heads * c.head_dim, key = c.num_key_value_heads * c.head_dim;
    const struct {
        const char *name, *bias_name;
        const DLTensor *matrix, *bias;
        int64_t features;
    } parts[] = {{"q_proj", "q_proj_bias", w.q_proj, w.q_proj_bias, query},
                 {"k_proj", "k_proj_bias", w.k_proj, w.k_proj_bias, key},
                 {"v_proj", "v_proj_bias", w.v_proj, w.v_proj_bias, key}};
    s.joined = w.qkv_proj != nullptr;
    if (s.joined) {
        for (const auto &part : parts) {
            checks.absent(part.name, part.matrix, "so is qkv_proj, which holds q, k and v");
            checks.absent(part.bias_name, part.bias, "the biases of qkv_proj are qkv_proj_bias");
        }
        s.qkv[0] = checks.matrix("qkv_proj", w.qkv_proj, query + 2 * key, c.hidden_size);
        s.qkv_bias[0] = check_vector(check, "qkv_proj_bias", w.qkv_proj_bias, query + 2 * key);
    } else {
        for (int i = 0; i < 3; i++) {
            if (!check.failed() && !parts[i].matrix) {
                check.fail(HALYARD_INVALID_ARGUMENT, "%s is null, and so is qkv_proj", parts[i].name);
            }
            s.qkv[i] = checks.matrix(parts[i].name, parts[i].matrix, parts[i].features, c.hidden_size);
            s.qkv_bias[i] = check_vector(check, parts[i].bias_name, parts[i].bias, parts[i].features);
        }
        checks.absent("qkv_proj_bias", w.qkv_proj_bias, "qkv_proj is not");
    }
    s.o = checks.matrix("o_proj", w.o_proj, c.hidden_size, query);
    s.o_bias = check_vector(check, "o_proj_bias", w.o_proj_bias, c.hidden_size);
    s.q_norm = check_vector(check, "q_norm", w.q_norm, c.head_dim);
    s.k_norm = check_vector(check, "k_norm", w.k_norm, c.head_dim);
}

void check_ffn_sources(Checker &check, SourceChecks &checks, const halyard_block_config &c,
                       const halyard_block_weights &w, BlockSources &s) {
    if (c.gated_mlp) {
        if (!check.failed() && !w.gate_proj) {
            check.fail(HALYARD_INVALID_ARGUMENT, "gate_proj is null, but gated_mlp is set");
        }
        s.gate = checks.matrix("gate_proj", w.gate_proj, c.intermediate_size, c.hidden_size);
        s.gate_bias = check_vector(check, "gate_proj_bias", w.gate_proj_bias, c.intermediate_size);
    } else {
        checks.absent("gate_proj", w.gate_proj, "gated_mlp is 0");
        checks.absent("gate_proj_bias", w.gate_proj_bias, "gated_mlp is 0");
    }
    s.up = checks.matrix("up_proj", w.up_proj, c.intermediate_size, c.hidden_size);
    s.up_bias = check_vector(check, "up_proj_bias", w.up_proj_bias, c.intermediate_size);
    s.down = checks.matrix("down_proj", w.down_proj, c.hidden_size, c.intermediate_size);
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

/** Matrices with one number of inputs, joined to one of all their outputs, where they are. */
class JoinedMatrix {
public:
    JoinedMatrix() = default;
    ~JoinedMatrix() { free_at(device_of(whole_), whole_.data); }
    JoinedMatrix(const JoinedMatrix &) = delete;
    JoinedMatrix &operator=(const JoinedMatrix &) = delete;

    /** Fails `check` where there is no memory. */
    void join(Checker &check, const halyard_context *context, const View *parts, int count,
              halyard_weight_layout layout) {
        const int axis = layout == HALYARD_WEIGHT_OUT_IN ? 0 : 1;  // of the outputs
        int64_t shape[] = {parts[0].shape[0], parts[0].shape[1]};
        for (int i = 1; i < count; i++) {
            shape[axis] += parts[i].shape[axis];
        }
        const Device device = device_of(parts[0]);
        const DType dtype = parts[0].dtype;
        char *const memory =
            allocate_at(check, device, shape[0] * shape[1] * size_of(dtype), "q_proj, k_proj and v_proj");
        whole_ = view_of(memory, dtype, device, {shape[0], shape[1]}, {shape[1], 1});
        whole_.name = "q_proj, k_proj or v_proj";
        int64_t first = 0;
        for (int i = 0; i < count && !check.failed(); i++) {
            const int64_t outputs = parts[i].shape[axis];
            backend_of(device.on_cuda)
                .copy(check, context_or_default(context), device.device_id, parts[i],
                      part_of(whole_, axis, first, outputs));
            first += outputs;
        }
    }

    const View &get() const { return whole_; }

private:
    View whole_;
};

void pack_matrices(Checker &check, const halyard_context *context, halyard_weight_layout layout,
                   const CodeLayout &codes, const BlockSources &sources, halyard_block &block) {
    if (check.failed()) {
        return;
    }
    const auto pack = [&](const View &matrix, const View &up) {
        return pack_matrix(check, context, matrix, up, layout, block.device, codes);
    };
    if (sources.joined) {
        block.qkv = pack(sources.qkv[0], View());
    } else {
        JoinedMatrix joined;
        joined.join(check, context, sources.qkv, 3, layout);
        block.qkv = pack(joined.get(), View());
    }
    block.o = pack(sources.o, View());
    block.up = block.config.gated_mlp ? pack(sources.gate, sources.up) : pack(sources.up, View());
    block.down = pack(sources.down, View());
}

/** Memory with the vectors in a dtype, to which `arguments` points then; null on failure. */
void *convert_vectors(Checker &check, const halyard_context *context, const BlockSources &s, halyard_block &block,
                      DType dtype, BlockArguments &arguments) {
    if (check.failed()) {
        return nullptr;
    }
    const int64_t hidden = block.config.hidden_size, intermediate = block.config.intermediate_size;
    ParamSource qkv_bias(&arguments.qkv_bias);
    if (s.joined) {
        qkv_bias.add(s.qkv_bias[0], block.qkv_features());
    } else {
        qkv_bias.add(s.qkv_bias[0], block.query_features());
        qkv_bias.add(s.qkv_bias[1], block.key_features());
        qkv_bias.add(s.qkv_bias[2], block.key_features());
    }
    const ParamSource vectors[] = {
        qkv_bias,
        {&arguments.o_bias, s.o_bias, hidden},
        {&arguments.gate_bias, s.gate_bias, intermediate},
        {&arguments.up_bias, s.up_bias, intermediate},
        {&arguments.down_bias, s.down_bias, hidden},
        {&arguments.q_norm, s.q_norm, block.config.head_dim},
        {&arguments.k_norm, s.k_norm, block.config.head_dim},
        {&arguments.attention_norm.weight, s.attention_norm.weight, hidden},
        {&arguments.attention_norm.bias, s.attention_norm.bias, hidden},
        {&arguments.ffn_norm.weight, s.ffn_norm.weight, hidden},
        {&arguments.ffn_norm.bias, s.ffn_norm.bias, hidden},
        {&arguments.attention_post_norm.weight, s.attention_post_norm.weight, hidden},
        {&arguments.attention_post_norm.bias, s.attention_post_norm.bias, hidden},
        {&arguments.ffn_post_norm.weight, s.ffn_post_norm.weight, hidden},
        {&arguments.ffn_post_norm.bias, s.ffn_post_norm.bias, hidden},
    };
    constexpr int count = sizeof(vectors) / sizeof(vectors[0]);
    int64_t bytes = 0;
    void *const memory =
        make_param_vectors(check, context_or_default(context), block.device, dtype, vectors, count, bytes);
    block.bytes += bytes;
    return memory;
}

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
    f.up = block.up;
    f.down = block.down;
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

halyard_weights *pack_matrix(Checker &check, const halyard_context *context, const View &matrix, const View &up,
                             halyard_weight_layout layout, Device device, const CodeLayout &codes) {
    const PackSources sources = pack_sources(check, matrix, up, layout, device, codes);
    halyard_weights *packed = nullptr;
    if (!check.failed()) {
        backend_of(device.on_cuda).pack(check, context_or_default(context), sources, nullptr, 0, &packed);
    }
    return packed;
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
    if (!check.failed() && weights->layout != HALYARD_WEIGHT_OUT_IN && weights->layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_weight_layout",
                   weights->layout);
    }
    if (check.failed()) {
        return check.status();
    }
    BlockSources sources;
    SourceChecks checks(check, weights->layout);
    check_attention_sources(check, checks, complete, *weights, sources);
    check_ffn_sources(check, checks, complete, *weights, sources);
    check_norm_sources(check, complete, *weights, sources);
    const Device device =
        check.failed() ? Device() : choose_device(check, "o_proj", weights->o_proj->device, weights->device);
    const CodeLayout codes = check_quantization(check, weights->quantization, device);
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
    made->vectors_f32 = convert_vectors(check, context, sources, *made, DType::f32, made->arguments_f32);
    if (device.on_cuda && sources.o.dtype != DType::f32) {
        made->vectors_16_bit = convert_vectors(check, context, sources, *made, sources.o.dtype, made->arguments_16_bit);
    }
    pack_matrices(check, context, weights->layout, codes, sources, *made);
    prepare_calls(check, *made, made->arguments_f32);
    prepare_calls(check, *made, made->arguments_16_bit);
    if (check.failed()) {
        halyard_block_destroy(made);
        return check.status();
    }
    for (const halyard_weights *packed : {made->qkv, made->o, made->up, made->down}) {
        made->bytes += packed->bytes;
    }
    *block = made;
    return HALYARD_OK;
}

void halyard_block_destroy(halyard_block *block) {
    if (block) {
        for (halyard_weights *packed : {block->qkv, block->o, block->up, block->down}) {
            halyard_weights_destroy(packed);
        }
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
