// Which form of right operand a layer's weights have in a GEMM, and what memory that takes.
#include "cpu/linear/gemm.h"

#include "cpu/linear/gemm_loop.h"

namespace halyard {
namespace {

/** The most that a form of these weights takes of a worker's scratch memory, and the epilogue after it. */
int64_t scratch_floats(const halyard_weights &weights, int64_t rows) {
    if (weights.codes) {
        return WidenedCodes::scratch_floats;
    }
    return weights.dtype == DType::f32 ? 0
                                       : std::max(WidenedPanels::scratch_floats, EpilogueCall::scratch_floats(rows));
}

/** Whether codes are widened for products with these tiles of rows in f32. */
bool widens_codes(halyard_isa isa, const Tiling &tiling) {
    return tiling.tiles >= parameters.gemm_widen_tiles &&
           tile_kernels().width(isa, TileKind::codes32, DType::f32, tiling.tile_rows) > 0;
}

}  // namespace

LayerGemm::LayerGemm(const halyard_context &context, halyard_isa isa, int64_t max_rows, const Layer &layer)
    : context_(context), layer_(layer), isa_(isa) {
    const int64_t rows = Tiling::max_rows(std::min(max_rows, block_rows(max_rows)));
    // Codes take as long as bf16.
    const halyard_weights &weights = *layer.weights;
    const int64_t panel_bytes = weights.codes ? input_bytes(weights.in_features, DType::bf16) : weights.panel_bytes();
    const int64_t bytes = weights.panels * panel_bytes;
    threads_ = threads_for(context, bytes * ((rows + max_tile_rows - 1) / max_tile_rows));
    thread_bytes_ = WorkerMemory::bytes(rows, scratch_floats(weights, rows));
}

void LayerGemm::run(const LeftOperand &x, const Tiling &tiling, int64_t rows, const float *row_scale,
                    const float *row_mean, const OutputView &y, char *scratch) const {
    const halyard_weights &weights = *layer_.weights;
    const EpilogueCall epilogue = layer_.bound_to(row_scale, row_mean, y);
    const XForm form = x.blocked.form;
    if (weights.codes && form == XForm::int8) {
        run(PackedCodes<XForm::int8>(weights), x, tiling, rows, epilogue, scratch);
    } else if (weights.codes && form == XForm::pairs) {
        run(PackedCodes<XForm::pairs>(weights), x, tiling, rows, epilogue, scratch);
    } else if (weights.codes && widens_codes(isa_, tiling)) {
        run(WidenedCodes(weights), x, tiling, rows, epilogue, scratch);
    } else if (weights.codes) {
        run(PackedCodes<XForm::f32>(weights), x, tiling, rows, epilogue, scratch);
    } else if (form == XForm::pairs) {
        run(PackedPairs(panels_of(weights)), x, tiling, rows, epilogue, scratch);
    } else if (weights.dtype != DType::f32 && tiling.tiles >= parameters.gemm_widen_tiles) {
        run(WidenedPanels(panels_of(weights)), x, tiling, rows, epilogue, scratch);
    } else {
        run(PackedPanels(panels_of(weights)), x, tiling, rows, epilogue, scratch);
    }
}

template<typename Right>
void LayerGemm::run(const Right &right, const LeftOperand &x, const Tiling &tiling, int64_t rows,
                    const EpilogueCall &epilogue, char *scratch) const {
    const RightShape shape = right.shape();
    const int64_t x_bytes = BlockedRows::bytes(x.blocked.form, x.blocked.rows, shape.inputs, x.blocked.groups);
    const GemmPlan plan = plan_gemm(isa_, shape, tiling, rows, x_bytes, threads_);
    run_gemm(context_, plan, right, x, StartingSums(), epilogue, scratch, thread_bytes_);
}

}  // namespace halyard
