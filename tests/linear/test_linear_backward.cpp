// Gradients of linear layers: the float64 references against slopes of the forward formula, every output against them within derived
// bounds, the bits of other threads, instruction sets and cuts of the batch, and what is refused.
//
// dz of an activation or a gated unit has the reference and the bound of that gradient's own operation.
#include <cmath>
#include <cstring>
#include <limits>

#include "operations/reference_gradients.h"
#include "support/linear.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

/** One way to call it. */
struct BackwardForm {
    Shape leading = {3};
    std::int64_t in = 5, out = 4;
    bool gated = false;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0;
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    std::int64_t gap = 0;  // elements between rows, of every tensor
    bool accumulate = false;

    bool has_sums() const { return gated || activation != HALYARD_IDENTITY; }
};

/** The operation whose gradient dz is, with its scalars. */
std::pair<std::string, std::vector<double>> gradient_of(const BackwardForm &form) {
    const double beta = static_cast<double>(form.beta);
    if (!form.gated) {
        return {std::string(layer_activation(form.activation).name) + "_backward", {beta}};
    }
    switch (form.activation) {
    case HALYARD_IDENTITY:
        return {"bilinear_backward", {}};
    case HALYARD_RELU:
        return {"reglu_backward", {}};
    case HALYARD_GELU:
        return {"geglu_backward", {}};
    case HALYARD_GELU_TANH:
        return {"geglu_tanh_backward", {}};
    case HALYARD_SIGMOID:
        return {"glu_backward", {}};
    default:
        return {"swiglu_backward", {form.activation == HALYARD_SILU ? 1.0 : beta}};
    }
}

/** For one or two matrices. */
using Pair = std::vector<Matrix>;

/** dz of the rows; of gated weights dgate and dup. */
Pair expected_dz(const BackwardForm &form, const std::vector<Row> &sums, const std::vector<Row> &sums_up,
                 const std::vector<Row> &dy) {
    if (!form.has_sums()) {
        return {operations::exact_rows(dy)};
    }
    const auto [label, scalars] = gradient_of(form);
    const Sizes sizes = Sizes::of_rows({static_cast<std::int64_t>(dy.size()), static_cast<std::int64_t>(dy[0].size())});
    const auto values = form.gated ? std::vector<operations::Rows>{sums, sums_up, dy, {}, {}}
                                   : std::vector<operations::Rows>{sums, dy, {}};
    return operation(label).reference(values, sizes, scalars.data(), Dtype::f32);
}

/** Rows [out][in] of what was packed. */
std::vector<Row> rows_of_matrix(const WeightMatrix &matrix) {
    std::vector<Row> rows(static_cast<std::size_t>(matrix.out));
    for (std::size_t i = 0; i < matrix.values.size(); i++) {
        rows[i % rows.size()].push_back(matrix.values[i]);
    }
    return rows;
}

Matrix transposed(const Matrix &matrix) {
    Matrix result(matrix[0].size());
    for (const ExpectedRow &row : matrix) {
        for (std::size_t i = 0; i < row.size(); i++) {
            result[i].push_back(row[i]);
        }
    }
    return result;
}

std::vector<Row> transposed(const std::vector<Row> &matrix) {
    std::vector<Row> result(matrix[0].size());
    for (const Row &row : matrix) {
        for (std::size_t i = 0; i < row.size(); i++) {
            result[i].push_back(row[i]);
        }
    }
    return result;
}

/** dx of both matrices: gate and up take turns by 16 outputs. */
Matrix expected_dx(const Pair &dz, const LayerValues &values) {
    std::vector<Row> weight = rows_of_matrix(values.matrix);
    Matrix joined = dz[0];
    auto inputs = static_cast<std::int64_t>(weight.size());
    if (values.up) {
        const std::vector<Row> up = rows_of_matrix(*values.up);
        weight.insert(weight.end(), up.begin(), up.end());
        inputs = 2 * ((inputs + 15) / 16 * 16);
        for (std::size_t row = 0; row < joined.size(); row++) {
            joined[row].insert(joined[row].end(), dz[1][row].begin(), dz[1][row].end());
        }
    }
    return operations::linear_input_gradient(joined, weight, inputs);
}

