// Elementwise kernels on ARM. No processor was at hand: what is said of speed is by the model of docs/arm.md.
//
// One vector of f32 per iteration, or two where a vector of 16-bit elements holds as many, keeps the longest polynomial
// in registers, and more make no more per cycle. Functions of an instruction or two take two vectors, for the loop's sake.
#include "schedules/elementwise.h"

#include "schedules/arm/vectors.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

namespace {

const WorthCompiling choices("elementwise", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("vectors") <= target.registers;
});

}  // namespace

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &) {
    if (stages.pairs.defined()) {
        elementwise_by_pairs(stages);
        return;
    }
    arm::by_vectors(stages.y, stages.y, stages.d, params.vectors,
                    stages.any_width ? Halide::TailStrategy::GuardWithIf : Halide::TailStrategy::RoundUp);
}

}  // namespace halyard::schedules
