// Losses, gradients of embeddings, optimizers.
#include "fuzz/c_api_session.h"

namespace halyard::tests {

void Session::losses() {
    Call call(in_, tensor_memory());
    const int classes = in_.one_in(4) ? in_.in(0, 70) : 16;
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    Shape rows = leading();
    const Shape shape = rows.with(classes);
    rows = shape.rank > 1 ? rows : Shape().with(1);
    const DLTensor *targets = call.indices(rows, std::max(classes, 1));
    halyard_cross_entropy_options options{};
    options.has_ignore_index = in_.one_in(2);
    options.ignore_index = number(INT64_C(3));
    options.gradient_scale = number(0.5f);
    const halyard_cross_entropy_options *given = in_.one_in(4) ? nullptr : &options;
    if (in_.one_in(4)) {
        const DLTensor *losses = call.input(rows, type);
        double mean = 0;
        std::int64_t count = 0;
        if (call.may_be_made()) {
            call.returned("halyard_mean_loss", halyard_mean_loss(losses, targets, given, in_.rarely() ? nullptr : &mean,
                                                                 in_.one_in(2) ? nullptr : &count));
        }
        return;
    }
    const DLTensor *logits = call.input(shape, type);
    DLTensor *losses = in_.one_in(3) ? nullptr : call.output(rows, f32);
    DLTensor *dlogits = in_.one_in(3) ? nullptr : call.output(shape, type);
    if (call.may_be_made()) {
        call.returned("halyard_cross_entropy",
                      halyard_cross_entropy(context(), logits, targets, given, losses, dlogits));
    }
}

void Session::embedding_gradients() {
    Call call(in_, tensor_memory());
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16, vocabulary = in_.in(0, 12);
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape rows = leading(), shape = rows.with(width);
    const DLTensor *ids = call.indices(shape.rank > 1 ? rows : Shape().with(1), std::max(vocabulary, 1));
    const DLTensor *dy = call.input(shape, type);
    DLTensor *table = call.output(Shape().with(vocabulary).with(width), type);
    if (call.may_be_made()) {
        call.returned("halyard_embedding_backward",
                      halyard_embedding_backward(context(), ids, dy, in_.in(0, 1), table));
    }
}

void Session::optimizers() {
    Call call(in_, tensor_memory());
    const Shape shape = leading().with(in_.one_in(4) ? in_.in(0, 70) : 16);
    const auto of = [this](float usual) { return static_cast<double>(number(usual)); };
    const bool is_adamw = in_.one_in(2);
    const halyard_sgd_options sgd = {of(0.1f), in_.one_in(2) ? 0.0 : of(0.9f), of(0.01f), in_.one_in(4), of(0.5f)};
    const halyard_adamw_options adamw = {of(0.1f), of(0.9f), of(0.99f), of(1e-8f), of(0.01f), of(0.5f), in_.in(0, 1)};
    DLTensor *parameter = call.output(shape, f32);
    const DLTensor *gradient = call.input(shape, f32);
    const bool has_state = is_adamw || (sgd.momentum != 0) != in_.rarely();
    DLTensor *first = has_state ? call.output(shape, f32) : nullptr;
    DLTensor *second = is_adamw ? call.output(shape, f32) : nullptr;
    const std::int64_t step = number(INT64_C(3));
    const bool has_options = !in_.rarely();
    if (!call.may_be_made()) {
        return;
    }
    if (is_adamw) {
        call.returned("halyard_adamw_step", halyard_adamw_step(context(), parameter, gradient, first, second, step,
                                                               has_options ? &adamw : nullptr));
    } else {
        call.returned("halyard_sgd_step",
                      halyard_sgd_step(context(), parameter, gradient, first, has_options ? &sgd : nullptr));
    }
}

void Session::gradient_norm() {
    Call call(in_, tensor_memory());
    const DLTensor *gradients[4] = {};
    const std::int64_t count = in_.in(0, 4);
    for (std::int64_t i = 0; i < count; i++) {
        gradients[i] = call.input(leading().with(in_.in(0, 40)), f32);
    }
    const std::int64_t given = in_.rarely() ? in_.of({INT64_C(-1), INT64_MIN}) : count;
    if (!call.may_be_made()) {
        return;
    }
    double norm = -1;
    const halyard_status status =
        halyard_gradient_norm(context(), in_.rarely() ? nullptr : gradients, given, in_.rarely() ? nullptr : &norm);
    call.returned("halyard_gradient_norm", status);
    if (status != HALYARD_OK && norm != -1) {
        failed("halyard_gradient_norm failed and wrote its result");
    }
}

}  // namespace halyard::tests
