// Steps of optimizers and the norm of gradients: bits of the documented order, which is computed here anew in f32; distance from the
// formula in float64 within what the roundings explain; any strides, threads and instruction sets; what is refused.
#include "halyard/training.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "support/linear.h"
#include "support/reference_hashes.h"

namespace halyard::tests {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- Numbers with a bound of their error ----

/** What a value in f32 is in exact arithmetic, and how far from that it may be. */
struct Bounded {
    double value, error;
};

/** Rounded to f32; the value in float64 is a rounding off, too. */
Bounded rounded(double value, double error) {
    return {value, error + (0x1p-24 + 0x1p-50) * (std::fabs(value) + error) + 0x1p-149};
}

Bounded operator+(const Bounded &a, const Bounded &b) {
    return rounded(a.value + b.value, a.error + b.error);
}

Bounded operator-(const Bounded &a, const Bounded &b) {
    return rounded(a.value - b.value, a.error + b.error);
}

Bounded operator*(const Bounded &a, const Bounded &b) {
    return rounded(a.value * b.value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error);
}

Bounded operator/(const Bounded &a, const Bounded &b) {
    const double least = std::fabs(b.value) - b.error;
    return least > 0 ? rounded(a.value / b.value, (a.error + std::fabs(a.value / b.value) * b.error) / least)
                     : Bounded{a.value / b.value, infinity};
}

Bounded root(const Bounded &a) {
    const double least = std::sqrt(std::max(0.0, a.value - a.error)), value = std::sqrt(a.value);
    return rounded(value, std::max(value - least, std::sqrt(a.value + a.error) - value));
}

float root(float a) {
    return std::sqrt(a);
}

Bounded exactly(double value) {
    return {value, 0};
}

/** A number of the options in f32. */
template<typename Number>
Number number(double value);

template<>
float number(double value) {
    return static_cast<float>(value);
}

template<>
Bounded number(double value) {
    return rounded(value, 0);
}

// ---- The formulas, in f32 or in float64 with a bound ----

/** 1 - base^step: with products in the documented order, or of the mathematical function. */
template<typename Number>
double correction(double base, std::int64_t step);

template<>
double correction<float>(double base, std::int64_t step) {
    double power = 1, square = base;
    for (std::int64_t left = step; left > 0; left /= 2) {
        power = left % 2 != 0 ? power * square : power;
        square = square * square;
    }
    return 1 - power;
}

template<>
double correction<Bounded>(double base, std::int64_t step) {
    return static_cast<double>(1 - std::pow(static_cast<long double>(base), static_cast<long double>(step)));
}

/** An element and its state. */
template<typename Number>
struct AdamwElement {
    Number p, g, m, v;
};

template<typename Number>
void step_of(AdamwElement<Number> &e, const halyard_adamw_options &o, std::int64_t step) {
    const auto n = [](double value) { return number<Number>(value); };
    Number g = e.g * n(o.gradient_scale);
    if (o.decoupled == 0 && o.weight_decay != 0) {
        g = g + n(o.weight_decay) * e.p;
    }
    e.m = e.m + n(1 - o.beta1) * (g - e.m);
    e.v = n(o.beta2) * e.v + n(1 - o.beta2) * g * g;
    if (o.decoupled != 0 && o.weight_decay != 0) {
        e.p = e.p - n(o.lr * o.weight_decay) * e.p;
    }
    const double c1 = correction<Number>(o.beta1, step), r = std::sqrt(correction<Number>(o.beta2, step));
    e.p = e.p - n(o.lr * r / c1) * e.m / (root(e.v) + n(o.eps * r));
}

template<typename Number>
struct SgdElement {
    Number p, g, b;
};

template<typename Number>
void step_of(SgdElement<Number> &e, const halyard_sgd_options &o) {
    const auto n = [](double value) { return number<Number>(value); };
    Number g = e.g * n(o.gradient_scale);
    if (o.weight_decay != 0) {
        g = g + n(o.weight_decay) * e.p;
    }
    if (o.momentum != 0) {
        e.b = n(o.momentum) * e.b + g;
        g = o.nesterov != 0 ? g + n(o.momentum) * e.b : e.b;
    }
    e.p = e.p - n(o.lr) * g;
}

// ---- Calls ----

/** How the tensors of a call lie. */
struct Places {
    Shape shape;
    std::int64_t gap = 0, shift = 0;
    Placement placement = Placement::ends_at_guard;
};

Form form_of(const Places &places, std::int64_t number) {
    const std::int64_t gap = places.gap == 0 ? 0 : places.gap + number;
    return {places.shape, padded_strides(places.shape, gap), places.placement, places.shift * number, 0};
}

/** A parameter, its gradient and two tensors of state. */
struct Tensors {
    explicit Tensors(const Places &places)
        : p(Dtype::f32, form_of(places, 0)), g(Dtype::f32, form_of(places, 1)), m(Dtype::f32, form_of(places, 2)),
          v(Dtype::f32, form_of(places, 3)) {
        p.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
        g.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i) * (i % 3 == 0 ? 1e-4 : 1.0); });
        m.fill([](std::int64_t row, std::int64_t i) { return bell(3, row, i) / 4; });
        v.fill([](std::int64_t row, std::int64_t i) { return std::pow(bell(4, row, i), 2) / 8; });
    }

    std::vector<Tensor *> all() { return {&p, &g, &m, &v}; }

    halyard_status adamw(const halyard_context *context, std::int64_t step, const halyard_adamw_options &options) {
        return halyard_adamw_step(context, &p.view, &g.view, &m.view, &v.view, step, &options);
    }
    halyard_status sgd(const halyard_context *context, const halyard_sgd_options &options) {
        return halyard_sgd_step(context, &p.view, &g.view, options.momentum != 0 ? &m.view : nullptr, &options);
    }

    bool intact() {
        bool result = true;
        for (const Tensor *tensor : all()) {
            result = result && tensor->surroundings_intact();
        }
        return result;
    }

    Tensor p, g, m, v;
};

