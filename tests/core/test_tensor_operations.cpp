// Every described operation that is not on rows alone, from its description: right on every instruction set with every type, for any
// number of threads, with weights packed once or for each call, beside guard pages and at odd addresses.
#include "operations/tensor_operations.h"
#include "support/invocation.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

std::vector<Sizes> sizes_of(const Operation &operation) {
    std::vector<Sizes> all;
    if (operation.operands[0].axes.front().extent == Extent::rows) {
        all = {{{1}, 1, 1}, {{3}, 33, 17}, {{2, 9}, 130, 65}};
        if (!reduced) {
            all.push_back({{70}, 515, 96});
        }
        for (Sizes &sizes : all) {
            sizes.d = (sizes.d + operation.d_step - 1) / operation.d_step * operation.d_step;
        }
        return all;
    }
    for (const std::int64_t tokens : {1, 19, reduced ? 70 : 530}) {
        Sizes sizes;
        sizes.batch = tokens == 19 ? 2 : 1;
        sizes.queries = sizes.keys = tokens;
        sizes.heads = 4;
        sizes.kv_heads = 2;
        sizes.head_dim = tokens == 19 ? 20 : 16;
        sizes.d = tokens == 19 ? 33 : 48;
        sizes.d_out = 51;
        all.push_back(sizes);
    }
    return all;
}

class TensorOperation : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;
};

TEST_P(TensorOperation, IsRightOnEveryInstructionSet) {
    for (const Sizes &sizes : sizes_of(operation)) {
        Invocation call(operation, type, sizes);
        call.fill(5);
        const std::vector<Matrix> expected = call.expected();
        for (const halyard_isa isa : (reduced ? product_isas(type, type) : supported_isas())) {
            const Context context(isa, 2);
            call.clear_outputs();
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(call.check(expected)) << "  with " << halyard_isa_name(isa);
        }
    }
}

TEST_P(TensorOperation, HasTheSameBitsForAnyThreadsAndPlaces) {
    for (const Sizes &sizes : sizes_of(operation)) {
        for (const halyard_isa isa : (reduced ? product_isas(type, type) : supported_isas())) {
            Invocation call(operation, type, sizes);
            call.fill(6);
            ASSERT_EQ(call.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
            const std::vector<std::uint32_t> bits = call.output_bits();
            const Operation::Call prepared =
                operation.prepare ? operation.prepare(call.arguments.data()) : operation.call;
            for (const int threads : {2, 3, 8}) {
                Invocation elsewhere(operation, type, sizes, [](const Operand &operand, const Shape &shape) {
                    const bool moves = operand.role != Role::parameter && shape.size() > 1;
                    return Form{shape, moves ? padded_strides(shape, 5) : Shape(), Placement::starts_at_guard,
                                operand.role == Role::parameter ? 0 : 1, 0};
                });
                elsewhere.copy_inputs_from(call);
                const Context context(isa, threads);
                ASSERT_EQ(prepared(context.get(), elsewhere.arguments.data(), elsewhere.scalars.data()), HALYARD_OK)
                    << halyard_last_error();
                EXPECT_TRUE(same_bits(type, bits, elsewhere.output_bits()))
                    << "  with " << halyard_isa_name(isa) << " on " << threads << " threads, " << call.describe();
                EXPECT_TRUE(elsewhere.surroundings_intact());
            }
        }
    }
}

TEST_P(TensorOperation, HasTheSameBitsOnEveryInstructionSet) {
    for (const Sizes &sizes : sizes_of(operation)) {
        Invocation call(operation, type, sizes);
        call.fill(7);
        std::vector<std::uint32_t> bits;
        for (const halyard_isa isa : operations::fused_isas()) {
            call.clear_outputs();
            ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
            bits = bits.empty() ? call.output_bits() : bits;
            EXPECT_TRUE(same_bits(type, bits, call.output_bits())) << "  with " << halyard_isa_name(isa);
        }
    }
}

TEST_P(TensorOperation, HasTheSameBitsInPlace) {
    for (const std::vector<Alias> &aliases : operation.in_place) {
        for (const Sizes &sizes : sizes_of(operation)) {
            Invocation apart(operation, type, sizes), in_place(operation, type, sizes);
            apart.fill(8);
            in_place.fill(8);
            in_place.alias(aliases);
            const Context context;
            ASSERT_EQ(apart.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(in_place.run(context.get()), HALYARD_OK) << halyard_last_error();
            for (const Alias &alias : aliases) {
                EXPECT_TRUE(
                    same_bits(type, apart.tensors[alias.output]->all_bits(), in_place.tensors[alias.input]->all_bits()))
                    << apart.describe();
            }
            EXPECT_TRUE(in_place.surroundings_intact());
        }
    }
}

TEST_P(TensorOperation, RefusesTensorsThatAreNull) {
    for (std::size_t i = 0; i < operation.operands.size(); i++) {
        const Operand &operand = operation.operands[i];
        // Bits of weights and caches are tested where they are made.
        if (operand.optional || operand.role == Role::parameter || operation.label == "kv_cache" ||
            operation.label.substr(0, 4) == "rope") {
            continue;
        }
        Invocation call(operation, type, sizes_of(operation)[1]);
        call.fill(8);
        call.arguments[i] = nullptr;
        EXPECT_EQ(call.run(nullptr), HALYARD_INVALID_ARGUMENT) << operand.name;
        EXPECT_NE(std::string(halyard_last_error()).find(operand.name), std::string::npos) << halyard_last_error();
    }
}

TEST(Q4KBlocks, AreNearTheirWeights) {
    constexpr std::int64_t in = 512;
    const auto row = [](std::int64_t output) {
        Row weights;
        for (std::int64_t k = 0; k < in; k++) {
            weights.push_back(output == 2 ? 0 : 0.02 * bell(9, output, k) + (output == 1 ? 0.1 : 0));
        }
        return weights;
    };
    const operations::Q4KMatrix blocks(3, in, row);
    EXPECT_EQ(blocks.bytes_of_row(), 288);
    for (const std::int64_t output : {0, 1, 2}) {
        const Row weights = row(output), values = blocks.row(output);
        ASSERT_EQ(values.size(), weights.size());
        double error = 0, magnitude = 0;
        for (std::size_t k = 0; k < weights.size(); k++) {
            error += (values[k] - weights[k]) * (values[k] - weights[k]);
            magnitude += weights[k] * weights[k];
        }
        EXPECT_LE(error, 0.01 * magnitude) << output;
    }
}

std::vector<OperationCase> cases() {
    std::vector<OperationCase> all;
    for (const Operation &operation : operations::tensor_operations()) {
        for (const Dtype type : all_dtypes) {
            all.push_back({&operation, type});
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, TensorOperation, testing::ValuesIn(cases()), name_of_case);
HALYARD_TEST_MAY_BE_EMPTY(TensorOperation);

}  // namespace
}  // namespace halyard::tests
