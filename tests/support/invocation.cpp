// Calls of operations on guarded tensors.
#include "support/invocation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <ostream>

#include "support/device_hooks.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

constexpr int differences_shown = 3;

struct KernelVariant {
    const char *kernel, *isa;
};
constexpr KernelVariant generated_kernels[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) {#kernel, #isa},
#define HALYARD_WRITTEN(kernel, dtype, isa)
#define HALYARD_SHARED(kernel, dtype, isa, other)
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_WRITTEN
#undef HALYARD_VARIANT
};

/** Supported instruction sets that `wanted` takes. */
template<typename Wanted>
std::vector<halyard_isa> isas_where(const Wanted &wanted) {
    std::vector<halyard_isa> isas;
    for (int i = 0; i < halyard_isa_count(); i++) {
        const halyard_isa isa = halyard_isa_at(i);
        if (halyard_isa_supported(isa) != 0 && wanted(isa)) {
            isas.push_back(isa);
        }
    }
    return isas;
}

/** The least and the best of them. */
std::vector<halyard_isa> outermost(const std::vector<halyard_isa> &isas) {
    return isas.size() > 2 ? std::vector<halyard_isa>{isas.front(), isas.back()} : isas;
}

bool has_row_kernels(halyard_isa isa) {
    return std::any_of(std::begin(generated_kernels), std::end(generated_kernels), [isa](const KernelVariant &variant) {
        return std::strcmp(variant.isa, halyard_isa_name(isa)) == 0 && std::strncmp(variant.kernel, "matmul", 6) != 0;
    });
}

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

}  // namespace

Context::Context() {
    if (halyard_context_create(&context) != HALYARD_OK) {
        ADD_FAILURE() << halyard_last_error();
    }
}

Context::Context(halyard_isa isa, int num_threads) : Context() {
    EXPECT_EQ(halyard_context_set_max_isa(context, isa), HALYARD_OK);
    EXPECT_EQ(halyard_context_set_num_threads(context, num_threads), HALYARD_OK);
}

const halyard_context *lasting_context(halyard_isa isa) {
    static std::map<halyard_isa, Context> contexts;
    return contexts.try_emplace(isa, isa).first->second.get();
}

// Races do not depend on instruction sets, and no sanitizer follows the accesses of Halide's kernels.

std::vector<halyard_isa> supported_isas() {
    const std::vector<halyard_isa> isas = isas_where([](halyard_isa) { return true; });
    return for_races ? outermost(isas) : isas;
}

std::vector<halyard_isa> row_isas() {
    static const std::vector<halyard_isa> isas = isas_where(has_row_kernels);
    return sanitized ? outermost(isas) : isas;
}

std::vector<halyard_isa> product_isas(Dtype x, Dtype weights) {
    static const std::vector<halyard_isa> isas = isas_where(has_row_kernels);
    return x == Dtype::bf16 && weights == Dtype::bf16 ? supported_isas() : for_races ? outermost(isas) : isas;
}

std::vector<halyard_isa> attention_isas(Dtype keys) {
    static const std::vector<halyard_isa> isas =
        isas_where([](halyard_isa isa) { return isa != HALYARD_ISA_NEON_BFDOT && isa != HALYARD_ISA_NEON_BFMMLA; });
    return keys != Dtype::bf16 ? product_isas(keys, keys) : for_races ? outermost(isas) : isas;
}

std::uint64_t hash(std::uint64_t seed, std::uint64_t row, std::uint64_t i) {
    // The finalizer of SplitMix64.
    std::uint64_t z = seed * 0x9e3779b97f4a7c15u + row * 0xd1b54a32d192ed03u + i * 0xabc98388fb8fac03u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double uniform(std::uint64_t seed, std::int64_t row, std::int64_t i) {
    return static_cast<double>(hash(seed, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i)) >> 11) *
           0x1p-53;
}

