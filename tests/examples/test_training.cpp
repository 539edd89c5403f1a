// Training as the experiments do it (examples/experiments/training): losses beside PyTorch's in float64, and runs whose every bit is the
// same on every machine and for any number of threads.
#include "examples/experiments/training/language_model.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/invocation.h"
#include "support/reference_hashes.h"

namespace experiments::training {
namespace {

using halyard::tests::Context;

/** In (-1/2, 1/2), the same as in tests/data/training/make.py. */
class Numbers {
public:
    explicit Numbers(std::uint32_t seed) : state(seed) {}
    double operator()() {
        state = state * 1664525u + 1013904223u;
        return static_cast<double>(state >> 8) / 16777216.0 - 0.5;
    }
    void fill(std::vector<float> &values, double scale) {
        for (float &value : values) {
            value = static_cast<float>(scale * (*this)());
        }
    }
    /** Matrices; vectors, which are norms' weights and biases, stay. */
    void fill_matrices(const Parameters &parameters, double scale) {
        for (Parameter *const parameter : parameters) {
            if (parameter->rows > 1) {
                fill(parameter->value, scale);
            }
        }
    }

private:
    std::uint32_t state;
};

/** Losses of some steps of Adam, and gradient norms of the first block, by turns. */
std::vector<double> trained(bool pre_norm, int steps, const halyard_context *context) {
    constexpr std::int64_t tokens = 8, d = 32;
    BlockShape shape;
    shape.d = d, shape.heads = 4, shape.ff = 128, shape.pre_norm = pre_norm;
    Stack stack(shape, 3, context);
    Numbers numbers(9);
    numbers.fill_matrices(stack.parameters(), 0.5);
    stack.update();
    std::vector<float> x(2 * tokens * d), target(x.size()), dy;
    numbers.fill(x, 4);
    numbers.fill(target, 4);
    std::vector<double> result;
    for (int step = 0; step < steps; step++) {
        result.push_back(squared_error(stack.forward(x, tokens), target, dy));
        stack.backward(dy);
        result.push_back(gradient_norm(stack.blocks[0]->parameters(), context));
        adam_step(stack.parameters(), step + 1, 1e-3, context);
        stack.update();
    }
    return result;
}

/** What PyTorch gave in f64 for a norm position, in the order of `trained`. */
std::vector<double> of_pytorch(const std::string &norm_position) {
    std::ifstream file(HALYARD_TEST_DATA "/training/losses.csv");
    std::vector<double> result;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string first, step, loss, norm;
        std::getline(fields, first, ',');
        std::getline(fields, step, ',');
        std::getline(fields, loss, ',');
        std::getline(fields, norm, ',');
        if (first == norm_position) {
            result.insert(result.end(), {std::stod(loss), std::stod(norm)});
        }
    }
    return result;
}

TEST(Training, IsThatOfPyTorch) {
    for (const std::string norm_position : {"pre", "post"}) {
        const std::vector<double> right = of_pytorch(norm_position), got = trained(norm_position == "pre", 10, nullptr);
        ASSERT_EQ(right.size(), got.size());
        for (std::size_t i = 0; i < right.size(); i++) {
            EXPECT_NEAR(got[i], right[i], 1e-4 * right[i]) << norm_position << " " << i;
        }
        EXPECT_LT(right[18], right[0]);
    }
}

/** The bits of all weights of a language model of two layers after 20 steps. */
std::vector<std::uint32_t> trained_weights(const halyard_context *context) {
    constexpr int vocabulary = 37, batch = 3;
    constexpr std::int64_t tokens = 12;
    BlockShape shape;
    shape.d = 24, shape.heads = 3, shape.ff = 50, shape.causal = true, shape.gated = true,
    shape.activation = halyard::Activation::silu;
    LanguageModel model(shape, 2, vocabulary, tokens, context);
    Numbers numbers(2026);
    numbers.fill_matrices(model.parameters(), 0.4);
    std::vector<double> losses;
    for (int step = 0; step < 20; step++) {
        std::vector<int> ids, targets;
        for (std::int64_t i = 0; i < batch * tokens; i++) {
            ids.push_back(static_cast<int>((numbers() + 0.5) * 7));
            targets.push_back((ids.back() * 5 + 3) % vocabulary);
        }
        losses.push_back(model.gradients(ids, targets));
        model.step(3e-3);
    }
    EXPECT_LT(losses.back(), losses.front() / 2);
    std::vector<std::uint32_t> bits;
    for (const Parameter *const parameter : model.parameters()) {
        for (const float value : parameter->value) {
            bits.emplace_back();
            std::memcpy(&bits.back(), &value, sizeof value);
        }
    }
    return bits;
}

TEST(Training, HasTheSameBitsOnEveryMachine) {
    halyard::tests::expect_reference_hashes("training_run", [](halyard_isa isa) {
        halyard::tests::Hashes hashes;
        halyard::tests::BitsHash results;
        results.add(trained_weights(Context(isa).get()));
        hashes["language_model"] = results.text();
        return hashes;
    });
}

TEST(Training, HasTheSameBitsForAnyNumberOfThreads) {
    const halyard_isa isa = halyard::tests::supported_isas().back();
    const std::vector<std::uint32_t> alone = trained_weights(Context(isa, 1).get());
    const std::vector<double> losses = trained(true, 5, Context(isa, 1).get());
    for (const int threads : {2, 3, 8}) {
        EXPECT_EQ(trained_weights(Context(isa, threads).get()), alone) << threads;
        EXPECT_EQ(trained(true, 5, Context(isa, threads).get()), losses) << threads;
    }
}

}  // namespace
}  // namespace experiments::training