/** A call with everything that it may take. */
class Backward {
public:
    Backward(const Weights &weights, const BackwardForm &form, std::uint64_t seed = 1)
        : weights(weights), form(form), x(rows_of_width(form.in)), dy(rows_of_width(form.out)),
          sums(rows_of_width(form.out)), sums_up(rows_of_width(form.out)), dx(rows_of_width(form.in)),
          dweight(matrix()), dweight_up(matrix()), dbias(vector()), dbias_up(vector()) {
        fill_rows(x, seed);
        fill_rows(dy, seed + 1);
        fill_rows(sums, seed + 2);
        fill_rows(sums_up, seed + 3);
        std::uint64_t next = seed + 4;
        for (Tensor *const tensor : {&dweight, &dweight_up, &dbias, &dbias_up}) {
            tensor->fill([&](std::int64_t row, std::int64_t i) { return form.accumulate ? bell(next, row, i) : 0; });
            next++;
        }
        options.activation = form.activation;
        options.beta = form.beta;
        options.sums = form.has_sums() ? &sums.view : nullptr;
        options.sums_up = form.gated ? &sums_up.view : nullptr;
        gradients.dx = &dx.view;
        gradients.dweight = &dweight.view;
        gradients.dbias = &dbias.view;
        gradients.dweight_up = form.gated ? &dweight_up.view : nullptr;
        gradients.dbias_up = form.gated ? &dbias_up.view : nullptr;
        gradients.layout = form.layout;
        gradients.accumulate = form.accumulate ? 1 : 0;
    }

    const Weights &weights;
    const BackwardForm form;
    Tensor x, dy, sums, sums_up, dx, dweight, dweight_up, dbias, dbias_up;
    halyard_linear_options options{};
    halyard_linear_gradients gradients{};

    halyard_status run(const halyard_context *context) {
        return halyard_linear_backward(context, &x.view, weights.get(), &dy.view, &options, &gradients);
    }
    halyard_status run(const Context &context) { return run(context.get()); }

    /** With rows [first, end), where there is one leading axis. */
    halyard_status run_rows(const halyard_context *context, std::int64_t first, std::int64_t end, bool accumulate) {
        std::vector<DLTensor> views;
        std::vector<Shape> shapes;
        views.reserve(5);
        shapes.reserve(5);
        const auto part = [&](const Tensor &tensor) {
            DLTensor &view = views.emplace_back(tensor.view);
            view.shape = shapes.emplace_back(Shape{end - first, tensor.width()}).data();
            view.data = tensor.at(first, 0);
            return &view;
        };
        halyard_linear_options of_rows = options;
        halyard_linear_gradients to = gradients;
        of_rows.sums = options.sums != nullptr ? part(sums) : nullptr;
        of_rows.sums_up = options.sums_up != nullptr ? part(sums_up) : nullptr;
        to.dx = part(dx);
        to.accumulate = accumulate ? 1 : 0;
        const DLTensor *const rows_of_x = part(x), *const rows_of_dy = part(dy);
        return halyard_linear_backward(context, rows_of_x, weights.get(), rows_of_dy, &of_rows, &to);
    }

    std::vector<const Tensor *> outputs() const {
        return form.gated ? std::vector<const Tensor *>{&dx, &dweight, &dbias, &dweight_up, &dbias_up}
                          : std::vector<const Tensor *>{&dx, &dweight, &dbias};
    }
    std::vector<std::uint32_t> bits() const {
        std::vector<std::uint32_t> all;
        for (const Tensor *const tensor : outputs()) {
            const std::vector<std::uint32_t> of_one = tensor->all_bits();
            all.insert(all.end(), of_one.begin(), of_one.end());
        }
        return all;
    }

    /** By output, from what the tensors hold before the call. */
    std::vector<Matrix> expected() const {
        const Pair dz = expected_dz(form, rows_of(sums), rows_of(sums_up), rows_of(dy));
        std::vector<Matrix> all = {expected_dx(dz, weights.values)};
        const auto add = [&](const Matrix &of, const Tensor &weight, const Tensor &bias) {
            const bool in_out = form.layout == HALYARD_WEIGHT_IN_OUT;
            std::vector<Row> start, bias_start;
            if (form.accumulate) {
                start = in_out ? transposed(rows_of(weight)) : rows_of(weight);
                bias_start = transposed(rows_of(bias));
            }
            const Matrix gradient = operations::linear_weight_gradient(of, rows_of(x), start);
            all.push_back(in_out ? transposed(gradient) : gradient);
            // A sum over rows is the product with rows of 1; blocks of 32 rows are no worse an order than those of 512.
            const std::vector<Row> ones(of.size(), Row{1.0});
            all.push_back(transposed(operations::linear_weight_gradient(of, ones, bias_start)));
        };
        add(dz[0], dweight, dbias);
        if (form.gated) {
            add(dz[1], dweight_up, dbias_up);
        }
        return all;
    }

