// Linear layers on the processor: blocks of rows, and the copy of x that the kernels read.
#include <climits>

#include "core/check_shapes.h"
#include "core/row_vector.h"
#include "cpu/backend.h"
#include "cpu/linear/gemm.h"

namespace halyard {

void cpu::linear(Checker &check, const halyard_context &context, const LinearCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), features = call.x.width(), block = std::min(rows, block_rows());

    Layer layer(call.weights, call.activation, call.beta);
    const Product product(context, isa, rows, layer);
    const bool has_bias = call.bias.data || call.bias_up.data;
    const int64_t x_floats = BlockedRows::floats(Tiling::max_rows(block), features);
    const int64_t bias_floats = has_bias ? layer.bias_floats() : 0;
    constexpr int64_t size = sizeof(float);
    Scratch scratch(context.scratch, Scratch::piece_bytes(x_floats * size) + Scratch::piece_bytes(bias_floats * size) +
                                         2 * Scratch::piece_bytes(block * size) +
                                         Scratch::piece_bytes(product.scratch_bytes()));
    if (scratch.failed()) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a block of %lld rows of x", static_cast<long long>(block));
        return;
    }
    float *const x_memory = scratch.take<float>(x_floats);
    float *const bias_memory = scratch.take<float>(bias_floats);
    float *const scale = scratch.take<float>(block), *const mean = scratch.take<float>(block);
    char *const product_memory = scratch.take<char>(product.scratch_bytes());
    if (has_bias) {
        layer.set_bias(call.bias, call.bias_up, isa, bias_memory);
    }

    Rows x(false), y(false);
    x.add(call.x);
    x.merge();
    y.add(call.y);
    if (call.residual.data) {
        y.add(call.residual);
    }
    y.merge();
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const Tiling tiling(isa, count);
        const BlockedRows blocked = {x_memory, tiling.rows()};
        load_rows(context, isa, x, call.x.dtype, row, count, features, blocked);
        if (call.row_scale.data) {
            gather(call.row_scale, row, count, scale);
        }
        if (call.row_mean.data) {
            gather(call.row_mean, row, count, mean);
        }
        Destination destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = call.residual.data != nullptr;
        destination.first_row = row;
        product.run(blocked, tiling, count, call.row_scale.data ? scale : nullptr, call.row_mean.data ? mean : nullptr,
                    destination, product_memory);
    }
}

}  // namespace halyard
