// Elementwise kernels on x86.
#include "schedules/elementwise.h"

#include "schedules/machine.h"

namespace halyard::schedules {

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target) {
    Halide::Func y = stages.y;
    const Halide::Var d = stages.d;

    // Several vectors at a time hide the latency of a polynomial's chain of multiply-adds and of the division. The
    // rest of a row is one masked step: no element is computed twice, which in-place calls rely on.
    y.vectorize(d, f32_lanes(target) * params.vectors, Halide::TailStrategy::GuardWithIf);
}

}  // namespace halyard::schedules
