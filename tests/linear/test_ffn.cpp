// Feed-forward networks as one call: against float64 with derived bounds, against the calls they are made of bit by
// bit, the deferred norm, the hidden width, calls from many threads.
#include "support/ffn.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

namespace halyard::tests {
namespace {

#ifdef HALYARD_TESTS_REDUCED
const std::int64_t row_counts[] = {1, 2, 9, 20, 257};
constexpr int rounds = 2;
constexpr int every = 5;  // one in so many of the combinations
#else
const std::int64_t row_counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,
                                   13, 14, 15, 16, 17, 18, 19, 20, 255, 256, 257, 600};
constexpr int rounds = 10;
constexpr int every = 1;
#endif

/** With every instruction set, and what is multiplied rounded to bf16 or not: within the bounds of float64, and the bits of the separate calls. */
void expect_right(const FfnForm &form) {
    Ffn ffn(form);
    const Matrix expected = ffn.expected();
    Tensor composed(form.y, compact_form(ffn.y.shape()));
    for (const halyard_isa isa : product_isas(form.x, form.up)) {
        const Context context(isa);
        ffn.y.clear();
        ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << ffn.describe();
        ASSERT_TRUE(as_expected(ffn.y, expected)) << halyard_isa_name(isa) << "; " << ffn.describe();
        ffn.compose(context.get(), composed);
        ASSERT_TRUE(same_rows(composed, ffn.y)) << halyard_isa_name(isa) << "; " << ffn.describe();
        ASSERT_TRUE(ffn.surroundings_intact()) << halyard_isa_name(isa);
        if (form.residual) {
            Tensor stream(form.x, ffn.x.form());
            stream.copy_from(ffn.x);
            ASSERT_EQ(
                halyard_ffn(context.get(), &stream.view, ffn.up.get(), ffn.down.get(), &ffn.options, &stream.view),
                HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(same_rows(stream, ffn.y)) << "in place, " << halyard_isa_name(isa) << "; " << ffn.describe();
            ASSERT_TRUE(stream.surroundings_intact());
        }
    }
    if (!ffn.rounds()) {
        return;
    }
    ffn.full_products = true;
    const Matrix in_full = ffn.expected();
    for (const halyard_isa isa : supported_isas()) {
        const Context context(isa);
        ASSERT_EQ(halyard_context_set_products(context.get(), HALYARD_PRODUCTS_FULL), HALYARD_OK);
        ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << ffn.describe();
        ASSERT_TRUE(as_expected(ffn.y, in_full)) << halyard_isa_name(isa) << "; " << ffn.describe();
        ffn.compose(context.get(), composed);
        ASSERT_TRUE(same_rows(composed, ffn.y)) << halyard_isa_name(isa) << "; " << ffn.describe();
    }
}

// ---- Results -----------------------------------------------------------------------------------------------------

struct NormCase {
    halyard_norm norm;
    unsigned flags;
    bool deferred;
};

const NormCase norm_cases[] = {
    {HALYARD_NORM_NONE, 0, false},
    {HALYARD_NORM_RMS, 0, false},
    {HALYARD_NORM_RMS, HALYARD_RMS_EPS_OUTSIDE_ROOT, false},
    {HALYARD_NORM_RMS, HALYARD_RMS_UNIT_OFFSET, false},
    {HALYARD_NORM_LAYER, 0, false},
    {HALYARD_NORM_RMS, 0, true},
    {HALYARD_NORM_RMS, HALYARD_RMS_EPS_OUTSIDE_ROOT, true},
    {HALYARD_NORM_RMS, HALYARD_RMS_UNIT_OFFSET, true},
    {HALYARD_NORM_LAYER, 0, true},
};

FfnForm with_norm(FfnForm form, const NormCase &norm) {
    form.norm = norm.norm;
    form.norm_flags = norm.flags;
    form.deferred = norm.deferred;
    return form;
}

TEST(Ffn, AnyTypesAndNorm) {
    int number = 0;
    for (const Dtype x : all_dtypes) {
        for (const Dtype w : all_dtypes) {
            for (const Dtype y : all_dtypes) {
                for (const NormCase &norm : norm_cases) {
                    if (++number % every != 0) {
                        continue;
                    }
                    FfnForm form = with_norm({}, norm);
                    form.x = x;
                    form.up = w;
                    form.down = all_dtypes[number % 3];
                    form.y = y;
                    form.residual = x == y && number % 2 == 0;
                    form.gated = number % 4 < 2;
                    form.activation = form.gated ? HALYARD_SILU : HALYARD_GELU_TANH;
                    form.bias = number % 3 == 0;
                    form.bias_down = number % 5 == 0;
                    form.f32_norm_weight = number % 4 == 1;
                    form.f32_norm_bias = number % 7 < 3;
                    form.leading = {1 + number % 10};
                    form.d_model = 33 + number % 4;
                    form.d_ff = 50 + number % 7;
                    form.x_gap = number % 3;
                    form.y_gap = number % 4;
                    ASSERT_NO_FATAL_FAILURE(expect_right(form));
                }
            }
        }
    }
}

TEST(Ffn, AnyActivation) {
    for (const LayerActivation &activation : layer_activations()) {
        for (const bool gated : {false, true}) {
            for (const bool deferred : {false, true}) {
                FfnForm form;
                form.gated = gated;
                form.activation = activation.value;
                form.beta = activation.value == HALYARD_SWISH ? 1.702f : 0;
                form.norm = HALYARD_NORM_RMS;
                form.deferred = deferred;
                form.residual = true;
                form.d_model = 37;
                form.d_ff = 70;
                form.leading = {5};
                ASSERT_NO_FATAL_FAILURE(expect_right(form));
            }
        }
    }
}

TEST(Ffn, AnyOptions) {
    // One bit for each option.
    enum {
        bias = 1,
        bias_up = 2,
        bias_down = 4,
        residual = 8,
        gated = 16,
        norm_weight = 32,
        norm_bias = 64,
        all = 128
    };
    for (int options = 0; options < all; options++) {
        if ((options & bias_up) && !(options & gated)) {
            continue;
        }
        for (const NormCase &norm : {norm_cases[0], norm_cases[1], norm_cases[4], norm_cases[5], norm_cases[8]}) {
            FfnForm form = with_norm({}, norm);
            form.bias = options & bias;
            form.bias_up = options & bias_up;
            form.bias_down = options & bias_down;
            form.residual = options & residual;
            form.gated = options & gated;
            form.norm_weight = options & norm_weight;
            form.norm_bias = options & norm_bias;
            form.bias_type = all_dtypes[options % 3];
            form.activation = HALYARD_SILU;
            form.leading = {2};
            const bool meaningless = (form.norm == HALYARD_NORM_NONE && (form.norm_weight || form.norm_bias)) ||
                                     (form.norm == HALYARD_NORM_RMS && form.norm_bias) ||
                                     (form.deferred && !form.has_norm_weight() && !form.has_norm_bias());
            if (!meaningless) {
                ASSERT_NO_FATAL_FAILURE(expect_right(form));
            }
        }
    }
}

TEST(Ffn, AnyWidths) {
    struct Widths {
        std::int64_t d_model, d_ff;
    };
    int number = 0;
    for (const Widths &widths :
         {Widths{1, 1}, Widths{1, 17}, Widths{15, 1}, Widths{16, 16}, Widths{17, 31}, Widths{33, 512}, Widths{32, 513},
          Widths{511, 40}, Widths{513, 67}, Widths{1025, 33}, Widths{65, 1030}, Widths{520, 1100}}) {
        for (const NormCase &norm : {norm_cases[0], norm_cases[1], norm_cases[4], norm_cases[8]}) {
            number++;
            if (emulated && number % 3 != 0) {
                continue;  // each of the widths and norms, but not all pairs
            }
            FfnForm form = with_norm({}, norm);
            form.d_model = widths.d_model;
            form.d_ff = widths.d_ff;
            form.gated = number % 2 == 0;
            form.up = all_dtypes[number % 3];
            form.activation = HALYARD_SILU;
            form.residual = number % 3 == 0;
            form.leading = {1 + number % 9};
            if (widths.d_model == 1 && norm.norm == HALYARD_NORM_LAYER) {
                continue;  // Rows without deviation: what their deferred norm gives is rounding.
            }
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
}

TEST(Ffn, AnyNumberOfRows) {
    for (const NormCase &norm : {norm_cases[0], norm_cases[1], norm_cases[4], norm_cases[5], norm_cases[8]}) {
        for (const std::int64_t rows : row_counts) {
            FfnForm form = with_norm({}, norm);
            form.leading = {rows};
            form.gated = rows % 2 == 0;
            form.activation = HALYARD_GELU;
            form.residual = true;
            form.bias_down = true;
            form.y_gap = rows % 3;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
}

TEST(Ffn, AnyRank) {
    for (const Shape &leading : {Shape{}, Shape{2, 3}, Shape{3, 1, 2}, Shape{0}, Shape{2, 0}}) {
        for (const NormCase &norm : norm_cases) {
            FfnForm form = with_norm({}, norm);
            form.leading = leading;
            form.residual = true;
            form.x_gap = 3;
            form.y_gap = 2;
            form.x = form.y = Dtype::bf16;
            Ffn ffn(form);
            if (ffn.x.count() != 0) {
                ASSERT_NO_FATAL_FAILURE(expect_right(form));
                continue;
            }
            EXPECT_EQ(ffn.run(nullptr), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(ffn.surroundings_intact());
        }
    }
}

TEST(Ffn, MayOverlapXOnlyWhereItIsAddedInPlace) {
    FfnForm form;
    form.leading = {4};
    form.residual = true;
    Ffn ffn(form);
    DLTensor shifted = ffn.x.view;
    shifted.data = ffn.x.at(1, 0);
    std::int64_t shape[] = {3, form.d_model};
    DLTensor first = ffn.x.view;
    shifted.shape = first.shape = shape;
    const auto refusal = [&](const DLTensor &x, DLTensor &y) {
        EXPECT_EQ(halyard_ffn(nullptr, &x, ffn.up.get(), ffn.down.get(), &ffn.options, &y), HALYARD_INVALID_ARGUMENT);
        return std::string(halyard_last_error());
    };
    EXPECT_EQ(refusal(first, shifted),
              "halyard_ffn: y overlaps x without being the same view (same data, shape and strides)");
    ffn.options.residual = 0;
    EXPECT_EQ(refusal(ffn.x.view, ffn.x.view), "halyard_ffn: y overlaps x, which this function does not allow");
}

TEST(Ffn, WithoutOptionsIsTwoProducts) {
    Ffn ffn{FfnForm()};
    const Matrix expected = ffn.expected();
    ASSERT_EQ(halyard_ffn(nullptr, &ffn.x.view, ffn.up.get(), ffn.down.get(), nullptr, &ffn.y.view), HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(as_expected(ffn.y, expected));
}

// ---- The deferred norm -------------------------------------------------------------------------------------------

/** What a result may be before it is rounded to its type, and after. */
double half_spacing(Dtype type, const Expected &one) {
    return spacing(type, std::fabs(one.value) + one.error) / 2;
}

TEST(FfnDeferredNorm, IsThePlainFormWithinRounding) {
    for (const Dtype type : all_dtypes) {
        for (const NormCase &norm : norm_cases) {
            if (!norm.deferred) {
                continue;
            }
            for (const double mean : {0.0, 3.0}) {
                FfnForm form = with_norm({}, norm);
                form.x = form.y = type;
                form.gated = true;
                form.activation = HALYARD_SILU;
                form.d_model = 130;
                form.d_ff = 75;
                form.leading = {9};
                form.residual = true;
                FfnForm plain_form = form;
                plain_form.deferred = false;
                Ffn deferred(form), plain(plain_form);
                for (Ffn *ffn : {&deferred, &plain}) {
                    ffn->x.fill([&](std::int64_t row, std::int64_t i) { return mean + bell(149, row, i); });
                }
                const Matrix deferred_expected = deferred.expected(), plain_expected = plain.expected();
                for (const halyard_isa isa : product_isas(form.x, form.up)) {
                    const Context context(isa);
                    ASSERT_EQ(deferred.run(context.get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_EQ(plain.run(context.get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_TRUE(as_expected(deferred.y, deferred_expected)) << deferred.describe();
                    for (std::int64_t row = 0; row < 9; row++) {
                        for (std::int64_t i = 0; i < form.d_model; i++) {
                            const auto m = static_cast<std::size_t>(row), n = static_cast<std::size_t>(i);
                            const Expected &a = deferred_expected[m][n], &b = plain_expected[m][n];
                            // The weights folded exactly, so both are roundings of one number.
                            ASSERT_NEAR(a.value, b.value, 1e-12 * (1 + std::fabs(a.value)));
                            ASSERT_NEAR(deferred.y.get(row, i), plain.y.get(row, i),
                                        1.001 * (a.error + b.error + half_spacing(type, a) + half_spacing(type, b)))
                                << halyard_isa_name(isa) << "; " << deferred.describe();
                        }
                    }
                }
            }
        }
    }
}

// ---- Bits --------------------------------------------------------------------------------------------------------

/** A network large enough for several threads. */
FfnForm large_form(std::int64_t rows, Dtype type) {
    FfnForm form;
    form.leading = {rows};
    form.x = form.y = form.up = form.down = type;
    form.d_model = emulated ? 90 : 260;
    form.d_ff = 600;
    form.gated = true;
    form.norm = HALYARD_NORM_RMS;
    form.activation = HALYARD_SILU;
    form.residual = true;
    return form;
}

TEST(FfnBits, DoNotDependOnThreadsOrRows) {
    const std::vector<int> thread_counts = {2, 3, 4}, few = {3};
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        for (const bool deferred : {false, true}) {
            if (emulated && deferred == (type == Dtype::f32)) {
                continue;
            }
            FfnForm form = large_form(300, type);
            form.deferred = deferred;
            Ffn ffn(form);
            const halyard_isa isa = supported_isas().back();
            ASSERT_EQ(ffn.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
            Tensor serial(type, compact_form(ffn.y.shape()));
            serial.copy_from(ffn.y);
            for (const int threads : emulated ? few : thread_counts) {
                ffn.y.clear();
                ASSERT_EQ(ffn.run(Context(isa, threads).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(serial, ffn.y)) << threads << " threads; " << ffn.describe();
            }
            ReverseThreads own;
            const Context context(isa, 3);
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &own), HALYARD_OK);
            ffn.y.clear();
            ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(same_rows(serial, ffn.y)) << "own threads; " << ffn.describe();
            EXPECT_GT(own.tasks, own.calls);
            // Rows at other places of smaller calls.
            for (const std::int64_t first : {0, 1, 8, 255, 256, 299}) {
                const std::int64_t rows = std::min<std::int64_t>(300 - first, 1 + first % 5);
                DLTensor x = ffn.x.view;
                std::int64_t shape[] = {rows, form.d_model};
                x.shape = shape;
                x.data = ffn.x.at(first, 0);
                Tensor y(type, compact_form({rows, form.d_model}));
                ASSERT_EQ(halyard_ffn(context.get(), &x, ffn.up.get(), ffn.down.get(), &ffn.options, &y.view),
                          HALYARD_OK);
                for (std::int64_t row = 0; row < rows; row++) {
                    ASSERT_EQ(y.row_values(row), serial.row_values(first + row)) << "row " << row << " from " << first;
                }
            }
        }
    }
}

TEST(FfnBits, AreTheSameWithEveryFusedInstructionSet) {
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.size() < 2) {
        GTEST_SKIP() << "this machine runs fewer than two instruction sets with fused multiply-add";
    }
    std::size_t number = 0;
    for (const NormCase &norm : norm_cases) {
        for (const std::int64_t rows : {1, 7, 30}) {
            if (emulated && number++ % 4 != 0) {
                continue;
            }
            for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
                FfnForm form = with_norm(large_form(rows, Dtype::f32), norm);
                form.x = form.y = form.up = form.down = type;
                Ffn ffn(form);
                ASSERT_EQ(ffn.run(Context(isas.front()).get()), HALYARD_OK) << halyard_last_error();
                Tensor first(type, compact_form(ffn.y.shape()));
                first.copy_from(ffn.y);
                for (const halyard_isa isa : isas) {
                    ffn.y.clear();
                    ASSERT_EQ(ffn.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_TRUE(same_rows(first, ffn.y)) << halyard_isa_name(isa) << "; " << ffn.describe();
                }
            }
        }
    }
}

TEST(FfnBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("ffn", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const NormCase &norm : norm_cases) {
            for (const bool gated : {false, true}) {
                BitsHash results;
                for (const std::int64_t rows : {1, 6, 9}) {
                    FfnForm form = with_norm(large_form(rows, Dtype::f32), norm);
                    form.d_model = 70;
                    form.d_ff = 90;
                    form.gated = gated;
                    form.activation = gated ? HALYARD_SILU : HALYARD_GELU;
                    form.bias = form.bias_down = true;
                    Ffn ffn(form);
                    EXPECT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
                    results.add(ffn.y.all_bits());
                }
                hashes["norm_" + std::to_string(norm.norm) + "_flags_" + std::to_string(norm.flags) +
                       (norm.deferred ? "_deferred" : "") + (gated ? "_gated" : "")] = results.text();
            }
        }
        return hashes;
    });
}

TEST(FfnBits, OfBfloat16AreThoseOfEveryMachine) {
    expect_reference_hashes("ffn_bf16", [](halyard_isa isa) {
        Hashes hashes;
        for (const NormCase &norm : norm_cases) {
            for (const auto &[name, products] : all_products) {
                const Context context(isa);
                EXPECT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
                BitsHash results;
                for (const std::int64_t rows : {1, 9}) {
                    FfnForm form = with_norm(large_form(rows, Dtype::bf16), norm);
                    form.d_model = 70;
                    form.d_ff = 530;
                    Ffn ffn(form);
                    EXPECT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
                    results.add(ffn.y.all_bits());
                }
                hashes["norm_" + std::to_string(norm.norm) + "_flags_" + std::to_string(norm.flags) +
                       (norm.deferred ? "_deferred_" : "_") + name] = results.text();
            }
        }
        return hashes;
    });
}

TEST(FfnBits, DoNotDependOnWhatACallBeforeLeft) {
    int number = 0;
    for (const NormCase &norm : norm_cases) {
        Ffn poison(with_norm(large_form(emulated ? 40 : 300, Dtype::bf16), norm));
        poison.x.fill([](std::int64_t, std::int64_t) { return NAN; });
        FfnForm form = with_norm({}, norm);
        form.leading = {9};
        form.d_ff = 530;
        form.residual = form.bias = form.bias_down = true;
        Ffn expected(form), ffn(form);
        for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
            if (emulated && number++ % 5 != 0) {
                continue;
            }
            const Context fresh(isa), used(isa);
            ASSERT_EQ(poison.run(used.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(expected.run(fresh.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(ffn.run(used.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(same_rows(expected.y, ffn.y)) << halyard_isa_name(isa) << "; " << ffn.describe();
        }
    }
}

TEST(FfnBits, OfOtherRowsStandNanAndInf) {
    for (const NormCase &norm : norm_cases) {
        FfnForm form = with_norm({}, norm);
        form.leading = {10};
        form.gated = true;
        form.activation = HALYARD_SILU;
        Ffn clean(form);
        for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
            const Context context(isa);
            ASSERT_EQ(clean.run(context.get()), HALYARD_OK) << halyard_last_error();
            for (const double value : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
                Ffn ffn(form);
                ffn.x.set(6, 3, value);
                ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (std::int64_t row = 0; row < 10; row++) {
                    if (row != 6) {
                        ASSERT_EQ(ffn.y.row_values(row), clean.y.row_values(row)) << row << "; " << ffn.describe();
                    } else if (std::isnan(value)) {
                        for (const double y : ffn.y.row_values(row)) {
                            ASSERT_TRUE(std::isnan(y)) << ffn.describe();
                        }
                    }
                }
            }
        }
    }
}

// One that is lost on the way to the second product would leave a row of finite numbers.
TEST(FfnBits, NanOfAnyBitsStaysOne) {
    for (const Dtype x : all_dtypes) {
        for (const Dtype w : all_dtypes) {
            for (const Dtype y : all_dtypes) {
                for (const bool gated : {false, true}) {
                    FfnForm form;
                    form.x = x;
                    form.up = form.down = w;
                    form.y = y;
                    form.gated = gated;
                    form.activation = HALYARD_SILU;
                    form.bias = form.bias_down = true;
                    for (const char *where : {"x", "bias", "bias_down"}) {
                        const bool in_x = where == std::string("x");
                        for (const std::uint32_t bits : nans_of(in_x ? x : form.bias_type)) {
                            Ffn ffn(form);
                            Tensor &spoiled = in_x ? ffn.x : where == std::string("bias") ? *ffn.bias : *ffn.bias_down;
                            for (std::int64_t row = 0; row < spoiled.rows(); row++) {
                                for (std::int64_t i = 0; i < spoiled.width(); i++) {
                                    spoiled.set_bits(row, i, bits);
                                }
                            }
                            for (const halyard_isa isa : supported_isas()) {
                                ASSERT_EQ(ffn.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                                for (std::int64_t row = 0; row < ffn.y.rows(); row++) {
                                    for (const double value : ffn.y.row_values(row)) {
                                        ASSERT_TRUE(std::isnan(value))
                                            << show(spoiled.dtype(), bits) << " in " << where << " gives " << value
                                            << " with " << halyard_isa_name(isa) << "; " << ffn.describe();
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST(Ffn, OfZerosIsNeverNan) {
    for (NormCase norm : norm_cases) {
        FfnForm form = with_norm({}, norm);
        form.eps = 0;
        form.norm_bias = false;
        form.leading = {4};
        Ffn ffn(form);
        ffn.x.fill([](std::int64_t row, std::int64_t i) { return row == 2 ? 0.0 : bell(151, row, i); });
        for (const halyard_isa isa : supported_isas()) {
            ASSERT_EQ(ffn.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(ffn.y.row_values(2), Row(static_cast<std::size_t>(form.d_model), 0.0)) << ffn.describe();
        }
    }
}

// ---- The hidden width --------------------------------------------------------------------------------------------

TEST(FfnHiddenSize, IsThatOfTheModels) {
    EXPECT_EQ(halyard_ffn_hidden_size(4096, 1), 10922);
    EXPECT_EQ(halyard_ffn_hidden_size(4096, 64), 10944);
    EXPECT_EQ(halyard_ffn_hidden_size(4096, 128), 11008);
    EXPECT_EQ(halyard_ffn_hidden_size(4096, 256), 11008);  // Llama 7B
    EXPECT_EQ(halyard_ffn_hidden_size(5120, 256), 13824);  // Llama 13B
    EXPECT_EQ(halyard_ffn_hidden_size(6656, 256), 17920);  // Llama 30B
    EXPECT_EQ(halyard_ffn_hidden_size(8192, 256), 22016);  // Llama 65B
    EXPECT_EQ(halyard_ffn_hidden_size(768, 1), 2048);      // T5 base: 3072 * 2 / 3
    EXPECT_EQ(halyard_ffn_hidden_size(768, 64), 2048);
    EXPECT_EQ(halyard_ffn_hidden_size(1, 1), 2);
    EXPECT_EQ(halyard_ffn_hidden_size(2, 1), 5);
    EXPECT_EQ(halyard_ffn_hidden_size(3, 1), 8);
    EXPECT_EQ(halyard_ffn_hidden_size(3, 8), 8);
    EXPECT_EQ(halyard_ffn_hidden_size(3, 5), 10);
    EXPECT_EQ(halyard_ffn_hidden_size(1, 256), 256);
}

TEST(FfnHiddenSize, IsZeroWhereThereIsNone) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, least}) {
        EXPECT_EQ(halyard_ffn_hidden_size(bad, 1), 0);
        EXPECT_EQ(halyard_ffn_hidden_size(4096, bad), 0);
    }
    EXPECT_EQ(halyard_ffn_hidden_size(most, 1), 0);
    EXPECT_EQ(halyard_ffn_hidden_size(most / 2, 256), 0);
    // The largest width whose 8/3 fit, which 8 times the width does not.
    constexpr std::int64_t fits = most / 8 * 3;
    EXPECT_EQ(halyard_ffn_hidden_size(fits, 1), fits / 3 * 8);
    EXPECT_EQ(halyard_ffn_hidden_size(fits + 3, 1), 0);
    EXPECT_EQ(halyard_ffn_hidden_size(most / 8, 1), most / 8 / 3 * 8 + most / 8 % 3 * 8 / 3);
    EXPECT_EQ(halyard_ffn_hidden_size(fits, most / 2 - 10), 0);
    EXPECT_EQ(halyard_ffn_hidden_size(fits, most / 2), most - 1);
    EXPECT_EQ(halyard_ffn_hidden_size(1, most), most);
    EXPECT_EQ(halyard_ffn_hidden_size(fits, most), most);
}

// ---- Many threads ------------------------------------------------------------------------------------------------

TEST(FfnThreads, GetTheResultsThatOneGets) {
    const Context shared;
    ASSERT_EQ(halyard_context_set_num_threads(shared.get(), 3), HALYARD_OK);
    std::atomic<int> wrong{0};
    const auto work = [&](int thread) {
        const Context alone(supported_isas().back(), 1);
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{5} + thread, std::int64_t{40}}) {
            FfnForm form = large_form(rows, thread % 2 == 0 ? Dtype::f32 : Dtype::bf16);
            form.seed = static_cast<std::uint64_t>(thread + 1);
            form.deferred = thread % 3 == 0;
            Ffn ffn(form);
            if (ffn.run(alone.get()) != HALYARD_OK) {
                wrong++;
            }
            Tensor expected(form.y, compact_form(ffn.y.shape()));
            expected.copy_from(ffn.y);
            for (int round = 0; round < rounds; round++) {
                ffn.y.clear();
                if (ffn.run(round % 2 == 0 ? shared.get() : nullptr) != HALYARD_OK || !same_rows(expected, ffn.y)) {
                    wrong++;
                }
            }
        }
    };
    run_at_once(6, work);
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halyard::tests
