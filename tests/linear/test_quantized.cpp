// Quantized weights: products have the bits of docs/numerics.md and are as near as it says, and packing makes the codes that
// halyard_quantization says.
#include <limits>

#include "support/bf16_models.h"
#include "support/coded_matrix.h"
#include "support/ffn.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

/** What products of rows of x must be, and how far they may be from it (docs/numerics.md): [column][row]. */
struct Exact {
    Exact(CodedMatrix &codes, const std::vector<std::vector<float>> &x) {
        const double u = std::exp2(-24);
        for (std::int64_t n = 0; n < codes.form.out; n++) {
            std::vector<double> value(x.size()), magnitude(x.size()), bound(x.size());
            double groups = 0;
            codes.each_group([&](std::int64_t first, std::int64_t end) {
                const CodedMatrix::Parts parts = codes.parts(0, first, n);
                const double scale = std::abs(static_cast<double>(parts.scale)),
                             offset = std::abs(static_cast<double>(parts.offset));
                std::vector<double> of_group(x.size());
                for (std::int64_t k = first; k < end; k++) {
                    const double weight = codes.value(0, k, n),
                                 terms = scale * std::abs(static_cast<double>(codes.parts(0, k, n).c)) + offset;
                    for (std::size_t row = 0; row < x.size(); row++) {
                        const auto of_x = static_cast<double>(x[row][static_cast<std::size_t>(k)]);
                        value[row] += of_x * weight;
                        of_group[row] += std::abs(of_x) * terms;
                    }
                }
                for (std::size_t row = 0; row < x.size(); row++) {
                    bound[row] += (static_cast<double>(end - first) + 2) * u * of_group[row];
                    magnitude[row] += of_group[row];
                }
                groups++;
            });
            for (std::size_t row = 0; row < x.size(); row++) {
                bound[row] += 2 * groups * u * magnitude[row] + std::exp2(-147) * groups;
            }
            values.push_back(value);
            bounds.push_back(bound);
        }
    }

    testing::AssertionResult allows(const Tensor &y) const {
        for (std::size_t n = 0; n < values.size(); n++) {
            for (std::int64_t row = 0; row < y.rows(); row++) {
                const double exact = values[n][static_cast<std::size_t>(row)],
                             bound = bounds[n][static_cast<std::size_t>(row)],
                             got = y.get(row, static_cast<std::int64_t>(n));
                if (!(std::abs(got - exact) <= bound)) {
                    return testing::AssertionFailure() << "row " << row << ", column " << n << " is " << got
                                                       << " instead of " << exact << ", further than " << bound;
                }
            }
        }
        return testing::AssertionSuccess();
    }

    std::vector<std::vector<double>> values, bounds;
};

/** A layer that copies its input, and what the library does to sums with it: [out, in] of the unit matrix, gated [out, 2 out]. */
PackedWeights copies(std::int64_t out, bool gated) {
    MatrixForm form;
    form.in = gated ? 2 * out : out;
    form.out = out;
    form.gated = gated;
    const PackSource source(form, [out](Dtype, int which, std::int64_t k, std::int64_t n) {
        return which < 2 && k == n + which * out ? bits_of(1.0f) : 0;
    });
    return pack(source);
}

