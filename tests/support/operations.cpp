// The list of operations.
#include "support/operations.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <set>

#include "support/built.h"

namespace halyard::tests {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

const std::vector<double> not_finite = {infinity, -infinity, not_a_number};
const std::vector<double> refused_beta = {infinity, -infinity, not_a_number, 1e-40, -0.99e-28, 1.01e28, -3.4e38};

// ---- The table of kernels: a kernel without a reference does not compile ---------------------------------------

struct UnaryKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, DLTensor *);
    double (*reference)(double);
};

constexpr UnaryKernel unary_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name, reference::name},
#include "kernels/unary.inc"
#undef HALYARD_KERNEL
};

struct UnaryBetaKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, float, DLTensor *);
    double (*reference)(double, double);
};

constexpr UnaryBetaKernel unary_beta_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name, reference::name},
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL
};

struct GatedKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, DLTensor *);
    halyard_status (*call_packed)(const halyard_context *, const DLTensor *, halyard_glu_layout, DLTensor *);
    const reference::Gate *gate;
};

const GatedKernel gated_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name, halyard_##name##_packed, &reference::name},
#include "kernels/gated.inc"
#undef HALYARD_KERNEL
};

struct GatedBetaKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, float, DLTensor *);
    halyard_status (*call_packed)(const halyard_context *, const DLTensor *, halyard_glu_layout, float, DLTensor *);
    const reference::BetaGate *gate;
};

const GatedBetaKernel gated_beta_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name, halyard_##name##_packed, &reference::name},
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
};

#define HALYARD_KERNEL(name) static_assert(accuracy::has_bound(#name), #name " has no row in accuracy_bounds.h");
#include "kernels/unary.inc"
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL

// ---- Pieces ----------------------------------------------------------------------------------------------------

std::string with_number(const std::string &name, double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return name + text;
}

ExpectedRow exact(const Row &values) {
    ExpectedRow expected;
    for (const double value : values) {
        expected.push_back({value, 0.0});
    }
    return expected;
}

// ---- Families --------------------------------------------------------------------------------------------------

std::vector<Activation> make_activations() {
    std::vector<Activation> all;
    for (const UnaryKernel &kernel : unary_kernels) {
        const auto call = [function = kernel.call](const halyard_context *context, const DLTensor *x, float,
                                                   DLTensor *y) { return function(context, x, y); };
        all.push_back({kernel.name, kernel.name, false, 1.0f, call, kernel.reference});
    }
    for (const UnaryBetaKernel &kernel : unary_beta_kernels) {
        for (const float beta : {1.0f, -1.5f, 0.0f, 0.25f, 1.702f, 30.0f}) {
            all.push_back({with_number(std::string(kernel.name) + ".beta_", beta), kernel.name, true, beta, kernel.call,
                           [function = kernel.reference, beta](double x) { return function(x, beta); }});
        }
    }
    return all;
}

void add_unary(std::vector<Operation> &all) {
    for (const Activation &activation : activations()) {
        Operation operation;
        operation.label = activation.label;
        operation.function = "halyard_" + std::string(activation.function);
        operation.operands = {{"x"}, {"y", Role::output}};
        if (activation.has_beta) {
            operation.scalars = {{"beta", activation.beta, refused_beta}};
        }
        operation.in_place = {{{1, 0}}};
        operation.call = [&activation](const halyard_context *context, DLTensor *const *t, const double *scalars) {
            return activation.call(context, t[0], activation.has_beta ? static_cast<float>(scalars[0]) : 0.0f, t[1]);
        };
        operation.reference = [&activation, errors = ErrorModel(activation.function)](const std::vector<Row> &rows,
                                                                                      Dtype type) {
            ExpectedRow expected;
            for (const double x : rows[0]) {
                const double value = activation.reference(x);
                expected.push_back({value, errors.allowed(activation.beta * x, value, type)});
            }
            return std::vector<ExpectedRow>{expected};
        };
        all.push_back(operation);
    }
}

/** y = f(gate) * up for rows of gate and up. */
ExpectedRow gated_row(const std::function<double(double)> &gate_value, const ErrorModel &errors, double beta,
                      Dtype type, const Row &gate, const Row &up) {
    ExpectedRow expected;
    for (std::size_t i = 0; i < gate.size(); i++) {
        const double activated = gate_value(gate[i]);
        expected.push_back(gated(activated, errors.allowed(beta * gate[i], activated, type), up[i]));
    }
    return expected;
}

