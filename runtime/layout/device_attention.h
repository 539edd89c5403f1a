// How attention on a device is cut into pieces: what its kernels and the runtime agree on.
#ifndef HALYARD_RUNTIME_LAYOUT_DEVICE_ATTENTION_H
#define HALYARD_RUNTIME_LAYOUT_DEVICE_ATTENTION_H

namespace halyard {

/** Positions of keys and values that one block of threads reads; splits begin at multiples. */
constexpr int split_positions = 128;

/** Rows (query, head of the group) that read them together. */
constexpr int split_rows = 4;

/** What a split makes of a row: its features, then the largest score and the sum of the weights. */
constexpr int split_statistics = 2;

}  // namespace halyard

#endif
