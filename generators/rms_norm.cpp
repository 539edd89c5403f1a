// RMSNorm (Zhang and Sennrich 2019) and its variants: epsilon outside the root, unit offset, partial RMSNorm.
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
        const auto feature_by = [&](const ElementAccess &access) {
            return [=](const Expr &i) { return access.load([&](const Expr &index) { return x(index, t); }, i); };
        };
        const bool paired = by_pairs(dtype, words, get_target()) && !using_autoscheduler();

        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        statistics = rms_statistics(feature_by(element_access(dtype, words, get_target())), moment_width, t, eps,
                                    eps_outside_root, on_gpu() ? &dealt : nullptr,
                                    paired ? Feature(feature_by(pair_access(dtype, get_target()))) : nullptr,
                                    rotated_lanes(get_target(), using_autoscheduler()));
        const auto element = [&](const ElementAccess &access, const Expr &i) {
            Expr normalized = feature_by(access)(i) * statistics.scale(t);
            if (has_weight) {
                normalized *= access.load([&](const Expr &index) { return (*weight)(index); }, i) + weight_offset;
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
                schedules::gpu::promise_cells(x, y, weight);
            }
            schedules::gpu::row({{statistics.sum_of_squares}, {statistics.scale}, y, d, t, width},
                                threads.params(words), get_target());
            return;
        }
        schedules::row({{statistics.sum_of_squares}, {statistics.scale}, y, d, t, width, pairs, d}, params,
                       get_target(), get_pipeline());
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};  // feature, token
    RmsStatistics statistics;
    Expr width;
    Func pairs;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNorm, rms_norm)
