// One block of a GEMM with quantized weights: sum(row, column) = [so_far +] the sum over groups of inputs g of
//
//     scale(g, column) (the sum of x(input, row) c(input, column) over the group) + offset(g, column) (the sum of x over the group)
//
// where c is a code less its center (runtime/layout/codes.h). A group is accumulated input by input with fused multiply-adds; one
// more takes it to the sum, and another the offset. So the bits depend on the group, and not on the shape of the call.
//
// Scales in 16 bits are read as they are stored, and there are no offsets: of few rows, making f32 of them first takes as long as
// a tenth of the product.
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

class MatmulCodes : public Generator<MatmulCodes> {
public:
    KernelTensors tensors;                            // dtype: of the scales
    GeneratorParam<int> rows{"rows", max_tile_rows};  // of x in a tile
    GeneratorParam<int> bits{"bits", 8};              // of what w holds: codes, or their numbers in f32
    schedules::MatmulParams params;
    Input<Buffer<uint32_t, 3>> x{"x"};         // x(f32 or pair, row, tile), 0 to the end of the last group; here f32
    Input<Buffer<float, 3>> x_sums{"x_sums"};  // x_sums(group, row, tile)
    Input<Buffer<uint32_t, 3>> w{"w"};         // w(column, word, panel)
    Input<int> words{"words"};                 // of codes: the last one is read in place of those beyond it
    Input<int> flip{"flip"};                   // code_flip()
    Input<Buffer<void, 4>> scales{"scales"};   // scales(column, vector, group, panel)
    Input<int> steps{"steps"};                 // of a group
    Input<Buffer<float, 4>> so_far{"so_far"};  // as sum; may be sum
    Input<bool> first{"first"};                // there is nothing so far
    Input<Buffer<uint8_t, 2>> next{"next"};    // next(byte, panel): the weights to prefetch meanwhile
    Input<int> next_step{"next_step"};         // bytes of them for a step
    Output<Buffer<float, 4>> sum{"sum"};       // sum(column, panel, row, tile)

    void configure() { tensors.configure(*this, scales); }

    void generate() {
        const Expr groups = scales.dim(2).extent();
        const RDom g(0, groups, "group"), in({{0, code_step_inputs(bits)}, {0, steps}}, "in");

        prefetch(panel, step, tile) = schedules::prefetch(next, (tile * groups * steps + step) * next_step, panel);
        const Expr fetch = prefetch(panel, step, tile);
        if (of_codes()) {
            word(column, step, panel, tile) = w(column, min(step, words - 1) + fetch, panel) ^ cast<uint32_t>(flip);
            number(column, i, step, panel, tile) = Codes(bits).number(word(column, step, panel, tile), i);
        } else {
            number(column, i, step, panel, tile) =
                reinterpret<float>(w(column, step * code_step_inputs(bits) + i + fetch, panel));
        }

        const Expr step_of_block = group * steps + in.y;
        block(column, panel, row, tile, group) = 0.0f;
        block(column, panel, row, tile, group) =
            accumulated(block(column, panel, row, tile, group),
                        reinterpret<float>(x(step_of_block * code_step_inputs(bits) + in.x, row, tile)),
                        number(column, in.x, step_of_block, panel, tile));

        const auto scale = [&](int vector) { return tensors.storage().widen(scales(column, vector, g, panel)); };
        sum(column, panel, row, tile) = select(first, 0.0f, so_far(column, panel, row, tile));
        const Expr scaled = fma(scale(scale_scale), block(column, panel, row, tile, g), sum(column, panel, row, tile));
        sum(column, panel, row, tile) = has_offsets() ? fma(scale(scale_offset), x_sums(g, row, tile), scaled) : scaled;
    }

    void schedule() {
        x.dim(1).set_stride(x_pitch);
        w.dim(0).set_bounds(0, panel_width);
        w.dim(1).set_stride(panel_width);
        bound_scales(scales, has_offsets() ? scale_vectors : 1);
        bound_sums(sum, so_far, rows);
        tensors.begin_schedule(*this);
        schedules::matmul_codes({prefetch, word, number, block, sum, column, panel, row, tile, sum.dim(1).extent()},
                                params, get_target());
    }

private:
    bool of_codes() const { return bits <= 8; }
    bool has_offsets() const { return tensors.dtype == DType::f32; }

    Expr fma(const Expr &a, const Expr &b, const Expr &c) const {
        return strict_float(Fma::of_strict(get_target()).fma(a, b, c));
    }
    Expr accumulated(const Expr &so_far, const Expr &a, const Expr &b) const {
        // Where numbers are made on the way, LLVM would change the order of plain sums; of calls of fma it makes slower code.
        return of_codes() ? fma(a, b, so_far) : contracted(get_target(), so_far + a * b);
    }

    Var column{"column"}, panel{"panel"}, row{"row"}, tile{"tile"}, i{"i"}, step{"step"}, group{"group"};
    Func prefetch{"fetch"}, word{"word"}, number{"number"}, block{"block"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::MatmulCodes, matmul_codes)
