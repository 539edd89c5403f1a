// See activation_operations.h.
#include "activation_operations.h"

#include <limits>

#include "operations.h"
#include "reference_gradients.h"

namespace halyard::operations {
namespace {

/** Values of beta for the Swish family. */
constexpr float betas[] = {usual_beta, -1.5f, 0.0f, 0.25f, 1.702f, 30.0f};
const std::vector<double> refused_beta = {std::numeric_limits<double>::infinity(),
                                          -std::numeric_limits<double>::infinity(),
                                          std::numeric_limits<double>::quiet_NaN(),
                                          1e-40,
                                          -0.99e-28,
                                          1.01e28,
                                          -3.4e38};

// ---- The table of kernels: a kernel without a reference does not compile ----

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

struct UnaryBackwardKernel {
    const char *name, *derivative;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, DLTensor *);
    double (*reference)(double);  // of the derivative
};

constexpr UnaryBackwardKernel unary_backward_kernels[] = {
#define HALYARD_KERNEL(name) {#name, #name "_derivative", halyard_##name##_backward, reference::name##_derivative},
#include "kernels/unary_backward.inc"
#undef HALYARD_KERNEL
};

struct UnaryBetaBackwardKernel {
    const char *name, *derivative;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, float, DLTensor *);
    double (*reference)(double, double);
};

constexpr UnaryBetaBackwardKernel unary_beta_backward_kernels[] = {
#define HALYARD_KERNEL(name) {#name, #name "_derivative", halyard_##name##_backward, reference::name##_derivative},
#include "kernels/unary_beta_backward.inc"
#undef HALYARD_KERNEL
};

struct GatedBackwardKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, const DLTensor *, DLTensor *,
                           DLTensor *);
    halyard_status (*call_packed)(const halyard_context *, const DLTensor *, halyard_glu_layout, const DLTensor *,
                                  DLTensor *);
    const reference::Gate *gate;
};

const GatedBackwardKernel gated_backward_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name##_backward, halyard_##name##_packed_backward, &reference::name},
#include "kernels/gated_backward.inc"
#undef HALYARD_KERNEL
};

struct GatedBetaBackwardKernel {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, const DLTensor *, float,
                           DLTensor *, DLTensor *);
    halyard_status (*call_packed)(const halyard_context *, const DLTensor *, halyard_glu_layout, const DLTensor *,
                                  float, DLTensor *);
    const reference::BetaGate *gate;
};

const GatedBetaBackwardKernel gated_beta_backward_kernels[] = {
#define HALYARD_KERNEL(name) {#name, halyard_##name##_backward, halyard_##name##_packed_backward, &reference::name},
#include "kernels/gated_beta_backward.inc"
#undef HALYARD_KERNEL
};

#define HALYARD_KERNEL(name) static_assert(accuracy::has_bound(#name), #name " has no row in accuracy_bounds.h");
#include "kernels/unary.inc"
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL

// ---- Functions ----

/** What an activation needs of each element; 0 where nobody counted. */
double activation_flops(std::string_view name) {
    constexpr struct {
        std::string_view name;
        double count;
    } counts[] = {
        {"relu", 1},
        {"relu2", 2},
        {"exp", elementary_flops},
        {"tanh", elementary_flops},
        {"sigmoid", 2 + elementary_flops},
        {"gelu", 4 + elementary_flops},
        {"gelu_tanh", 8 + elementary_flops},
        {"gelu_sigmoid", 4 + elementary_flops},
        {"silu", 3 + elementary_flops},
        {"swish", 4 + elementary_flops},
    };
    for (const auto &each : counts) {
        if (each.name == name) {
            return each.count;
        }
    }
    return 0;
}

std::string with_beta(const std::string &name, float beta) {
    return beta == usual_beta ? name : with_number(name + ".beta_", beta);
}

std::vector<Activation> make_activations() {
    std::vector<Activation> all;
    for (const UnaryKernel &kernel : unary_kernels) {
        const auto call = [function = kernel.call](const halyard_context *context, const DLTensor *x, float,
                                                   DLTensor *y) { return function(context, x, y); };
        all.push_back({kernel.name, kernel.name, false, 1.0f, call, kernel.reference});
    }
    for (const UnaryBetaKernel &kernel : unary_beta_kernels) {
        for (const float beta : betas) {
            all.push_back({with_beta(kernel.name, beta), kernel.name, true, beta, kernel.call,
                           [function = kernel.reference, beta](double x) { return function(x, beta); }});
        }
    }
    return all;
}

