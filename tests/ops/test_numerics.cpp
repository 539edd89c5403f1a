// Numerics as an interface: the bits of a row do not depend on the other rows, on the row's place, on the threads or
// (in f32) on the instruction set; forms that say they agree, agree bit for bit.
#include "support/invocation.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

#include <thread>

namespace halyard::tests {
namespace {

/** The bits of one row of every output. */
std::vector<std::uint32_t> row_bits(const Invocation &call, std::int64_t row) {
    std::vector<std::uint32_t> bits;
    for (const std::size_t output : call.operation.with_role(Role::output)) {
        const bool is_by_row = call.operation.operands[output].is_by_row();
        for (std::int64_t i = 0; is_by_row && i < call.tensors[output]->width(); i++) {
            bits.push_back(call.tensors[output]->bits(row, i));
        }
    }
    return bits;
}

/** Row `from` of every input of `source` becomes row `to` of the inputs of `target`; the parameters become the same. */
void copy_row(const Invocation &source, std::int64_t from, Invocation &target, std::int64_t to) {
    for (std::size_t operand = 0; operand < source.tensors.size(); operand++) {
        const Role role = source.operation.operands[operand].role;
        const bool parameter = role == Role::parameter;
        if (role == Role::output) {
            continue;
        }
        for (std::int64_t i = 0; i < source.tensors[operand]->width(); i++) {
            target.tensors[operand]->set_bits(parameter ? 0 : to, i,
                                              source.tensors[operand]->bits(parameter ? 0 : from, i));
        }
    }
}

class Bits : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;
};

TEST_P(Bits, OfARowDoNotDependOnTheOtherRowsOrItsPlace) {
    for (const std::int64_t width : {1, 7, 64, 65, reduced ? 150 : 1000}) {
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa);
            Invocation batch(operation, type, {9, width});
            batch.fill(31);
            ASSERT_EQ(batch.run(context.get()), HALYARD_OK) << halyard_last_error();
            for (const std::int64_t row : {0, 4, 8}) {
                // Alone, and at another place of a batch of another size, with a pitch.
                Invocation alone(operation, type, {width});
                Invocation elsewhere(operation, type, {3, 2, width}, [](const Operand &, const Shape &shape) {
                    return Form{shape, padded_strides(shape, shape.size() == 1 ? 0 : 9), Placement::starts_at_guard, 1,
                                0};
                });
                elsewhere.fill(37);
                copy_row(batch, row, alone, 0);
                copy_row(batch, row, elsewhere, 3);
                ASSERT_EQ(alone.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(elsewhere.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(row_bits(alone, 0), row_bits(batch, row))
                    << "row " << row << " of width " << width << " alone with " << halyard_isa_name(isa);
                ASSERT_EQ(row_bits(elsewhere, 3), row_bits(batch, row))
                    << "row " << row << " of width " << width << " elsewhere with " << halyard_isa_name(isa);
            }
        }
    }
}

class BitsOfElementwise : public Bits {};

TEST_P(BitsOfElementwise, AnElementDoNotDependOnItsColumn) {
    // Equal inputs everywhere: whether a feature is done by a whole vector or by the rest of a row must not show.
    for (const double value : {-3.7, -0.31, 0.0131, 0.77, 2.9, 17.3}) {
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa);
            for (const std::int64_t width : {1, 3, 8, 67, 150}) {
                Invocation call(operation, type, {2, width}), single(operation, type, {1});
                for (const std::size_t input : operation.with_role(Role::input)) {
                    call.tensors[input]->fill([&](std::int64_t, std::int64_t) { return value; });
                    single.tensors[input]->fill([&](std::int64_t, std::int64_t) { return value; });
                }
                ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(single.run(context.get()), HALYARD_OK) << halyard_last_error();
                const bool interleaved = operation.label.find("interleaved") != std::string::npos;
                for (const std::size_t output : operation.with_role(Role::output)) {
                    const Tensor &y = *call.tensors[output], &one = *single.tensors[output];
                    for (std::int64_t row = 0; row < 2; row++) {
                        for (std::int64_t i = 0; i < y.width(); i++) {
                            const std::int64_t same = interleaved ? i % one.width() : i / width;
                            ASSERT_EQ(y.bits(row, i), one.bits(0, same))
                                << value << " in column " << i << " of " << operation.operands[output].name
                                << ", with width " << width << " and " << halyard_isa_name(isa);
                        }
                    }
                }
            }
        }
    }
}

