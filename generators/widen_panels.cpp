// bf16 panels in f32: wide(column, input, panel) of held(column, row, panel), a row holding two inputs.
#include "Halide.h"

#include "panels.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class WidenPanels : public Generator<WidenPanels> {
public:
    KernelTensors tensors;
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<uint32_t, 3>> held{"held"};
    Output<Buffer<float, 3>> wide{"wide"};

    void configure() { tensors.configure(*this); }

    void generate() { wide(column, input, panel) = panels().widen(held(column, panels().row(input), panel), input); }

    void schedule() {
        begin_at_zero(held, wide);
        held.dim(0).set_extent(panel_width);
        held.dim(1).set_stride(panel_width);
        wide.dim(0).set_extent(panel_width);
        wide.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::widen_panels({wide, column, input, panels().inputs()}, get_target());
    }

private:
    Panels panels() const { return {DType::bf16, Storage(DType::bf16, get_target())}; }

    Var column{"column"}, input{"input"}, panel{"panel"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::WidenPanels, widen_panels)
