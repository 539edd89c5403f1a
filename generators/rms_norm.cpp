// RMSNorm (Zhang and Sennrich 2019) and its variants: epsilon outside the root, unit offset, partial RMSNorm.
#include "norms.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNorm : public Generator<RmsNorm> {
public:
    RowKernel row;
    OptionalVector weight{"weight", true};
    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Input<float> weight_offset{"weight_offset"};  // 1 for weights stored as their difference from one, else 0
    Input<int> moment_width{"moment_width"};      // features that enter the mean square: d, or ceil(p d)
    Output<Buffer<void, 2>> y{"y"};

    void configure() { row.configure(*this, x, y, weight); }

    void generate() {
        x.dim(0).set_extent(y.dim(0).extent());
        const Expr scale = rms_statistics(row, elements_of(x), moment_width, eps, eps_outside_root).scale;
        row.write(y, rms_norm(elements_of(x), scale, weight, weight_offset));
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNorm, rms_norm)
