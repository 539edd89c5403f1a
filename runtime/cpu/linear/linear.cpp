// Linear layers on the processor: blocks of rows, and the copy of x that the kernels read.
#include <climits>

#include "core/calls/row_vector.h"
#include "core/check_shapes.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/linear/gemm.h"

namespace halyard {

void cpu::linear(Checker &check, const halyard_context &context, const LinearCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), features = call.x.width(), block = std::min(rows, block_rows(rows));

    Layer layer(call.weights, call.activation, call.beta);
    const LayerGemm gemm(context, isa, rows, layer);
    const bool has_bias = call.bias.data || call.bias_up.data;
    const DType multiplied = call.rounded ? DType::bf16 : call.x.dtype;
    const XGroups groups = XGroups::of(*call.weights);
    const int64_t copy_bytes = x_bytes(context, isa, multiplied, *call.weights, block);
    const bool own_copies = copy_bytes <= own_copy_bytes;
    Workspace workspace(context, device_of(call.x));
    const auto x_copy = workspace.book(own_copies ? gemm.threads() : 1, copy_bytes);
    const auto bias_copy = workspace.book<float>(has_bias ? layer.bias_floats() : 0);
    const auto scales = workspace.book<float>(call.row_scale.data ? block : 0);
    const auto means = workspace.book<float>(call.row_mean.data ? block : 0);
    const auto of_threads = workspace.book(gemm.scratch_bytes());
    if (!workspace.allocate(check)) {
        return;
    }
    float *const scale = workspace[scales], *const mean = workspace[means];
    if (has_bias) {
        layer.set_bias(call.bias, call.bias_up, isa, workspace[bias_copy]);
    }

    Rows x(false), y(false);
    x.add(call.x);
    x.merge();
    y.add(call.y);
    if (call.residual.data) {
        y.add(call.residual);
    }
    y.merge();
    const Rows sums = rows_of_sums(call.sums, call.sums_up);
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const XForm form = form_of_x(context, isa, multiplied, *call.weights);
        const Tiling tiling(isa, form, count);
        const BlockedRows blocked = {workspace[x_copy], tiling.rows(), form, call.rounded, groups};
        const SourceRows source = {x, call.x.dtype, row};
        if (!own_copies) {
            load_rows(context, isa, source, count, features, blocked);
        }
        if (scale) {
            gather(call.row_scale, row, count, scale);
        }
        if (mean) {
            gather(call.row_mean, row, count, mean);
        }
        OutputView destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = call.residual.data != nullptr;
        destination.first_row = row;
        destination.sums = call.sums.data ? &sums : nullptr;
        gemm.run({blocked, own_copies ? &source : nullptr, copy_bytes}, tiling, count, scale, mean, destination,
                 workspace[of_threads]);
    }
}

}  // namespace halyard
