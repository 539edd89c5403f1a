// Which views of one allocation share memory: the decision against all bytes of small views and against sorted addresses
// of large ones, and what the functions make of it.
#include "core/overlap.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/invocation.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

using Random = std::mt19937_64;
using Integers = std::vector<std::int64_t>;

// No test reads or writes there.
constexpr std::int64_t base = std::int64_t{1} << 62;

View view_at(std::int64_t address, DType dtype, const Integers &shape, const Integers &strides) {
    View view;
    view.data = reinterpret_cast<char *>(address);
    view.dtype = dtype;
    view.rank = static_cast<int>(shape.size());
    view.elements = view.span = 1;
    for (int i = 0; i < view.rank; i++) {
        view.shape[i] = shape[i];
        view.strides[i] = strides[i];
        view.elements *= shape[i];
        view.span += shape[i] > 1 ? (shape[i] - 1) * strides[i] : 0;
    }
    return view;
}

std::int64_t address_of(const View &view) {
    return reinterpret_cast<std::int64_t>(view.data);
}

bool ranges_meet(const View &a, const View &b) {
    return a.data < b.end() && b.data < a.end();
}

/** Addresses of all elements. */
Integers addresses(const View &view) {
    Integers result = {address_of(view)};
    for (int axis = 0; axis < view.rank; axis++) {
        const std::size_t count = result.size();
        for (std::int64_t i = 1; i < view.shape[axis]; i++) {
            for (std::size_t n = 0; n < count; n++) {
                result.push_back(result[n] + i * view.strides[axis] * size_of(view.dtype));
            }
        }
    }
    std::sort(result.begin(), result.end());
    return result;
}

/** Whether elements of two views share a byte, by all their addresses in order. */
bool share(const View &a, const View &b) {
    const Integers as = addresses(a), bs = addresses(b);
    std::size_t i = 0, k = 0;
    while (i < as.size() && k < bs.size()) {
        if (as[i] + size_of(a.dtype) <= bs[k]) {
            i++;
        } else if (bs[k] + size_of(b.dtype) <= as[i]) {
            k++;
        } else {
            return true;
        }
    }
    return false;
}

bool shares_with_itself(const View &view) {
    const Integers all = addresses(view);
    for (std::size_t i = 1; i < all.size(); i++) {
        if (all[i] < all[i - 1] + size_of(view.dtype)) {
            return true;
        }
    }
    return false;
}

std::string text(const View &view) {
    std::string result =
        std::to_string(size_of(view.dtype)) + " bytes at " + std::to_string(address_of(view) - base) + ":";
    for (int i = 0; i < view.rank; i++) {
        result += " " + std::to_string(view.shape[i]) + "*" + std::to_string(view.strides[i]);
    }
    return result;
}

std::int64_t between(Random &random, std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

DType any_dtype(Random &random) {
    constexpr DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
    return dtypes[between(random, 0, 2)];
}

/** Rank 1 to 4; mostly rows are contiguous, as those of tensors, and often axes nest. */
View small_view(Random &random, std::int64_t max_extent, std::int64_t max_stride) {
    Integers shape(between(random, 1, 4)), strides(shape.size());
    std::int64_t nested = 1;
    const bool nests = between(random, 0, 2) > 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        shape[axis] = between(random, 1, max_extent);
        const bool row = axis + 1 == shape.size() && between(random, 0, 3) > 0;
        strides[axis] = row ? 1 : nests ? nested + between(random, 0, 3) : between(random, 0, max_stride);
        nested += (shape[axis] - 1) * strides[axis];
    }
    return view_at(base, any_dtype(random), shape, strides);
}

/** Puts `b` somewhere among the addresses of `a`, aligned to its elements. */
void place_among(Random &random, const View &a, View &b) {
    const std::int64_t a_bytes = a.span * size_of(a.dtype), b_bytes = b.span * size_of(b.dtype),
                       size = size_of(b.dtype);
    const std::int64_t distance = between(random, -(b_bytes - 1), a_bytes - 1);
    b.data = reinterpret_cast<char *>(base + (distance >= 0 ? distance / size * size : -(-distance / size * size)));
}

