// halyard_cross_entropy and halyard_mean_loss: the float64 reference against slopes, losses and gradients against it within derived bounds,
// those that are tiny too, the bits of other threads, neighbours and instruction sets, special values, and what is refused.
#include <cmath>
#include <limits>
#include <memory>

#include "halyard/training.h"
#include "operations/reference_gradients.h"
#include "support/integers.h"
#include "support/linear.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/** What a call is made of. */
struct LossForm {
    Shape leading = {1};
    std::int64_t classes = 1;
    std::int64_t gap = 0, shift = 0;  // elements between rows, and before the guard page
    std::int64_t step = 1;            // of targets
    bool is_64_bit = true;
    double spread = 3;

    std::int64_t rows() const {
        std::int64_t count = 1;
        for (const std::int64_t extent : leading) {
            count *= extent;
        }
        return count;
    }
    Form of_classes() const {
        Shape shape = leading;
        shape.push_back(classes);
        return {shape, padded_strides(shape, gap), Placement::ends_at_guard, shift, 0};
    }
};

std::vector<std::int64_t> some_targets(const LossForm &form) {
    std::vector<std::int64_t> targets;
    for (std::int64_t row = 0; row < form.rows(); row++) {
        targets.push_back(static_cast<std::int64_t>(uniform(7, row, 0) * static_cast<double>(form.classes)));
    }
    return targets;
}

class Loss {
public:
    explicit Loss(const LossForm &given) : Loss(given, some_targets(given)) {}
    Loss(const LossForm &given, const std::vector<std::int64_t> &of_rows)
        : form(given), targets(of_rows), ids(of_rows, given.leading, given.is_64_bit, given.step),
          logits(Dtype::f32, given.of_classes()), losses(Dtype::f32, {given.leading, {}}),
          dlogits(Dtype::f32, given.of_classes()) {
        logits.fill([&](std::int64_t row, std::int64_t i) { return form.spread * bell(3, row, i); });
    }

    const LossForm form;
    const std::vector<std::int64_t> targets;
    IntegerTensor ids;
    Tensor logits, losses, dlogits;
    halyard_cross_entropy_options options{};
    const DLTensor *from = &logits.view, *of = &ids.view;
    DLTensor *to_losses = &losses.view, *to_gradients = &dlogits.view;

    halyard_status run(const halyard_context *context) {
        return halyard_cross_entropy(context, from, of, &options, to_losses, to_gradients);
    }

    std::vector<std::uint32_t> bits() const {
        std::vector<std::uint32_t> all = losses.all_bits();
        const std::vector<std::uint32_t> gradients = dlogits.all_bits();
        all.insert(all.end(), gradients.begin(), gradients.end());
        return all;
    }

    operations::CrossEntropy expected(std::int64_t row) const {
        const std::int64_t target = targets[static_cast<std::size_t>(row)];
        if (options.has_ignore_index != 0 && target == options.ignore_index) {
            return {{0, 0}, ExpectedRow(static_cast<std::size_t>(form.classes), {0, 0})};
        }
        const auto scale = static_cast<double>(options.gradient_scale);
        return operations::cross_entropy(logits.row_values(row), static_cast<std::size_t>(target),
                                         scale == 0 ? 1 : scale);
    }

    /** Success if both outputs are right and nothing else was written. */
    testing::AssertionResult check(const std::vector<operations::CrossEntropy> &all) const {
        Matrix gradients;
        for (std::size_t row = 0; row < all.size(); row++) {
            const std::int64_t width = losses.width(), place = static_cast<std::int64_t>(row);
            const double got = losses.get(place / width, place % width);
            if (!acceptable(Dtype::f32, all[row].loss, got)) {
                return testing::AssertionFailure() << "the loss of row " << row << " is " << got << ", expected "
                                                   << all[row].loss.value << " +- " << all[row].loss.error;
            }
            gradients.push_back(all[row].dlogits);
        }
        for (const Tensor *const tensor : {&logits, &losses, &dlogits}) {
            if (!tensor->surroundings_intact()) {
                return testing::AssertionFailure() << "memory outside a tensor was written";
            }
        }
        return as_expected(dlogits, gradients);
    }
    std::vector<operations::CrossEntropy> all_expected() const {
        std::vector<operations::CrossEntropy> all;
        for (std::int64_t row = 0; row < form.rows(); row++) {
            all.push_back(expected(row));
        }
        return all;
    }
};

