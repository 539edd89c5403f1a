// One block of a GEMM: sum(row, column) = [so_far +] the sum of x(input, row) w(input, column) over at most 512 inputs.
//
// Each element is accumulated input by input with a fused multiply-add, whatever the tile, so that its bits do not
// depend on the shape of the call. What becomes of the sums is the epilogue's business (epilogue.cpp).
//
// Where x is bf16 too, an instruction may take a pair of inputs at a step: both multiply-adds, the earlier input's first.
#include <algorithm>
#include <type_traits>

#include "Halide.h"

#include "fma.h"
#include "matmul_bounds.h"
#include "panels.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/matmul.h"

namespace halyard {
namespace {

using namespace Halide;

/** `X`: f32, or words that hold a pair of inputs as those of the panels do. */
template<typename Self, typename X>
class Product : public Generator<Self> {
    static constexpr bool by_pairs = std::is_same_v<X, uint32_t>;

public:
    KernelTensors tensors;                                          // dtype: of the weights
    GeneratorParam<int> rows{"rows", max_tile_rows};                // of x in a tile
    GeneratorParam<int> prefetch_interval{"prefetch_interval", 1};  // inputs from one prefetch of `next` to the next
    GeneratorParam<bool> near{"near", false};  // into the first-level cache, as cmake/host/make_kernels.cpp sees to
    schedules::MatmulParams params;
    GeneratorInput<Buffer<X, 3>> x{"x"};                // x(step, row, tile)
    GeneratorInput<Buffer<void, 3>> w{"w"};             // w(column, row, panel)
    GeneratorInput<Buffer<float, 4>> so_far{"so_far"};  // as sum; may be sum
    GeneratorInput<bool> first{"first"};                // there is nothing so far
    GeneratorInput<int> depth{"depth"};                 // steps: inputs or pairs
    GeneratorInput<Buffer<uint8_t, 2>> next{"next"};    // next(byte, panel): the weights to prefetch meanwhile
    GeneratorInput<int> next_step{"next_step"};         // bytes of them per prefetch
    GeneratorOutput<Buffer<float, 4>> sum{"sum"};       // sum(column, panel, row, tile)

    void configure() {
        tensors.configure(*this);
        w.set_type(panels().type());
    }

    void generate() {
        const int group_size = steps_in_group();
        const Expr groups = depth / group_size, grouped = groups * group_size;
        const RDom whole({{0, group_size}, {0, groups}}, "input"), rest(grouped, depth - grouped, "rest_of_inputs");
        prefetch(panel, group, tile) = schedules::prefetch(next, (tile * groups + group) * next_step, panel);
        const int rows_in_group = group_size / steps_in_row();
        weight(column, i, group, panel, tile) =
            taken(w(column, group * rows_in_group + row_of(i) + prefetch(panel, group, tile) + again(i), panel), i);
        rest_weight(column, i, panel) = taken(w(column, row_of(i), panel), i);

        const auto accumulate = [&](const Expr &a, const Expr &b) {
            const Expr so_far = block(column, panel, row, tile);
            if constexpr (by_pairs) {
                // Halide's name for the instruction, once it is vectorized.
                return Internal::Call::make(Float(32), "dpbf16ps", {so_far, a, b}, Internal::Call::PureExtern);
            } else {
                return contracted(this->get_target(), so_far + a * b);
            }
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
        x.dim(1).set_stride(by_pairs ? x_pair_pitch : x_pitch);
        w.dim(0).set_bounds(0, panel_width);
        w.dim(1).set_stride(panel_width);
        bound_sums(sum, so_far, rows);
        tensors.begin_schedule(*this);
        schedules::matmul({prefetch, weight, rest_weight, block, sum, column, panel, row, tile, sum.dim(1).extent(),
                           first, steps_in_group()},
                          params, this->get_target());
    }

private:
    Panels panels() const { return {tensors.dtype, tensors.storage()}; }
    int steps_in_row() const { return by_pairs ? 1 : panels().inputs(); }
    int steps_in_group() const {
        return std::max<int>(prefetch_interval, panels().inputs()) / panels().inputs() * steps_in_row();
    }
    /** 0, in a way that the second input of a row is loaded again where the tile leaves no registers for pairs. */
    Expr again(const Expr &step) const {
        return steps_in_row() > 1 && !schedules::holds_pairs(rows, params.panels, this->get_target())
                   ? step % 2 * schedules::unknown_zero(next_step)
                   : 0;
    }
    Expr row_of(const Expr &step) const { return by_pairs ? step : panels().row(step); }
    Expr taken(const Expr &held, const Expr &step) const { return by_pairs ? held : panels().widen(held, step); }

    Var column{"column"}, panel{"panel"}, row{"row"}, tile{"tile"}, i{"i"}, group{"group"};
    Func prefetch{"fetch"}, weight{"weight"}, rest_weight{"rest_weight"}, block{"block"};
};

class Matmul : public Product<Matmul, float> {};
class MatmulPairs : public Product<MatmulPairs, uint32_t> {};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Matmul, matmul)
HALIDE_REGISTER_GENERATOR(halyard::MatmulPairs, matmul_pairs)
