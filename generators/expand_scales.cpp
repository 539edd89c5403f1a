// The scales of panels of quantized weights (runtime/layout/code_panels.h) as products read them:
// expanded(column, vector, group, panel), the vectors being scale and offset of the weights scale c + offset, where c is a code
// less its center. An offset is rounded once.
#include "Halide.h"

#include "fma.h"
#include "runtime/layout/codes.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class ExpandScales : public Generator<ExpandScales> {
public:
    KernelTensors tensors;  // dtype: of the scales
    GeneratorParam<ScaleKind> kind{"kind",
                                   ScaleKind::plain,
                                   {{"plain", ScaleKind::plain},
                                    {"zero", ScaleKind::zero},
                                    {"minimum", ScaleKind::minimum},
                                    {"two_levels", ScaleKind::two_levels},
                                    {"two_levels_signed", ScaleKind::two_levels_signed}}};
    schedules::PackParams params;  // of the family; it has nothing to choose here

    // [group][column] of a k block, of as many panels.
    Input<Buffer<void, 3>> scales{"scales"}, minima{"minima"};
    Input<Buffer<uint8_t, 3>> factors{"factors"}, zeros{"zeros"};
    Input<float> center{"center"};  // code_center()
    Output<Buffer<float, 4>> expanded{"expanded"};

    void configure() { tensors.configure(*this, scales, minima); }

    void generate() {
        const bool two_levels = kind == ScaleKind::two_levels || kind == ScaleKind::two_levels_signed;
        const int groups_of_scale = kind == ScaleKind::two_levels ? super_group / 32 : super_group / 16;
        const Storage storage = tensors.storage();
        const Expr wide_group = two_levels ? group / groups_of_scale : group;
        const Expr s = storage.widen(scales(column, wide_group, panel)),
                   m = storage.widen(minima(column, wide_group, panel));
        const Expr factor = factors(column, group, panel), stored_zero = cast<float>(zeros(column, group, panel));
        const Fma fused = Fma::of_strict(get_target());
        Expr scale = s, offset = 0.0f;
        switch (kind) {
        case ScaleKind::plain:
            break;
        case ScaleKind::zero:
            offset = strict_float(s * strict_float(center - stored_zero));
            break;
        case ScaleKind::minimum:
            offset = strict_float(fused.fma(center, s, m));
            break;
        case ScaleKind::two_levels:
            scale = strict_float(s * cast<float>(factor));
            offset = strict_float(fused.fma(center, scale, m * stored_zero * -1.0f));
            break;
        case ScaleKind::two_levels_signed:
            scale = strict_float(s * cast<float>(reinterpret<int8_t>(factor)));
        }
        expanded(column, vector, group, panel) = mux(vector, {scale, offset});
    }

    void schedule() {
        begin_at_zero(scales, minima, factors, zeros, expanded);
        for (OutputImageParam each :
             {OutputImageParam(scales), OutputImageParam(minima), OutputImageParam(factors), OutputImageParam(zeros)}) {
            each.dim(0).set_extent(panel_width);
            each.dim(1).set_stride(panel_width);
        }
        expanded.dim(0).set_extent(panel_width);
        expanded.dim(1).set_extent(scale_vectors).set_stride(panel_width);
        expanded.dim(2).set_stride(scale_vectors * panel_width);
        tensors.begin_schedule(*this);
        schedules::expand_scales({expanded, column, vector}, get_target());
    }

private:
    Var column{"column"}, vector{"vector"}, group{"group"}, panel{"panel"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::ExpandScales, expand_scales)