float f32_at(const Tensor &tensor, std::int64_t row, std::int64_t i) {
    return *static_cast<const float *>(tensor.at(row, i));
}

/** The bits of a result, any NaN being one. */
std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return std::isnan(value) ? 0x7fc00000u : bits;
}

testing::AssertionResult is(const Tensor &tensor, std::int64_t row, std::int64_t i, float expected) {
    const float got = f32_at(tensor, row, i);
    return bits_of(got) == bits_of(expected)
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << got << " instead of " << expected << " at " << row << ", " << i;
}

testing::AssertionResult is_within(const Tensor &tensor, std::int64_t row, std::int64_t i, const Bounded &expected) {
    const double got = static_cast<double>(f32_at(tensor, row, i));
    return std::isfinite(expected.error) && std::fabs(got - expected.value) <= expected.error
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << got << " instead of " << expected.value << " within " << expected.error
                                             << " at " << row << ", " << i;
}

const halyard_adamw_options plain_adamw = {1e-3, 0.9, 0.999, 1e-8, 0, 1, 1};

std::vector<std::pair<std::string, halyard_adamw_options>> adamw_options() {
    return {{"plain", plain_adamw},
            {"decay", {1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 1}},
            {"adam", {1e-3, 0.9, 0.999, 1e-8, 0.01, 1, 0}},
            {"clipped", {3e-4, 0.9, 0.95, 1e-6, 0.1, 0.37, 7}},
            {"slow", {0.1, 0.5, 0.25, 1e-3, 0, 2, 0}},
            {"no_moments", {0.1, 0, 0, 1e-3, 0, 1, 1}}};
}

std::vector<std::pair<std::string, halyard_sgd_options>> sgd_options() {
    return {{"plain", {0.1, 0, 0, 0, 1}},
            {"decay", {0.1, 0, 0.01, 0, 1}},
            {"momentum", {0.1, 0.9, 0, 0, 1}},
            {"nesterov", {0.1, 0.9, 0, 1, 1}},
            {"everything", {0.03, 0.8, 0.1, 5, 0.4}}};
}

