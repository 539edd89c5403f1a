// Steps of optimizers on the processor: one pass over the memory of all tensors, which are written in place.
#include "core/calls/optimizers.h"

#include <climits>

#include "core/whole_columns.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

/** Calls step(tensors) for pieces that cover the tensors, on the context's threads. The first, a gradient, is only read. */
template<int count, typename Step>
void for_each_piece(const halyard_context &context, const View *const (&views)[count], const Step &step) {
    Rows rows(true);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    const WholeColumns whole(rows, count, 1);
    Split(context, rows).run([&](const Part &part) {
        Buffer<2, float> tensors[count];
        const auto kernel = [&](const Rows::Piece &piece) {
            for (int i = 0; i < count; i++) {
                tensors[i].set(reinterpret_cast<float *>(piece.data[i]), piece.columns, piece.rows, piece.pitch[i]);
            }
            step(tensors);
        };
        rows.for_each_piece(part, INT_MAX, max_columns, [&](const Rows::Piece &piece) { whole.run(piece, kernel); });
    });
}

}  // namespace

void cpu::sgd(Checker &, const halyard_context &context, const SgdCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    if (!call.buffer.data) {
        const auto kernel = kernel_function(kernels::sgd, DType::f32, isa);
        for_each_piece(context, {&call.gradient, &call.y}, [&](const Buffer<2, float>(&t)[2]) {
            kernel({t[1], t[0], call.gradient_scale, call.decay, call.lr, t[1]});
        });
        return;
    }
    const auto kernel = kernel_function(kernels::sgd_momentum, DType::f32, isa);
    for_each_piece(context, {&call.gradient, &call.y, &call.buffer}, [&](const Buffer<2, float>(&t)[3]) {
        kernel({.parameter = t[1],
                .gradient = t[0],
                .gradient_scale = call.gradient_scale,
                .decay = call.decay,
                .lr = call.lr,
                .buffer = t[2],
                .momentum = call.momentum,
                .nesterov = call.nesterov,
                .updated0 = t[1],
                .updated1 = t[2]});
    });
}

void cpu::adamw(Checker &, const halyard_context &context, const AdamwCall &call) {
    const auto kernel = kernel_function(kernels::adamw, DType::f32, best_isa(context.max_isa));
    for_each_piece(context, {&call.gradient, &call.y, &call.first_moment, &call.second_moment},
                   [&](const Buffer<2, float>(&t)[4]) {
                       kernel({.parameter = t[1],
                               .gradient = t[0],
                               .first_moment = t[2],
                               .second_moment = t[3],
                               .gradient_scale = call.gradient_scale,
                               .coupled_decay = call.coupled_decay,
                               .decay = call.decay,
                               .rest_of_beta1 = call.rest_of_beta1,
                               .beta2 = call.beta2,
                               .rest_of_beta2 = call.rest_of_beta2,
                               .step_size = call.step_size,
                               .eps = call.eps,
                               .updated0 = t[1],
                               .updated1 = t[2],
                               .updated2 = t[3]});
                   });
}

}  // namespace halyard
