// The C++ interface of packed weights, linear layers and feed-forward networks: every option reaches the C function.
#include "halyard/halyard.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

constexpr std::size_t rows = 3, in = 20, out = 18;
using Values = std::vector<float>;

Values values(int seed, std::size_t count) {
    Values result(count);
    for (std::size_t i = 0; i < count; i++) {
        result[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) - 11) / 16;
    }
    return result;
}

const Values w = values(1, in *out), v = values(2, in *out), back = values(3, in *out), x = values(4, rows *in),
             gamma_ = values(5, in), beta = values(6, in), bias = values(7, out), bias_up = values(8, out),
             bias_down = values(9, in), scale = values(10, rows), mean = values(11, rows),
             residual = values(12, rows *out);

halyard::PackOptions all_options() {
    halyard::PackOptions options;
    options.up = {v, {out, in}};
    options.norm_weight = gamma_;
    options.norm_bias = beta;
    options.norm_unit_offset = true;
    return options;
}

/** A view for the C functions, which lives as long as the object it is made from. */
struct View {
    View(const Values &data, std::vector<std::int64_t> extents) : tensor(data, extents) {}
    operator const DLTensor *() const { return tensor.get(); }
    halyard::ConstTensor tensor;
};

TEST(CppWeights, PackWithEveryOption) {
    const View weight(w, {out, in}), up(v, {out, in}), norm_weight(gamma_, {in}), norm_bias(beta, {in});
    halyard_pack_options c{};
    c.up = up;
    c.norm_weight = norm_weight;
    c.norm_bias = norm_bias;
    c.norm_unit_offset = 1;
    halyard_weights *expected = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, weight, &c, nullptr, 0, &expected), HALYARD_OK) << halyard_last_error();

    const auto packed = halyard::Weights::pack({w, {out, in}}, all_options());
    ASSERT_EQ(packed.bytes(), halyard::Weights::packed_bytes({w, {out, in}}, all_options()));
    EXPECT_EQ(std::string(static_cast<const char *>(packed.data()), static_cast<std::size_t>(packed.bytes())),
              std::string(static_cast<const char *>(halyard_weights_data(expected)),
                          static_cast<std::size_t>(packed.bytes())));
    halyard_weights_destroy(expected);
    EXPECT_EQ(packed.in_features(), static_cast<std::int64_t>(in));
    EXPECT_EQ(packed.out_features(), static_cast<std::int64_t>(out));
    EXPECT_TRUE(packed.gated());
    EXPECT_TRUE(packed.norm_folded());
    EXPECT_EQ(packed.dtype().bits, 32);

    halyard::PackOptions in_out;
    in_out.layout = halyard::WeightLayout::in_out;
    EXPECT_EQ(halyard::Weights::pack({w, {out, in}}, in_out).in_features(), static_cast<std::int64_t>(out));
}

TEST(CppWeights, AreUpdatedWithEveryOption) {
    const auto bytes_of = [](const halyard::Weights &weights) {
        return std::string(static_cast<const char *>(weights.data()), static_cast<std::size_t>(weights.bytes()));
    };
    auto weights = halyard::Weights::pack({v, {out, in}}, all_options());
    const auto expected = halyard::Weights::pack({w, {out, in}}, all_options());
    ASSERT_NE(bytes_of(weights), bytes_of(expected));
    const void *const block = weights.data();
    weights.update({w, {out, in}}, all_options());
    EXPECT_EQ(weights.data(), block);
    EXPECT_EQ(bytes_of(weights), bytes_of(expected));
    EXPECT_THROW(weights.update({w, {out, in}}), halyard::Error);
}

TEST(CppWeights, AreQuantized) {
    const View weight(w, {out, in});
    halyard_pack_options c{};
    c.quantization = {4, 16, 1, {kDLBfloat, 16, 1}};
    halyard_weights *expected = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, weight, &c, nullptr, 0, &expected), HALYARD_OK) << halyard_last_error();
    halyard::PackOptions options;
    options.quantization = c.quantization;
    const auto packed = halyard::Weights::pack({w, {out, in}}, options);
    EXPECT_EQ(std::string(static_cast<const char *>(packed.data()), static_cast<std::size_t>(packed.bytes())),
              std::string(static_cast<const char *>(halyard_weights_data(expected)),
                          static_cast<std::size_t>(packed.bytes())));
    halyard_weights_destroy(expected);
    EXPECT_EQ(packed.info().code_bits, 4);
    EXPECT_EQ(packed.info().scale_kind, HALYARD_SCALE_ZERO);
}

