// Token embedding on a device: rows of tables by numbers in memory of the process, which are arguments of the kernel. All
// is in f32 first, and then rounded to the dtype of y.
#include <algorithm>
#include <climits>

#include "core/view.h"
#include "core/workspace.h"
#include "cuda/kernel_call.h"
#include "cuda/launch.h"
#include "cuda/ops/operations.h"
#include "layout/embed_rows.h"

namespace halyard::cuda {
namespace {

/** Whether the kernel's 32-bit indices reach every element of a table. */
bool kernel_reaches(const View &table) {
    const int64_t pitch = std::max<int64_t>(table.strides[0], 1);
    return table.shape[0] <= INT_MAX && table.shape[0] - 1 <= (INT_MAX - table.width()) / pitch;
}

/** Makes rows in f32, one after another: multiplier times the table's row of each number that is added. */
class RowGather {
public:
    RowGather(Launches &launches, const View &table, float multiplier, float *y);

    /** A number that the table has. */
    void add(int64_t row);
    /** Puts what is left into the stream. */
    void finish();

private:
    Launches &launches_;
    const View &table_;
    float multiplier_;
    float *y_;
    const int most_;  // rows of a launch
    int64_t rows_[embedded_rows];
    int count_ = 0;
};

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

}  // namespace

void embed(Checker &check, const halyard_context &context, const EmbedCall &call) {
    const View &y = call.y;
    const int64_t batch = y.shape[0], tokens = y.shape[1], width = y.width();
    Workspace workspace(context, device_of(y));
    const auto embedded_piece = workspace.book<float>(batch * tokens, width);
    const auto position_piece = workspace.book<float>(call.positions.data ? batch * tokens : 0, width);
    if (!workspace.allocate(check)) {
        return;
    }
    const auto gather = [&](const View &table, float multiplier, float *to, auto number) {
        Launches launches(check, context, y.device_id);
        RowGather rows(launches, table, multiplier, to);
        for (int64_t i = 0; i < batch; i++) {
            for (int64_t t = 0; t < tokens; t++) {
                rows.add(number(i, t));
            }
        }
        rows.finish();
        return view_like(y, to, DType::f32, width, width);
    };
    const View embedded = gather(call.tokens, call.multiplier, workspace[embedded_piece],
                                 [&](int64_t i, int64_t t) { return call.id(i, t); });
    if (call.positions.data) {
        const View positions = gather(call.positions, 1.0f, workspace[position_piece],
                                      [&](int64_t i, int64_t t) { return call.position(i, t); });
        elementwise(check, context, {halyard::kernels::add, embedded, positions, embedded});
    }
    cast(check, context, embedded, y);
}

}  // namespace halyard::cuda