    testing::AssertionResult check(const std::vector<Matrix> &expected) const {
        const std::vector<const Tensor *> all = outputs();
        const char *const names[] = {"dx", "dweight", "dbias", "dweight_up", "dbias_up"};
        for (std::size_t i = 0; i < all.size(); i++) {
            const testing::AssertionResult right = as_expected(*all[i], expected[i]);
            if (!right) {
                return testing::AssertionFailure() << names[i] << ": " << right.message() << "\n  of " << describe();
            }
        }
        for (const Tensor *const tensor : {&x, &dy, &sums, &sums_up, &dx, &dweight, &dweight_up, &dbias, &dbias_up}) {
            if (!tensor->surroundings_intact()) {
                return testing::AssertionFailure() << "memory outside a tensor was written by " << describe();
            }
        }
        return weights.intact() ? testing::AssertionSuccess()
                                : testing::AssertionFailure() << "the weights were written by " << describe();
    }

    std::string describe() const {
        return "x " + to_string(x.shape()) + ", " + std::to_string(form.out) + " outputs, " +
               layer_activation(form.activation).name + (form.gated ? ", gated" : "") +
               (form.layout == HALYARD_WEIGHT_IN_OUT ? ", [in, out]" : "") + ", gap " + std::to_string(form.gap) +
               (form.accumulate ? ", accumulates" : "");
    }

private:
    Tensor with_gap(Shape shape) const {
        return Tensor(Dtype::f32, {shape, form.gap > 0 ? padded_strides(shape, form.gap) : Shape{}});
    }
    Tensor rows_of_width(std::int64_t width) const {
        Shape shape = form.leading;
        shape.push_back(width);
        return with_gap(shape);
    }
    Tensor matrix() const {
        return with_gap(form.layout == HALYARD_WEIGHT_OUT_IN ? Shape{form.out, form.in} : Shape{form.in, form.out});
    }
    Tensor vector() const { return Tensor(Dtype::f32, {{form.out}, {}}); }
};

Weights weights_for(const BackwardForm &form) {
    return Weights(weight_form(Dtype::f32, form.in, form.out, form.gated, 5));
}

// ---- The references ----

/** y of one row by the formula, in double. */
double formula(const BackwardForm &form, const Row &x, const std::vector<Row> &weight, const std::vector<Row> &up,
               const Row &bias, const Row &bias_up, std::size_t out) {
    const auto sum_of = [&](const std::vector<Row> &matrix, const Row &added) {
        double sum = added[out];
        for (std::size_t in = 0; in < x.size(); in++) {
            sum += x[in] * matrix[out][in];
        }
        return sum;
    };
    const double value = layer_activation(form.activation).at(sum_of(weight, bias), static_cast<double>(form.beta));
    return form.gated ? value * sum_of(up, bias_up) : value;
}

TEST(LinearGradientReference, IsTheSlopeOfTheSumThatDyWeighs) {
    for (const bool gated : {false, true}) {
        for (const halyard_activation activation : {HALYARD_IDENTITY, HALYARD_GELU, HALYARD_SWISH}) {
            BackwardForm form;
            form.gated = gated;
            form.activation = activation;
            form.beta = 1.25f;
            const Weights packed = weights_for(form);
            const Backward call(packed, form);
            std::vector<Row> x = rows_of(call.x), dy = rows_of(call.dy), weight = rows_of_matrix(packed.values.matrix);
            std::vector<Row> up = gated ? rows_of_matrix(*packed.values.up) : weight;
            Row bias = {0.1, -0.2, 0.3, 0.4}, bias_up = {0.5, 0.6, -0.7, 0.8};
            const auto weighed = [&] {
                double sum = 0;
                for (std::size_t row = 0; row < x.size(); row++) {
                    for (std::size_t out = 0; out < 4; out++) {
                        sum += dy[row][out] * formula(form, x[row], weight, up, bias, bias_up, out);
                    }
                }
                return sum;
            };
            const auto slope_at = [&](double &parameter) {
                const double middle = parameter, h = 1e-3;
                const auto f = [&](double offset) {
                    parameter = middle + offset;
                    return weighed();
                };
                const double slope = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
                parameter = middle;
                return slope;
            };
            std::vector<Row> sums(3), sums_up(3);
            for (std::size_t row = 0; row < 3; row++) {
                BackwardForm plain;
                for (std::size_t out = 0; out < 4; out++) {
                    sums[row].push_back(formula(plain, x[row], weight, up, bias, bias_up, out));
                    sums_up[row].push_back(formula(plain, x[row], up, up, bias_up, bias_up, out));
                }
            }
            const Pair dz = expected_dz(form, sums, sums_up, dy);
            const Matrix dx = expected_dx(dz, packed.values);
            for (std::size_t row = 0; row < 3; row++) {
                for (std::size_t in = 0; in < 5; in++) {
                    EXPECT_NEAR(dx[row][in].value, slope_at(x[row][in]), 1e-8) << row << " " << in;
                }
            }
            for (std::size_t k = 0; k < dz.size(); k++) {
                const Matrix dweight = operations::linear_weight_gradient(dz[k], x, {});
                const Matrix dbias = operations::linear_weight_gradient(dz[k], std::vector<Row>(3, Row{1.0}), {});
                for (std::size_t out = 0; out < 4; out++) {
                    for (std::size_t in = 0; in < 5; in++) {
                        EXPECT_NEAR(dweight[out][in].value, slope_at((k == 0 ? weight : up)[out][in]), 1e-8);
                    }
                    EXPECT_NEAR(dbias[out][0].value, slope_at((k == 0 ? bias : bias_up)[out]), 1e-8);
                }
            }
        }
    }
}

