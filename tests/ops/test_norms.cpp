// What the definitions of the norms and of softmax promise beyond single values: the worked example, invariances, hard
// rows, options of RMSNorm, sizes beyond 32 bits.
#include "support/invocation.h"
#include "support/test_scale.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

namespace halyard::tests {
namespace {

/** A call on rows filled by value(row, i), with weights 1 and biases 0 unless they are set afterwards. */
Invocation make_call(const std::string &label, Dtype type, const Shape &shape,
                     const std::function<double(std::int64_t, std::int64_t)> &value) {
    Invocation call(operation(label), type, shape);
    for (std::size_t i = 0; i < call.tensors.size(); i++) {
        const Operand &operand = call.operation.operands[i];
        if (operand.role == Role::input) {
            call.tensors[i]->fill(value);
        } else if (operand.role == Role::parameter) {
            const double constant = std::string_view(operand.name) == "bias" ? 0 : 1;
            call.tensors[i]->fill([&](std::int64_t, std::int64_t) { return constant; });
        }
    }
    return call;
}

/** Calls with one instruction set; the result is the last operand. */
const Tensor &result_of(const Invocation &call, halyard_isa isa) {
    const Context context(isa);
    EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << call.describe();
    return *call.tensors.back();
}

class Norms : public testing::TestWithParam<halyard_isa> {
protected:
    const halyard_isa isa = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Isas, Norms, testing::ValuesIn(row_isas()),
                         [](const testing::TestParamInfo<halyard_isa> &info) { return halyard_isa_name(info.param); });

TEST_P(Norms, RowsOfACallBeyondTheCachesHaveTheBitsOfRowsAlone) {
    // Such calls take rows in another order than calls within the second-level cache.
    const std::int64_t rows = reduced ? 4'097 : 16'385, width = 256;
    for (const Dtype type : all_dtypes) {
        for (const char *label : {"layer_norm", "rms_norm"}) {
            const auto value = [](std::int64_t row, std::int64_t i) { return bell(11, row % 61, i); };
            const Invocation call = make_call(label, type, {rows, width}, value);
            const Tensor &all = result_of(call, isa);
            const Invocation few = make_call(label, type, {61, width}, value);
            const Tensor &alone = result_of(few, isa);
            for (std::int64_t row = 0; row < rows; row++) {
                for (std::int64_t i = 0; i < width; i++) {
                    ASSERT_EQ(all.bits(row, i), alone.bits(row % 61, i))
                        << label << ", row " << row << ", feature " << i;
                }
            }
        }
    }
}

// ---- LayerNorm ---------------------------------------------------------------------------------------------------

TEST_P(Norms, LayerNormStaysAccurateFarFromZero) {
    // The error allowed is of f32 arithmetic on the deviations, as if the mean were 0: a few units of 2^-24 per step
    // of the summation, and none that grows with mean / deviation.
    for (const double mean : {1e2, 1e4, 1e5, -1e4}) {
        for (const std::int64_t width : {6, 768, 4096, 4097}) {
            const Invocation call = make_call("layer_norm", Dtype::f32, {3, width},
                                              [&](std::int64_t row, std::int64_t i) { return mean + bell(5, row, i); });
            const Tensor &y = result_of(call, isa);
            const double chain = std::ceil(width / 32.0) + 5;
            for (std::int64_t row = 0; row < 3; row++) {
                const Row x = call.tensors[0]->row_values(row);
                NormParameters parameters;
                parameters.eps = call.scalars[0];
                const ExpectedRow expected = layer_norm(x, parameters);
                for (std::int64_t i = 0; i < width; i++) {
                    const double value = expected[static_cast<std::size_t>(i)].value;
                    ASSERT_NEAR(y.get(row, i), value, 0x1p-24 * (chain + 8) * (1 + std::fabs(value)))
                        << "mean " << mean << ", width " << width << ", row " << row << ", feature " << i;
                }
            }
        }
    }
}

TEST_P(Norms, LayerNormStandsOutliersAmongItsFirstFeatures) {
    // The worst rows for a mean guessed from the first features: these lie far off all others. The loss is bounded by
    // 1 + d / 64 of the rounding of one feature; the reference's error says so row by row.
    for (const std::int64_t outliers : {1, 16, 64, 65}) {
        for (const std::int64_t width : {64, 65, 768, 4096, 16385}) {
            Invocation call = make_call("layer_norm", Dtype::f32, {2, width}, [&](std::int64_t row, std::int64_t i) {
                return bell(7, row, i) + (i < outliers ? 1e4 : 0);
            });
            result_of(call, isa);
            EXPECT_TRUE(call.check(call.expected())) << outliers << " outliers";
        }
    }
}

TEST_P(Norms, LayerNormOfAConstantRowIsTheBias) {
    for (const Dtype type : all_dtypes) {
        for (const double constant : {0.0, 14.0, -1.0 / 3, 1e4}) {
            for (const double eps : {0.0, 1e-5}) {
                for (const std::int64_t width : {1, 3, 65, 1000, 4097}) {
                    Invocation call =
                        make_call("layer_norm", type, {2, width}, [&](std::int64_t, std::int64_t) { return constant; });
                    call.tensors[2]->fill(
                        [](std::int64_t, std::int64_t i) { return 0.25 * static_cast<double>(i % 8); });
                    call.scalars[0] = static_cast<float>(eps);
                    const Tensor &y = result_of(call, isa);
                    for (std::int64_t i = 0; i < width; i++) {
                        const double bias = call.tensors[2]->get(0, i);
                        // The mean of equal numbers may be off by a hair of the second order when width is no power
                        // of two; divided by sqrt(eps) it still vanishes. With eps = 0 only zeros are certain.
                        if (constant == 0) {
                            ASSERT_EQ(y.get(1, i), bias) << "eps " << eps << ", width " << width;
                        } else if (eps > 0) {
                            ASSERT_NEAR(y.get(1, i), bias, 1e-5)
                                << "constant " << constant << ", width " << width << " in " << name_of(type);
                        } else {
                            ASSERT_TRUE(std::isfinite(y.get(1, i))) << "constant " << constant << ", width " << width;
                        }
                    }
                }
            }
        }
    }
}

TEST_P(Norms, LayerNormHasMeanZeroAndVarianceOne) {
    const std::int64_t width = 4096;
    const Invocation call = make_call("layer_norm.plain", Dtype::f32, {4, width}, [](std::int64_t row, std::int64_t i) {
        return 3 * bell(9, row, i) + static_cast<double>(row);
    });
    const Tensor &y = result_of(call, isa);
    for (std::int64_t row = 0; row < 4; row++) {
        double mean = 0, squares = 0;
        for (const double value : y.row_values(row)) {
            mean += value / width;
            squares += value * value / width;
        }
        EXPECT_NEAR(mean, 0, 1e-6);
        EXPECT_NEAR(squares, 1, 2e-5);  // eps takes about 1e-6
    }
}

TEST_P(Norms, LayerNormIgnoresShiftAndScale) {
    const std::int64_t width = 1000;
    const auto base = [](std::int64_t row, std::int64_t i) { return std::floor(64 * bell(13, row, i)); };
    const auto normalized = [&](double shift, double scale, double eps) {
        Invocation call = make_call("layer_norm", Dtype::f32, {2, width},
                                    [&](std::int64_t row, std::int64_t i) { return scale * (base(row, i) + shift); });
        call.scalars[0] = eps;
        return result_of(call, isa).row_values(1);
    };
    const Row original = normalized(0, 1, 0);
    // These inputs are exact in f32, so that only the arithmetic differs.
    for (const double shift : {1.0, -4096.0, 65536.0}) {
        const Row shifted = normalized(shift, 1, 0);
        for (std::size_t i = 0; i < original.size(); i++) {
            ASSERT_NEAR(shifted[i], original[i], 1e-5) << "shift " << shift;
        }
    }
    // A power of two changes no bit of the significands.
    EXPECT_EQ(normalized(0, 0.125, 0), original);
    const Row thrice = normalized(0, 3, 0);
    for (std::size_t i = 0; i < original.size(); i++) {
        ASSERT_NEAR(thrice[i], original[i], 1e-5);
    }
}

// ---- RMSNorm -----------------------------------------------------------------------------------------------------

TEST_P(Norms, RmsNormHasRootMeanSquareOneAndIgnoresScaleButNotShift) {
    const std::int64_t width = 1000;
    const auto normalized = [&](double shift, double scale) {
        Invocation call = make_call("rms_norm", Dtype::f32, {2, width}, [&](std::int64_t row, std::int64_t i) {
            return scale * (std::floor(64 * bell(17, row, i)) + shift);
        });
        call.scalars[0] = 0;
        return result_of(call, isa).row_values(1);
    };
    const Row original = normalized(0, 1);
    double squares = 0;
    for (const double value : original) {
        squares += value * value / width;
    }
    EXPECT_NEAR(squares, 1, 1e-5);
    EXPECT_EQ(normalized(0, 4), original);
    const Row fifth = normalized(0, 0.2), shifted = normalized(64, 1);
    double largest = 0;
    for (std::size_t i = 0; i < original.size(); i++) {
        ASSERT_NEAR(fifth[i], original[i], 1e-5);
        largest = std::fmax(largest, std::fabs(shifted[i] - original[i]));
    }
    EXPECT_GT(largest, 0.1);
}

TEST_P(Norms, RmsNormAgreesWithLayerNormOnRowsOfMeanZero) {
    // Pairs of opposite numbers: the mean is exactly 0.
    const auto value = [](std::int64_t row, std::int64_t i) { return (i % 2 == 0 ? 1 : -1) * bell(19, row, i / 2); };
    Invocation layer = make_call("layer_norm.plain", Dtype::f32, {3, 512}, value);
    Invocation rms = make_call("rms_norm.plain", Dtype::f32, {3, 512}, value);
    layer.scalars[0] = rms.scalars[0] = 1e-5f;
    const Tensor &a = result_of(layer, isa), &b = result_of(rms, isa);
    for (std::int64_t row = 0; row < 3; row++) {
        for (std::int64_t i = 0; i < 512; i++) {
            ASSERT_NEAR(a.get(row, i), b.get(row, i), 4e-6);
        }
    }
}

TEST_P(Norms, RmsNormWithoutAWeightHasNoUnitOffset) {
    const Context context(isa);
    for (const Dtype type : all_dtypes) {
        Invocation call = make_call("add_rms_norm.plain", type, {3, 70},
                                    [](std::int64_t row, std::int64_t i) { return bell(23, row, i); });
        const auto results = [&](unsigned flags) {
            const auto &t = call.arguments;
            Tensor plain(type, {{3, 70}, {}}), partial(type, {{3, 70}, {}});
            EXPECT_EQ(halyard_rms_norm(context.get(), t[0], nullptr, 1e-6f, flags, &plain.view), HALYARD_OK);
            EXPECT_EQ(halyard_partial_rms_norm(context.get(), t[0], nullptr, 1e-6f, flags, 0.25f, &partial.view),
                      HALYARD_OK);
            EXPECT_EQ(halyard_add_rms_norm(context.get(), t[0], t[1], nullptr, 1e-6f, flags, t[2], t[3]), HALYARD_OK);
            return std::vector{plain.all_bits(), partial.all_bits(), call.output_bits()};
        };
        EXPECT_EQ(results(HALYARD_RMS_UNIT_OFFSET), results(0)) << name_of(type);
    }
}

TEST_P(Norms, RmsNormOfAZeroRowIsZero) {
    for (const char *label : {"rms_norm", "rms_norm.eps_outside_root", "rms_norm.unit_offset", "partial_rms_norm"}) {
        for (const Dtype type : all_dtypes) {
            for (const double eps : {0.0, 1e-6}) {
                Invocation call = make_call(label, type, {3, 70}, [](std::int64_t row, std::int64_t i) {
                    return row == 1 ? 0.0 : 1.0 + static_cast<double>(i % 3);
                });
                call.scalars[0] = static_cast<float>(eps);
                const Tensor &y = result_of(call, isa);
                for (std::int64_t i = 0; i < 70; i++) {
                    ASSERT_EQ(y.get(1, i), 0.0) << label << " eps " << eps << " in " << name_of(type);
                    ASSERT_GT(y.get(2, i), 0.0);
                }
            }
        }
    }
}

TEST_P(Norms, PartialRmsNormCountsExactlyItsPrefix) {
    // Features of the prefix are 2, all others 1e6: one feature too many or too few changes the result by far.
    const auto prefix_of = [](float p, std::int64_t width) {
        return static_cast<std::int64_t>(std::ceil(static_cast<double>(p) * static_cast<double>(width)));
    };
    for (const float p : {0x1p-30f, 0.0625f, 0.25f, 0.3f, 0.5f, 0.75f, 0x1.fffffep-1f, 1.0f}) {
        for (const std::int64_t width : {1, 2, 3, 15, 16, 17, 64, 65, 100, 1000, 4097}) {
            const std::int64_t prefix = prefix_of(p, width);
            Invocation call = make_call("partial_rms_norm", Dtype::f32, {2, width},
                                        [&](std::int64_t, std::int64_t i) { return i < prefix ? 2.0 : 1e6; });
            call.scalars[0] = 0;
            call.scalars[2] = p;
            const Tensor &y = result_of(call, isa);
            ASSERT_GE(prefix, 1);
            ASSERT_LE(prefix, width);
            for (std::int64_t i = 0; i < width; i++) {
                ASSERT_EQ(y.get(1, i), i < prefix ? 1.0 : 5e5) << "p " << p << ", width " << width << ", feature " << i;
            }
        }
    }
}

TEST_P(Norms, PartialRmsNormWithPOneIsRmsNorm) {
    const auto value = [](std::int64_t row, std::int64_t i) { return bell(23, row, i); };
    for (const Dtype type : all_dtypes) {
        Invocation partial = make_call("partial_rms_norm", type, {3, 1000}, value);
        partial.scalars[2] = 1;
        const Invocation whole = make_call("rms_norm", type, {3, 1000}, value);
        result_of(partial, isa);
        result_of(whole, isa);
        EXPECT_TRUE(same_bits(type, whole.output_bits(), partial.output_bits()));
    }
}

TEST_P(Norms, EpsilonStandsWhereTheFlagsSay) {
    // Mean square 4; a large epsilon tells the two forms apart: 2 / sqrt(4 + 5) and 2 / (2 + 5).
    for (const char *label : {"rms_norm", "rms_norm.eps_outside_root", "add_rms_norm", "partial_rms_norm",
                              "rms_norm.plain.eps_outside_root"}) {
        Invocation call = make_call(label, Dtype::f32, {1, 40}, [&](std::int64_t, std::int64_t) {
            return std::string_view(label) == "add_rms_norm" ? 1.0 : 2.0;
        });
        call.scalars[0] = 5;
        const bool outside = std::string_view(label).find("outside") != std::string_view::npos;
        EXPECT_NEAR(result_of(call, isa).get(0, 39), outside ? 2.0 / 7 : 2.0 / 3, 1e-7) << label;
    }
}

TEST_P(Norms, HugeRowsWithinF32StatisticsAreRight) {
    // The sum of squares is just below f32's largest number.
    for (const char *label : {"rms_norm", "layer_norm"}) {
        const Invocation call = make_call(label, Dtype::f32, {2, 8},
                                          [](std::int64_t, std::int64_t i) { return (i % 2 == 0 ? 6e18 : -6e18); });
        const Tensor &y = result_of(call, isa);
        for (std::int64_t i = 0; i < 8; i++) {
            EXPECT_NEAR(y.get(1, i), i % 2 == 0 ? 1 : -1, 1e-6) << label;
        }
    }
}

TEST_P(Norms, HoldTheirBoundsFromTheSmallestSquaresThatKeepTheirBits) {
    // Mean square + eps at 2^-126, the least number of full accuracy, by the row or by eps.
    for (const char *label : {"rms_norm", "add_rms_norm", "layer_norm"}) {
        for (const std::int64_t width : {1, 7, 64, 1000, 4097}) {
            for (const bool of_eps : {false, true}) {
                if (width == 1 && std::string_view(label) == "layer_norm") {
                    continue;  // has no deviation
                }
                const double size = of_eps ? 0x1p-70 : 0x1p-63;
                Invocation call = make_call(label, Dtype::f32, {2, width}, [&](std::int64_t row, std::int64_t i) {
                    return (i % 2 == 0 ? size : -size) * (1 + 0.25 * uniform(43, row, i / 2));
                });
                call.scalars[0] = of_eps ? 0x1p-126 : 0;
                const Tensor &y = result_of(call, isa);
                double sum = 0, squares = 0;
                const Row x = call.tensors[0]->row_values(1);
                const double factor = std::string_view(label) == "add_rms_norm" ? 2 : 1;
                for (const double value : x) {
                    sum += factor * value;
                    squares += factor * factor * value * value;
                }
                const auto count = static_cast<double>(width);
                const double mean = std::string_view(label) == "layer_norm" ? sum / count : 0;
                const double root = std::sqrt(squares / count - mean * mean + call.scalars[0]);
                for (std::int64_t i = 0; i < width; i++) {
                    const double expected = (factor * x[static_cast<std::size_t>(i)] - mean) / root;
                    ASSERT_NEAR(y.get(1, i), expected,
                                0x1p-24 * (std::ceil(count / 32) + 16) * (1 + std::fabs(expected)))
                        << label << ", width " << width << (of_eps ? ", eps" : "");
                }
            }
        }
    }
}

TEST_P(Norms, RmsNormGivesZeroBeyondTheRangeOfSquares) {
    // Squares that vanish, with eps = 0; squares whose sum overflows; eps that makes it overflow.
    for (const char *label : {"rms_norm", "rms_norm.unit_offset", "rms_norm.eps_outside_root", "add_rms_norm"}) {
        for (const Dtype type : all_dtypes) {
            if (type == Dtype::f16) {
                continue;  // holds none of these
            }
            for (const double size : {0x1p-76, 0x1p64, 1e38}) {
                Invocation call = make_call(label, type, {2, 70},
                                            [&](std::int64_t, std::int64_t i) { return i % 3 == 0 ? size : -size; });
                const bool sums = std::string_view(label) == "add_rms_norm";
                if (sums && size < 1) {
                    continue;  // the sums are twice as large
                }
                call.scalars[0] = 0;
                const Tensor &y = result_of(call, isa);
                for (std::int64_t i = 0; i < 70; i++) {
                    ASSERT_EQ(y.get(1, i), 0) << label << " of " << size << " in " << name_of(type);
                }
            }
        }
    }
    Invocation call = make_call("rms_norm", Dtype::f32, {1, 70}, [](std::int64_t, std::int64_t) { return 0x1p60; });
    call.scalars[0] = std::numeric_limits<float>::max();
    EXPECT_EQ(result_of(call, isa).get(0, 5), 0);
}

TEST_P(Norms, LayerNormBeyondTheRangeOfSquaresIsTheBias) {
    for (const char *label : {"layer_norm", "add_layer_norm"}) {
        for (const Dtype type : all_dtypes) {
            if (type == Dtype::f16) {
                continue;  // holds none of these
            }
            for (const double size : {0x1p64, 1e30}) {
                Invocation call = make_call(label, type, {2, 70},
                                            [&](std::int64_t, std::int64_t i) { return i % 2 == 0 ? size : -size; });
                const std::size_t bias = std::string_view(label) == "layer_norm" ? 2 : 3;
                call.tensors[bias]->fill([](std::int64_t, std::int64_t) { return 0.5; });
                const Tensor &y = result_of(call, isa);
                for (std::int64_t i = 0; i < 70; i++) {
                    ASSERT_EQ(y.get(1, i), 0.5) << label << " of " << size << " in " << name_of(type);
                }
            }
            // Sums that overflow are infinite, as a row that holds an infinity.
            const Invocation call = make_call(label, type, {1, 70}, [](std::int64_t, std::int64_t) { return 1e38; });
            ASSERT_TRUE(std::isnan(result_of(call, isa).get(0, 69))) << label << " in " << name_of(type);
        }
    }
}

// ---- Softmax -----------------------------------------------------------------------------------------------------

TEST_P(Norms, SoftmaxSumsToOneAndIgnoresShift) {
    HALYARD_TEST_NEEDS(is_built("softmax"))
    for (const std::int64_t width : {1, 5, 1000, 4097}) {
        const auto shares = [&](double shift) {
            const Invocation call = make_call("softmax", Dtype::f32, {2, width}, [&](std::int64_t row, std::int64_t i) {
                return std::floor(256 * bell(29, row, i)) / 64 + shift;
            });
            return result_of(call, isa).row_values(1);
        };
        const Row original = shares(0);
        double sum = 0;
        for (const double share : original) {
            sum += share;
        }
        EXPECT_NEAR(sum, 1, 2e-6 * std::sqrt(static_cast<double>(width)));
        // The shifted scores are exact in f32 and so are their distances from the largest.
        EXPECT_EQ(shares(1024), original);
        EXPECT_EQ(shares(-100), original);
    }
}

TEST_P(Norms, SoftmaxTreatsInfinitiesAsItSays) {
    HALYARD_TEST_NEEDS(is_built("softmax"))
    const double infinity = std::numeric_limits<double>::infinity();
    const auto row_value = [&](std::int64_t row, std::int64_t i) {
        switch (row) {
        case 0:
            return i % 3 == 0 ? 1.0 : -infinity;
        case 1:
            return -infinity;
        case 2:
            return i == 69 ? infinity : 0.0;
        case 3:
            return i == 33 ? std::nan("") : 0.0;
        default:
            return 0.0;
        }
    };
    for (const Dtype type : all_dtypes) {
        const Invocation call = make_call("softmax", type, {5, 70}, row_value);
        const Tensor &y = result_of(call, isa);
        for (std::int64_t i = 0; i < 70; i++) {
            EXPECT_NEAR(y.get(0, i), i % 3 == 0 ? 1.0 / 24 : 0.0, 1e-3) << i;
            EXPECT_TRUE(i % 3 == 0 || y.get(0, i) == 0.0) << i;
            EXPECT_TRUE(std::isnan(y.get(1, i)) && std::isnan(y.get(2, i)) && std::isnan(y.get(3, i))) << i;
            EXPECT_EQ(y.get(4, i), y.get(4, 0));
        }
        EXPECT_NEAR(y.get(4, 0), 1.0 / 70, 1e-4);
    }
}

TEST_P(Norms, SoftmaxOfScaledScoresIgnoresTheirMean) {
    HALYARD_TEST_NEEDS(is_built("softmax"))
    // What is left of the mean in scale x would be an error of scale times 2^-24 mean: here up to a fifth of the result.
    for (const float scale : {3.7f, -3.7f, 0.3f}) {
        for (const double mean : {1e3, 1e6, -1e6}) {
            for (const std::int64_t width : {5, 1000, 4097}) {
                for (const Dtype type : all_dtypes) {
                    if (type == Dtype::f16 && std::fabs(mean) > 1e4) {
                        continue;
                    }
                    Invocation call = make_call("softmax", type, {2, width}, [&](std::int64_t row, std::int64_t i) {
                        return mean + std::floor(16 * bell(31, row, i)) / 8;
                    });
                    call.scalars[0] = scale;
                    const Tensor &y = result_of(call, isa);
                    const ExpectedRow expected = softmax(call.tensors[0]->row_values(1), scale, type);
                    for (std::int64_t i = 0; i < width; i++) {
                        const Expected &share = expected[static_cast<std::size_t>(i)];
                        ASSERT_TRUE(acceptable(type, share, y.get(1, i)))
                            << y.get(1, i) << " instead of " << share.value << " +- " << share.error << ", scale "
                            << scale << ", mean " << mean << ", width " << width << " in " << name_of(type);
                    }
                }
            }
        }
    }
}

TEST_P(Norms, SoftmaxTakesEveryFiniteScale) {
    HALYARD_TEST_NEEDS(is_built("softmax"))
    const double most = std::numeric_limits<float>::max(), least = 0x1p-149;
    for (const double scale : {0.0, least, 1e-40, 1e-20, 1e20, 0.75 * most, most}) {
        for (const double sign : {1.0, -1.0}) {
            for (const double size : {1e-30, 1.0, 1e30}) {
                Invocation call = make_call("softmax", Dtype::f32, {2, 100}, [&](std::int64_t row, std::int64_t i) {
                    return i == 50 ? size * 3 : size * uniform(37, row, i);
                });
                call.scalars[0] = sign * scale;
                const Tensor &y = result_of(call, isa);
                const Row x = call.tensors[0]->row_values(1);
                const ExpectedRow expected = softmax(x, static_cast<float>(call.scalars[0]), Dtype::f32);
                for (std::int64_t i = 0; i < 100; i++) {
                    const Expected &share = expected[static_cast<std::size_t>(i)];
                    ASSERT_TRUE(acceptable(Dtype::f32, share, y.get(1, i)))
                        << y.get(1, i) << " instead of " << share.value << " +- " << share.error << ", scale "
                        << call.scalars[0] << ", features of " << size;
                }
            }
        }
    }
}

// ---- Sizes beyond 32 bits ------------------------------------------------------------------------------------------

/** A range of addresses backed again and again by the same memory: a tensor of billions of elements that takes little
 *  memory. It lies between inaccessible pages. */
class RepeatedMemory {
public:
    RepeatedMemory(std::size_t window_bytes, std::size_t bytes) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        size = bytes + 2 * page;
        void *range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        const int file = memfd_create("halyard_test", 0);
        if (range == MAP_FAILED || file < 0 || ftruncate(file, static_cast<off_t>(window_bytes)) != 0) {
            ADD_FAILURE() << "cannot reserve " << size << " bytes of address space";
            return;
        }
        mapping = static_cast<char *>(range);
        begin = mapping + page;
        for (std::size_t at = 0; at < bytes; at += window_bytes) {
            const std::size_t length = std::min(window_bytes, bytes - at);
            if (mmap(begin + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
                ADD_FAILURE() << "cannot map a window";
            }
        }
        close(file);
    }
    ~RepeatedMemory() { munmap(mapping, size); }
    RepeatedMemory(const RepeatedMemory &) = delete;
    RepeatedMemory &operator=(const RepeatedMemory &) = delete;

