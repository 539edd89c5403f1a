// One block of a GEMM of rows in 8 bits with quantized weights: sum(row, column) = so far, and then
//
//     + scale(column) x_scale(row) (the sum of x(input, row) c(input, column) over a unit)     for each unit in order
//     + offset(column) x_sum(row)                                                              for each group in order
//
// where c is a code less its center (runtime/layout/codes.h) and a unit lies in a group. The sum over a unit is a whole number below
// 2^24, so it is exact in any order; the product of both scales is rounded, and one fused multiply-add takes either line to the
// sum. So the bits depend on the group, and not on the shape of the call or on how the instruction set multiplies.
#include "Halide.h"

#include "codes.h"
#include "fma.h"
#include "matmul_bounds.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/matmul.h"

namespace halyard {
namespace {

using namespace Halide;

class MatmulInt8 : public Generator<MatmulInt8> {
public:
    KernelTensors tensors;                                 // dtype: of the scales
    GeneratorParam<int> rows{"rows", max_int8_tile_rows};  // of x in a tile
    GeneratorParam<int> bits{"bits", 8};                   // of a code
    schedules::MatmulParams params;
    Input<Buffer<int8_t, 3>> x{"x"};                       // x(input, row, tile), 0 to the end of the last unit
    Input<Buffer<float, 3>> x_scales{"x_scales"};          // x_scales(unit, row, tile)
    Input<Buffer<int32_t, 3>> corrections{"corrections"};  // -center times the sum of x over the unit
    Input<Buffer<float, 3>> x_sums{"x_sums"};  // x_sums(group, row, tile); no groups where there are no offsets
    Input<Buffer<uint8_t, 4>> w{"w"};          // w(byte, column, word, panel)
    Input<int> words{"words"};                 // of codes: the last one is read in place of those beyond it
    Input<int> center{"center"};               // of codes
    Input<int> unit_words{"unit_words"};       // of a unit
    Input<int> group_units{"group_units"};     // of a group
    Input<Buffer<void, 4>> scales{"scales"};   // scales(column, vector, group, panel)
    Input<Buffer<float, 4>> so_far{"so_far"};  // as sum; may be sum
    Input<bool> first{"first"};                // there is nothing so far
    Input<Buffer<uint8_t, 2>> next{"next"};    // next(byte, panel): the weights to prefetch meanwhile
    Input<int> next_step{"next_step"};         // bytes of them for a word
    Output<Buffer<float, 4>> sum{"sum"};       // sum(column, panel, row, tile)

    void configure() { tensors.configure(*this, scales); }

    void generate() {
        const Expr units = x_scales.dim(0).extent();
        const RDom unit(0, units, "unit"), group(0, x_sums.dim(0).extent(), "group"),
            in({{0, 4}, {0, bits == 4 ? 2 : 1}, {0, unit_words}}, "in");
        const Expr byte = in.x, half = in.y, word = u * unit_words + in.z;

        prefetch(panel, i, tile) = schedules::prefetch(next, (tile * units * unit_words + i) * next_step, panel);
        const Expr codes = w(byte, column, min(word, words - 1) + prefetch(panel, word, tile), panel);
        const Expr code = bits == 4 ? (codes >> cast<uint8_t>(4 * half)) & cast<uint8_t>(15) : codes;
        // The signed number: what it is multiplied with is signed too.
        const Expr number = reinterpret<int8_t>(code - cast<uint8_t>(center));
        const Expr input = word * code_row_inputs(bits) + half * 4 + byte;
        dot(column, panel, row, tile, u) = 0;
        dot(column, panel, row, tile, u) += cast<int32_t>(cast<int16_t>(x(input, row, tile)) * cast<int16_t>(number));

        const auto scale = [&](const Expr &g, int vector) {
            return tensors.storage().widen(scales(column, vector, g, panel));
        };
        const Expr both = strict_float(scale(unit / group_units, scale_scale) * x_scales(unit, row, tile));
        Expr so_far_or_0 = select(first, 0.0f, so_far(column, panel, row, tile));
        sum(column, panel, row, tile) = so_far_or_0;
        sum(column, panel, row, tile) =
            fma(both, cast<float>(dot(column, panel, row, tile, unit)), sum(column, panel, row, tile));
        if (has_offsets()) {
            sum(column, panel, row, tile) =
                fma(scale(group, scale_offset), x_sums(group, row, tile), sum(column, panel, row, tile));
        }
    }

    void schedule() {
        x.dim(1).set_stride(x_int8_pitch);
        w.dim(0).set_bounds(0, 4);
        w.dim(1).set_bounds(0, panel_width).set_stride(4);
        w.dim(2).set_stride(4 * panel_width);
        bound_scales(scales, has_offsets() ? scale_vectors : 1);
        bound_sums(sum, so_far, rows);
        tensors.begin_schedule(*this);
        schedules::matmul_int8({prefetch, dot, sum, column, panel, row, tile, sum.dim(1).extent()}, params,
                               get_target());
    }

private:
    bool has_offsets() const { return tensors.dtype == DType::f32; }

    Expr fma(const Expr &a, const Expr &b, const Expr &c) const {
        return strict_float(Fma::of_strict(get_target()).fma(a, b, c));
    }

    Var column{"column"}, panel{"panel"}, row{"row"}, tile{"tile"}, i{"i"}, u{"u"};
    Func prefetch{"fetch"}, dot{"dot"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::MatmulInt8, matmul_int8)
