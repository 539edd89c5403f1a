// Outputs written around the caches: the same bits as ordinary stores, and nothing written beside them.
#include "support/invocation.h"
#include "support/test_scale.h"

#include <cstdint>
#include <vector>

namespace halyard::tests {
namespace {

class Streaming : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;
};

Form padded_and_misaligned(const Operand &, const Shape &shape) {
    return {shape, padded_strides(shape, shape.size() == 1 ? 0 : 3), Placement::starts_at_guard, 1, 0};
}

// Widths around a cache line and around the tile that a task streams from; several rows to a tile and several tiles to
// a row. A row of 20000 f32 features is too wide for a row operation's tile.
TEST_P(Streaming, GivesTheBitsOfOrdinaryStores) {
    const std::vector<Shape> few = {{3, 33}, {2, 3, 1000}, {4, 5003}};
    const std::vector<Shape> all = {{5}, {16}, {3, 33}, {70, 64}, {2, 3, 1000}, {4, 5003}, {2, 20000}};
    for (const Shape &shape : reduced ? few : all) {
        for (const auto &arrange : {Invocation::Arrange(Invocation::compact), Invocation::Arrange(Invocation::at_start),
                                    Invocation::Arrange(padded_and_misaligned)}) {
            for (const int threads : {1, 3}) {
                Invocation ordinary(operation, type, shape, arrange), streamed(operation, type, shape, arrange);
                ordinary.fill(91);
                streamed.copy_inputs_from(ordinary);

                const Context never(supported_isas().back(), threads), always(supported_isas().back(), threads);
                ASSERT_EQ(halyard_context_set_streaming_min_bytes(never.get(), INT64_MAX), HALYARD_OK);
                ASSERT_EQ(halyard_context_set_streaming_min_bytes(always.get(), 0), HALYARD_OK);
                ASSERT_EQ(ordinary.run(never.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(streamed.run(always.get()), HALYARD_OK) << halyard_last_error();

                ASSERT_EQ(streamed.output_bits(), ordinary.output_bits()) << streamed.describe();
                ASSERT_TRUE(streamed.surroundings_intact()) << streamed.describe();
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Streaming, testing::ValuesIn(operation_cases()), name_of_case);

TEST(StreamingThreshold, RefusesBadArguments) {
    EXPECT_EQ(halyard_context_set_streaming_min_bytes(nullptr, 0), HALYARD_INVALID_ARGUMENT);
    const Context context;
    EXPECT_EQ(halyard_context_set_streaming_min_bytes(context.get(), -2), HALYARD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(halyard_last_error()).find("min_bytes"), std::string::npos) << halyard_last_error();
    EXPECT_EQ(halyard_context_set_streaming_min_bytes(context.get(), -1), HALYARD_OK);
}

}  // namespace
}  // namespace halyard::tests