/** On every instruction set, with as many threads as its number says. */
void expect_right(Loss &call) {
    const std::vector<operations::CrossEntropy> expected = call.all_expected();
    for (const halyard_isa isa : row_isas()) {
        call.losses.clear();
        call.dlogits.clear();
        ASSERT_EQ(call.run(Context(isa, static_cast<int>(isa) / 10 % 5).get()), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(call.check(expected)) << call.form.classes << " classes, " << halyard_isa_name(isa);
    }
}

std::vector<LossForm> forms() {
    std::vector<LossForm> all;
    for (const std::int64_t classes : {1, 2, 64, 67, 1000, 4099}) {
        all.push_back({{5}, classes});
    }
    all.push_back({{2, 67}, 131});  // more rows than are reduced at once
    return all;
}

// ---- The reference ----

TEST(CrossEntropyReference, GradientIsTheSlopeOfTheLoss) {
    Row logits;
    for (std::int64_t i = 0; i < 9; i++) {
        logits.push_back(2 * bell(4, 0, i));
    }
    for (std::size_t target = 0; target < logits.size(); target++) {
        const Row got = values_of(operations::cross_entropy(logits, target, 0.5).dlogits);
        for (std::size_t i = 0; i < logits.size(); i++) {
            const double middle = logits[i], h = 1e-3;
            const auto f = [&](double offset) {
                logits[i] = middle + offset;
                return operations::cross_entropy(logits, target, 1).loss.value;
            };
            EXPECT_NEAR(got[i], 0.5 * (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h), 1e-11);
            logits[i] = middle;
        }
    }
}

TEST(CrossEntropyReference, LossIsMinusTheLogarithmOfSoftmax) {
    const Row logits = {0.5, -2, 3, 3, 1.25};
    const Row probabilities = values_of(softmax(logits, 1, Dtype::f32));
    for (std::size_t target = 0; target < logits.size(); target++) {
        EXPECT_NEAR(operations::cross_entropy(logits, target, 1).loss.value, -std::log(probabilities[target]), 1e-14);
    }
}

// ---- Results ----

TEST(CrossEntropy, OfManyWidths) {
    for (const std::int64_t classes : {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 131, 1000, 4096, 4099}) {
        for (const bool is_64_bit : {false, true}) {
            LossForm form = {{7}, classes};
            form.gap = is_64_bit ? 3 : 0;
            form.shift = is_64_bit ? 1 : 0;
            form.step = is_64_bit ? 2 : 1;
            form.is_64_bit = is_64_bit;
            Loss call(form);
            expect_right(call);
        }
    }
}

TEST(CrossEntropy, OfAVocabulary) {
    Loss call({{reduced ? 2 : 9}, 50257});
    call.options.gradient_scale = 1.0f / 9;
    expect_right(call);
}

TEST(CrossEntropy, OfAnyRank) {
    for (const Shape &leading : {Shape{3, 5}, Shape{2, 3, 4}, Shape{2, 67}, Shape{1, 1, 1}}) {
        LossForm form = {leading, 37};
        form.gap = 2;
        form.step = 3;
        Loss call(form);
        expect_right(call);
    }
    Loss call({{1}, 37});
    call.logits.view.ndim = call.dlogits.view.ndim = 1;
    call.logits.view.shape++;
    call.logits.view.strides++;
    call.dlogits.view.shape++;
    call.dlogits.view.strides++;
    expect_right(call);
}

TEST(CrossEntropy, OfNoRows) {
    Loss call({{0}, 5}, {});
    EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
}

// Where one logit is above all others the loss and the gradient of its row are far below 2^-24, down to the last denormal.
TEST(CrossEntropy, KeepsItsAccuracyWhereTheLossIsTiny) {
    for (const std::int64_t classes : {2, 67}) {
        LossForm form = {{reduced ? 27 : 211}, classes};
        const std::int64_t rows = form.rows();
        Loss call(form, std::vector<std::int64_t>(static_cast<std::size_t>(rows), classes - 1));
        call.logits.fill([&](std::int64_t row, std::int64_t i) {
            const double below = 105.0 * static_cast<double>(row) / static_cast<double>(rows);
            return i == classes - 1 ? 1.5 : 1.5 - below - uniform(5, row, i);
        });
        expect_right(call);
        // In other words, without the reference: while the sum is no denormal the loss is within its relative error.
        for (std::int64_t row = 0; row < rows; row++) {
            long double rest = 0;
            for (std::int64_t i = 0; i + 1 < classes; i++) {
                rest += std::exp(static_cast<long double>(call.logits.get(row, i)) - 1.5L);
            }
            if (rest > 0x1p-120L) {
                const long double loss = std::log1p(rest), slope = -rest / (1 + rest), tolerance = 128 * 0x1p-24L;
                EXPECT_NEAR(static_cast<double>(static_cast<long double>(call.losses.get(0, row)) / loss), 1,
                            static_cast<double>(tolerance));
                EXPECT_NEAR(static_cast<double>(static_cast<long double>(call.dlogits.get(row, classes - 1)) / slope),
                            1, static_cast<double>(tolerance));
            }
        }
    }
}

TEST(CrossEntropy, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
    for (const std::int64_t classes : {1, 2, 67, 5000}) {
        Loss call({{3}, classes});
        call.logits.fill([](std::int64_t row, std::int64_t) { return 1e30 * static_cast<double>(row - 1); });
        expect_right(call);
        EXPECT_NEAR(call.losses.get(0, 0), std::log(static_cast<double>(classes)), 3e-7 * 9);
    }
}

TEST(CrossEntropy, ScalesItsGradientAlone) {
    for (const float scale : {0.0f, 1.0f, -3.5f, 1.0f / 512, 1e-30f}) {
        Loss call({{5}, 67});
        call.options.gradient_scale = scale;
        expect_right(call);
    }
    Loss with({{5}, 67}), without({{5}, 67});
    ASSERT_EQ(with.run(nullptr), HALYARD_OK);
    ASSERT_EQ(
        halyard_cross_entropy(nullptr, without.from, without.of, nullptr, without.to_losses, without.to_gradients),
        HALYARD_OK);
    EXPECT_TRUE(same_bits(Dtype::f32, with.bits(), without.bits()));
}

TEST(CrossEntropy, GivesEachOutputByItselfAndInPlace) {
    for (const LossForm &form : forms()) {
        Loss both(form), loss(form), gradient(form), in_place(form), nothing(form);
        loss.to_gradients = nullptr;
        gradient.to_losses = nullptr;
        in_place.to_gradients = &in_place.logits.view;
        nothing.to_losses = nothing.to_gradients = nullptr;
        for (Loss *const call : {&both, &loss, &gradient, &in_place, &nothing}) {
            ASSERT_EQ(call->run(nullptr), HALYARD_OK) << halyard_last_error();
        }
        EXPECT_TRUE(same_bits(Dtype::f32, both.losses.all_bits(), loss.losses.all_bits()));
        EXPECT_TRUE(same_bits(Dtype::f32, both.dlogits.all_bits(), gradient.dlogits.all_bits()));
        EXPECT_TRUE(same_bits(Dtype::f32, both.losses.all_bits(), in_place.losses.all_bits()));
        EXPECT_TRUE(same_bits(Dtype::f32, both.dlogits.all_bits(), in_place.logits.all_bits()));
    }
}

TEST(CrossEntropy, ARowIsTheSameAloneAndAmongOthers) {
    for (const halyard_isa isa : row_isas()) {
        for (const LossForm &form : forms()) {
            Loss all(form);
            ASSERT_EQ(all.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            for (std::int64_t row = 0; row < form.rows(); row += 3) {
                Loss alone({{1}, form.classes}, {all.targets[static_cast<std::size_t>(row)]});
                alone.logits.fill([&](std::int64_t, std::int64_t i) { return all.logits.get(row, i); });
                ASSERT_EQ(alone.run(Context(isa).get()), HALYARD_OK);
                const std::int64_t width = all.losses.width();
                EXPECT_EQ(alone.losses.bits(0, 0), all.losses.bits(row / width, row % width));
                for (std::int64_t i = 0; i < form.classes; i++) {
                    ASSERT_EQ(alone.dlogits.bits(0, i), all.dlogits.bits(row, i)) << row << ", " << i;
                }
            }
        }
    }
}

TEST(CrossEntropy, ThreadsDoNotMatter) {
    std::vector<LossForm> wide = forms();
    wide.push_back({{reduced ? 5 : 61}, 20011});  // worth several threads
    wide.push_back({{3, 1500}, 67});
    for (const halyard_isa isa : row_isas()) {
        for (const LossForm &form : wide) {
            Loss call(form);
            ASSERT_EQ(call.run(Context(isa, 1).get()), HALYARD_OK);
            const std::vector<std::uint32_t> expected = call.bits();
            for (const int threads : {2, 3, 8}) {
                ASSERT_EQ(call.run(Context(isa, threads).get()), HALYARD_OK);
                EXPECT_TRUE(same_bits(Dtype::f32, expected, call.bits())) << threads << " threads";
            }
            const Context context(isa, 4);
            ReverseThreads parallel_for;
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &parallel_for), HALYARD_OK);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK);
            EXPECT_TRUE(same_bits(Dtype::f32, expected, call.bits()));
        }
    }
}

