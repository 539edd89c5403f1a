// The norm of gradients: the public function.
#include <cstdio>
#include <new>

#include "core/check_shapes.h"
#include "core/workspace.h"
#include "halyard/training.h"

using namespace halyard;

halyard_status halyard_gradient_norm(const halyard_context *context, const DLTensor *const *gradients, int64_t count,
                                     double *norm) {
    char name[40];  // of the tensor that is looked at
    Checker check("halyard_gradient_norm");
    check.set_context(context);
    check_range(check, "count", count, 0, INT64_MAX);
    if (count > 0) {
        check.not_null("gradients", gradients);
    }
    check.not_null("norm", norm);
    Workspace workspace(context_or_default(context), Device());
    const auto piece = workspace.book<View>(check.failed() ? 0 : count);
    if (!workspace.allocate(check)) {
        return check.status();
    }
    View *const views = workspace[piece];
    for (int64_t i = 0; i < count && !check.failed(); i++) {
        snprintf(name, sizeof(name), "gradients[%lld]", static_cast<long long>(i));
        new (views + i) View(check.tensor(name, gradients[i]));
        check_f32(check, views[i]);
    }
    if (!check.failed()) {
        cpu_backend.gradient_norm(check, context_or_default(context), {views, count, norm});
    }
    return check.status();
}
