// Elementwise kernels on GPUs: a thread for every 16 bytes of the output, which are loaded and stored at once.
#include "schedules/gpu.h"

namespace halyard::schedules::gpu {

using namespace Halide;

void elementwise(const Elementwise &stages, bool words, const Target &target) {
    constexpr int threads = 256;
    Func y = stages.y;
    Var thread("thread"), word("word");
    // In place, no element may be computed twice: hence the guard.
    if (words) {
        y.split(stages.d, stages.d, word, words_per_cell, TailStrategy::RoundUp);
        by_cells(y, word, target);
    }
    y.split(stages.d, stages.d, thread, threads, TailStrategy::GuardWithIf)
        .gpu_blocks(stages.d, stages.t)
        .gpu_threads(thread);
}

}  // namespace halyard::schedules::gpu