std::vector<Places> many_places() {
    std::vector<Places> all;
    for (const std::int64_t width : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100}) {
        all.push_back({{width}});
        all.push_back({{3, width}, 1, 1});
        all.push_back({{2, 2, width}, 5, 3, Placement::starts_at_guard});
    }
    all.push_back({{2, 3, 2, 5}, 2});
    all.push_back({{7, 1000}});
    return all;
}

/** For every instruction set, what the library made of the tensors by `run`, element by element. */
template<typename Run, typename Look>
void with_results(const Places &places, const Run &run, const Look &look) {
    for (const halyard_isa isa : row_isas()) {
        const Context context(isa);
        const Tensors before(places);
        Tensors after(places);
        ASSERT_EQ(run(after, context.get()), HALYARD_OK) << halyard_last_error();
        for (std::int64_t row = 0; row < before.p.rows(); row++) {
            for (std::int64_t i = 0; i < before.p.width(); i++) {
                look(before, after, row, i);
            }
        }
        EXPECT_EQ(after.g.all_bits(), before.g.all_bits());
        EXPECT_TRUE(after.intact()) << halyard_isa_name(isa);
    }
}

TEST(Adamw, HasTheBitsOfTheFormulaAndItsValue) {
    for (const auto &[name, o] : adamw_options()) {
        for (const Places &places : many_places()) {
            for (const std::int64_t step : {1, 2, 1000}) {
                SCOPED_TRACE(name + " " + to_string(places.shape) + " step " + std::to_string(step));
                with_results(
                    places,
                    [&, &o = o](Tensors &t, const halyard_context *context) { return t.adamw(context, step, o); },
                    [&, &o = o](const Tensors &before, const Tensors &after, std::int64_t row, std::int64_t i) {
                        const auto at = [&](const Tensor &tensor) { return f32_at(tensor, row, i); };
                        AdamwElement<float> e{at(before.p), at(before.g), at(before.m), at(before.v)};
                        const auto exact = [&](const Tensor &tensor) {
                            return exactly(static_cast<double>(at(tensor)));
                        };
                        AdamwElement<Bounded> b{exact(before.p), exact(before.g), exact(before.m), exact(before.v)};
                        step_of(e, o, step);
                        step_of(b, o, step);
                        EXPECT_TRUE(is(after.p, row, i, e.p));
                        EXPECT_TRUE(is(after.m, row, i, e.m));
                        EXPECT_TRUE(is(after.v, row, i, e.v));
                        EXPECT_TRUE(is_within(after.p, row, i, b.p));
                        EXPECT_TRUE(is_within(after.m, row, i, b.m));
                        EXPECT_TRUE(is_within(after.v, row, i, b.v));
                    });
            }
        }
    }
}

TEST(Sgd, HasTheBitsOfTheFormulaAndItsValue) {
    for (const auto &[name, o] : sgd_options()) {
        for (const Places &places : many_places()) {
            SCOPED_TRACE(name + " " + to_string(places.shape));
            with_results(
                places, [&, &o = o](Tensors &t, const halyard_context *context) { return t.sgd(context, o); },
                [&, &o = o](const Tensors &before, const Tensors &after, std::int64_t row, std::int64_t i) {
                    const auto at = [&](const Tensor &tensor) { return f32_at(tensor, row, i); };
                    SgdElement<float> e{at(before.p), at(before.g), at(before.m)};
                    const auto exact = [&](const Tensor &tensor) { return exactly(static_cast<double>(at(tensor))); };
                    SgdElement<Bounded> b{exact(before.p), exact(before.g), exact(before.m)};
                    step_of(e, o);
                    step_of(b, o);
                    EXPECT_TRUE(is(after.p, row, i, e.p));
                    EXPECT_TRUE(is(after.m, row, i, e.b));
                    EXPECT_TRUE(is_within(after.p, row, i, b.p));
                    EXPECT_TRUE(is_within(after.m, row, i, b.b));
                });
        }
    }
}

/** Values of every kind in every tensor at once. */
void fill_with_extremes(Tensors &t) {
    const std::uint32_t kinds[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000,
                                   0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000};
    int number = 0;
    for (Tensor *tensor : t.all()) {
        for (std::int64_t i = 0; i < tensor->width(); i++) {
            tensor->set_bits(0, i,
                             kinds[hash(7, static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(i)) % 13]);
        }
        number++;
    }
}

