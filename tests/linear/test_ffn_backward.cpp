// Gradients of feed-forward networks as one call: bit by bit those of the calls they are made of, which have references of their own;
// slopes of the float64 formula; the bits of other threads and instruction sets, and what is refused.
#include <cmath>
#include <limits>

#include "support/ffn.h"
#include "support/reference_hashes.h"

namespace halyard::tests {
namespace {

/** A network, what its forward call wrote, and everything that its gradient may write. */
class FfnBackward {
public:
    explicit FfnBackward(const FfnForm &form, halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN,
                         bool accumulate = false)
        : ffn(form), dy(rows(form.d_model)), sums(rows(form.d_ff)), sums_up(rows(form.d_ff)), dx(rows(form.d_model)),
          dweight(matrix(layout, form.d_model, form.d_ff)), dweight_up(matrix(layout, form.d_model, form.d_ff)),
          dweight_down(matrix(layout, form.d_ff, form.d_model)), dbias(vector(form.d_ff)), dbias_up(vector(form.d_ff)),
          dbias_down(vector(form.d_model)), dnorm_weight(vector(form.d_model)), dnorm_bias(vector(form.d_model)) {
        fill_rows(dy, form.seed + 31);
        std::uint64_t seed = form.seed + 32;
        for (Tensor *const tensor : outputs()) {
            fill_rows(*tensor, seed++);
        }
        ffn.options.sums = &sums.view;
        ffn.options.sums_up = form.gated ? &sums_up.view : nullptr;
        gradients.dx = &dx.view;
        gradients.dweight = &dweight.view;
        gradients.dweight_up = form.gated ? &dweight_up.view : nullptr;
        gradients.dweight_down = &dweight_down.view;
        gradients.dbias = &dbias.view;
        gradients.dbias_up = form.gated ? &dbias_up.view : nullptr;
        gradients.dbias_down = &dbias_down.view;
        gradients.dnorm_weight = form.has_norm_weight() ? &dnorm_weight.view : nullptr;
        gradients.dnorm_bias = form.has_norm_bias() ? &dnorm_bias.view : nullptr;
        gradients.layout = layout;
        gradients.accumulate = accumulate ? 1 : 0;
    }

    Ffn ffn;
    Tensor dy, sums, sums_up, dx, dweight, dweight_up, dweight_down, dbias, dbias_up, dbias_down, dnorm_weight,
        dnorm_bias;
    halyard_ffn_gradients gradients{};

    std::vector<Tensor *> outputs() {
        return {&dx, &dweight, &dweight_up, &dweight_down, &dbias, &dbias_up, &dbias_down, &dnorm_weight, &dnorm_bias};
    }
    std::vector<std::uint32_t> bits() {
        std::vector<std::uint32_t> all;
        for (const Tensor *const tensor : outputs()) {
            const std::vector<std::uint32_t> of_one = tensor->all_bits();
            all.insert(all.end(), of_one.begin(), of_one.end());
        }
        return all;
    }

    halyard_status forward(const halyard_context *context) { return ffn.run(context); }
    halyard_status run(const halyard_context *context) {
        return halyard_ffn_backward(context, &ffn.x.view, ffn.up.get(), ffn.down.get(), &dy.view, &ffn.options,
                                    &gradients);
    }

