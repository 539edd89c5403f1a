// Attention between its two products: scores -> probabilities, block by block of keys.
//
// A block's scores lie in rows of 512 at most. Its result is the maximum of the scores, the sum of the exponentials
// exp(score - maximum), and the values weighted by them, which attention_combine.cpp takes. Each row is computed by itself,
// in an order that no width of vectors changes.
#include <limits>

#include "Halide.h"

#include "math.h"
#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

// weights = exp(score - maximum), score = scale s, of the positions [visible(0), visible(1)) of a row; 0 for the
// others. Every position counts where `masked` is false. weights may be s.
class AttentionSoftmax : public Generator<AttentionSoftmax> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"};                // s(position, row): as many positions as weights, a multiple of 64
    Input<Buffer<int32_t, 2>> visible{"visible"};  // visible(first or end, row)
    Input<bool> masked{"masked"};
    Input<float> scale{"scale"};
    Output<Buffer<float, 2>> limits{"limits"};    // of a row: its maximum, and the shift and scale of its exponents
    Output<Buffer<float, 1>> maximum{"maximum"};  // of the visible scores, the lowest float if there are none
    Output<Buffer<float, 2>> weights{"weights"};
    Output<Buffer<float, 1>> sum{"sum"};  // of the weights

    void configure() { tensors.configure(*this); }

    void generate() {
        constexpr int lanes = 64;
        const Math math = Math::of_strict(get_target());
        const RowForm form{tensors.access({row})};
        const Expr width = weights.dim(0).extent() / lanes * lanes;
        const auto seen = [&](const Expr &i, const Expr &value, const Expr &otherwise) {
            return select(!masked || (i >= visible(0, row) && i < visible(1, row)), value, otherwise);
        };

        // The scale is positive, so that it may be applied to the maximum instead of to each score.
        const Expr nothing = Float(32).min(), lowest = std::numeric_limits<float>::lowest();
        const Element score = [&](const ElementAccess &at, const Expr &i) { return seen(i, at(s, i), nothing); };
        row_max = reduce_row("row_max", width, lanes, row, largest_element(nothing), {score}, form);
        const auto scaled = [&](const Expr &largest, const Expr &by) {
            return larger(strict_float(largest * by), lowest);
        };
        // The product of the largest score is rounded here, and that of a fused multiply-add is not: what is left of it is below
        // 32 up to 2^30, and cancels in the quotient. Above, unequal scores are 64 apart or more, and the power of two below the
        // scale serves as well: products by it are exact.
        const Expr largest = row_max.result(row), of_row = scaled(largest, scale);
        const Expr exact = reinterpret<float>(reinterpret<uint32_t>(scale) & Expr(0xff800000u));
        const Expr row_scale = select(Halide::abs(of_row) > 0x1p30f, exact, scale);
        // The shift stays finite: where a score overflows when it is scaled, its weight is then infinite and the result NaN, and not
        // 0 as of a row that sees nothing.
        const Expr scaled_largest = scaled(largest, row_scale), highest = std::numeric_limits<float>::max();
        const Expr shift = select(scaled_largest > highest, highest, scaled_largest);
        limits(part, row) = mux(part, {of_row, shift, row_scale});
        maximum(row) = limits(0, row);
        const Expr exponential = math.exp(strict_float(math.fma(s(position, row), limits(2, row), -limits(1, row))));
        weights(position, row) = seen(position, strict_float(exponential), 0.0f);
        total = reduce_row("total", width, lanes, row, sum_of_elements(), {elements_of(weights)}, form);
        sum(row) = total.result(row);
    }

    void schedule() {
        begin_at_zero(s, visible, weights);
        visible.dim(0).set_extent(2).set_stride(1);
        visible.dim(1).set_stride(2);
        limits.dim(0).set_bounds(0, 3).set_stride(1);
        limits.dim(1).set_bounds(0, weights.dim(1).extent()).set_stride(3);
        maximum.dim(0).set_bounds(0, weights.dim(1).extent());
        sum.dim(0).set_bounds(0, weights.dim(1).extent());
        tensors.begin_schedule(*this);
        schedules::attention_softmax({row_max, limits, maximum, weights, total, sum, position, row, part, masked},
                                     params, get_target());
    }

private:
    Var position{"position"}, row{"row"}, part{"part"};
    RowReduction row_max, total;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSoftmax, attention_softmax)