TEST(Adamw, TakesEveryValue) {
    for (const auto &[name, o] : adamw_options()) {
        for (const halyard_isa isa : row_isas()) {
            SCOPED_TRACE(name + " " + halyard_isa_name(isa));
            const Context context(isa);
            Tensors before({{3000}}), after({{3000}});
            fill_with_extremes(before);
            fill_with_extremes(after);
            ASSERT_EQ(after.adamw(context.get(), 3, o), HALYARD_OK) << halyard_last_error();
            for (std::int64_t i = 0; i < 3000; i++) {
                AdamwElement<float> e{f32_at(before.p, 0, i), f32_at(before.g, 0, i), f32_at(before.m, 0, i),
                                      f32_at(before.v, 0, i)};
                step_of(e, o, 3);
                EXPECT_TRUE(is(after.p, 0, i, e.p));
                EXPECT_TRUE(is(after.m, 0, i, e.m));
                EXPECT_TRUE(is(after.v, 0, i, e.v));
            }
        }
    }
}

TEST(Sgd, TakesEveryValue) {
    for (const auto &[name, o] : sgd_options()) {
        for (const halyard_isa isa : row_isas()) {
            SCOPED_TRACE(name + " " + halyard_isa_name(isa));
            const Context context(isa);
            Tensors before({{3000}}), after({{3000}});
            fill_with_extremes(before);
            fill_with_extremes(after);
            ASSERT_EQ(after.sgd(context.get(), o), HALYARD_OK) << halyard_last_error();
            for (std::int64_t i = 0; i < 3000; i++) {
                SgdElement<float> e{f32_at(before.p, 0, i), f32_at(before.g, 0, i), f32_at(before.m, 0, i)};
                step_of(e, o);
                EXPECT_TRUE(is(after.p, 0, i, e.p));
                EXPECT_TRUE(is(after.m, 0, i, e.b));
            }
        }
    }
}

