// Panels of quantized weights in f32: wide(column, input, panel) of w(column, row, panel), a row being words of codes.
#include "Halide.h"

#include "codes.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class WidenCodes : public Generator<WidenCodes> {
public:
    KernelTensors tensors;
    GeneratorParam<int> bits{"bits", 8};  // of a code
    schedules::PackParams params;         // of the family; it has nothing to choose here

    Input<Buffer<uint32_t, 3>> w{"w"};
    Input<Buffer<float, 4>> scales{"scales"};  // scales(column, vector, group, panel)
    Input<int> group_shift{"group_shift"};     // a group has 2^group_shift rows
    Output<Buffer<float, 3>> wide{"wide"};     // of whole rows

    void configure() { tensors.configure(*this); }

    void generate() {
        const Codes codes(bits, get_target());
        const Expr row = input / codes.inputs();
        const Expr group = codes.group(row, group_shift, scales.dim(2).extent());
        const auto scale = [&](int vector) { return scales(column, vector, group, panel); };
        wide(column, input, panel) = codes.weight(w(column, row, panel), input % codes.inputs(), scale(scale_zero),
                                                  scale(scale_scale), scale(scale_offset));
    }

    void schedule() {
        begin_at_zero(w, scales, wide);
        w.dim(0).set_extent(panel_width);
        w.dim(1).set_stride(panel_width);
        scales.dim(0).set_extent(panel_width);
        scales.dim(1).set_stride(panel_width);
        scales.dim(2).set_stride(scale_vectors * panel_width);
        wide.dim(0).set_extent(panel_width);
        wide.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::widen_panels({wide, column, input, code_row_inputs(bits)}, get_target());
    }

private:
    Var column{"column"}, input{"input"}, panel{"panel"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::WidenCodes, widen_codes)
