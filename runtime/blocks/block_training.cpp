// Training of blocks: the public functions, and the checks of their arguments.
#include <cstdio>

#include "blocks/block_gradients.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"
#include "core/view.h"

namespace halyard {
namespace {

/** Checks the fields of halyard_block_gradients. */
class GradientChecks {
public:
    GradientChecks(Checker &check, bool in_out) : check_(check), in_out_(in_out) {}

    View matrix(const char *name, const DLTensor *tensor, int64_t out, int64_t in) {
        return in_out_ ? check_matrix_gradient(check_, name, tensor, in, out)
                       : check_matrix_gradient(check_, name, tensor, out, in);
    }
    /** Refused where the block has no such parameter. */
    View vector(const char *name, const DLTensor *tensor, const View &parameter, int64_t width) {
        if (!check_.failed() && tensor && !parameter.data) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but the block was made without", name);
        }
        return check_vector_gradient(check_, name, tensor, width);
    }

private:
    Checker &check_;
    const bool in_out_;
};

void check_attention_gradients(Checker &check, GradientChecks &checks, const halyard_block &block,
                               const halyard_block_gradients &g, BlockGradients &to) {
    const BlockArguments &a = block.arguments_f32;
    const int64_t hidden = block.config.hidden_size, query = block.query_features(), key = block.key_features();
    if (!check.failed() && g.qkv_proj && (g.q_proj || g.k_proj || g.v_proj)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.qkv_proj is given with %s, which is part of it",
                   g.q_proj   ? "q_proj"
                   : g.k_proj ? "k_proj"
                              : "v_proj");
    }
    to.qkv_proj = checks.matrix("gradients.qkv_proj", g.qkv_proj, query + 2 * key, hidden);
    to.projections[0] = checks.matrix("gradients.q_proj", g.q_proj, query, hidden);
    to.projections[1] = checks.matrix("gradients.k_proj", g.k_proj, key, hidden);
    to.projections[2] = checks.matrix("gradients.v_proj", g.v_proj, key, hidden);
    to.o_proj = checks.matrix("gradients.o_proj", g.o_proj, hidden, query);
    to.qkv_bias = checks.vector("gradients.qkv_proj_bias", g.qkv_proj_bias, a.qkv_bias, query + 2 * key);
    to.biases[0] = checks.vector("gradients.q_proj_bias", g.q_proj_bias, a.qkv_bias, query);
    to.biases[1] = checks.vector("gradients.k_proj_bias", g.k_proj_bias, a.qkv_bias, key);
    to.biases[2] = checks.vector("gradients.v_proj_bias", g.v_proj_bias, a.qkv_bias, key);
    to.o_bias = checks.vector("gradients.o_proj_bias", g.o_proj_bias, a.o_bias, hidden);
    to.q_norm = checks.vector("gradients.q_norm", g.q_norm, a.q_norm, block.config.head_dim);
    to.k_norm = checks.vector("gradients.k_norm", g.k_norm, a.k_norm, block.config.head_dim);
}

void check_ffn_gradients(Checker &check, GradientChecks &checks, const halyard_block &block,
                         const halyard_block_gradients &g, BlockGradients &to) {
    const BlockArguments &a = block.arguments_f32;
    const int64_t hidden = block.config.hidden_size, intermediate = block.config.intermediate_size;
    if (!check.failed() && g.gate_proj && !block.config.gated_mlp) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.gate_proj is given, but gated_mlp of block is 0");
    }
    to.gate_proj = checks.matrix("gradients.gate_proj", g.gate_proj, intermediate, hidden);
    to.up_proj = checks.matrix("gradients.up_proj", g.up_proj, intermediate, hidden);
    to.down_proj = checks.matrix("gradients.down_proj", g.down_proj, hidden, intermediate);
    to.gate_bias = checks.vector("gradients.gate_proj_bias", g.gate_proj_bias, a.gate_bias, intermediate);
    to.up_bias = checks.vector("gradients.up_proj_bias", g.up_proj_bias, a.up_bias, intermediate);
    to.down_bias = checks.vector("gradients.down_proj_bias", g.down_proj_bias, a.down_bias, hidden);
}

