// The gradient of a token embedding's table on the processor. Threads take columns, and go through all ids in their order: no sum
// depends on who adds it, and nothing needs memory.
#include <algorithm>

#include "cpu/backend.h"
#include "cpu/ops/add_rows.h"

namespace halyard {
namespace {

// The least columns of a thread, so that two threads seldom write to one cache line.
constexpr int64_t least_columns = 64;

float *embedding_row(const View &view, int64_t row) {
    int64_t offset = 0;
    for (int axis = view.rank - 2; axis >= 0; axis--) {
        offset += row % view.shape[axis] * view.strides[axis];
        row /= view.shape[axis];
    }
    return reinterpret_cast<float *>(view.data) + offset;
}

void add_columns(halyard_isa isa, const EmbedBackwardCall &call, int64_t first, int64_t count) {
    for (int64_t row = 0; row < call.y.shape[0] && !call.accumulate; row++) {
        std::fill_n(embedding_row(call.y, row) + first, count, 0.0f);
    }
    const AddRows add(isa, DType::f32);
    const auto columns_of = [first](const View &view, int64_t row) -> TypedRows {
        return {reinterpret_cast<char *>(embedding_row(view, row) + first), DType::f32};
    };
    const int64_t ids = call.ids.count();
    for (int64_t i = 0; i < ids; i++) {
        const TypedRows sum = columns_of(call.y, call.ids.in_order(i));
        add(sum, columns_of(call.dy, i), sum, count, 1);
    }
}

}  // namespace

void cpu::embed_backward(Checker &, const halyard_context &context, const EmbedBackwardCall &call) {
    const int64_t width = call.y.width(), parts = (width + least_columns - 1) / least_columns;
    const int64_t rows = 3 * call.ids.count() + (call.accumulate ? 0 : call.y.shape[0]);  // read or written
    const auto threads = static_cast<int>(
        std::min<int64_t>(parts, row_threads(context, rows * width * static_cast<int64_t>(sizeof(float)))));
    run_tasks(context, threads, [&](int index) {
        const int64_t first = parts * index / threads * least_columns;
        const int64_t end = std::min(width, parts * (index + 1) / threads * least_columns);
        add_columns(best_isa(context.max_isa), call, first, end - first);
    });
}

}  // namespace halyard
