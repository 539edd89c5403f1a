// What holds for every operation, type and instruction set: results within the stated error of the float64 reference
// for every width, row count and memory layout; nothing read or written outside the tensors; in place as documented.
#include "support/invocation.h"
#include "support/test_scale.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace halyard::tests {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

class EveryOperation : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;

    /** Calls with every instruction set and compares with one reference. */
    void expect_right(const Shape &shape, const Invocation::Arrange &arrange, std::uint64_t seed) const {
        Invocation call(operation, type, shape, arrange);
        call.fill(seed);
        expect_right(call);
    }
    static void expect_right(Invocation &call) {
        const std::vector<Matrix> expected = call.expected();
        for (const halyard_isa isa : row_isas()) {
            call.clear_outputs();
            ASSERT_EQ(call.run(lasting_context(isa)), HALYARD_OK) << halyard_last_error() << "; " << call.describe();
            ASSERT_TRUE(call.check(expected)) << "  with " << halyard_isa_name(isa);
        }
    }

    /** Calls with some outputs in place of inputs and compares with a call on separate tensors. */
    void expect_same_in_place(const Shape &shape, const Invocation::Arrange &arrange, const std::vector<Alias> &aliases,
                              halyard_isa isa) const {
        const halyard_context *const context = lasting_context(isa);
        Invocation apart(operation, type, shape, arrange), in_place(operation, type, shape, arrange);
        apart.fill(7);
        in_place.fill(7);
        in_place.alias(aliases);
        ASSERT_EQ(apart.run(context), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(in_place.run(context), HALYARD_OK) << halyard_last_error() << "; " << apart.describe();
        ASSERT_TRUE(in_place.surroundings_intact());

        for (const std::size_t output : operation.with_role(Role::output)) {
            const Alias *alias = nullptr;
            for (const Alias &candidate : aliases) {
                alias = candidate.output == output ? &candidate : alias;
            }
            const Tensor &expected = *apart.tensors[output];
            const Tensor &got = *in_place.tensors[alias != nullptr ? alias->input : output];
            const std::int64_t first = alias != nullptr ? alias->half * expected.width() : 0;
            for (std::int64_t row = 0; row < expected.rows(); row++) {
                for (std::int64_t i = 0; i < expected.width(); i++) {
                    ASSERT_EQ(got.bits(row, first + i), expected.bits(row, i))
                        << operation.operands[output].name << "[row " << row << ", " << i << "] in place of "
                        << (alias != nullptr ? operation.operands[alias->input].name : "nothing") << "; "
                        << apart.describe();
                }
            }
            // The half of a packed input that the output does not replace stays.
            if (alias != nullptr && got.width() > expected.width()) {
                const std::int64_t other = (1 - alias->half) * expected.width();
                for (std::int64_t row = 0; row < expected.rows(); row++) {
                    for (std::int64_t i = 0; i < expected.width(); i++) {
                        ASSERT_EQ(got.bits(row, other + i), apart.tensors[alias->input]->bits(row, other + i));
                    }
                }
            }
        }
    }
};

TEST_P(EveryOperation, IsRightForEveryWidthAndRowCount) {
    const std::vector<std::int64_t> all_widths = {1,  2,  3,  7,   8,   15,  16,   17,   31,   32,   33,
                                                  63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 33001};
    // Whole vectors, one element more and one less; one row that is long.
    const std::vector<std::int64_t> reduced_widths = {
        1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 129, emulated ? 1027 : 4097};
    for (const std::int64_t width : reduced ? reduced_widths : all_widths) {
        // A few long rows say as much as many.
        const bool few = emulated || (reduced && width > 64);
        const std::vector<std::int64_t> row_counts =
            width > 4097   ? std::vector<std::int64_t>{2}
            : width > 1000 ? (reduced ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, 3})
            : few          ? std::vector<std::int64_t>{3}
            : reduced      ? std::vector<std::int64_t>{2, 17}
                           : std::vector<std::int64_t>{1, 2, 3, 5, 17};
        for (const std::int64_t rows : row_counts) {
            const auto seed = static_cast<std::uint64_t>(width * 32 + rows);
            ASSERT_NO_FATAL_FAILURE(expect_right({rows, width}, Invocation::compact, seed));
            if (width <= 4097) {
                ASSERT_NO_FATAL_FAILURE(expect_right({rows, width}, Invocation::at_start, seed));
            }
        }
    }
}

