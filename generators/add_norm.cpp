// The residual update of a block as one kernel, for GPUs: sum = x + residual, and the norm of sum as it is stored. On a
// processor two kernels in turn, on rows in cache, do as well. The formulas are those of rms_norm.cpp and layer_norm.cpp.
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

/** What both have: inputs, the sum, and two outputs written together. */
template<typename Norm>
class AddNorm : public Generator<Norm> {
    using Base = Generator<Norm>;

public:
    template<typename T>
    using Param = GeneratorParam<T>;

    Param<DType> dtype{"dtype", DType::f32, dtype_names};
    Param<bool> has_weight{"has_weight", true};
    Param<bool> has_bias{"has_bias", false};
    Param<bool> words{"words", false};  // see row_storage.h

    GeneratorInput<Buffer<void, 2>> x{"x"}, residual{"residual"};
    GeneratorInput<float> eps{"eps"};

    void configure() {
        const Type stored = storage().type();
        x.set_type(stored);
        residual.set_type(stored);
        static_cast<Norm *>(this)->add_scalars();
        if (has_weight) {
            weight = this->template add_input<Buffer<>>("weight", stored, 1);
        }
        if (has_bias) {
            bias = this->template add_input<Buffer<>>("bias", stored, 1);
        }
        threads.add_to(*this);
        outputs = this->template add_output<Func>("y", std::vector<Type>{stored, stored}, 2);
    }

    void generate() {
        const auto sum = [&](Expr i) {
            return strict_float(storage().load([&](Expr index) { return x(index, t); }, i) +
                                storage().load([&](Expr index) { return residual(index, t); }, i));
        };
        const Feature feature = [&](Expr i) { return storage().rounded(sum(i)); };
        const RowThreads dealt = threads.threads(dtype, words);
        // Both outputs are made of what is read before either is written: they may be the inputs.
        stored(d, t) = storage().store_result(sum, d);
        const Feature stored_feature = [&](Expr i) {
            return storage().load([&](Expr index) { return stored(index, t); }, i);
        };
        const auto element = static_cast<Norm *>(this)->normalized(feature, stored_feature, dealt);
        y(d, t) = Tuple(stored(d, t), storage().store_result(element, d));
        *outputs = y;
    }

protected:
    RowStorage storage() const { return RowStorage(dtype, this->get_target(), words); }

    Expr width() { return storage().elements(x.dim(0).extent()); }

    Expr weight_at(Expr i) {
        return storage().load([&](Expr index) { return (*weight)(index); }, i);
    }
    Expr bias_at(Expr i) {
        return storage().load([&](Expr index) { return (*bias)(index); }, i);
    }

    void schedule_row(const std::vector<RowReduction> &reductions, const std::vector<Func> &scalars) {
        keep_roundings(this->get_pipeline(), this->get_target());
        std::vector<OutputImageParam> buffers = y.output_buffers();
        if (words) {
            schedules::gpu::promise_cells(x, residual, weight, bias, buffers[0]);
            schedules::gpu::promise_pitch_of_cells(buffers[1]);
        }
        schedules::gpu::row({reductions, scalars, y, d, t, buffers[0].dim(0).extent()}, threads.params(words),
                            this->get_target(), stored);
    }

    GeneratorInput<Buffer<>> *weight = nullptr, *bias = nullptr;
    GeneratorOutput<Func> *outputs = nullptr;
    RowThreadInputs threads;
    Func stored{"stored"}, y{"y"};
    Var d{"d"}, t{"t"};  // feature, token
};

class AddRmsNorm : public AddNorm<AddRmsNorm> {
public:
    void add_scalars() {
        eps_outside_root = add_input<bool>("eps_outside_root");
        weight_offset = add_input<float>("weight_offset");
        moment_width = add_input<int>("moment_width");
    }

    std::function<Expr(Expr)> normalized(const Feature &feature, const Feature &stored_feature,
                                         const RowThreads &dealt) {
        statistics = rms_statistics(feature, *moment_width, t, eps, *eps_outside_root, &dealt);
        return [=](Expr i) {
            Expr value = stored_feature(i) * statistics.scale(t);
            if (has_weight) {
                value *= weight_at(i) + *weight_offset;
            }
            return strict_float(value);
        };
    }

    void schedule() { schedule_row({statistics.sum_of_squares}, {statistics.scale}); }

private:
    RmsStatistics statistics;
    GeneratorInput<bool> *eps_outside_root = nullptr;
    GeneratorInput<float> *weight_offset = nullptr;
    GeneratorInput<int> *moment_width = nullptr;
};

class AddLayerNorm : public AddNorm<AddLayerNorm> {
public:
    void add_scalars() {}

    std::function<Expr(Expr)> normalized(const Feature &feature, const Feature &stored_feature,
                                         const RowThreads &dealt) {
        const Math math(get_target().with_feature(Target::StrictFloat));
        statistics = layer_statistics(feature, width(), t, eps, &dealt);
        const Func pivot = statistics.pivot, mean_e = statistics.mean_e, scale = statistics.scale;
        return [=](Expr i) {
            const Expr shift = strict_float(-mean_e(t) * scale(t));
            Expr value = math.fma(stored_feature(i) - pivot(t), scale(t), shift);
            if (has_weight && has_bias) {
                value = math.fma(value, weight_at(i), bias_at(i));
            } else if (has_weight) {
                value *= weight_at(i);
            } else if (has_bias) {
                value += bias_at(i);
            }
            return strict_float(value);
        };
    }

    void schedule() { schedule_row({statistics.pivot_sum, statistics.moments}, {statistics.scale}); }

private:
    LayerStatistics statistics;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AddRmsNorm, add_rms_norm)
HALIDE_REGISTER_GENERATOR(halyard::AddLayerNorm, add_layer_norm)