TEST_P(Bits, OfARowDoNotDependOnTheThreads) {
    // Large enough that a second to fourth thread gets work: many short rows, few long ones, one very long one.
    // In an emulator or under a sanitizer an operation has one of them, which gives work to three threads.
    const std::vector<int> thread_counts = {2, 3, 4}, few = {3};
    const std::vector<Shape> large = {{751, 131}, {5, 2, 9001}, {1, 100003}},
                             smaller = {{301, 131}, {5, 2, 4001}, {1, 40009}};
    std::size_t turn = operation.label.size() + static_cast<std::size_t>(type);
    for (const Shape &shape : reduced ? smaller : large) {
        if (reduced && turn++ % 3 != 0) {
            continue;
        }
        Invocation serial(operation, type, shape);
        serial.fill(41);
        const halyard_isa isa = supported_isas().back();
        ASSERT_EQ(serial.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
        const std::vector<std::uint32_t> expected = serial.output_bits();
        Invocation parallel(operation, type, shape);
        parallel.copy_inputs_from(serial);
        for (const int threads : reduced ? few : thread_counts) {
            const Context context(isa, threads);
            parallel.clear_outputs();
            ASSERT_EQ(parallel.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(same_bits(type, expected, parallel.output_bits()))
                << threads << " threads; " << parallel.describe();
        }
        ReverseThreads own;
        const Context context(isa, 3);
        ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &own), HALYARD_OK);
        parallel.clear_outputs();
        ASSERT_EQ(parallel.run(context.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_TRUE(same_bits(type, expected, parallel.output_bits())) << "own threads; " << parallel.describe();
        // One row of a row operation is one task, which needs no parallel-for. Sums over rows are shared in other ways.
        const bool divisible = !operation.needs_features || parallel.tensors[0]->rows() > 1;
        if (!operation.sums_rows()) {
            EXPECT_EQ(own.calls, divisible ? 1 : 0) << parallel.describe();
            EXPECT_EQ(own.tasks, divisible ? 3 : 0) << parallel.describe();
        }
        ASSERT_TRUE(parallel.surroundings_intact());
    }
}

TEST(InstructionSets, WithFusedMultiplyAddGiveTheSameBits) {
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.size() < 2) {
        GTEST_SKIP()
            << "this machine runs fewer than two instruction sets with fused multiply-add; GoldenBits stands in";
    }
    for (const OperationCase &each : operation_cases()) {
        for (const Shape &shape : {Shape{3, 1000}, Shape{5, 127}, Shape{1, 4097}, Shape{2, 64}, Shape{4, 1}}) {
            std::vector<std::uint32_t> expected;
            for (const halyard_isa isa : isas) {
                Invocation call(*each.operation, each.type, shape);
                call.fill(43);
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                if (expected.empty()) {
                    expected = call.output_bits();
                }
                EXPECT_TRUE(same_bits(each.type, expected, call.output_bits()))
                    << halyard_isa_name(isa) << "; " << call.describe();
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Bits, testing::ValuesIn(operation_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, BitsOfElementwise,
                         testing::ValuesIn(operation_cases([](const Operation &each) { return !each.needs_features; })),
                         name_of_case);
HALYARD_TEST_MAY_BE_EMPTY(BitsOfElementwise);

// ---- Bits that every target with fused multiply-add must give ----------------------------------------------------

/** A hash of the f32 results of an operation on inputs that are the same everywhere. */
std::string results_hash(const Operation &operation, halyard_isa isa) {
    BitsHash results;
    const Context context(isa);
    for (const Shape &shape :
         {Shape{3, 1000}, Shape{5, 127}, Shape{1, 4097}, Shape{2, 64}, Shape{4, 1}, Shape{40, 40}}) {
        Invocation call(operation, Dtype::f32, shape);
        call.fill(47);
        if (shape[0] == 40) {
            // Every exponent, both signs, infinities and NaN among ordinary rows.
            for (const std::size_t input : operation.with_role(Role::input)) {
                Tensor &tensor = *call.tensors[input];
                for (std::int64_t row = 1; row < 40; row += 2) {
                    for (std::int64_t i = 0; i < tensor.width(); i++) {
                        tensor.set_bits(row, i,
                                        static_cast<std::uint32_t>(
                                            hash(53, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i))));
                    }
                }
            }
        }
        EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        results.add(call.output_bits());
    }
    return results.text();
}

TEST(GoldenBits, EveryInstructionSetWithFusedMultiplyAddGivesThem) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_F32)
    expect_reference_hashes("operations", [](halyard_isa isa) {
        Hashes hashes;
        for (const Operation &operation : all_operations()) {
            hashes[operation.label] = results_hash(operation, isa);
        }
        return hashes;
    });
}

// ---- Forms that agree --------------------------------------------------------------------------------------------

class Forms : public testing::TestWithParam<Dtype> {
protected:
    const Dtype type = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Types, Forms, testing::ValuesIn(all_dtypes),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

/** add followed by the plain norm with the same parameters. */
TEST_P(Forms, AddNormIsAddThenNorm) {
    for (const Operation &fused : all_operations()) {
        if (fused.label.compare(0, 4, "add_") != 0) {
            continue;
        }
        const Operation &plain = operation(fused.label.substr(4));
        for (const Shape &shape : {Shape{7, 67}, Shape{2, 3, 4097}, Shape{130, 96}}) {
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa, 2);
                Invocation one(fused, type, shape), sum(operation("add"), type, shape), norm(plain, type, shape);
                one.fill(59);
                sum.tensors[0]->copy_from(*one.tensors[0]);
                sum.tensors[1]->copy_from(*one.tensors[1]);
                ASSERT_EQ(one.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(sum.run(context.get()), HALYARD_OK) << halyard_last_error();
                norm.tensors[0]->copy_from(*sum.tensors[2]);
                // Parameters follow x in the plain form, x and residual in the fused one.
                for (std::size_t i = 1; i + 1 < norm.tensors.size(); i++) {
                    norm.tensors[i]->copy_from(*one.tensors[i + 1]);
                }
                ASSERT_EQ(norm.run(context.get()), HALYARD_OK) << halyard_last_error();
                const std::size_t last = one.tensors.size() - 1;
                EXPECT_TRUE(same_bits(type, sum.tensors[2]->all_bits(), one.tensors[last - 1]->all_bits()))
                    << fused.label << " residual_out with " << halyard_isa_name(isa);
                EXPECT_TRUE(same_bits(type, norm.tensors.back()->all_bits(), one.tensors[last]->all_bits()))
                    << fused.label << " y with " << halyard_isa_name(isa);
            }
        }
    }
}

/** Norms with vectors in f32 beside 16-bit rows are those of the same numbers in f32, rounded once. */
TEST_P(Forms, MixedNormsAreThoseInF32RoundedOnce) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_F32)
    for (const Operation &mixed : all_operations()) {
        // A sum with a residual is rounded before it is normalized: AddNormIsAddThenNorm.
        if (mixed.label.find(".f32_") == std::string::npos || mixed.label.compare(0, 4, "add_") == 0) {
            continue;
        }
        for (const Shape &shape : {Shape{7, 67}, Shape{2, 3, 4097}, Shape{130, 96}}) {
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa, 2);
                Invocation rounded(mixed, type, shape), in_f32(mixed, Dtype::f32, shape);
                rounded.fill(67);
                for (std::size_t i = 0; i < mixed.operands.size(); i++) {
                    if (mixed.operands[i].role != Role::output) {
                        in_f32.tensors[i]->fill(
                            [&](std::int64_t row, std::int64_t k) { return rounded.tensors[i]->get(row, k); });
                    }
                }
                ASSERT_EQ(rounded.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(in_f32.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (const std::size_t output : mixed.with_role(Role::output)) {
                    const Tensor &got = *rounded.tensors[output], &wide = *in_f32.tensors[output];
                    Tensor expected(got.dtype(), got.form());
                    expected.fill([&](std::int64_t row, std::int64_t k) { return wide.get(row, k); });
                    EXPECT_TRUE(same_bits(got.dtype(), expected.all_bits(), got.all_bits()))
                        << mixed.operands[output].name << " with " << halyard_isa_name(isa) << "; "
                        << rounded.describe();
                }
            }
        }
    }
}