struct PackedLayout {
    const char *name;
    halyard_glu_layout layout;
};

constexpr PackedLayout packed_layouts[] = {
    {"gate_up", HALYARD_GLU_GATE_UP},
    {"up_gate", HALYARD_GLU_UP_GATE},
    {"interleaved", HALYARD_GLU_INTERLEAVED},
};

/** The gate's and the up's row of a packed row. */
std::pair<Row, Row> unpack(const Row &x, halyard_glu_layout layout) {
    const std::size_t half = x.size() / 2;
    Row gate, up;
    for (std::size_t i = 0; i < half; i++) {
        if (layout == HALYARD_GLU_INTERLEAVED) {
            gate.push_back(x[2 * i]);
            up.push_back(x[2 * i + 1]);
        } else {
            const bool gate_first = layout == HALYARD_GLU_GATE_UP;
            gate.push_back(x[gate_first ? i : half + i]);
            up.push_back(x[gate_first ? half + i : i]);
        }
    }
    return {gate, up};
}

using GateValue = std::function<double(double)>;
using SplitCall = std::function<halyard_status(const halyard_context *, const DLTensor *, const DLTensor *,
                                               const double *, DLTensor *)>;
using PackedCall = std::function<halyard_status(const halyard_context *, const DLTensor *, halyard_glu_layout,
                                                const double *, DLTensor *)>;

/** One gated unit on two tensors and in the three packed layouts. `beta` scales the argument of the accuracy table's
 *  regions; the calls get the scalars that follow the tensors (and the layout). */
void add_gated_unit(std::vector<Operation> &all, const std::string &name, const std::string &suffix,
                    std::string_view accuracy_row, double beta, const std::vector<Scalar> &scalars,
                    const GateValue &gate_value, const SplitCall &split, const PackedCall &packed) {
    const ErrorModel errors(accuracy_row);
    Operation operation;
    operation.label = name + suffix;
    operation.function = "halyard_" + name;
    operation.operands = {{"gate"}, {"up"}, {"y", Role::output}};
    operation.scalars = scalars;
    operation.in_place = {{{2, 0}}, {{2, 1}}};
    operation.call = [split](const halyard_context *context, DLTensor *const *t, const double *values) {
        return split(context, t[0], t[1], values, t[2]);
    };
    operation.reference = [=](const std::vector<Row> &rows, Dtype type) {
        return std::vector<ExpectedRow>{gated_row(gate_value, errors, beta, type, rows[0], rows[1])};
    };
    all.push_back(operation);

    for (const PackedLayout &packed_layout : packed_layouts) {
        Operation on_one;
        const halyard_glu_layout layout = packed_layout.layout;
        on_one.label = name + "_packed" + suffix + "." + packed_layout.name;
        on_one.function = "halyard_" + name + "_packed";
        on_one.operands = {{"x", Role::input, false, 2}, {"y", Role::output}};
        // 3 is the one invalid value that C++ lets such an enumeration hold.
        on_one.scalars = {{"layout", static_cast<double>(layout), {3.0}}};
        on_one.scalars.insert(on_one.scalars.end(), scalars.begin(), scalars.end());
        if (layout != HALYARD_GLU_INTERLEAVED) {
            on_one.in_place = {{{1, 0, 0}}, {{1, 0, 1}}};
        }
        on_one.call = [packed](const halyard_context *context, DLTensor *const *t, const double *values) {
            return packed(context, t[0], static_cast<halyard_glu_layout>(static_cast<int>(values[0])), values + 1,
                          t[1]);
        };
        on_one.reference = [=](const std::vector<Row> &rows, Dtype type) {
            const auto [gate, up] = unpack(rows[0], layout);
            return std::vector<ExpectedRow>{gated_row(gate_value, errors, beta, type, gate, up)};
        };
        all.push_back(on_one);
    }
}