constexpr int few_or_many(int many) {
    return reduced ? many / 20 : many;
}

TEST(Overlap, OfSmallViewsIsFoundExactly) {
    Random random(1);
    int counts[2] = {};
    for (int i = 0; i < few_or_many(1500000); i++) {
        const View a = small_view(random, i % 3 == 0 ? 6 : 3, i % 2 == 0 ? 12 : 40);
        View b = small_view(random, i % 3 == 0 ? 4 : 3, i % 2 == 0 ? 12 : 40);
        place_among(random, a, b);
        ASSERT_TRUE(ranges_meet(a, b));
        const bool expected = share(a, b);
        counts[expected]++;
        ASSERT_EQ(overlap(a, b), expected ? Overlap::some : Overlap::none) << text(a) << " and " << text(b);
        ASSERT_EQ(overlap(b, a), expected ? Overlap::some : Overlap::none) << text(b) << " and " << text(a);
    }
    EXPECT_GT(counts[false], few_or_many(150000));
    EXPECT_GT(counts[true], few_or_many(150000));
}

TEST(Overlap, OfPartsOfOneTensorIsFoundExactly) {
    // Slices of a padded tensor along every axis, as callers make them.
    Random random(2);
    int counts[2] = {};
    for (int i = 0; i < few_or_many(300000); i++) {
        const int rank = static_cast<int>(between(random, 2, 4));
        Integers shape(rank), strides(rank);
        std::int64_t stride = 1;
        for (int axis = rank; axis-- > 0;) {
            shape[axis] = between(random, 2, 8);
            strides[axis] = stride;
            stride *= shape[axis] + between(random, 0, 3);
        }
        const DType dtype = any_dtype(random);
        const auto part = [&] {
            Integers extents(rank), steps = strides;
            std::int64_t first = 0;
            for (int axis = 0; axis < rank; axis++) {
                const std::int64_t begin = between(random, 0, shape[axis] - 1);
                const std::int64_t step = axis + 1 < rank ? between(random, 1, 3) : 1;
                extents[axis] = between(random, 1, (shape[axis] - 1 - begin) / step + 1);
                steps[axis] *= step;
                first += begin * strides[axis];
            }
            return view_at(base + first * size_of(dtype), dtype, extents, steps);
        };
        const View a = part(), b = part();
        if (ranges_meet(a, b)) {
            const bool expected = share(a, b);
            counts[expected]++;
            ASSERT_EQ(overlap(a, b), expected ? Overlap::some : Overlap::none) << text(a) << " and " << text(b);
        }
    }
    EXPECT_GT(counts[false], few_or_many(30000));
    EXPECT_GT(counts[true], few_or_many(30000));
}

TEST(Overlap, OfLargeViewsIsFoundExactly) {
    // Strides with few or no common factors: two axes in all, each long, and four that are shorter.
    Random random(3);
    int counts[2] = {};
    for (int i = 0; i < few_or_many(4000); i++) {
        const bool two = i % 2 == 0;
        const auto view = [&] {
            Integers shape, strides;
            for (int axis = 0; axis < (two ? 1 : 2); axis++) {
                shape.push_back(between(random, 1, two ? 1000 : 40));
                strides.push_back(between(random, 1, two ? 200000 : 3000));
            }
            shape.push_back(between(random, 1, 4));
            strides.push_back(1);
            return view_at(base, any_dtype(random), shape, strides);
        };
        const View a = view();
        View b = view();
        place_among(random, a, b);
        const bool expected = share(a, b);
        counts[expected]++;
        ASSERT_EQ(overlap(a, b), expected ? Overlap::some : Overlap::none) << text(a) << " and " << text(b);
    }
    EXPECT_GT(counts[false], few_or_many(400));
    EXPECT_GT(counts[true], few_or_many(400));
}

