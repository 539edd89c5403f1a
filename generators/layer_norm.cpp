// LayerNorm (Ba, Kiros, Hinton 2016).
#include "norms.h"

namespace halyard {
namespace {

using namespace Halide;

class LayerNorm : public Generator<LayerNorm> {
public:
    RowKernel row;
    OptionalVector weight{"weight", true}, bias{"bias", true};
    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { row.configure(*this, x, y, weight, bias); }

    void generate() {
        x.dim(0).set_extent(y.dim(0).extent());
        const LayerStatistics statistics = layer_statistics(row, elements_of(x), row.width_of(y), eps);
        row.write(y, layer_norm(row, elements_of(x), statistics, weight, bias));
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::LayerNorm, layer_norm)