TEST(QuantizedProducts, HaveTheBitsOfTheDefinitionAndAreWithinItsBound) {
    struct Size {
        std::int64_t in, out;
    };
    const std::vector<Size> sizes = {{1, 1},   {7, 17},    {16, 15},   {31, 130},  {33, 16},  {250, 33},
                                     {511, 7}, {512, 100}, {513, 130}, {1029, 20}, {2560, 33}};
    const std::vector<halyard_isa> fused = operations::fused_isas();
    const std::vector<std::int64_t> row_counts =
        reduced ? std::vector<std::int64_t>{1, 5, 25} : std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 25};
    std::size_t which = 0;
    for (CodeForm form : all_code_forms()) {
        // Each form with some sizes, so that each size has some forms.
        for (int repetition = 0; repetition < (reduced ? 1 : 3); repetition++, which++) {
            const Size &size = sizes[which % sizes.size()];
            form.in = size.in;
            form.out = size.out;
            CodedMatrix codes = CodedMatrix::random(form, which);
            const Loaded weights(codes.block());
            ASSERT_NE(weights.get(), nullptr) << form.describe();
            for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
                Tensor all(type, compact_form({25, form.in}));
                fill_rows(all, 7);
                const auto x_values = floats_of(all);
                const auto expected = codes.products(0, x_values);
                const Exact exact(codes, x_values);
                for (const std::int64_t rows : row_counts) {
                    Tensor x(type,
                             {{rows, form.in}, padded_strides({rows, form.in}, 3), Placement::ends_at_guard, 0, 0});
                    Tensor y(Dtype::f32, compact_form({rows, form.out})),
                        model(Dtype::f32, compact_form({rows, form.out}));
                    x.fill([&](std::int64_t row, std::int64_t k) { return all.get(row, k); });
                    model.fill([&](std::int64_t row, std::int64_t n) {
                        return static_cast<double>(
                            expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(n)]);
                    });
                    for (const halyard_isa isa : product_isas(type, Dtype::bf16)) {
                        ASSERT_EQ(halyard_linear(Context(isa).get(), &x.view, weights.get(), nullptr, &y.view),
                                  HALYARD_OK)
                            << halyard_last_error();
                        const std::string call = form.describe() + ", " + std::to_string(rows) + " rows of " +
                                                 name_of(type) + ", " + halyard_isa_name(isa);
                        ASSERT_TRUE(y.surroundings_intact()) << call;
                        if (std::count(fused.begin(), fused.end(), isa) != 0) {
                            ASSERT_TRUE(same_rows(model, y)) << call;
                        } else {
                            ASSERT_TRUE(exact.allows(y)) << call;
                        }
                    }
                    ASSERT_TRUE(exact.allows(model)) << form.describe();
                }
            }
        }
    }
}

// Tiles of several rows and vectors of one have the order and the flushed denormals of the instruction.
TEST(QuantizedProducts, OfBfloat16OnAmxAreThoseOfTheModel) {
    if (halyard_isa_supported(HALYARD_ISA_AMX) == 0) {
        GTEST_SKIP() << "this machine or this library has no AMX";
    }
    const Context context(HALYARD_ISA_AMX, 2);
    const auto sum = [](std::int64_t count, const auto &x, const auto &c) { return amx_sum(count, x, c); };
    constexpr std::int64_t most_rows = 17;
    std::size_t which = 0;
    for (CodeForm form : all_code_forms()) {
        form.in = std::vector<std::int64_t>{40, 513, 1029}[which % 3];
        form.out = which % 2 == 0 ? 20 : 87;
        CodedMatrix codes = CodedMatrix::random(form, which);
        const Loaded weights(codes.block());
        const bool tiny = which++ % 4 == 3;
        Tensor all(Dtype::bf16, compact_form({most_rows, form.in}));
        all.fill([&](std::int64_t row, std::int64_t k) {
            return std::ldexp(bell(7, row, k), tiny ? -118 - static_cast<int>(k % 5) * 3 : 0);
        });
        const auto expected = codes.products(0, floats_of(all), sum, fused_flushed);
        Tensor model(Dtype::f32, compact_form({most_rows, form.out}));
        model.fill([&](std::int64_t row, std::int64_t n) {
            // The epilogue makes +0 of -0.
            return static_cast<double>(expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(n)] + 0.0f);
        });
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, std::int64_t{9}, most_rows}) {
            Tensor x(Dtype::bf16, compact_form({rows, form.in})), y(Dtype::f32, compact_form({rows, form.out}));
            x.fill([&](std::int64_t row, std::int64_t k) { return all.get(row, k); });
            ASSERT_EQ(halyard_linear(context.get(), &x.view, weights.get(), nullptr, &y.view), HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(same_rows(model, y, rows))
                << form.describe() << ", " << rows << " rows" << (tiny ? " of tiny numbers" : "");
        }
    }
}

