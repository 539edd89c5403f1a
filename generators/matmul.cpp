// One block of a GEMM: sum(row, column) = [so_far +] the sum of x(input, row) w(input, column) over at most 512 inputs.
//
// Each element is accumulated input by input with a fused multiply-add, whatever the tile, so that its bits do not
// depend on the shape of the call. What becomes of the sums is the epilogue's business (epilogue.cpp).
#include "Halide.h"

#include "math.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/matmul.h"

namespace halyard {
namespace {

using namespace Halide;

class Matmul : public Generator<Matmul> {
public:
    KernelTensors tensors;                                          // dtype: of the weights
    GeneratorParam<int> rows{"rows", max_tile_rows};                // of x in a tile
    GeneratorParam<int> prefetch_interval{"prefetch_interval", 1};  // inputs from one prefetch of `next` to the next
    schedules::MatmulParams params;
    Input<Buffer<float, 3>> x{"x"};            // x(input, row, tile)
    Input<Buffer<void, 3>> w{"w"};             // w(column, input, panel)
    Input<Buffer<float, 4>> so_far{"so_far"};  // as sum; may be sum
    Input<bool> first{"first"};                // there is nothing so far
    Input<int> depth{"depth"};                 // inputs
    Input<Buffer<uint8_t, 2>> next{"next"};    // next(byte, panel): the weights to prefetch meanwhile
    Input<int> next_step{"next_step"};         // bytes of them per prefetch
    Output<Buffer<float, 4>> sum{"sum"};       // sum(column, panel, row, tile)

    void configure() { tensors.configure(*this, w); }

    void generate() {
        const int group_size = prefetch_interval;
        const Expr groups = depth / group_size, grouped = groups * group_size;
        const RDom whole({{0, group_size}, {0, groups}}, "input"), rest(grouped, depth - grouped, "rest_of_inputs");
        prefetch(panel, group, tile) = schedules::prefetch(next, (tile * groups + group) * next_step, panel);
        const Storage storage = tensors.storage();
        weight(column, i, group, panel, tile) =
            storage.widen(w(column, group * group_size + i + prefetch(panel, group, tile), panel));
        rest_weight(column, i, panel) = storage.widen(w(column, i, panel));

        const auto accumulate = [&](const Expr &a, const Expr &b) {
            return contracted(get_target(), block(column, panel, row, tile) + a * b);
        };
        block(column, panel, row, tile) = 0.0f;
        block(column, panel, row, tile) =
            accumulate(x(whole.y * group_size + whole.x, row, tile), weight(column, whole.x, whole.y, panel, tile));
        block(column, panel, row, tile) = accumulate(x(rest, row, tile), rest_weight(column, rest, panel));
        sum(column, panel, row, tile) =
            select(first, block(column, panel, row, tile),
                   strict_float(so_far(column, panel, row, tile) + block(column, panel, row, tile)));
    }

    void schedule() {
        x.dim(1).set_stride(x_pitch);
        w.dim(0).set_bounds(0, panel_width);
        w.dim(1).set_stride(panel_width);
        sum.dim(0).set_bounds(0, panel_width);
        sum.dim(1).set_min(0).set_stride(panel_width);
        sum.dim(2).set_bounds(0, rows);
        so_far.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::matmul({prefetch, weight, rest_weight, block, sum, column, panel, row, tile, sum.dim(1).extent(),
                           first, prefetch_interval},
                          params, get_target());
    }

private:
    Var column{"column"}, panel{"panel"}, row{"row"}, tile{"tile"}, i{"i"}, group{"group"};
    Func prefetch{"fetch"}, weight{"weight"}, rest_weight{"rest_weight"}, block{"block"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Matmul, matmul)
