// Elementwise kernels on ARM. No processor was at hand: what is said of speed is by the model of docs/arm.md.
//
// One vector of f32 per iteration, or two where a vector of 16-bit elements holds as many, keeps the longest polynomial
// in registers (two vectors of GELU go to the stack), and the next iterations of an out-of-order core fill the ports:
// two and four vectors make no more per cycle (Neoverse N1, per vector: SiLU 16.5, 16, 16.7, 19.2 cycles with one to
// four, GELU 28, 27.5, 30, 27.7). Functions of an instruction or two take two vectors, for the loop's sake.
#include "schedules/elementwise.h"

#include "schedules/arm/vectors.h"
#include "schedules/space.h"

namespace halyard::schedules {

namespace {

const Space space("elementwise", {{"vectors", 2, {1, 2, 3, 4, 8}}},
                  [](const Choice &choice, const Circumstances &c) { return 2 * choice.at("vectors") <= c.registers; });

}  // namespace

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &,
                 const Halide::Pipeline &pipeline) {
    arm::by_overlapping_vectors(stages.y, stages.d, params.vectors, pipeline);
}

}  // namespace halyard::schedules
