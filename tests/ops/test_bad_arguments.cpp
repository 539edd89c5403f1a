// Every bad argument of every function: the call fails with the right kind of status, the message names the function
// and the argument, and nothing is written.
#include "support/invocation.h"
#include "support/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "halyard/block.h"

namespace halyard::tests {
namespace {

constexpr std::int64_t rows = 3, width = 8;

/** A view that may be made wrong, with room for another shape and other strides. */
struct Change {
    explicit Change(DLTensor &view)
        : view(view), shape(view.shape, view.shape + view.ndim), strides(compact_strides(shape)) {}

    /** Makes the view take `shape` and `strides` as they are now. */
    void apply() {
        view.ndim = static_cast<int>(shape.size());
        view.shape = shape.data();
        view.strides = strides.data();
    }
    void apply_compact() {
        strides = compact_strides(shape);
        apply();
    }

    DLTensor &view;
    Shape shape, strides;
};

struct Mistake {
    const char *what;
    halyard_status status;
    void (*make)(Change &);
};

/** What may be wrong with any tensor on its own. */
const Mistake mistakes[] = {
    {"null data", HALYARD_INVALID_ARGUMENT, [](Change &c) { c.view.data = nullptr, c.view.byte_offset = 0; }},
    {"null shape", HALYARD_INVALID_ARGUMENT, [](Change &c) { c.view.shape = nullptr; }},
    {"CUDA device", HALYARD_UNSUPPORTED, [](Change &c) { c.view.device.device_type = kDLCUDA; }},
    {"OpenCL device", HALYARD_UNSUPPORTED, [](Change &c) { c.view.device.device_type = kDLOpenCL; }},
    {"device of no known type", HALYARD_UNSUPPORTED,
     [](Change &c) {
         const int type = 1000;
         std::memcpy(&c.view.device.device_type, &type, sizeof(type));
     }},
    {"int32", HALYARD_UNSUPPORTED,
     [](Change &c) {
         c.view.dtype = {kDLInt, 32, 1};
     }},
    {"uint16", HALYARD_UNSUPPORTED,
     [](Change &c) {
         c.view.dtype = {kDLUInt, 16, 1};
     }},
    {"f64", HALYARD_UNSUPPORTED,
     [](Change &c) {
         c.view.dtype = {kDLFloat, 64, 1};
     }},
    {"bf32", HALYARD_UNSUPPORTED,
     [](Change &c) {
         c.view.dtype = {kDLBfloat, 32, 1};
     }},
    {"two lanes", HALYARD_UNSUPPORTED, [](Change &c) { c.view.dtype.lanes = 2; }},
    {"no lanes", HALYARD_UNSUPPORTED, [](Change &c) { c.view.dtype.lanes = 0; }},
    {"rank 0", HALYARD_INVALID_ARGUMENT, [](Change &c) { c.view.ndim = 0; }},
    {"rank -1", HALYARD_INVALID_ARGUMENT, [](Change &c) { c.view.ndim = -1; }},
    {"rank 5", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.insert(c.shape.begin(), 5 - c.shape.size(), 1);
         c.apply_compact();
     }},
    {"negative width", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.back() = -c.shape.back();
         c.apply();
     }},
    {"last axis with stride 2", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides.back() = 2;
         c.apply();
     }},
    {"last axis with stride 0", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides.back() = 0;
         c.apply();
     }},
    {"last axis with stride -1", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides.back() = -1;
         c.apply();
     }},
    {"width beyond 64 bits of address", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.back() = std::numeric_limits<std::int64_t>::max();
         c.apply();
     }},
    {"data off by a byte", HALYARD_INVALID_ARGUMENT,
     [](Change &c) { c.view.data = static_cast<char *>(c.view.data) + 1; }},
    {"byte_offset off by a byte", HALYARD_INVALID_ARGUMENT, [](Change &c) { c.view.byte_offset++; }},
    {"byte_offset beyond all addresses", HALYARD_INVALID_ARGUMENT,
     [](Change &c) { c.view.byte_offset = -UINT64_C(4); }},
    {"data at the end of all addresses", HALYARD_INVALID_ARGUMENT,
     [](Change &c) { c.view.data = reinterpret_cast<void *>(~std::uintptr_t{7}); }},
    {"one feature more", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.back()++;
         c.apply_compact();
     }},
    {"one feature less", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.back()--;
         c.apply_compact();
     }},
    {"a leading axis more", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape.insert(c.shape.begin(), 1);
         c.apply_compact();
     }},
};