    /** What both calls do, by calls of other functions. */
    void compose(const halyard_context *context) {
        Tensor n = rows(ffn.form.d_model), dn = rows(ffn.form.d_model), hidden = rows(ffn.form.d_ff),
               dhidden = rows(ffn.form.d_ff);
        const halyard_ffn_options &o = ffn.options;
        const bool normalizes = o.norm != HALYARD_NORM_NONE;
        halyard_status status = HALYARD_OK;
        if (o.norm == HALYARD_NORM_RMS) {
            status = halyard_rms_norm(context, &ffn.x.view, o.norm_weight, o.eps, o.norm_flags, &n.view);
        } else if (normalizes) {
            status = halyard_layer_norm(context, &ffn.x.view, o.norm_weight, o.norm_bias, o.eps, &n.view);
        }
        ASSERT_EQ(status, HALYARD_OK) << halyard_last_error();
        const DLTensor *const in = normalizes ? &n.view : &ffn.x.view;
        halyard_linear_options first{};
        first.activation = o.activation;
        first.beta = o.beta;
        first.bias = o.bias;
        first.bias_up = o.bias_up;
        first.sums = o.sums;
        first.sums_up = o.sums_up;
        ASSERT_EQ(halyard_linear(context, in, ffn.up.get(), &first, &hidden.view), HALYARD_OK) << halyard_last_error();

        halyard_linear_gradients second_gradients{}, first_gradients{};
        second_gradients.dx = &dhidden.view;
        second_gradients.dweight = gradients.dweight_down;
        second_gradients.dbias = gradients.dbias_down;
        first_gradients.dx = &dn.view;
        first_gradients.dweight = gradients.dweight;
        first_gradients.dweight_up = gradients.dweight_up;
        first_gradients.dbias = gradients.dbias;
        first_gradients.dbias_up = gradients.dbias_up;
        first_gradients.layout = second_gradients.layout = gradients.layout;
        first_gradients.accumulate = second_gradients.accumulate = gradients.accumulate;
        ASSERT_EQ(halyard_linear_backward(context, &hidden.view, ffn.down.get(), &dy.view, nullptr, &second_gradients),
                  HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_linear_backward(context, in, ffn.up.get(), &dhidden.view, &first, &first_gradients),
                  HALYARD_OK)
            << halyard_last_error();
        const DLTensor *const dresidual = o.residual != 0 ? &dy.view : nullptr;
        if (o.norm == HALYARD_NORM_RMS) {
            status = halyard_rms_norm_backward(context, &ffn.x.view, o.norm_weight, o.eps, o.norm_flags, &dn.view,
                                               dresidual, gradients.accumulate, &dx.view, gradients.dnorm_weight);
        } else if (normalizes) {
            status = halyard_layer_norm_backward(context, &ffn.x.view, o.norm_weight, o.eps, &dn.view, dresidual,
                                                 gradients.accumulate, &dx.view, gradients.dnorm_weight,
                                                 gradients.dnorm_bias);
        } else {
            for (std::int64_t row = 0; row < dn.rows(); row++) {
                for (std::int64_t i = 0; i < dn.width(); i++) {
                    dx.set(row, i,
                           static_cast<float>(dn.get(row, i)) +
                               (dresidual ? static_cast<float>(dy.get(row, i)) : 0.0f));
                }
            }
        }
        ASSERT_EQ(status, HALYARD_OK) << halyard_last_error();
    }