// ---- Results ----

std::vector<BackwardForm> forms() {
    std::vector<BackwardForm> all;
    const auto add = [&](Shape leading, std::int64_t in, std::int64_t out, std::int64_t gap = 0) {
        for (const bool gated : {false, true}) {
            BackwardForm form;
            form.leading = leading;
            form.in = in;
            form.out = out;
            form.gap = gap;
            form.gated = gated;
            form.layout = all.size() % 4 < 2 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
            form.accumulate = all.size() % 3 == 1;
            form.activation = all.size() % 5 > 2 ? HALYARD_SILU : HALYARD_IDENTITY;
            all.push_back(form);
        }
    };
    add({1}, 1, 1);
    add({1}, 33, 17, 3);
    add({3}, 64, 48);
    add({17}, 17, 33);
    add({17}, 33, 17, 5);
    add({2, 3, 5}, 20, 600, 1);
    add({513}, 18, 35);
    add({300}, 530, 1);
    add({2100}, 5, 7);
    add({2100}, 48, 96, 1);  // sums of several blocks are made in the gradients themselves
    for (const LayerActivation &activation : operations::layer_activations()) {
        for (const bool gated : {false, true}) {
            BackwardForm form = {{2, 11}, 19, 21, gated, activation.value, 1.25f};
            const bool has_unit = gradient_of(form).first != "swiglu_backward" || activation.value == HALYARD_SILU ||
                                  activation.value == HALYARD_SWISH;
            if (!gated || has_unit) {
                all.push_back(form);
            }
        }
    }
    return all;
}

TEST(LinearBackward, IsWithinItsBoundsOfTheReference) {
    const std::vector<int> thread_counts = emulated ? std::vector<int>{3} : std::vector<int>{1, 3};
    for (const BackwardForm &form : forms()) {
        const Weights weights = weights_for(form);
        std::vector<Matrix> expected;
        for (const halyard_isa isa : row_isas()) {
            for (const int threads : thread_counts) {
                Backward call(weights, form);
                expected = expected.empty() ? call.expected() : expected;
                ASSERT_EQ(call.run(Context(isa, threads)), HALYARD_OK) << halyard_last_error() << call.describe();
                EXPECT_TRUE(call.check(expected)) << halyard_isa_name(isa) << ", " << threads << " threads";
            }
        }
    }
}

TEST(LinearBackward, HasTheSameBitsWithAnyThreadsAndFusedInstructionSet) {
    for (const BackwardForm &form :
         {BackwardForm{{513}, 100, 300}, BackwardForm{{300}, 300, 170, true, HALYARD_GELU}}) {
        const Weights weights = weights_for(form);
        std::vector<std::uint32_t> fused;
        for (const halyard_isa isa : row_isas()) {
            std::vector<std::uint32_t> first;
            for (int threads = 1; threads <= 8; threads += emulated ? 6 : 1) {
                Backward call(weights, form);
                ASSERT_EQ(call.run(Context(isa, threads)), HALYARD_OK) << halyard_last_error();
                first = threads == 1 ? call.bits() : first;
                EXPECT_TRUE(same_bits(Dtype::f32, first, call.bits())) << halyard_isa_name(isa) << ", " << threads;
            }
            if (isa != HALYARD_ISA_SSE41) {  // which rounds products
                fused = fused.empty() ? first : fused;
                EXPECT_TRUE(same_bits(Dtype::f32, fused, first)) << halyard_isa_name(isa);
            }
        }
    }
}

