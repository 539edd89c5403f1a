// The statistics of rows without the norm: for norms that are applied to the product of a linear layer instead of its
// input.
#include "Halide.h"

#include "norm_statistics.h"
#include "schedules/row.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNormScale : public Generator<RmsNormScale> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Output<Buffer<float, 2>> y{"y"};  // [1]: scale

    void configure() { x.set_type(storage().type()); }

    void generate() {
        const Feature feature = [&](Expr i) { return storage().widen(x(i, t)); };
        statistics = rms_statistics(feature, x.dim(0).extent(), t, eps, eps_outside_root);
        y(value, t) = statistics.scale(t);
    }

    void schedule() {
        y.dim(0).set_bounds(0, 1);
        if (using_autoscheduler()) {
            return;
        }
        schedules::row_statistics({{statistics.sum_of_squares}, {statistics.scale}, y, value, t, x.dim(0).extent()},
                                  params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var value{"value"}, t{"t"};
    RmsStatistics statistics;
};

class LayerNormScale : public Generator<LayerNormScale> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Output<Buffer<float, 2>> y{"y"};  // [2]: scale, mean

    void configure() { x.set_type(storage().type()); }

    void generate() {
        const Feature feature = [&](Expr i) { return storage().widen(x(i, t)); };
        statistics = layer_statistics(feature, x.dim(0).extent(), t, eps);
        const Expr mean = strict_float(statistics.pivot(t) + statistics.mean_e(t));
        y(value, t) = select(value == 0, statistics.scale(t), mean);
    }

    void schedule() {
        y.dim(0).set_bounds(0, 2);
        if (using_autoscheduler()) {
            return;
        }
        schedules::row_statistics({{statistics.pivot_sum, statistics.moments},
                                   {statistics.pivot, statistics.mean_e, statistics.scale},
                                   y,
                                   value,
                                   t,
                                   x.dim(0).extent()},
                                  params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var value{"value"}, t{"t"};
    LayerStatistics statistics;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNormScale, rms_norm_scale)
HALIDE_REGISTER_GENERATOR(halyard::LayerNormScale, layer_norm_scale)
