// Steps of optimizers: the public functions.
#include <cfloat>
#include <cmath>

#include "core/backend.h"
#include "core/check_shapes.h"
#include "halyard/training.h"

namespace halyard {
namespace {

/** Refuses what is negative, or beyond f32. */
void check_not_negative(Checker &check, const char *name, double value) {
    if (!check.failed() && !(value >= 0 && value <= double{FLT_MAX})) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be finite in f32 and not negative", name, value);
    }
}

void check_gradient_scale(Checker &check, double value) {
    if (!check.failed() && !(value > 0 && value <= double{FLT_MAX})) {
        check.fail(
            HALYARD_INVALID_ARGUMENT,
            "options.gradient_scale is %g, but must be finite in f32 and above 0: 1 leaves the gradient as it is",
            value);
    }
}

void check_beta(Checker &check, const char *name, double value) {
    if (!check.failed() && !(value >= 0 && value < 1)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be at least 0 and below 1", name, value);
    }
}

/** An f32 tensor of the parameter's shape that is written. */
View check_state(Checker &check, const char *name, const DLTensor *tensor, const View &parameter) {
    const View view = check.output(name, tensor);
    check.same_shape(parameter, view);
    check_f32(check, view);
    return view;
}

/** Checks the gradient, which is read. */
View check_gradient(Checker &check, const DLTensor *tensor, const View &parameter) {
    const View view = check.tensor("gradient", tensor);
    check.same_shape(parameter, view);
    check_f32(check, view);
    return view;
}

View check_parameter(Checker &check, const DLTensor *tensor) {
    const View view = check.output("parameter", tensor);
    check_f32(check, view);
    return view;
}

/** base^exponent by squaring: for every bit of the exponent from the lowest on, the power so far is multiplied by base^(2^bit)
 *  if the bit is set. It has the same bits on every machine, unlike pow. */
double power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent > 0; exponent /= 2) {
        result *= exponent % 2 != 0 ? base : 1;
        base *= base;
    }
    return result;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_sgd_step(const halyard_context *context, DLTensor *parameter, const DLTensor *gradient,
                                DLTensor *momentum_buffer, const halyard_sgd_options *options) {
    Checker check("halyard_sgd_step");
    const View p = check_parameter(check, parameter), g = check_gradient(check, gradient, p);
    const View buffer =
        momentum_buffer && !check.failed() ? check_state(check, "momentum_buffer", momentum_buffer, p) : View();
    check.no_overlap(p, g, false);
    check.no_overlap(buffer, p, false);
    check.no_overlap(buffer, g, false);
    if (!check.not_null("options", options)) {
        return check.status();
    }
    const halyard_sgd_options &o = *options;
    check_not_negative(check, "options.lr", o.lr);
    check_not_negative(check, "options.momentum", o.momentum);
    check_not_negative(check, "options.weight_decay", o.weight_decay);
    check_gradient_scale(check, o.gradient_scale);
    if (!check.failed() && (o.momentum != 0) != (momentum_buffer != nullptr)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "momentum_buffer is %s, but options.momentum is %g: there is a buffer where there is momentum",
                   momentum_buffer ? "there" : "null", o.momentum);
    }
    if (!check.failed() && o.nesterov && o.momentum == 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "options.nesterov is asked for, but options.momentum is 0");
    }
    return run_call(check, context, &Backend::sgd,
                    {p, g, buffer, static_cast<float>(o.gradient_scale), static_cast<float>(o.weight_decay),
                     static_cast<float>(o.momentum), static_cast<float>(o.lr), o.nesterov != 0});
}

halyard_status halyard_adamw_step(const halyard_context *context, DLTensor *parameter, const DLTensor *gradient,
                                  DLTensor *first_moment, DLTensor *second_moment, int64_t step,
                                  const halyard_adamw_options *options) {
    Checker check("halyard_adamw_step");
    const View p = check_parameter(check, parameter), g = check_gradient(check, gradient, p),
               m = check_state(check, "first_moment", first_moment, p),
               v = check_state(check, "second_moment", second_moment, p);
    check.no_overlap(p, g, false);
    check.no_overlap(m, p, false);
    check.no_overlap(m, g, false);
    check.no_overlap(v, p, false);
    check.no_overlap(v, g, false);
    check.no_overlap(v, m, false);
    check_range(check, "step", step, 1, INT64_MAX);
    if (!check.not_null("options", options)) {
        return check.status();
    }
    const halyard_adamw_options &o = *options;
    check_not_negative(check, "options.lr", o.lr);
    check_beta(check, "options.beta1", o.beta1);
    check_beta(check, "options.beta2", o.beta2);
    check_not_negative(check, "options.eps", o.eps);
    check_not_negative(check, "options.weight_decay", o.weight_decay);
    check_gradient_scale(check, o.gradient_scale);
    const double decay = o.weight_decay, correction = 1 - power(o.beta1, step),
                 root = std::sqrt(1 - power(o.beta2, step));
    return run_call(check, context, &Backend::adamw,
                    {p, g, m, v, static_cast<float>(o.gradient_scale), static_cast<float>(o.decoupled ? 0 : decay),
                     static_cast<float>(o.decoupled ? o.lr * decay : 0), static_cast<float>(1 - o.beta1),
                     static_cast<float>(o.beta2), static_cast<float>(1 - o.beta2),
                     static_cast<float>(o.lr * root / correction), static_cast<float>(o.eps * root)});
}