/** Options of a call with a matrix [in, out]. */
struct Epilogue {
    Epilogue(Dtype type, std::int64_t rows, std::int64_t out, bool gated)
        : residual(type, compact_form({rows, out})), bias(Dtype::f32, compact_form({out})) {
        residual.fill([](std::int64_t row, std::int64_t i) { return bell(8, row, i); });
        bias.fill([](std::int64_t row, std::int64_t i) { return bell(9, row, i); });
        options.activation = gated ? HALYARD_SILU : HALYARD_GELU;
        options.bias = &bias.view;
        options.residual = &residual.view;
    }
    Tensor residual, bias;
    halyard_linear_options options{};
};

TEST(QuantizedProducts, HaveThemWhateverTheRestOfTheCall) {
    for (const bool gated : {false, true}) {
        for (const int bits : {8, 4}) {
            const CodeForm form = {777, 150, bits, HALYARD_SCALE_ZERO, Dtype::f16, 64, gated};
            const std::int64_t matrices = gated ? 2 : 1;
            CodedMatrix codes = CodedMatrix::random(form, 5);
            const Loaded weights(codes.block());
            const PackedWeights unit = copies(form.out, gated);
            for (const Dtype type : all_dtypes) {
                for (const std::int64_t rows : {1, 4, reduced ? 25 : 70}) {
                    Tensor x(type, compact_form({rows, form.in})), y(type, compact_form({rows, form.out})),
                        expected(type, compact_form({rows, form.out})),
                        sums(Dtype::f32, compact_form({rows, matrices * form.out}));
                    fill_rows(x, 7);
                    for (int m = 0; m < matrices; m++) {
                        const auto products = codes.products(m, floats_of(x));
                        for (std::int64_t row = 0; row < rows; row++) {
                            for (std::int64_t n = 0; n < form.out; n++) {
                                sums.set_bits(
                                    row, m * form.out + n,
                                    bits_of(products[static_cast<std::size_t>(row)][static_cast<std::size_t>(n)]));
                            }
                        }
                    }
                    const Epilogue epilogue(type, rows, form.out, gated);
                    for (const halyard_isa isa : operations::fused_isas()) {
                        for (const int threads : {1, 3}) {
                            const Context context(isa, threads);
                            ASSERT_EQ(halyard_linear(context.get(), &sums.view, unit.get(), &epilogue.options,
                                                     &expected.view),
                                      HALYARD_OK)
                                << halyard_last_error();
                            ASSERT_EQ(halyard_linear(context.get(), &x.view, weights.get(), &epilogue.options, &y.view),
                                      HALYARD_OK)
                                << halyard_last_error();
                            EXPECT_TRUE(same_rows(expected, y))
                                << form.describe() << ", " << rows << " rows of " << name_of(type) << ", "
                                << halyard_isa_name(isa) << ", " << threads << " threads";
                        }
                    }
                }
            }
        }
    }
}

TEST(QuantizedProducts, AreTheSameForAnyThreadsAndRowsBeside) {
    const CodeForm form = {1100, reduced ? 210 : 700, 4, HALYARD_SCALE_PLAIN, Dtype::f16, 32, false};
    CodedMatrix codes = CodedMatrix::random(form, 6);
    const Loaded weights(codes.block());
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        Tensor x(type, compact_form({70, form.in})), all(Dtype::f32, compact_form({70, form.out}));
        fill_rows(x, 3);
        for (const halyard_isa isa : product_isas(type, Dtype::bf16)) {
            ASSERT_EQ(halyard_linear(Context(isa, 1).get(), &x.view, weights.get(), nullptr, &all.view), HALYARD_OK);
            for (const std::int64_t rows : {1, 2, 3, 4, 6, 11, 70}) {
                for (const int threads : {1, 4}) {
                    Tensor y(Dtype::f32, compact_form({rows, form.out}));
                    DLTensor part = x.view;
                    std::int64_t shape[] = {rows, form.in};
                    part.shape = shape;
                    ASSERT_EQ(halyard_linear(Context(isa, threads).get(), &part, weights.get(), nullptr, &y.view),
                              HALYARD_OK);
                    EXPECT_TRUE(same_rows(all, y, rows))
                        << name_of(type) << ", " << halyard_isa_name(isa) << ", " << rows << " rows";
                }
            }
        }
    }
}

