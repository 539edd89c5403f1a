// Linear layers of bf16 with values that tell one order or rounding of their products from another.
#ifndef HALYARD_TESTS_BF16_PRODUCTS_H
#define HALYARD_TESTS_BF16_PRODUCTS_H

#include <cmath>
#include <memory>
#include <vector>

#include "support/linear.h"
#include "support/test_scale.h"

namespace halyard::tests {

/** Kinds of values, each with rounding or range of its own to go wrong. */
enum Kind { ordinary, cancelling, all_exponents, tiny, huge, kinds };

/** bf16. Finite, so that all NaN of a result come of infinite sums. */
inline double value_of(int kind, std::uint64_t seed, std::int64_t row, std::int64_t i) {
    const std::uint64_t random = hash(seed, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
    const auto sign_and_fraction = static_cast<std::uint32_t>(random & 0x807f);
    const auto exponents = [&](unsigned first, unsigned count) {
        return decode(Dtype::bf16, sign_and_fraction | (first + static_cast<unsigned>(random >> 32) % count) << 7);
    };
    switch (kind) {
    case cancelling:
        return std::copysign(random >> 32 & 7 ? 1.0 : 0x1p12, random & 1 ? 1 : -1);
    case all_exponents:
        return exponents(0, 255);
    case tiny:  // products about the least normal number
        return exponents(random >> 60 ? 62 : 0, 4);
    case huge:  // sums about the largest
        return exponents(189, 3);
    default:
        return exponents(121, 8);
    }
}

/** A call with bf16 operands of one kind. */
struct KindCall {
    KindCall(int kind, std::int64_t rows, std::int64_t in, std::int64_t out)
        : weights(weight_form(Dtype::bf16, in, out),
                  [=](int, std::int64_t k, std::int64_t n) { return value_of(kind, 211, k, n); }),
          call(weights, call_form(Dtype::bf16, Dtype::f32, {rows})) {
        call.x.fill([=](std::int64_t row, std::int64_t k) { return value_of(kind, 223, row, k); });
    }

    /** With sum(inputs, x, w) for each element. */
    template<typename Sum>
    std::unique_ptr<Tensor> model(const Sum &sum_of) const {
        auto result = std::make_unique<Tensor>(Dtype::f32, compact_form(call.y.shape()));
        const WeightMatrix &w = weights.values.matrix;
        for (std::int64_t n = 0; n < w.out; n++) {
            for (std::int64_t row = 0; row < call.x.rows(); row++) {
                const float sum = sum_of(
                    w.in, [&](std::int64_t k) { return static_cast<float>(call.x.get(row, k)); },
                    [&](std::int64_t k) {
                        return static_cast<float>(w.values[static_cast<std::size_t>(k * w.out + n)]);
                    });
                result->set(row, n, static_cast<double>(sum + 0.0f));  // the epilogue makes +0 of -0
            }
        }
        return result;
    }

    const Weights weights;
    LinearCall call;
};

/** Whether calls of many sizes give, bit by bit, what sum(inputs, x, w) makes of each element. */
template<typename Sum>
void expect_model(halyard_isa isa, const Sum &sum_of) {
    struct Size {
        std::int64_t rows, in, out;
    };
    std::vector<Size> sizes = {{1, 1, 1},      {2, 2, 17},    {1, 3, 70},    {16, 32, 64},  {5, 33, 100},
                               {17, 31, 33},   {31, 64, 16},  {32, 63, 65},  {33, 65, 40},  {48, 511, 32},
                               {49, 512, 20},  {3, 513, 90},  {65, 545, 50}, {1, 1030, 80}, {127, 96, 48},
                               {130, 600, 17}, {257, 70, 65}, {300, 33, 130}};
    // Weights that the second-level caches do not hold, which a single tile of rows may read in another order.
    sizes.push_back({3, 1570, emulated ? 300 : 2500});
    for (std::int64_t in = 1; in <= 35; in += emulated ? 4 : 1) {
        sizes.push_back({1 + in * 7 % 35, in, 1 + in * 11 % 70});
    }
    std::size_t number = 0;
    for (const Size &size : sizes) {
        const bool large = size.rows * size.in * size.out > 400000;  // an emulator takes a second for one
        number++;
        for (int kind = 0; kind < kinds; kind++) {
            if (emulated && large && number % kinds != static_cast<std::size_t>(kind)) {
                continue;
            }
            KindCall test(kind, size.rows, size.in, size.out);
            const std::unique_ptr<Tensor> model = test.model(sum_of);
            for (const int threads : {1, 2, 3}) {
                test.call.y.clear();
                ASSERT_EQ(test.call.run(Context(isa, threads).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(*model, test.call.y))
                    << "kind " << kind << ", " << threads << " threads; " << test.call.describe();
                ASSERT_TRUE(test.call.surroundings_intact());
            }
        }
    }
}

}  // namespace halyard::tests

#endif