TEST(LinearBackward, OfPartsThatAccumulateHasTheBitsOfTheWhole) {
    constexpr std::int64_t block = 512, rows = 5 * block + 100;
    for (const bool gated : {false, true}) {
        for (const halyard_weight_layout layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
            for (const bool accumulate : {false, true}) {
                BackwardForm form = {{rows}, 20, 18, gated, HALYARD_SILU};
                form.layout = layout;
                form.accumulate = accumulate;
                const Weights weights = weights_for(form);
                Backward whole(weights, form), parts(weights, form);
                ASSERT_EQ(whole.run(nullptr), HALYARD_OK) << halyard_last_error();
                for (const auto &[first, end] :
                     {std::pair<std::int64_t, std::int64_t>{0, block}, {block, 3 * block}, {3 * block, rows}}) {
                    ASSERT_EQ(parts.run_rows(nullptr, first, end, accumulate || first > 0), HALYARD_OK)
                        << halyard_last_error();
                }
                EXPECT_TRUE(same_bits(Dtype::f32, whole.bits(), parts.bits())) << whole.describe();
            }
        }
    }
}

// A row of dx is a function of its own row; every gradient is what it is without the others.
TEST(LinearBackward, GivesEachGradientByItselfAndEachRowByItself) {
    const BackwardForm form = {{37}, 40, 50, true, HALYARD_SIGMOID};
    const Weights weights = weights_for(form);
    Backward all(weights, form);
    ASSERT_EQ(all.run(nullptr), HALYARD_OK) << halyard_last_error();
    for (DLTensor *halyard_linear_gradients::*const wanted :
         {&halyard_linear_gradients::dx, &halyard_linear_gradients::dweight, &halyard_linear_gradients::dweight_up,
          &halyard_linear_gradients::dbias, &halyard_linear_gradients::dbias_up}) {
        Backward one(weights, form), untouched(weights, form);
        const DLTensor *const tensor = one.gradients.*wanted;
        one.gradients = {};
        one.gradients.*wanted = const_cast<DLTensor *>(tensor);
        ASSERT_EQ(one.run(nullptr), HALYARD_OK) << halyard_last_error();
        for (std::size_t i = 0; i < all.outputs().size(); i++) {
            const Backward &like = &one.outputs()[i]->view == tensor ? all : untouched;
            EXPECT_TRUE(same_bits(Dtype::f32, like.outputs()[i]->all_bits(), one.outputs()[i]->all_bits())) << i;
        }
    }
    Backward row(weights, form);
    for (std::int64_t i = 0; i < 37; i++) {
        ASSERT_EQ(row.run_rows(nullptr, i, i + 1, false), HALYARD_OK);
    }
    EXPECT_TRUE(same_bits(Dtype::f32, all.dx.all_bits(), row.dx.all_bits()));
    Backward none(weights, form);
    none.gradients = {};
    EXPECT_EQ(none.run(nullptr), HALYARD_OK) << halyard_last_error();
}

TEST(LinearBackward, OfNoRowsIsZeroOrWhatWasThere) {
    for (const bool accumulate : {true, false}) {
        BackwardForm form = {{3}, 6, 7, true, HALYARD_SILU};
        form.accumulate = true;
        form.gap = 2;
        const Weights weights = weights_for(form);
        Backward call(weights, form);
        const double was[] = {call.dweight.get(6, 5), call.dbias_up.get(0, 6)};
        ASSERT_EQ(call.run_rows(nullptr, 0, 0, accumulate), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.dweight.get(6, 5), accumulate ? was[0] : 0);
        EXPECT_EQ(call.dbias_up.get(0, 6), accumulate ? was[1] : 0);
        EXPECT_TRUE(call.dweight.surroundings_intact());
    }
}

