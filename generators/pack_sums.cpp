// Sums over the inputs of packed weights: sums(column) = so_far(column) + the sum over the inputs, in their order, of the panel
// or of the panel times factor. The products of two f32 are exact in f64.
#include "Halide.h"

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

    Input<Buffer<void, 2>> panel{"panel"};    // panel(column, input)
    Input<Buffer<void, 1>> factor{"factor"};  // factor(input)
    Input<int> inputs{"inputs"};
    Input<Buffer<double, 1>> so_far{"so_far"};  // may be sums
    Output<Buffer<double, 1>> sums{"sums"};

    void configure() { tensors.configure(*this, panel, factor); }

    void generate() {
        const RDom input(0, inputs, "input");
        k = input.x;
        const Storage storage = tensors.storage();
        element(column, i) = storage.widen(panel(column, i));
        Expr term = cast<double>(element(column, k));
        if (weighted) {
            term *= cast<double>(storage.widen(factor(k)));
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
    Var column{"column"}, i{"i"};
    RVar k;
    Func element{"element"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::PackSums, pack_sums)
