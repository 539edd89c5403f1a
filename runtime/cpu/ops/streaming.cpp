// The size from which non-temporal stores pay. The copies are the processor's business: streaming.cpp in its folder.
#include "cpu/ops/streaming.h"

#include "core/system/caches.h"

namespace halyard {

bool should_stream(const halyard_context &context, int64_t bytes_moved, bool streams) {
    if (context.streaming_min_bytes >= 0) {
        return bytes_moved >= context.streaming_min_bytes;
    }
    // Calls below this size are many and short: they do not even ask.
    constexpr int64_t smallest = 1 << 20;
    // From three quarters of the cache on, a second call finds too little of the first one's tensors there.
    return streams && bytes_moved >= smallest && bytes_moved >= last_level_cache() / 4 * 3;
}

}  // namespace halyard