TEST(LinearBackward, PropagatesInfinityAndNanAsTheFormulaSays) {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    for (const bool gated : {false, true}) {
        const BackwardForm form = {{20}, 18, 35, gated, HALYARD_IDENTITY};
        Weights::Value value = [&](int matrix, std::int64_t k, std::int64_t n) {
            return k == 3 && n == 34 ? infinity : k == 17 && n == 2 ? nan : bell(matrix + 3, k, n);
        };
        const Weights weights(weight_form(Dtype::f32, form.in, form.out, gated), value);
        for (const double special : {infinity, -infinity, nan, 0.0}) {
            for (const halyard_isa isa : supported_isas()) {
                Backward call(weights, form);
                call.x.set(7, 4, special);
                call.dy.set(9, 33, special);
                call.dy.set(5, 34, 0);  // times an infinite weight
                if (gated) {
                    call.sums.set(2, 1, special);
                }
                const std::vector<Matrix> expected = call.expected();
                ASSERT_EQ(call.run(Context(isa)), HALYARD_OK);
                EXPECT_TRUE(call.check(expected)) << special << " with " << halyard_isa_name(isa);
            }
        }
    }
}

TEST(LinearBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("linear_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const BackwardForm &form : forms()) {
            if (form.leading == Shape{2, 11}) {  // all activations on one shape
                BitsHash results;
                const Weights weights = weights_for(form);
                Backward call(weights, form, 71);
                EXPECT_EQ(call.run(context), HALYARD_OK) << halyard_last_error();
                results.add(call.bits());
                hashes[std::string(layer_activation(form.activation).name) + (form.gated ? "_gated" : "")] =
                    results.text();
            }
        }
        for (const std::int64_t rows : {1, 7, 513, 1100}) {
            BackwardForm form = {{rows}, 530, 37};
            form.accumulate = true;
            const Weights weights = weights_for(form);
            Backward call(weights, form, 73);
            EXPECT_EQ(call.run(context), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(call.bits());
            hashes["rows_" + std::to_string(rows)] = results.text();
        }
        return hashes;
    });
}

// ---- What the forward call writes ----

TEST(LinearSums, AreWhatTheActivationIsAppliedTo) {
    for (const halyard_isa isa : supported_isas()) {
        for (const Types &types : all_types()) {
            for (const bool gated : {false, true}) {
                const Weights weights(weight_form(types.w, 70, 53, gated));
                LinearCall plain(weights, call_form(types.x, types.y, {2, 9}, 3, 2)),
                    with_sums(weights, call_form(types.x, types.y, {2, 9}, 3, 2));
                const Shape shape = {2, 9, 53};
                Tensor sums(Dtype::f32, {shape, padded_strides(shape, 5)}), sums_up(Dtype::f32, {shape, {}});
                for (LinearCall *const call : {&plain, &with_sums}) {
                    call->add_bias(Dtype::f32);
                    if (gated) {
                        call->add_bias_up(Dtype::f32);
                    }
                    call->add_row_scale();
                    call->activate(HALYARD_RELU);
                }
                with_sums.options.sums = &sums.view;
                with_sums.options.sums_up = gated ? &sums_up.view : nullptr;
                const Context context(isa, 2);
                ASSERT_EQ(plain.run(context.get()), HALYARD_OK);
                ASSERT_EQ(with_sums.run(context.get()), HALYARD_OK) << halyard_last_error();
                EXPECT_TRUE(same_rows(plain.y, with_sums.y));
                EXPECT_TRUE(sums.surroundings_intact() && sums_up.surroundings_intact());
                for (std::int64_t row = 0; row < 18; row++) {
                    for (std::int64_t i = 0; i < 53; i++) {
                        const float gate = static_cast<float>(std::fmax(sums.get(row, i), 0.0));
                        const float y = gated ? gate * static_cast<float>(sums_up.get(row, i)) : gate;
                        ASSERT_EQ(with_sums.y.get(row, i), round_to(types.y, static_cast<double>(y)))
                            << row << " " << i << ", " << halyard_isa_name(isa);
                    }
                }
            }
        }
    }
}