TEST_P(EveryOperation, IsRightForEveryMemoryLayout) {
    // What one operand's tensor of this shape looks like; inputs and outputs differ, so that a pitch taken from the
    // wrong tensor shows.
    const auto padded = [](const Operand &operand, const Shape &shape) {
        return Form{shape, padded_strides(shape, operand.role == Role::output ? 5 : 3), Placement::ends_at_guard, 0, 0};
    };
    const auto padded_input = [](const Operand &operand, const Shape &shape) {
        const Shape strides = operand.role == Role::input ? padded_strides(shape, 64) : Shape{};
        return Form{shape, strides, Placement::starts_at_guard, 0, 0};
    };
    const auto padded_output = [](const Operand &operand, const Shape &shape) {
        const Shape strides = operand.role == Role::output ? padded_strides(shape, 1) : Shape{};
        return Form{shape, strides, Placement::ends_at_guard, 0, 0};
    };
    const auto misaligned = [](const Operand &operand, const Shape &shape) {
        return Form{shape, {}, Placement::starts_at_guard, operand.role == Role::output ? 1 : 3, 0};
    };
    const auto offset = [](const Operand &operand, const Shape &shape) {
        return Form{shape, {}, Placement::ends_at_guard, 0, operand.role == Role::output ? 4096 + 4 : 12};
    };
    // Every second index of each leading axis of a larger tensor.
    const auto sliced = [](const Operand &, const Shape &shape) {
        Shape whole = shape;
        for (std::size_t axis = 0; axis + 1 < whole.size(); axis++) {
            whole[axis] = 2 * whole[axis] + 1;
        }
        Shape strides = compact_strides(whole);
        for (std::size_t axis = 0; axis + 1 < strides.size(); axis++) {
            strides[axis] *= 2;
        }
        return Form{shape, strides, Placement::ends_at_guard, 0, 0};
    };
    // Leading axes stored in the reverse order, in the inputs alone or in the outputs alone.
    const auto permuted = [](bool outputs) {
        return [outputs](const Operand &operand, const Shape &shape) {
            Form form{shape, {}, Placement::ends_at_guard, 0, 0};
            if (operand.role != Role::parameter && (operand.role == Role::output) == outputs) {
                std::int64_t stride = shape.back();
                form.strides = compact_strides(shape);
                for (std::size_t axis = 0; axis + 1 < shape.size(); axis++) {
                    form.strides[axis] = stride;
                    stride *= shape[axis];
                }
            }
            return form;
        };
    };
    // The first or the last leading axis of every input repeats one slice.
    const auto broadcast = [](bool first) {
        return [first](const Operand &operand, const Shape &shape) {
            Form form{shape, {}, Placement::ends_at_guard, 0, 0};
            if (operand.role == Role::input) {
                form.strides = compact_strides(shape);
                form.strides[first ? 0 : shape.size() - 2] = 0;
            }
            return form;
        };
    };
    // Strides of axes with one index mean nothing.
    const auto odd_unit_strides = [](const Operand &, const Shape &shape) {
        Form form{shape, compact_strides(shape), Placement::ends_at_guard, 0, 0};
        for (std::size_t axis = 0; axis + 1 < shape.size(); axis++) {
            form.strides[axis] = shape[axis] == 1 ? static_cast<std::int64_t>(axis) * 7 : form.strides[axis];
        }
        return form;
    };

    std::uint64_t seed = 1;
    const std::vector<std::int64_t> all_widths = {1, 5, 64, 67, 130}, reduced_widths = {1, 67};
    for (const std::int64_t width : reduced ? reduced_widths : all_widths) {
        ASSERT_NO_FATAL_FAILURE(expect_right({width}, Invocation::compact, seed++));
        ASSERT_NO_FATAL_FAILURE(expect_right({width}, misaligned, seed++));
        ASSERT_NO_FATAL_FAILURE(expect_right({width}, offset, seed++));
        for (const Invocation::Arrange &arrange :
             {Invocation::Arrange(padded), Invocation::Arrange(padded_input), Invocation::Arrange(padded_output),
              Invocation::Arrange(misaligned), Invocation::Arrange(offset), Invocation::Arrange(sliced),
              Invocation::Arrange(broadcast(true))}) {
            ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, arrange, seed++));
            ASSERT_NO_FATAL_FAILURE(expect_right({2, 3, width}, arrange, seed++));
            ASSERT_NO_FATAL_FAILURE(expect_right({2, 1, 3, width}, arrange, seed++));
        }
        for (const Invocation::Arrange &arrange :
             {Invocation::Arrange(permuted(false)), Invocation::Arrange(permuted(true)),
              Invocation::Arrange(broadcast(false)), Invocation::Arrange(odd_unit_strides)}) {
            ASSERT_NO_FATAL_FAILURE(expect_right({2, 3, width}, arrange, seed++));
            ASSERT_NO_FATAL_FAILURE(expect_right({3, 2, 2, width}, arrange, seed++));
            ASSERT_NO_FATAL_FAILURE(expect_right({1, 3, 1, width}, arrange, seed++));
        }
    }
}