/** Whether a network with RMSNorm and residual has the bits of its layers, between which values are of a type. */
testing::AssertionResult is_its_layers(const halyard_context *context, const halyard_weights *up,
                                       const halyard_weights *down, bool gated, Dtype type, Dtype between,
                                       std::int64_t rows) {
    halyard_weights_info of_up{}, of_down{};
    EXPECT_EQ(halyard_weights_get_info(up, &of_up), HALYARD_OK);
    EXPECT_EQ(halyard_weights_get_info(down, &of_down), HALYARD_OK);
    const Form outer = compact_form({rows, of_up.in_features}), inner = compact_form({rows, of_up.out_features});
    Tensor x(type, outer), y(type, outer), expected(type, outer), in_f32(Dtype::f32, outer),
        normalized(Dtype::f32, outer), multiplied(between, outer), hidden(between, inner);
    fill_rows(x, 13);
    in_f32.fill([&](std::int64_t row, std::int64_t i) { return x.get(row, i); });
    halyard_ffn_options options{};
    options.activation = gated ? HALYARD_SILU : HALYARD_RELU;
    options.norm = HALYARD_NORM_RMS;
    options.residual = 1;
    halyard_linear_options first{}, second{};
    first.activation = options.activation;
    second.residual = &x.view;
    if (halyard_ffn(context, &x.view, up, down, &options, &y.view) != HALYARD_OK ||
        halyard_rms_norm(context, &in_f32.view, nullptr, 0, 0, &normalized.view) != HALYARD_OK) {
        return testing::AssertionFailure() << halyard_last_error();
    }
    multiplied.fill([&](std::int64_t row, std::int64_t i) { return normalized.get(row, i); });
    if (halyard_linear(context, &multiplied.view, up, &first, &hidden.view) != HALYARD_OK ||
        halyard_linear(context, &hidden.view, down, &second, &expected.view) != HALYARD_OK) {
        return testing::AssertionFailure() << halyard_last_error();
    }
    return same_rows(expected, y);
}

TEST(QuantizedFfn, IsItsLayersInTurn) {
    constexpr std::int64_t d_model = 130, d_ff = 600;
    int number = 0;
    for (const bool gated : {false, true}) {
        CodedMatrix up = CodedMatrix::random({d_model, d_ff, 4, HALYARD_SCALE_TWO_LEVELS, Dtype::f16, 32, gated}, 11);
        CodedMatrix down = CodedMatrix::random({d_ff, d_model, 8, HALYARD_SCALE_ZERO, Dtype::bf16, 128, false}, 12);
        const Loaded up_codes(up.block()), down_codes(down.block());
        MatrixForm form;
        form.in = d_model;
        form.out = d_ff;
        form.gated = gated;
        const PackedWeights up_f32 = pack(PackSource(form));
        form.in = d_ff;
        form.out = d_model;
        form.gated = false;
        const PackedWeights down_f32 = pack(PackSource(form));
        struct Pair {
            const halyard_weights *up, *down;
        };
        for (const Pair &pair : {Pair{up_codes.get(), down_codes.get()}, Pair{up_f32.get(), down_codes.get()},
                                 Pair{up_codes.get(), down_f32.get()}}) {
            for (const halyard_products products :
                 {HALYARD_PRODUCTS_STORAGE, HALYARD_PRODUCTS_BF16, HALYARD_PRODUCTS_INT8}) {
                const bool both = pair.up == up_codes.get() && pair.down == down_codes.get();
                const Dtype between = products == HALYARD_PRODUCTS_BF16 && both ? Dtype::bf16 : Dtype::f32;
                for (const halyard_isa isa : supported_isas()) {
                    const Context context(isa, 2);
                    ASSERT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
                    for (const Dtype type : all_dtypes) {
                        for (const std::int64_t rows : {1, 3, 40}) {
                            if (reduced && number++ % 4 != 0) {
                                continue;
                            }
                            EXPECT_TRUE(is_its_layers(context.get(), pair.up, pair.down, gated, type, between, rows))
                                << halyard_isa_name(isa) << ", " << rows << " rows of " << name_of(type)
                                << (gated ? ", gated" : "") << ", products " << products;
                        }
                    }
                }
            }
        }
    }
}