TEST(LinearSums, AreRefusedWhereTheyCannotBeWritten) {
    const Weights plain(weight_form(Dtype::f32, 6, 7)), gated(weight_form(Dtype::f32, 6, 7, true));
    Tensor right(Dtype::f32, {{3, 7}, {}}), narrow(Dtype::f32, {{3, 6}, {}}), half(Dtype::f16, {{3, 7}, {}});
    const auto status = [&](const Weights &weights, DLTensor *sums, DLTensor *sums_up) {
        LinearCall call(weights, f32_rows(3));
        call.options.sums = sums;
        call.options.sums_up = sums_up;
        return call.run(nullptr);
    };
    const char *const function = "halyard_linear";
    EXPECT_TRUE(refused(status(plain, &narrow.view, nullptr), HALYARD_INVALID_ARGUMENT, function, "sums"));
    EXPECT_TRUE(refused(status(plain, &half.view, nullptr), HALYARD_UNSUPPORTED, function, "sums"));
    EXPECT_TRUE(refused(status(plain, &right.view, &right.view), HALYARD_INVALID_ARGUMENT, function, "sums_up"));
    EXPECT_TRUE(refused(status(gated, &right.view, nullptr), HALYARD_INVALID_ARGUMENT, function, "sums_up"));
    EXPECT_TRUE(refused(status(gated, nullptr, &right.view), HALYARD_INVALID_ARGUMENT, function, "sums_up"));
    EXPECT_TRUE(refused(status(gated, &right.view, &right.view), HALYARD_INVALID_ARGUMENT, function, "sums_up"));
    LinearCall call(plain, f32_rows(3));
    call.options.sums = &call.y.view;
    EXPECT_TRUE(refused(call.run(nullptr), HALYARD_INVALID_ARGUMENT, function, "sums"));
}

// ---- Refusals ----

/** Expects a call that `change` has spoiled to be refused, and to write nothing. */
template<typename Change>
void expect_refused(const Weights &weights, const BackwardForm &form, halyard_status status, const char *argument,
                    const Change &change) {
    Backward call(weights, form);
    change(call);
    const std::vector<std::uint32_t> before = call.bits();
    EXPECT_TRUE(refused(call.run(nullptr), status, "halyard_linear_backward", argument)) << argument;
    EXPECT_TRUE(same_bits(Dtype::f32, before, call.bits())) << argument;
}

TEST(LinearBackward, RefusesWeightsWithoutGradient) {
    const BackwardForm form = {{3}, 64, 7};
    const auto nothing = [](Backward &) {};
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Weights narrow(weight_form(dtype, 64, 7));
        expect_refused(narrow, form, HALYARD_UNSUPPORTED, "weights", nothing);
    }
    WeightForm folds = weight_form(Dtype::f32, 64, 7);
    folds.norm_weight = true;
    expect_refused(Weights(folds), form, HALYARD_UNSUPPORTED, "weights", nothing);
    expect_refused(Weights(weight_form(Dtype::f32, 64, 8)), form, HALYARD_INVALID_ARGUMENT, "dy", nothing);
    expect_refused(Weights(weight_form(Dtype::f32, 63, 7)), form, HALYARD_INVALID_ARGUMENT, "x", nothing);

    Tensor matrix(Dtype::f32, {{7, 64}, {}});
    fill_rows(matrix, 3);
    halyard_pack_options options{};
    options.quantization = {8, 32, 0, {}};
    halyard_weights *codes = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, &matrix.view, &options, nullptr, 0, &codes), HALYARD_OK);
    const Weights plain(weight_form(Dtype::f32, 64, 7));
    Backward call(plain, form);
    EXPECT_TRUE(
        refused(halyard_linear_backward(nullptr, &call.x.view, codes, &call.dy.view, &call.options, &call.gradients),
                HALYARD_UNSUPPORTED, "halyard_linear_backward", "weights"));
    halyard_weights_destroy(codes);
}

TEST(LinearBackward, RefusesOptionsThatItCannotFollow) {
    const BackwardForm form = {{3}, 6, 7, false, HALYARD_SILU}, gated_form = {{3}, 6, 7, true, HALYARD_SILU};
    const Weights plain = weights_for(form), gated = weights_for(gated_form);
    Tensor scale(Dtype::f32, {{3}, {}}), narrow(Dtype::f32, {{3, 6}, {}}), half(Dtype::f16, {{3, 7}, {}});
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    expect_refused(plain, form, unsupported, "options.row_scale",
                   [&](Backward &c) { c.options.row_scale = &scale.view; });
    expect_refused(plain, form, unsupported, "options.row_mean",
                   [&](Backward &c) { c.options.row_mean = &scale.view; });
    expect_refused(plain, form, invalid, "options.sums", [](Backward &c) { c.options.sums = nullptr; });
    expect_refused(plain, form, invalid, "options.sums", [&](Backward &c) { c.options.sums = &narrow.view; });
    expect_refused(plain, form, unsupported, "options.sums", [&](Backward &c) { c.options.sums = &half.view; });
    expect_refused(plain, form, invalid, "options.sums_up", [](Backward &c) { c.options.sums_up = &c.sums_up.view; });
    expect_refused(gated, gated_form, invalid, "options.sums_up", [](Backward &c) { c.options.sums_up = nullptr; });
    expect_refused(plain, form, invalid, "options.activation",
                   [](Backward &c) { c.options.activation = static_cast<halyard_activation>(11); });
    for (const halyard_activation activation : {HALYARD_RELU2, HALYARD_GELU_SIGMOID, HALYARD_TANH, HALYARD_EXP}) {
        expect_refused(gated, gated_form, unsupported, "options.activation",
                       [&](Backward &c) { c.options.activation = activation; });
    }
    expect_refused(plain, form, invalid, "options.beta", [](Backward &c) {
        c.options.activation = HALYARD_SWISH;
        c.options.beta = std::numeric_limits<float>::infinity();
    });
}

