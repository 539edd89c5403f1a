// What kernels can be called with: their arguments in their order, of their types and ranks, all of them and no more.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "core/kernel_call.h"

namespace halyard::tests {
namespace {

template<typename Arguments, typename = void, typename... Given>
struct Takes : std::false_type {};
template<typename Arguments, typename... Given>
struct Takes<Arguments, std::void_t<decltype(Arguments{std::declval<Given>()...})>, Given...> : std::true_type {};

template<typename Arguments, typename... Given>
constexpr bool takes = Takes<Arguments, void, Given...>::value;

using Matrix = const Buffer<2> &;
using Vector = const Buffer<1> &;
using FloatMatrix = const Buffer<2, float> &;

// rms_norm_weight(x, eps, eps_outside_root, weight_offset, moment_width, weight, y)
using Norm = arguments::RmsNormWeight;

TEST(KernelCalls, TakeTheirArguments) {
    static_assert(takes<Norm, Matrix, float, bool, float, std::int32_t, Vector, Matrix>);
    static_assert(takes<arguments::CastToF32, Matrix, FloatMatrix>);
    static_assert(takes<arguments::KvPackKeys, const Buffer<3, float> &, const Buffer<3> &>);
    static_assert(takes<arguments::KvUnpackKeys, const Buffer<3> &, const Buffer<3, float> &>);
}

TEST(KernelCalls, TakeNothingElse) {
    // Too few, too many.
    static_assert(!takes<Norm, Matrix, float, bool, float, std::int32_t, Vector>);
    static_assert(!takes<Norm, Matrix, float, bool, float, std::int32_t, Vector, Matrix, Matrix>);
    // Another order.
    static_assert(!takes<Norm, Matrix, bool, float, float, std::int32_t, Vector, Matrix>);
    static_assert(!takes<Norm, Matrix, float, bool, std::int32_t, float, Vector, Matrix>);
    static_assert(!takes<Norm, Vector, float, bool, float, std::int32_t, Matrix, Matrix>);
    // Types that C++ would convert.
    static_assert(!takes<Norm, Matrix, double, bool, float, std::int32_t, Vector, Matrix>);
    static_assert(!takes<Norm, Matrix, float, int, float, std::int32_t, Vector, Matrix>);
    static_assert(!takes<Norm, Matrix, float, bool, float, std::int64_t, Vector, Matrix>);
    static_assert(!takes<Norm, Matrix, float, bool, float, bool, Vector, Matrix>);
    // Another rank, or other elements.
    static_assert(!takes<Norm, Matrix, float, bool, float, std::int32_t, Matrix, Matrix>);
    static_assert(!takes<Norm, FloatMatrix, float, bool, float, std::int32_t, Vector, Matrix>);
    static_assert(!takes<arguments::CastToF32, Matrix, Matrix>);
    // A pointer.
    static_assert(!takes<Norm, void *, float, bool, float, std::int32_t, Vector, Matrix>);
}

TEST(KernelCalls, ArgumentsGoByTheirNames) {
    std::string names;
    for (const Parameter &parameter : Norm::parameters()) {
        names += std::string(parameter.name) + " " + std::to_string(parameter.rank) + ", ";
    }
    EXPECT_EQ(names, "x 2, eps -1, eps_outside_root -1, weight_offset -1, moment_width -1, weight 1, y 2, ");
}

TEST(KernelCalls, PointersAreThoseOfTheArguments) {
    Buffer<2> x, y;
    Buffer<1> weight;
    Norm norm = {x, 0.5f, true, 1.0f, 7, weight, y};
    const auto pointers = norm.pointers();
    ASSERT_EQ(std::size(pointers.of), 7u);
    EXPECT_EQ(pointers.of[0], &x);
    EXPECT_EQ(*static_cast<float *>(pointers.of[1]), 0.5f);
    EXPECT_EQ(*static_cast<bool *>(pointers.of[2]), true);
    EXPECT_EQ(*static_cast<float *>(pointers.of[3]), 1.0f);
    EXPECT_EQ(*static_cast<std::int32_t *>(pointers.of[4]), 7);
    EXPECT_EQ(pointers.of[5], &weight);
    EXPECT_EQ(pointers.of[6], &y);
}

TEST(KernelCalls, BuffersSayWhereTheyAre) {
    float data[24] = {};
    Buffer<2, float> rows;
    rows.set(data, 5, 3, 8);
    arguments::SoftmaxNormalize call = {rows, Buffer<2>()};
    const auto *const buffer = static_cast<const halide_buffer_t *>(call.pointers().of[0]);
    EXPECT_EQ(buffer->host, reinterpret_cast<uint8_t *>(data));
    EXPECT_EQ(buffer->dim[0].extent, 5);
    EXPECT_EQ(buffer->dim[0].stride, 1);
    EXPECT_EQ(buffer->dim[1].extent, 3);
    EXPECT_EQ(buffer->dim[1].stride, 8);
}

}  // namespace
}  // namespace halyard::tests
