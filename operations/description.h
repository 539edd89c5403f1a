// How an operation is described once, for tests, benchmarks, the tuner and the instruction counts: its operands of any shape and role,
// its reference in float64, the work of a call, and the call. Nothing here owns memory: who makes a call brings the tensors, on
// whatever device.
#ifndef HALYARD_OPERATIONS_DESCRIPTION_H
#define HALYARD_OPERATIONS_DESCRIPTION_H

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cost.h"
#include "halyard/halyard.h"
#include "reference.h"

namespace halyard::operations {

/** What an axis counts. `rows` stands for any number of leading axes. */
enum class Extent { rows, d, d_out, batch, queries, keys, heads, kv_heads, head_dim };

/** The extents of one call. */
struct Sizes {
    using Shape = std::vector<std::int64_t>;

    Shape rows;
    std::int64_t d = 0, d_out = 0;
    std::int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;

    /** Sizes of tensors of rows: [rows..., d]. */
    static Sizes of_rows(const Shape &shape) { return {Shape(shape.begin(), shape.end() - 1), shape.back()}; }

    /** An extent but `rows`. */
    std::int64_t of(Extent extent) const;
};

/** So many times an extent: {d, 2} for a gate and an up beside it. */
struct Axis {
    Axis(Extent extent, int times = 1) : extent(extent), times(times) {}

    Extent extent;
    int times;
};

enum class Role {
    input,      // values of tokens
    parameter,  // shared by all tokens: a weight, a bias, a matrix
    output,
};

struct Operand {
    const char *name;  // as in the header
    Role role = Role::input;
    bool optional = false;  // may be null
    std::vector<Axis> axes = {Extent::rows, Extent::d};
    std::optional<Dtype> type = {};  // fixed, where the operation does not have one type
    // Bytes of an element as a call reads it, where they are not its type's: a quantized matrix's.
    std::function<double(const Sizes &)> element_bytes = {};

    /** Whether it has a row for each token, or is shared by all or summed over them. */
    bool is_by_row() const { return axes.front().extent == Extent::rows; }
    /** How many of its extent the last axis has. */
    int times() const { return axes.back().times; }
    /** Whether it is a matrix of weights, of which a benchmark counts the bytes. */
    bool is_matrix() const { return role == Role::parameter && axes.size() > 1; }
    Sizes::Shape shape(const Sizes &sizes) const;
};

struct Scalar {
    const char *name;
    double value;
    std::vector<double> refused;  // values that must be refused
};

/** The output is the same view as the input, or as half of it. */
struct Alias {
    std::size_t output, input;
    int half = 0;  // which half of an input that is 2 d wide
};

/** What an operation is to a benchmark. */
enum class Use {
    usual,    // measured
    variant,  // measured where all variants are asked for
    option,   // the same work as another; for tests
};

/** A tensor as the rows of its last axis. */
using Rows = std::vector<Row>;

struct Operation {
    using Call = std::function<halyard_status(const halyard_context *, DLTensor *const *, const double *)>;
    /** From all operands, outputs left empty, to what each output must be before it is rounded to its type. `type` is the storage
     *  type. */
    using Reference =
        std::function<std::vector<Matrix>(const std::vector<Rows> &, const Sizes &, const double *scalars, Dtype type)>;

    std::string label;  // unique: "rms_norm", "layer_norm.bias" with a bias alone, "swiglu.interleaved" of one tensor
    std::string function;  // of the C API: "halyard_rms_norm"
    std::string group;     // what a report shows together
    Use use = Use::usual;
    std::vector<Operand> operands;
    std::vector<Scalar> scalars;
    std::vector<std::vector<Alias>> in_place;  // each a legal way to call it in place
    bool needs_features = false;               // refuses an empty last axis
    std::int64_t d_step = 1;                   // what d must be a multiple of
    bool processors_alone = false;             // refuses tensors on devices
    Call call;
    /** Where calls take packed weights: packs those of the operands, and gives calls with them. */
    std::function<Call(DLTensor *const *)> prepare;
    Reference reference;
    /** Additions, multiplications, divisions and comparisons of the formula, an elementary function counting ten. Empty where nobody
     *  counted. */
    std::function<double(const Sizes &)> flops;
    std::string gradient_of;  // label of the operation whose gradient or derivative it is

    std::vector<std::size_t> with_role(Role role) const;
    /** Whether an output is a sum over rows. */
    bool sums_rows() const;
    /** Type of an operand in a call that stores `type`. */
    Dtype type_of(std::size_t operand, Dtype type) const { return operands[operand].type.value_or(type); }
    /** Whether every tensor of the call has the same type. */
    bool one_type() const;
    /** The scalars' own values, for a call. */
    std::vector<double> scalar_values() const;
    Cost cost(Dtype type, const Sizes &sizes) const;
};

/** The reference of an operation that treats each row by itself. Its parameters have one row. */
using RowReference =
    std::function<std::vector<ExpectedRow>(const std::vector<Row> &, const double *scalars, Dtype type)>;
Operation::Reference by_row(const std::vector<Operand> &operands, const RowReference &reference);

/** Values that need no rounding but that of their type. */
ExpectedRow exact(const Row &values);

/** Floating-point operations of an elementary function, and of an operation that needs so many for each element. */
constexpr double elementary_flops = 10;
std::function<double(const Sizes &)> flops_per_element(double count);

/** "softmax.scale_" and a number. */
std::string with_number(const std::string &label, double number);

}  // namespace halyard::operations

#endif
