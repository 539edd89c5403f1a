// See column_sum.h.
#include "cpu/ops/column_sum.h"

#include <algorithm>
#include <climits>

#include "core/row_iterator.h"

namespace halyard {
namespace {

/** Calls task(first, end) for parts of `items` items, on as many threads as their bytes are worth. */
template<typename Task>
void in_tasks(const halyard_context &context, int64_t items, int64_t bytes, const Task &task) {
    const int threads = static_cast<int>(std::clamp<int64_t>(items, 1, row_threads(context, bytes)));
    run_tasks(context, threads, [&](int index) { task(items * index / threads, items * (index + 1) / threads); });
}

TypedRows part_of(const TypedRows &x, int64_t row, int64_t column) {
    return {x.row(row) + column * size_of(x.dtype), x.dtype, x.pitch};
}

}  // namespace

void RowSums::add(const TypedRows &x, int64_t rows, int64_t columns, float *sums, bool continues) {
    // Kernels count elements in 32 bits.
    const int64_t step = std::clamp<int64_t>(INT32_MAX / std::max<int64_t>(x.pitch, 1), 1, column_sum_rows);
    int64_t row = 0;
    do {
        call(part_of(x, row, 0), std::min(step, rows - row), columns, sums, 0, continues || row > 0);
        row += step;
    } while (row < rows);
}

void RowSums::blocks(const TypedRows &x, int64_t rows, int64_t columns, float *sums) {
    const int64_t at_once = INT32_MAX / std::max(column_sum_rows * std::max<int64_t>(x.pitch, 1), columns);
    const int64_t step = std::max<int64_t>(at_once, 1) * column_sum_rows;
    for (int64_t row = 0; row < rows; row += step) {
        const int64_t count = std::min(step, rows - row);
        float *const to = sums + row / column_sum_rows * columns;
        if (at_once > 0) {
            call(part_of(x, row, 0), count, columns, to, columns, false);
        } else {
            add(part_of(x, row, 0), count, columns, to, false);  // one block of rows far apart
        }
    }
}

// By ranges of columns, each in whole tiles and then the rest.
void RowSums::call(const TypedRows &x, int64_t rows, int64_t columns, float *sums, int64_t sums_pitch, bool continues) {
    const int64_t blocks = std::max<int64_t>(1, column_sum_blocks(rows));
    for (int64_t column = 0, count = 0; column < columns; column += count) {
        count = std::min<int64_t>(columns - column, column_sum_columns);
        count = count > column_sum_tile ? count / column_sum_tile * column_sum_tile : count;
        x_.set(part_of(x, 0, column).data, count, rows, x.pitch);
        sums_.set(sums + column, count, blocks, sums_pitch);
        kernel_({.x = x_, .so_far = sums_, .continues = continues, .sums = sums_});
    }
}

void add_column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &partials, int64_t blocks,
                     int64_t columns, float *sums, bool accumulate) {
    const int64_t ranges = (columns + column_sum_columns - 1) / column_sum_columns;
    in_tasks(context, ranges, blocks * columns * size_of(DType::f32), [&](int64_t range, int64_t end) {
        const int64_t column = range * column_sum_columns;
        RowSums(isa, DType::f32)
            .add(part_of(partials, 0, column), blocks, std::min(columns, end * column_sum_columns) - column,
                 sums + column, accumulate);
    });
}

void column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &x, int64_t rows, int64_t columns,
                 float *partials, float *sums, bool accumulate) {
    const int64_t blocks = column_sum_blocks(rows);
    in_tasks(context, blocks, rows * columns * size_of(x.dtype), [&](int64_t block, int64_t end) {
        const int64_t row = block * column_sum_rows;
        RowSums(isa, x.dtype)
            .blocks(part_of(x, row, 0), std::min(end * column_sum_rows, rows) - row, columns,
                    partials + block * columns);
    });
    add_column_sums(context, isa, {reinterpret_cast<char *>(partials), DType::f32, columns}, blocks, columns, sums,
                    accumulate);
}

}  // namespace halyard
