// The C++ interface of optimizers: every option reaches the C function.
#include "halyard/training.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace {

using Values = std::vector<float>;

Values values(int seed) {
    Values result(37);
    for (std::size_t i = 0; i < result.size(); i++) {
        result[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) / 16;
    }
    return result;
}

/** A parameter, its gradient and two tensors of state, and how C functions see them. */
struct Tensors {
    Values p = values(1), g = values(2), m = values(3), v = values(4);

    std::vector<Values> written() const { return {p, m, v}; }
};

TEST(CppOptimizers, AdamwPassesItsOptionsOn) {
    for (const bool decoupled : {false, true}) {
        const halyard_adamw_options c_options = {0.1, 0.7, 0.8, 0.01, 0.2, 0.5, decoupled ? 1 : 0};
        halyard::AdamwOptions options;
        options.lr = 0.1;
        options.beta1 = 0.7;
        options.beta2 = 0.8;
        options.eps = 0.01;
        options.weight_decay = 0.2;
        options.gradient_scale = 0.5;
        options.decoupled = decoupled;
        Tensors c, cpp;
        ASSERT_EQ(halyard_adamw_step(nullptr, halyard::Tensor(c.p).get(), halyard::ConstTensor(c.g).get(),
                                     halyard::Tensor(c.m).get(), halyard::Tensor(c.v).get(), 3, &c_options),
                  HALYARD_OK)
            << halyard_last_error();
        halyard::adamw_step(cpp.p, cpp.g, cpp.m, cpp.v, 3, options);
        EXPECT_EQ(cpp.written(), c.written());
        EXPECT_NE(cpp.p, Tensors().p);
    }
}

TEST(CppOptimizers, SgdPassesItsOptionsOn) {
    for (const bool nesterov : {false, true}) {
        const halyard_sgd_options c_options = {0.1, 0.7, 0.2, nesterov ? 1 : 0, 0.5};
        halyard::SgdOptions options;
        options.lr = 0.1;
        options.momentum = 0.7;
        options.weight_decay = 0.2;
        options.nesterov = nesterov;
        options.gradient_scale = 0.5;
        Tensors c, cpp;
        ASSERT_EQ(halyard_sgd_step(nullptr, halyard::Tensor(c.p).get(), halyard::ConstTensor(c.g).get(),
                                   halyard::Tensor(c.m).get(), &c_options),
                  HALYARD_OK)
            << halyard_last_error();
        halyard::sgd_step(cpp.p, cpp.g, cpp.m, options);
        EXPECT_EQ(cpp.written(), c.written());
        EXPECT_NE(cpp.p, Tensors().p);
    }
    Tensors cpp;
    halyard::sgd_step(cpp.p, cpp.g, {}, {});
    EXPECT_NE(cpp.p, Tensors().p);
    EXPECT_THROW(halyard::sgd_step(cpp.p, cpp.g, cpp.m, {}), halyard::Error);
}

TEST(CppOptimizers, TheNormIsThatOfAllGradients) {
    const Values three(9, 1.0f), four(16, 1.0f);
    EXPECT_EQ(halyard::gradient_norm({three, four}), 5.0);
    EXPECT_EQ(halyard::gradient_norm({}), 0.0);
    EXPECT_THROW(halyard::gradient_norm({three, {}}), halyard::Error);
}

}  // namespace
