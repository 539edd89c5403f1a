// Attention between and after its two products: scores -> weights of the values, block by block of keys, and what
// becomes of the blocks' results.
//
// A block's scores lie in rows of 512 at most. Its result is the maximum of the scores, the sum of the exponentials
// exp(score - maximum), and the values weighted by them; blocks are merged in order by their maxima. Each row is
// computed by itself, in an order that no width of vectors changes.
#include <limits>

#include "Halide.h"

#include "row_reduction.h"
#include "schedules/attention.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

constexpr int lanes = 64;

Expr larger(const Expr &a, const Expr &b) {
    return strict_float(select(a > b, a, b));
}

// weights = exp(score - maximum), score = scale s, of the positions [visible(0), visible(1)) of a row; 0 for the
// others. Every position counts where `masked` is false. weights may be s.
class AttentionSoftmax : public Generator<AttentionSoftmax> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"};                // s(position, row): as many positions as weights, a multiple of 64
    Input<Buffer<int32_t, 2>> visible{"visible"};  // visible(first or end, row)
    Input<bool> masked{"masked"};
    Input<float> scale{"scale"};
    Output<Buffer<float, 1>> maximum{"maximum"};  // of the visible scores, the lowest float if there are none
    Output<Buffer<float, 2>> weights{"weights"};
    Output<Buffer<float, 1>> sum{"sum"};  // of the weights

    void generate() {
        const Math math(get_target().with_feature(Target::StrictFloat));
        const Expr width = weights.dim(0).extent() / lanes * lanes;
        const auto seen = [&](const Expr &i, const Expr &value, const Expr &otherwise) {
            return select(!masked || (i >= visible(0, row) && i < visible(1, row)), value, otherwise);
        };

        // The scale is positive, so that it may be applied to the maximum instead of to each score.
        const Expr nothing = Float(32).min(), lowest = std::numeric_limits<float>::lowest();
        largest = reduce_row(
            "largest", width, lanes, row, {nothing}, [&](const Expr &i) { return seen(i, s(i, row), nothing); },
            [&](const Values &so_far, const Expr &score) { return Values{larger(so_far[0], score)}; }, larger);
        maximum(row) = larger(strict_float(largest.result(row) * scale), lowest);
        weights(position, row) = seen(
            position, strict_float(math.exp(strict_float(math.fma(s(position, row), scale, -maximum(row))))), 0.0f);
        total = reduce_row(
            "total", width, lanes, row, {0.0f}, [&](const Expr &i) { return weights(i, row); },
            [](const Values &so_far, const Expr &weight) { return Values{so_far[0] + weight}; }, exact_sum);
        sum(row) = total.result(row);
    }

    void schedule() {
        s.dim(0).set_min(0);
        s.dim(1).set_min(0);
        visible.dim(0).set_bounds(0, 2).set_stride(1);
        visible.dim(1).set_min(0).set_stride(2);
        weights.dim(0).set_min(0);
        weights.dim(1).set_min(0);
        maximum.dim(0).set_bounds(0, weights.dim(1).extent());
        sum.dim(0).set_bounds(0, weights.dim(1).extent());
        if (using_autoscheduler()) {
            return;
        }
        schedules::attention_softmax({largest, maximum, weights, total, sum, position, row, masked}, params,
                                     get_target());
    }

private:
    Var position{"position"}, row{"row"};
    RowReduction largest, total;
};

// y = cap tanh(scale s / cap). y may be s.
class AttentionSoftcap : public Generator<AttentionSoftcap> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"};
    Input<float> scale{"scale"};
    Input<float> cap{"cap"};
    Output<Buffer<float, 2>> y{"y"};

    void generate() {
        const Math math(get_target().with_feature(Target::StrictFloat));
        y(position, row) = strict_float(math.tanh(strict_float(strict_float(s(position, row) * scale) / cap)) * cap);
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        schedules::attention_rows(y, position, params, get_target());
    }

private:
    Var position{"position"}, row{"row"};
};

// The result of some blocks and that of the block after them, as one.
class AttentionMerge : public Generator<AttentionMerge> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::AttentionParams params;

    // statistics(row, 0) is a maximum, statistics(row, 1) a sum; their rows are a multiple of 16.
    Input<Buffer<float, 2>> so_far{"so_far"}, block{"block"};                  // statistics
    Input<Buffer<float, 2>> values_so_far{"values_so_far"}, values{"values"};  // (feature, row), weighted
    Output<Buffer<float, 2>> factors{"factors"};                               // factors(row, so far or block)
    Output<Buffer<float, 2>> statistics{"statistics"};
    Output<Buffer<float, 2>> y{"y"};  // (feature, row); may be values_so_far

    void generate() {
        const Math math(get_target().with_feature(Target::StrictFloat));
        const Expr maximum = larger(so_far(row, 0), block(row, 0));
        const auto factor = [&](const Expr &its_maximum) {
            return strict_float(math.exp(strict_float(its_maximum - maximum)));
        };
        factors(row, part) = mux(part, {factor(so_far(row, 0)), factor(block(row, 0))});
        const auto merged = [&](const Expr &a, const Expr &b) {
            return strict_float(math.fma(b, factors(row, 1), a * factors(row, 0)));
        };
        statistics(row, part) = mux(part, {maximum, merged(so_far(row, 1), block(row, 1))});
        y(feature, row) = merged(values_so_far(feature, row), values(feature, row));
    }

    void schedule() {
        for (auto *buffer : {&so_far, &block}) {
            buffer->dim(0).set_min(0);
            buffer->dim(1).set_bounds(0, 2);
        }
        for (auto *buffer : {&factors, &statistics}) {
            buffer->dim(0).set_min(0);
            buffer->dim(1).set_bounds(0, 2);
        }
        y.dim(1).set_min(0);
        if (using_autoscheduler()) {
            return;
        }
        schedules::attention_statistics(factors, row, part, get_target());
        schedules::attention_statistics(statistics, row, part, get_target());
        schedules::attention_rows(y, feature, params, get_target());
    }

private:
    Var feature{"feature"}, row{"row"}, part{"part"};
};

// y = values / sum, 0 where the sum is 0.
class AttentionFinish : public Generator<AttentionFinish> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};  // of y
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> values{"values"};
    Input<Buffer<float, 1>> sum{"sum"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { y.set_type(storage().type()); }

    void generate() {
        // A sum is 0 or at least about 1: it holds exp(0) of the maximum.
        inverse(row) = select(sum(row) == 0.0f, 0.0f, strict_float(1.0f / sum(row)));
        // Adding 0 makes +0 of the -0 that the products of a row may or may not have added up to, depending on how many
        // zeros came with them.
        y(feature, row) = storage().narrow(strict_float(strict_float(values(feature, row) + 0.0f) * inverse(row)));
    }

    void schedule() {
        sum.dim(0).set_stride(Expr());
        if (using_autoscheduler()) {
            return;
        }
        inverse.compute_at(y, row);
        schedules::attention_rows(y, feature, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var feature{"feature"}, row{"row"};
    Func inverse{"inverse"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSoftmax, attention_softmax)
HALIDE_REGISTER_GENERATOR(halyard::AttentionSoftcap, attention_softcap)
HALIDE_REGISTER_GENERATOR(halyard::AttentionMerge, attention_merge)
HALIDE_REGISTER_GENERATOR(halyard::AttentionFinish, attention_finish)
