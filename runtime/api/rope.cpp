// Rotary position embedding: the public functions.
#include "core/handles/rope.h"

#include <utility>

#include "core/backend.h"

namespace halyard {
namespace {

/** The positions of the tokens of x, if there are any; without a tensor, token t has position t. */
Integers check_positions(Checker &check, const DLTensor *tensor, const Heads &x, int64_t max_positions) {
    Integers given;
    if (check.failed()) {
        return given;
    }
    if (!tensor) {
        if (x.tokens > max_positions) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld tokens, but rope has max_positions %lld", x.view.name,
                       static_cast<long long>(x.tokens), static_cast<long long>(max_positions));
        }
        return given;
    }
    given = check_integers(check, "positions", tensor);
    if (check.failed()) {
        return given;
    }
    if ((given.rank == 2 && x.view.rank != 4) || given.tokens != x.tokens ||
        (given.rank == 2 && given.batch != x.batch)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "positions has rank %d and width %lld, but must have the shape of the tokens of %s: "
                   "[%lld]%s",
                   given.rank, static_cast<long long>(given.tokens), x.view.name, static_cast<long long>(x.tokens),
                   x.view.rank == 4 ? " or [batch, T]" : "");
        return given;
    }
    if (x.view.on_cuda || !given.data) {
        return given;  // what only the device can read, or nothing
    }
    for (int64_t b = 0; b < given.batch; b++) {
        for (int64_t t = 0; t < given.tokens; t++) {
            const int64_t position = given.at(b, t);
            if (position < 0 || position >= max_positions) {
                check.fail(HALYARD_INVALID_ARGUMENT,
                           "positions holds %lld, but must be in [0, %lld), rope's max_positions",
                           static_cast<long long>(position), static_cast<long long>(max_positions));
                return given;
            }
        }
    }
    return given;
}

/** y = x rotated, or rotated back. */
halyard_status rotate_heads(Checker &check, const halyard_context *context, const halyard_rope *rope,
                            const std::pair<const char *, const DLTensor *> &x, const DLTensor *positions,
                            const std::pair<const char *, DLTensor *> &y, bool back) {
    check.not_null("rope", rope);
    const View xs = check.tensor(x.first, x.second), ys = check.output(y.first, y.second);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    if (check.failed()) {
        return check.status();
    }
    if (xs.rank < 3) {
        return check.fail(HALYARD_INVALID_ARGUMENT,
                          "%s has rank %d, but must have rank 3 or 4: [(batch,) T, n_heads, head_dim]", xs.name,
                          xs.rank);
    }
    if (xs.width() != rope->options.head_dim) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "%s has heads of %lld features, but rope has head_dim %lld",
                          xs.name, static_cast<long long>(xs.width()), static_cast<long long>(rope->options.head_dim));
    }
    const Heads heads(xs);
    const Integers positions_of = check_positions(check, positions, heads, rope->options.max_positions);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, positions_of.memory, false);
    return run_call(check, context, &Backend::rope, {rope, heads, positions_of, ys, back});
}

}  // namespace
}  // namespace halyard

using halyard::Checker;

halyard_status halyard_rope_create(const halyard_rope_options *options, halyard_rope **rope) {
    using namespace halyard;
    Checker check("halyard_rope_create");
    check.not_null("options", options);
    if (!check.not_null("rope", rope)) {
        return check.status();
    }
    halyard_rope *const made = check.failed() ? nullptr : make_rope(check, *options);
    if (made) {
        *rope = made;
    }
    return check.status();
}

void halyard_rope_destroy(halyard_rope *rope) {
    halyard::free_rope(rope);
}

halyard_status halyard_rope_get_options(const halyard_rope *rope, halyard_rope_options *options) {
    Checker check("halyard_rope_get_options");
    check.not_null("rope", rope);
    if (check.not_null("options", options)) {
        *options = rope->options;
    }
    return check.status();
}

halyard_status halyard_rope_apply(const halyard_context *context, const halyard_rope *rope, const DLTensor *x,
                                  const DLTensor *positions, DLTensor *y) {
    Checker check("halyard_rope_apply", halyard::Devices::cpu_or_cuda);
    return halyard::rotate_heads(check, context, rope, {"x", x}, positions, {"y", y}, false);
}

halyard_status halyard_rope_apply_backward(const halyard_context *context, const halyard_rope *rope, const DLTensor *dy,
                                           const DLTensor *positions, DLTensor *dx) {
    Checker check("halyard_rope_apply_backward");
    return halyard::rotate_heads(check, context, rope, {"dy", dy}, positions, {"dx", dx}, true);
}