/** What may be wrong with a tensor that has rows. */
const Mistake mistakes_with_rows[] = {
    {"a row more", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape[0]++;
         c.apply_compact();
     }},
    {"a row less", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape[0]--;
         c.apply_compact();
     }},
    {"no rows", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape[0] = 0;
         c.apply_compact();
     }},
    {"the rows as one", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape = {c.shape[0] * c.shape[1]};
         c.apply_compact();
     }},
    {"negative rows", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.shape[0] = -1;
         c.apply();
     }},
    {"negative pitch", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.view.data = static_cast<char *>(c.view.data) + (c.shape[0] - 1) * c.strides[0] * (c.view.dtype.bits / 8);
         c.strides[0] = -c.strides[0];
         c.apply();
     }},
    {"pitch beyond 64 bits of address", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides[0] = std::numeric_limits<std::int64_t>::max() / 2;
         c.apply();
     }},
    {"transposed", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides = {1, c.shape[0]};
         c.apply();
     }},
};

/** What may be wrong with a tensor of rows that is written. */
const Mistake mistakes_of_outputs[] = {
    {"all rows in one place", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides[0] = 0;
         c.apply();
     }},
    {"rows that overlap by one element", HALYARD_INVALID_ARGUMENT,
     [](Change &c) {
         c.strides[0] = c.shape[1] - 1;
         c.apply();
     }},
};

class BadArguments : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;

    /** A call that would succeed. */
    std::unique_ptr<Invocation> good_call(const Shape &shape = {rows, width}) const {
        auto call = std::make_unique<Invocation>(operation, type, shape);
        call->fill(67);
        return call;
    }

    /** The call fails with `status` and a message about `argument`, and leaves all memory as it is. */
    void expect_refused(const Invocation &call, halyard_status status, const std::string &argument,
                        const std::string &what) const {
        std::vector<std::vector<std::uint8_t>> before;
        for (const auto &tensor : call.tensors) {
            before.push_back(tensor->snapshot());
        }
        const halyard_status got = call.run(nullptr);
        const std::string message = halyard_last_error();
        EXPECT_EQ(got, status) << argument << ": " << what << "; " << message;
        if (got != HALYARD_OK) {
            EXPECT_EQ(message.compare(0, operation.function.size() + 2, operation.function + ": "), 0)
                << argument << ": " << what << "; " << message;
            EXPECT_TRUE(contains_word(message.substr(std::min(message.size(), operation.function.size())), argument))
                << argument << ": " << what << "; " << message;
        }
        for (std::size_t i = 0; i < before.size(); i++) {
            EXPECT_TRUE(call.tensors[i]->snapshot() == before[i])
                << operation.operands[i].name << " was written though " << argument << " has: " << what;
        }
    }

    void expect_mistake_refused(std::size_t operand, const Mistake &mistake) const {
        const auto call = good_call();
        Change change(*call->arguments[operand]);
        mistake.make(change);
        expect_refused(*call, mistake.status, operation.operands[operand].name, mistake.what);
    }
};

