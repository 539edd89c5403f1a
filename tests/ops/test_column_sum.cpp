// Sums over the rows of a matrix: against float64 and, bit by bit, against a model of their order.
//
// Bound: a column's sum over n rows takes at most min(n, 64) additions in its block and one for every block, each of which errs by
// 2^-24 of its result, so by at most 2^-24 of the sum of magnitudes, but for terms of second order.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "cpu/ops/column_sum.h"
#include "support/invocation.h"
#include "support/test_scale.h"

namespace halyard {
namespace {

using tests::Dtype, tests::Form, tests::Placement, tests::Tensor, tests::reduced;

const float infinity = std::numeric_limits<float>::infinity(), nan_value = std::nanf("");

DType built_dtype(Dtype dtype) {
    return dtype == Dtype::f32 ? DType::f32 : dtype == Dtype::f16 ? DType::f16 : DType::bf16;
}

struct By {
    halyard_isa isa;
    int threads;
};

std::vector<By> everyone(const std::vector<int> &threads) {
    std::vector<By> all;
    for (const halyard_isa isa : tests::row_isas()) {
        for (const int count : threads) {
            all.push_back({isa, count});
        }
    }
    return all;
}

void PrintTo(const By &by, std::ostream *stream) {
    *stream << halyard_isa_name(by.isa) << " on " << by.threads << " threads";
}

/** Rows `gap` elements apart, next to a guard page. */
struct Matrix : Tensor {
    Matrix(Dtype dtype, int64_t rows, int64_t columns, int64_t gap = 0, Placement placement = Placement::ends_at_guard,
           int64_t shift = 0)
        : Tensor(dtype, Form{{rows, columns}, tests::padded_strides({rows, columns}, gap), placement, shift, 0}) {}

    /** From row `first` on. */
    TypedRows from(int64_t first) const {
        const TypedRows all = {static_cast<char *>(view.data), built_dtype(dtype()), strides()[0]};
        return {all.row(first), all.dtype, all.pitch};
    }
    float value(int64_t row, int64_t column) const { return static_cast<float>(get(row, column)); }
};

/** A column's sum in the order that is promised, from `start` if there is one. */
float modelled(const Matrix &x, int64_t column, std::optional<float> start = {}) {
    std::optional<float> sum = start;
    for (int64_t first = 0; first < x.rows(); first += column_sum_rows) {
        float block = 0;
        for (int64_t row = first; row < std::min(first + column_sum_rows, x.rows()); row++) {
            block += x.value(row, column);
        }
        sum = sum ? *sum + block : block;
    }
    return sum.value_or(0.0f);
}

/** The sums of all columns, in memory where what is written beside them shows. */
struct Sums : Tensor {
    explicit Sums(int64_t columns) : Tensor(Dtype::f32, Form{{columns}, {}, Placement::ends_at_guard, 0, 0}) {}