    char *begin = nullptr;

private:
    char *mapping = nullptr;
    std::size_t size = 0;
};

DLTensor view_of(void *data, Dtype type, Shape &shape, std::int64_t *strides) {
    DLTensor view{};
    view.data = data;
    view.device = {kDLCPU, 0};
    view.ndim = static_cast<int>(shape.size());
    view.dtype = dlpack_type(type);
    view.shape = shape.data();
    view.strides = strides;
    return view;
}

TEST(HugeTensors, MoreThanTwoToThe31Elements) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_BF16 && is_built("relu"))
#ifdef HALYARD_TESTS_REDUCED
    GTEST_SKIP() << "two billion elements take too long here";
#endif
    // All rows are the one row of x, so the windows of y agree wherever they repeat: a row is 8192 bytes, a window
    // 8192 rows. A 32-bit element index would leave the mapping.
    constexpr std::int64_t width = 4096, rows = (std::int64_t{1} << 31) / width + 3;
    constexpr std::size_t row_bytes = width * 2, window = row_bytes * 8192;
    RepeatedMemory memory(window, row_bytes * static_cast<std::size_t>(rows));
    ASSERT_NE(memory.begin, nullptr);
    for (const char *label : {"rms_norm.plain", "relu", "add"}) {
        Invocation one_row(operation(label), Dtype::bf16, {1, width});
        one_row.fill(3);
        ASSERT_EQ(one_row.run(nullptr), HALYARD_OK) << halyard_last_error();

        std::memset(memory.begin, 0xff, window);
        Shape shape = {rows, width};
        std::int64_t repeated[] = {0, 1};
        std::vector<DLTensor> views;
        for (const auto &tensor : one_row.tensors) {
            views.push_back(view_of(tensor->view.data, Dtype::bf16, shape, repeated));
        }
        views.back() = view_of(memory.begin, Dtype::bf16, shape, nullptr);
        std::vector<DLTensor *> arguments;
        for (DLTensor &view : views) {
            arguments.push_back(&view);
        }
        ASSERT_EQ(one_row.operation.call(nullptr, arguments.data(), one_row.scalars.data()), HALYARD_OK)
            << halyard_last_error();
        for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, std::int64_t{8191}, rows - 1}) {
            EXPECT_EQ(std::memcmp(memory.begin + row_bytes * static_cast<std::size_t>(row),
                                  one_row.tensors.back()->at(0, 0), row_bytes),
                      0)
                << label << " row " << row;
        }
    }
}