// ---- quantization at packing ----

halyard_quantization asked(const CodeForm &form) {
    return {form.bits, form.group, form.kind == HALYARD_SCALE_ZERO, dlpack_type(form.scales)};
}

/** The source's elements of matrix 0 or 1. */
auto elements_of(const PackSource &source) {
    return [&source](int m, std::int64_t k, std::int64_t n) {
        return static_cast<float>(decode(source.form.type, source.source_bits(m, k, n)));
    };
}

/** Packs on every instruction set, and compares the bytes. */
void expect_packed(PackSource &source, const CodeForm &form) {
    source.options.quantization = asked(form);
    CodedMatrix expected = quantized(form, elements_of(source));
    const Bytes bytes = expected.block();
    EXPECT_EQ(source.size(), static_cast<std::int64_t>(bytes.size())) << form.describe();
    for (const halyard_isa isa : row_isas()) {
        const PackedWeights packed = pack(source, Context(isa, 1 + form.in % 3).get());
        ASSERT_NE(packed, nullptr) << form.describe();
        ASSERT_TRUE(same_bytes(bytes, halyard_weights_data(packed.get())))
            << form.describe() << " of " << source.form.describe() << ", " << halyard_isa_name(isa);
        EXPECT_TRUE(source.intact());
    }
}

TEST(Quantization, MakesTheCodesThatItSays) {
    std::size_t which = 0;
    for (const auto &[in, out] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {9, 17}, {40, 16}, {100, 33}, {513, 20}, {1200, 35}}) {
        for (const int bits : {8, 4}) {
            for (const int group : code_groups) {
                for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_ZERO}) {
                    MatrixForm matrix;
                    matrix.type = all_dtypes[which % 3];
                    matrix.in = in;
                    matrix.out = out;
                    matrix.layout = which % 2 == 0 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
                    matrix.gated = which / 2 % 2 != 0;
                    matrix.gap = static_cast<std::int64_t>(which % 5) * 3;
                    PackSource source(matrix);
                    expect_packed(source, {in, out, bits, kind, all_dtypes[which / 3 % 3], group, matrix.gated});
                    which++;
                }
            }
        }
    }
}

