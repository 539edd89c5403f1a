// RMSNorm (Zhang and Sennrich 2019) and its variants: epsilon outside the root, unit offset, partial RMSNorm.
#include "Halide.h"

#include "norm_statistics.h"
#include "row_storage.h"
#include "row_threads.h"
#include "schedules/gpu.h"
#include "schedules/row.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNorm : public Generator<RmsNorm> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> has_weight{"has_weight", true};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Input<float> weight_offset{"weight_offset"};  // 1 for weights stored as their difference from one, else 0
    Input<int> moment_width{"moment_width"};      // features that enter the mean square: d, or ceil(p d)
    Input<Buffer<>> *weight = nullptr;
    RowThreadInputs threads;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        const Type stored = storage().type();
        x.set_type(stored);
        y.set_type(stored);
        if (has_weight) {
            weight = add_input<Buffer<>>("weight", stored, 1);
        }
        if (on_gpu()) {
            threads.add_to(*this);
        }
    }

    void generate() {
        width = y.dim(0).extent();
        x.dim(0).set_extent(width);
        const auto feature = [&](Expr i) { return storage().load([&](Expr index) { return x(index, t); }, i); };

        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        statistics = rms_statistics(feature, moment_width, t, eps, eps_outside_root, on_gpu() ? &dealt : nullptr);
        const auto element = [&](Expr i) {
            Expr normalized = feature(i) * statistics.scale(t);
            if (has_weight) {
                normalized *= storage().load([&](Expr index) { return (*weight)(index); }, i) + weight_offset;
            }
            return strict_float(normalized);
        };
        y(d, t) = storage().store_result(element, d);
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        if (on_gpu()) {
            if (words) {
                schedules::gpu::promise_cells(x, y, weight);
            }
            schedules::gpu::row({{statistics.sum_of_squares}, {statistics.scale}, y, d, t, width}, threads.params(words),
                                get_target());
            return;
        }
        schedules::row({{statistics.sum_of_squares}, {statistics.scale}, y, d, t, width}, params, get_target());
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};  // feature, token
    RmsStatistics statistics;
    Expr width;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNorm, rms_norm)
