// Cross entropy and the mean of its losses: the public functions.
#include "api/norm.h"
#include "core/check_shapes.h"
#include "halyard/training.h"

namespace halyard {
namespace {

const int64_t *ignored_target(const halyard_cross_entropy_options &options) {
    return options.has_ignore_index ? &options.ignore_index : nullptr;
}

/** Null, or f32 like the logits. */
View check_gradient(Checker &check, DLTensor *dlogits, const View &logits) {
    if (check.failed() || !dlogits) {
        return View();
    }
    const View view = check.output("dlogits", dlogits);
    check.same_shape(logits, view);
    check_f32(check, view);
    check.no_overlap(view, logits, true);
    return view;
}

double mean_of(const View &losses, const CountedTargets &counted, int64_t *count) {
    double sum = 0;
    *count = 0;
    for (int64_t row = 0; row < losses.elements; row++) {
        if (counted.counts(counted.targets.in_order(row))) {
            float loss;
            gather(losses, row, 1, &loss);
            sum += static_cast<double>(loss);
            ++*count;
        }
    }
    return sum / static_cast<double>(*count);
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_cross_entropy(const halyard_context *context, const DLTensor *logits, const DLTensor *targets,
                                     const halyard_cross_entropy_options *options, DLTensor *losses,
                                     DLTensor *dlogits) {
    Checker check("halyard_cross_entropy");
    const halyard_cross_entropy_options none = {}, &o = options ? *options : none;
    const View x = check.tensor("logits", logits);
    check_f32(check, x);
    check_rows(check, x, {});
    const Integers ids = check_integers_of_rows(check, "targets", targets, x);
    check.finite("options.gradient_scale", o.gradient_scale);
    const View of_rows = losses ? check_row_vector(check, "losses", losses, x, true) : View();
    const View dx = check_gradient(check, dlogits, x);
    check.no_overlap(of_rows, x, false);
    check.no_overlap(of_rows, dx, false);
    check.no_overlap(of_rows, ids.memory, false);
    check.no_overlap(dx, ids.memory, false);
    const CountedTargets counted = {ids, ignored_target(o)};
    check_in_range(check, "targets", ids, "the number of classes", x.width(), counted.ignored);
    const float scale = o.gradient_scale == 0.0f ? 1.0f : o.gradient_scale;
    return run_call(check, context, &Backend::cross_entropy, {x, counted, scale, of_rows, dx});
}

halyard_status halyard_mean_loss(const DLTensor *losses, const DLTensor *targets,
                                 const halyard_cross_entropy_options *options, double *mean, int64_t *count) {
    Checker check("halyard_mean_loss");
    const halyard_cross_entropy_options none = {}, &o = options ? *options : none;
    const View of_rows = check.tensor("losses", losses);
    check_f32(check, of_rows);
    const Integers ids = check_integers_like(check, "targets", targets, of_rows);
    check.not_null("mean", mean);
    if (!check.failed()) {
        int64_t counted;
        *mean = mean_of(of_rows, {ids, ignored_target(o)}, count ? count : &counted);
    }
    return check.status();
}
