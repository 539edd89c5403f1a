// Linear layers: results against float64 with derived bounds for any types, sizes, shapes and epilogues.
#include "support/linear.h"
#include "support/test_scale.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <numeric>

namespace halyard::tests {
namespace {

// Panels are 16 outputs wide, blocks 512 inputs long, tiles up to 8 rows high.
#ifdef HALYARD_TESTS_REDUCED
const std::vector<std::int64_t> row_counts = {1, 2, 3, 7, 8, 9, 17, 33};
const std::vector<std::int64_t> border_inputs = {1, 16, 17, 513, 1025};
const std::vector<std::int64_t> border_outputs = {1, 16, 17, 33};
#else
const std::vector<std::int64_t> row_counts = [] {
    std::vector<std::int64_t> all(66);
    std::iota(all.begin(), all.end(), 1);
    return all;
}();
const std::vector<std::int64_t> border_inputs = {1, 2, 3, 15, 16, 17, 31, 33, 511, 512, 513, 1023, 1024, 1025, 1537};
const std::vector<std::int64_t> border_outputs = {1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 65, 97, 129};
#endif

// ---- Results -----------------------------------------------------------------------------------------------------

class LinearTypes : public testing::TestWithParam<Types> {
protected:
    const Types types = GetParam();
};

INSTANTIATE_TEST_SUITE_P(All, LinearTypes, testing::ValuesIn(all_types()),
                         [](const testing::TestParamInfo<Types> &info) {
                             return std::string("x_") + name_of(info.param.x) + "_w_" + name_of(info.param.w) + "_y_" +
                                    name_of(info.param.y);
                         });

TEST_P(LinearTypes, AnyNumberOfRows) {
    // A batch of 67 rows is compared with the reference; its last rows alone, at another place, must have its bits.
    constexpr std::int64_t most = 67;
    const WeightForm forms[] = {weight_form(types.w, 513, 33), weight_form(types.w, 37, 50, true)};
    for (const WeightForm &form : forms) {
        const Weights weights(form);
        LinearCall batch(weights, call_form(types.x, types.y, {most}, 3, 5), 3);
        batch.add_bias(types.w);
        batch.activate(form.gated ? HALYARD_SILU : HALYARD_IDENTITY);
        const Matrix expected = batch.expected();
        for (const halyard_isa isa : product_isas(types.x, types.w)) {
            const Context context(isa);
            batch.y.clear();
            ASSERT_EQ(batch.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(batch.check(expected)) << halyard_isa_name(isa);
            for (const std::int64_t rows : row_counts) {
                DLTensor x = batch.x.view;
                std::int64_t shape[] = {rows, form.in};
                x.shape = shape;
                x.data = batch.x.at(most - rows, 0);
                CallForm fewer = call_form(types.x, types.y, {rows}, 0, rows % 2 * 7);
                fewer.placement = rows % 3 == 0 ? Placement::starts_at_guard : Placement::ends_at_guard;
                const Tensor y(types.y, fewer.form_of(form.out, fewer.y_gap));
                DLTensor y_view = y.view;
                ASSERT_EQ(halyard_linear(context.get(), &x, weights.get(), &batch.options, &y_view), HALYARD_OK)
                    << halyard_last_error();
                for (std::int64_t row = 0; row < rows; row++) {
                    ASSERT_EQ(std::memcmp(y.at(row, 0), batch.y.at(most - rows + row, 0),
                                          static_cast<std::size_t>(form.out) * size_of(types.y)),
                              0)
                        << "row " << row << " of " << rows << " with " << halyard_isa_name(isa) << "; "
                        << batch.describe();
                }
                ASSERT_TRUE(y.surroundings_intact()) << rows << " rows with " << halyard_isa_name(isa);
            }
        }
        ASSERT_TRUE(batch.surroundings_intact());
    }
}

TEST_P(LinearTypes, AnyWidthRoundPanelsAndBlocks) {
    const bool all_pairs = types.x == Dtype::f32 && types.w == Dtype::f32 && types.y == Dtype::f32;
    std::int64_t number = 0;
    for (std::size_t i = 0; i < border_inputs.size(); i++) {
        for (std::size_t j = 0; j < border_outputs.size(); j++) {
            if (!all_pairs && (i + 2 * j + static_cast<std::size_t>(types.x)) % 7 != 0) {
                continue;
            }
            number++;
            WeightForm form = weight_form(types.w, border_inputs[i], border_outputs[j], number % 3 == 0, 5);
            form.layout = number % 2 == 0 ? HALYARD_WEIGHT_IN_OUT : HALYARD_WEIGHT_OUT_IN;
            const Weights weights(form);
            CallForm call = call_form(types.x, types.y, {1 + number % 11}, number % 4, number % 5);
            call.placement = number % 2 == 0 ? Placement::ends_at_guard : Placement::starts_at_guard;
            call.shift = number % 4 / 2;
            LinearCall linear(weights, call, 7);
            const Matrix expected = linear.expected();
            for (const halyard_isa isa : product_isas(types.x, types.w)) {
                linear.y.clear();
                ASSERT_EQ(linear.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(linear.check(expected)) << halyard_isa_name(isa);
            }
        }
    }
}

TEST_P(LinearTypes, ManyRowsAndWideMatrices) {
    // Several blocks of rows, of inputs, and groups of panels, with all options.
    struct Size {
        std::int64_t rows, in, out;
        bool gated;
    };
    int number = 0;
    for (const Size &size : {Size{257, 70, 40, false}, Size{600, 33, 19, true}, Size{21, 1100, 530, false},
                             Size{1, 2100, 700, false}, Size{2, 7, 4500, true}, Size{3, 5, 9000, false}}) {
        if (reduced &&
            number++ % 3 != (static_cast<int>(types.x) + static_cast<int>(types.w) + static_cast<int>(types.y)) % 3) {
            continue;
        }
        const Weights weights(weight_form(types.w, size.in, size.out, size.gated, 9));
        LinearCall linear(weights, call_form(types.x, types.y, {size.rows}, 1, 2), 11);
        linear.add_row_scale();
        linear.add_row_mean();
        linear.add_bias(types.x);
        if (size.gated) {
            linear.add_bias_up(types.w);
        }
        linear.add_residual();
        const Matrix expected = linear.expected();
        for (const halyard_isa isa : product_isas(types.x, types.w)) {
            linear.y.clear();
            ASSERT_EQ(linear.run(Context(isa, 2).get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(linear.check(expected)) << halyard_isa_name(isa);
        }
    }
}

// ---- Shapes ------------------------------------------------------------------------------------------------------

/** Every leading axis padded, and the last one too. */
Shape loose_strides(const Shape &shape) {
    Shape strides(shape.size(), 1);
    for (std::size_t axis = shape.size() - 1; axis > 0; axis--) {
        strides[axis - 1] = strides[axis] * shape[axis] + 3 * static_cast<std::int64_t>(axis);
    }
    return strides;
}

TEST(LinearShapes, AnyRankAndStrides) {
    const Weights weights(weight_form(Dtype::f32, 37, 21, true, 13));
    for (const Dtype type : all_dtypes) {
        for (const Shape &leading : {Shape{}, Shape{1}, Shape{5}, Shape{2, 3}, Shape{3, 1, 2}, Shape{2, 2, 3}}) {
            LinearCall plain(weights, call_form(type, type, leading), 17);
            plain.add_row_scale();
            plain.add_row_mean();
            plain.add_residual();
            ASSERT_EQ(plain.run(nullptr), HALYARD_OK) << halyard_last_error();
            // Computed below from the same contents, with strides and byte offsets.
            const auto loose_form = [&](const Tensor &like, bool transposed) {
                Form form;
                form.shape = like.shape();
                form.strides = loose_strides(form.shape);
                if (transposed && form.shape.size() > 2) {
                    // The leading axes lie in memory in the opposite order.
                    std::int64_t next = form.strides[form.shape.size() - 2];
                    for (std::size_t axis = 0; axis + 1 < form.shape.size(); axis++) {
                        form.strides[axis] = next;
                        next = next * form.shape[axis] + 1;
                    }
                }
                form.byte_offset = 64;
                return form;
            };
            for (const bool transposed : {false, true}) {
                Tensor x(type, loose_form(plain.x, transposed)), residual(type, loose_form(plain.y, !transposed)),
                    y(type, loose_form(plain.y, transposed));
                x.copy_from(plain.x);
                residual.copy_from(*plain.residual);
                halyard_linear_options options = plain.options;
                options.residual = &residual.view;
                ASSERT_EQ(halyard_linear(nullptr, &x.view, weights.get(), &options, &y.view), HALYARD_OK)
                    << halyard_last_error();
                ASSERT_TRUE(same_rows(plain.y, y)) << to_string(x.strides()) << " " << name_of(type);
                ASSERT_TRUE(x.surroundings_intact() && y.surroundings_intact());
            }
            Matrix expected = plain.expected();
            ASSERT_TRUE(plain.check(expected));
        }
    }
}

TEST(LinearShapes, RowsOfXMayBeOneRow) {
    const Weights weights(weight_form(Dtype::f32, 19, 33));
    LinearCall one(weights, call_form(Dtype::f32, Dtype::f32, {}));
    LinearCall many(weights, f32_rows(9));
    ASSERT_EQ(one.run(nullptr), HALYARD_OK) << halyard_last_error();
    DLTensor x = one.x.view;
    std::int64_t shape[] = {9, 19}, strides[] = {0, 1};
    x.ndim = 2;
    x.shape = shape;
    x.strides = strides;
    ASSERT_EQ(halyard_linear(nullptr, &x, weights.get(), nullptr, &many.y.view), HALYARD_OK) << halyard_last_error();
    for (std::int64_t row = 0; row < 9; row++) {
        EXPECT_EQ(many.y.row_values(row), one.y.row_values(0));
    }
}

/** Memory of which only the pages that are used exist. */
class SparseMemory {
public:
    explicit SparseMemory(std::size_t bytes) : bytes(bytes) {
        void *const memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        begin = memory == MAP_FAILED ? nullptr : memory;
    }
    ~SparseMemory() {
        if (begin != nullptr) {
            munmap(begin, bytes);
        }
    }
    SparseMemory(const SparseMemory &) = delete;
    SparseMemory &operator=(const SparseMemory &) = delete;

    void *begin;

private:
    std::size_t bytes;
};

TEST(LinearShapes, RowsMayBeMoreThanTwoToThe31ElementsApart) {
#ifdef HALYARD_TESTS_REDUCED
    GTEST_SKIP() << "sanitizers keep a shadow of all this memory";
#endif
    constexpr std::int64_t rows = 3, pitch = (std::int64_t{1} << 31) + 1000;
    const Weights weights(weight_form(Dtype::f32, 37, 21));
    LinearCall near(weights, f32_rows(rows));
    near.add_residual();
    ASSERT_EQ(near.run(nullptr), HALYARD_OK) << halyard_last_error();

    SparseMemory x(rows * pitch * 4), residual(rows * pitch * 4), y(rows * pitch * 4);
    ASSERT_TRUE(x.begin != nullptr && residual.begin != nullptr && y.begin != nullptr);
    std::int64_t strides[] = {pitch, 1};
    const auto view_of = [&](const SparseMemory &memory, const Tensor &like) {
        DLTensor view = like.view;
        view.data = memory.begin;
        view.strides = strides;
        return view;
    };
    DLTensor x_view = view_of(x, near.x), residual_view = view_of(residual, *near.residual),
             y_view = view_of(y, near.y);
    ASSERT_EQ(halyard_cast(nullptr, &near.x.view, &x_view), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(halyard_cast(nullptr, &near.residual->view, &residual_view), HALYARD_OK) << halyard_last_error();
    halyard_linear_options options{};
    options.residual = &residual_view;
    ASSERT_EQ(halyard_linear(nullptr, &x_view, weights.get(), &options, &y_view), HALYARD_OK) << halyard_last_error();
    Tensor back(Dtype::f32, compact_form(near.y.shape()));
    ASSERT_EQ(halyard_cast(nullptr, &y_view, &back.view), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(same_rows(near.y, back));
}

TEST(LinearShapes, NoRowsIsNothingToDo) {
    const Weights weights(weight_form(Dtype::f32, 19, 33));
    for (const Shape &leading : {Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 4}}) {
        LinearCall call(weights, call_form(Dtype::f32, Dtype::f32, leading));
        call.add_bias(Dtype::f32);
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        call.x.view.data = nullptr;
        call.y.view.data = nullptr;
        call.x.view.byte_offset = call.y.view.byte_offset = 0;
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(call.surroundings_intact());
        // Wrong arguments are wrong all the same.
        call.options.beta = NAN;
        call.options.activation = HALYARD_SWISH;
        EXPECT_TRUE(refused(call.run(nullptr), HALYARD_INVALID_ARGUMENT, "halyard_linear", "beta"));
    }
}

TEST(LinearShapes, ColumnsOfOneMatrixMayBeXAndY) {
    // They interleave row by row, and share no memory.
    for (const std::int64_t out : {24, 10, 40}) {
        constexpr std::int64_t in = 24, rows = 5;
        const Weights weights(weight_form(Dtype::f32, in, out));
        LinearCall apart(weights, f32_rows(rows));
        ASSERT_EQ(apart.run(nullptr), HALYARD_OK) << halyard_last_error();
        Tensor both(Dtype::f32, compact_form({rows, in + out}));
        both.fill([&](std::int64_t row, std::int64_t i) { return i < in ? apart.x.get(row, i) : 0.0; });
        DLTensor x = both.view, y = both.view;
        std::int64_t x_shape[] = {rows, in}, y_shape[] = {rows, out}, strides[] = {in + out, 1};
        x.shape = x_shape;
        y.shape = y_shape;
        x.strides = y.strides = strides;
        y.data = both.at(0, in);
        ASSERT_EQ(halyard_linear(nullptr, &x, weights.get(), nullptr, &y), HALYARD_OK) << halyard_last_error();
        for (std::int64_t row = 0; row < rows; row++) {
            for (std::int64_t i = 0; i < in + out; i++) {
                ASSERT_EQ(both.get(row, i), i < in ? apart.x.get(row, i) : apart.y.get(row, i - in));
            }
        }
    }
}

// ---- Epilogues ---------------------------------------------------------------------------------------------------

class LinearEpilogues : public testing::TestWithParam<halyard_activation> {
protected:
    const LayerActivation &activation = layer_activation(GetParam());

    std::vector<float> betas() const {
        return activation.value == HALYARD_SWISH ? std::vector<float>{1, 0, -1.5f, 1.702f, 30} : std::vector<float>{0};
    }
};

std::vector<halyard_activation> activation_values() {
    std::vector<halyard_activation> values;
    for (const LayerActivation &activation : layer_activations()) {
        values.push_back(activation.value);
    }
    return values;
}

INSTANTIATE_TEST_SUITE_P(All, LinearEpilogues, testing::ValuesIn(activation_values()),
                         [](const testing::TestParamInfo<halyard_activation> &info) {
                             return layer_activation(info.param).name;
                         });

TEST_P(LinearEpilogues, OptionsCombineFreely) {
    // One bit for each option that a call has.
    enum { scale = 1, mean = 2, bias = 4, bias_up = 8, residual = 16, in_place = 32, folded = 64, all = 128 };
    for (const bool gated : {false, true}) {
        for (int options = 0; options < all; options++) {
            const bool contradiction = (options & in_place) && !(options & residual);
            if (contradiction || (!gated && (options & bias_up))) {
                continue;
            }
            const int number = options * 2 + gated;
            const auto type = [&](int shift) { return all_dtypes[(number + number / 7 + shift) % 3]; };
            WeightForm form = weight_form(type(0), 53, 37, gated, 19);
            form.norm_weight = form.norm_bias = options & folded;
            form.unit_offset = (options & folded) && number % 4 < 2;
            const Weights weights(form);
            LinearCall call(weights, call_form(type(1), type(number / 3), {7}, 0, 3), 23);
            if (options & scale) {
                call.add_row_scale();
            }
            if (options & mean) {
                call.add_row_mean();
            }
            if (options & bias) {
                call.add_bias(type(2));
            }
            if (options & bias_up) {
                call.add_bias_up(type(1));
            }
            const std::vector<float> all_betas = betas();
            call.activate(activation.value, all_betas[static_cast<std::size_t>(number) % all_betas.size()]);
            const auto add_residual = [&] {
                call.y.clear();
                if (options & in_place) {
                    call.add_residual_in_place();
                } else if (options & residual) {
                    call.add_residual();
                }
            };
            add_residual();
            const Matrix expected = call.expected();
            for (const halyard_isa isa : supported_isas()) {
                add_residual();
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(call.check(expected)) << halyard_isa_name(isa) << (options & folded ? ", folded norm" : "");
            }
        }
    }
}

TEST_P(LinearEpilogues, AreTheFunctionsOfTheirNames) {
    // The activation of a layer has the bits of the function applied to the layer without it; a gated layer those of
    // two layers, the function, and a product.
    const WeightForm gate_form = weight_form(Dtype::f32, 65, 50, false, 29);
    const WeightForm both_form = weight_form(Dtype::f32, 65, 50, true, 29);
    WeightForm up_form = both_form;
    up_form.gated = false;
    const Weights gate(gate_form), both(both_form), up(up_form, [&](int, std::int64_t k, std::int64_t n) {
        return both.values.up->values[static_cast<std::size_t>(k * up_form.out + n)];
    });
    for (const halyard_isa isa : supported_isas()) {
        const Context context(isa);
        std::vector<float> all_betas = betas();
        if (activation.value == HALYARD_SWISH) {
            all_betas.insert(all_betas.end(), {1e-28f, -1e28f});
        }
        for (const float beta : all_betas) {
            LinearCall linear(gate, f32_rows(13), 31), fused(gate, f32_rows(13), 31), up_linear(up, f32_rows(13), 31),
                gated(both, f32_rows(13), 31);
            // Ten times as large: into the activations' tails.
            for (LinearCall *call : {&linear, &fused, &up_linear, &gated}) {
                call->x.fill([&](std::int64_t row, std::int64_t i) { return 10 * bell(31, row, i); });
            }
            fused.activate(activation.value, beta);
            gated.activate(activation.value, beta);
            for (LinearCall *call : {&linear, &fused, &up_linear, &gated}) {
                ASSERT_EQ(call->run(context.get()), HALYARD_OK) << halyard_last_error();
            }
            Tensor activated(Dtype::f32, compact_form({13, 50})), product(Dtype::f32, compact_form({13, 50}));
            ASSERT_EQ(activation.call(context.get(), &linear.y.view, beta, &activated.view), HALYARD_OK);
            ASSERT_EQ(halyard_bilinear(context.get(), &activated.view, &up_linear.y.view, &product.view), HALYARD_OK);
            EXPECT_TRUE(same_rows(activated, fused.y)) << "beta " << beta << " with " << halyard_isa_name(isa);
            EXPECT_TRUE(same_rows(product, gated.y)) << "gated, beta " << beta << " with " << halyard_isa_name(isa);
        }
    }
}

TEST_P(LinearEpilogues, OptionsThatAreNeutralChangeNothing) {
    for (const bool gated : {false, true}) {
        // Outputs of 0 of both signs are among them: column 1 has zeros, and column 2 products that vanish from below.
        const Weights weights(
            weight_form(Dtype::f32, 3, 20, gated, 37), [](int matrix, std::int64_t k, std::int64_t n) {
                return n == 1 ? (k == 0 ? 0.0 : -0.0) : n == 2 ? (matrix == 0 ? -0x1p-100 : 0x1p-100) : bell(37, k, n);
            });
        for (const halyard_isa isa : supported_isas()) {
            const Context context(isa);
            const float beta = betas().back();
            LinearCall nothing(weights, f32_rows(6)), everything(weights, f32_rows(6));
            for (LinearCall *call : {&nothing, &everything}) {
                call->x.fill([](std::int64_t row, std::int64_t i) { return row == 2 ? 0x1p-100 : bell(41, row, i); });
                call->activate(activation.value, beta);
            }
            everything.add_row_scale();
            everything.row_scale->fill([](std::int64_t, std::int64_t) { return 1.0; });
            everything.add_row_mean();
            everything.row_mean->fill([](std::int64_t, std::int64_t) { return 0.0; });
            everything.add_bias(Dtype::bf16);
            everything.bias->fill([](std::int64_t, std::int64_t) { return -0.0; });
            if (gated) {
                everything.add_bias_up(Dtype::f16);
                everything.bias_up->fill([](std::int64_t, std::int64_t) { return -0.0; });
            }
            everything.add_residual();
            everything.residual->fill([](std::int64_t, std::int64_t) { return -0.0; });
            ASSERT_EQ(nothing.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(everything.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_rows(nothing.y, everything.y)) << halyard_isa_name(isa) << (gated ? ", gated" : "");
            // One bias without the other.
            const DLTensor *const bias_up = everything.options.bias_up;
            for (const bool gate : {true, false}) {
                everything.options.bias = gate ? &everything.bias->view : nullptr;
                everything.options.bias_up = gate ? nullptr : bias_up;
                ASSERT_EQ(everything.run(context.get()), HALYARD_OK) << halyard_last_error();
                EXPECT_TRUE(same_rows(nothing.y, everything.y)) << halyard_isa_name(isa) << (gated ? ", gated" : "");
            }
            // Options that are all zero are those of a null pointer.
            if (activation.value == HALYARD_IDENTITY) {
                LinearCall null(weights, f32_rows(6));
                ASSERT_EQ(halyard_linear(context.get(), &nothing.x.view, weights.get(), nullptr, &null.y.view),
                          HALYARD_OK);
                EXPECT_TRUE(same_rows(nothing.y, null.y));
            }
        }
    }
}

TEST(LinearFoldedNorm, OfAnyWeightIsRoundedOnce) {
    // Products of full length, also with a norm in f32 beside 16 bits: x and y in f32 leave no other rounding of that size.
    for (const Dtype type : all_dtypes) {
        for (int number = 0; number < 16; number++) {
            const bool gated = number & 1;
            WeightForm form = weight_form(type, number % 3 == 0 ? 301 : 300, 35, gated, 43);
            form.norm_weight = form.norm_bias = true;
            form.f32_norm_weight = number & 2;
            form.f32_norm_bias = number & 4;
            form.unit_offset = number & 8;
            form.layout = number % 5 < 2 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
            const Weights weights(form, [](int matrix, std::int64_t k, std::int64_t n) {
                return bell(43 + static_cast<std::uint64_t>(matrix), k, n) / 17;
            });
            LinearCall call(weights, call_form(Dtype::f32, Dtype::f32, {5}), 47);
            call.add_row_scale();
            call.add_row_mean();
            const Matrix expected = call.expected();
            for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(call.check(expected)) << halyard_isa_name(isa) << ", norm " << number;
            }
        }
    }
}

TEST(LinearNan, OfAnyBitsStaysOneInEveryType) {
    constexpr std::int64_t in = 20, out = 37;
    int number = 0;
    struct Operand {
        const char *name;
        bool in_x, in_w, in_bias;
    };
    for (const Types &types : all_types()) {
        for (const LayerActivation &activation : layer_activations()) {
            for (const Operand &operand : {Operand{"x", true, false, false}, Operand{"W", false, true, false},
                                           Operand{"the bias", false, false, true}}) {
                if (emulated && number++ % 5 != 0) {
                    continue;
                }
                const Dtype type = operand.in_x ? types.x : types.w;
                for (const std::uint32_t bits : nans_of(type)) {
                    Tensor w(types.w, compact_form({out, in}));
                    w.fill([](std::int64_t n, std::int64_t k) { return bell(241, n, k); });
                    if (operand.in_w) {
                        for (std::int64_t n = 0; n < out; n++) {
                            w.set_bits(n, 3, bits);
                        }
                    }
                    halyard_weights *packed = nullptr;
                    ASSERT_EQ(halyard_weights_pack(nullptr, &w.view, nullptr, nullptr, 0, &packed), HALYARD_OK)
                        << halyard_last_error();
                    Tensor x(types.x, compact_form({3, in})), bias(types.w, compact_form({out})),
                        y(types.y, compact_form({3, out}));
                    x.fill([](std::int64_t row, std::int64_t k) { return bell(251, row, k); });
                    bias.fill([](std::int64_t, std::int64_t n) { return bell(257, 0, n); });
                    for (std::int64_t row = 0; operand.in_x && row < 3; row++) {
                        x.set_bits(row, 3, bits);
                    }
                    for (std::int64_t n = 0; operand.in_bias && n < out; n++) {
                        bias.set_bits(0, n, bits);
                    }
                    halyard_linear_options options{};
                    options.bias = &bias.view;
                    options.activation = activation.value;
                    options.beta = activation.value == HALYARD_SWISH ? -0.7f : 0;
                    for (const halyard_isa isa : supported_isas()) {
                        y.clear();
                        ASSERT_EQ(halyard_linear(Context(isa).get(), &x.view, packed, &options, &y.view), HALYARD_OK)
                            << halyard_last_error();
                        for (std::int64_t row = 0; row < 3; row++) {
                            for (std::int64_t n = 0; n < out; n++) {
                                ASSERT_TRUE(std::isnan(y.get(row, n)))
                                    << show(type, bits) << " in " << operand.name << " gives " << y.get(row, n)
                                    << " with " << activation.name << ", " << halyard_isa_name(isa) << "; x "
                                    << name_of(types.x) << ", W " << name_of(types.w) << ", y " << name_of(types.y);
                            }
                        }
                    }
                    halyard_weights_destroy(packed);
                }
            }
        }
    }
}

}  // namespace
}  // namespace halyard::tests