TEST(CrossEntropy, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("cross_entropy", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const LossForm &form : forms()) {
            Loss call(form);
            EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(call.bits());
            hashes[std::to_string(form.rows()) + "x" + std::to_string(form.classes)] = results.text();
        }
        return hashes;
    });
}

// ---- Rows that do not count, and special values ----

TEST(CrossEntropy, RowsThatAreIgnoredAreZero) {
    for (const std::int64_t ignored : {-100, 2, 1000000}) {
        LossForm form = {{6}, 67};
        form.is_64_bit = ignored != 2;
        Loss call(form, {ignored, 5, ignored, 66, 0, ignored});
        call.options.has_ignore_index = 1;
        call.options.ignore_index = ignored;
        call.logits.set(0, 3, nan);
        call.logits.set(2, 4, infinity);
        expect_right(call);
        for (const std::int64_t row : {0, 2, 5}) {
            EXPECT_EQ(call.losses.bits(0, row), 0U);
            for (std::int64_t i = 0; i < 67; i++) {
                EXPECT_EQ(call.dlogits.bits(row, i), 0U);
            }
        }
    }
}

TEST(CrossEntropy, WithoutAnIgnoredIndexEveryTargetCounts) {
    Loss call({{2}, 5}, {0, 4});
    call.options.ignore_index = 4;
    expect_right(call);
    EXPECT_NE(call.losses.get(0, 1), 0);
}