double bell(std::uint64_t seed, std::int64_t row, std::int64_t i) {
    const std::uint64_t bits = hash(seed, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
    int sum = 0;
    for (int part = 0; part < 4; part++) {
        sum += static_cast<int>((bits >> (16 * part)) & 0xffff);
    }
    return (sum - 131070) * (1.7320508 / 65536);
}

Invocation::Invocation(const Operation &operation, Dtype type, const Sizes &sizes, const Arrange &arrange)
    : operation(operation), type(type), sizes(sizes) {
    for (std::size_t i = 0; i < operation.operands.size(); i++) {
        const Operand &operand = operation.operands[i];
        tensors.push_back(std::make_unique<Tensor>(operation.type_of(i, type), arrange(operand, operand.shape(sizes))));
        arguments.push_back(&tensors.back()->view);
    }
    scalars = operation.scalar_values();
}

void Invocation::fill(std::uint64_t seed) {
    for (std::size_t operand = 0; operand < tensors.size(); operand++) {
        Tensor &tensor = *tensors[operand];
        const std::uint64_t own_seed = seed * 16 + operand;
        const std::int64_t last = tensor.width() - 1;
        switch (operation.operands[operand].role) {
        case Role::input:
            tensor.fill([&](std::int64_t row, std::int64_t i) {
                return bell(own_seed, row, i) * (i == 0 || i == last ? 8 : 2);
            });
            break;
        case Role::parameter: {
            const std::string_view name = operation.operands[operand].name;
            const bool is_matrix = operation.operands[operand].is_matrix();
            const double middle = is_matrix || name.find("bias") != name.npos ? 0 : 1;
            const double size = is_matrix ? 1 / std::sqrt(static_cast<double>(tensor.width())) : 0.5;
            tensor.fill([&](std::int64_t row, std::int64_t i) { return middle + size * bell(own_seed, row, i); });
            break;
        }
        case Role::output:
            break;
        }
    }
}

void Invocation::copy_inputs_from(const Invocation &other) {
    for (std::size_t operand = 0; operand < tensors.size(); operand++) {
        if (operation.operands[operand].role != Role::output) {
            tensors[operand]->copy_from(*other.tensors[operand]);
        }
    }
}

void Invocation::clear_outputs() {
    for (const std::size_t output : operation.with_role(Role::output)) {
        tensors[output]->clear();
    }
}

void Invocation::alias(const std::vector<Alias> &aliases) {
    for (const Alias &alias : aliases) {
        Tensor &output = *tensors[alias.output];
        const Tensor &input = *tensors[alias.input];
        const std::size_t shift = static_cast<std::size_t>(alias.half * output.width()) * size_of(input.dtype());
        output.view.data = static_cast<char *>(input.view.data) + shift;
        output.view.byte_offset = input.view.byte_offset;
        // The output may have half the width, so strides cannot be left to the compact default.
        output.view.strides = const_cast<std::int64_t *>(input.strides().data());
    }
}

halyard_status Invocation::run(const halyard_context *context) const {
    return finished(operation.call(context, arguments.data(), scalars.data()));
}

std::vector<Matrix> Invocation::expected() const {
    std::vector<operations::Rows> values(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); i++) {
        for (std::int64_t row = 0; operation.operands[i].role != Role::output && row < tensors[i]->rows(); row++) {
            values[i].push_back(tensors[i]->row_values(row));
        }
    }
    return operation.reference(values, sizes, scalars.data(), type);
}

testing::AssertionResult Invocation::check(const std::vector<Matrix> &expected) const {
    const std::vector<std::size_t> outputs = operation.with_role(Role::output);
    testing::AssertionResult result = testing::AssertionFailure();
    std::int64_t wrong = 0;
    for (std::size_t k = 0; k < outputs.size(); k++) {
        const Tensor &tensor = *tensors[outputs[k]];
        for (std::int64_t row = 0; row < tensor.rows(); row++) {
            const ExpectedRow &expected_row = expected[k][static_cast<std::size_t>(row)];
            for (std::int64_t i = 0; i < tensor.width(); i++) {
                const Expected &one = expected_row[static_cast<std::size_t>(i)];
                const std::uint32_t bits = tensor.bits(row, i);
                const double got = decode(tensor.dtype(), bits);
                if (acceptable(tensor.dtype(), one, got)) {
                    continue;
                }
                if (wrong++ < differences_shown) {
                    result << "\n  " << operation.operands[outputs[k]].name << "[row " << row << ", " << i << "] is "
                           << show(tensor.dtype(), bits) << ", expected " << number(one.value) << " +- "
                           << number(one.error) << " before rounding; off by "
                           << number((got - one.value) / spacing(tensor.dtype(), one.value)) << " ULP. Inputs there:";
                    for (const std::size_t input : operation.with_role(Role::input)) {
                        result << " " << operation.operands[input].name << " = "
                               << show(tensors[input]->dtype(), tensors[input]->bits(row, i));
                    }
                }
            }
        }
    }
    if (wrong != 0) {
        return result << "\n  " << wrong << " wrong results from " << describe();
    }
    return surroundings_intact();
}

