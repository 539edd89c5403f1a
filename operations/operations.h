// Every operation on tensors of rows in one form: tests, benchmarks, the tuner and the instruction counts take their cases
// from here. Elementwise functions come from the table of kernels; an operation that has options appears once per interesting
// choice. Nothing here owns memory: who makes a call brings the tensors, on whatever device.
#ifndef HALYARD_OPERATIONS_OPERATIONS_H
#define HALYARD_OPERATIONS_OPERATIONS_H

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cost.h"
#include "halyard/halyard.h"
#include "reference.h"

namespace halyard::operations {

enum class Role {
    input,      // [..., d]
    parameter,  // [d], shared by all rows
    output,     // [..., d]
};

struct Operand {
    const char *name;  // as in the header
    Role role = Role::input;
    bool optional = false;           // may be null
    int halves = 1;                  // 2: the last axis is 2 d wide
    std::optional<Dtype> type = {};  // fixed, where the operation does not have one type
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

struct Operation {
    using Call = std::function<halyard_status(const halyard_context *, DLTensor *const *, const double *)>;
    /** From one row of each operand to one expected row of each output, in the order of the operands. `type` is the
     *  storage type. */
    using Reference =
        std::function<std::vector<ExpectedRow>(const std::vector<Row> &, const double *scalars, Dtype type)>;

    std::string label;  // unique: "rms_norm", "layer_norm.bias" with a bias alone, "swiglu.interleaved" of one tensor
    std::string function;  // of the C API: "halyard_rms_norm"
    std::string group;     // what a report shows together
    Use use = Use::usual;
    std::vector<Operand> operands;
    std::vector<Scalar> scalars;
    std::vector<std::vector<Alias>> in_place;  // each a legal way to call it in place
    bool needs_features = false;               // refuses an empty last axis
    Call call;
    Reference reference;

    std::vector<std::size_t> with_role(Role role) const;
    /** Type of an operand in a call that stores `type`. */
    Dtype type_of(std::size_t operand, Dtype type) const { return operands[operand].type.value_or(type); }
    /** Whether every tensor of the call has the same type. */
    bool one_type() const;
    /** The scalars' own values, for a call. */
    std::vector<double> scalar_values() const;
    /** Of a call on [rows, d]. */
    Cost cost(Dtype type, std::int64_t rows, std::int64_t d) const;
};

/** Usual values, and those of the operations here. */
constexpr float layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f, usual_beta = 1.0f, usual_partial_p = 0.0625f;

const std::vector<Operation> &all_operations();

/** The operation with this label; stops the program if there is none. */
const Operation &operation(const std::string &label);

/** The operation with this label, or null. */
const Operation *find_operation(const std::string &label);

/** Elementwise functions of one variable. The Swish family appears with several beta. */
struct Activation {
    std::string label;          // "swish.beta_1.5"
    std::string_view function;  // row of the accuracy table
    bool has_beta;
    float beta;  // 1 where there is none: the table's regions are of beta * x
    /** `beta` is ignored where there is none. */
    std::function<halyard_status(const halyard_context *, const DLTensor *, float beta, DLTensor *)> call;
    std::function<double(double)> reference;
};

const std::vector<Activation> &activations();

}  // namespace halyard::operations

#endif
