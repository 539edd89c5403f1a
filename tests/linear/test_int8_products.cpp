// HALYARD_PRODUCTS_INT8: products of rows in 8 bits with quantized weights have the bits of docs/numerics.md, and are as near as it
// says. (test_quantized has networks of them, test_input_order weights that are sorted.)
#include "support/ffn.h"
#include "support/int8_products.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

class Int8Context : public Context {
public:
    explicit Int8Context(halyard_isa isa, int threads = 1) : Context(isa, threads) {
        EXPECT_EQ(halyard_context_set_products(get(), HALYARD_PRODUCTS_INT8), HALYARD_OK);
    }
};

bool is_fused(halyard_isa isa) {
    const std::vector<halyard_isa> fused = operations::fused_isas();
    return std::count(fused.begin(), fused.end(), isa) != 0;
}

std::unique_ptr<Tensor> product(halyard_isa isa, const Tensor &x, const Loaded &weights, std::int64_t out,
                                int threads = 1) {
    auto y = std::make_unique<Tensor>(Dtype::f32, compact_form({x.rows(), out}));
    EXPECT_EQ(halyard_linear(Int8Context(isa, threads).get(), &x.view, weights.get(), nullptr, &y->view), HALYARD_OK)
        << halyard_last_error();
    return y;
}

TEST(Int8Products, HaveTheBitsOfTheDefinitionAndAreWithinItsBound) {
    struct Size {
        std::int64_t in, out;
    };
    const std::vector<Size> sizes = {{1, 1},   {7, 17},    {16, 15},   {31, 130},  {33, 16},  {250, 33},
                                     {511, 7}, {512, 100}, {513, 130}, {1029, 20}, {2560, 33}};
    const std::vector<std::int64_t> row_counts =
        reduced ? std::vector<std::int64_t>{1, 5, 11} : std::vector<std::int64_t>{1, 2, 3, 4, 5, 8, 11};
    std::size_t which = 0;
    for (CodeForm form : all_code_forms()) {
        // Each form with some sizes, so that each size has some forms.
        for (int repetition = 0; repetition < (reduced ? 1 : 3); repetition++, which++) {
            form.in = sizes[which % sizes.size()].in;
            form.out = sizes[which % sizes.size()].out;
            CodedMatrix codes = CodedMatrix::random(form, which);
            const Loaded weights(codes.block());
            ASSERT_NE(weights.get(), nullptr) << form.describe();
            const Dtype type = all_dtypes[which % 3];
            Tensor all(type, compact_form({11, form.in}));
            fill_rows(all, 7);
            const auto x_values = floats_of(all);
            Tensor model(Dtype::f32, compact_form({11, form.out}));
            std::vector<std::vector<Int8Product>> products;
            for (std::size_t row = 0; row < x_values.size(); row++) {
                const Int8Row rounded(codes, x_values[row]);
                products.emplace_back();
                for (std::int64_t n = 0; n < form.out; n++) {
                    const Int8Product of_column(codes, 0, n, x_values[row], rounded);
                    ASSERT_LE(std::abs(static_cast<double>(of_column.value) - of_column.exact), of_column.bound)
                        << form.describe() << ", row " << row << ", column " << n;
                    model.set_bits(static_cast<std::int64_t>(row), n, bits_of(of_column.value));
                    products.back().push_back(of_column);
                }
            }
            for (const std::int64_t rows : row_counts) {
                Tensor x(type, {{rows, form.in}, padded_strides({rows, form.in}, 3), Placement::ends_at_guard, 0, 0});
                x.fill([&](std::int64_t row, std::int64_t k) { return all.get(row, k); });
                for (const halyard_isa isa : row_isas()) {
                    const auto y = product(isa, x, weights, form.out);
                    const std::string call = form.describe() + ", " + std::to_string(rows) + " rows of " +
                                             name_of(type) + ", " + halyard_isa_name(isa);
                    ASSERT_TRUE(y->surroundings_intact()) << call;
                    if (is_fused(isa)) {
                        ASSERT_TRUE(same_rows(model, *y, rows)) << call;
                        continue;
                    }
                    for (std::int64_t row = 0; row < rows; row++) {
                        for (std::int64_t n = 0; n < form.out; n++) {
                            const Int8Product &of_column =
                                products[static_cast<std::size_t>(row)][static_cast<std::size_t>(n)];
                            ASSERT_LE(std::abs(y->get(row, n) - of_column.exact), of_column.bound) << call;
                        }
                    }
                }
            }
        }
    }
}