TEST_P(BadArguments, TheGoodCallSucceeds) {
    const auto call = good_call();
    EXPECT_EQ(call->run(nullptr), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(call->check(call->expected()));
}

TEST_P(BadArguments, ATensorThatIsWrong) {
    for (std::size_t i = 0; i < operation.operands.size(); i++) {
        const Operand &operand = operation.operands[i];
        if (!operand.optional) {
            const auto call = good_call();
            call->arguments[i] = nullptr;
            expect_refused(*call, HALYARD_INVALID_ARGUMENT, operand.name, "null");
        }
        for (const Mistake &mistake : mistakes) {
            expect_mistake_refused(i, mistake);
        }
        if (operand.is_by_row()) {
            for (const Mistake &mistake : mistakes_with_rows) {
                expect_mistake_refused(i, mistake);
            }
        }
        if (operand.role == Role::output && operand.is_by_row()) {
            for (const Mistake &mistake : mistakes_of_outputs) {
                expect_mistake_refused(i, mistake);
            }
        }
    }
}

TEST_P(BadArguments, EveryTensorOfAnUnknownRank) {
    // The shapes agree, so that the rank itself must be refused.
    expect_refused(*good_call({1, 1, 1, rows, width}), HALYARD_INVALID_ARGUMENT, operation.operands[0].name, "rank 5");
    const auto call = good_call();
    for (std::size_t i = 0; i < operation.operands.size(); i++) {
        if (operation.operands[i].role != Role::parameter) {
            call->arguments[i]->ndim = 0;
        }
    }
    expect_refused(*call, HALYARD_INVALID_ARGUMENT, operation.operands[0].name, "rank 0");
}

class BadArgumentsOfOneType : public BadArguments {};
class BadArgumentsPacked : public BadArguments {};
class BadArgumentsOfRows : public BadArguments {};

TEST_P(BadArgumentsOfOneType, ATensorOfAnotherType) {
    for (std::size_t i = 0; i < operation.operands.size(); i++) {
        // A norm's vectors may be f32 beside any x: the operations of mixed types have them.
        const bool takes_f32 = operation.operands[i].role == Role::parameter;
        for (const Dtype other : all_dtypes) {
            if (other != type && !(takes_f32 && other == Dtype::f32)) {
                const auto call = good_call();
                call->arguments[i]->dtype = dlpack_type(other);
                expect_refused(*call, HALYARD_UNSUPPORTED, operation.operands[i].name,
                               std::string("type ") + name_of(other));
            }
        }
    }
}

TEST_P(BadArgumentsPacked, AnUnevenInput) {
    for (const std::int64_t uneven : {1, 15, 17}) {
        const auto call = good_call();
        Change change(*call->arguments[0]);
        change.shape.back() = uneven;
        change.apply_compact();
        expect_refused(*call, HALYARD_INVALID_ARGUMENT, "x", std::to_string(uneven) + " columns");
    }
}

TEST_P(BadArgumentsOfRows, RowsWithoutFeatures) {
    for (const Shape &shape : {Shape{0}, Shape{3, 0}, Shape{2, 2, 0}}) {
        expect_refused(*good_call(shape), HALYARD_INVALID_ARGUMENT, operation.operands[0].name,
                       "shape " + to_string(shape));
    }
}

TEST_P(BadArguments, AScalarOutOfRange) {
    for (std::size_t i = 0; i < operation.scalars.size(); i++) {
        for (const double refused : operation.scalars[i].refused) {
            const auto call = good_call();
            call->scalars[i] = refused;
            expect_refused(*call, HALYARD_INVALID_ARGUMENT, operation.scalars[i].name, std::to_string(refused));
            // Also where there is nothing to do.
            const auto empty = good_call({0, width});
            empty->scalars[i] = refused;
            expect_refused(*empty, HALYARD_INVALID_ARGUMENT, operation.scalars[i].name,
                           std::to_string(refused) + " on an empty tensor");
        }
    }
}

/** Whether the output may be the same view as the input, or as half of it. */
bool may_alias(const Operation &operation, std::size_t output, std::size_t input) {
    for (const std::vector<Alias> &aliases : operation.in_place) {
        if (aliases.size() == 1 && aliases[0].output == output && aliases[0].input == input) {
            return true;
        }
    }
    return false;
}

TEST_P(BadArguments, OverlappingMemory) {
    const auto bytes = static_cast<std::int64_t>(size_of(type));
    for (const std::size_t output : operation.with_role(Role::output)) {
        const char *const name = operation.operands[output].name;
        for (std::size_t other = 0; other < operation.operands.size(); other++) {
            if (other == output || operation.type_of(other, type) != operation.type_of(output, type)) {
                continue;
            }
            const std::string other_name = operation.operands[other].name;
            const std::int64_t other_width = width * operation.operands[other].times();
            // The output moved onto the other tensor, by whole elements from its start.
            const auto moved = [&](std::int64_t elements) {
                auto call = good_call();
                call->arguments[output]->data = static_cast<char *>(call->arguments[other]->data) + elements * bytes;
                return call;
            };
            for (const std::int64_t elements : {-1, 1, 3, static_cast<int>(width) - 1}) {
                expect_refused(*moved(elements), HALYARD_INVALID_ARGUMENT, name,
                               "starts " + std::to_string(elements) + " elements into " + other_name);
            }
            // A cast may be in place where it casts to its own type.
            if (operation.one_type() && !may_alias(operation, output, other)) {
                expect_refused(*moved(0), HALYARD_INVALID_ARGUMENT, name, "is " + other_name);
            }
            if (!operation.operands[other].is_by_row() || !operation.operands[output].is_by_row()) {
                continue;
            }
            // A whole row of the other tensor further.
            expect_refused(*moved(other_width), HALYARD_INVALID_ARGUMENT, name, "is one row into " + other_name);
            // Equal data, but other strides: rows of the output lie on other rows of the input.
            for (const std::int64_t pitch : {other_width + 1, 2 * other_width}) {
                const auto call = moved(0);
                Change change(*call->arguments[output]);
                change.strides[0] = pitch;
                change.apply();
                expect_refused(*call, HALYARD_INVALID_ARGUMENT, name, "has another pitch than " + other_name);
            }
        }
    }
    if (operation.with_role(Role::output).size() == 2) {
        const auto call = good_call();
        const std::size_t y = operation.operands.size() - 1;
        // Both outputs in place of one input.
        call->alias({{y, 0}, {y - 1, 0}});
        expect_refused(*call, HALYARD_INVALID_ARGUMENT, operation.operands[y].name,
                       std::string("and ") + operation.operands[y - 1].name + " are both the first input");
    }
}

INSTANTIATE_TEST_SUITE_P(All, BadArguments, testing::ValuesIn(operation_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, BadArgumentsOfOneType,
                         testing::ValuesIn(operation_cases([](const Operation &each) { return each.one_type(); })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, BadArgumentsPacked, testing::ValuesIn(operation_cases([](const Operation &each) {
                             return each.operands[0].times() == 2;
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, BadArgumentsOfRows,
                         testing::ValuesIn(operation_cases([](const Operation &each) { return each.needs_features; })),
                         name_of_case);
HALYARD_TEST_MAY_BE_EMPTY(BadArgumentsOfOneType);
HALYARD_TEST_MAY_BE_EMPTY(BadArgumentsPacked);
HALYARD_TEST_MAY_BE_EMPTY(BadArgumentsOfRows);

/** Whether an enumeration of C++ may hold any int: braces make it from one then. */
template<typename Enumeration, typename = void>
constexpr bool holds_any_int = false;
template<typename Enumeration>
constexpr bool holds_any_int<Enumeration, std::void_t<decltype(Enumeration{int{}})>> = true;

TEST(Enumerations, HoldAnyIntThatACallerInCMayHavePassed) {
    EXPECT_TRUE(holds_any_int<halyard_status>);
    EXPECT_TRUE(holds_any_int<halyard_isa>);
    EXPECT_TRUE(holds_any_int<halyard_glu_layout>);
    EXPECT_TRUE(holds_any_int<halyard_weight_layout>);
    EXPECT_TRUE(holds_any_int<halyard_activation>);
    EXPECT_TRUE(holds_any_int<halyard_norm>);
    EXPECT_TRUE(holds_any_int<halyard_norm_placement>);
    EXPECT_TRUE(holds_any_int<halyard_rope_scaling>);
}

TEST(BadArgumentsOfCast, ACompactShapeThatIsTooLargeHasNoStride) {
    HALYARD_TEST_NEEDS(is_built("cast"))
    float value = 0;
    std::int64_t shape[] = {2, std::int64_t{1} << 32, std::int64_t{3} << 30};  // rows of 2^63 to 2^64 elements
    DLTensor x{};
    x.data = &value;
    x.device = {kDLCPU, 0};
    x.ndim = 3;
    x.dtype = {kDLFloat, 32, 1};
    x.shape = shape;
    EXPECT_EQ(halyard_cast(nullptr, &x, &x), HALYARD_INVALID_ARGUMENT);
    EXPECT_STREQ(halyard_last_error(), "halyard_cast: x has a shape or strides too large for 64-bit addresses");
}

TEST(BadArgumentsOfCast, NameTheTypeOfElements) {
    HALYARD_TEST_NEEDS(is_built("cast"))
    const struct {
        DLDataType type;
        std::string name;
    } all[] = {{{kDLFloat, 64, 1}, "f64"},
               {{kDLInt, 32, 1}, "int32"},
               {{kDLUInt, 8, 1}, "uint8"},
               {{kDLBfloat, 32, 1}, "bf32"},
               {{kDLComplex, 128, 1}, "complex128"},
               {{6, 8, 1}, "bool"},
               {{17, 4, 1}, "of code 17 with 4 bits"},
               {{kDLFloat, 32, 4}, "f32 in 4 lanes"}};
    Tensor y(Dtype::f32, {{width}, {}});
    for (const auto &each : all) {
        Tensor x(Dtype::f32, {{width}, {}});
        x.view.dtype = each.type;
        EXPECT_EQ(halyard_cast(nullptr, &x.view, &y.view), HALYARD_UNSUPPORTED);
        EXPECT_EQ(halyard_last_error(), "halyard_cast: x has dtype " + each.name + ", but must be f32, f16 or bf16");
    }
}

TEST(BadArgumentsOfNorms, AVectorOfTheOtherTypeOf16BitsNamesWhatIsTaken) {
    HALYARD_TEST_NEEDS(is_built("layer_norm") && is_built("rms_norm_backward"))
    HALYARD_TEST_NEEDS(HALYARD_HAS_F32 && HALYARD_HAS_F16 && HALYARD_HAS_BF16)
    Tensor x(Dtype::bf16, {{rows, width}, {}}), y(Dtype::bf16, {{rows, width}, {}}), half(Dtype::f16, {{width}, {}});
    EXPECT_EQ(halyard_layer_norm(nullptr, &x.view, &half.view, nullptr, 1e-5f, &y.view), HALYARD_UNSUPPORTED);
    EXPECT_STREQ(halyard_last_error(), "halyard_layer_norm: weight has dtype f16, but must have the dtype of x, which "
                                       "is bf16, or f32");
    EXPECT_EQ(halyard_layer_norm(nullptr, &x.view, nullptr, &half.view, 1e-5f, &y.view), HALYARD_UNSUPPORTED);
    EXPECT_STREQ(halyard_last_error(), "halyard_layer_norm: bias has dtype f16, but must have the dtype of x, which is "
                                       "bf16, or f32");
    EXPECT_EQ(halyard_rms_norm_backward(nullptr, &x.view, &half.view, 1e-5f, 0, &x.view, nullptr, 0, &y.view, nullptr),
              HALYARD_UNSUPPORTED);
    EXPECT_STREQ(halyard_last_error(), "halyard_rms_norm_backward: weight has dtype f16, but must have the dtype of x, "
                                       "which is bf16, or f32");
    // Beside rows of f32 there is one type to name.
    Tensor wide(Dtype::f32, {{rows, width}, {}});
    EXPECT_EQ(halyard_rms_norm(nullptr, &wide.view, &half.view, 1e-5f, 0, &wide.view), HALYARD_UNSUPPORTED);
    EXPECT_STREQ(halyard_last_error(),
                 "halyard_rms_norm: weight has dtype f16, but must have the dtype of x, which is f32");
}

TEST(BadArgumentsOfCast, InPlaceAcrossTypes) {
    HALYARD_TEST_NEEDS(is_built("cast"))
    for (const Dtype from : all_dtypes) {
        for (const Dtype to : all_dtypes) {
            Invocation call(operation(std::string("cast_to_") + name_of(to)), from, {rows, width});
            call.fill(71);
            const std::vector<std::uint32_t> before = call.tensors[0]->all_bits();
            call.arguments[1]->data = call.arguments[0]->data;
            const halyard_status status = call.run(nullptr);
            EXPECT_EQ(status, from == to ? HALYARD_OK : HALYARD_INVALID_ARGUMENT)
                << name_of(from) << " to " << name_of(to);
            EXPECT_TRUE(same_bits(from, before, call.tensors[0]->all_bits()));
        }
    }
}

}  // namespace
}  // namespace halyard::tests