TEST(Adamw, CountsStepsWithoutAnEnd) {
    for (const std::int64_t step : {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
        Tensors t({{5}});
        const Tensors before({{5}});
        ASSERT_EQ(t.adamw(nullptr, step, plain_adamw), HALYARD_OK) << halyard_last_error();
        for (std::int64_t i = 0; i < 5; i++) {
            AdamwElement<Bounded> e{exactly(before.p.get(0, i)), exactly(before.g.get(0, i)),
                                    exactly(before.m.get(0, i)), exactly(before.v.get(0, i))};
            step_of(e, plain_adamw, step);
            EXPECT_TRUE(is_within(t.p, 0, i, e.p));
        }
    }
}

TEST(Optimizers, HaveTheSameBitsForAnyThreads) {
    const Places large[] = {{{100003}}, {{401, 333}, 7, 1}};
    const halyard_adamw_options adamw = {1e-3, 0.9, 0.999, 1e-8, 0.01, 0.5, 1};
    const halyard_sgd_options sgd = {0.1, 0.9, 0.01, 1, 0.5};
    for (const Places &places : large) {
        Tensors one(places);
        const Context alone(supported_isas().back(), 1);
        ASSERT_EQ(one.adamw(alone.get(), 5, adamw), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(one.sgd(alone.get(), sgd), HALYARD_OK) << halyard_last_error();
        for (const int threads : {2, 3, 7}) {
            Tensors many(places);
            const Context context(supported_isas().back(), threads);
            ASSERT_EQ(many.adamw(context.get(), 5, adamw), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(many.sgd(context.get(), sgd), HALYARD_OK) << halyard_last_error();
            for (int i = 0; i < 4; i++) {
                EXPECT_EQ(many.all()[static_cast<std::size_t>(i)]->all_bits(),
                          one.all()[static_cast<std::size_t>(i)]->all_bits())
                    << threads << " threads";
            }
            EXPECT_TRUE(many.intact());
        }
    }
}

TEST(Optimizers, DoNothingWithoutElements) {
    Tensors t({{3, 0}});
    EXPECT_EQ(t.adamw(nullptr, 1, plain_adamw), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(t.sgd(nullptr, {0.1, 0.9, 0, 0, 1}), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(t.intact());
}

TEST(Optimizers, GoldenBits) {
    expect_reference_hashes("optimizers", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa, 2);
        const auto add = [&](const std::string &name, Tensors &t) {
            BitsHash hash;
            for (const Tensor *tensor : t.all()) {
                hash.add(tensor->all_bits());
            }
            hashes[name] = hash.text();
        };
        for (const auto &[name, o] : adamw_options()) {
            Tensors t({{9, 501}, 3});
            for (std::int64_t step = 1; step <= 5; step++) {
                EXPECT_EQ(t.adamw(context.get(), step, o), HALYARD_OK) << halyard_last_error();
            }
            add("adamw." + name, t);
        }
        for (const auto &[name, o] : sgd_options()) {
            Tensors t({{9, 501}, 3});
            for (int step = 0; step < 5; step++) {
                EXPECT_EQ(t.sgd(context.get(), o), HALYARD_OK) << halyard_last_error();
            }
            add("sgd." + name, t);
        }
        return hashes;
    });
}

// ---- The norm of gradients ----

double norm_of(const std::vector<const Tensor *> &tensors, const halyard_context *context = nullptr) {
    std::vector<const DLTensor *> views;
    for (const Tensor *tensor : tensors) {
        views.push_back(&tensor->view);
    }
    double norm = -1;
    EXPECT_EQ(halyard_gradient_norm(context, views.data(), static_cast<std::int64_t>(views.size()), &norm), HALYARD_OK)
        << halyard_last_error();
    return norm;
}

/** In the documented order. */
double documented_norm(const std::vector<const Tensor *> &tensors) {
    double total = 0;
    for (const Tensor *tensor : tensors) {
        std::vector<double> elements;
        for (std::int64_t row = 0; row < tensor->rows(); row++) {
            const std::vector<double> values = tensor->row_values(row);
            elements.insert(elements.end(), values.begin(), values.end());
        }
        for (std::size_t first = 0; first < elements.size(); first += 8192) {
            double lanes[32] = {};
            for (std::size_t i = first; i < std::min(first + 8192, elements.size()); i++) {
                lanes[(i - first) % 32] += elements[i] * elements[i];
            }
            for (std::size_t half = 16; half > 0; half /= 2) {
                for (std::size_t lane = 0; lane < half; lane++) {
                    lanes[lane] += lanes[lane + half];
                }
            }
            total += lanes[0];
        }
    }
    return std::sqrt(total);
}

long double exact_norm(const std::vector<const Tensor *> &tensors) {
    long double sum = 0;
    for (const Tensor *tensor : tensors) {
        for (std::int64_t row = 0; row < tensor->rows(); row++) {
            for (const double value : tensor->row_values(row)) {
                sum += static_cast<long double>(value) * static_cast<long double>(value);
            }
        }
    }
    return std::sqrt(sum);
}

std::unique_ptr<Tensor> gradient(const Places &places, std::uint64_t seed) {
    auto tensor = std::make_unique<Tensor>(Dtype::f32, form_of(places, 1));
    tensor->fill([&](std::int64_t row, std::int64_t i) { return bell(seed, row, i); });
    return tensor;
}

TEST(GradientNorm, HasTheBitsOfTheDocumentedOrderAndItsValue) {
    const std::vector<Places> places = {{{1}},
                                        {{31}},
                                        {{32}},
                                        {{33}, 0, 1},
                                        {{8191}},
                                        {{8192}},
                                        {{8193}},
                                        {{40000}},
                                        {{3, 5}, 1},
                                        {{7, 1300}, 3, 1},
                                        {{2, 5, 9000}, 32},
                                        {{64, 256}, 4},
                                        {{3, 2, 2, 50}, 2},
                                        {{300, 1}, 2},
                                        {{0}}};
    std::vector<std::unique_ptr<Tensor>> tensors;
    std::vector<const Tensor *> all;
    const auto check = [](const std::vector<const Tensor *> &given, double chain) {
        const double expected = documented_norm(given);
        const auto exact = static_cast<double>(exact_norm(given));
        // With positive terms each rounding is at most one of the sum: half of it in the norm, which is rounded too.
        EXPECT_NEAR(expected, exact, (chain / 2 + 2) * 0x1p-53 * exact);
        for (const halyard_isa isa : row_isas()) {
            for (const int threads : {1, 2, 5}) {
                const Context context(isa, threads);
                EXPECT_EQ(norm_of(given, context.get()), expected) << halyard_isa_name(isa) << ", " << threads;
            }
        }
    };
    for (const Places &each : places) {
        SCOPED_TRACE(to_string(each.shape));
        tensors.push_back(gradient(each, tensors.size() + 1));
        all.push_back(tensors.back().get());
        check({all.back()}, 8192 / 32 + 5 + 12);
    }
    check(all, 8192 / 32 + 5 + 50);
    for (const auto &tensor : tensors) {
        EXPECT_TRUE(tensor->surroundings_intact());
    }
}

TEST(GradientNorm, NeitherOverflowsNorVanishes) {
    Tensor large(Dtype::f32, compact_form({1000})), tiny(Dtype::f32, compact_form({4, 4}));
    large.fill([](std::int64_t, std::int64_t) { return static_cast<double>(FLT_MAX); });
    tiny.fill([](std::int64_t, std::int64_t) { return 0x1p-149; });
    EXPECT_NEAR(norm_of({&large}) / static_cast<double>(FLT_MAX), std::sqrt(1000.0), 1000 * 0x1p-53);
    EXPECT_EQ(norm_of({&tiny}), 0x1p-147);
    EXPECT_EQ(norm_of({}), 0);
    EXPECT_EQ(halyard_gradient_norm(nullptr, nullptr, 0, nullptr), HALYARD_INVALID_ARGUMENT);
}

TEST(GradientNorm, NanAndInfStay) {
    for (const std::int64_t place : {0, 40, 8200, 8999}) {
        Tensor x(Dtype::f32, compact_form({9000}));
        x.fill([](std::int64_t, std::int64_t) { return 1.0; });
        x.set(0, place, -infinity);
        for (const halyard_isa isa : row_isas()) {
            EXPECT_EQ(norm_of({&x}, Context(isa).get()), infinity) << place;
        }
        x.set(0, 5, std::numeric_limits<double>::quiet_NaN());
        for (const halyard_isa isa : row_isas()) {
            EXPECT_TRUE(std::isnan(norm_of({&x}, Context(isa).get()))) << place;
        }
    }
}

// ---- Bad arguments ----

testing::AssertionResult refused_as(halyard_status got, halyard_status status, const std::string &message) {
    return got == status && halyard_last_error() == message
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << halyard_status_name(got) << ": " << halyard_last_error();
}

class BadStep : public testing::Test {
protected:
    testing::AssertionResult adamw_refused(const std::string &message,
                                           halyard_status status = HALYARD_INVALID_ARGUMENT) {
        return unchanged(refused_as(halyard_adamw_step(nullptr, p, g, m, v, step, options), status,
                                    "halyard_adamw_step: " + message));
    }
    testing::AssertionResult sgd_refused(const std::string &message, halyard_status status = HALYARD_INVALID_ARGUMENT) {
        return unchanged(
            refused_as(halyard_sgd_step(nullptr, p, g, m, sgd_options), status, "halyard_sgd_step: " + message));
    }

    testing::AssertionResult unchanged(const testing::AssertionResult &result) {
        const Tensors before({{4, 6}, 2});
        Tensors expected({{4, 6}, 2});
        for (std::size_t i = 0; i < 4; i++) {
            if (tensors.all()[i]->snapshot() != expected.all()[i]->snapshot()) {
                return testing::AssertionFailure() << "something was written";
            }
        }
        return result;
    }

    Tensors tensors{{{4, 6}, 2}};
    DLTensor *p = &tensors.p.view, *m = &tensors.m.view, *v = &tensors.v.view;
    const DLTensor *g = &tensors.g.view;
    std::int64_t step = 1;
    halyard_adamw_options adamw = plain_adamw;
    halyard_sgd_options sgd = {0.1, 0.9, 0, 0, 1};
    const halyard_adamw_options *options = &adamw;
    const halyard_sgd_options *sgd_options = &sgd;
};

TEST_F(BadStep, Null) {
    for (const auto &[place, name] : {std::pair{&p, "parameter"}, {&m, "first_moment"}, {&v, "second_moment"}}) {
        DLTensor *const good = *place;
        *place = nullptr;
        EXPECT_TRUE(adamw_refused(std::string(name) + " is null"));
        *place = good;
    }
    g = nullptr;
    EXPECT_TRUE(adamw_refused("gradient is null"));
    EXPECT_TRUE(sgd_refused("gradient is null"));
    g = &tensors.g.view;
    p = nullptr;
    EXPECT_TRUE(sgd_refused("parameter is null"));
    p = &tensors.p.view;
    options = nullptr;
    sgd_options = nullptr;
    EXPECT_TRUE(adamw_refused("options is null"));
    EXPECT_TRUE(sgd_refused("options is null"));
}

TEST_F(BadStep, TensorsOfAnotherShapeOrType) {
    const std::pair<Tensor *, const char *> all[] = {{&tensors.p, "parameter"},
                                                     {&tensors.g, "gradient"},
                                                     {&tensors.m, "first_moment"},
                                                     {&tensors.v, "second_moment"}};
    for (const auto &[tensor, name] : all) {
        DLTensor &view = tensor->view;
        const DLTensor good = view;
        view.dtype = {kDLFloat, 16, 1};
        EXPECT_TRUE(adamw_refused(std::string(name) + " must have dtype f32", HALYARD_UNSUPPORTED));
        view = good;
        view.device.device_type = kDLCUDA;
        EXPECT_EQ(halyard_adamw_step(nullptr, p, g, m, v, 1, options), HALYARD_UNSUPPORTED);
        EXPECT_NE(std::string(halyard_last_error()).find(name), std::string::npos) << halyard_last_error();
        view = good;
        if (tensor != &tensors.p) {
            std::int64_t shape[] = {4, 5};
            view.shape = shape;
            EXPECT_EQ(halyard_adamw_step(nullptr, p, g, m, v, 1, options), HALYARD_INVALID_ARGUMENT);
            EXPECT_NE(std::string(halyard_last_error()).find(name), std::string::npos) << halyard_last_error();
            view = good;
        }
    }
    m->dtype = {kDLBfloat, 16, 1};
    EXPECT_TRUE(sgd_refused("momentum_buffer must have dtype f32", HALYARD_UNSUPPORTED));
}

TEST_F(BadStep, TensorsThatOverlap) {
    const auto overlapping = [](const char *one, const char *other) {
        return std::string(one) + " overlaps " + other + ", which this function does not allow";
    };
    const struct {
        DLTensor *moved, *onto;
        const char *one, *other;
    } pairs[] = {{&tensors.g.view, p, "parameter", "gradient"},     {m, p, "first_moment", "parameter"},
                 {m, &tensors.g.view, "first_moment", "gradient"},  {v, p, "second_moment", "parameter"},
                 {v, &tensors.g.view, "second_moment", "gradient"}, {v, m, "second_moment", "first_moment"}};
    for (const auto &pair : pairs) {
        const DLTensor good = *pair.moved;
        *pair.moved = *pair.onto;
        EXPECT_TRUE(adamw_refused(overlapping(pair.one, pair.other)));
        *pair.moved = good;
    }
    const DLTensor good = *m;
    *m = *p;
    EXPECT_TRUE(sgd_refused(overlapping("momentum_buffer", "parameter")));
    *m = tensors.g.view;
    EXPECT_TRUE(sgd_refused(overlapping("momentum_buffer", "gradient")));
    *m = good;
    tensors.g.view = *p;
    EXPECT_TRUE(sgd_refused(overlapping("parameter", "gradient")));
}

TEST_F(BadStep, Numbers) {
    for (const auto &[field, name] :
         {std::pair{&adamw.lr, "lr"}, {&adamw.eps, "eps"}, {&adamw.weight_decay, "weight_decay"}}) {
        const double good = *field;
        for (const auto &[value, text] :
             {std::pair{-1.0, "-1"}, {infinity, "inf"}, {1e39, "1e+39"}, {std::nan(""), "nan"}}) {
            *field = value;
            EXPECT_TRUE(adamw_refused(std::string("options.") + name + " is " + text +
                                      ", but must be finite in f32 and not negative"));
        }
        *field = good;
    }
    for (const auto &[field, name] : {std::pair{&adamw.beta1, "beta1"}, {&adamw.beta2, "beta2"}}) {
        const double good = *field;
        for (const auto &[value, text] :
             {std::pair{-0.5, "-0.5"}, {1.0, "1"}, {infinity, "inf"}, {std::nan(""), "nan"}}) {
            *field = value;
            EXPECT_TRUE(
                adamw_refused(std::string("options.") + name + " is " + text + ", but must be at least 0 and below 1"));
        }
        *field = good;
    }
    for (const auto &[value, text] : {std::pair{0.0, "0"}, {-1.0, "-1"}, {infinity, "inf"}, {std::nan(""), "nan"}}) {
        adamw.gradient_scale = sgd.gradient_scale = value;
        const std::string message = std::string("options.gradient_scale is ") + text +
                                    ", but must be finite in f32 and above 0: 1 leaves the gradient as it is";
        EXPECT_TRUE(adamw_refused(message));
        EXPECT_TRUE(sgd_refused(message));
    }
    adamw.gradient_scale = sgd.gradient_scale = 1;
    for (const auto &[field, name] :
         {std::pair{&sgd.lr, "lr"}, {&sgd.momentum, "momentum"}, {&sgd.weight_decay, "weight_decay"}}) {
        const double good = *field;
        *field = -1;
        EXPECT_TRUE(sgd_refused(std::string("options.") + name + " is -1, but must be finite in f32 and not negative"));
        *field = good;
    }
    step = 0;
    EXPECT_TRUE(adamw_refused("step is 0, but must be at least 1"));
}

TEST_F(BadStep, MomentumWithoutABufferOrABufferWithoutMomentum) {
    m = nullptr;
    EXPECT_TRUE(
        sgd_refused("momentum_buffer is null, but options.momentum is 0.9: there is a buffer where there is momentum"));
    m = &tensors.m.view;
    sgd.momentum = 0;
    EXPECT_TRUE(
        sgd_refused("momentum_buffer is there, but options.momentum is 0: there is a buffer where there is momentum"));
    m = nullptr;
    sgd.nesterov = 1;
    EXPECT_TRUE(sgd_refused("options.nesterov is asked for, but options.momentum is 0"));
}

TEST(BadGradientNorm, IsRefused) {
    Tensor x(Dtype::f32, compact_form({6})), half(Dtype::f16, compact_form({6}));
    x.fill([](std::int64_t, std::int64_t) { return 1.0; });
    half.fill([](std::int64_t, std::int64_t) { return 1.0; });
    const DLTensor *const good[] = {&x.view, &x.view}, *const with_null[] = {&x.view, nullptr},
                          *const with_half[] = {&x.view, &half.view};
    double norm = -1;
    const auto refuses = [&](const DLTensor *const *gradients, std::int64_t count, double *result,
                             const std::string &message, halyard_status status = HALYARD_INVALID_ARGUMENT) {
        const auto answer = refused_as(halyard_gradient_norm(nullptr, gradients, count, result), status,
                                       "halyard_gradient_norm: " + message);
        return norm == -1 ? answer : testing::AssertionFailure() << "norm was written";
    };
    EXPECT_TRUE(refuses(good, 2, nullptr, "norm is null"));
    EXPECT_TRUE(refuses(nullptr, 1, &norm, "gradients is null"));
    EXPECT_TRUE(refuses(good, -1, &norm, "count is -1, but must be at least 0"));
    EXPECT_TRUE(refuses(with_null, 2, &norm, "gradients[1] is null"));
    EXPECT_TRUE(refuses(with_half, 2, &norm, "gradients[1] must have dtype f32", HALYARD_UNSUPPORTED));
    EXPECT_TRUE(refuses(good, std::numeric_limits<std::int64_t>::max(), &norm,
                        "no memory for intermediates of more than 2^62 bytes", HALYARD_OUT_OF_MEMORY));
}

}  // namespace
}  // namespace halyard::tests
