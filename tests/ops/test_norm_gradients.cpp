// Gradients of the norms and of softmax beyond what holds for every operation (test_operations.cpp): their references are the slopes of the
// forward references, sums over rows continue where they are told to, and what cannot be is refused.
#include "support/invocation.h"

#include <cmath>

#include "operations/reference_gradients.h"
#include "runtime/layout/column_sum.h"

namespace halyard::tests {
namespace {

std::vector<const Operation *> norm_gradients() {
    std::vector<const Operation *> all;
    for (const Operation &operation : all_operations()) {
        if (operation.needs_features && operation.label.find("norm_backward") != std::string::npos) {
            all.push_back(&operation);
        }
    }
    return all;
}

/** The operand of that name, or none. */
std::size_t place_of(const Operation &operation, std::string_view name) {
    std::size_t place = 0;
    while (place < operation.operands.size() && operation.operands[place].name != name) {
        place++;
    }
    return place;
}

/** A gradient with the norm whose it is, on rows of numbers. */
struct NormAndGradient {
    const Operation &gradient, &norm = operation(gradient.gradient_of);
    Sizes sizes = Sizes::of_rows({3, 7});
    std::vector<operations::Rows> values{};  // of the gradient's operands

    explicit NormAndGradient(const Operation &given) : gradient(given) {
        for (std::size_t i = 0; i < gradient.operands.size(); i++) {
            operations::Rows &rows = values.emplace_back();
            const std::int64_t count = gradient.operands[i].is_by_row() ? 3 : 1;
            for (std::int64_t row = 0; gradient.operands[i].role != Role::output && row < count; row++) {
                rows.emplace_back();
                for (std::int64_t k = 0; k < sizes.d; k++) {
                    rows.back().push_back(bell(10 + i, row, k) + 0.3);
                }
            }
        }
    }

    operations::Rows &named(std::string_view name) { return values[place_of(gradient, name)]; }
    bool has(std::string_view name) const { return place_of(gradient, name) < gradient.operands.size(); }

    /** The sum of y, which dy weighs, and of x, which the residual's gradient weighs, with biases as given. */
    double weighed(const Row &bias) {
        std::vector<operations::Rows> given(norm.operands.size());
        for (std::size_t i = 0; i < norm.operands.size(); i++) {
            const std::string_view name = norm.operands[i].name;
            if (name == "bias") {
                given[i] = {bias};
            } else if (norm.operands[i].role != Role::output) {
                given[i] = named(name);
            }
        }
        const Matrix y = norm.reference(given, sizes, gradient.scalar_values().data(), Dtype::f32)[0];
        double sum = 0;
        for (std::size_t row = 0; row < y.size(); row++) {
            for (std::size_t k = 0; k < y[row].size(); k++) {
                sum += named("dy")[row][k] * y[row][k].value;
                sum += has("dresidual_out") ? named("dresidual_out")[row][k] * named("x")[row][k] : 0;
            }
        }
        return sum;
    }