TEST(CrossEntropy, NanAndInfinityGiveNanInTheirRow) {
    for (const double special : {nan, infinity}) {
        for (const std::int64_t classes : {1, 5, 67, 128, 1000}) {
            for (const std::int64_t place : {std::int64_t{0}, classes / 2, classes - 1}) {
                Loss call({{3}, classes});
                call.logits.set(1, place, special);
                expect_right(call);
                EXPECT_TRUE(std::isnan(call.losses.get(0, 1)));
                EXPECT_TRUE(std::isnan(call.dlogits.get(1, 0)));
                EXPECT_FALSE(std::isnan(call.losses.get(0, 0)));
            }
        }
    }
    Loss call({{2}, 67});
    call.logits.fill([](std::int64_t row, std::int64_t i) { return row == 0 ? -infinity : static_cast<double>(i); });
    expect_right(call);
    EXPECT_TRUE(std::isnan(call.losses.get(0, 0)));
}

TEST(CrossEntropy, MinusInfinityHasNoProbability) {
    Loss call({{2}, 67}, {40, 7});
    call.logits.set(0, 3, -infinity);
    call.logits.set(1, 7, -infinity);
    expect_right(call);
    EXPECT_EQ(call.dlogits.get(0, 3), 0);
    EXPECT_EQ(call.losses.get(0, 1), infinity);
    EXPECT_EQ(call.dlogits.get(1, 7), -1);
}

