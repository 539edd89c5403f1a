// The C++ interface: views from pointers, containers and DLTensors, options, errors as exceptions, contexts; and that
// every function reaches the C function of its name with its arguments in the right places.
#include "halyard/halyard.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "operations/isas.h"

namespace {

constexpr std::size_t rows = 3, width = 5;
using Values = std::vector<float>;

/** Different values for different seeds. */
Values values(int seed, std::size_t count = rows * width) {
    Values result(count);
    for (std::size_t i = 0; i < count; i++) {
        result[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) - 11) / 4;
    }
    return result;
}

DLTensor c_view(const Values &data, std::vector<std::int64_t> &shape) {
    DLTensor view{};
    view.data = const_cast<float *>(data.data());
    view.device = {kDLCPU, 0};
    view.ndim = static_cast<int>(shape.size());
    view.dtype = {kDLFloat, 32, 1};
    view.shape = shape.data();
    return view;
}

/** C views of the tensors that the tests pass. */
struct CViews {
    std::vector<std::int64_t> matrix = {rows, width}, row = {width}, packed = {rows, 2 * width};
    Values y = Values(rows * width), r = Values(rows * width);

    DLTensor of(const Values &data) {
        return c_view(data, data.size() == width ? row : data.size() == rows * width ? matrix : packed);
    }
};

TEST(CppViews, ComeFromPointersContainersAndDlTensors) {
    const Values x = values(1);
    Values expected(width), y(width);
    halyard::silu({x.data(), {width}}, {expected.data(), {width}});
    EXPECT_FLOAT_EQ(expected[1], x[1] / (1 + std::exp(-x[1])));

    std::array<float, width> array{};
    halyard::silu({x.data(), width}, array);
    EXPECT_EQ(Values(array.begin(), array.end()), expected);

    float plain[width] = {};
    halyard::silu(Values(x.begin(), x.begin() + width), plain);
    EXPECT_EQ(Values(plain, plain + width), expected);

    std::vector<std::int64_t> shape = {width};
    DLTensor xs = c_view(x, shape), ys = c_view(y, shape);
    halyard::silu(xs, ys);
    EXPECT_EQ(y, expected);
}

TEST(CppViews, HaveShapesAndStrides) {
    // The last three columns of each row.
    const Values x = values(2);
    Values y(rows * width, -1.0f);
    halyard::relu({x.data() + 2, {rows, 3}, {width, 1}}, {y.data() + 1, {rows, 3}, {width, 1}});
    for (std::size_t row = 0; row < rows; row++) {
        EXPECT_EQ(y[row * width], -1.0f);
        EXPECT_EQ(y[row * width + 4], -1.0f);
        for (std::size_t i = 0; i < 3; i++) {
            EXPECT_EQ(y[row * width + 1 + i], std::fmax(x[row * width + 2 + i], 0.0f));
        }
    }
    const std::vector<int> shape = {rows, width};
    halyard::relu({x, shape}, {y, shape});
    EXPECT_EQ(y[0], std::fmax(x[0], 0.0f));
}

TEST(CppViews, MayBeCopied) {
    const Values x = values(3);
    Values y(rows * width), expected(rows * width);
    halyard::relu({x, {rows, width}}, {expected, {rows, width}});
    halyard::ConstTensor copy;
    {
        const halyard::ConstTensor original(x, {rows, width});
        copy = original;
    }
    halyard::relu(copy, {y, {rows, width}});
    EXPECT_EQ(y, expected);
    EXPECT_EQ(halyard::ConstTensor().get(), nullptr);
    EXPECT_EQ(halyard::ConstTensor(std::nullopt).get(), nullptr);
}