TEST(HugeTensors, OneRowOfMoreThanTwoToThe31ElementsIsDoneOrRefused) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_BF16 && is_built("relu"))
#ifdef HALYARD_TESTS_REDUCED
    GTEST_SKIP() << "two billion elements take too long here";
#endif
    constexpr std::int64_t width = (std::int64_t{1} << 31) + 1000;
    constexpr std::size_t window = std::size_t{1} << 26;
    RepeatedMemory memory(window, width * 2);
    ASSERT_NE(memory.begin, nullptr);
    Shape shape = {width};
    DLTensor x = view_of(memory.begin, Dtype::bf16, shape, nullptr);
    std::uint16_t *const elements = reinterpret_cast<std::uint16_t *>(memory.begin);

    // Elementwise, in place: every element of the window becomes relu of itself, however often it is met.
    for (std::size_t i = 0; i < window / 2; i++) {
        elements[i] = static_cast<std::uint16_t>(hash(1, 2, i));
    }
    const std::vector<std::uint16_t> before(elements, elements + window / 2);
    ASSERT_EQ(halyard_relu(nullptr, &x, &x), HALYARD_OK) << halyard_last_error();
    for (std::size_t i = 0; i < window / 2; i++) {
        const double value = decode(Dtype::bf16, before[i]);
        const double got = decode(Dtype::bf16, elements[i]);
        ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : got == reference::relu(value)) << i;
    }

    // Row operations cannot count that far, and say so before they write.
    const std::vector<std::uint16_t> kept(elements, elements + window / 2);
    const halyard_status status = halyard_rms_norm(nullptr, &x, nullptr, 1e-6f, 0, &x);
    EXPECT_EQ(status, HALYARD_UNSUPPORTED);
    EXPECT_NE(std::string(halyard_last_error()).find("x has rows of"), std::string::npos) << halyard_last_error();
    EXPECT_EQ(std::memcmp(kept.data(), elements, window), 0);
}

TEST(HugeTensors, EveryElementIsWrittenOnce) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_BF16 && is_built("exp"))
    // 4.3 GB in place: only where it is asked for.
    if (std::getenv("HALYARD_TEST_LARGE") == nullptr) {
        GTEST_SKIP() << "set HALYARD_TEST_LARGE=1 to use 4.3 GB of memory";
    }
    constexpr std::int64_t width = 65536, rows = (std::int64_t{1} << 31) / width + 1;
    constexpr std::size_t bytes = static_cast<std::size_t>(width) * rows * 2;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto *const elements = static_cast<std::uint16_t *>(memory);
    Shape shape = {rows, width};
    // exp(0) is 1; exp of that would be another value, so twice or never shows.
    DLTensor x = view_of(memory, Dtype::bf16, shape, nullptr);
    ASSERT_EQ(halyard_exp(nullptr, &x, &x), HALYARD_OK) << halyard_last_error();
    const auto one = static_cast<std::uint16_t>(encode(Dtype::bf16, 1));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes / 2; i++) {
        wrong += elements[i] != one;
    }
    EXPECT_EQ(wrong, 0u);
    munmap(memory, bytes);
}

}  // namespace
}  // namespace halyard::tests
