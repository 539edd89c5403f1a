// The gradients of attention: the public function.
#include "api/attention_shapes.h"
#include "core/backend.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

/** Refuses what the gradients go without. log_sum_exp is an argument of its own here. */
void check_options(Checker &check, const halyard_attention_options &o, AttentionBackwardCall &call) {
    check.finite_not_negative("options.scale", o.scale);
    check.softcap("options.softcap", o.softcap);
    check_window(check, "options.sliding_window", o.sliding_window);
    const struct {
        const char *name;
        bool given;
    } options[] = {
        {"options.q_norm_weight", o.q_norm_weight != nullptr},
        {"options.k_norm_weight", o.k_norm_weight != nullptr},
        {"options.rope", o.rope != nullptr},
    };
    for (const auto &option : options) {
        if (!check.failed() && option.given) {
            check.fail(HALYARD_UNSUPPORTED, "%s is given, but the gradients of attention go without", option.name);
        }
    }
    if (o.causal || o.sliding_window > 0) {
        check_queries_are_last(check, call.q, call.k);
    }
    if (!check.failed()) {
        call.scale = scale_of_scores(o, call.q);
        call.softcap = o.softcap;
        call.causal = o.causal != 0;
        call.sliding_window = o.sliding_window;
    }
}

/** Null, or f32 of the shape of `of`. */
Heads check_gradient(Checker &check, const char *name, const DLTensor *tensor, const View &of) {
    if (check.failed() || !tensor) {
        return Heads();
    }
    const View view = check.output(name, tensor);
    check.same_shape(of, view);
    check_f32(check, view);
    return Heads(check, view);
}

void check_gradients(Checker &check, AttentionBackwardCall &call) {
    const View *const outputs[] = {&call.dq.view, &call.dk.view, &call.dv.view};
    const View *const inputs[] = {&call.q.view,      &call.k.view,      &call.v.view,
                                  &call.result.view, &call.log_sum_exp, &call.dy.view};
    for (const View *const *output = std::begin(outputs); output != std::end(outputs); output++) {
        for (const View *const input : inputs) {
            check.no_overlap(**output, *input, false);
        }
        for (const View *const *other = std::begin(outputs); other != output; other++) {
            check.no_overlap(**output, **other, false);
        }
        if ((*output)->data && !(*output)->empty()) {
            call.y = **output;
        }
    }
}

AttentionBackwardCall check_attention_backward(Checker &check, const DLTensor *const (&inputs)[6],
                                               const halyard_attention_options &options,
                                               DLTensor *const (&gradients)[3]) {
    AttentionBackwardCall call;
    const char *const names[] = {"q", "k", "v", "y", "log_sum_exp", "dy"};
    View views[6];
    for (int i = 0; i < 6; i++) {
        views[i] = check.tensor(names[i], inputs[i]);
        check_f32(check, views[i]);
    }
    call.q = Heads(check, views[0]);
    call.k = Heads(check, views[1]);
    call.v = Heads(check, views[2]);
    call.result = Heads(check, views[3]);
    call.log_sum_exp = views[4];
    call.dy = Heads(check, views[5]);
    check_heads(check, call.q, call.k, call.v.view, call.result.view);
    check.same_shape(call.q.view, call.dy.view);
    check_log_sum_exp_form(check, call.log_sum_exp, call.q);
    check_options(check, options, call);
    call.dq = check_gradient(check, "dq", gradients[0], call.q.view);
    call.dk = check_gradient(check, "dk", gradients[1], call.k.view);
    call.dv = check_gradient(check, "dv", gradients[2], call.v.view);
    check_gradients(check, call);
    return call;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_attention_backward(const halyard_context *context, const DLTensor *q, const DLTensor *k,
                                          const DLTensor *v, const DLTensor *y, const DLTensor *log_sum_exp,
                                          const DLTensor *dy, const halyard_attention_options *options, DLTensor *dq,
                                          DLTensor *dk, DLTensor *dv) {
    Checker check("halyard_attention_backward");
    const halyard_attention_options none = {};
    const AttentionBackwardCall call =
        check_attention_backward(check, {q, k, v, y, log_sum_exp, dy}, options ? *options : none, {dq, dk, dv});
    return run_call(check, context, &Backend::attention_backward, call);
}