TEST(Overlap, DoesNotDependOnTheScale) {
    // Elements of one size that are some elements apart, and the same 2^36 and 2^46 times as far.
    Random random(4);
    int counts[2] = {};
    for (int i = 0; i < few_or_many(200000); i++) {
        const DType dtype = i % 2 == 0 ? DType::f32 : DType::bf16;
        const std::int64_t size = size_of(dtype);
        View a = small_view(random, 5, 60), b = small_view(random, 5, 60);
        a.dtype = b.dtype = dtype;
        place_among(random, a, b);
        const std::int64_t distance = address_of(b) - base;
        const bool expected = share(a, b);
        counts[expected]++;
        for (const int shift : {36, 46}) {
            View far_a = a, far_b = b;
            far_b.data = reinterpret_cast<char *>(base + distance * (std::int64_t{1} << shift));
            for (View *view : {&far_a, &far_b}) {
                for (int axis = 0; axis < view->rank; axis++) {
                    view->strides[axis] <<= shift;
                }
                view->span = ((view->span - 1) << shift) + 1;
            }
            if (ranges_meet(far_a, far_b)) {
                ASSERT_EQ(overlap(far_a, far_b), expected ? Overlap::some : Overlap::none)
                    << text(a) << " and " << text(b) << ", all of it " << shift << " bits further";
            } else {
                ASSERT_FALSE(expected);
            }
        }
        ASSERT_EQ(distance % size, 0);
    }
    EXPECT_GT(counts[false], few_or_many(20000));
    EXPECT_GT(counts[true], few_or_many(20000));
}

TEST(Overlap, OfAViewWithItselfIsFoundExactly) {
    Random random(5);
    int counts[2] = {};
    for (int i = 0; i < few_or_many(1000000); i++) {
        const View view = small_view(random, i % 3 == 0 ? 6 : 3, i % 2 == 0 ? 12 : 60);
        const bool expected = shares_with_itself(view);
        counts[expected]++;
        ASSERT_EQ(self_overlap(view), expected ? Overlap::some : Overlap::none) << text(view);
    }
    EXPECT_GT(counts[false], few_or_many(50000));
    EXPECT_GT(counts[true], few_or_many(50000));
}

