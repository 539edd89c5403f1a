// The gradients of feed-forward networks on the processor, as those of their parts: the second layer, the first, the norm.
//
// What the layers multiplied is made again, the norm's output from x and the hidden values from the sums, so that neither need be kept
// from the forward call.
#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

/** Whether any of these gradients is asked for. */
bool wanted(std::initializer_list<const View *> gradients) {
    return std::any_of(gradients.begin(), gradients.end(), [](const View *gradient) { return gradient->data; });
}

}  // namespace

void cpu::ffn_backward(Checker &check, const halyard_context &context, const FfnBackwardCall &call) {
    const FfnCall &ffn = call.ffn;
    const int64_t rows = row_count(ffn.x), d_model = ffn.x.width(), d_ff = ffn.up->out_features;
    LinearBackwardCall up = call.up, down = call.down;
    const bool normalizes = ffn.norm != HALYARD_NORM_NONE;
    const bool wants_norm = wanted({&call.dx, &call.dnorm_weight, &call.dnorm_bias}) && normalizes;
    const bool wants_up = wants_norm || wanted({&call.dx, &up.dweight, &up.dweight_up, &up.dbias, &up.dbias_up});

    Workspace workspace(context, device_of(ffn.x));
    const auto hidden = workspace.book<float>(down.dweight.data && (up.activated || ffn.up->gated) ? rows : 0, d_ff);
    const auto dhidden = workspace.book<float>(wants_up ? rows : 0, d_ff);
    const auto normalized =
        workspace.book<float>(wanted({&up.dweight, &up.dweight_up}) && normalizes ? rows : 0, d_model);
    const auto dnormalized = workspace.book<float>(wants_norm ? rows : 0, d_model);
    if (!workspace.allocate(check)) {
        return;
    }
    // Without data where nothing was booked.
    const auto view = [&](auto piece, int64_t width) {
        return view_like(ffn.x, workspace[piece], DType::f32, width, width);
    };

    down.x = workspace[hidden] ? view(hidden, d_ff) : up.sums;
    if (workspace[hidden] && ffn.up->gated) {
        cpu::elementwise(check, context, {call.gated_unit, up.sums, up.sums_up, up.beta, down.x});
    } else if (workspace[hidden]) {
        cpu::elementwise(check, context, {call.activation, up.sums, up.beta, down.x});
    }
    down.dy = call.dy;
    down.dx = view(dhidden, d_ff);
    cpu::linear_backward(check, context, down);
    if (!wants_up || check.failed()) {
        return;
    }

    up.x = workspace[normalized] ? view(normalized, d_model) : ffn.x;
    if (workspace[normalized]) {
        cpu::norm(check, context, {ffn.norm, ffn.x, ffn.norm_weight, ffn.norm_bias, up.x, ffn.rms});
    }
    up.dy = down.dx;
    up.dx = normalizes ? view(dnormalized, d_model) : call.dx;
    cpu::linear_backward(check, context, up);
    if (check.failed()) {
        return;
    }

    const View dresidual = ffn.residual ? call.dy : View();
    if (wants_norm) {
        const View dx = call.dx.data ? call.dx : up.dx;
        cpu::norm_backward(check, context,
                           {ffn.norm, ffn.x, ffn.norm_weight, up.dx, dresidual, ffn.rms, up.accumulate, dx,
                            call.dnorm_weight, call.dnorm_bias});
    } else if (call.dx.data && ffn.residual) {
        cpu::elementwise(check, context, {kernels::add, call.dx, call.dy, call.dx});
    }
}

}  // namespace halyard