TEST(CppErrors, CarryStatusAndSentence) {
    const Values x = values(4);
    Values y(rows * width, 5.0f);
    try {
        halyard::relu({x, {rows, width}}, {y, {width, rows}});
        FAIL() << "mismatched shapes are accepted";
    } catch (const halyard::Error &error) {
        EXPECT_EQ(error.status(), HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(std::string(error.what()), halyard_last_error());
        EXPECT_NE(std::string(error.what()).find("halyard_relu: y"), std::string::npos) << error.what();
    }
    EXPECT_EQ(y, Values(rows * width, 5.0f));
    EXPECT_THROW(halyard::relu({}, {y, {rows, width}}), halyard::Error);
    EXPECT_THROW(halyard::check(HALYARD_UNSUPPORTED), halyard::Error);
    EXPECT_NO_THROW(halyard::check(HALYARD_OK));
}

/** What the error that a call throws says. */
template<class Call>
std::string error_of(const Call &call) {
    try {
        call();
    } catch (const halyard::Error &error) {
        EXPECT_EQ(error.status(), HALYARD_INVALID_ARGUMENT);
        return error.what();
    }
    return "none";
}

TEST(CppErrors, NameTheTensorThatItsContainerIsTooSmallFor) {
    const Values x = values(4);
    Values y(rows * width, 5.0f);
    const auto needs = [&](const char *name, std::size_t needed, std::size_t available) {
        return "halyard: " + std::string(name) + " has a shape and strides that need " + std::to_string(needed) +
               " elements, but its container holds " + std::to_string(available);
    };
    EXPECT_EQ(error_of([&] {
                  halyard::relu({x, {rows + 1, width}}, {y, {rows, width}});
              }),
              needs("x", (rows + 1) * width, rows * width));
    EXPECT_EQ(error_of([&] {
                  halyard::relu({x, {rows, width}, {width + 1, 1}}, {y, {rows, width}});
              }),
              needs("x", (rows - 1) * (width + 1) + width, rows * width));
    EXPECT_EQ(error_of([&] {
                  halyard::softmax({x, {rows, width}}, {y, {2 * rows, width}});
              }),
              needs("y", 2 * rows * width, rows * width));
    EXPECT_EQ(error_of([&] {
                  halyard::softmax({x, {width}, {rows, 1}}, {y, {width}});
              }),
              "halyard: x has a shape and strides of different ranks");
    const Values small(width - 1);
    EXPECT_EQ(error_of([&] {
                  halyard::layer_norm({x, {rows, width}}, {}, {small, {width}}, 1e-5f, {y, {rows, width}});
              }),
              needs("bias", width, width - 1));
    const halyard::Weights weights = halyard::Weights::pack({x, {rows, width}});
    halyard::LinearOptions options;
    options.bias = {small, {width}};
    EXPECT_EQ(error_of([&] {
                  halyard::linear({x, {rows, width}}, weights, options, {y, {rows, rows}});
              }),
              needs("bias", width, width - 1));
    EXPECT_EQ(error_of([&] {
                  halyard::Weights::pack({x, {rows + 1, width}});
              }),
              needs("weight", (rows + 1) * width, rows * width));
    EXPECT_EQ(error_of([&] {
                  halyard::ConstTensor(x, {rows + 1, width}).get();
              }),
              needs("the tensor", (rows + 1) * width, rows * width));
    EXPECT_EQ(y, Values(rows * width, 5.0f));
}

TEST(CppContexts, HoldSettings) {
    halyard::Context context;
    context.set_num_threads(3);
    EXPECT_EQ(context.num_threads(), 3);
    const auto weakest = static_cast<halyard::Isa>(halyard::operations::weakest_isa);
    context.set_max_isa(weakest);
    EXPECT_EQ(context.isa(), weakest);
    EXPECT_STREQ(halyard::to_string(context.isa()), halyard_isa_name(halyard::operations::weakest_isa));
    EXPECT_TRUE(halyard::supported(weakest));
    EXPECT_THROW(context.set_num_threads(-1), halyard::Error);
    context.set_products(halyard::Products::full);
    EXPECT_EQ(context.products(), halyard::Products::full);
    EXPECT_STREQ(halyard::version(), halyard_version());

    // The callable lives in the context, also when that moves, and goes with it.
    const auto alive = std::make_shared<std::atomic<int>>(0);
    {
        context.set_parallel_for([alive](int count, const halyard::Context::Task &task) {
            for (int i = 0; i < count; i++) {
                task(i);
                ++*alive;
            }
        });
        EXPECT_EQ(alive.use_count(), 2);
        halyard::Context moved = std::move(context);
        const Values x = values(6, 1 << 18);
        Values y(x.size());
        halyard::relu(x, y, moved);
        EXPECT_EQ(*alive, 3);
        EXPECT_EQ(y[777], std::fmax(x[777], 0.0f));
        moved.set_parallel_for(nullptr);
        EXPECT_EQ(alive.use_count(), 1);
        halyard::relu(x, y, moved);
        EXPECT_EQ(*alive, 3);
    }
}

TEST(CppFunctions, CastBetweenTypes) {
    const Values x = {1.0f, -2.5f, 65504.0f, 0x1.01p0f};
    std::vector<halyard::f16> halves(4);
    std::vector<halyard::bf16> brains(4);
    halyard::cast(x, halves);
    halyard::cast(x, brains);
    EXPECT_EQ(halves[1].bits, 0xc100);
    EXPECT_EQ(halves[2].bits, 0x7bff);
    EXPECT_EQ(brains[1].bits, 0xc020);
    EXPECT_EQ(brains[3].bits, 0x3f80);
    Values back(4);
    halyard::cast(halves, back);
    EXPECT_EQ(back, (Values{1.0f, -2.5f, 65504.0f, 0x1.01p0f}));
}

TEST(CppFunctions, NormsPassTheirArgumentsOn) {
    CViews c;
    const Values x = values(1), residual = values(2), weight = values(3, width), bias = values(4, width);
    const DLTensor xs = c.of(x), residuals = c.of(residual), weights = c.of(weight), biases = c.of(bias);
    DLTensor ys = c.of(c.y), rs = c.of(c.r);
    const halyard::ConstTensor xv(x, {rows, width}), residual_v(residual, {rows, width});
    Values y(rows * width), r(rows * width);
    const halyard::Tensor yv(y, {rows, width}), rv(r, {rows, width});

    halyard::layer_norm(xv, weight, bias, 0.5f, yv);
    ASSERT_EQ(halyard_layer_norm(nullptr, &xs, &weights, &biases, 0.5f, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::layer_norm(xv, {}, bias, 0.5f, yv);
    ASSERT_EQ(halyard_layer_norm(nullptr, &xs, nullptr, &biases, 0.5f, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::rms_norm(xv, weight, 0.5f, yv);
    ASSERT_EQ(halyard_rms_norm(nullptr, &xs, &weights, 0.5f, 0, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::rms_norm(xv, weight, 0.5f, HALYARD_RMS_UNIT_OFFSET, yv);
    ASSERT_EQ(halyard_rms_norm(nullptr, &xs, &weights, 0.5f, HALYARD_RMS_UNIT_OFFSET, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::partial_rms_norm(xv, weight, 0.5f, HALYARD_RMS_EPS_OUTSIDE_ROOT, 0.4f, yv);
    ASSERT_EQ(halyard_partial_rms_norm(nullptr, &xs, &weights, 0.5f, HALYARD_RMS_EPS_OUTSIDE_ROOT, 0.4f, &ys),
              HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::add_layer_norm(xv, residual_v, weight, bias, 0.5f, rv, yv);
    ASSERT_EQ(halyard_add_layer_norm(nullptr, &xs, &residuals, &weights, &biases, 0.5f, &rs, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    EXPECT_EQ(r, c.r);
    halyard::add_rms_norm(xv, residual_v, weight, 0.25f, rv, yv);
    ASSERT_EQ(halyard_add_rms_norm(nullptr, &xs, &residuals, &weights, 0.25f, 0, &rs, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    EXPECT_EQ(r, c.r);
    halyard::add_rms_norm(xv, residual_v, weight, 0.25f, HALYARD_RMS_UNIT_OFFSET, rv, yv);
    ASSERT_EQ(halyard_add_rms_norm(nullptr, &xs, &residuals, &weights, 0.25f, HALYARD_RMS_UNIT_OFFSET, &rs, &ys),
              HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::softmax(xv, yv);
    ASSERT_EQ(halyard_softmax(nullptr, &xs, 1.0f, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::softmax(xv, 0.5f, yv);
    ASSERT_EQ(halyard_softmax(nullptr, &xs, 0.5f, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
    halyard::add(xv, residual_v, yv);
    ASSERT_EQ(halyard_add(nullptr, &xs, &residuals, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
}

TEST(CppFunctions, GradientsOfNormsPassTheirArgumentsOn) {
    CViews c;
    const Values x = values(1), dy = values(2), residual = values(3), weight = values(4, width);
    const DLTensor xs = c.of(x), dys = c.of(dy), residuals = c.of(residual), weights = c.of(weight);
    Values sum(width), c_sum(width), bias(width), c_bias(width);
    DLTensor dxs = c.of(c.y), sums = c.of(c_sum), biases = c.of(c_bias);
    const halyard::ConstTensor xv(x, {rows, width}), dyv(dy, {rows, width}), residual_v(residual, {rows, width});
    Values dx(rows * width);
    const halyard::Tensor dxv(dx, {rows, width}), sum_v(sum, {width}), bias_v(bias, {width});
    for (const bool accumulate : {false, true}) {
        halyard::layer_norm_backward(xv, weight, 0.5f, dyv, residual_v, accumulate, dxv, sum_v, bias_v);
        ASSERT_EQ(halyard_layer_norm_backward(nullptr, &xs, &weights, 0.5f, &dys, &residuals, accumulate, &dxs, &sums,
                                              &biases),
                  HALYARD_OK);
        EXPECT_EQ(dx, c.y);
        EXPECT_EQ(sum, c_sum);
        EXPECT_EQ(bias, c_bias);
        halyard::rms_norm_backward(xv, weight, 0.5f, HALYARD_RMS_UNIT_OFFSET, dyv, {}, accumulate, dxv, sum_v);
        ASSERT_EQ(halyard_rms_norm_backward(nullptr, &xs, &weights, 0.5f, HALYARD_RMS_UNIT_OFFSET, &dys, nullptr,
                                            accumulate, &dxs, &sums),
                  HALYARD_OK);
        EXPECT_EQ(dx, c.y);
        EXPECT_EQ(sum, c_sum);
        halyard::partial_rms_norm_backward(xv, weight, 0.5f, 0, 0.4f, dyv, residual_v, accumulate, dxv, {});
        ASSERT_EQ(halyard_partial_rms_norm_backward(nullptr, &xs, &weights, 0.5f, 0, 0.4f, &dys, &residuals, accumulate,
                                                    &dxs, nullptr),
                  HALYARD_OK);
        EXPECT_EQ(dx, c.y);
    }
    halyard::softmax_backward(xv, dyv, 0.5f, dxv);
    ASSERT_EQ(halyard_softmax_backward(nullptr, &xs, &dys, 0.5f, &dxs), HALYARD_OK);
    EXPECT_EQ(dx, c.y);
}

// The table of kernels says which functions there must be.

using CppUnary = void (*)(const halyard::ConstTensor &, const halyard::Tensor &, const halyard_context *);
using CppUnaryBeta = void (*)(const halyard::ConstTensor &, float, const halyard::Tensor &, const halyard_context *);
using CppGated = void (*)(const halyard::ConstTensor &, const halyard::ConstTensor &, const halyard::Tensor &,
                          const halyard_context *);
using CppGatedPacked = void (*)(const halyard::ConstTensor &, halyard::GluLayout, const halyard::Tensor &,
                                const halyard_context *);
using CppGatedBeta = void (*)(const halyard::ConstTensor &, const halyard::ConstTensor &, float,
                              const halyard::Tensor &, const halyard_context *);
using CppGatedBetaPacked = void (*)(const halyard::ConstTensor &, halyard::GluLayout, float, const halyard::Tensor &,
                                    const halyard_context *);

template<typename Function, typename CFunction>
struct Pair {
    const char *name;
    Function function;
    CFunction c_function;
};

TEST(CppFunctions, ActivationsPassTheirArgumentsOn) {
    const Pair<CppUnary, decltype(&halyard_relu)> unary[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name},
#include "kernels/unary.inc"
#undef HALYARD_KERNEL
    };
    const Pair<CppUnaryBeta, decltype(&halyard_swish)> unary_beta[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name},
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL
    };
    CViews c;
    const Values x = values(1);
    Values y(rows * width);
    const DLTensor xs = c.of(x);
    DLTensor ys = c.of(c.y);
    for (const auto &pair : unary) {
        pair.function({x, {rows, width}}, {y, {rows, width}}, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &xs, &ys), HALYARD_OK);
        EXPECT_EQ(y, c.y) << pair.name;
    }
    for (const auto &pair : unary_beta) {
        pair.function({x, {rows, width}}, 0.75f, {y, {rows, width}}, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &xs, 0.75f, &ys), HALYARD_OK);
        EXPECT_EQ(y, c.y) << pair.name;
    }
}

TEST(CppFunctions, GradientsOfActivationsPassTheirArgumentsOn) {
    const Pair<CppGated, decltype(&halyard_relu_backward)> unary[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name##_backward, halyard_##name##_backward},
#include "kernels/unary_backward.inc"
#undef HALYARD_KERNEL
    };
    const Pair<CppGatedBeta, decltype(&halyard_swish_backward)> unary_beta[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name##_backward, halyard_##name##_backward},
#include "kernels/unary_beta_backward.inc"
#undef HALYARD_KERNEL
    };
    CViews c;
    const Values x = values(1), dy = values(2);
    Values dx(rows * width);
    const DLTensor xs = c.of(x), dys = c.of(dy);
    DLTensor ys = c.of(c.y);
    const halyard::ConstTensor x_v(x, {rows, width}), dy_v(dy, {rows, width});
    const halyard::Tensor dx_v(dx, {rows, width});
    for (const auto &pair : unary) {
        pair.function(x_v, dy_v, dx_v, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &xs, &dys, &ys), HALYARD_OK);
        EXPECT_EQ(dx, c.y) << pair.name;
    }
    for (const auto &pair : unary_beta) {
        pair.function(x_v, dy_v, 0.75f, dx_v, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &xs, &dys, 0.75f, &ys), HALYARD_OK);
        EXPECT_EQ(dx, c.y) << pair.name;
    }
}

TEST(CppFunctions, GradientsOfGatedUnitsPassTheirArgumentsOn) {
    using Function = void (*)(const halyard::ConstTensor &, const halyard::ConstTensor &, const halyard::ConstTensor &,
                              const halyard::Tensor &, const halyard::Tensor &, const halyard_context *);
    using Packed = void (*)(const halyard::ConstTensor &, halyard::GluLayout, const halyard::ConstTensor &,
                            const halyard::Tensor &, const halyard_context *);
    const Pair<Function, decltype(&halyard_glu_backward)> gated[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name##_backward, halyard_##name##_backward},
#include "kernels/gated_backward.inc"
#undef HALYARD_KERNEL
    };
    const Pair<Packed, decltype(&halyard_glu_packed_backward)> packed[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name##_backward, halyard_##name##_packed_backward},
#include "kernels/gated_backward.inc"
#undef HALYARD_KERNEL
    };
    CViews c;
    const Values gate = values(1), up = values(2), dy = values(3), x = values(4, 2 * rows * width);
    Values dgate(rows * width), dup(rows * width), dx(2 * rows * width), other(rows * width), both(2 * rows * width);
    const DLTensor gates = c.of(gate), ups = c.of(up), dys = c.of(dy), xs = c.of(x);
    DLTensor dgates = c.of(c.y), dups = c.of(other), dxs = c.of(both);
    const halyard::ConstTensor gate_v(gate, {rows, width}), up_v(up, {rows, width}), dy_v(dy, {rows, width}),
        x_v(x, {rows, 2 * width});
    const halyard::Tensor dgate_v(dgate, {rows, width}), dup_v(dup, {rows, width}), dx_v(dx, {rows, 2 * width});
    for (const auto &pair : gated) {
        pair.function(gate_v, up_v, dy_v, dgate_v, dup_v, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &gates, &ups, &dys, &dgates, &dups), HALYARD_OK);
        EXPECT_EQ(dgate, c.y) << pair.name;
        EXPECT_EQ(dup, other) << pair.name;
    }
    for (const float beta : {1.0f, 0.75f}) {
        if (beta == 1.0f) {
            halyard::swiglu_backward(gate_v, up_v, dy_v, dgate_v, dup_v);
        } else {
            halyard::swiglu_backward(gate_v, up_v, dy_v, beta, dgate_v, dup_v);
        }
        ASSERT_EQ(halyard_swiglu_backward(nullptr, &gates, &ups, &dys, beta, &dgates, &dups), HALYARD_OK);
        EXPECT_EQ(dgate, c.y) << beta;
        EXPECT_EQ(dup, other) << beta;
    }
    for (int number = HALYARD_GLU_GATE_UP; number <= HALYARD_GLU_INTERLEAVED; number++) {
        const auto layout = static_cast<halyard_glu_layout>(number);
        const auto cpp_layout = static_cast<halyard::GluLayout>(number);
        for (const auto &pair : packed) {
            pair.function(x_v, cpp_layout, dy_v, dx_v, nullptr);
            ASSERT_EQ(pair.c_function(nullptr, &xs, layout, &dys, &dxs), HALYARD_OK);
            EXPECT_EQ(dx, both) << pair.name << " layout " << number;
        }
        halyard::swiglu_backward(x_v, cpp_layout, dy_v, dx_v);
        ASSERT_EQ(halyard_swiglu_packed_backward(nullptr, &xs, layout, &dys, 1.0f, &dxs), HALYARD_OK);
        EXPECT_EQ(dx, both) << "layout " << number;
        halyard::swiglu_backward(x_v, cpp_layout, dy_v, 0.75f, dx_v);
        ASSERT_EQ(halyard_swiglu_packed_backward(nullptr, &xs, layout, &dys, 0.75f, &dxs), HALYARD_OK);
        EXPECT_EQ(dx, both) << "layout " << number;
    }
}

TEST(CppFunctions, GatedUnitsPassTheirArgumentsOn) {
    const Pair<CppGated, decltype(&halyard_glu)> gated[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name},
#include "kernels/gated.inc"
#undef HALYARD_KERNEL
    };
    const Pair<CppGatedPacked, decltype(&halyard_glu_packed)> packed[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name##_packed},
#include "kernels/gated.inc"
#undef HALYARD_KERNEL
    };
    const Pair<CppGatedBeta, decltype(&halyard_swiglu)> gated_beta[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name},
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
    };
    const Pair<CppGatedBetaPacked, decltype(&halyard_swiglu_packed)> beta_packed[] = {
#define HALYARD_KERNEL(name) {#name, halyard::name, halyard_##name##_packed},
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
    };
    CViews c;
    const Values gate = values(1), up = values(2), x = values(3, 2 * rows * width);
    Values y(rows * width);
    const DLTensor gates = c.of(gate), ups = c.of(up), xs = c.of(x);
    DLTensor ys = c.of(c.y);
    const halyard::ConstTensor gate_v(gate, {rows, width}), up_v(up, {rows, width}), x_v(x, {rows, 2 * width});
    const halyard::Tensor yv(y, {rows, width});
    for (const auto &pair : gated) {
        pair.function(gate_v, up_v, yv, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &gates, &ups, &ys), HALYARD_OK);
        EXPECT_EQ(y, c.y) << pair.name;
    }
    for (const auto &pair : gated_beta) {
        pair.function(gate_v, up_v, 0.75f, yv, nullptr);
        ASSERT_EQ(pair.c_function(nullptr, &gates, &ups, 0.75f, &ys), HALYARD_OK);
        EXPECT_EQ(y, c.y) << pair.name;
    }
    for (int layout = HALYARD_GLU_GATE_UP; layout <= HALYARD_GLU_INTERLEAVED; layout++) {
        for (const auto &pair : packed) {
            pair.function(x_v, static_cast<halyard::GluLayout>(layout), yv, nullptr);
            ASSERT_EQ(pair.c_function(nullptr, &xs, static_cast<halyard_glu_layout>(layout), &ys), HALYARD_OK);
            EXPECT_EQ(y, c.y) << pair.name << " layout " << layout;
        }
        for (const auto &pair : beta_packed) {
            pair.function(x_v, static_cast<halyard::GluLayout>(layout), 0.75f, yv, nullptr);
            ASSERT_EQ(pair.c_function(nullptr, &xs, static_cast<halyard_glu_layout>(layout), 0.75f, &ys), HALYARD_OK);
            EXPECT_EQ(y, c.y) << pair.name << " layout " << layout;
        }
    }
    // Without beta, swiglu is SiLU's.
    halyard::swiglu(gate_v, up_v, yv);
    ASSERT_EQ(halyard_swiglu(nullptr, &gates, &ups, 1.0f, &ys), HALYARD_OK);
    EXPECT_EQ(y, c.y);
}

}  // namespace