TEST(CppWeights, AreMovedSavedAndLoaded) {
    auto packed = halyard::Weights::pack({w, {out, in}});
    const void *const data = packed.data();
    halyard::Weights moved = std::move(packed);
    EXPECT_EQ(moved.data(), data);
    EXPECT_FALSE(packed);  // NOLINT: moved from
    EXPECT_TRUE(moved);

    const std::string path = testing::TempDir() + "halyard-cpp-weights";
    moved.save(path);
    const auto loaded = halyard::Weights::load(path);
    moved.save(path.c_str());
    const auto size = static_cast<std::size_t>(moved.bytes());
    EXPECT_EQ(std::string(static_cast<const char *>(loaded.data()), size),
              std::string(static_cast<const char *>(moved.data()), size));
    EXPECT_EQ(halyard::Weights::load(path.c_str()).bytes(), moved.bytes());
    std::remove(path.c_str());
    EXPECT_THROW(halyard::Weights::load(path), halyard::Error);

    const auto viewed = halyard::Weights::from_memory(moved.data(), moved.bytes());
    EXPECT_EQ(viewed.data(), moved.data());
    EXPECT_THROW(halyard::Weights::from_memory(moved.data(), 5), halyard::Error);
    std::vector<char> memory(static_cast<std::size_t>(moved.bytes()) + 64);
    char *const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    EXPECT_EQ(halyard::Weights::pack({w, {out, in}}, {}, aligned, moved.bytes()).data(), aligned);

    EXPECT_THROW(halyard::Weights().info(), halyard::Error);
    EXPECT_THROW(halyard::Weights::pack({}), halyard::Error);
}

TEST(CppLinear, PassesItsOptionsOn) {
    const auto gated = halyard::Weights::pack({w, {out, in}}, all_options());
    const auto plain = halyard::Weights::pack({w, {out, in}});
    const View xs(x, {rows, in}), scales(scale, {rows}), means(mean, {rows}), biases(bias, {out}),
        biases_up(bias_up, {out}), residuals(residual, {rows, out});
    halyard_linear_options c{};
    c.row_scale = scales;
    c.row_mean = means;
    c.bias = biases;
    c.bias_up = biases_up;
    c.activation = HALYARD_SWISH;
    c.beta = 0.75f;
    c.residual = residuals;
    Values expected(rows * out), y(rows * out);
    const halyard::Tensor expected_view(expected, {rows, out}), yv(y, {rows, out});
    ASSERT_EQ(halyard_linear(nullptr, xs, gated.get(), &c, expected_view.get()), HALYARD_OK) << halyard_last_error();

    halyard::LinearOptions options;
    options.row_scale = scale;
    options.row_mean = mean;
    options.bias = bias;
    options.bias_up = bias_up;
    options.activation = halyard::Activation::swish;
    options.beta = 0.75f;
    options.residual = {residual, {rows, out}};
    halyard::linear({x, {rows, in}}, gated, options, yv);
    EXPECT_EQ(y, expected);

    ASSERT_EQ(halyard_linear(nullptr, xs, plain.get(), nullptr, expected_view.get()), HALYARD_OK)
        << halyard_last_error();
    halyard::linear({x, {rows, in}}, plain, yv);
    EXPECT_EQ(y, expected);
    halyard::linear({x, {rows, in}}, plain, {}, yv, halyard::Context());
    EXPECT_EQ(y, expected);
    EXPECT_THROW(halyard::linear({x, {rows, in}}, halyard::Weights(), yv), halyard::Error);
}

