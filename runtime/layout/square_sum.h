// How squares are summed: facts on which the kernel and the runtime agree.
#ifndef HALYARD_RUNTIME_LAYOUT_SQUARE_SUM_H
#define HALYARD_RUNTIME_LAYOUT_SQUARE_SUM_H

namespace halyard {

/** Sums that go side by side: element i of a chunk counts in sum i % square_sum_lanes. */
constexpr int square_sum_lanes = 32;

/** Elements of a chunk, which ends with its own sum. */
constexpr int square_sum_chunk = 8192;

}  // namespace halyard

#endif
