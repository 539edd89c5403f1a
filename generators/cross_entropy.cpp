// Cross entropy between its passes over a row of logits: what the loss and its gradient are made of, and that gradient but for the
// target, which the runtime knows (runtime/cpu/ops/cross_entropy.cpp).
//
// The sum leaves the maximum out, so that nothing cancels where one logit is far above the others: log(1 + rest) and
// rest / (1 + rest) keep all their bits then.
#include "Halide.h"

#include "math.h"
#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

// Three numbers per row: the maximum m, rest = sum of exp(x - m) over all logits but one that is m, and log1p(rest). A row with
// NaN or +Inf, or of -Inf alone, has NaN for the last two.
class CrossEntropyStatistics : public Generator<CrossEntropyStatistics> {
public:
    RowKernel row{RowWork::statistics};
    Input<Buffer<void, 2>> x{"x"};

    void configure() {
        row.configure(*this, x);
        row.add_statistics(*this, 3);
    }

    void generate() {
        const Math math = Math::of_strict(get_target());
        const Expr width = row.width_of(x);
        constexpr int lanes = 64;
        const Expr m = row.reduce("maximum", width, lanes, largest_element(Float(32).min()), elements_of(x));
        // Two sums: of logits below the maximum, and of those that are it, whose exponentials are 1 or, of infinite ones, NaN.
        const auto exponential = [&](const ElementAccess &at, const Expr &i) {
            return strict_float(math.exp_not_above_one(strict_float(at(x, i) - m)));
        };
        const Element below = [&](const ElementAccess &at, const Expr &i) {
            return select(at(x, i) == m, 0.0f, exponential(at, i));
        };
        const Element largest = [&](const ElementAccess &at, const Expr &i) {
            return select(at(x, i) == m, exponential(at, i), 0.0f);
        };
        const FuncRef sums = row.sums("sums", width, lanes, {below, largest});
        const Expr rest = strict_float(sums[0] + strict_float(sums[1] - 1.0f));
        row.write_statistics({m, rest, strict_float(math.log1p_not_negative(rest))});
    }

    void schedule() { row.schedule(*this); }
};

// dx = factor exp(x - m), of m and factor = scale / (1 + rest).
class CrossEntropyGradient : public Generator<CrossEntropyGradient> {
public:
    RowKernel row{RowWork::heavy};
    Input<Buffer<void, 2>> x{"x"};
    Input<Buffer<float, 2>> of_row{"of_row"};  // (m or factor, row)
    Output<Buffer<void, 2>> dx{"dx"};

    void configure() { row.configure(*this, x, dx); }

    void generate() {
        const Math math = Math::of_strict(get_target());
        x.dim(0).set_extent(dx.dim(0).extent());
        of_row.dim(0).set_bounds(0, 2).set_stride(1);
        of_row.dim(1).set_min(0);
        const Expr m = row.scalar("m", of_row(0, row.t)), factor = row.scalar("factor", of_row(1, row.t));
        row.write(dx, [&](const ElementAccess &at, const Expr &i) {
            return strict_float(math.exp_not_above_one(strict_float(at(x, i) - m))) * factor;
        });
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::CrossEntropyStatistics, cross_entropy_statistics)
HALIDE_REGISTER_GENERATOR(halyard::CrossEntropyGradient, cross_entropy_gradient)