/** A function of each element alone. `beta` scales the argument of the accuracy table's regions. */
template<typename Value>
ExpectedRow elementwise(const Value &value, const ErrorModel &errors, double beta, Dtype type, const Row &row) {
    ExpectedRow expected;
    for (const double x : row) {
        const double y = value(x);
        expected.push_back({y, errors.allowed(beta * x, y, type)});
    }
    return expected;
}

Operation activation(const char *name, const std::string &label) {
    constexpr std::string_view derivative = "_derivative";
    Operation operation;
    operation.label = label;
    operation.function = std::string("halyard_") + name;
    operation.group = "activations";
    operation.operands = {{"x"}, {"y", Role::output}};
    operation.in_place = {{{1, 0}}};
    if (const double count = activation_flops(name)) {
        operation.flops = flops_per_element(count);
    }
    if (const std::size_t at = label.find(derivative); at != std::string::npos) {
        operation.gradient_of = std::string(label).erase(at, derivative.size());
    }
    return operation;
}

void add_unary(std::vector<Operation> &all) {
    for (const UnaryKernel &kernel : unary_kernels) {
        Operation operation = activation(kernel.name, kernel.name);
        operation.call = [call = kernel.call](const halyard_context *context, DLTensor *const *t, const double *) {
            return call(context, t[0], t[1]);
        };
        operation.reference = by_row(operation.operands, [value = kernel.reference, errors = ErrorModel(kernel.name)](
                                                             const std::vector<Row> &rows, const double *, Dtype type) {
            return std::vector<ExpectedRow>{elementwise(value, errors, 1, type, rows[0])};
        });
        all.push_back(operation);
    }
    for (const UnaryBetaKernel &kernel : unary_beta_kernels) {
        for (const float beta : betas) {
            Operation operation = activation(kernel.name, with_beta(kernel.name, beta));
            operation.use = beta == usual_beta ? Use::usual : Use::option;
            operation.scalars = {{"beta", beta, refused_beta}};
            operation.call = [call = kernel.call](const halyard_context *context, DLTensor *const *t,
                                                  const double *scalars) {
                return call(context, t[0], static_cast<float>(scalars[0]), t[1]);
            };
            operation.reference =
                by_row(operation.operands, [function = kernel.reference, errors = ErrorModel(kernel.name)](
                                               const std::vector<Row> &rows, const double *scalars, Dtype type) {
                    const double b = scalars[0];
                    const auto value = [=](double x) { return function(x, b); };
                    return std::vector<ExpectedRow>{elementwise(value, errors, b, type, rows[0])};
                });
            all.push_back(operation);
        }
    }
}

