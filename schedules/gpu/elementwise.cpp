// Elementwise kernels on GPUs: a thread for every 16 bytes of the output, which are loaded and stored at once.
#include "schedules/gpu.h"

namespace halyard::schedules::gpu {

using namespace Halide;

void elementwise(const Elementwise &stages, bool packed, const Target &target) {
    constexpr int threads = 256;
    Func y = stages.y;
    Var thread("thread"), word("word");
    // In place, no element may be computed twice: hence the guard.
    if (packed) {
        y.split(stages.d, stages.d, word, words_per_vector, TailStrategy::RoundUp);
        by_one_access(y, word, target);
    }
    y.split(stages.d, stages.d, thread, threads, TailStrategy::GuardWithIf)
        .gpu_blocks(stages.d, stages.t)
        .gpu_threads(thread);
}

}  // namespace halyard::schedules::gpu
