// Token embedding on the processor, and the conversion of parameter vectors.
#include <algorithm>

#include "core/cast.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/linear/gemm_plan.h"
#include "cpu/ops/add_rows.h"

namespace halyard {
namespace {

void widen_row(halyard_isa isa, const View &table, int64_t row, float *to) {
    widen(isa, {table.data + row * table.strides[0] * size_of(table.dtype), table.dtype}, to, 0, table.width(), 1);
}

/** The numbers of one row of a table in codes. */
void decode_row(Checker &check, const halyard_context &context, const CodeSource &table, int64_t row, float *to,
                int64_t width) {
    CodeSource codes = table;
    codes.codes.data = table.codes.data + row * table.codes.output_pitch;
    cpu::dequantize(check, context, {codes, view_of(to, DType::f32, {}, {1, width}, {width, 1})});
}

}  // namespace

void cpu::embed(Checker &check, const halyard_context &context, const EmbedCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const View &y = call.y;  // f32
    const int64_t tokens = y.shape[1], width = y.width(), rows = y.shape[0] * tokens;
    const int threads = static_cast<int>(
        std::min<int64_t>(threads_for(context, rows * width * static_cast<int64_t>(sizeof(float))), rows));
    Workspace workspace(context, {});
    const auto position_rows = workspace.book<float>(call.positions.data ? threads : 0, width);
    if (!workspace.allocate(check)) {
        return;
    }
    const AddRows add(isa, DType::f32);
    run_tasks(context, threads, [&](int index) {
        for (int64_t row = rows * index / threads; row < rows * (index + 1) / threads; row++) {
            const int64_t i = row / tokens, t = row % tokens;
            float *const to = reinterpret_cast<float *>(y.data) + i * y.strides[0] + t * y.strides[1];
            if (call.codes.format) {
                decode_row(check, context, call.codes, call.id(i, t), to, width);
            } else {
                widen_row(isa, call.tokens, call.id(i, t), to);
            }
            for (int64_t k = 0; k < width && call.multiplier != 1.0f; k++) {
                to[k] *= call.multiplier;
            }
            if (call.positions.data) {
                float *const position_row = workspace[position_rows] + index * width;
                widen_row(isa, call.positions, call.position(i, t), position_row);
                const TypedRows sum = {reinterpret_cast<char *>(to), DType::f32};
                add(sum, {reinterpret_cast<char *>(position_row), DType::f32}, sum, width, 1);
            }
        }
    });
}

void cpu::convert_vectors(Checker &, const halyard_context &context, int, const ParamSource *sources, int count) {
    const halyard_isa isa = best_isa(context.max_isa);
    for (int i = 0; i < count; i++) {
        const ParamSource &source = sources[i];
        float *to = reinterpret_cast<float *>(source.target->data);
        for (int p = 0; p < source.parts && source.present(); p++) {
            if (source.part[p].data) {
                widen(isa, {source.part[p].data, source.part[p].dtype}, to, 0, source.width[p], 1);
            } else {
                std::fill_n(to, source.width[p], -0.0f);
            }
            to += source.width[p];
        }
    }
}

}  // namespace halyard