TEST_P(Forms, PackedUnitsAreTheUnitsOnTwoTensors) {
    HALYARD_TEST_NEEDS(is_built("glu"))
    int compared = 0;
    for (const Operation &packed : all_operations()) {
        if (packed.function.find("_packed") == std::string::npos) {
            continue;
        }
        const std::size_t layout_at = packed.label.rfind('.');
        const std::string layout = packed.label.substr(layout_at + 1);
        const Operation &split = operation(packed.label.substr(0, layout_at));
        for (const Shape &shape : {Shape{130}, Shape{3, 67}, Shape{2, 2, 1000}}) {
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa);
                Invocation two(split, type, shape), one(packed, type, shape);
                two.fill(61);
                const std::int64_t width = shape.back();
                // Calls visit(row, i, place of the gate, place of the up).
                const auto for_each = [&](const auto &visit) {
                    for (std::int64_t row = 0; row < two.tensors[0]->rows(); row++) {
                        for (std::int64_t i = 0; i < width; i++) {
                            const std::int64_t gate_at = layout == "interleaved" ? 2 * i
                                                         : layout == "gate_up"   ? i
                                                                                 : width + i;
                            const std::int64_t up_at = layout == "interleaved" ? 2 * i + 1
                                                       : layout == "gate_up"   ? width + i
                                                                               : i;
                            visit(row, i, gate_at, up_at);
                        }
                    }
                };
                for_each([&](std::int64_t row, std::int64_t i, std::int64_t gate_at, std::int64_t up_at) {
                    one.tensors[0]->set_bits(row, gate_at, two.tensors[0]->bits(row, i));
                    one.tensors[0]->set_bits(row, up_at, two.tensors[1]->bits(row, i));
                });
                const bool is_gradient = !packed.gradient_of.empty();
                if (is_gradient) {
                    one.tensors[1]->copy_from(*two.tensors[2]);
                }
                ASSERT_EQ(two.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(one.run(context.get()), HALYARD_OK) << halyard_last_error();
                std::vector<std::uint32_t> got = one.output_bits(), expected = two.output_bits();
                if (is_gradient) {
                    for_each([&](std::int64_t row, std::int64_t i, std::int64_t gate_at, std::int64_t up_at) {
                        const std::int64_t first = row * 2 * width;
                        expected[static_cast<std::size_t>(first + gate_at)] = two.tensors[3]->bits(row, i);
                        expected[static_cast<std::size_t>(first + up_at)] = two.tensors[4]->bits(row, i);
                    });
                }
                EXPECT_TRUE(same_bits(type, expected, got)) << packed.label << " with " << halyard_isa_name(isa);
                compared++;
            }
        }
    }
    EXPECT_GT(compared, 0);
}

