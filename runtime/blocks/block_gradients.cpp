// The gradients of blocks: the forward call that saves what they need, and the calls of the gradients of its parts, last to first.
//
// Saved is what cannot be made again cheaply: the inputs of attention and its result, what lies before the activation, and what goes
// through a norm. What a norm gave is made again.
#include "blocks/block_gradients.h"

#include "blocks/block_calls.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"
#include "core/workspace.h"

namespace halyard {

SavedTensors::SavedTensors(const halyard_block &block, const View &x, void *memory) {
    const auto place = [&](int64_t width) {
        char *const data = memory && width > 0 ? static_cast<char *>(memory) + bytes : nullptr;
        const View view = view_like(x, data, DType::f32, width, width);
        bytes += (view.elements * size_of(DType::f32) + 63) / 64 * 64;
        return view;
    };
    const halyard_block_config &c = block.config;
    const bool norms_heads = block.arguments_f32.q_norm.data || block.arguments_f32.k_norm.data;
    const int64_t output = block.norms_output() ? c.hidden_size : 0, sums = block.norms_sum() ? c.hidden_size : 0;
    qkv = place(block.qkv_features());
    rotated = place(norms_heads ? block.query_features() + block.key_features() : 0);
    attended = place(block.query_features());
    log_sum_exp = place(c.num_attention_heads);
    this->output = place(output);
    sum = place(sums);
    middle = place(c.hidden_size);
    gate_sums = place(c.intermediate_size);
    up_sums = place(c.gated_mlp ? c.intermediate_size : 0);
    ffn_output = place(output);
    ffn_sum = place(sums);
}

namespace {

/** Heads of a part of rows that lie side by side. */
View heads_of(const View &rows, int64_t first, int64_t heads, int64_t head_dim) {
    return split_heads(part_of(rows, rows.rank - 1, first, heads * head_dim), heads);
}

/** q and k of a block's attention, which lie one after the other in `rows`, and v. */
struct QueriesKeysValues {
    View q, k, v;

    QueriesKeysValues(const halyard_block &block, const View &rows, const View &qkv)
        : q(heads_of(rows, 0, block.config.num_attention_heads, block.config.head_dim)),
          k(heads_of(rows, block.query_features(), block.config.num_key_value_heads, block.config.head_dim)),
          v(heads_of(qkv, block.query_features() + block.key_features(), block.config.num_key_value_heads,
                     block.config.head_dim)) {}
};

/** Attention with the norms of its heads and the rotation as calls of their own. */
class AttentionStep {
public:
    AttentionStep(Checker &check, const halyard_context *context, const halyard_block &block, const SavedTensors &saved)
        : check_(check), context_(context), arguments_(block.arguments_f32.attention), block_(block),
          norms_heads_(arguments_.q_norm_weight.data || arguments_.k_norm_weight.data), saved_(saved),
          raw_(block, saved.qkv, saved.qkv), used_(block, norms_heads_ ? saved.rotated : saved.qkv, saved.qkv),
          attended_(split_heads(saved.attended, block.config.num_attention_heads)) {}

    void forward() {
        if (norms_heads_) {
            norm_or_copy(raw_.q, arguments_.q_norm_weight, used_.q);
            norm_or_copy(raw_.k, arguments_.k_norm_weight, used_.k);
        }
        rotate(used_.q, used_.q, false);
        rotate(used_.k, used_.k, false);
        AttentionCall call = arguments_;
        call.rope = nullptr;
        call.q_norm_weight = call.k_norm_weight = View();
        call.q = Heads(used_.q);
        call.k = Heads(used_.k);
        call.v = Heads(used_.v);
        call.y = Heads(attended_);
        call.log_sum_exp = saved_.log_sum_exp;
        run_call(check_, context_, &Backend::attention, call);
    }

