// Linear layers: the bits are those of the documented order, whatever the other rows, the threads, the storage and the
// instruction set; NaN and Inf stay where they are.
#include "support/linear.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

namespace halyard::tests {
namespace {

/** A row of x times a column of W in the promised order, by scalar fused multiply-adds. */
float model_sum(const Tensor &x, std::int64_t row, const WeightMatrix &w, std::int64_t n) {
    float total = 0;
    for (std::int64_t begin = 0; begin < w.in; begin += 512) {
        float block = 0;
        for (std::int64_t k = begin; k < std::min(w.in, begin + 512); k++) {
            block = std::fmaf(static_cast<float>(x.get(row, k)),
                              static_cast<float>(w.values[static_cast<std::size_t>(k * w.out + n)]), block);
        }
        total = begin == 0 ? block : total + block;
    }
    return total;
}

TEST(LinearBits, AreThoseOfTheDocumentedOrder) {
    struct Size {
        std::int64_t rows, in, out;
    };
    for (const Size &size : {Size{1, 1, 5}, Size{9, 17, 33}, Size{3, 512, 17}, Size{7, 513, 16}, Size{67, 1030, 20},
                             Size{2, 2561, 31}, Size{30, 700, 129}}) {
        for (const Dtype w : all_dtypes) {
            const Weights weights(weight_form(w, size.in, size.out, false, 53));
            LinearCall call(weights, f32_rows(size.rows), 59);
            Tensor model(Dtype::f32, compact_form({size.rows, size.out}));
            for (std::int64_t row = 0; row < size.rows; row++) {
                for (std::int64_t n = 0; n < size.out; n++) {
                    model.set_bits(row, n, bits_of(model_sum(call.x, row, weights.values.matrix, n)));
                }
            }
            for (const halyard_isa isa : fused_isas()) {
                call.y.clear();
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(model, call.y)) << halyard_isa_name(isa) << "; " << call.describe();
            }
        }
    }
}

/** What a call shows of a plain layer when x is 0: the sums of the columns (mean -1), or the folded bias (mean 0). */
Tensor &probed(LinearCall &probe, double mean, const halyard_context *context) {
    probe.x.fill([](std::int64_t, std::int64_t) { return 0.0; });
    probe.add_row_mean();
    probe.row_mean->fill([&](std::int64_t, std::int64_t) { return mean; });
    EXPECT_EQ(probe.run(context), HALYARD_OK) << halyard_last_error();
    return probe.y;
}

TEST(LinearBits, OfTheEpilogueAreThoseOfSingleOperations) {
    constexpr std::int64_t rows = 5, in = 600, out = 37;
    const auto value = [](int matrix, std::int64_t k, std::int64_t n) {
        return (std::floor(16 * uniform(61 + static_cast<std::uint64_t>(matrix), k, n)) - 7.5) / 16;
    };
    for (const bool gated : {false, true}) {
        WeightForm form = weight_form(Dtype::f32, in, out, gated, 61);
        form.norm_weight = form.norm_bias = true;
        const Weights weights(form, value);
        LinearCall call(weights, f32_rows(rows), 67);
        call.add_row_scale();
        call.add_row_mean();
        call.add_bias(Dtype::bf16);
        if (gated) {
            call.add_bias_up(Dtype::f32);
        }
        call.add_residual();
        for (const halyard_isa isa : fused_isas()) {
            const Context context(isa);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            Tensor model(Dtype::f32, compact_form({rows, out}));
            for (int matrix = 0; matrix <= (gated ? 1 : 0); matrix++) {
                // Each matrix is packed by itself too, with and without the norm's bias.
                WeightForm alone = form;
                alone.gated = false;
                const auto value_alone = [&](int, std::int64_t k, std::int64_t n) { return value(matrix, k, n); };
                const Weights biased(alone, value_alone);
                alone.norm_bias = false;
                const Weights unbiased(alone, value_alone);
                LinearCall sums_probe(unbiased, f32_rows(1)), bias_probe(biased, f32_rows(1));
                const Tensor &sums = probed(sums_probe, -1, context.get());
                const Tensor &folded = probed(bias_probe, 0, context.get());
                const Tensor &bias = matrix == 0 ? *call.bias : *call.bias_up;
                for (std::int64_t row = 0; row < rows; row++) {
                    for (std::int64_t n = 0; n < out; n++) {
                        float v = model_sum(call.x, row, biased.values.matrix, n);
                        v = v - static_cast<float>(call.row_mean->get(0, row)) * static_cast<float>(sums.get(0, n));
                        v = v * static_cast<float>(call.row_scale->get(0, row));
                        v = v + static_cast<float>(folded.get(0, n));
                        v = v + static_cast<float>(bias.get(0, n));
                        v = matrix == 0 ? v : static_cast<float>(model.get(row, n)) * v;
                        model.set_bits(row, n, bits_of(v));
                    }
                }
            }
            for (std::int64_t row = 0; row < rows; row++) {
                for (std::int64_t n = 0; n < out; n++) {
                    const float sum =
                        static_cast<float>(model.get(row, n)) + static_cast<float>(call.residual->get(row, n));
                    model.set_bits(row, n, bits_of(sum));
                }
            }
            EXPECT_TRUE(same_rows(model, call.y)) << halyard_isa_name(isa) << (gated ? ", gated" : "");
        }
    }
}

TEST(LinearBits, DoNotDependOnTheStorageOfEqualValues) {
    // Values that every type holds: the types of x and W change nothing, that of y only the last rounding.
    WeightForm form = weight_form(Dtype::f32, 530, 45, true, 71);
    form.coarse = true;
    const Weights plain(form);
    LinearCall first(plain, f32_rows(19), 73);
    first.x.fill([](std::int64_t row, std::int64_t i) { return std::nearbyint(16 * bell(73, row, i)) / 8; });
    first.activate(HALYARD_GELU_TANH);
    for (const halyard_isa isa : supported_isas()) {
        const Context context(isa);
        ASSERT_EQ(first.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (const Dtype w : all_dtypes) {
            form.dtype = w;
            const Weights weights(form);
            ASSERT_EQ(weights.values.matrix.values, plain.values.matrix.values);
            for (const Dtype x : all_dtypes) {
                if (rounds_otherwise(isa) && x == Dtype::bf16 && w == Dtype::bf16) {
                    continue;
                }
                for (const Dtype y : all_dtypes) {
                    LinearCall call(weights, call_form(x, y, {19}));
                    call.activate(HALYARD_GELU_TANH);
                    ASSERT_EQ(halyard_cast(nullptr, &first.x.view, &call.x.view), HALYARD_OK);
                    Tensor rounded(y, compact_form({19, 45}));
                    ASSERT_EQ(halyard_cast(nullptr, &first.y.view, &rounded.view), HALYARD_OK);
                    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_TRUE(same_rows(rounded, call.y)) << halyard_isa_name(isa) << "; " << call.describe();
                }
            }
        }
    }
}

/** Calls from small to large, some with fewer rows than threads, some with fewer panels. */
struct BigCall {
    std::int64_t rows, in, out;
    bool gated;
};

const BigCall big_calls[] = {{1, 1030, 1500, false}, {5, 513, 900, true},   {67, 700, 333, false},
                             {300, 129, 257, true},  {600, 530, 33, false}, {70, 2000, 16, false}};

TEST(LinearBits, DoNotDependOnThreads) {
    for (const BigCall &size : big_calls) {
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            const Weights weights(weight_form(type, size.in, size.out, size.gated, 79));
            LinearCall call(weights, call_form(Dtype::f32, type, {size.rows}), 83);
            call.add_bias(Dtype::f32);
            const halyard_isa isa = supported_isas().back();
            ASSERT_EQ(call.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
            Tensor serial(type, compact_form(call.y.shape()));
            serial.copy_from(call.y);
            for (const int threads : {2, 3, 4}) {
                call.y.clear();
                ASSERT_EQ(call.run(Context(isa, threads).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(serial, call.y)) << threads << " threads; " << call.describe();
            }
            ReverseThreads own;
            const Context context(isa, 3);
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &own), HALYARD_OK);
            call.y.clear();
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(same_rows(serial, call.y)) << "own threads; " << call.describe();
            EXPECT_LE(own.tasks, 3 * own.calls);
            if (size.out > 300) {
                EXPECT_GT(own.tasks, 1) << "a large call stays on one thread; " << call.describe();
            }
            ASSERT_TRUE(call.surroundings_intact());
        }
    }
}

TEST(LinearBits, AreTheSameWithEveryFusedInstructionSet) {
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.size() < 2) {
        GTEST_SKIP() << "this machine runs fewer than two instruction sets with fused multiply-add";
    }
    int number = 0;
    for (const BigCall &size : big_calls) {
        for (const Types &types : all_types()) {
            if ((size.rows > 100 && types.y != Dtype::f32) || (emulated && number++ % 4 != 0)) {
                continue;
            }
            const Weights weights(
                weight_form(types.w, std::min<std::int64_t>(size.in, 600), size.out % 301, size.gated, 89));
            LinearCall call(weights, call_form(types.x, types.y, {size.rows}), 97);
            call.add_bias(types.w);
            call.activate(HALYARD_GELU);
            ASSERT_EQ(call.run(Context(isas[0]).get()), HALYARD_OK) << halyard_last_error();
            Tensor first(types.y, compact_form(call.y.shape()));
            first.copy_from(call.y);
            for (const halyard_isa isa : isas) {
                call.y.clear();
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(first, call.y)) << halyard_isa_name(isa) << "; " << call.describe();
            }
        }
    }
}