TEST(CrossEntropy, OfLogitsFarApart) {
    Loss call({{3}, 5}, {0, 1, 2});
    const double most = static_cast<double>(std::numeric_limits<float>::max());
    const double rows[3][5] = {{-most, most, 0, 1, 2}, {-200, 0, 1000, -1000, 3}, {0, 0, 104, 0, 0.5}};
    call.logits.fill([&](std::int64_t row, std::int64_t i) { return rows[row][i]; });
    expect_right(call);
    EXPECT_EQ(call.losses.get(0, 0), infinity);
    EXPECT_EQ(call.losses.get(0, 1), 1000);
}

// ---- The mean ----

TEST(MeanLoss, CountsWhatIsNotIgnored) {
    Loss call({{2, 3}, 11}, {-1, 5, 3, -1, 0, 10});
    call.options.has_ignore_index = 1;
    call.options.ignore_index = -1;
    ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    double sum = 0, mean = 0;
    for (const int row : {1, 2, 4, 5}) {
        sum += call.losses.get(row / 3, row % 3);
    }
    std::int64_t count = 0;
    ASSERT_EQ(halyard_mean_loss(&call.losses.view, call.of, &call.options, &mean, &count), HALYARD_OK);
    EXPECT_EQ(count, 4);
    EXPECT_EQ(mean, sum / 4);
    ASSERT_EQ(halyard_mean_loss(&call.losses.view, call.of, nullptr, &mean, nullptr), HALYARD_OK);
    EXPECT_EQ(mean, sum / 6);
    const IntegerTensor none({-1, -1, -1, -1, -1, -1}, {2, 3});
    ASSERT_EQ(halyard_mean_loss(&call.losses.view, &none.view, &call.options, &mean, &count), HALYARD_OK);
    EXPECT_EQ(count, 0);
    EXPECT_TRUE(std::isnan(mean));
}

// ---- Refusals ----

/** Expects a call that `change` has spoiled to be refused with this message, and to write nothing. */
template<typename Change>
void expect_refused(halyard_status status, const std::string &message, const Change &change) {
    Loss call({{2, 3}, 7}, {0, 1, 2, 3, 4, 5});
    change(call);
    const std::vector<std::uint32_t> before = call.bits(), logits = call.logits.all_bits();
    EXPECT_EQ(call.run(nullptr), status);
    EXPECT_EQ(std::string(halyard_last_error()), "halyard_cross_entropy: " + message);
    EXPECT_TRUE(same_bits(Dtype::f32, before, call.bits())) << message;
    EXPECT_TRUE(same_bits(Dtype::f32, logits, call.logits.all_bits())) << message;
}

TEST(CrossEntropy, RefusesTensorsThatDoNotFit) {
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    Tensor half(Dtype::f16, {{2, 3, 7}, {}}), other(Dtype::f32, {{2, 4, 7}, {}}), none(Dtype::f32, {{2, 3, 0}, {}});
    half.fill([](std::int64_t, std::int64_t) { return 0.0; });
    const IntegerTensor flat({0, 1, 2, 3, 4, 5}, {6});
    expect_refused(invalid, "logits is null", [](Loss &c) { c.from = nullptr; });
    expect_refused(unsupported, "logits must have dtype f32", [&](Loss &c) { c.from = &half.view; });
    expect_refused(invalid, "logits has an empty last axis: its rows need at least one feature",
                   [&](Loss &c) { c.from = &none.view; });
    expect_refused(invalid, "targets is null", [](Loss &c) { c.of = nullptr; });
    expect_refused(invalid, "targets must have the leading shape of logits, or [1] where that has one axis",
                   [&](Loss &c) { c.of = &flat.view; });
    expect_refused(unsupported, "targets has dtype f32, but must be int32 or int64",
                   [](Loss &c) { c.of = &c.losses.view; });
    expect_refused(invalid, "losses must have the leading shape of logits, or [1] where that has one axis",
                   [&](Loss &c) { c.to_losses = &other.view; });
    expect_refused(unsupported, "dlogits must have dtype f32", [&](Loss &c) { c.to_gradients = &half.view; });
    expect_refused(invalid, "dlogits has extent 4 on axis 1, but must have the shape of logits, which has 3",
                   [&](Loss &c) { c.to_gradients = &other.view; });
}