    void of(const By &by, const TypedRows &x, int64_t rows, bool accumulate) {
        const tests::Context context(by.isa, by.threads);
        const Sums partials(std::max<int64_t>(1, column_sum_blocks(rows) * width()));
        column_sums(*context.get(), by.isa, x, rows, width(), partials.floats(), floats(), accumulate);
        EXPECT_TRUE(partials.surroundings_intact());
        EXPECT_TRUE(surroundings_intact());
    }
    float *floats() const { return static_cast<float *>(view.data); }
    float operator[](int64_t column) const { return floats()[column]; }
};

testing::AssertionResult are(const Sums &sums, const std::vector<float> &expected) {
    for (int64_t column = 0; column < sums.width(); column++) {
        const float want = expected[static_cast<std::size_t>(column)];
        const bool same =
            std::isnan(want) ? std::isnan(sums[column]) : tests::bits_of(sums[column]) == tests::bits_of(want);
        if (!same) {
            return testing::AssertionFailure() << "column " << column << ": " << sums[column] << ", not " << want;
        }
    }
    return testing::AssertionSuccess();
}

std::vector<float> modelled(const Matrix &x) {
    std::vector<float> sums;
    for (int64_t column = 0; column < x.width(); column++) {
        sums.push_back(modelled(x, column));
    }
    return sums;
}

void fill(Matrix &x, uint64_t seed) {
    x.fill([&](int64_t row, int64_t column) { return tests::bell(seed, row, column) + 0.25; });
}

class ColumnSum : public testing::TestWithParam<Dtype> {};

TEST_P(ColumnSum, IsWithinTheBound) {
    const std::vector<int64_t> all_rows = {0, 1, 2, 31, 32, 33, 64, 200, 513};
    const std::vector<int64_t> all_columns = {1, 2, 3, 15, 16, 17, 31, 33, 100, 4097};
    double largest = 0;
    for (const int64_t rows : all_rows) {
        for (const int64_t columns : all_columns) {
            if (reduced && rows * columns > 70000) {
                continue;
            }
            SCOPED_TRACE(testing::Message() << rows << " rows of " << columns);
            // Between rows lie NaNs, behind or before them all a page that may not be touched, and no row is aligned.
            Matrix x(GetParam(), rows, columns, columns % 2 == 0 ? 3 : 0,
                     rows % 2 == 0 ? Placement::starts_at_guard : Placement::ends_at_guard, 1);
            fill(x, static_cast<uint64_t>(rows + columns));
            const std::vector<float> expected = modelled(x);
            for (int64_t column = 0; column < columns; column++) {
                double sum = 0, magnitude = 0;
                for (int64_t row = 0; row < rows; row++) {
                    sum += x.get(row, column);
                    magnitude += std::fabs(x.get(row, column));
                }
                const auto roundings = static_cast<double>(std::min<int64_t>(rows, column_sum_rows) +
                                                           (rows + column_sum_rows - 1) / column_sum_rows);
                const double bound = roundings * 0x1p-24 * magnitude;
                const double error = std::fabs(static_cast<double>(expected[static_cast<std::size_t>(column)]) - sum);
                ASSERT_LE(error, bound) << "column " << column;
                largest = bound > 0 ? std::max(largest, error / bound) : largest;
            }
            for (const By &by : everyone({1})) {
                Sums sums(columns);
                sums.of(by, x.from(0), rows, false);
                EXPECT_TRUE(are(sums, expected)) << testing::PrintToString(by);
            }
        }
    }
    RecordProperty("of_the_bound", std::to_string(largest));
}

TEST_P(ColumnSum, DoesNotDependOnThreads) {
    struct Size {
        int64_t rows, columns;
    };
    // Shared by columns, by blocks, and by both.
    const std::vector<Size> sizes = reduced ? std::vector<Size>{{3, 60000}, {70000, 1}, {200, 1100}}
                                            : std::vector<Size>{{3, 300001}, {400001, 1}, {40001, 17}, {513, 4097}};
    for (const Size &size : sizes) {
        SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.columns);
        Matrix x(GetParam(), size.rows, size.columns);
        fill(x, 5);
        const std::vector<float> expected = modelled(x);
        for (const By &by : everyone({1, 2, 3, 8})) {
            Sums sums(size.columns);
            sums.of(by, x.from(0), size.rows, false);
            EXPECT_TRUE(are(sums, expected)) << testing::PrintToString(by);
        }
    }
}

TEST_P(ColumnSum, AccumulatesParts) {
    const int64_t rows = 333, columns = 145;
    Matrix x(GetParam(), rows, columns, 7);
    fill(x, 11);
    const std::vector<float> whole = modelled(x);
    std::vector<float> continued;
    for (int64_t column = 0; column < columns; column++) {
        continued.push_back(modelled(x, column, 0.375f * static_cast<float>(column)));
    }
    for (const By &by : everyone({1, 3})) {
        for (const int64_t cut : {0, 64, 128, 320, 333}) {
            Sums sums(columns);
            sums.of(by, x.from(0), cut, false);
            sums.of(by, x.from(cut), rows - cut, true);
            EXPECT_TRUE(are(sums, whole)) << testing::PrintToString(by) << ", cut at " << cut;
        }
        Sums sums(columns);
        for (int64_t column = 0; column < columns; column++) {
            sums.floats()[column] = 0.375f * static_cast<float>(column);
        }
        sums.of(by, x.from(0), rows, true);
        EXPECT_TRUE(are(sums, continued)) << testing::PrintToString(by);
    }
}

TEST_P(ColumnSum, KeepsSpecialValuesInTheirColumn) {
    const int64_t rows = 130, columns = 147;
    Matrix x(GetParam(), rows, columns);
    fill(x, 17);
    const double infinite = std::numeric_limits<double>::infinity();
    x.set(129, 0, std::nan(""));
    x.set(64, 16, infinite);
    x.set(1, 33, -infinite);
    x.set(0, 128, infinite);
    x.set(127, 128, -infinite);
    x.set(70, 146, std::nan(""));
    const std::vector<float> expected = modelled(x);
    EXPECT_TRUE(std::isnan(expected[0]) && std::isnan(expected[128]) && std::isnan(expected[146]));
    EXPECT_EQ(expected[16], infinity);
    EXPECT_EQ(expected[33], -infinity);
    EXPECT_EQ(std::count_if(expected.begin(), expected.end(), [](float sum) { return std::isfinite(sum); }), 142);
    for (const By &by : everyone({1, 3})) {
        Sums sums(columns);
        sums.of(by, x.from(0), rows, false);
        EXPECT_TRUE(are(sums, expected)) << testing::PrintToString(by);
    }
}

TEST_P(ColumnSum, IsNeverMinusZero) {
    const int64_t rows = 65, columns = 35;
    Matrix x(GetParam(), rows, columns);
    x.fill([](int64_t, int64_t) { return -0.0; });
    for (const By &by : everyone({1})) {
        Sums sums(columns);
        sums.of(by, x.from(0), rows, false);
        EXPECT_TRUE(are(sums, std::vector<float>(columns, 0.0f))) << testing::PrintToString(by);
    }
}

TEST_P(ColumnSum, OfNoRows) {
    const int64_t columns = 35;
    const Matrix x(GetParam(), 0, columns);
    for (const By &by : everyone({1, 3})) {
        Sums sums(columns);
        sums.of(by, x.from(0), 0, false);
        EXPECT_TRUE(are(sums, std::vector<float>(columns, 0.0f))) << testing::PrintToString(by);
        std::vector<float> before(columns, -0.0f);
        before[3] = nan_value;
        before[34] = 1.5f;
        std::copy(before.begin(), before.end(), sums.floats());
        sums.of(by, x.from(0), 0, true);
        EXPECT_TRUE(are(sums, before)) << testing::PrintToString(by);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, ColumnSum, testing::ValuesIn(tests::all_dtypes),
                         [](const auto &info) { return std::string(tests::name_of(info.param)); });

// Kernels count elements in 32 bits. Of what lies between the rows nothing is touched.
TEST(ColumnSumPitch, OfRowsFarApart) {
    if (reduced) {
        GTEST_SKIP() << "as much address space is not to be had in an emulator or under sanitizers";
    }
    const int64_t columns = 131;
    struct Far {
        int64_t rows, pitch;
    };
    for (const Far &far : {Far{130, INT32_MAX / 128}, Far{130, INT32_MAX / 64 + 1}, Far{3, (int64_t{1} << 31) + 5}}) {
        SCOPED_TRACE(testing::Message() << far.rows << " rows, pitch " << far.pitch);
        const auto bytes = static_cast<std::size_t>(((far.rows - 1) * far.pitch + columns) * 2);
        void *const memory =
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        Matrix near(Dtype::bf16, far.rows, columns);
        fill(near, 23);
        const TypedRows x = {static_cast<char *>(memory), DType::bf16, far.pitch};
        for (int64_t row = 0; row < far.rows; row++) {
            std::copy_n(near.from(row).data, columns * 2, x.row(row));
        }
        for (const By &by : everyone({1, 2})) {
            Sums sums(columns);
            sums.of(by, x, far.rows, false);
            EXPECT_TRUE(are(sums, modelled(near))) << testing::PrintToString(by);
        }
        munmap(memory, bytes);
    }
}

}  // namespace
}  // namespace halyard
