// Sums over the inputs of packed weights: sums(column) = so_far(column) + the sum over the inputs, in their order, of the panel
// or of the panel times factor. The products of two f32 are exact in f64.
#include "Halide.h"

#include "panels.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class PackSums : public Generator<PackSums> {
public:
    KernelTensors tensors;
    GeneratorParam<bool> weighted{"weighted", false};
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<void, 2>> panel{"panel"};    // panel(column, row)
    Input<Buffer<void, 1>> factor{"factor"};  // factor(input)
    Input<int> inputs{"inputs"};
    Input<Buffer<double, 1>> so_far{"so_far"};  // may be sums
    Output<Buffer<double, 1>> sums{"sums"};

    void configure() {
        tensors.configure(*this, factor);
        panel.set_type(held().type());
    }

    void generate() {
        const RDom input(0, inputs, "input");
        k = input.x;
        element(column, i) = held().widen(panel(column, held().row(i)), i);
        Expr term = cast<double>(element(column, k));
        if (weighted) {
            term *= cast<double>(tensors.storage().widen(factor(k)));
        }
        sum(column) = so_far(column);
        sum(column) = strict_float(sum(column) + term);
        sums(column) = sum(column);
    }

    void schedule() {
        begin_at_zero(panel, factor, so_far, sums);
        panel.dim(0).set_extent(panel_width);
        panel.dim(1).set_stride(panel_width);
        so_far.dim(0).set_extent(panel_width);
        sums.dim(0).set_extent(panel_width);
        tensors.begin_schedule(*this);
        schedules::pack_sums({element, sum, sums, k, column}, get_target());
    }

private:
    Panels held() const { return {tensors.dtype, tensors.storage()}; }

    Var column{"column"}, i{"i"};
    RVar k;
    Func element{"element"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::PackSums, pack_sums)
