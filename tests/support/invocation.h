// One call of an operation: its tensors with contents, the call, the expected results and the comparison.
#ifndef HALYARD_TESTS_INVOCATION_H
#define HALYARD_TESTS_INVOCATION_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "operations/built.h"
#include "support/operations.h"
#include "support/tensor.h"

namespace halyard::tests {

/** A context of its own, destroyed with the object. */
class Context {
public:
    Context();
    explicit Context(halyard_isa isa, int num_threads = 1);
    ~Context() { halyard_context_destroy(context); }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    halyard_context *get() const { return context; }

private:
    halyard_context *context = nullptr;
};

/** A context for one thread that lasts: to make one takes longer than a call on a short row. For tests on one thread. */
const halyard_context *lasting_context(halyard_isa isa);

/** A suite for which a library of few operations has no case. */
#ifdef HALYARD_TESTS_SUBSET
#define HALYARD_TEST_MAY_BE_EMPTY(suite) GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite)
#else
#define HALYARD_TEST_MAY_BE_EMPTY(suite) static_assert(true)
#endif

/** Skips a test of what the library was built without. */
#define HALYARD_TEST_NEEDS(condition)                                                                                  \
    if (!(condition)) {                                                                                                \
        GTEST_SKIP() << "this library was built without what the test is about";                                       \
    }

/** The instruction sets that this machine can run; the least and the best where races are looked for, which depend on none. */
std::vector<halyard_isa> supported_isas();
/** Supported ones that have more kernels of their own than matrix products: what is called on rows the others take from one of these. Under
 *  sanitizers the least and the best of them. */
std::vector<halyard_isa> row_isas();
/** Supported ones with kernels of their own for products of x and a matrix in these types; a quantized matrix counts as bf16. */
std::vector<halyard_isa> product_isas(Dtype x, Dtype weights);
/** And for attention to keys and values of this type, which has no products that round as those of bfdot and bfmmla do. */
std::vector<halyard_isa> attention_isas(Dtype keys);

/** Reproducible pseudo-random numbers that are the same on every machine: hashes of (seed, row, feature). */
std::uint64_t hash(std::uint64_t seed, std::uint64_t row, std::uint64_t i);
/** Evenly distributed in [0, 1). */
double uniform(std::uint64_t seed, std::int64_t row, std::int64_t i);
/** Mean 0, variance 1, bell-shaped: the sum of four even distributions. */
double bell(std::uint64_t seed, std::int64_t row, std::int64_t i);

class Invocation {
public:
    /** Says how an operand of this shape lies in memory. */
    using Arrange = std::function<Form(const Operand &, const Shape &)>;

    /** Tensors that are compact and next to the guard page behind them unless `arrange` says otherwise. */
    Invocation(const Operation &operation, Dtype type, const Sizes &sizes, const Arrange &arrange = compact);
    /** For rows of shape `shape`, the last extent being d. */
    Invocation(const Operation &operation, Dtype type, const Shape &shape, const Arrange &arrange = compact)
        : Invocation(operation, type, Sizes::of_rows(shape), arrange) {}

    static Form compact(const Operand &, const Shape &shape) { return {shape, {}, Placement::ends_at_guard, 0, 0}; }
    static Form at_start(const Operand &, const Shape &shape) { return {shape, {}, Placement::starts_at_guard, 0, 0}; }

    const Operation &operation;
    const Dtype type;
    const Sizes sizes;
    std::vector<std::unique_ptr<Tensor>> tensors;  // by operand
    std::vector<DLTensor *> arguments;             // by operand, what the call gets
    std::vector<double> scalars;

    /** Ordinary values: inputs around 0 with the first and last feature of each row larger than the rest, so that a
     *  feature that is left out or counted twice shows; weights around 1, biases around 0. */
    void fill(std::uint64_t seed);
    /** Fills inputs and parameters with the contents of those of another call of the same shape. */
    void copy_inputs_from(const Invocation &other);
    /** Makes the outputs' elements what they are before the first call. */
    void clear_outputs();
    /** Makes outputs the views of inputs. The inputs then hold the results. */
    void alias(const std::vector<Alias> &aliases);

    halyard_status run(const halyard_context *context) const;

    /** By output and row, from the inputs' present contents. */
    std::vector<Matrix> expected() const;
    /** Success if the outputs are as expected and nothing else was written. */
    testing::AssertionResult check(const std::vector<Matrix> &expected) const;
    /** Success if no tensor was written outside its elements. */
    testing::AssertionResult surroundings_intact() const;

    /** The bits of every output, in row-major order, one output after the other; all NaN alike. */
    std::vector<std::uint32_t> output_bits() const;

    /** The call in words, for messages. */
    std::string describe() const;
};

/** Bits as numbers for messages: value and hexadecimal. */
std::string show(Dtype type, std::uint32_t bits);

/** Success if the bits are equal; else the first differences. */
testing::AssertionResult same_bits(Dtype type, const std::vector<std::uint32_t> &expected,
                                   const std::vector<std::uint32_t> &got);

/** "rms_norm_bf16" from an operation's label and a type: gtest's parameter names take no dots. */
std::string test_name(const std::string &label, Dtype type);

/** Test parameter: every instruction set that the machine can run, with every type. */
struct IsaTypeCase {
    halyard_isa isa;
    Dtype type;
};
std::vector<IsaTypeCase> isa_type_cases();
std::string name_of_isa_type_case(const testing::TestParamInfo<IsaTypeCase> &info);

/** Test parameter: every operation with every type. */
struct OperationCase {
    const Operation *operation;
    Dtype type;
};
std::vector<OperationCase> operation_cases(const std::function<bool(const Operation &)> &wanted);
std::vector<OperationCase> operation_cases();
std::string name_of_case(const testing::TestParamInfo<OperationCase> &info);
void PrintTo(const OperationCase &operation_case, std::ostream *stream);

}  // namespace halyard::tests

#endif