void check_norm_gradients(GradientChecks &checks, const halyard_block &block, const halyard_block_gradients &g,
                          BlockGradients &to) {
    const BlockArguments &a = block.arguments_f32;
    const struct {
        const char *name, *bias_name;
        const DLTensor *weight, *bias;
        const Norm &norm;
        BlockGradients::Norm &to;
    } norms[] = {
        {"gradients.attention_norm", "gradients.attention_norm_bias", g.attention_norm, g.attention_norm_bias,
         a.attention_norm, to.attention_norm},
        {"gradients.ffn_norm", "gradients.ffn_norm_bias", g.ffn_norm, g.ffn_norm_bias, a.ffn_norm, to.ffn_norm},
        {"gradients.attention_post_norm", "gradients.attention_post_norm_bias", g.attention_post_norm,
         g.attention_post_norm_bias, a.attention_post_norm, to.attention_post_norm},
        {"gradients.ffn_post_norm", "gradients.ffn_post_norm_bias", g.ffn_post_norm, g.ffn_post_norm_bias,
         a.ffn_post_norm, to.ffn_post_norm}};
    for (const auto &n : norms) {
        n.to.weight = checks.vector(n.name, n.weight, n.norm.weight, block.config.hidden_size);
        n.to.bias = checks.vector(n.bias_name, n.bias, n.norm.bias, block.config.hidden_size);
    }
}

}  // namespace

void check_trainable(Checker &check, const halyard_block &block, const char *name) {
    if (!check.failed() && block.device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "%s is on a CUDA device, which has no gradients", name);
    }
    if (!check.failed() && !block.joined()) {
        check.fail(HALYARD_UNSUPPORTED, "%s was made of packed q, k and v: gradients need them as tensors, or as one",
                   name);
    }
    block.each_matrix([&](const char *matrix, const PackedMatrix &packed) {
        char full[64];
        snprintf(full, sizeof(full), "%s.%s", name, matrix);
        check_plain_weights(check, full, *packed.weights);
    });
    const halyard_block_config &c = block.config;
    if (!check.failed() && c.gated_mlp && !activation_kernels(c.hidden_act, c.swish_beta).has_unit) {
        check.fail(HALYARD_UNSUPPORTED, "hidden_act of %s is %d, which has no gradient with gated_mlp", name,
                   static_cast<int>(c.hidden_act));
    }
}

BlockGradients check_block_gradients(Checker &check, const halyard_block &block,
                                     const halyard_block_gradients &gradients) {
    BlockGradients to;
    check_gradient_layout(check, "gradients.layout", gradients.layout);
    to.in_out = gradients.layout == HALYARD_WEIGHT_IN_OUT;
    to.accumulate = gradients.accumulate != 0;
    GradientChecks checks(check, to.in_out);
    check_attention_gradients(check, checks, block, gradients, to);
    check_ffn_gradients(check, checks, block, gradients, to);
    check_norm_gradients(checks, block, gradients, to);
    to.each([&](const View &gradient) {
        to.each([&](const View &other) { check.no_overlap(gradient, &gradient == &other ? no_view : other, false); });
        block.each_matrix([&](const char *, const PackedMatrix &matrix) {
            const halyard_weights &weights = *matrix.weights;
            check.no_overlap(gradient, memory_view("a matrix of block", weights.block, weights.bytes), false);
        });
    });
    return to;
}

