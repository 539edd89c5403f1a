// Softmax over a row, y = exp(scale (x - m)) / sum(exp(scale (x - m))), m the feature of the row for which scale x is
// largest. The difference comes first: scale x alone would round away what a large mean leaves of the row.
//
// Best in two kernels, so that each exponential is computed once: the first writes the exponentials in f32 to a row in
// cache, the second normalizes it. One kernel that computes them twice serves rows too wide for that. The bits are the same.
#include "Halide.h"

#include "roundings.h"
#include "row_reduction.h"
#include "row_storage.h"
#include "row_threads.h"
#include "schedules/gpu.h"
#include "schedules/row.h"

namespace halyard {
namespace {

using namespace Halide;

constexpr int lanes = 64;

/** The sum of value(i) over the row t. */
RowReduction row_sum(const Feature &value, Expr width, Var t, const RowThreads *threads = nullptr) {
    return reduce_row(
        "sum", width, lanes, t, {0.0f}, value,
        [](const Values &so_far, const Expr &x) { return Values{so_far[0] + x}; }, exact_sum, threads);
}

class Softmax : public Generator<Softmax> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};         // see row_storage.h
    GeneratorParam<bool> normalize{"normalize", true};  // false: y = exp(scale (x - m)) in f32
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> score_scale{"score_scale"};
    RowThreadInputs threads;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        x.set_type(storage().type());
        y.set_type(normalize ? storage().type() : Float(32));
        if (on_gpu()) {
            threads.add_to(*this);
        }
    }

    void generate() {
        // For f16 where bf16 would do: two of its errors meet in the quotient.
        const Math math(get_target().with_feature(Target::StrictFloat), dtype == DType::f32 ? DType::f32 : DType::f16);
        width = y.dim(0).extent();
        x.dim(0).set_extent(width);
        const RowThreads dealt = on_gpu() ? threads.threads(dtype, words) : RowThreads();
        const RowThreads *const own_threads = on_gpu() ? &dealt : nullptr;
        const Expr features = storage().elements(width);
        const auto feature = [&](Expr i) { return storage().load([&](Expr index) { return x(index, t); }, i); };
        // With a negative scale m is the least feature.
        const Expr direction = select(score_scale < 0.0f, -1.0f, 1.0f);
        const auto directed = [&](Expr i) { return strict_float(feature(i) * direction); };

        const auto larger = [](Expr a, Expr b) { return strict_float(select(a > b, a, b)); };
        maximum = reduce_row(
            "maximum", features, lanes, t, {Float(32).min()}, directed,
            [&](const Values &so_far, const Expr &x) { return Values{larger(so_far[0], x)}; }, larger, own_threads);
        // A sum takes x from memory, which a difference could not.
        const Expr minus_m = strict_float(maximum.result(t) * select(score_scale < 0.0f, 1.0f, -1.0f));
        const auto exponential = [&](Expr i) {
            return strict_float(math.exp_not_above_one(strict_float((feature(i) + minus_m) * score_scale)));
        };

        if (normalize) {
            sum = row_sum(exponential, features, t, own_threads);
            inverse(t) = strict_float(1.0f / sum.result(t));
            const auto element = [&](Expr i) { return strict_float(exponential(i) * inverse(t)); };
            y(d, t) = storage().store_result(element, d);
        } else {
            y(d, t) = exponential(d);
        }
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (using_autoscheduler()) {
            return;
        }
        if (on_gpu()) {
            if (words) {
                schedules::gpu::promise_cells(x, y);
            }
            schedules::gpu::row({{maximum, sum}, {inverse}, y, d, t, width}, threads.params(words), get_target());
        } else if (normalize) {
            schedules::row({{maximum, sum}, {inverse}, y, d, t, width}, params, get_target(), get_pipeline());
        } else {
            schedules::row({{maximum}, {}, y, d, t, width}, params, get_target(), get_pipeline());
        }
    }

private:
    bool on_gpu() const { return get_target().has_gpu_feature(); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};  // feature, token
    Expr width;
    RowReduction maximum, sum;
    Func inverse{"inverse"};
};

class SoftmaxNormalize : public Generator<SoftmaxNormalize> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::RowParams params;

    Input<Buffer<float, 2>> exponentials{"exponentials"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { y.set_type(storage().type()); }

    void generate() {
        width = y.dim(0).extent();
        exponentials.dim(0).set_extent(width);
        sum = row_sum([&](Expr i) { return exponentials(i, t); }, width, t);
        inverse(t) = strict_float(1.0f / sum.result(t));
        y(d, t) = storage().narrow_result(strict_float(exponentials(d, t) * inverse(t)));
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        schedules::row({{sum}, {inverse}, y, d, t, width}, params, get_target(), get_pipeline());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};  // feature, token
    Expr width;
    RowReduction sum;
    Func inverse{"inverse"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Softmax, softmax)
HALIDE_REGISTER_GENERATOR(halyard::SoftmaxNormalize, softmax_normalize)