testing::AssertionResult Invocation::surroundings_intact() const {
    for (std::size_t operand = 0; operand < tensors.size(); operand++) {
        if (!tensors[operand]->surroundings_intact()) {
            return testing::AssertionFailure()
                   << operation.operands[operand].name << " was written outside its elements by " << describe();
        }
    }
    return testing::AssertionSuccess();
}

std::vector<std::uint32_t> Invocation::output_bits() const {
    std::vector<std::uint32_t> all;
    for (const std::size_t output : operation.with_role(Role::output)) {
        const std::vector<std::uint32_t> bits = tensors[output]->all_bits();
        all.insert(all.end(), bits.begin(), bits.end());
    }
    return all;
}

std::string Invocation::describe() const {
    std::string text = operation.function + " (" + operation.label + ") " + name_of(type);
    for (std::size_t operand = 0; operand < tensors.size(); operand++) {
        const Tensor &tensor = *tensors[operand];
        text += std::string("; ") + operation.operands[operand].name + " " + to_string(tensor.shape()) + " strides " +
                to_string(tensor.strides());
    }
    return text;
}

std::string show(Dtype type, std::uint32_t bits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.9g (0x%0*x)", decode(type, bits), static_cast<int>(2 * size_of(type)), bits);
    return text;
}

testing::AssertionResult same_bits(Dtype type, const std::vector<std::uint32_t> &expected,
                                   const std::vector<std::uint32_t> &got) {
    if (expected == got) {
        return testing::AssertionSuccess();
    }
    if (expected.size() != got.size()) {
        return testing::AssertionFailure() << got.size() << " results instead of " << expected.size();
    }
    testing::AssertionResult result = testing::AssertionFailure();
    std::size_t different = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
        if (got[i] != expected[i] && different++ < differences_shown) {
            result << "\n  result " << i << " is " << show(type, got[i]) << " instead of " << show(type, expected[i]);
        }
    }
    return result << "\n  " << different << " of " << got.size() << " results have other bits";
}

std::string test_name(const std::string &label, Dtype type) {
    std::string name = label + "_" + name_of(type);
    for (char &c : name) {
        c = c == '-' ? 'm' : std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    }
    return name;
}

std::vector<IsaTypeCase> isa_type_cases() {
    std::vector<IsaTypeCase> cases;
    for (const halyard_isa isa : row_isas()) {
        for (const Dtype type : all_dtypes) {
            cases.push_back({isa, type});
        }
    }
    return cases;
}

std::string name_of_isa_type_case(const testing::TestParamInfo<IsaTypeCase> &info) {
    return std::string(halyard_isa_name(info.param.isa)) + "_" + name_of(info.param.type);
}

std::vector<OperationCase> operation_cases(const std::function<bool(const Operation &)> &wanted) {
    std::vector<OperationCase> cases;
    for (const Operation &operation : all_operations()) {
        for (const Dtype type : all_dtypes) {
            if (wanted(operation)) {
                cases.push_back({&operation, type});
            }
        }
    }
    return cases;
}

std::vector<OperationCase> operation_cases() {
    return operation_cases([](const Operation &) { return true; });
}

std::string name_of_case(const testing::TestParamInfo<OperationCase> &info) {
    return test_name(info.param.operation->label, info.param.type);
}

void PrintTo(const OperationCase &operation_case, std::ostream *stream) {
    *stream << operation_case.operation->label << " in " << name_of(operation_case.type);
}

}  // namespace halyard::tests
