// Launches of the kernel of rows, whose numbers are its arguments.
#include "cuda/ops/embedding.h"

#include <algorithm>
#include <climits>

#include "cuda/buffer.h"

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
    DeviceBufferOf<2> table, y;
    table.set_data(table_.data + first * table_.strides[0] * size_of(table_.dtype));
    table.set_dim(0, width, 1);
    table.set_dim(1, whole ? table_.shape[0] : 1, whole ? table_.strides[0] : 0);
    y.set_data(y_);
    y.set_dim(0, width, 1);
    y.set_dim(1, count_, width);
    int32_t numbers[embedded_rows];
    void *arguments[2 + 1 + embedded_rows + 1];
    int n = 1;
    arguments[n++] = table.argument();
    arguments[n++] = &multiplier_;
    for (int i = 0; i < embedded_rows; i++) {
        numbers[i] = static_cast<int32_t>(i < count_ ? rows_[i] - first : 0);
        arguments[n++] = &numbers[i];
    }
    arguments[n++] = y.argument();
    launches_.run(Kernel::embed_rows, table_.dtype, Access::elements, arguments);
    y_ += count_ * width;
    count_ = 0;
}

}  // namespace halyard::cuda
