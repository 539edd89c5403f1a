// The statistics of rows without the norm: for norms that are applied to the product of a linear layer instead of its
// input.
#include "Halide.h"

#include "norm_statistics.h"
#include "roundings.h"
#include "row_storage.h"
#include "row_threads.h"
#include "schedules/gpu.h"
#include "schedules/row.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNormScale : public Generator<RmsNormScale> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    RowThreadInputs threads;
    Output<Buffer<float, 2>> y{"y"};  // [1]: scale

    void configure() {
        x.set_type(storage().type());
        if (on_gpu()) {
            threads.add_to(*this);
        }
    }

    void generate() {
        const Feature feature = [&](Expr i) { return storage().load([&](Expr index) { return x(index, t); }, i); };
        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        statistics = rms_statistics(feature, storage().elements(x.dim(0).extent()), t, eps, eps_outside_root,
                                    on_gpu() ? &dealt : nullptr);
        y(value, t) = statistics.scale(t);
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        y.dim(0).set_bounds(0, 1);
        if (using_autoscheduler()) {
            return;
        }
        const schedules::Row stages = {{statistics.sum_of_squares}, {statistics.scale}, y, value, t, x.dim(0).extent()};
        if (!on_gpu()) {
            schedules::row_statistics(stages, params, get_target());
            return;
        }
        if (words) {
            schedules::gpu::promise_cells(x);
        }
        schedules::gpu::row(stages, threads.statistics_params(words), get_target());
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var value{"value"}, t{"t"};
    RmsStatistics statistics;
};

class LayerNormScale : public Generator<LayerNormScale> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    RowThreadInputs threads;

    void configure() {
        x.set_type(storage().type());
        if (on_gpu()) {
            threads.add_to(*this);
            // [1] each: scale and mean lie apart, and nothing brings them there afterwards.
            outputs = add_output<Func>("y", std::vector<Type>{Float(32), Float(32)}, 2);
        } else {
            outputs = add_output<Func>("y", Float(32), 2);  // [2]: scale, mean
        }
    }

    void generate() {
        const Feature feature = [&](Expr i) { return storage().load([&](Expr index) { return x(index, t); }, i); };
        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        statistics =
            layer_statistics(feature, storage().elements(x.dim(0).extent()), t, eps, on_gpu() ? &dealt : nullptr);
        const Expr mean = strict_float(statistics.pivot(t) + statistics.mean_e(t));
        if (on_gpu()) {
            y(value, t) = Tuple(statistics.scale(t), mean);
        } else {
            y(value, t) = select(value == 0, statistics.scale(t), mean);
        }
        *outputs = y;
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        y.output_buffers()[0].dim(0).set_bounds(0, on_gpu() ? 1 : 2);
        if (using_autoscheduler()) {
            return;
        }
        const std::vector<RowReduction> reductions = {statistics.pivot_sum, statistics.moments};
        if (!on_gpu()) {
            schedules::row_statistics(
                {reductions, {statistics.pivot, statistics.mean_e, statistics.scale}, y, value, t, x.dim(0).extent()},
                params, get_target());
            return;
        }
        if (words) {
            schedules::gpu::promise_cells(x);
        }
        schedules::gpu::row({reductions, {statistics.scale}, y, value, t, x.dim(0).extent()},
                            threads.statistics_params(words), get_target());
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    GeneratorOutput<Func> *outputs = nullptr;
    Func y{"y"};
    Var value{"value"}, t{"t"};
    LayerStatistics statistics;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNormScale, rms_norm_scale)
HALIDE_REGISTER_GENERATOR(halyard::LayerNormScale, layer_norm_scale)