void add_gated(std::vector<Operation> &all) {
    for (const GatedKernel &kernel : gated_kernels) {
        add_gated_unit(
            all, kernel.name, "", kernel.gate->function, 1.0, {}, kernel.gate->value,
            [call = kernel.call](const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                 const double *, DLTensor *y) { return call(context, gate, up, y); },
            [call = kernel.call_packed](const halyard_context *context, const DLTensor *x, halyard_glu_layout layout,
                                        const double *, DLTensor *y) { return call(context, x, layout, y); });
    }
    for (const GatedBetaKernel &kernel : gated_beta_kernels) {
        for (const float beta : {1.0f, -0.75f}) {
            add_gated_unit(
                all, kernel.name, with_number(".beta_", beta), kernel.gate->function, beta,
                {{"beta", beta, refused_beta}}, [value = kernel.gate->value, beta](double x) { return value(x, beta); },
                [call = kernel.call](const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                     const double *scalars, DLTensor *y) {
                    return call(context, gate, up, static_cast<float>(scalars[0]), y);
                },
                [call = kernel.call_packed](const halyard_context *context, const DLTensor *x,
                                            halyard_glu_layout layout, const double *scalars, DLTensor *y) {
                    return call(context, x, layout, static_cast<float>(scalars[0]), y);
                });
        }
    }
}

const std::vector<double> refused_eps = {-1e-6, infinity, not_a_number};
const std::vector<double> refused_flags = {4.0, 7.0, 2147483648.0};
constexpr double layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f;

/** The rounded sum that an add+norm returns and normalizes. */
Row residual_sum(const Row &x, const Row &residual, Dtype type) {
    Row sum;
    for (std::size_t i = 0; i < x.size(); i++) {
        sum.push_back(round_to(type, round_to(Dtype::f32, x[i] + residual[i])));
    }
    return sum;
}

/** x first (and residual), then the parameters present, then the outputs. */
std::vector<Operand> norm_operands(bool adds, bool has_weight, bool has_bias) {
    std::vector<Operand> operands = {{"x"}};
    if (adds) {
        operands.push_back({"residual"});
    }
    if (has_weight) {
        operands.push_back({"weight", Role::parameter, true});
    }
    if (has_bias) {
        operands.push_back({"bias", Role::parameter, true});
    }
    if (adds) {
        operands.push_back({"residual_out", Role::output});
    }
    operands.push_back({"y", Role::output});
    return operands;
}

/** The ways to call a norm in place; the outputs are the last operands. */
std::vector<std::vector<Alias>> norm_aliases(bool adds, std::size_t operand_count) {
    const std::size_t y = operand_count - 1, sum = operand_count - 2;
    if (!adds) {
        return {{{y, 0}}};
    }
    return {{{sum, 0}}, {{sum, 1}}, {{y, 0}}, {{y, 1}}, {{sum, 0}, {y, 1}}, {{sum, 1}, {y, 0}}};
}

void add_layer_norms(std::vector<Operation> &all) {
    for (const bool adds : {false, true}) {
        for (const bool has_weight : {true, false}) {
            for (const bool has_bias : {true, false}) {
                Operation operation;
                operation.label = std::string(adds ? "add_layer_norm" : "layer_norm") +
                                  (has_weight ? "" : ".no_weight") + (has_bias ? "" : ".no_bias");
                operation.function = adds ? "halyard_add_layer_norm" : "halyard_layer_norm";
                operation.operands = norm_operands(adds, has_weight, has_bias);
                operation.scalars = {{"eps", layer_norm_eps, refused_eps}};
                operation.in_place = norm_aliases(adds, operation.operands.size());
                operation.needs_features = true;
                const std::size_t weight_at = adds ? 2 : 1, bias_at = weight_at + (has_weight ? 1 : 0);
                operation.call = [=, y = operation.operands.size() - 1](const halyard_context *context,
                                                                        DLTensor *const *t, const double *scalars) {
                    const DLTensor *weight = has_weight ? t[weight_at] : nullptr;
                    const DLTensor *bias = has_bias ? t[bias_at] : nullptr;
                    const auto eps = static_cast<float>(scalars[0]);
                    return adds ? halyard_add_layer_norm(context, t[0], t[1], weight, bias, eps, t[y - 1], t[y])
                                : halyard_layer_norm(context, t[0], weight, bias, eps, t[y]);
                };
                operation.reference = [=](const std::vector<Row> &rows, Dtype type) {
                    NormParameters parameters;
                    parameters.weight = has_weight ? &rows[weight_at] : nullptr;
                    parameters.bias = has_bias ? &rows[bias_at] : nullptr;
                    parameters.eps = layer_norm_eps;
                    if (!adds) {
                        return std::vector<ExpectedRow>{layer_norm(rows[0], parameters)};
                    }
                    const Row sum = residual_sum(rows[0], rows[1], type);
                    return std::vector<ExpectedRow>{exact(sum), layer_norm(sum, parameters)};
                };
                all.push_back(operation);
            }
        }
    }
}

