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

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target) {
    if (stages.pairs.defined()) {
        elementwise_by_pairs(stages);
        return;
    }
    using Halide::TailStrategy;
    // Several vectors at a time hide the latency of a polynomial's chain of multiply-adds and of the division.
    Halide::Func(stages.y).vectorize(stages.d, f32_lanes(target) * params.vectors,
                                     stages.any_width ? TailStrategy::GuardWithIf : TailStrategy::RoundUp);
}

}  // namespace halyard::schedules