    bool surroundings_intact() {
        bool intact = ffn.surroundings_intact() && dy.surroundings_intact() && sums.surroundings_intact() &&
                      sums_up.surroundings_intact();
        for (const Tensor *const tensor : outputs()) {
            intact = intact && tensor->surroundings_intact();
        }
        return intact;
    }

private:
    Tensor rows(std::int64_t width) const {
        CallForm form;
        form.leading = ffn.form.leading;
        return Tensor(Dtype::f32, form.form_of(width, ffn.form.y_gap));
    }
    static Tensor matrix(halyard_weight_layout layout, std::int64_t in, std::int64_t out) {
        return Tensor(Dtype::f32, {layout == HALYARD_WEIGHT_OUT_IN ? Shape{out, in} : Shape{in, out}, {}});
    }
    static Tensor vector(std::int64_t width) { return Tensor(Dtype::f32, {{width}, {}}); }
};

bool has_gradient(const FfnForm &form) {
    const auto without_unit = {HALYARD_RELU2, HALYARD_GELU_SIGMOID, HALYARD_TANH, HALYARD_EXP};
    return !form.gated || std::find(without_unit.begin(), without_unit.end(), form.activation) == without_unit.end();
}

/** Every activation, norm and optional operand on some shape. */
std::vector<FfnForm> forms() {
    std::vector<FfnForm> all;
    int number = 0;
    for (const LayerActivation &activation : layer_activations()) {
        for (const bool gated : {false, true}) {
            for (const halyard_norm norm : {HALYARD_NORM_NONE, HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
                FfnForm form;
                form.activation = activation.value;
                form.beta = 1.25f;
                form.gated = gated;
                form.norm = norm;
                form.norm_flags = norm != HALYARD_NORM_RMS ? 0u
                                  : number % 2 == 0        ? unsigned{HALYARD_RMS_EPS_OUTSIDE_ROOT}
                                                           : unsigned{HALYARD_RMS_UNIT_OFFSET};
                form.norm_weight = number % 5 != 0;
                form.residual = number % 2 == 1;
                form.bias = number % 3 == 0;
                form.bias_up = gated && number % 4 == 0;
                form.bias_down = number % 3 == 1;
                form.leading = number % 3 == 2 ? Shape{2, 5} : Shape{1 + number % 9};
                form.d_model = 17 + number % 20;
                form.d_ff = 30 + number % 11;
                form.x_gap = number % 3;
                form.y_gap = number % 4;
                form.seed = static_cast<std::uint64_t>(number + 1);
                number++;
                if (has_gradient(form)) {
                    all.push_back(form);
                }
            }
        }
    }
    FfnForm large;
    large.leading = {530};
    large.d_model = 520;
    large.d_ff = 40;
    large.gated = true;
    large.activation = HALYARD_SILU;
    large.norm = HALYARD_NORM_RMS;
    large.residual = true;
    all.push_back(large);
    return all;
}

TEST(FfnBackward, HasTheBitsOfItsParts) {
    int number = 0;
    for (const FfnForm &form : forms()) {
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa);
            const auto layout = number % 2 == 0 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
            const bool accumulate = number++ % 3 == 0;
            FfnBackward one(form, layout, accumulate), parts(form, layout, accumulate);
            ASSERT_EQ(one.forward(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(one.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << one.ffn.describe();
            ASSERT_NO_FATAL_FAILURE(parts.compose(context.get()));
            ASSERT_TRUE(same_rows(parts.sums, one.sums)) << one.ffn.describe();
            ASSERT_TRUE(!form.gated || same_rows(parts.sums_up, one.sums_up)) << one.ffn.describe();
            ASSERT_TRUE(same_bits(Dtype::f32, parts.bits(), one.bits()))
                << halyard_isa_name(isa) << "; " << one.ffn.describe();
            ASSERT_TRUE(one.surroundings_intact()) << one.ffn.describe();
        }
    }
}

TEST(FfnBackward, WritesSumsThatChangeNoBitOfY) {
    for (const FfnForm &form : forms()) {
        FfnBackward with_sums(form);
        Ffn without(form);
        ASSERT_EQ(with_sums.forward(nullptr), HALYARD_OK);
        ASSERT_EQ(without.run(nullptr), HALYARD_OK);
        EXPECT_TRUE(same_rows(without.y, with_sums.ffn.y)) << without.describe();
    }
}

/** The sum that dy weighs, in double. */
double weighed(const FfnBackward &call) {
    const Matrix y = call.ffn.expected();
    double sum = 0;
    for (std::size_t row = 0; row < y.size(); row++) {
        for (std::size_t i = 0; i < y[row].size(); i++) {
            sum += y[row][i].value * call.dy.get(static_cast<std::int64_t>(row), static_cast<std::int64_t>(i));
        }
    }
    return sum;
}

// Everything between x and y lies on the way of dx, so a wrong factor anywhere shows.
TEST(FfnBackward, IsTheSlopeOfTheSumThatDyWeighs) {
    for (FfnForm form : forms()) {
        if (form.d_model > 100 || form.activation == HALYARD_RELU) {  // whose slope may jump within the step
            continue;
        }
        form.leading = {1};
        FfnBackward call(form);
        ASSERT_EQ(call.forward(nullptr), HALYARD_OK);
        ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        const auto expect_slopes = [&](Tensor &of, const Tensor &gradient) {
            for (std::int64_t i = 0; i < of.width(); i += 5) {
                const double middle = of.get(0, i);
                constexpr double h = 0x1p-10;
                const auto at = [&](double offset) {
                    of.set(0, i, middle + offset);
                    return std::pair{of.get(0, i), weighed(call)};
                };
                const auto [low, before] = at(-h);
                const auto [high, behind] = at(h);
                of.set(0, i, middle);
                const double slope = (behind - before) / (high - low);
                EXPECT_NEAR(gradient.get(0, i), slope, 2e-4 * (1 + std::abs(slope)))
                    << i << " of " << call.ffn.describe();
            }
        };
        expect_slopes(call.ffn.x, call.dx);
        if (form.has_norm_weight()) {
            expect_slopes(*call.ffn.norm_weight, call.dnorm_weight);
        }
        if (form.has_norm_bias()) {
            expect_slopes(*call.ffn.norm_bias, call.dnorm_bias);
        }
        if (form.bias_down) {
            expect_slopes(*call.ffn.bias_down, call.dbias_down);
        }
        if (form.bias) {
            expect_slopes(*call.ffn.bias, call.dbias);
        }
    }
}

TEST(FfnBackward, GivesEachGradientByItself) {
    FfnForm form;
    form.gated = true;
    form.activation = HALYARD_SILU;
    form.norm = HALYARD_NORM_LAYER;
    form.residual = true;
    FfnBackward all(form);
    ASSERT_EQ(all.forward(nullptr), HALYARD_OK);
    ASSERT_EQ(all.run(nullptr), HALYARD_OK) << halyard_last_error();
    using G = halyard_ffn_gradients;
    for (DLTensor *G::*const wanted : {&G::dx, &G::dweight, &G::dweight_up, &G::dweight_down, &G::dbias, &G::dbias_up,
                                       &G::dbias_down, &G::dnorm_weight, &G::dnorm_bias}) {
        FfnBackward one(form), untouched(form);
        DLTensor *const tensor = one.gradients.*wanted;
        one.gradients = {};
        one.gradients.*wanted = tensor;
        ASSERT_EQ(one.forward(nullptr), HALYARD_OK);
        ASSERT_EQ(one.run(nullptr), HALYARD_OK) << halyard_last_error();
        for (std::size_t i = 0; i < all.outputs().size(); i++) {
            FfnBackward &like = &one.outputs()[i]->view == tensor ? all : untouched;
            EXPECT_TRUE(same_bits(Dtype::f32, like.outputs()[i]->all_bits(), one.outputs()[i]->all_bits())) << i;
        }
    }
    FfnBackward none(form);
    none.gradients = {};
    EXPECT_EQ(none.run(nullptr), HALYARD_OK) << halyard_last_error();
}

TEST(FfnBackward, OfNoRowsIsZeroOrWhatWasThere) {
    for (const bool accumulate : {true, false}) {
        FfnForm form;
        form.leading = {0};
        form.gated = true;
        form.norm = HALYARD_NORM_LAYER;
        FfnBackward call(form, HALYARD_WEIGHT_OUT_IN, accumulate);
        const std::vector<std::uint32_t> before = call.dweight_down.all_bits(), norm = call.dnorm_weight.all_bits();
        ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        if (accumulate) {
            EXPECT_TRUE(same_bits(Dtype::f32, before, call.dweight_down.all_bits()));
            EXPECT_TRUE(same_bits(Dtype::f32, norm, call.dnorm_weight.all_bits()));
        } else {
            EXPECT_EQ(call.dweight_down.get(3, 2), 0);
            EXPECT_EQ(call.dweight.get(3, 2), 0);
            EXPECT_EQ(call.dnorm_weight.get(0, 2), 0);
        }
    }
}

TEST(FfnBackward, HasTheSameBitsWithAnyThreads) {
    FfnForm form;
    form.leading = {700};
    form.d_model = 130;
    form.d_ff = 300;
    form.gated = true;
    form.activation = HALYARD_SILU;
    form.norm = HALYARD_NORM_RMS;
    form.residual = true;
    std::vector<std::uint32_t> first;
    for (const int threads : {1, 2, 3, 8}) {
        const Context context(supported_isas().back(), threads);
        FfnBackward call(form);
        ASSERT_EQ(call.forward(context.get()), HALYARD_OK);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        first = first.empty() ? call.bits() : first;
        EXPECT_TRUE(same_bits(Dtype::f32, first, call.bits())) << threads;
    }
}

TEST(FfnBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("ffn_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const bool gated : {false, true}) {
            for (const halyard_norm norm : {HALYARD_NORM_NONE, HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
                FfnForm form;
                form.leading = {37};
                form.gated = gated;
                form.activation = gated ? HALYARD_SILU : HALYARD_GELU_TANH;
                form.norm = norm;
                form.residual = norm != HALYARD_NORM_NONE;
                FfnBackward call(form);
                EXPECT_EQ(call.forward(context.get()), HALYARD_OK) << halyard_last_error();
                EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                BitsHash results;
                results.add(call.bits());
                hashes[std::string(gated ? "gated_norm_" : "plain_norm_") + std::to_string(norm)] = results.text();
            }
        }
        return hashes;
    });
}

// ---- Refusals ----

/** Expects a call that `change` has spoiled to be refused, and to write nothing. */
template<typename Change>
void expect_refused(const FfnForm &form, halyard_status status, const char *argument, const Change &change) {
    FfnBackward call(form);
    change(call);
    const std::vector<std::uint32_t> before = call.bits();
    EXPECT_TRUE(refused(call.run(nullptr), status, "halyard_ffn_backward", argument)) << argument;
    EXPECT_TRUE(same_bits(Dtype::f32, before, call.bits())) << argument;
}

TEST(FfnBackward, RefusesWhatItCannotFollow) {
    FfnForm form, gated;
    form.activation = HALYARD_GELU;
    gated.gated = true;
    gated.norm = HALYARD_NORM_RMS;
    Tensor narrow(Dtype::f32, {{3, 24}, {}}), vector(Dtype::f32, {{23}, {}}), half(Dtype::f16, {{3, 40}, {}});
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    expect_refused(form, invalid, "options.sums", [](FfnBackward &c) { c.ffn.options.sums = nullptr; });
    expect_refused(form, invalid, "options.sums", [&](FfnBackward &c) { c.ffn.options.sums = &narrow.view; });
    expect_refused(form, unsupported, "options.sums", [&](FfnBackward &c) { c.ffn.options.sums = &half.view; });
    expect_refused(form, invalid, "options.sums_up", [](FfnBackward &c) { c.ffn.options.sums_up = &c.sums_up.view; });
    expect_refused(gated, invalid, "options.sums_up", [](FfnBackward &c) { c.ffn.options.sums_up = nullptr; });
    expect_refused(gated, unsupported, "options.activation",
                   [](FfnBackward &c) { c.ffn.options.activation = HALYARD_RELU2; });
    expect_refused(form, invalid, "activation",
                   [](FfnBackward &c) { c.ffn.options.activation = static_cast<halyard_activation>(11); });
    expect_refused(form, invalid, "gradients.dweight_up",
                   [](FfnBackward &c) { c.gradients.dweight_up = &c.dweight_up.view; });
    expect_refused(form, invalid, "gradients.dbias_up",
                   [](FfnBackward &c) { c.gradients.dbias_up = &c.dbias_up.view; });
    expect_refused(form, invalid, "gradients.dnorm_weight",
                   [](FfnBackward &c) { c.gradients.dnorm_weight = &c.dnorm_weight.view; });
    expect_refused(gated, invalid, "gradients.dnorm_bias",
                   [](FfnBackward &c) { c.gradients.dnorm_bias = &c.dnorm_bias.view; });
    expect_refused(gated, invalid, "gradients.dnorm_weight",
                   [&](FfnBackward &c) { c.gradients.dnorm_weight = &vector.view; });
    expect_refused(form, invalid, "gradients.dbias_down",
                   [&](FfnBackward &c) { c.gradients.dbias_down = &vector.view; });
    expect_refused(form, invalid, "gradients.dweight_down",
                   [](FfnBackward &c) { c.gradients.dweight_down = &c.dweight_up.view; });
    expect_refused(form, invalid, "gradients.dx", [](FfnBackward &c) { c.gradients.dx = &c.dy.view; });
    expect_refused(form, invalid, "gradients.dx", [](FfnBackward &c) { c.gradients.dx = &c.ffn.x.view; });
    expect_refused(form, invalid, "gradients.dbias", [](FfnBackward &c) {
        c.dbias.view.data = c.ffn.down.packed();
        c.gradients.dbias = &c.dbias.view;
    });
    expect_refused(form, invalid, "gradients.layout",
                   [](FfnBackward &c) { c.gradients.layout = static_cast<halyard_weight_layout>(2); });
    FfnForm narrow_weights = form;
    narrow_weights.down = Dtype::bf16;
    expect_refused(narrow_weights, unsupported, "down", [](FfnBackward &) {});
    narrow_weights.up = Dtype::f16;
    expect_refused(narrow_weights, unsupported, "up", [](FfnBackward &) {});
    FfnForm deferred = gated;
    deferred.deferred = true;
    expect_refused(deferred, unsupported, "up", [](FfnBackward &) {});

    FfnBackward call(form);
    const auto status = [&](const DLTensor *x, const halyard_weights *up, const halyard_weights *down,
                            const DLTensor *dy, const halyard_ffn_gradients *gradients) {
        return halyard_ffn_backward(nullptr, x, up, down, dy, &call.ffn.options, gradients);
    };
    const char *const function = "halyard_ffn_backward";
    const DLTensor *const x = &call.ffn.x.view, *const dy = &call.dy.view;
    const halyard_weights *const up = call.ffn.up.get(), *const down = call.ffn.down.get();
    EXPECT_TRUE(refused(status(nullptr, up, down, dy, &call.gradients), invalid, function, "x"));
    EXPECT_TRUE(refused(status(x, nullptr, down, dy, &call.gradients), invalid, function, "up"));
    EXPECT_TRUE(refused(status(x, up, nullptr, dy, &call.gradients), invalid, function, "down"));
    EXPECT_TRUE(refused(status(x, up, down, nullptr, &call.gradients), invalid, function, "dy"));
    EXPECT_TRUE(refused(status(x, up, down, dy, nullptr), invalid, function, "gradients"));
    EXPECT_TRUE(refused(status(x, up, down, &half.view, &call.gradients), invalid, function, "dy"));
}

TEST(FfnSums, AreRefusedWhereTheyDoNotFit) {
    FfnForm form, gated;
    gated.gated = true;
    Tensor narrow(Dtype::f32, {{3, 24}, {}}), half(Dtype::f16, {{3, 40}, {}});
    const auto expect = [&](const FfnForm &of, halyard_status status, const char *argument, auto change) {
        FfnBackward call(of);
        change(call);
        EXPECT_TRUE(refused(call.forward(nullptr), status, "halyard_ffn", argument)) << argument;
    };
    expect(form, HALYARD_INVALID_ARGUMENT, "sums", [&](FfnBackward &c) { c.ffn.options.sums = &narrow.view; });
    expect(form, HALYARD_UNSUPPORTED, "sums", [&](FfnBackward &c) { c.ffn.options.sums = &half.view; });
    expect(form, HALYARD_INVALID_ARGUMENT, "sums_up", [](FfnBackward &c) { c.ffn.options.sums_up = &c.sums_up.view; });
    expect(gated, HALYARD_INVALID_ARGUMENT, "sums", [](FfnBackward &c) { c.ffn.options.sums_up = nullptr; });
    expect(gated, HALYARD_INVALID_ARGUMENT, "sums_up",
           [](FfnBackward &c) { c.ffn.options.sums_up = c.ffn.options.sums; });
    expect(form, HALYARD_INVALID_ARGUMENT, "sums|y|x", [](FfnBackward &c) {
        c.sums.view.data = c.ffn.x.view.data;
        c.ffn.options.sums = &c.sums.view;
    });
}

}  // namespace
}  // namespace halyard::tests
