// The residual update of a block as one kernel, for GPUs: sum = x + residual, and the norm of sum as it is stored. On a
// processor two kernels in turn, on rows in cache, do as well.
#include "norms.h"

namespace halyard {
namespace {

using namespace Halide;

/** sum(i) = x(i) + residual(i). */
Element sum_of(const Func &x, const Func &residual) {
    return [=](const ElementAccess &at, const Expr &i) { return strict_float(at(x, i) + at(residual, i)); };
}

/** The sum as it is once it is stored: that is what the norms are of. */
Element rounded(const Element &sum) {
    return [=](const ElementAccess &at, const Expr &i) { return at.rounded(sum(at, i)); };
}

class AddRmsNorm : public Generator<AddRmsNorm> {
public:
    RowKernel row;
    OptionalVector weight{"weight", true};
    Input<Buffer<void, 2>> x{"x"}, residual{"residual"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Input<float> weight_offset{"weight_offset"};
    Input<int> moment_width{"moment_width"};

    void configure() {
        row.configure(*this, x, residual, weight);
        row.add_two_outputs(*this);
    }

    void generate() {
        const Element sum = sum_of(x, residual);
        const Func stored = row.write_first(sum);
        const Element read = row.staged ? elements_of(stored) : rounded(sum);
        const Expr scale = rms_statistics(row, read, moment_width, eps, eps_outside_root).scale;
        row.write_second(rms_norm(elements_of(stored), scale, weight, weight_offset));
    }

    void schedule() { row.schedule(*this); }
};

class AddLayerNorm : public Generator<AddLayerNorm> {
public:
    RowKernel row;
    OptionalVector weight{"weight", true}, bias{"bias", true};
    Input<Buffer<void, 2>> x{"x"}, residual{"residual"};
    Input<float> eps{"eps"};

    void configure() {
        row.configure(*this, x, residual, weight, bias);
        row.add_two_outputs(*this);
    }

    void generate() {
        const Element sum = sum_of(x, residual);
        const Func stored = row.write_first(sum);
        const Element read = row.staged ? elements_of(stored) : rounded(sum);
        const LayerStatistics statistics = layer_statistics(row, read, row.width_of(x), eps);
        row.write_second(layer_norm(row, elements_of(stored), statistics, weight, bias));
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AddRmsNorm, add_rms_norm)
HALIDE_REGISTER_GENERATOR(halyard::AddLayerNorm, add_layer_norm)
