// Elementwise kernels on x86. Most are bound by their multiply-adds and division (docs/results/kernel-notes.md).
#include "schedules/elementwise.h"

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {
namespace {

// A vector in flight needs a register for its argument and one for what is made of it. With 8 and more many functions keep
// vectors on the stack; what won so in the tuner on Zen 5 was not always faster in the library (docs/tuning.md).
const WorthCompiling choices("elementwise", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("vectors") <= target.registers;
});

}  // namespace

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target,
                 const Halide::Pipeline &) {
    Halide::Func y = stages.y;
    const Halide::Var d = stages.d;

    if (stages.pairs.defined()) {
        // A vector of words stays in registers from its loads to its one store. No two iterations store the same element,
        // which Halide cannot see.
        Halide::Func pairs = stages.pairs;
        const Halide::RDom &whole = stages.whole;
        pairs.compute_at(y, whole.z).vectorize(d).store_in(Halide::MemoryType::Register);
        y.update(0).allow_race_conditions().unroll(whole.x).vectorize(whole.y);
        // Vector by vector: only the last one, if it is not whole, is masked, which in 16 bits means element by element. In a
        // branch, so that rows without a rest do not pay for its preparations.
        y.update(1)
            .specialize(stages.rest.x.extent() > 0)
            .vectorize(stages.rest.x, std::min(elements_per_chunk(params, target), 2 * f32_lanes(target)),
                       Halide::TailStrategy::GuardWithIf);
        return;
    }

    // Several vectors at a time hide the latency of a polynomial's chain of multiply-adds and of the division. The rest of a
    // row is one masked step: no element is computed twice, which in-place calls rely on.
    y.vectorize(d, f32_lanes(target) * params.vectors, Halide::TailStrategy::GuardWithIf);
}

}  // namespace halyard::schedules