TEST(CrossEntropy, RefusesOverlaps) {
    expect_refused(HALYARD_INVALID_ARGUMENT, "losses overlaps logits, which this function does not allow",
                   [](Loss &c) { c.losses.view.data = c.logits.view.data; });
    expect_refused(HALYARD_INVALID_ARGUMENT, "losses overlaps dlogits, which this function does not allow",
                   [](Loss &c) { c.losses.view.data = c.dlogits.view.data; });
    expect_refused(HALYARD_INVALID_ARGUMENT,
                   "dlogits overlaps logits without being the same view (same data, shape and strides)",
                   [](Loss &c) { c.dlogits.view.data = static_cast<float *>(c.logits.view.data) + 1; });
    expect_refused(HALYARD_INVALID_ARGUMENT, "losses overlaps targets, which this function does not allow",
                   [](Loss &c) { c.losses.view.data = c.ids.view.data; });
    expect_refused(HALYARD_INVALID_ARGUMENT, "dlogits overlaps targets, which this function does not allow",
                   [](Loss &c) { c.ids.view.data = c.dlogits.view.data; });
}

TEST(CrossEntropy, RefusesTargetsOutOfRange) {
    const auto with = [](std::vector<std::int64_t> targets, bool is_64_bit, const std::string &message) {
        LossForm form = {{2, 3}, 7};
        form.is_64_bit = is_64_bit;
        form.step = 2;
        Loss call(form, targets);
        call.options.has_ignore_index = 1;
        call.options.ignore_index = -5;
        const std::vector<std::uint32_t> before = call.bits();
        EXPECT_EQ(call.run(nullptr), HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(std::string(halyard_last_error()), "halyard_cross_entropy: " + message);
        EXPECT_TRUE(same_bits(Dtype::f32, before, call.bits()));
    };
    with({0, 1, 2, 3, 7, 5}, true, "targets[1, 1] is 7, but the number of classes is 7");
    with({0, 1, -1, 3, 4, 5}, false, "targets[0, 2] is -1, but the number of classes is 7");
    with({-5, -5, -5, -5, -5, std::int64_t{1} << 40}, true,
         "targets[1, 2] is 1099511627776, but the number of classes is 7");
}

TEST(CrossEntropy, RefusesAScaleThatIsNotFinite) {
    expect_refused(HALYARD_INVALID_ARGUMENT, "options.gradient_scale is nan, but must be finite",
                   [](Loss &c) { c.options.gradient_scale = std::nanf(""); });
    expect_refused(HALYARD_INVALID_ARGUMENT, "options.gradient_scale is -inf, but must be finite",
                   [](Loss &c) { c.options.gradient_scale = -std::numeric_limits<float>::infinity(); });
}

TEST(MeanLoss, RefusesWhatDoesNotFit) {
    Loss call({{2, 3}, 7});
    ASSERT_EQ(call.run(nullptr), HALYARD_OK);
    const IntegerTensor flat({0, 1, 2, 3, 4, 5}, {6});
    Tensor half(Dtype::f16, {{2, 3}, {}});
    double mean = 5;
    const auto refuse = [&](halyard_status status, const std::string &message, const DLTensor *losses,
                            const DLTensor *targets, double *to) {
        EXPECT_EQ(halyard_mean_loss(losses, targets, nullptr, to, nullptr), status);
        EXPECT_EQ(std::string(halyard_last_error()), "halyard_mean_loss: " + message);
        EXPECT_EQ(mean, 5);
    };
    refuse(HALYARD_INVALID_ARGUMENT, "losses is null", nullptr, call.of, &mean);
    refuse(HALYARD_UNSUPPORTED, "losses must have dtype f32", &half.view, call.of, &mean);
    refuse(HALYARD_INVALID_ARGUMENT, "targets is null", &call.losses.view, nullptr, &mean);
    refuse(HALYARD_INVALID_ARGUMENT, "targets must have the shape of losses", &call.losses.view, &flat.view, &mean);
    refuse(HALYARD_INVALID_ARGUMENT, "mean is null", &call.losses.view, call.of, nullptr);
}

}  // namespace
}  // namespace halyard::tests
