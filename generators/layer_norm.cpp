// LayerNorm (Ba, Kiros, Hinton 2016).
#include "Halide.h"

#include "norm_statistics.h"
#include "roundings.h"
#include "row_output.h"
#include "row_storage.h"
#include "row_threads.h"
#include "schedules/gpu.h"
#include "schedules/row.h"

namespace halyard {
namespace {

using namespace Halide;

class LayerNorm : public Generator<LayerNorm> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> has_weight{"has_weight", true};
    GeneratorParam<bool> has_bias{"has_bias", true};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<Buffer<>> *weight = nullptr;
    Input<Buffer<>> *bias = nullptr;
    RowThreadInputs threads;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        const Type stored = storage().type();
        x.set_type(stored);
        y.set_type(stored);
        if (has_weight) {
            weight = add_input<Buffer<>>("weight", stored, 1);
        }
        if (has_bias) {
            bias = add_input<Buffer<>>("bias", stored, 1);
        }
        if (on_gpu()) {
            threads.add_to(*this);
        }
    }

    void generate() {
        const Math math(get_target().with_feature(Target::StrictFloat));
        width = y.dim(0).extent();
        x.dim(0).set_extent(width);
        const auto feature_by = [&](const ElementAccess &access) {
            return [=](const Expr &i) { return access.load([&](const Expr &index) { return x(index, t); }, i); };
        };
        const bool paired = by_pairs(dtype, words, get_target()) && !using_autoscheduler();

        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        const Expr features = storage().elements(width);
        statistics = layer_statistics(feature_by(element_access(dtype, words, get_target())), features, t, eps,
                                      on_gpu() ? &dealt : nullptr,
                                      paired ? Feature(feature_by(pair_access(dtype, get_target()))) : nullptr,
                                      rotated_lanes(get_target(), using_autoscheduler()));
        const Func pivot = statistics.pivot, mean_e = statistics.mean_e, scale = statistics.scale;
        shift(t) = strict_float(math.minus(mean_e(t)) * scale(t));

        const auto element = [&](const ElementAccess &access, const Expr &i) {
            const auto weight_at = [&](const Expr &place) {
                return access.load([&](const Expr &index) { return (*weight)(index); }, place);
            };
            const auto bias_at = [&](const Expr &place) {
                return access.load([&](const Expr &index) { return (*bias)(index); }, place);
            };
            Expr normalized = math.fma(feature_by(access)(i) - pivot(t), scale(t), shift(t));
            if (has_weight && has_bias) {
                normalized = math.fma(normalized, weight_at(i), bias_at(i));
            } else if (has_weight) {
                normalized *= weight_at(i);
            } else if (has_bias) {
                normalized += bias_at(i);
            }
            return strict_float(normalized);
        };
        pairs = define_row_output(y, d, t, element, dtype, words, get_target(), using_autoscheduler());
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (using_autoscheduler()) {
            return;
        }
        if (on_gpu()) {
            if (words) {
                schedules::gpu::promise_cells(x, y, weight, bias);
            }
            schedules::gpu::row({{statistics.pivot_sum, statistics.moments}, {statistics.scale}, y, d, t, width},
                                threads.params(words), get_target());
            return;
        }
        schedules::row({{statistics.pivot_sum, statistics.moments},
                        {statistics.pivot, statistics.mean_e, statistics.scale, shift},
                        y,
                        d,
                        t,
                        width,
                        pairs,
                        d},
                       params, get_target(), get_pipeline());
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};  // feature, token
    LayerStatistics statistics;
    Func shift{"shift"};
    Expr width;
    Func pairs;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::LayerNorm, layer_norm)