TEST_P(EveryOperation, InPlaceGivesTheSameBits) {
    const auto padded = [](const Operand &, const Shape &shape) {
        return Form{shape, padded_strides(shape, shape.size() == 1 ? 0 : 7), Placement::ends_at_guard, 0, 0};
    };
    for (const std::vector<Alias> &aliases : operation.in_place) {
        for (const halyard_isa isa : row_isas()) {
            // Rows of which a block (norm.cpp) does not hold all.
            const Shape several_blocks = reduced ? Shape{7, 700} : Shape{5, 4096};
            for (const Shape &shape : {Shape{1}, Shape{67}, Shape{3, 33}, several_blocks, Shape{2, 2, 129}}) {
                ASSERT_NO_FATAL_FAILURE(expect_same_in_place(shape, Invocation::compact, aliases, isa));
                ASSERT_NO_FATAL_FAILURE(expect_same_in_place(shape, padded, aliases, isa));
            }
            // Every rest of rows of no vector, of one and of two: on ARM a rest overlaps the vector before it.
            for (std::int64_t width = 1; width <= 17; width++) {
                ASSERT_NO_FATAL_FAILURE(expect_same_in_place({2, width}, padded, aliases, isa));
            }
        }
    }
}

TEST_P(EveryOperation, LeavesEmptyTensorsAlone) {
    std::vector<Shape> shapes = {{0, 16}, {3, 0, 16}, {0, 2, 2, 16}};
    if (!operation.needs_features) {
        shapes.insert(shapes.end(), {{0}, {4, 0}, {2, 3, 0}});
    }
    for (const Shape &shape : shapes) {
        Invocation call(operation, type, shape);
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error() << "; " << call.describe();
        EXPECT_TRUE(call.surroundings_intact());
        // An empty tensor needs no memory.
        for (DLTensor *argument : call.arguments) {
            if (argument->ndim > 1 || argument->shape[0] == 0) {
                argument->data = nullptr;
            }
        }
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error() << "; " << call.describe();
    }
}

/** Zeros, denormals, the ends of the range, infinities, NaN, and values between where functions saturate. */
std::vector<double> special_values(Dtype type) {
    std::vector<double> values = {0.0,
                                  1.0,
                                  0.5,
                                  2.0,
                                  3.25,
                                  8.0,
                                  20.0,
                                  88.0,
                                  90.0,
                                  104.0,
                                  150.0,
                                  1e-3,
                                  1e-6,
                                  1e4,
                                  6e4,
                                  min_denormal(type),
                                  3 * min_denormal(type),
                                  min_normal(type),
                                  min_normal(type) - min_denormal(type),
                                  max_finite(type),
                                  infinity};
    if (type != Dtype::f16) {
        values.insert(values.end(), {1e-20, 1e-38, 1e10, 1e19, 1e30});
    }
    const std::size_t positive = values.size();
    for (std::size_t i = 0; i < positive; i++) {
        values.push_back(-values[i]);
    }
    values.push_back(not_a_number);
    for (double &value : values) {
        value = round_to(type, value);
    }
    return values;
}

class ElementwiseOperation : public EveryOperation {};
class RowOperation : public EveryOperation {};