    double slope_at(double &parameter, const Row &bias = Row(7)) {
        const double middle = parameter, h = 2e-4;
        const auto f = [&](double offset) {
            parameter = middle + offset;
            return weighed(bias);
        };
        const double slope = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
        parameter = middle;
        return slope;
    }
};

TEST(NormGradientReference, IsTheSlopeOfTheSumThatDyWeighs) {
    for (const Operation *gradient : norm_gradients()) {
        NormAndGradient both(*gradient);
        const std::vector<Matrix> got =
            gradient->reference(both.values, both.sizes, gradient->scalar_values().data(), Dtype::f32);
        const std::vector<std::size_t> outputs = gradient->with_role(Role::output);
        for (std::size_t k = 0; k < outputs.size(); k++) {
            const std::string_view name = gradient->operands[outputs[k]].name;
            if (name == "dbias") {
                Row bias(7);
                for (std::size_t i = 0; i < bias.size(); i++) {
                    const double middle = both.weighed(bias);
                    bias[i] = 1;
                    EXPECT_NEAR(got[k][0][i].value, both.weighed(bias) - middle, 1e-10) << gradient->label;
                    bias[i] = 0;
                }
                continue;
            }
            operations::Rows &moved = both.named(name.substr(1));
            for (std::size_t row = 0; row < moved.size(); row++) {
                for (std::size_t i = 0; i < moved[row].size(); i++) {
                    EXPECT_NEAR(got[k][row][i].value, both.slope_at(moved[row][i]), 1e-9)
                        << gradient->label << ", " << name << " " << row << ", " << i;
                }
            }
        }
    }
}

TEST(SoftmaxGradientReference, IsTheSlopeOfTheSumThatDyWeighs) {
    HALYARD_TEST_NEEDS(is_built("softmax_backward"))
    const double scale = -0.7, h = 1e-3;
    Row x, dy;
    for (std::int64_t i = 0; i < 9; i++) {
        x.push_back(bell(20, 0, i));
        dy.push_back(bell(21, 0, i));
    }
    const auto weighed = [&] {
        const Row y = values_of(softmax(x, scale, Dtype::f32));
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); i++) {
            sum += dy[i] * y[i];
        }
        return sum;
    };
    const Row got = values_of(softmax_gradient(values_of(softmax(x, scale, Dtype::f32)), dy, scale));
    for (std::size_t i = 0; i < x.size(); i++) {
        const double middle = x[i];
        const auto f = [&](double offset) {
            x[i] = middle + offset;
            return weighed();
        };
        EXPECT_NEAR(got[i], (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h), 1e-11) << i;
        x[i] = middle;
    }
}

class NormGradient : public testing::TestWithParam<Dtype> {};

/** What halyard_layer_norm_backward takes, with everything that it may take. */
struct LayerNormBackward {
    static constexpr std::int64_t d = 70;
    Tensor x, weight, dy, dx, dweight, dbias;

    explicit LayerNormBackward(Dtype type, std::int64_t rows)
        : x(type, {{rows, d}, {}}), weight(type, {{d}, {}}), dy(type, {{rows, d}, {}}), dx(type, {{rows, d}, {}}),
          dweight(Dtype::f32, {{d}, {}}), dbias(Dtype::f32, {{d}, {}}) {
        x.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
        dy.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
        weight.fill([](std::int64_t row, std::int64_t i) { return 1 + bell(3, row, i); });
        dweight.fill([](std::int64_t, std::int64_t i) { return static_cast<double>(i) + 0.5; });
        dbias.fill([](std::int64_t, std::int64_t i) { return static_cast<double>(i) - 0.5; });
    }

    /** Calls it with rows [first, end). */
    halyard_status call(std::int64_t first, std::int64_t end, bool accumulate) {
        const auto part = [&](const Tensor &tensor, std::int64_t(&shape)[2]) {
            DLTensor view = tensor.view;
            shape[0] = end - first;
            shape[1] = d;
            view.shape = shape;
            view.data = static_cast<char *>(view.data) + static_cast<std::size_t>(first * d) * size_of(tensor.dtype());
            return view;
        };
        std::int64_t shapes[3][2];
        DLTensor xs = part(x, shapes[0]), dys = part(dy, shapes[1]), dxs = part(dx, shapes[2]);
        return halyard_layer_norm_backward(nullptr, &xs, &weight.view, 1e-5f, &dys, nullptr, accumulate ? 1 : 0, &dxs,
                                           &dweight.view, &dbias.view);
    }
};