TEST(CppLinear, PassesGradientsOn) {
    halyard::PackOptions with_up;
    with_up.up = {v, {out, in}};
    const auto gated = halyard::Weights::pack({w, {out, in}}, with_up);
    Values sums(rows * out), sums_up(rows * out), y(rows * out);
    halyard::LinearOptions options;
    options.activation = halyard::Activation::swish;
    options.beta = 0.75f;
    options.sums = {sums, {rows, out}};
    options.sums_up = {sums_up, {rows, out}};
    halyard::linear({x, {rows, in}}, gated, options, {y, {rows, out}});

    const View xs(x, {rows, in}), dys(residual, {rows, out});
    const halyard::Tensor sums_view(sums, {rows, out}), sums_up_view(sums_up, {rows, out});
    halyard_linear_options c{};
    c.activation = HALYARD_SWISH;
    c.beta = 0.75f;
    c.sums = sums_view.get();
    c.sums_up = sums_up_view.get();
    for (const bool accumulate : {false, true}) {
        Values of_c[] = {Values(rows * in), Values(in * out, 1), Values(in * out, 2), Values(out, 3), Values(out, 4)};
        Values got[std::size(of_c)];
        std::copy(std::begin(of_c), std::end(of_c), got);
        const auto given = [&](Values *to) {
            halyard::LinearGradients gradients;
            gradients.dx = {to[0], {rows, in}};
            gradients.dweight = {to[1], {in, out}};
            gradients.dweight_up = {to[2], {in, out}};
            gradients.dbias = to[3];
            gradients.dbias_up = to[4];
            gradients.layout = halyard::WeightLayout::in_out;
            gradients.accumulate = accumulate;
            return gradients;
        };
        const halyard::LinearGradients of = given(of_c);
        const halyard_linear_gradients g = {of.dx.get(),       of.dweight.get(),  of.dweight_up.get(),
                                            of.dbias.get(),    of.dbias_up.get(), HALYARD_WEIGHT_IN_OUT,
                                            accumulate ? 1 : 0};
        ASSERT_EQ(halyard_linear_backward(nullptr, xs, gated.get(), dys, &c, &g), HALYARD_OK) << halyard_last_error();
        halyard::linear_backward({x, {rows, in}}, gated, {residual, {rows, out}}, options, given(got));
        EXPECT_TRUE(std::equal(std::begin(of_c), std::end(of_c), got));
    }
}

TEST(CppLinear, GivesTheScalesOfNorms) {
    const View xs(x, {rows, in});
    Values expected(rows), expected_mean(rows), got(rows), got_mean(rows);
    const halyard::Tensor scales(expected), means(expected_mean);
    ASSERT_EQ(halyard_rms_norm_scale(nullptr, xs, 0.25f, 0, scales.get()), HALYARD_OK) << halyard_last_error();
    halyard::rms_norm_scale({x, {rows, in}}, 0.25f, got);
    EXPECT_EQ(got, expected);
    ASSERT_EQ(halyard_rms_norm_scale(nullptr, xs, 0.25f, HALYARD_RMS_EPS_OUTSIDE_ROOT, scales.get()), HALYARD_OK);
    halyard::rms_norm_scale({x, {rows, in}}, 0.25f, HALYARD_RMS_EPS_OUTSIDE_ROOT, got);
    EXPECT_EQ(got, expected);
    ASSERT_EQ(halyard_layer_norm_scale(nullptr, xs, 0.25f, means.get(), scales.get()), HALYARD_OK)
        << halyard_last_error();
    halyard::layer_norm_scale({x, {rows, in}}, 0.25f, got_mean, got);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got_mean, expected_mean);
}

TEST(CppFfn, PassesItsOptionsOn) {
    halyard::PackOptions with_up;
    with_up.up = {v, {out, in}};
    const auto up = halyard::Weights::pack({w, {out, in}}, with_up), down = halyard::Weights::pack({back, {in, out}});
    const auto folded = halyard::Weights::pack({w, {out, in}}, all_options());
    const View xs(x, {rows, in}), norm_weight(gamma_, {in}), norm_bias(beta, {in}), biases(bias, {out}),
        biases_up(bias_up, {out}), biases_down(bias_down, {in});
    halyard_ffn_options c{};
    c.norm = HALYARD_NORM_LAYER;
    c.norm_weight = norm_weight;
    c.norm_bias = norm_bias;
    c.eps = 0.25f;
    c.activation = HALYARD_SWISH;
    c.beta = 0.75f;
    c.bias = biases;
    c.bias_up = biases_up;
    c.bias_down = biases_down;
    c.residual = 1;
    Values expected(rows * in), y(rows * in);
    const halyard::Tensor expected_view(expected, {rows, in}), yv(y, {rows, in});
    ASSERT_EQ(halyard_ffn(nullptr, xs, up.get(), down.get(), &c, expected_view.get()), HALYARD_OK)
        << halyard_last_error();

    halyard::FfnOptions options;
    options.norm = halyard::Norm::layer;
    options.norm_weight = gamma_;
    options.norm_bias = beta;
    options.eps = 0.25f;
    options.activation = halyard::Activation::swish;
    options.beta = 0.75f;
    options.bias = bias;
    options.bias_up = bias_up;
    options.bias_down = bias_down;
    options.residual = true;
    halyard::ffn({x, {rows, in}}, up, down, options, yv);
    EXPECT_EQ(y, expected);

    c = {};
    c.norm = HALYARD_NORM_RMS;
    c.norm_flags = HALYARD_RMS_EPS_OUTSIDE_ROOT;
    c.eps = 0.25f;
    c.deferred_norm = 1;
    ASSERT_EQ(halyard_ffn(nullptr, xs, folded.get(), down.get(), &c, expected_view.get()), HALYARD_OK)
        << halyard_last_error();
    options = {};
    options.norm = halyard::Norm::rms;
    options.norm_flags = HALYARD_RMS_EPS_OUTSIDE_ROOT;
    options.eps = 0.25f;
    options.deferred_norm = true;
    halyard::ffn({x, {rows, in}}, folded, down, options, yv);
    EXPECT_EQ(y, expected);
    EXPECT_EQ(halyard::ffn_hidden_size(4096, 256), 11008);
}