TEST_P(ElementwiseOperation, IsRightForSpecialValues) {
    const std::vector<double> values = special_values(type);
    const auto count = static_cast<std::int64_t>(values.size());
    // Each combination of values: the last operand, or the last half of a packed row, has all values for each combination of
    // those before it.
    std::vector<std::int64_t> repeats;  // by operand or half: the rows for which it has the same value
    std::int64_t parts = 0, rows = 1;
    for (const std::size_t input : operation.with_role(Role::input)) {
        parts += operation.operands[input].times();
    }
    for (std::int64_t part = 0; part < std::max<std::int64_t>(parts - 1, 1); part++) {
        repeats.insert(repeats.begin(), rows);
        rows *= count;
    }
    const Shape shape = {rows, count};
    const auto value = [&](std::int64_t part, std::int64_t row, std::int64_t i) {
        const std::int64_t index = part == parts - 1 ? i : row / repeats[static_cast<std::size_t>(part)] % count;
        return values[static_cast<std::size_t>(index)];
    };
    const bool interleaved = operation.label.find("interleaved") != std::string::npos;
    Invocation call(operation, type, shape);
    std::int64_t part = 0;
    for (const std::size_t input : operation.with_role(Role::input)) {
        const std::int64_t times = operation.operands[input].times();
        call.tensors[input]->fill([&](std::int64_t row, std::int64_t i) {
            return interleaved && times > 1 ? value(part + i % times, row, i / times)
                                            : value(part + i / count, row, i % count);
        });
        part += times;
    }
    expect_right(call);
}

TEST_P(RowOperation, IsRightForSpecialRows) {
    // One special value per row, at a place that moves, between ordinary rows.
    const std::vector<double> values = special_values(type);
    const auto rows = static_cast<std::int64_t>(2 * values.size() + 1);
    for (const std::int64_t width : {1, 7, 67, 300}) {
        if (reduced && width > 100) {
            continue;
        }
        Invocation call(operation, type, {rows, width}), ordinary(operation, type, {rows, width});
        call.fill(11);
        ordinary.fill(11);
        Tensor &x = *call.tensors[0];
        for (std::size_t i = 0; i < values.size(); i++) {
            const auto row = static_cast<std::int64_t>(2 * i + 1);
            x.set(row, static_cast<std::int64_t>(i * 29) % width, values[i]);
        }
        const std::vector<Matrix> expected = call.expected();
        for (const halyard_isa isa : row_isas()) {
            call.clear_outputs();
            ordinary.clear_outputs();
            ASSERT_EQ(call.run(lasting_context(isa)), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(call.check(expected)) << "  with " << halyard_isa_name(isa);

            // Ordinary rows have the bits they have without such neighbours.
            ASSERT_EQ(ordinary.run(lasting_context(isa)), HALYARD_OK) << halyard_last_error();
            for (const std::size_t output : operation.with_role(Role::output)) {
                for (std::int64_t row = 0; row < rows && operation.operands[output].is_by_row(); row += 2) {
                    for (std::int64_t i = 0; i < width; i++) {
                        ASSERT_EQ(call.tensors[output]->bits(row, i), ordinary.tensors[output]->bits(row, i))
                            << "row " << row << ", feature " << i << "; " << call.describe();
                    }
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, EveryOperation, testing::ValuesIn(operation_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOperation,
                         testing::ValuesIn(operation_cases([](const Operation &each) { return !each.needs_features; })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, RowOperation,
                         testing::ValuesIn(operation_cases([](const Operation &each) { return each.needs_features; })),
                         name_of_case);
HALYARD_TEST_MAY_BE_EMPTY(ElementwiseOperation);
HALYARD_TEST_MAY_BE_EMPTY(RowOperation);

TEST(TableOfKernels, EveryKernelHasAnOperation) {
    const char *const kernels[] = {
#define HALYARD_KERNEL(name) #name,
#include "kernels/tensorwise.inc"
#undef HALYARD_KERNEL
    };
    // A function that chooses among several kernels begins their names: rms_norm_weight, softmax_normalize.
    for (const std::string kernel : kernels) {
        bool found = false;
        for (const Operation &operation : all_operations()) {
            const std::string function = operation.function.substr(std::string("halyard_").size());
            found = found || (kernel + "_").compare(0, function.size() + 1, function + "_") == 0;
        }
        EXPECT_TRUE(found) << "kernel " << kernel << " belongs to no operation of all_operations()";
    }
}

}  // namespace
}  // namespace halyard::tests