// Not by its formulas, but by what they are for: nearest codes, of a scale that reaches the largest weight.
TEST(Quantization, IsAsNearAsItsScaleAllows) {
    constexpr std::int64_t in = 700, out = 21;
    for (const int bits : {8, 4}) {
        for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_ZERO}) {
            const CodeForm form = {in, out, bits, kind, Dtype::f16, 64, false};
            MatrixForm matrix;
            matrix.in = in;
            matrix.out = out;
            PackSource source(matrix);
            source.options.quantization = asked(form);
            const PackedWeights packed = pack(source);
            // Products with rows of the unit matrix are the values.
            Tensor unit(Dtype::f32, compact_form({in, in})), values(Dtype::f32, compact_form({in, out}));
            unit.fill([](std::int64_t row, std::int64_t i) { return row == i ? 1.0 : 0.0; });
            ASSERT_EQ(halyard_linear(nullptr, &unit.view, packed.get(), nullptr, &values.view), HALYARD_OK);
            for (std::int64_t n = 0; n < out; n++) {
                for (std::int64_t first = 0; first < in; first += 64) {
                    double low = 0, high = 0;
                    for (std::int64_t k = first; k < std::min(in, first + 64); k++) {
                        const double w = decode(Dtype::f32, source.source_bits(0, k, n));
                        low = std::min(low, w);
                        high = std::max(high, w);
                    }
                    const double largest = std::max(-low, high), codes = std::exp2(bits) - 1;
                    const double step = kind == HALYARD_SCALE_ZERO ? (high - low) / codes
                                        : bits == 8                ? largest / 127
                                                                   : largest / 8;
                    // Half a step; of 4 bits a whole one at the end that has no code, and of zeros the rounding of both. The
                    // scale's own rounding counts for every step from zero.
                    const double halves = kind == HALYARD_SCALE_ZERO ? 2 : bits == 8 ? 1 : 2;
                    const double bound = step * (halves / 2 + 1e-4) + (largest + step) * std::exp2(-11);
                    for (std::int64_t k = first; k < std::min(in, first + 64); k++) {
                        const double w = decode(Dtype::f32, source.source_bits(0, k, n));
                        ASSERT_LE(std::abs(values.get(k, n) - w), bound) << form.describe() << ", " << k << ", " << n;
                    }
                }
            }
        }
    }
}

TEST(Quantization, OfSpecialValues) {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::vector<float>> columns = {
        {0, -0.0f, 0, 0},  // nothing
        {1, 1, 1, 1},      // one sign
        {-1, -1, -1, -1},
        {-3, 3, 1.5f, -1.5f},  // ties of the largest magnitude, and halves
        {3, -3, 0.75f, 0.375f},
        {127, 0.5f, 1.5f, -0.5f},  // halves of 8 bits
        {127, 0.49999997f, 2.5f, -126.5f},
        {-8, 0.5f, -0.5f, 7.5f},            // and of 4
        {1e-38f, 1e-39f, -1e-40f, 1e-45f},  // scales that count as 0
        {1.5e-36f, -1e-36f, 1e-38f, 0},     // and one that does not, but in f16
        {8e6f, -1, 2, 3},                   // nearly the largest in f16
    };
    for (const int bits : {8, 4}) {
        for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_ZERO}) {
            for (const Dtype scales : all_dtypes) {
                for (const std::vector<float> &column : columns) {
                    if (bits == 4 && scales == Dtype::f16 && column[0] > 1e6f) {
                        continue;
                    }
                    MatrixForm matrix;
                    matrix.in = 4;
                    matrix.out = 3;
                    PackSource source(matrix, [&](Dtype, int, std::int64_t k, std::int64_t) {
                        return bits_of(column[static_cast<std::size_t>(k)]);
                    });
                    expect_packed(source, {4, 3, bits, kind, scales, 16, false});
                }
                for (const float value : {inf, -inf, nan, 3e38f, 1e32f}) {
                    MatrixForm matrix;
                    matrix.in = 530;
                    matrix.out = 40;
                    matrix.gated = true;
                    PackSource source(matrix, [&](Dtype, int which, std::int64_t k, std::int64_t n) {
                        return bits_of(which == 1 && k == 529 && n == 39 ? value : 1.0f);
                    });
                    source.options.quantization = asked({530, 40, bits, kind, scales, 64, true});
                    halyard_weights *weights = nullptr;
                    const bool finite = std::isfinite(value),
                               fits = value == 1e32f && scales != Dtype::f16 && bits == 8;
                    const halyard_status status =
                        halyard_weights_pack(nullptr, &source.weight.view, &source.options, nullptr, 0, &weights);
                    if (fits) {
                        ASSERT_EQ(status, HALYARD_OK);
                        halyard_weights_destroy(weights);
                        continue;
                    }
                    EXPECT_TRUE(refused(status, HALYARD_INVALID_ARGUMENT, "halyard_weights_pack",
                                        finite ? "too large for scales" : "NaN or Inf"))
                        << value << " in " << bits << " bits, scales in " << name_of(scales);
                    const AlignedMemory memory(source.size());
                    EXPECT_EQ(halyard_weights_pack(nullptr, &source.weight.view, &source.options, memory.data(),
                                                   memory.size(), &weights),
                              HALYARD_INVALID_ARGUMENT);
                    EXPECT_EQ(weights, nullptr);
                    EXPECT_TRUE(memory.holds_no_weights());
                }
            }
        }
    }
}