namespace {

/** x of a call on [T, hidden_size] or [batch, T, hidden_size]. */
View check_block_input(Checker &check, const halyard_block *block, const DLTensor *x) {
    check.not_null("block", block);
    const View xs = check.tensor("x", x);
    check_f32(check, xs);
    if (!check.failed() && xs.rank != 2 && xs.rank != 3) {
        check.fail(HALYARD_INVALID_ARGUMENT, "x has rank %d, but must be [T, hidden_size] or [batch, T, hidden_size]",
                   xs.rank);
    }
    if (check.failed()) {
        return xs;
    }
    check_trainable(check, *block, "block");
    check_width(check, xs, block->config.hidden_size, "the hidden_size of block");
    check_block_call(check, *block, "block", {nullptr, nullptr, xs.rank == 3 ? xs.shape[0] : 1}, 0, "x",
                     xs.shape[xs.rank - 2]);
    return xs;
}

/** The memory of what is saved, of which so many bytes are there. */
View check_saved(Checker &check, const halyard_block &block, const View &x, const void *saved, int64_t bytes) {
    if (check.failed()) {
        return View();
    }
    const int64_t needed = SavedTensors(block, x, nullptr).bytes;
    check_range(check, "bytes", bytes, needed, INT64_MAX);
    if (needed > 0) {
        check.not_null("saved", saved);
    }
    if (!check.failed() && reinterpret_cast<uintptr_t>(saved) % 64 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "saved must be aligned to 64 bytes");
    }
    return saved ? memory_view("saved", saved, needed) : View();
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_block_saved_size(const halyard_block *block, int64_t batch, int64_t tokens, int64_t *bytes) {
    Checker check("halyard_block_saved_size");
    check.not_null("block", block);
    check_range(check, "batch", batch, 0, INT32_MAX);
    check_range(check, "tokens", tokens, 0, INT32_MAX);
    check.not_null("bytes", bytes);
    if (!check.failed()) {
        check_trainable(check, *block, "block");
    }
    if (check.failed()) {
        return check.status();
    }
    const auto of = [&](int64_t rows) {
        return SavedTensors(*block, view_of(nullptr, DType::f32, Device(), {rows, block->config.hidden_size}, {0, 1}),
                            nullptr)
            .bytes;
    };
    const int64_t rows = batch * tokens;
    if (rows > INT64_MAX / of(1)) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "batch times tokens is %lld, for which no memory is large enough",
                          static_cast<long long>(rows));
    }
    *bytes = of(rows);
    return check.status();
}

halyard_status halyard_block_forward_saving(const halyard_context *context, const halyard_block *block,
                                            const DLTensor *x, void *saved, int64_t bytes, DLTensor *y) {
    Checker check("halyard_block_forward_saving");
    check.set_context(context);
    const View xs = check_block_input(check, block, x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    check.no_overlap(ys, xs, false);
    View memory;
    if (!check.failed()) {
        memory = check_saved(check, *block, xs, saved, bytes);
    }
    check.no_overlap(ys, memory, false);
    check.no_overlap(memory, xs, false);
    if (!check.failed()) {
        check_clear_of_packed(check, ys, *block);
    }
    if (!check.failed() && !xs.empty()) {
        run_block_saving(check, context, *block, xs, SavedTensors(*block, xs, saved), ys);
    }
    return check.status();
}

halyard_status halyard_block_backward(const halyard_context *context, const halyard_block *block, const DLTensor *x,
                                      const void *saved, int64_t bytes, const DLTensor *dy,
                                      const halyard_block_gradients *gradients, DLTensor *dx) {
    Checker check("halyard_block_backward");
    check.set_context(context);
    const View xs = check_block_input(check, block, x);
    const View dys = check.tensor("dy", dy), dxs = check.output("dx", dx);
    check.not_null("gradients", gradients);
    check.same_shape(xs, dys);
    check.same_shape(xs, dxs);
    check_f32(check, dys);
    check_f32(check, dxs);
    if (check.failed()) {
        return check.status();
    }
    const View memory = check_saved(check, *block, xs, saved, bytes);
    const BlockGradients to = check_block_gradients(check, *block, *gradients);
    check.no_overlap(dxs, dys, true);
    for (const View *const input : {&xs, &memory}) {
        check.no_overlap(dxs, *input, false);
    }
    to.each([&](const View &gradient) {
        for (const View *const other : {&xs, &dys, &dxs, &memory}) {
            check.no_overlap(gradient, *other, false);
        }
    });
    if (!check.failed()) {
        run_block_gradients(check, context, *block, xs, SavedTensors(*block, xs, const_cast<void *>(saved)), dys, to,
                            dxs);
    }
    return check.status();
}