TEST_P(Forms, CastsThereAndBackKeepTheBits) {
    HALYARD_TEST_NEEDS(is_built("cast"))
    // 16 bits to f32 and back, and equal types: nothing is lost but the payload of a NaN.
    for (const Dtype between : {Dtype::f32, type}) {
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa);
            const std::int64_t count = 1 << 16;
            Invocation there(operation(std::string("cast_to_") + name_of(between)), type, {count});
            Invocation back(operation(std::string("cast_to_") + name_of(type)), between, {count});
            for (std::int64_t i = 0; i < count; i++) {
                const std::uint32_t bits =
                    type == Dtype::f32 ? static_cast<std::uint32_t>(i * 65537) : static_cast<std::uint32_t>(i);
                there.tensors[0]->set_bits(0, i, bits);
            }
            ASSERT_EQ(there.run(context.get()), HALYARD_OK) << halyard_last_error();
            back.tensors[0]->copy_from(*there.tensors[1]);
            ASSERT_EQ(back.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_bits(type, there.tensors[0]->all_bits(), back.tensors[1]->all_bits()))
                << "through " << name_of(between) << " with " << halyard_isa_name(isa);
        }
    }
}

TEST_P(Forms, CastsRoundToNearestEven) {
    HALYARD_TEST_NEEDS(is_built("cast"))
    // Values, midpoints and the numbers beside them, from f32 to the 16-bit types, overflow and NaN among them. f32
    // holds every value of the other types.
    if (type == Dtype::f32) {
        return;
    }
    const std::int64_t count = 3 * (1 << 16);
    for (const halyard_isa isa : row_isas()) {
        Invocation call(operation(std::string("cast_to_") + name_of(type)), Dtype::f32, {count});
        for (std::uint32_t bits = 0; bits < 1 << 16; bits++) {
            const double value = decode(type, bits);
            const double toward = (bits & 0x8000u) != 0 ? -1 : 1;
            const double middle = value + toward * spacing(type, value) / 2;
            const std::uint32_t near = encode(Dtype::f32, middle);
            call.tensors[0]->set_bits(0, 3 * bits, near);
            call.tensors[0]->set_bits(0, 3 * bits + 1, near - 1);
            call.tensors[0]->set_bits(0, 3 * bits + 2, near + 1);
        }
        const Context context(isa);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(call.check(call.expected())) << "  with " << halyard_isa_name(isa);
    }
}

}  // namespace
}  // namespace halyard::tests
