// See column_sum.h.
#include "cpu/ops/column_sum.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "core/kernel_call.h"
#include "cpu/linear/gemm_plan.h"

namespace halyard {
namespace {

/** The kernel for rows of a dtype. One per task, as it holds the buffers. */
class RowSums {
public:
    RowSums(halyard_isa isa, DType dtype) : kernel_(kernel_function(kernels::column_sum, dtype, isa)) {}

    /** sums(column, block) of rows in blocks, sums_pitch from one block to the next. */
    void blocks(const TypedRows &x, int64_t rows, int64_t columns, float *sums, int64_t sums_pitch) {
        // Kernels count elements in 32 bits.
        const int64_t at_once = INT32_MAX / std::max(column_sum_rows * std::max<int64_t>(x.pitch, 1), sums_pitch);
        const int64_t step = std::max<int64_t>(at_once, 1) * column_sum_rows;
        for (int64_t row = 0; row < rows; row += step) {
            const TypedRows from = {x.row(row), x.dtype, x.pitch};
            float *const to = sums + row / column_sum_rows * sums_pitch;
            if (at_once > 0) {
                call(from, std::min(step, rows - row), columns, to, sums_pitch, false);
            } else {
                add(from, std::min(step, rows - row), columns, to, false);  // one block of rows far apart
            }
        }
    }

    /** The sums of any number of rows without blocks, from those that are there if they are to be continued. */
    void add(const TypedRows &x, int64_t rows, int64_t columns, float *sums, bool continues) {
        const int64_t step = std::clamp<int64_t>(INT32_MAX / std::max<int64_t>(x.pitch, 1), 1, column_sum_rows);
        int64_t row = 0;
        do {
            const TypedRows from = {x.row(row), x.dtype, x.pitch};
            call(from, std::min(step, rows - row), columns, sums, 0, continues || row > 0);
            row += step;
        } while (row < rows);
    }

private:
    // At most column_sum_columns columns: whole tiles, then the rest.
    void call(const TypedRows &x, int64_t rows, int64_t columns, float *sums, int64_t sums_pitch, bool continues) {
        const int64_t blocks = std::max<int64_t>(1, (rows + column_sum_rows - 1) / column_sum_rows);
        const int64_t whole = columns / column_sum_tile * column_sum_tile;
        for (const auto &[first, count] : {std::pair{int64_t{0}, whole}, std::pair{whole, columns - whole}}) {
            if (count > 0) {
                x_.set(x.data + first * size_of(x.dtype), count, rows, x.pitch);
                sums_.set(sums + first, count, blocks, sums_pitch);
                kernel_({.x = x_, .so_far = sums_, .continues = continues, .sums = sums_});
            }
        }
    }

    const KernelCall<arguments::ColumnSum> kernel_;
    Buffer<2> x_;
    Buffer<2, float> sums_;
};

}  // namespace

void column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &x, int64_t rows, int64_t columns,
                 float *partials, float *sums, bool accumulate) {
    const int64_t blocks = (rows + column_sum_rows - 1) / column_sum_rows;
    const int64_t ranges = (columns + column_sum_columns - 1) / column_sum_columns;
    const auto in_tasks = [&](int64_t items, int64_t bytes, const auto &task) {
        const int threads = static_cast<int>(std::clamp<int64_t>(items, 1, threads_for(context, bytes)));
        run_tasks(context, threads, [&](int index) { task(items * index / threads, items * (index + 1) / threads); });
    };
    const auto columns_of = [&](int64_t range) {
        return std::min<int64_t>(column_sum_columns, columns - range * column_sum_columns);
    };

    in_tasks(ranges * blocks, rows * columns * size_of(x.dtype), [&](int64_t item, int64_t end) {
        RowSums row_sums(isa, x.dtype);
        while (item < end) {
            const int64_t range = item / blocks, block = item % blocks, column = range * column_sum_columns;
            const int64_t count = std::min(blocks - block, end - item), row = block * column_sum_rows;
            const TypedRows from = {x.row(row) + column * size_of(x.dtype), x.dtype, x.pitch};
            row_sums.blocks(from, std::min(count * column_sum_rows, rows - row), columns_of(range),
                            partials + block * columns + column, columns);
            item += count;
        }
    });
    in_tasks(ranges, blocks * columns * size_of(DType::f32), [&](int64_t range, int64_t end) {
        RowSums block_sums(isa, DType::f32);
        for (; range < end; range++) {
            const int64_t column = range * column_sum_columns;
            const TypedRows from = {reinterpret_cast<char *>(partials + column), DType::f32, columns};
            block_sums.add(from, blocks, columns_of(range), sums + column, accumulate);
        }
    });
}

}  // namespace halyard