TEST(Overlap, KnownCases) {
    constexpr std::int64_t far = std::int64_t{1} << 40;
    const struct {
        const char *what;
        View a, b;
        Overlap expected;
    } cases[] = {
        {"columns of rows 2^40 apart", view_at(base, DType::f32, {1 << 18, 64}, {far, 1}),
         view_at(base + 256, DType::f32, {1 << 18, 64}, {far, 1}), Overlap::none},
        {"the same, an element further", view_at(base, DType::f32, {1 << 18, 65}, {far, 1}),
         view_at(base + 256, DType::f32, {1 << 18, 64}, {far, 1}), Overlap::some},
        {"even and odd elements in any number", view_at(base, DType::f16, {far}, {2}),
         view_at(base + 2, DType::f16, {far}, {2}), Overlap::none},
        {"16-bit elements in the gaps of 32-bit ones", view_at(base, DType::f32, {far}, {2}),
         view_at(base + 4, DType::f16, {far}, {4}), Overlap::none},
        {"16-bit elements in the middle of 32-bit ones", view_at(base, DType::f32, {far}, {2}),
         view_at(base + 2, DType::f16, {far}, {4}), Overlap::some},
        // 1000003 x = 999983 y + 1 has its first solution at x = 649989, y = 650002.
        {"coprime strides short of where they meet", view_at(base, DType::f32, {649989}, {1000003}),
         view_at(base + 4, DType::f32, {650002}, {999983}), Overlap::none},
        {"coprime strides that meet in their last elements", view_at(base, DType::f32, {649990}, {1000003}),
         view_at(base + 4, DType::f32, {650003}, {999983}), Overlap::some},
        {"extents of 1 with strides of no meaning",
         view_at(base, DType::f32, {1, 2, 1, 8}, {INT64_MAX, 16, INT64_MAX, 1}),
         view_at(base + 32, DType::f32, {2, 1, 1, 8}, {16, INT64_MAX, 0, 1}), Overlap::none},
        {"one element within a row", view_at(base, DType::f32, {1000}, {1}), view_at(base + 400, DType::f16, {1}, {1}),
         Overlap::some},
        {"rows that all lie in one place", view_at(base, DType::f32, {100, 8}, {0, 1}),
         view_at(base + 16, DType::f32, {1 << 20, 4}, {16, 1}), Overlap::some},
        {"rows that all lie in one place, between others", view_at(base + 32, DType::f32, {100, 8}, {0, 1}),
         view_at(base, DType::f32, {1 << 20, 8}, {16, 1}), Overlap::none},
    };
    for (const auto &c : cases) {
        ASSERT_TRUE(ranges_meet(c.a, c.b)) << c.what;
        EXPECT_EQ(overlap(c.a, c.b), c.expected) << c.what;
        EXPECT_EQ(overlap(c.b, c.a), c.expected) << c.what;
    }
    EXPECT_EQ(self_overlap(view_at(base, DType::f32, {2, 3, 1}, {3, 2, 1})), Overlap::none);
    // As many elements as there are places from the first to the last, and yet two in one place.
    EXPECT_EQ(self_overlap(view_at(base, DType::f32, {2, 2, 2}, {3, 3, 1})), Overlap::some);
    EXPECT_EQ(self_overlap(view_at(base, DType::f32, {1 << 16, 1 << 16, 1}, {far, far + 1, 1})), Overlap::none);
    EXPECT_EQ(self_overlap(view_at(base, DType::f32, {1 << 20, 1 << 20, 1}, {1000003, 999983, 1})), Overlap::some);
    EXPECT_EQ(self_overlap(view_at(base, DType::f32, {999983, 1000003, 1}, {1000003, 999983, 1})), Overlap::none);
}

/** Strides that have as little to do with each other as numbers of their size can. */
const Integers intricate_shape = {997, 991, 983, 1},
               intricate_strides[] = {{100000000000031, 87178291199999, 60000000000029, 1},
                                      {98765432100019, 75025000000007, 57885161000011, 1}};

TEST(Overlap, WhatTakesTooLongIsLeftUndecided) {
    const View a = view_at(base, DType::f32, intricate_shape, intricate_strides[0]);
    const View b = view_at(base + 6666666666664, DType::f32, intricate_shape, intricate_strides[1]);
    EXPECT_EQ(overlap(a, b), Overlap::undecided);
}

// ---- Through the functions ----

/** A tensor of f32 in a buffer. */
struct Part {
    Part(std::vector<float> &buffer, std::int64_t offset, const Integers &extents, const Integers &steps)
        : shape(extents), strides(steps) {
        tensor.data = buffer.data();
        tensor.byte_offset = offset * sizeof(float);
        tensor.device = {kDLCPU, 0};
        tensor.ndim = static_cast<int>(shape.size());
        tensor.dtype = {kDLFloat, 32, 1};
        tensor.shape = shape.data();
        tensor.strides = strides.data();
    }
    Part(const Part &) = delete;

    Integers shape, strides;
    DLTensor tensor = {};
};

std::vector<float> counted(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++) {
        values[i] = static_cast<float>(static_cast<int>(i % 64) - 32);
    }
    return values;
}

