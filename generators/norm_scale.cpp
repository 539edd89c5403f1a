// The statistics of rows without the norm: for norms that are applied to the product of a linear layer instead of its
// input.
#include "norms.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNormScale : public Generator<RmsNormScale> {
public:
    RowKernel row{RowWork::statistics};
    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};

    void configure() {
        row.configure(*this, x);
        row.add_statistics(*this, 1);  // scale
    }

    void generate() {
        const Expr scale = rms_statistics(row, elements_of(x), row.width_of(x), eps, eps_outside_root).scale;
        row.write_statistics({scale});
    }

    void schedule() { row.schedule(*this); }
};

class LayerNormScale : public Generator<LayerNormScale> {
public:
    RowKernel row{RowWork::statistics};
    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};

    void configure() {
        row.configure(*this, x);
        row.add_statistics(*this, 2);  // scale, mean
    }

    void generate() {
        const LayerStatistics of = layer_statistics(row, elements_of(x), row.width_of(x), eps);
        row.write_statistics({of.scale, strict_float(of.pivot + of.mean_e)});
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNormScale, rms_norm_scale)
HALIDE_REGISTER_GENERATOR(halyard::LayerNormScale, layer_norm_scale)
