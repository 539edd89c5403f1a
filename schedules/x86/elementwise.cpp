// Elementwise kernels on x86.
//
// Reached, of a copy that moves the same bytes (halyard-bench, 2 threads of a Zen 3 EPYC, AVX2, f32, 64 x 4096 in cache,
// 2026-11-21): ReLU 105 %, SwiGLU 51 %, SiLU 32 %, GELU 17 %. The latter three are bound by their multiply-adds and
// division, at 0.37 to 0.6 ns an element and thread. The same on 2 threads of a Xeon with AVX-512: ReLU 95 %, SwiGLU 50 %,
// SiLU 41 %, GELU 26 %, at 0.22 to 0.35 ns.
#include "schedules/elementwise.h"

#include "schedules/machine.h"
#include "schedules/space.h"

namespace halyard::schedules {
namespace {

// A vector in flight needs a register for its argument and one for what is made of it. With 8 and more many functions keep
// vectors on the stack; what won so in the tuner on Zen 5 was not always faster in the library (docs/tuning.md).
const Space space("elementwise", {{"vectors", 2, {1, 2, 3, 4, 6}}},
                  [](const Choice &choice, const Circumstances &c) { return 2 * choice.at("vectors") <= c.registers; });

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
        // Vector by vector: only the last one, if it is not whole, is masked, which in 16 bits means element by element. (SiLU
        // of 64 elements in chunks of 48, AVX2: 390 instructions, 828 as one masked chunk.) In a branch, so that rows without
        // a rest do not pay for its preparations.
        y.update(1)
            .specialize(stages.rest.x.extent() > 0)
            .vectorize(stages.rest.x, std::min(elements_per_chunk(params, target), 2 * f32_lanes(target)),
                       Halide::TailStrategy::GuardWithIf);
        return;
    }

    // Several vectors at a time (4 on AVX2: GELU in f32 takes 0.56 ns an element against 0.71 with one, SiLU in bf16 0.51
    // against 0.66) hide the latency of a polynomial's chain of multiply-adds and of the division. The
    // rest of a row is one masked step: no element is computed twice, which in-place calls rely on.
    y.vectorize(d, f32_lanes(target) * params.vectors, Halide::TailStrategy::GuardWithIf);
}

}  // namespace halyard::schedules