TEST(LinearBackward, RefusesGradientsThatItCannotWrite) {
    const BackwardForm form = {{3}, 6, 7}, gated_form = {{3}, 6, 7, true};
    const Weights plain = weights_for(form), gated = weights_for(gated_form);
    Tensor turned(Dtype::f32, {{6, 7}, {}}), vector(Dtype::f32, {{6}, {}}), half(Dtype::f16, {{7}, {}}),
        half_matrix(Dtype::f16, {{7, 6}, {}});
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    expect_refused(plain, form, invalid, "gradients.dweight", [&](Backward &c) { c.gradients.dweight = &turned.view; });
    expect_refused(plain, form, invalid, "gradients.dweight", [&](Backward &c) { c.gradients.dweight = &vector.view; });
    expect_refused(plain, form, unsupported, "gradients.dweight",
                   [&](Backward &c) { c.gradients.dweight = &half_matrix.view; });
    expect_refused(plain, form, invalid, "gradients.dbias", [&](Backward &c) { c.gradients.dbias = &vector.view; });
    expect_refused(plain, form, unsupported, "gradients.dbias", [&](Backward &c) { c.gradients.dbias = &half.view; });
    expect_refused(plain, form, invalid, "gradients.dx", [](Backward &c) { c.gradients.dx = &c.dy.view; });
    expect_refused(plain, form, invalid, "gradients.dweight_up",
                   [](Backward &c) { c.gradients.dweight_up = &c.dweight_up.view; });
    expect_refused(plain, form, invalid, "gradients.dbias_up",
                   [](Backward &c) { c.gradients.dbias_up = &c.dbias_up.view; });
    expect_refused(plain, form, invalid, "gradients.layout",
                   [](Backward &c) { c.gradients.layout = static_cast<halyard_weight_layout>(2); });
    expect_refused(plain, form, invalid, "gradients.dx", [](Backward &c) { c.gradients.dx = &c.x.view; });
    expect_refused(gated, gated_form, invalid, "gradients.dweight_up",
                   [](Backward &c) { c.gradients.dweight_up = &c.dweight.view; });
    expect_refused(gated, gated_form, invalid, "gradients.dbias_up",
                   [](Backward &c) { c.gradients.dbias_up = &c.dbias.view; });
    expect_refused(gated, gated_form, invalid, "gradients.dbias", [](Backward &c) {
        c.dbias.view.data = c.weights.packed();
        c.gradients.dbias = &c.dbias.view;
    });
    Backward call(plain, form);
    const auto status = [&](const DLTensor *x, const halyard_weights *weights, const DLTensor *dy,
                            const halyard_linear_gradients *gradients) {
        return halyard_linear_backward(nullptr, x, weights, dy, nullptr, gradients);
    };
    const char *const function = "halyard_linear_backward";
    DLTensor *const x = &call.x.view, *const dy = &call.dy.view;
    EXPECT_TRUE(refused(status(nullptr, plain.get(), dy, &call.gradients), invalid, function, "x"));
    EXPECT_TRUE(refused(status(x, nullptr, dy, &call.gradients), invalid, function, "weights"));
    EXPECT_TRUE(refused(status(x, plain.get(), nullptr, &call.gradients), invalid, function, "dy"));
    EXPECT_TRUE(refused(status(x, plain.get(), dy, nullptr), invalid, function, "gradients"));
    Tensor half_x(Dtype::f16, {{3, 6}, {}}), two_rows(Dtype::f32, {{2, 7}, {}});
    EXPECT_TRUE(refused(status(&half_x.view, plain.get(), dy, &call.gradients), unsupported, function, "x"));
    EXPECT_TRUE(refused(status(x, plain.get(), &two_rows.view, &call.gradients), invalid, function, "dy"));
}

}  // namespace
}  // namespace halyard::tests