TEST_P(NormGradient, OfPartsThatAccumulateHasTheBitsOfTheWhole) {
    HALYARD_TEST_NEEDS(is_built("layer_norm_backward"))
    constexpr std::int64_t rows = 5 * column_sum_rows + 3;
    for (const bool begins_at_zero : {true, false}) {
        LayerNormBackward whole(GetParam(), rows), parts(GetParam(), rows);
        ASSERT_EQ(whole.call(0, rows, !begins_at_zero), HALYARD_OK) << halyard_last_error();
        for (const auto &[first, end] : {std::pair{0, 1}, {1, 3}, {3, 6}}) {
            ASSERT_EQ(parts.call(first * column_sum_rows, std::min<std::int64_t>(end * column_sum_rows, rows),
                                 !begins_at_zero || first > 0),
                      HALYARD_OK);
        }
        EXPECT_TRUE(same_bits(Dtype::f32, whole.dweight.all_bits(), parts.dweight.all_bits()));
        EXPECT_TRUE(same_bits(Dtype::f32, whole.dbias.all_bits(), parts.dbias.all_bits()));
        EXPECT_TRUE(same_bits(GetParam(), whole.dx.all_bits(), parts.dx.all_bits()));
    }
}

TEST_P(NormGradient, OfNoRowsIsZeroOrWhatWasThere) {
    HALYARD_TEST_NEEDS(is_built("layer_norm_backward"))
    LayerNormBackward none(GetParam(), 1);
    ASSERT_EQ(none.call(0, 0, true), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(none.dweight.get(0, 3), 3.5);
    EXPECT_EQ(none.dbias.get(0, 3), 2.5);
    ASSERT_EQ(none.call(0, 0, false), HALYARD_OK) << halyard_last_error();
    for (std::int64_t i = 0; i < LayerNormBackward::d; i++) {
        EXPECT_EQ(none.dweight.bits(0, i), 0U);
        EXPECT_EQ(none.dbias.bits(0, i), 0U);
    }
}

TEST_P(NormGradient, OfARowWithoutDeviationIsZeroWithoutEps) {
    for (const Operation *gradient : norm_gradients()) {
        for (const halyard_isa isa : row_isas()) {
            Invocation call(*gradient, GetParam(), {2, 67});
            call.fill(5);
            const bool is_layer_norm = gradient->function == "halyard_layer_norm_backward";
            call.tensors[0]->fill([&](std::int64_t, std::int64_t) { return is_layer_norm ? 1e4 : 0; });
            call.scalars[0] = 0;
            ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(call.check(call.expected()));
            const std::size_t dx = place_of(*gradient, "dx"), added = place_of(*gradient, "dresidual_out");
            for (std::int64_t i = 0; i < 67; i++) {
                const double expected = added < gradient->operands.size() ? call.tensors[added]->get(1, i) : 0;
                EXPECT_EQ(call.tensors[dx]->get(1, i), expected) << call.describe();
            }
        }
    }
}

TEST_P(NormGradient, RefusesWhatCannotBe) {
    HALYARD_TEST_NEEDS(is_built("layer_norm_backward"))
    const auto refused = [](const char *name, halyard_status status) {
        EXPECT_EQ(status, HALYARD_INVALID_ARGUMENT) << name;
        EXPECT_NE(std::string(halyard_last_error()).find(name), std::string::npos) << halyard_last_error();
    };
    LayerNormBackward good(GetParam(), 4);
    Tensor narrow(Dtype::f32, {{LayerNormBackward::d - 1}, {}}), half(Dtype::bf16, {{LayerNormBackward::d}, {}});
    const auto call = [&](const DLTensor *weight, DLTensor *dweight, DLTensor *dbias) {
        return halyard_layer_norm_backward(nullptr, &good.x.view, weight, 1e-5f, &good.dy.view, nullptr, 0,
                                           &good.dx.view, dweight, dbias);
    };
    refused("dweight", call(&good.weight.view, &narrow.view, nullptr));
    refused("dweight", call(&good.weight.view, &half.view, nullptr));
    refused("dbias", call(&good.weight.view, nullptr, &half.view));
    refused("dweight", call(nullptr, &good.dweight.view, nullptr));
    refused("dbias", call(&good.weight.view, &good.dweight.view, &good.dweight.view));
    EXPECT_EQ(call(nullptr, nullptr, &good.dbias.view), HALYARD_OK) << halyard_last_error();
}

INSTANTIATE_TEST_SUITE_P(Types, NormGradient, testing::ValuesIn(all_dtypes),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

}  // namespace
}  // namespace halyard::tests