// The one difference that docs/numerics.md names: products of pairs of bf16 by an instruction that has no denormals.
TEST(LinearBits, BelowTheSmallestNormalAreFlushedByProductsOfPairs) {
    const Weights weights(weight_form(Dtype::bf16, 3, 1),
                          [](int, std::int64_t k, std::int64_t) { return std::ldexp(1.0, k == 2 ? -60 : -64); });
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        for (const halyard_isa isa : supported_isas()) {
            const bool flushes = type == Dtype::bf16 && (isa == HALYARD_ISA_AVX512_BF16 || rounds_otherwise(isa));
            LinearCall call(weights, call_form(type, Dtype::f32, {1}));
            for (const std::int64_t k : {0, 1, 2}) {
                call.x.set(0, k, k == 1 ? std::ldexp(-1.0, -63) : 0);
            }
            ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(call.y.get(0, 0), flushes ? 0 : -std::ldexp(1.0, -127)) << halyard_isa_name(isa);
            // A denormal on the way to a normal sum.
            call.x.set(0, 2, std::ldexp(1.0, -66));
            ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(call.y.get(0, 0), std::ldexp(1.0, -126) - (flushes ? 0 : std::ldexp(1.0, -127)))
                << halyard_isa_name(isa);
        }
    }
}

TEST(LinearBits, OfOtherRowsStandNanAndInf) {
    for (const Types &types : all_types()) {
        for (const std::int64_t rows : {2, 9, 23}) {
            const Weights weights(weight_form(types.w, 90, 37, false, 101));
            LinearCall clean(weights, call_form(types.x, types.y, {rows}), 103);
            for (const halyard_isa isa : product_isas(types.x, types.w)) {
                const Context context(isa);
                ASSERT_EQ(clean.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (const double value :
                     {static_cast<double>(NAN), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
                    for (const std::int64_t bad : {std::int64_t{0}, rows / 2, rows - 1}) {
                        LinearCall call(weights, clean.form, 103);
                        call.x.set(bad, 41, value);
                        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                        for (std::int64_t i = 0; i < 37; i++) {
                            const double y = call.y.get(bad, i);
                            const double w = weights.values.matrix.values[static_cast<std::size_t>(41 * 37 + i)];
                            ASSERT_TRUE(std::isnan(value) || w == 0 ? std::isnan(y) : y == value * w)
                                << "x of " << value << " gives " << y << " with " << halyard_isa_name(isa);
                        }
                        for (std::int64_t row = 0; row < rows; row++) {
                            if (row != bad) {
                                ASSERT_EQ(call.y.row_values(row), clean.y.row_values(row))
                                    << "row " << row << " with " << value << " in row " << bad << "; "
                                    << call.describe();
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST(LinearBits, OfOtherColumnsStandNanAndInf) {
    constexpr std::int64_t in = 70, out = 37, k_bad = 30;
    for (const Dtype type : all_dtypes) {
        for (const bool gated : {false, true}) {
            for (const std::int64_t n_bad : {0, 15, 16, 36}) {
                for (const double value :
                     {static_cast<double>(NAN), static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
                    const auto value_at = [&](double bad) {
                        return [=](int matrix, std::int64_t k, std::int64_t n) {
                            return matrix == 0 && k == k_bad && n == n_bad ? bad : bell(107, k, n + 1000 * matrix);
                        };
                    };
                    const WeightForm form = weight_form(type, in, out, gated);
                    const Weights clean(form, value_at(1)), weights(form, value_at(value));
                    LinearCall expected(clean, f32_rows(5), 109), call(weights, f32_rows(5), 109);
                    for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
                        const Context context(isa);
                        ASSERT_EQ(expected.run(context.get()), HALYARD_OK) << halyard_last_error();
                        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                        for (std::int64_t row = 0; row < 5; row++) {
                            for (std::int64_t n = 0; n < out; n++) {
                                const double y = call.y.get(row, n);
                                if (n != n_bad) {
                                    ASSERT_EQ(y, expected.y.get(row, n)) << "column " << n << " of " << call.describe();
                                } else if (std::isnan(value)) {
                                    ASSERT_TRUE(std::isnan(y));
                                } else if (!gated) {
                                    ASSERT_EQ(y, value * call.x.get(row, k_bad))
                                        << value << " in a column of W, with " << halyard_isa_name(isa);
                                } else {
                                    ASSERT_TRUE(std::isinf(y)) << y << " with " << halyard_isa_name(isa);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST(LinearBits, DoNotDependOnWhatACallBeforeLeft) {
    // The memory of intermediates is used again as it is.
    const Weights first(weight_form(Dtype::f32, 1100, 200, true)), second(weight_form(Dtype::bf16, 530, 61));
    for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
        const Context fresh(isa), used(isa);
        LinearCall poison(first, f32_rows(emulated ? 70 : 300)), expected(second, f32_rows(21)),
            call(second, f32_rows(21));
        poison.x.fill([](std::int64_t, std::int64_t) { return NAN; });
        ASSERT_EQ(poison.run(used.get()), HALYARD_OK) << halyard_last_error();
        for (LinearCall *each : {&expected, &call}) {
            each->add_bias(Dtype::f32);
        }
        ASSERT_EQ(expected.run(fresh.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(call.run(used.get()), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(same_rows(expected.y, call.y)) << halyard_isa_name(isa);
    }
}

TEST(LinearBits, OfLargeWeightsDoNotComeFromTheirSums) {
    // The sum of a column overflows, which is nobody's business without row_mean.
    const Weights weights(weight_form(Dtype::f32, 5, 18), [](int, std::int64_t, std::int64_t n) {
        return n == 3 ? 0x1p127 : n == 4 ? -0x1p127 : 1.0;
    });
    LinearCall call(weights, f32_rows(3));
    call.x.fill([](std::int64_t, std::int64_t) { return 0x1p-100; });
    for (const halyard_isa isa : supported_isas()) {
        ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
        for (std::int64_t row = 0; row < 3; row++) {
            EXPECT_EQ(call.y.get(row, 3), 5 * 0x1p27);
            EXPECT_EQ(call.y.get(row, 4), -5 * 0x1p27);
            EXPECT_EQ(call.y.get(row, 5), 5 * 0x1p-100);
        }
    }
}

TEST(LinearBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("linear", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const Dtype w : all_dtypes) {
            for (const bool gated : {false, true}) {
                WeightForm form = weight_form(w, 517, 50, gated, 61);
                form.norm_bias = !gated;
                form.layout = gated ? HALYARD_WEIGHT_IN_OUT : HALYARD_WEIGHT_OUT_IN;
                const Weights weights(form);
                for (const LayerActivation &activation : layer_activations()) {
                    BitsHash results;
                    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 13, 25}) {
                        LinearCall call(weights, f32_rows(rows), 67);
                        call.add_row_scale();
                        call.add_row_mean();
                        call.add_bias(w);
                        if (gated) {
                            call.add_bias_up(Dtype::f32);
                        }
                        call.add_residual();
                        call.activate(activation.value, 1.25f);
                        EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                        results.add(call.y.all_bits());
                    }
                    hashes[std::string(activation.name) + (gated ? "_gated_" : "_") + name_of(w)] = results.text();
                }
            }
        }
        return hashes;
    });
}

TEST(LinearBits, OfBfloat16AreThoseOfEveryMachine) {
    expect_reference_hashes("linear_bf16", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const bool gated : {false, true}) {
            const Weights weights(weight_form(Dtype::bf16, 1030, 130, gated, 61));
            for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 13, 25}) {
                LinearCall call(weights, call_form(Dtype::bf16, Dtype::f32, {rows}), 67);
                EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                BitsHash results;
                results.add(call.y.all_bits());
                hashes["rows_" + std::to_string(rows) + (gated ? "_gated" : "")] = results.text();
            }
        }
        return hashes;
    });
}

// ---- Many threads ------------------------------------------------------------------------------------------------

#ifdef HALYARD_TESTS_REDUCED
constexpr int rounds = 3;
#else
constexpr int rounds = 20;
#endif

TEST(LinearThreads, GetTheResultsThatOneGets) {
    const Weights wide(weight_form(Dtype::bf16, 257, 700, true)), deep(weight_form(Dtype::f32, 1100, 40));
    const Context shared;
    ASSERT_EQ(halyard_context_set_num_threads(shared.get(), 3), HALYARD_OK);
    std::atomic<int> wrong{0};
    const auto work = [&](int thread) {
        const Context alone(supported_isas().back(), 1);
        for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{6}, std::int64_t{40} + thread}) {
            for (const Weights *weights : {&wide, &deep}) {
                LinearCall call(*weights, f32_rows(rows), static_cast<std::uint64_t>(thread));
                call.add_bias(Dtype::bf16);
                call.add_row_scale();
                call.activate(HALYARD_SILU);
                if (call.run(alone.get()) != HALYARD_OK) {
                    wrong++;
                }
                Tensor expected(Dtype::f32, compact_form(call.y.shape()));
                expected.copy_from(call.y);
                for (int round = 0; round < rounds; round++) {
                    call.y.clear();
                    const halyard_context *const context = round % 2 == 0 ? shared.get() : nullptr;
                    if (call.run(context) != HALYARD_OK || !same_rows(expected, call.y)) {
                        wrong++;
                    }
                    if (halyard_linear(context, &call.x.view, nullptr, nullptr, &call.y.view) !=
                            HALYARD_INVALID_ARGUMENT ||
                        std::strstr(halyard_last_error(), "halyard_linear: weights") == nullptr) {
                        wrong++;
                    }
                }
            }
        }
    };
    run_at_once(6, work);
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halyard::tests