constexpr struct {
    const char *name;
    halyard_glu_layout layout;
} packed_layouts[] = {
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

/** One gated unit on two tensors and in the three packed layouts. `scalars` follow the tensors (and the layout); the first is
 *  beta, where there is one, and value(x, scalars) what becomes of the gate. */
template<typename Value, typename Split, typename Packed>
void add_gated_unit(std::vector<Operation> &all, const char *name, const std::string &label, Use use,
                    std::string_view accuracy_row, const std::vector<Scalar> &scalars, const Value &value,
                    const Split &split, const Packed &packed) {
    const auto reference = [value, errors = ErrorModel(accuracy_row), has_beta = !scalars.empty()](
                               const Row &gate, const Row &up, const double *values, Dtype type) {
        ExpectedRow expected =
            elementwise([&](double x) { return value(x, values); }, errors, has_beta ? values[0] : 1.0, type, gate);
        for (std::size_t i = 0; i < expected.size(); i++) {
            expected[i] = gated(expected[i].value, expected[i].error, up[i]);
        }
        return std::vector<ExpectedRow>{expected};
    };
    Operation operation;
    operation.label = label;
    operation.function = std::string("halyard_") + name;
    operation.group = "gated units";
    operation.use = use;
    operation.operands = {{"gate"}, {"up"}, {"y", Role::output}};
    operation.scalars = scalars;
    operation.in_place = {{{2, 0}}, {{2, 1}}};
    operation.call = [split](const halyard_context *context, DLTensor *const *t, const double *values) {
        return split(context, t[0], t[1], values, t[2]);
    };
    operation.reference =
        by_row(operation.operands, [reference](const std::vector<Row> &rows, const double *values, Dtype type) {
            return reference(rows[0], rows[1], values, type);
        });
    operation.flops =
        flops_per_element(1 + activation_flops(use == Use::usual && accuracy_row == "swish" ? "silu" : accuracy_row));
    all.push_back(operation);

    for (const auto &[layout_name, layout] : packed_layouts) {
        Operation on_one = operation;
        on_one.label = label + "." + layout_name;
        on_one.function += "_packed";
        on_one.use = use == Use::usual && layout == HALYARD_GLU_UP_GATE ? Use::variant : use;
        on_one.operands = {{"x", Role::input, false, {Extent::rows, {Extent::d, 2}}}, {"y", Role::output}};
        // 3 is the one invalid value that C++ lets such an enumeration hold.
        on_one.scalars.insert(on_one.scalars.begin(), {"layout", static_cast<double>(layout), {3.0}});
        on_one.in_place.clear();
        if (layout != HALYARD_GLU_INTERLEAVED) {
            on_one.in_place = {{{1, 0, 0}}, {{1, 0, 1}}};
        }
        on_one.call = [packed](const halyard_context *context, DLTensor *const *t, const double *values) {
            return packed(context, t[0], static_cast<halyard_glu_layout>(static_cast<int>(values[0])), values + 1,
                          t[1]);
        };
        on_one.reference =
            by_row(on_one.operands, [reference](const std::vector<Row> &rows, const double *values, Dtype type) {
                const auto [gate, up] = unpack(rows[0], static_cast<halyard_glu_layout>(static_cast<int>(values[0])));
                return reference(gate, up, values + 1, type);
            });
        all.push_back(on_one);
    }
}

void add_gated(std::vector<Operation> &all) {
    for (const GatedKernel &kernel : gated_kernels) {
        add_gated_unit(
            all, kernel.name, kernel.name, Use::usual, kernel.gate->function, {},
            [value = kernel.gate->value](double x, const double *) { return value(x); },
            [call = kernel.call](const halyard_context *context, const DLTensor *gate, const DLTensor *up,
                                 const double *, DLTensor *y) { return call(context, gate, up, y); },
            [call = kernel.call_packed](const halyard_context *context, const DLTensor *x, halyard_glu_layout layout,
                                        const double *, DLTensor *y) { return call(context, x, layout, y); });
    }
    for (const GatedBetaKernel &kernel : gated_beta_kernels) {
        for (const float beta : {usual_beta, -0.75f}) {
            add_gated_unit(
                all, kernel.name, with_beta(kernel.name, beta), beta == usual_beta ? Use::usual : Use::option,
                kernel.gate->function, {{"beta", beta, refused_beta}},
                [value = kernel.gate->value](double x, const double *scalars) { return value(x, scalars[0]); },
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

// ---- Gradients ----

/** dx = dy f'(x): `derivative` is f', with its row of the accuracy table. */
template<typename Derivative, typename Call>
void add_activation_gradient(std::vector<Operation> &all, const std::string &name, Use use,
                             const std::vector<Scalar> &scalars, const ErrorModel &errors, const Derivative &derivative,
                             const Call &call) {
    const double beta = scalars.empty() ? usual_beta : scalars[0].value;
    Operation operation;
    operation.label = with_beta(name + "_backward", static_cast<float>(beta));
    operation.gradient_of = with_beta(name, static_cast<float>(beta));
    operation.function = "halyard_" + name + "_backward";
    operation.group = "activations";
    operation.use = use;
    operation.processors_alone = true;
    operation.operands = {{"x"}, {"dy"}, {"dx", Role::output}};
    operation.scalars = scalars;
    operation.in_place = {{{2, 0}}, {{2, 1}}};
    operation.call = [call](const halyard_context *context, DLTensor *const *t, const double *values) {
        return call(context, t[0], t[1], values, t[2]);
    };
    operation.reference = by_row(operation.operands, [=](const std::vector<Row> &rows, const double *values, Dtype) {
        const double b = scalars.empty() ? 1.0 : values[0];
        ExpectedRow expected;
        for (std::size_t i = 0; i < rows[0].size(); i++) {
            const double x = rows[0][i], slope = derivative(x, values);
            expected.push_back(weighted({slope, errors.allowed(b * x, slope, Dtype::f32)}, rows[1][i]));
        }
        return std::vector<ExpectedRow>{expected};
    });
    all.push_back(operation);
}

void add_activation_gradients(std::vector<Operation> &all) {
    for (const UnaryBackwardKernel &kernel : unary_backward_kernels) {
        add_activation_gradient(
            all, kernel.name, Use::variant, {}, ErrorModel(kernel.derivative),
            [value = kernel.reference](double x, const double *) { return value(x); },
            [call = kernel.call](const halyard_context *context, const DLTensor *x, const DLTensor *dy, const double *,
                                 DLTensor *dx) { return call(context, x, dy, dx); });
    }
    for (const UnaryBetaBackwardKernel &kernel : unary_beta_backward_kernels) {
        for (const float beta : {usual_beta, -1.5f, 0.0f}) {
            add_activation_gradient(
                all, kernel.name, beta == usual_beta ? Use::variant : Use::option, {{"beta", beta, refused_beta}},
                ErrorModel(kernel.derivative),
                [value = kernel.reference](double x, const double *scalars) { return value(x, scalars[0]); },
                [call = kernel.call](const halyard_context *context, const DLTensor *x, const DLTensor *dy,
                                     const double *scalars, DLTensor *dx) {
                    return call(context, x, dy, static_cast<float>(scalars[0]), dx);
                });
        }
    }
}

/** What a gated unit's gradient is made of: f and f' with their rows of the accuracy table. */
template<typename Function>
struct GatePair {
    Function value, derivative;
    ErrorModel value_errors, derivative_errors;
};

/** The gradient of one gated unit on two tensors and in the three packed layouts, as add_gated_unit(). */
template<typename Function, typename Split, typename Packed>
void add_gated_gradient(std::vector<Operation> &all, const std::string &name, Use use,
                        const std::vector<Scalar> &scalars, const GatePair<Function> &gate, const Split &split,
                        const Packed &packed) {
    const auto reference = [gate, has_beta = !scalars.empty()](const Row &gates, const Row &ups, const Row &dy,
                                                               const double *values) {
        ExpectedRow dgate, dup;
        for (std::size_t i = 0; i < gates.size(); i++) {
            const double x = gates[i], argument = has_beta ? values[0] * x : x;
            const double slope = gate.derivative(x, values), value = gate.value(x, values);
            const double slope_error = gate.derivative_errors.allowed(argument, slope, Dtype::f32);
            dgate.push_back(weighted(gated(slope, slope_error, ups[i]), dy[i]));
            dup.push_back(gated(value, gate.value_errors.allowed(argument, value, Dtype::f32), dy[i]));
        }
        return std::vector<ExpectedRow>{dgate, dup};
    };
    const float beta = scalars.empty() ? usual_beta : static_cast<float>(scalars[0].value);
    Operation operation;
    operation.label = with_beta(name + "_backward", beta);
    operation.gradient_of = with_beta(name, beta);
    operation.function = "halyard_" + name + "_backward";
    operation.group = "gated units";
    operation.use = use;
    operation.processors_alone = true;
    operation.operands = {{"gate"}, {"up"}, {"dy"}, {"dgate", Role::output}, {"dup", Role::output}};
    operation.scalars = scalars;
    for (std::size_t input = 0; input < 3; input++) {
        operation.in_place.insert(operation.in_place.end(), {{{3, input}}, {{4, input}}});
        for (const std::size_t other : {(input + 1) % 3, (input + 2) % 3}) {
            operation.in_place.push_back({{3, input}, {4, other}});
        }
    }
    operation.call = [split](const halyard_context *context, DLTensor *const *t, const double *values) {
        return split(context, t[0], t[1], t[2], values, t[3], t[4]);
    };
    operation.reference =
        by_row(operation.operands, [reference](const std::vector<Row> &rows, const double *values, Dtype) {
            return reference(rows[0], rows[1], rows[2], values);
        });
    all.push_back(operation);

    for (const auto &[layout_name, layout] : packed_layouts) {
        const Axis both(Extent::d, 2);
        Operation on_one = operation;
        on_one.label += std::string(".") + layout_name;
        on_one.gradient_of += std::string(".") + layout_name;
        on_one.function = "halyard_" + name + "_packed_backward";
        on_one.operands = {
            {"x", Role::input, false, {Extent::rows, both}}, {"dy"}, {"dx", Role::output, false, {Extent::rows, both}}};
        on_one.scalars.insert(on_one.scalars.begin(), {"layout", static_cast<double>(layout), {3.0}});
        on_one.in_place = {{{2, 0}}};
        on_one.call = [packed](const halyard_context *context, DLTensor *const *t, const double *values) {
            return packed(context, t[0], static_cast<halyard_glu_layout>(static_cast<int>(values[0])), t[1], values + 1,
                          t[2]);
        };
        on_one.reference =
            by_row(on_one.operands, [reference](const std::vector<Row> &rows, const double *values, Dtype) {
                const auto given = static_cast<halyard_glu_layout>(static_cast<int>(values[0]));
                const auto [gate_row, up_row] = unpack(rows[0], given);
                const std::vector<ExpectedRow> apart = reference(gate_row, up_row, rows[1], values + 1);
                const ExpectedRow &dgate = apart[0], &dup = apart[1];
                ExpectedRow dx = given == HALYARD_GLU_UP_GATE ? dup : dgate;
                if (given == HALYARD_GLU_INTERLEAVED) {
                    dx.clear();
                    for (std::size_t i = 0; i < dgate.size(); i++) {
                        dx.insert(dx.end(), {dgate[i], dup[i]});
                    }
                } else {
                    const ExpectedRow &second = given == HALYARD_GLU_UP_GATE ? dgate : dup;
                    dx.insert(dx.end(), second.begin(), second.end());
                }
                return std::vector<ExpectedRow>{dx};
            });
        all.push_back(on_one);
    }
}

void add_gated_gradients(std::vector<Operation> &all) {
    const auto pair_of = [](const auto *gate, const auto &wrap) {
        return GatePair<decltype(wrap(gate->value))>{wrap(gate->value), wrap(gate->derivative),
                                                     ErrorModel(gate->function_of_gradient),
                                                     ErrorModel(gate->derivative_function)};
    };
    for (const GatedBackwardKernel &kernel : gated_backward_kernels) {
        const auto gate = pair_of(kernel.gate, [](double (*function)(double)) {
            return [function](double x, const double *) { return function(x); };
        });
        add_gated_gradient(
            all, kernel.name, Use::variant, {}, gate,
            [call = kernel.call](const halyard_context *context, const DLTensor *gates, const DLTensor *up,
                                 const DLTensor *dy, const double *, DLTensor *dgate,
                                 DLTensor *dup) { return call(context, gates, up, dy, dgate, dup); },
            [call = kernel.call_packed](const halyard_context *context, const DLTensor *x, halyard_glu_layout layout,
                                        const DLTensor *dy, const double *,
                                        DLTensor *dx) { return call(context, x, layout, dy, dx); });
    }
    for (const GatedBetaBackwardKernel &kernel : gated_beta_backward_kernels) {
        const auto gate = pair_of(kernel.gate, [](double (*function)(double, double)) {
            return [function](double x, const double *scalars) { return function(x, scalars[0]); };
        });
        for (const float beta : {usual_beta, -0.75f}) {
            add_gated_gradient(
                all, kernel.name, beta == usual_beta ? Use::variant : Use::option, {{"beta", beta, refused_beta}}, gate,
                [call = kernel.call](const halyard_context *context, const DLTensor *gates, const DLTensor *up,
                                     const DLTensor *dy, const double *scalars, DLTensor *dgate, DLTensor *dup) {
                    return call(context, gates, up, dy, static_cast<float>(scalars[0]), dgate, dup);
                },
                [call = kernel.call_packed](const halyard_context *context, const DLTensor *x,
                                            halyard_glu_layout layout, const DLTensor *dy, const double *scalars,
                                            DLTensor *dx) {
                    return call(context, x, layout, dy, static_cast<float>(scalars[0]), dx);
                });
        }
    }
}

}  // namespace

const std::vector<Activation> &activations() {
    static const std::vector<Activation> all = make_activations();
    return all;
}

std::vector<Operation> activation_operations() {
    std::vector<Operation> all;
    add_unary(all);
    add_gated(all);
    add_activation_gradients(all);
    add_gated_gradients(all);
    return all;
}

}  // namespace halyard::operations