TEST(CppFfn, PassesItsGradientsOn) {
    halyard::PackOptions with_up;
    with_up.up = {v, {out, in}};
    const auto up = halyard::Weights::pack({w, {out, in}}, with_up), down = halyard::Weights::pack({back, {in, out}});
    Values sums(rows * out), sums_up(rows * out), y(rows * in);
    halyard::FfnOptions options;
    options.norm = halyard::Norm::layer;
    options.norm_weight = gamma_;
    options.norm_bias = beta;
    options.eps = 0.25f;
    options.activation = halyard::Activation::silu;
    options.residual = true;
    options.sums = {sums, {rows, out}};
    options.sums_up = {sums_up, {rows, out}};
    halyard::ffn({x, {rows, in}}, up, down, options, {y, {rows, in}});

    const View xs(x, {rows, in});
    const halyard_ffn_options c = options.get();
    for (const bool accumulate : {false, true}) {
        Values of_c[] = {Values(rows * in),   Values(in * out, 1), Values(in * out, 2),
                         Values(out * in, 3), Values(out, 4),      Values(out, 5),
                         Values(in, 6),       Values(in, 7),       Values(in, 8)};
        Values got[std::size(of_c)];
        std::copy(std::begin(of_c), std::end(of_c), got);
        const auto given = [&](Values *to) {
            halyard::FfnGradients gradients;
            gradients.dx = {to[0], {rows, in}};
            gradients.dweight = {to[1], {in, out}};
            gradients.dweight_up = {to[2], {in, out}};
            gradients.dweight_down = {to[3], {out, in}};
            gradients.dbias = to[4];
            gradients.dbias_up = to[5];
            gradients.dbias_down = to[6];
            gradients.dnorm_weight = to[7];
            gradients.dnorm_bias = to[8];
            gradients.layout = halyard::WeightLayout::in_out;
            gradients.accumulate = accumulate;
            return gradients;
        };
        const halyard::FfnGradients of = given(of_c);
        const halyard_ffn_gradients g = {of.dx.get(),           of.dweight.get(),      of.dweight_up.get(),
                                         of.dweight_down.get(), of.dbias.get(),        of.dbias_up.get(),
                                         of.dbias_down.get(),   of.dnorm_weight.get(), of.dnorm_bias.get(),
                                         HALYARD_WEIGHT_IN_OUT, accumulate ? 1 : 0};
        ASSERT_EQ(halyard_ffn_backward(nullptr, xs, up.get(), down.get(), xs, &c, &g), HALYARD_OK)
            << halyard_last_error();
        halyard::ffn_backward({x, {rows, in}}, up, down, {x, {rows, in}}, options, given(got));
        EXPECT_TRUE(std::equal(std::begin(of_c), std::end(of_c), got));
    }
}

TEST(CppWeights, CodesReachTheCFunctions) {
    const std::vector<std::int8_t> q(in * out, 3), zeros(out, 1);
    halyard::Codes codes;
    codes.format = halyard::CodeFormat::int8;
    codes.in_features = in;
    codes.out_features = out;
    codes.matrix = {q, {out, in}};
    codes.scales = bias;
    codes.zeros = zeros;
    Values numbers(in * out), product(out), one(in);
    one[0] = 1;
    halyard::dequantize(codes, {numbers, {out, in}});
    halyard::linear(one, halyard::Weights::pack_codes(codes), product);
    for (std::size_t n = 0; n < out; n++) {
        EXPECT_EQ(numbers[n * in], 2 * bias[n]);
        EXPECT_EQ(product[n], numbers[n * in]);
    }
    EXPECT_THROW(halyard::dequantize(codes, {numbers, {in, out}}), halyard::Error);
}

}  // namespace
