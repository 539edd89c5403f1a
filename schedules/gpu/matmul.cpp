// Matrix products on GPUs: a block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them in registers
// over 16 inputs at a time, which the block holds in shared memory as f32; their sums over all inputs are there too. A
// sum is read and written once for 16 multiply-adds, and an element of x or w in shared memory serves four.
#include "schedules/gpu_matmul.h"

namespace halyard::schedules::gpu {

using namespace Halide;

void product(const Product &stages) {
    constexpr int tile = 64, threads = 16, each = tile / threads;
    // Elements between the inputs in shared memory, so that threads that store one column's inputs meet few others in a
    // bank.
    constexpr int pitch = tile + 4;
    const Var column = stages.column, row = stages.row, batch = stages.batch, input = stages.input;
    const Var thread_x("thread_x"), thread_y("thread_y"), x("x"), y("y");

    // In place, no element may be computed twice: hence the guard.
    Func result = stages.y;
    result.split(column, column, x, tile, TailStrategy::GuardWithIf)
        .split(x, x, thread_x, threads)
        .split(row, row, y, tile, TailStrategy::GuardWithIf)
        .split(y, y, thread_y, threads)
        .reorder(x, y, thread_x, thread_y, column, row, batch)
        .unroll(x)
        .unroll(y)
        .gpu_blocks(column, row, batch)
        .gpu_threads(thread_x, thread_y);

    const auto per_block = [&](Func f) { return f.compute_at(result, column).store_in(MemoryType::GPUShared); };
    const auto over_threads = [&](Stage stage) {
        stage.split(column, thread_x, x, each)
            .split(row, thread_y, y, each)
            .unroll(x)
            .unroll(y)
            .gpu_threads(thread_x, thread_y);
    };
    Func sum = stages.sum;
    per_block(sum).bound_extent(column, tile).bound_extent(row, tile).bound_extent(batch, 1);
    over_threads(sum);
    sum.reorder(x, y, thread_x, thread_y, batch);
    const RVar block = sum.rvars()[0];
    over_threads(sum.update());
    sum.update().reorder(x, y, thread_x, thread_y, batch, block);

    Func partial = stages.partial;
    partial.compute_at(sum, thread_x).store_in(MemoryType::Stack).unroll(column).unroll(row);
    const RVar in_block = partial.rvars()[0];
    partial.update().reorder(column, row, in_block).unroll(column).unroll(row).unroll(in_block, each);

    const auto staged = [&](Func f, const Var &other) {
        f.compute_at(sum, block)
            .store_in(MemoryType::GPUShared)
            .bound_extent(input, product_block)
            .bound_extent(other, tile)
            .reorder_storage(other, input, batch)
            .align_storage(other, pitch);
    };
    // Neighbouring threads load neighbouring elements of a row.
    staged(stages.x_block, row);
    Func(stages.x_block)
        .split(row, y, thread_y, threads)
        .reorder(y, input, thread_y, batch)
        .unroll(y)
        .gpu_threads(input, thread_y);
    staged(stages.w_block, column);
    Func w_block = stages.w_block;
    w_block.split(column, x, thread_x, threads).unroll(x);
    if (stages.transposed) {
        w_block.reorder(x, input, thread_x, batch).gpu_threads(input, thread_x);
    } else {
        w_block.reorder(x, thread_x, input, batch).gpu_threads(thread_x, input);
    }
}

}  // namespace halyard::schedules::gpu
