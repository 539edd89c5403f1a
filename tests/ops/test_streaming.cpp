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

// Widths around a cache line, around what elementwise kernels stream at once, and around the tile that a row operation streams from, for
// which a row of 20000 f32 features is too wide; several rows to a tile.
TEST_P(Streaming, GivesTheBitsOfOrdinaryStores) {
    const std::vector<Shape> few = {{3, 33}, {2, 3, 300}, {5003}};
    const std::vector<Shape> all = {{5}, {16}, {3, 33}, {70, 64}, {2, 3, 1000}, {4, 5003}, {2, 20000}};
    for (const Shape &shape : reduced ? few : all) {
        for (const auto &arrange : {Invocation::Arrange(Invocation::compact), Invocation::Arrange(Invocation::at_start),
                                    Invocation::Arrange(padded_and_misaligned)}) {
            Invocation ordinary(operation, type, shape, arrange), streamed(operation, type, shape, arrange);
            ordinary.fill(91);
            streamed.copy_inputs_from(ordinary);
            for (const halyard_isa isa : row_isas()) {
                // One shape serves the lesser ones.
                if (isa != row_isas().back() && shape.size() != 3) {
                    continue;
                }
                for (const int threads : {1, 3}) {
                    ordinary.clear_outputs();
                    streamed.clear_outputs();
                    const Context never(isa, threads), always(isa, threads);
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
}

// An output in place of an input is not streamed, and the other one of two may be.
TEST_P(Streaming, InPlaceGivesTheSameBits) {
    const Context context(supported_isas().back());
    ASSERT_EQ(halyard_context_set_streaming_min_bytes(context.get(), 0), HALYARD_OK);
    for (const Shape &shape : {Shape{3, 33}, Shape{2, reduced ? 1003 : 5003}}) {
        Invocation apart(operation, type, shape);
        apart.fill(93);
        ASSERT_EQ(apart.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (const std::vector<Alias> &aliases : operation.in_place) {
            Invocation call(operation, type, shape);
            call.copy_inputs_from(apart);
            call.alias(aliases);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(call.surroundings_intact()) << call.describe();
            for (const std::size_t output : operation.with_role(Role::output)) {
                const Tensor &expected = *apart.tensors[output], *got = call.tensors[output].get();
                std::int64_t first = 0;
                for (const Alias &alias : aliases) {
                    if (alias.output == output) {
                        got = call.tensors[alias.input].get();
                        first = alias.half * expected.width();
                    }
                }
                for (std::int64_t row = 0; row < expected.rows(); row++) {
                    for (std::int64_t i = 0; i < expected.width(); i++) {
                        ASSERT_EQ(got->bits(row, first + i), expected.bits(row, i))
                            << operation.operands[output].name << "[row " << row << ", " << i << "]; "
                            << call.describe();
                    }
                }
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
