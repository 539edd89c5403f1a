// One block of a GEMM with quantized weights: matmul.cpp, but that a weight is a code with the scales of its group.
#include "Halide.h"

#include "codes.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/matmul.h"

namespace halyard {
namespace {

using namespace Halide;

class MatmulCodes : public Generator<MatmulCodes> {
public:
    KernelTensors tensors;                              // f32, as the weights' values are
    GeneratorParam<int> rows{"rows", max_tile_rows};    // of x in a tile
    GeneratorParam<int> bits{"bits", 8};                // of a code
    GeneratorParam<bool> has_zeros{"has_zeros", true};  // or offsets hold them
    schedules::MatmulParams params;
    Input<Buffer<float, 3>> x{"x"};            // x(input, row, tile)
    Input<Buffer<uint32_t, 3>> w{"w"};         // w(column, row, panel): words of codes
    Input<Buffer<float, 4>> scales{"scales"};  // scales(column, vector, group, panel)
    Input<int> group_shift{"group_shift"};     // a group has 2^group_shift rows
    Input<Buffer<float, 4>> so_far{"so_far"};  // as sum; may be sum
    Input<bool> first{"first"};                // there is nothing so far
    Input<int> depth{"depth"};                 // inputs
    Input<Buffer<uint8_t, 2>> next{"next"};    // next(byte, panel): the weights to prefetch meanwhile
    Input<int> next_step{"next_step"};         // bytes of them for a row
    Output<Buffer<float, 4>> sum{"sum"};       // sum(column, panel, row, tile)

    void configure() { tensors.configure(*this); }

    void generate() {
        const Codes codes(bits, get_target());
        const Expr whole_rows = depth / codes.inputs(), whole_inputs = whole_rows * codes.inputs();
        const RDom whole({{0, codes.inputs()}, {0, whole_rows}}, "input"),
            rest(whole_inputs, depth - whole_inputs, "rest_of_inputs");
        prefetch(panel, step, tile) = schedules::prefetch(next, (tile * whole_rows + step) * next_step, panel);
        word(column, step, panel, tile) = w(column, step + prefetch(panel, step, tile), panel);
        const auto scale = [&](int vector, const Expr &row) {
            return scales(column, vector, codes.group(row, group_shift, scales.dim(2).extent()), panel);
        };
        const auto weight_of = [&](const Expr &held, const Expr &i, const Expr &row) {
            return codes.weight(held, i, has_zeros ? scale(scale_zero, row) : Expr(), scale(scale_scale, row),
                                scale(scale_offset, row));
        };
        weight(column, i, step, panel, tile) = weight_of(word(column, step, panel, tile), i, step);
        rest_weight(column, i, panel) = weight_of(w(column, whole_rows, panel), i, whole_rows);

        const auto accumulate = [&](const Expr &a, const Expr &b) {
            return codes.fused(a, b, block(column, panel, row, tile));
        };
        block(column, panel, row, tile) = 0.0f;
        block(column, panel, row, tile) =
            accumulate(x(whole.y * codes.inputs() + whole.x, row, tile), weight(column, whole.x, whole.y, panel, tile));
        block(column, panel, row, tile) =
            accumulate(x(rest, row, tile), rest_weight(column, rest - whole_inputs, panel));
        sum(column, panel, row, tile) =
            select(first, block(column, panel, row, tile),
                   strict_float(so_far(column, panel, row, tile) + block(column, panel, row, tile)));
    }

    void schedule() {
        x.dim(1).set_stride(x_pitch);
        w.dim(0).set_bounds(0, panel_width);
        w.dim(1).set_stride(panel_width);
        begin_at_zero(scales);
        scales.dim(0).set_extent(panel_width);
        scales.dim(1).set_stride(panel_width);
        scales.dim(2).set_stride(scale_vectors * panel_width);
        sum.dim(0).set_bounds(0, panel_width);
        sum.dim(1).set_min(0).set_stride(panel_width);
        sum.dim(2).set_bounds(0, rows);
        so_far.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::matmul_codes(
            {prefetch, word, weight, rest_weight, block, sum, column, panel, row, tile, sum.dim(1).extent(), first},
            params, get_target());
    }

private:
    Var column{"column"}, panel{"panel"}, row{"row"}, tile{"tile"}, i{"i"}, step{"step"};
    Func prefetch{"fetch"}, word{"word"}, weight{"weight"}, rest_weight{"rest_weight"}, block{"block"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::MatmulCodes, matmul_codes)