TEST(Quantization, IntoMemoryOfTheCaller) {
    MatrixForm matrix;
    matrix.in = 100;
    matrix.out = 50;
    PackSource source(matrix);
    const CodeForm form = {100, 50, 4, HALYARD_SCALE_PLAIN, Dtype::f16, 32, false};
    source.options.quantization = asked(form);
    const Bytes expected = quantized(form, elements_of(source)).block();
    std::vector<std::uint8_t> memory(expected.size() + 128, 0xab);
    auto *const place = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    halyard_weights *weights = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, &source.weight.view, &source.options, place, source.size(), &weights),
              HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(halyard_weights_data(weights), place);
    EXPECT_TRUE(same_bytes(expected, place));
    EXPECT_EQ(place[expected.size()], 0xab);
    halyard_weights_info info{};
    ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
    EXPECT_EQ(info.code_bits, 4);
    EXPECT_EQ(info.code_group, 32);
    EXPECT_EQ(info.scale_kind, HALYARD_SCALE_PLAIN);
    EXPECT_EQ(info.scale_dtype.code, kDLFloat);
    EXPECT_EQ(info.scale_dtype.bits, 16);
    EXPECT_EQ(info.dtype.bits, 32);
    EXPECT_EQ(info.bytes, source.size());
    halyard_weights_destroy(weights);
}

TEST(Quantization, RefusesWhatItCannot) {
    MatrixForm matrix;
    matrix.in = 40;
    matrix.out = 20;
    PackSource source(matrix);
    const auto fails = [&](halyard_status status, const std::string &word) {
        halyard_weights *weights = nullptr;
        std::int64_t bytes = 0;
        const auto packed =
            refused(halyard_weights_pack(nullptr, &source.weight.view, &source.options, nullptr, 0, &weights), status,
                    "halyard_weights_pack", word);
        return packed ? refused(halyard_weights_size(&source.weight.view, &source.options, &bytes), status,
                                "halyard_weights_size", word)
                      : packed;
    };
    const halyard_quantization good = {8, 32, 0, {}};
    for (const int bits : {-1, 1, 2, 3, 5, 7, 9, 16}) {
        source.options.quantization = good;
        source.options.quantization.bits = bits;
        EXPECT_TRUE(fails(HALYARD_INVALID_ARGUMENT, "quantization.bits")) << bits;
    }
    for (const int group : {-32, 1, 8, 17, 48, 512}) {
        source.options.quantization = good;
        source.options.quantization.group = group;
        EXPECT_TRUE(fails(HALYARD_INVALID_ARGUMENT, "quantization.group")) << group;
    }
    // Without codes there are no groups of them.
    source.options.quantization = {0, 32, 0, {}};
    EXPECT_TRUE(fails(HALYARD_INVALID_ARGUMENT, "quantization.group"));
    source.options.quantization = {0, 0, 1, {}};
    EXPECT_TRUE(fails(HALYARD_INVALID_ARGUMENT, "quantization.asymmetric"));
    source.options.quantization = good;
    source.options.quantization.scale_dtype = {kDLInt, 8, 1};
    EXPECT_TRUE(fails(HALYARD_UNSUPPORTED, "quantization.scale_dtype"));
    source.options.quantization = good;
    source.options.norm_weight = &source.norm_weight.view;
    EXPECT_TRUE(fails(HALYARD_UNSUPPORTED, "norm"));
    source.options.norm_weight = nullptr;
    source.options.norm_unit_offset = 1;
    EXPECT_TRUE(fails(HALYARD_UNSUPPORTED, "norm"));
}

}  // namespace
}  // namespace halyard::tests
