// The numbers of panels of codes (runtime/layout/codes.h), in f32, exactly: wide(column, input, panel) of
// w(column, word, panel).
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

    Input<Buffer<uint32_t, 3>> w{"w"};      // the last word is taken in place of those beyond it
    Input<int> flip{"flip"};                // code_flip()
    Output<Buffer<float, 3>> wide{"wide"};  // whole words of them

    void configure() { tensors.configure(*this); }

    void generate() {
        const Codes codes(bits);
        const Expr word = w(column, min(input / codes.inputs(), w.dim(1).extent() - 1), panel) ^ cast<uint32_t>(flip);
        wide(column, input, panel) = codes.number(word, input % codes.inputs());
    }

    void schedule() {
        begin_at_zero(w, wide);
        w.dim(0).set_extent(panel_width);
        w.dim(1).set_stride(panel_width);
        wide.dim(0).set_extent(panel_width);
        wide.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::widen_panels({wide, column, input, Codes(bits).inputs()}, get_target());
    }

private:
    Var column{"column"}, input{"input"}, panel{"panel"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::WidenCodes, widen_codes)
