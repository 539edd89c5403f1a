// Launches of the kernel of rows, whose numbers are its arguments.
#include "cuda/ops/embedding.h"

#include <algorithm>
#include <climits>

#include "cuda/kernel_call.h"

namespace halyard::cuda {
namespace {

/** Whether the kernel's 32-bit indices reach every element of a table. */
bool kernel_reaches(const View &table) {
    const int64_t pitch = std::max<int64_t>(table.strides[0], 1);
    return table.shape[0] <= INT_MAX && table.shape[0] - 1 <= (INT_MAX - table.width()) / pitch;
}

}  // namespace

RowGather::RowGather(Launches &launches, const View &table, float multiplier, float *y)
    : launches_(launches), table_(table), multiplier_(multiplier), y_(y),
      most_(kernel_reaches(table) ? embedded_rows : 1) {}

void RowGather::add(int64_t row) {
    rows_[count_++] = row;
    if (count_ == most_) {
        finish();
    }
}

void RowGather::finish() {
    if (count_ == 0) {
        return;
    }
    // A row too far from the first one is a table of its own.
    const bool whole = most_ > 1;
    const int64_t width = table_.width(), first = whole ? 0 : rows_[0];
    Buffer<2> table;
    Buffer<2, float> y;
    table.set(table_.data + first * table_.strides[0] * size_of(table_.dtype), width, whole ? table_.shape[0] : 1,
              table_.strides[0]);
    y.set(y_, width, count_, width);
    int32_t numbers[embedded_rows];
    for (int i = 0; i < embedded_rows; i++) {
        numbers[i] = static_cast<int32_t>(i < count_ ? rows_[i] - first : 0);
    }
    launches_.run(kernels::embed_rows, table_.dtype, Access::elements, {table, multiplier_, numbers, y});
    y_ += count_ * width;
    count_ = 0;
}

}  // namespace halyard::cuda
