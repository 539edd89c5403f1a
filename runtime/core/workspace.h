// Scratch memory where the tensors of a call are.
#ifndef HALYARD_RUNTIME_CORE_WORKSPACE_H
#define HALYARD_RUNTIME_CORE_WORKSPACE_H

#include "core/context.h"
#include "core/device.h"
#include "cuda/launch.h"
#include "cuda/scratch.h"

namespace halyard {

/** Calls work(memory) with pieces of these sizes, which are its own as long as that runs: memory[i] is where piece i
 * is, null where it has no bytes. Fails `check` where there is no memory for so many tokens. */
template<int count, typename Work>
void with_scratch(Checker &check, const halyard_context &context, Place place, int64_t tokens,
                  const int64_t (&bytes)[count], const Work &work) {
    char *memory[count];
    int64_t total = 0;
    if constexpr (has_cuda) {
        if (place.on_cuda) {
            for (const int64_t piece : bytes) {
                total += cuda::DeviceScratch::piece_bytes(piece);
            }
            cuda::Launches launches(check, context, place.device_id);
            cuda::DeviceScratch scratch(launches, total);
            for (int i = 0; i < count && !check.failed(); i++) {
                memory[i] = scratch.take(bytes[i]);
            }
            if (!check.failed()) {
                work(memory);
            }
            return;
        }
    }
    for (const int64_t piece : bytes) {
        total += Scratch::piece_bytes(piece);
    }
    Scratch scratch(context.scratch, total);
    if (scratch.failed()) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld tokens", static_cast<long long>(tokens));
        return;
    }
    for (int i = 0; i < count; i++) {
        char *const piece = scratch.take<char>(bytes[i]);
        memory[i] = bytes[i] > 0 ? piece : nullptr;
    }
    work(memory);
}

}  // namespace halyard

#endif