    /** dq, dk and dv side by side. */
    void backward(const View &dattended, const BlockGradients &gradients, const View &dqkv) {
        const QueriesKeysValues d(block_, dqkv, dqkv);
        AttentionBackwardCall call;
        call.q = Heads(used_.q);
        call.k = Heads(used_.k);
        call.v = Heads(used_.v);
        call.result = Heads(attended_);
        call.log_sum_exp = saved_.log_sum_exp;
        call.dy = Heads(split_heads(dattended, block_.config.num_attention_heads));
        call.scale = arguments_.scale;
        call.softcap = arguments_.softcap;
        call.causal = arguments_.causal;
        call.sliding_window = arguments_.sliding_window;
        call.dq = Heads(d.q);
        call.dk = Heads(d.k);
        call.dv = Heads(d.v);
        call.y = d.q;
        run_call(check_, context_, &Backend::attention_backward, call);
        rotate(d.q, d.q, true);
        rotate(d.k, d.k, true);
        norm_backward(raw_.q, arguments_.q_norm_weight, gradients.accumulate, d.q, gradients.q_norm);
        norm_backward(raw_.k, arguments_.k_norm_weight, gradients.accumulate, d.k, gradients.k_norm);
    }

private:
    void norm_or_copy(const View &x, const View &weight, const View &y) {
        if (weight.data) {
            run_call(check_, context_, &Backend::norm, {HALYARD_NORM_RMS, x, weight, no_view, y, arguments_.rms});
        } else {
            run_cast(check_, context_, x, y);
        }
    }
    void norm_backward(const View &x, const View &weight, bool accumulate, const View &d, const View &dweight) {
        if (weight.data) {
            run_call(check_, context_, &Backend::norm_backward,
                     {HALYARD_NORM_RMS, x, weight, d, no_view, arguments_.rms, accumulate, d, dweight, no_view});
        }
    }
    void rotate(const View &x, const View &y, bool back) {
        if (arguments_.rope) {
            run_call(check_, context_, &Backend::rope, {arguments_.rope, Heads(x), Integers(), y, back});
        }
    }

    Checker &check_;
    const halyard_context *context_;
    const AttentionCall &arguments_;
    const halyard_block &block_;
    const bool norms_heads_;
    const SavedTensors &saved_;
    const QueriesKeysValues raw_, used_;  // before norms and rotation, and behind
    const View attended_;
};

/** The gradients of the calls that a block is made of. */
class GradientCalls {
public:
    GradientCalls(Checker &check, const halyard_context *context, const halyard_block &block,
                  const BlockGradients &gradients)
        : check_(check), context_(context), block_(block), gradients_(gradients) {}

