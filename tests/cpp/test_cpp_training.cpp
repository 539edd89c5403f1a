// training.hpp: every function reaches the C function of its name with its arguments in the right places.
#include "halyard/training.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace {

constexpr std::size_t rows = 3, width = 5;
using Values = std::vector<float>;

Values values(std::size_t count) {
    Values result(count);
    for (std::size_t i = 0; i < count; i++) {
        result[i] = static_cast<float>(i * 7 % 23) / 4 - 2;
    }
    return result;
}

TEST(CppTraining, CrossEntropyAndItsMean) {
    const Values x = values(rows * width);
    const std::vector<std::int64_t> targets = {4, -1, 0};
    Values losses(rows), dx(x.size()), c_losses(rows), c_dx(x.size());
    const halyard::ConstTensor logits(x, {rows, width});
    halyard::CrossEntropyOptions options;
    options.ignore_index = -1;
    options.gradient_scale = 0.5f;
    halyard::cross_entropy(logits, targets, options, losses, {dx, {rows, width}});

    const halyard_cross_entropy_options c = {-1, 1, 0.5f};
    const halyard::Integers ids(targets);
    const halyard::Tensor to(c_losses), gradient(c_dx, {rows, width});
    ASSERT_EQ(halyard_cross_entropy(nullptr, logits.get(), ids.get(), &c, to.get(), gradient.get()), HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(losses, c_losses);
    EXPECT_EQ(dx, c_dx);
    EXPECT_NE(dx, Values(x.size()));
    EXPECT_EQ(losses[1], 0);
    EXPECT_EQ(halyard::mean_loss(losses, targets, options),
              (static_cast<double>(losses[0]) + static_cast<double>(losses[2])) / 2);

    Values in_place = x;
    halyard::cross_entropy({in_place, {rows, width}}, targets, options, {}, {in_place, {rows, width}});
    EXPECT_EQ(in_place, dx);
    EXPECT_THROW(halyard::cross_entropy(logits, targets, {}, losses, {}), halyard::Error);
}

TEST(CppTraining, GradientOfEmbeddings) {
    const Values dy = values(rows * width);
    const std::vector<std::int32_t> ids = {1, 3, 1};
    Values table(4 * width, 1.0f);
    halyard::embedding_backward(ids, {dy, {rows, width}}, true, {table, {4, width}});
    for (std::size_t i = 0; i < width; i++) {
        EXPECT_EQ(table[i], 1.0f);
        EXPECT_EQ(table[width + i], 1.0f + dy[i] + dy[2 * width + i]);
        EXPECT_EQ(table[3 * width + i], 1.0f + dy[width + i]);
    }
    halyard::embedding_backward(ids, {dy, {rows, width}}, false, {table, {4, width}});
    EXPECT_EQ(table[0], 0.0f);
    EXPECT_EQ(table[3 * width + 2], dy[width + 2]);
}

}  // namespace
