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

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target,
                 const Halide::Pipeline &pipeline) {
    if (stages.pairs.defined()) {
        elementwise_by_pairs(stages, params, target);
        return;
    }
    if (stages.once) {
        // LLVM moves what the rest of a short row reads behind the stores, where several outputs take the place of inputs.
        arm::by_vectors(stages.y, stages.y, stages.d, params.vectors);
        return;
    }
    arm::by_overlapping_vectors(stages.y, stages.d, params.vectors, pipeline);
}

}  // namespace halyard::schedules