    /** `d`: dx, to which `residual` is added if it is there. */
    void norm(const Norm &norm, const View &x, const View &dy, const View &residual, const BlockGradients::Norm &to,
              const View &d) {
        run_call(check_, context_, &Backend::norm_backward,
                 {norm.norm, x, norm.weight, dy, residual, norm.scalars, gradients_.accumulate, d, to.weight, to.bias});
    }
    void add(const View &a, const View &b, const View &y) {
        run_call(check_, context_, &Backend::elementwise, {kernels::add, a, b, y});
    }
    /** Each gradient may be empty. */
    void linear(const View &x, const PackedMatrix &matrix, const View &dy, const View &dx, const View &dweight,
                const View &dbias) {
        LinearBackwardCall call;
        call.weights = matrix.weights;
        call.x = x;
        call.dy = dy;
        call.in_out = gradients_.in_out;
        call.accumulate = gradients_.accumulate;
        call.dx = dx;
        call.dweight = dweight;
        call.dbias = dbias;
        call.y = any_output({&dx, &dweight, &dbias});
        run_call(check_, context_, &Backend::linear_backward, call);
    }
    /** Writes the gradients of the joined matrix, as one or as its three parts. */
    void qkv(const View &x, const View &dqkv, const View &dx) {
        linear(x, block_.qkv[0], dqkv, dx, gradients_.qkv_proj, gradients_.qkv_bias);
        const int64_t features[] = {block_.query_features(), block_.key_features(), block_.key_features()};
        int64_t first = 0;
        for (int i = 0; i < 3; i++) {
            if (gradients_.projections[i].data || gradients_.biases[i].data) {
                linear(x, block_.qkv[0], part_of(dqkv, dqkv.rank - 1, first, features[i]), View(),
                       gradients_.projections[i], gradients_.biases[i]);
            }
            first += features[i];
        }
    }
    void ffn(const FfnCall &arguments, const SavedTensors &saved, const View &dy, const View &dx) {
        FfnBackwardCall call;
        call.ffn = arguments;
        call.ffn.x = saved.middle;
        call.dy = dy;
        const ActivationKernels kernels = activation_kernels(arguments.activation, arguments.beta);
        call.activation = kernels.value;
        call.gated_unit = kernels.unit;
        LinearBackwardCall &up = call.up, &down = call.down;
        up.weights = arguments.up;
        up.sums = saved.gate_sums;
        up.sums_up = saved.up_sums;
        up.activated = arguments.activation != HALYARD_IDENTITY;
        up.activation = kernels.gradient;
        up.gated_unit = kernels.unit_gradient;
        up.beta = arguments.beta;
        const bool gated = arguments.up->gated;
        up.dweight = gated ? gradients_.gate_proj : gradients_.up_proj;
        up.dbias = gated ? gradients_.gate_bias : gradients_.up_bias;
        up.dweight_up = gated ? gradients_.up_proj : View();
        up.dbias_up = gated ? gradients_.up_bias : View();
        down.weights = arguments.down;
        down.dweight = gradients_.down_proj;
        down.dbias = gradients_.down_bias;
        up.in_out = down.in_out = gradients_.in_out;
        up.accumulate = down.accumulate = gradients_.accumulate;
        if (arguments.norm != HALYARD_NORM_NONE) {
            call.dnorm_weight = gradients_.ffn_norm.weight;
            call.dnorm_bias = gradients_.ffn_norm.bias;
        }
        call.dx = dx;
        call.y = any_output({&dx, &up.dweight, &down.dweight});
        run_call(check_, context_, &Backend::ffn_backward, call);
    }

private:
    Checker &check_;
    const halyard_context *context_;
    const halyard_block &block_;
    const BlockGradients &gradients_;
};

}  // namespace

void run_block_saving(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                      const SavedTensors &saved, const View &y) {
    const int64_t width = block.config.hidden_size;
    const BlockArguments &arguments = block.arguments_f32;
    const bool norms_input = block.norms_input(), norms_output = block.norms_output(), norms_sum = block.norms_sum();
    Workspace workspace(context_or_default(context), block.device);
    const auto normalized_piece = workspace.book<float>(norms_input ? row_count(x) : 0, width);
    if (!workspace.allocate(check)) {
        return;
    }
    const View normalized = view_like(x, workspace[normalized_piece], DType::f32, width, width);
    const Norm &attention_norm = norms_input ? arguments.attention_post_norm : arguments.attention_norm;
    const Norm &ffn_norm = norms_input ? arguments.ffn_post_norm : arguments.ffn_norm;
    BlockCalls calls(check, context, block, false);
    if (norms_input) {
        calls.norm(arguments.attention_norm, x, normalized);
    }
    calls.qkv(norms_input ? normalized : x, arguments.qkv_bias, saved.qkv);
    AttentionStep(check, context, block, saved).forward();
    const View &sum = norms_sum ? saved.sum : saved.middle;
    if (norms_output) {
        calls.linear(saved.attended, block.o, arguments.o_bias, View(), saved.output);
        calls.norm(attention_norm, saved.output, sum);
        calls.add(x, sum, sum);
    } else {
        calls.linear(saved.attended, block.o, arguments.o_bias, x, sum);
    }
    if (norms_sum) {
        calls.norm(attention_norm, sum, saved.middle);
    }

    FfnCall ffn = arguments.ffn;
    ffn.sums = saved.gate_sums;
    ffn.sums_up = block.config.gated_mlp ? saved.up_sums : View();
    const View &ffn_sum = norms_sum ? saved.ffn_sum : y;
    if (norms_output) {
        calls.ffn(ffn, saved.middle, saved.ffn_output);
        calls.norm(ffn_norm, saved.ffn_output, ffn_sum);
        calls.add(saved.middle, ffn_sum, ffn_sum);
    } else {
        calls.ffn(ffn, saved.middle, ffn_sum);
    }
    if (norms_sum) {
        calls.norm(ffn_norm, ffn_sum, y);
    }
}

void run_block_gradients(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                         const SavedTensors &saved, const View &dy, const BlockGradients &gradients, const View &dx) {
    const int64_t tokens = row_count(x), width = block.config.hidden_size;
    const BlockArguments &arguments = block.arguments_f32;
    const bool norms_input = block.norms_input(), norms_output = block.norms_output(), norms_sum = block.norms_sum();
    Workspace workspace(context_or_default(context), block.device);
    const auto sum_piece = workspace.book<float>(norms_sum ? tokens : 0, width);
    const auto output_piece = workspace.book<float>(norms_output || norms_input ? tokens : 0, width);
    const auto middle_piece = workspace.book<float>(tokens, width);
    const auto normalized_piece = workspace.book<float>(norms_input ? tokens : 0, width);
    const auto attended_piece = workspace.book<float>(tokens, block.query_features());
    const auto qkv_piece = workspace.book<float>(tokens, block.qkv_features());
    if (!workspace.allocate(check)) {
        return;
    }
    const auto view = [&](auto piece, int64_t features) {
        return view_like(x, workspace[piece], DType::f32, features, features);
    };
    const View dsum = view(sum_piece, width), doutput = view(output_piece, width), dmiddle = view(middle_piece, width),
               normalized = view(normalized_piece, width), dattended = view(attended_piece, block.query_features()),
               dqkv = view(qkv_piece, block.qkv_features());
    // Where the input of a sublayer goes through a norm, that behind it is the second one.
    const Norm &attention_norm = norms_input ? arguments.attention_post_norm : arguments.attention_norm;
    const Norm &ffn_norm = norms_input ? arguments.ffn_post_norm : arguments.ffn_norm;
    const BlockGradients::Norm &to_attention_norm =
        norms_input ? gradients.attention_post_norm : gradients.attention_norm;
    const BlockGradients::Norm &to_ffn_norm = norms_input ? gradients.ffn_post_norm : gradients.ffn_norm;
    GradientCalls calls(check, context, block, gradients);

    // dmiddle, from the feed-forward network. `d` is the gradient of a sublayer's sum.
    if (norms_sum) {
        calls.norm(ffn_norm, saved.ffn_sum, dy, View(), to_ffn_norm, dsum);
    }
    const View &d_of_ffn = norms_sum ? dsum : dy;
    if (norms_output) {
        calls.norm(ffn_norm, saved.ffn_output, d_of_ffn, View(), to_ffn_norm, doutput);
    }
    calls.ffn(arguments.ffn, saved, norms_output ? doutput : d_of_ffn, dmiddle);
    if (norms_output) {
        calls.add(dmiddle, d_of_ffn, dmiddle);
    }

    // dx, from attention.
    if (norms_sum) {
        calls.norm(attention_norm, saved.sum, dmiddle, View(), to_attention_norm, dsum);
    }
    const View &d = norms_sum ? dsum : dmiddle;
    if (norms_output) {
        calls.norm(attention_norm, saved.output, d, View(), to_attention_norm, doutput);
    }
    calls.linear(saved.attended, block.o, norms_output ? doutput : d, dattended, gradients.o_proj, gradients.o_bias);
    AttentionStep(check, context, block, saved).backward(dattended, gradients, dqkv);
    if (norms_input) {
        run_norm(check, context, arguments.attention_norm, x, normalized);
        calls.qkv(normalized, dqkv, doutput);
        calls.norm(arguments.attention_norm, x, doutput, d, gradients.attention_norm, dx);
    } else {
        calls.qkv(x, dqkv, dx);
        calls.add(dx, d, dx);
    }
}

}  // namespace halyard