TEST(OverlapOfArguments, AGatedUnitMayWriteIntoTheGateOfAStridedTensor) {
    // Batches whose pitch is no multiple of the rows'.
    const Integers shape = {8, 28, 64}, strides = {2720, 96, 1}, half = {8, 28, 32};
    for (const halyard_glu_layout layout : {HALYARD_GLU_GATE_UP, HALYARD_GLU_UP_GATE}) {
        for (const std::int64_t target : {0, 32, 64}) {  // a half, the other one, the gap behind the rows
            std::vector<float> buffer = counted(8 * 2720);
            const std::vector<float> before = buffer;
            const Part x(buffer, 0, shape, strides);
            Part y(buffer, target, half, strides);
            ASSERT_EQ(halyard_reglu_packed(nullptr, &x.tensor, layout, &y.tensor), HALYARD_OK) << halyard_last_error();
            std::vector<float> expected = before;
            for (int b = 0; b < 8; b++) {
                for (int row = 0; row < 28; row++) {
                    for (int i = 0; i < 32; i++) {
                        const std::size_t at = b * 2720 + row * 96 + i;
                        const bool gate_first = layout == HALYARD_GLU_GATE_UP;
                        const float gate = before[gate_first ? at : at + 32], up = before[gate_first ? at + 32 : at];
                        expected[at + target] = std::max(0.0f, gate) * up;
                    }
                }
            }
            EXPECT_TRUE(buffer == expected) << "into column " << target;
        }
    }
}

TEST(OverlapOfArguments, DisjointColumnsOfAStridedTensorAreApart) {
    std::vector<float> buffer = counted(8 * 2720);
    const std::vector<float> before = buffer;
    const Integers shape = {8, 28, 20}, strides = {2720, 96, 1};
    const Part x(buffer, 7, shape, strides);
    Part y(buffer, 27, shape, strides), one_less(buffer, 26, shape, strides);
    EXPECT_EQ(halyard_relu(nullptr, &x.tensor, &one_less.tensor), HALYARD_INVALID_ARGUMENT);
    EXPECT_TRUE(buffer == before);
    ASSERT_EQ(halyard_relu(nullptr, &x.tensor, &y.tensor), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(buffer[27], std::max(0.0f, before[7]));
    EXPECT_EQ(buffer[7 * 2720 + 27 * 96 + 46], std::max(0.0f, before[7 * 2720 + 27 * 96 + 26]));
}

TEST(OverlapOfArguments, OutputsNeedNoNestedAxes) {
    std::vector<float> buffer(16, -1.0f), input = {1, 2, 3, 4, 5, 6, 7, 8};
    const Part x(input, 0, {2, 3, 1}, {3, 1, 1});
    Part y(buffer, 0, {2, 3, 1}, {3, 2, 1});
    ASSERT_EQ(halyard_relu(nullptr, &x.tensor, &y.tensor), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(std::vector<float>(buffer.begin(), buffer.begin() + 9),
              (std::vector<float>{1, -1, 2, 4, 3, 5, -1, 6, -1}));

    // Two rows in one place, though there are as many elements as places.
    std::fill(buffer.begin(), buffer.end(), -1.0f);
    const Part eight(input, 0, {2, 2, 2}, {4, 2, 1});
    Part shared(buffer, 0, {2, 2, 2}, {3, 3, 1});
    EXPECT_EQ(halyard_relu(nullptr, &eight.tensor, &shared.tensor), HALYARD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(halyard_last_error()).find("y has strides"), std::string::npos) << halyard_last_error();
    EXPECT_EQ(buffer, std::vector<float>(16, -1.0f));
}

TEST(OverlapOfArguments, WhatIsUndecidedIsRefusedWithWords) {
    // Nothing is read or written there.
    std::vector<float> buffer(1);
    Part x(buffer, 0, intricate_shape, intricate_strides[0]), y(buffer, 0, intricate_shape, intricate_strides[1]);
    x.tensor.data = reinterpret_cast<void *>(base);
    y.tensor.data = reinterpret_cast<void *>(base + 6666666666664);
    EXPECT_EQ(halyard_relu(nullptr, &x.tensor, &y.tensor), HALYARD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(halyard_last_error()).find("could not be shown"), std::string::npos) << halyard_last_error();
}

}  // namespace
}  // namespace halyard::tests