enum class RmsKind { plain, partial, add };

void add_rms_norm(std::vector<Operation> &all, RmsKind kind, bool has_weight, unsigned flags, float p,
                  const std::string &label) {
    static const char *const functions[] = {"halyard_rms_norm", "halyard_partial_rms_norm", "halyard_add_rms_norm"};
    const bool adds = kind == RmsKind::add;
    Operation operation;
    operation.label = label;
    operation.function = functions[static_cast<int>(kind)];
    operation.operands = norm_operands(adds, has_weight, false);
    operation.scalars = {{"eps", rms_norm_eps, refused_eps}, {"flags", static_cast<double>(flags), refused_flags}};
    if (kind == RmsKind::partial) {
        operation.scalars.push_back({"p", p, {0.0, -0.5, 1.25, infinity, not_a_number}});
    }
    operation.in_place = norm_aliases(adds, operation.operands.size());
    operation.needs_features = true;
    const std::size_t weight_at = adds ? 2 : 1;
    operation.call = [=, y = operation.operands.size() - 1](const halyard_context *context, DLTensor *const *t,
                                                            const double *scalars) {
        const DLTensor *weight = has_weight ? t[weight_at] : nullptr;
        const auto eps = static_cast<float>(scalars[0]);
        const auto options = static_cast<unsigned>(scalars[1]);
        switch (kind) {
        case RmsKind::partial:
            return halyard_partial_rms_norm(context, t[0], weight, eps, options, static_cast<float>(scalars[2]), t[y]);
        case RmsKind::add:
            return halyard_add_rms_norm(context, t[0], t[1], weight, eps, options, t[y - 1], t[y]);
        case RmsKind::plain:
            break;
        }
        return halyard_rms_norm(context, t[0], weight, eps, options, t[y]);
    };
    operation.reference = [=](const std::vector<Row> &rows, Dtype type) {
        NormParameters parameters;
        parameters.weight = has_weight ? &rows[weight_at] : nullptr;
        parameters.eps = rms_norm_eps;
        parameters.eps_outside_root = (flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0;
        parameters.unit_offset = (flags & HALYARD_RMS_UNIT_OFFSET) != 0;
        parameters.p = p;
        if (!adds) {
            return std::vector<ExpectedRow>{rms_norm(rows[0], parameters)};
        }
        const Row sum = residual_sum(rows[0], rows[1], type);
        return std::vector<ExpectedRow>{exact(sum), rms_norm(sum, parameters)};
    };
    all.push_back(operation);
}

void add_rms_norms(std::vector<Operation> &all) {
    constexpr unsigned outside = HALYARD_RMS_EPS_OUTSIDE_ROOT, offset = HALYARD_RMS_UNIT_OFFSET;
    add_rms_norm(all, RmsKind::plain, true, 0, 1, "rms_norm");
    add_rms_norm(all, RmsKind::plain, false, 0, 1, "rms_norm.no_weight");
    add_rms_norm(all, RmsKind::plain, true, outside, 1, "rms_norm.eps_outside_root");
    add_rms_norm(all, RmsKind::plain, true, offset, 1, "rms_norm.unit_offset");
    add_rms_norm(all, RmsKind::plain, true, outside | offset, 1, "rms_norm.eps_outside_root.unit_offset");
    add_rms_norm(all, RmsKind::plain, false, outside, 1, "rms_norm.no_weight.eps_outside_root");
    add_rms_norm(all, RmsKind::partial, true, 0, 0.0625f, "partial_rms_norm.p_0.0625");
    add_rms_norm(all, RmsKind::partial, false, 0, 0.5f, "partial_rms_norm.p_0.5.no_weight");
    add_rms_norm(all, RmsKind::partial, true, outside | offset, 0.75f,
                 "partial_rms_norm.p_0.75.eps_outside_root.unit_offset");
    add_rms_norm(all, RmsKind::add, true, 0, 1, "add_rms_norm");
    add_rms_norm(all, RmsKind::add, false, 0, 1, "add_rms_norm.no_weight");
    add_rms_norm(all, RmsKind::add, true, outside | offset, 1, "add_rms_norm.eps_outside_root.unit_offset");
}

void add_softmax(std::vector<Operation> &all) {
    for (const float scale : {1.0f, 0.088388346f, -2.0f}) {
        Operation operation;
        operation.label = scale == 1.0f ? "softmax" : with_number("softmax.scale_", scale);
        operation.function = "halyard_softmax";
        operation.operands = {{"x"}, {"y", Role::output}};
        operation.scalars = {{"scale", scale, not_finite}};
        operation.in_place = {{{1, 0}}};
        operation.needs_features = true;
        operation.call = [](const halyard_context *context, DLTensor *const *t, const double *scalars) {
            return halyard_softmax(context, t[0], static_cast<float>(scalars[0]), t[1]);
        };
        operation.reference = [scale](const std::vector<Row> &rows, Dtype type) {
            return std::vector<ExpectedRow>{softmax(rows[0], scale, type)};
        };
        all.push_back(operation);
    }
}

void add_add_and_cast(std::vector<Operation> &all) {
    Operation add;
    add.label = "add";
    add.function = "halyard_add";
    add.operands = {{"a"}, {"b"}, {"y", Role::output}};
    add.in_place = {{{2, 0}}, {{2, 1}}};
    add.call = [](const halyard_context *context, DLTensor *const *t, const double *) {
        return halyard_add(context, t[0], t[1], t[2]);
    };
    add.reference = [](const std::vector<Row> &rows, Dtype) {
        Row sum;
        for (std::size_t i = 0; i < rows[0].size(); i++) {
            sum.push_back(rows[0][i] + rows[1][i]);
        }
        return std::vector<ExpectedRow>{exact(sum)};
    };
    all.push_back(add);

    for (const Dtype to : all_dtypes) {
        Operation cast;
        cast.label = std::string("cast.to_") + name_of(to);
        cast.function = "halyard_cast";
        cast.operands = {{"x"}, {"y", Role::output, false, 1, to}};
        cast.call = [](const halyard_context *context, DLTensor *const *t, const double *) {
            return halyard_cast(context, t[0], t[1]);
        };
        cast.reference = [](const std::vector<Row> &rows, Dtype) { return std::vector<ExpectedRow>{exact(rows[0])}; };
        all.push_back(cast);
    }
}

/** Whether the library was built with the types that an operation always has. */
bool has_types(const Operation &operation) {
    return std::all_of(operation.operands.begin(), operation.operands.end(), [](const Operand &operand) {
        return !operand.type || std::count(std::begin(all_dtypes), std::end(all_dtypes), *operand.type) > 0;
    });
}

std::vector<Operation> make_operations() {
    std::vector<Operation> all;
    add_layer_norms(all);
    add_rms_norms(all);
    add_softmax(all);
    add_unary(all);
    add_gated(all);
    add_add_and_cast(all);
    const auto left_out = [](const Operation &operation) {
        return !is_built(operation.function.substr(std::string_view("halyard_").size())) || !has_types(operation);
    };
    all.erase(std::remove_if(all.begin(), all.end(), left_out), all.end());
    return all;
}

}  // namespace

std::vector<std::size_t> Operation::with_role(Role role) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < operands.size(); i++) {
        if (operands[i].role == role) {
            found.push_back(i);
        }
    }
    return found;
}

bool Operation::one_type() const {
    for (const Operand &operand : operands) {
        if (operand.type.has_value()) {
            return false;
        }
    }
    return true;
}

const std::vector<Activation> &activations() {
    static const std::vector<Activation> all = make_activations();
    return all;
}

const std::vector<Operation> &operations() {
    static const std::vector<Operation> all = make_operations();
    return all;
}

const Operation &operation(const std::string &label) {
    for (const Operation &candidate : operations()) {
        if (candidate.label == label) {
            return candidate;
        }
    }
    std::fprintf(stderr, "no operation is called %s\n", label.c_str());
    std::abort();
}

}  // namespace halyard::tests
