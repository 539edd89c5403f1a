// Non-temporal copies on ARM.
#include "cpu/ops/streaming.h"

namespace halyard {
namespace {

void copy_lines(char *destination, const char *source, int64_t lines, const char *next) {
    static_assert(streamed_line == 64, "four vectors");
    for (int64_t line = 0; line < lines; line++, source += streamed_line, destination += streamed_line) {
        prefetch_line(next, line * streamed_line);
        asm volatile("ldp q0, q1, [%0]\n\t"
                     "ldp q2, q3, [%0, #32]\n\t"
                     "stnp q0, q1, [%1]\n\t"
                     "stnp q2, q3, [%1, #32]"
                     :
                     : "r"(source), "r"(destination)
                     : "v0", "v1", "v2", "v3", "memory");
    }
}

}  // namespace

// Cores from the Cortex-A53 on see that whole lines are written one after the other and stop reading them first, without
// being told. Whether telling them gains anything is to be measured on one.
const bool outputs_stream = false;

StreamCopy stream_copy(halyard_isa) {
    return copy_whole_lines<copy_lines>;
}

void stream_fence() {
    // Such stores are ordered like any others by the release with which a thread ends its task.
}

}  // namespace halyard