TEST(Int8Products, AreTheSameForAnyThreadsAndRowsBeside) {
    for (const int bits : {4, 8}) {
        const CodeForm form = {1100, 700, bits, HALYARD_SCALE_ZERO, Dtype::f16, 64, false};
        CodedMatrix codes = CodedMatrix::random(form, 6);
        const Loaded weights(codes.block());
        Tensor x(Dtype::f32, compact_form({70, form.in}));
        fill_rows(x, 3);
        for (const halyard_isa isa : row_isas()) {
            const auto all = product(isa, x, weights, form.out);
            for (const std::int64_t rows : {1, 2, 3, 4, 6, 70}) {
                Tensor part(Dtype::f32, compact_form({rows, form.in}));
                part.fill([&](std::int64_t row, std::int64_t k) { return x.get(row, k); });
                for (const int threads : {1, 4}) {
                    EXPECT_TRUE(same_rows(*all, *product(isa, part, weights, form.out, threads), rows))
                        << halyard_isa_name(isa) << ", " << rows << " rows";
                }
            }
        }
    }
}

/** Codes of the largest magnitudes with numbers of theirs: sums of a unit as large as they can be. */
TEST(Int8Products, HoldTheLargestSums) {
    for (const int bits : {4, 8}) {
        for (const int group : code_groups) {
            CodedMatrix codes({1024, 32, bits, HALYARD_SCALE_PLAIN, Dtype::f32, group, false});
            for (std::int64_t k = 0; k < codes.form.in; k++) {
                for (std::int64_t n = 0; n < codes.form.out; n++) {
                    codes.code(0, k, n) = n % 2 == 0 ? 0 : static_cast<std::uint8_t>((1 << bits) - 1);
                    codes.scale(0, k, n) = bits_of(1.0f);
                }
            }
            const Loaded weights(codes.block());
            Tensor x(Dtype::f32, compact_form({4, codes.form.in}));
            x.fill([](std::int64_t row, std::int64_t) { return row % 2 == 0 ? 127.0 : -127.0; });
            for (const halyard_isa isa : row_isas()) {
                const auto y = product(isa, x, weights, codes.form.out);
                for (std::int64_t row = 0; row < 4; row++) {
                    for (std::int64_t n = 0; n < codes.form.out; n++) {
                        const int c = codes.code(0, 0, n) - (1 << (bits - 1));
                        ASSERT_EQ(y->get(row, n), (row % 2 == 0 ? 127.0 : -127.0) * c * 1024)
                            << bits << " bits, groups of " << group << ", " << halyard_isa_name(isa);
                    }
                }
            }
        }
    }
}

TEST(Int8Products, OfSpecialValues) {
    const CodeForm form = {600, 40, 4, HALYARD_SCALE_ZERO, Dtype::f16, 32, false};
    CodedMatrix codes = CodedMatrix::random(form, 9);
    const Loaded weights(codes.block());
    const std::vector<double> specials = {INFINITY, -INFINITY,       NAN,      0x1p-101, 0x1p-149,
                                          0,        0x1.fffffep-101, 0x1p-100, 1e30,     -1e30};
    Tensor x(Dtype::f32, compact_form({static_cast<std::int64_t>(specials.size()), form.in}));
    // A unit of special values and zeros, and others of none.
    x.fill([&](std::int64_t row, std::int64_t k) {
        const double special = specials[static_cast<std::size_t>(row)];
        return k >= 32 && k < 64 ? (k % 5 == 0 ? special : 0.0) : std::abs(special) < 1 ? 0.0 : bell(4, row, k);
    });
    const auto x_values = floats_of(x);
    for (const halyard_isa isa : row_isas()) {
        const auto y = product(isa, x, weights, form.out);
        for (std::size_t row = 0; row < specials.size(); row++) {
            const Int8Row rounded(codes, x_values[row]);
            for (std::int64_t n = 0; n < form.out; n++) {
                const double got = y->get(static_cast<std::int64_t>(row), n);
                if (row < 3) {
                    EXPECT_TRUE(std::isnan(got)) << specials[row] << ", " << halyard_isa_name(isa);
                } else if (std::abs(specials[row]) < 0x1p-100) {
                    EXPECT_EQ(got, 0) << specials[row] << ", " << halyard_isa_name(isa);
                } else if (is_fused(isa)) {
                    EXPECT_EQ(got, static_cast<double>(Int8Product(codes, 0, n, x_values[row], rounded).value))
                        << specials[row] << ", " << halyard_isa_name(isa);
                }
            }
        }
    }
}

/** Weights that are not quantized are multiplied as ever. */
TEST(Int8Products, AreOfQuantizedWeightsAlone) {
    for (const Dtype type : all_dtypes) {
        MatrixForm form;
        form.type = type;
        form.in = 100;
        form.out = 40;
        const PackedWeights weights = pack(PackSource(form));
        Tensor x(type, compact_form({7, form.in})), y(type, compact_form({7, form.out})),
            usual(type, compact_form({7, form.out}));
        fill_rows(x, 2);
        for (const halyard_isa isa : supported_isas()) {
            ASSERT_EQ(halyard_linear(Int8Context(isa).get(), &x.view, weights.get(), nullptr, &y.view), HALYARD_OK);
            ASSERT_EQ(halyard_linear(Context(isa).get(), &x.view, weights.get(), nullptr, &usual.view), HALYARD_OK);
            EXPECT_TRUE(same_rows(usual, y)) << halyard_isa_name(isa);
        }
    }
}

}  // namespace
}  // namespace halyard::tests
