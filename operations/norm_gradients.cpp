// See norm_gradients.h.
#include "norm_gradients.h"

#include <cmath>
#include <limits>

#include "norm_scalars.h"
#include "operations.h"
#include "reference_gradients.h"

namespace halyard::operations {
namespace {

struct Choice {
    const char *norm;    // the function's, without _backward
    const char *suffix;  // of the norm's label
    Use use;
    bool has_weight, adds;
    unsigned flags = 0;
    float p = 1;
    bool f32_weight = false;  // whatever the dtype of x

    bool is_layer_norm() const { return norm[0] == 'l'; }
    bool is_partial() const { return norm[0] == 'p'; }
};

constexpr unsigned outside = HALYARD_RMS_EPS_OUTSIDE_ROOT, offset = HALYARD_RMS_UNIT_OFFSET;

constexpr Choice choices[] = {
    {"layer_norm", "", Use::usual, true, false},
    {"layer_norm", ".plain", Use::variant, false, false},
    {"layer_norm", "", Use::usual, true, true},
    {"rms_norm", "", Use::usual, true, false},
    {"rms_norm", ".plain", Use::variant, false, false},
    {"rms_norm", "", Use::usual, true, true},
    {"rms_norm", ".eps_outside_root", Use::option, true, false, outside},
    {"rms_norm", ".unit_offset", Use::option, true, false, offset},
    {"rms_norm", ".plain.eps_outside_root", Use::option, false, false, outside},
    {"partial_rms_norm", "", Use::variant, true, false, 0, usual_partial_p},
    {"partial_rms_norm", ".p_0.75.eps_outside_root.unit_offset", Use::option, true, true, outside | offset, 0.75f},
    {"layer_norm", ".f32_weight", Use::option, true, true, 0, 1, true},
    {"rms_norm", ".f32_weight", Use::option, true, false, 0, 1, true},
    {"partial_rms_norm", ".p_0.75.eps_outside_root.unit_offset.f32_weight", Use::option, true, true, outside | offset,
     0.75f, true},
};

constexpr std::size_t absent = static_cast<std::size_t>(-1);

/** Where the operands stand. */
struct Places {
    std::size_t x = 0, weight = absent, dy = absent, dresidual_out = absent, dx = absent, dweight = absent,
                dbias = absent;
};

ExpectedRow sum_of(const ExpectedRow &dx, const Row &residual) {
    ExpectedRow sum;
    for (std::size_t i = 0; i < dx.size(); i++) {
        const double value = dx[i].value + residual[i];
        sum.push_back({value, dx[i].error + 0x1p-24 * std::fabs(value)});
    }
    return sum;
}

NormParameters parameters_of(const Choice &choice, const double *scalars, const Row *weight) {
    NormParameters parameters;
    parameters.weight = weight;
    parameters.eps = scalars[0];
    parameters.eps_outside_root = (choice.flags & outside) != 0;
    parameters.unit_offset = (choice.flags & offset) != 0;
    parameters.p = choice.is_partial() ? scalars[2] : 1;
    return parameters;
}

halyard_status call(const Choice &choice, const Places &at, const halyard_context *context, DLTensor *const *t,
                    const double *scalars) {
    const auto tensor = [t](std::size_t place) { return place == absent ? nullptr : t[place]; };
    const DLTensor *x = t[at.x], *weight = tensor(at.weight), *dy = t[at.dy], *residual = tensor(at.dresidual_out);
    DLTensor *dx = t[at.dx], *dweight = tensor(at.dweight), *dbias = tensor(at.dbias);
    const auto eps = static_cast<float>(scalars[0]);
    if (choice.is_layer_norm()) {
        return halyard_layer_norm_backward(context, x, weight, eps, dy, residual, 0, dx, dweight, dbias);
    }
    const auto flags = static_cast<unsigned>(scalars[1]);
    if (choice.is_partial()) {
        return halyard_partial_rms_norm_backward(context, x, weight, eps, flags, static_cast<float>(scalars[2]), dy,
                                                 residual, 0, dx, dweight);
    }
    return halyard_rms_norm_backward(context, x, weight, eps, flags, dy, residual, 0, dx, dweight);
}

std::vector<Matrix> expected(const Choice &choice, const Places &at, const std::vector<Rows> &values, std::size_t width,
                             const double *scalars) {
    const NormParameters parameters =
        parameters_of(choice, scalars, choice.has_weight ? &values[at.weight][0] : nullptr);
    Matrix dx, weight_terms, dy_rows;
    for (std::size_t row = 0; row < values[at.x].size(); row++) {
        const Row &x = values[at.x][row], &dy = values[at.dy][row];
        const NormGradient gradient =
            choice.is_layer_norm() ? layer_norm_gradient(x, dy, parameters) : rms_norm_gradient(x, dy, parameters);
        dx.push_back(choice.adds ? sum_of(gradient.dx, values[at.dresidual_out][row]) : gradient.dx);
        weight_terms.push_back(gradient.weight_terms);
        dy_rows.emplace_back();
        for (const double each : dy) {
            dy_rows.back().push_back({each, 0});
        }
    }
    std::vector<Matrix> results = {dx};
    if (at.dweight != absent) {
        results.push_back({sum_of_rows(weight_terms, width)});
    }
    if (at.dbias != absent) {
        results.push_back({sum_of_rows(dy_rows, width)});
    }
    return results;
}

Operation operation_of(const Choice &choice) {
    Operation operation;
    const std::string name = std::string(choice.norm) + "_backward";
    operation.label = name + choice.suffix + (choice.adds ? ".residual" : "");
    operation.function = "halyard_" + name;
    operation.group = "norms";
    operation.use = choice.use;
    operation.gradient_of = std::string(choice.norm) + choice.suffix;
    operation.needs_features = operation.processors_alone = true;
    const auto add = [&operation](bool present, const Operand &operand) {
        if (present) {
            operation.operands.push_back(operand);
        }
        return present ? operation.operands.size() - 1 : absent;
    };
    const auto sums = [](const char *name) { return Operand{name, Role::output, true, {Extent::d}, Dtype::f32}; };
    Places at;
    at.x = add(true, {"x"});
    at.dy = add(true, {"dy"});
    at.dresidual_out = add(choice.adds, {"dresidual_out", Role::input, true});
    const auto weight_type = choice.f32_weight ? std::optional<Dtype>(Dtype::f32) : std::nullopt;
    at.weight = add(choice.has_weight, {"weight", Role::parameter, true, {Extent::d}, weight_type});
    at.dx = add(true, {"dx", Role::output});
    at.dweight = add(choice.has_weight, sums("dweight"));
    at.dbias = add(choice.is_layer_norm() && choice.has_weight, sums("dbias"));
    operation.scalars = {eps_scalar(choice.is_layer_norm() ? layer_norm_eps : rms_norm_eps)};
    if (!choice.is_layer_norm()) {
        operation.scalars.push_back(flags_scalar(choice.flags));
    }
    if (choice.is_partial()) {
        operation.scalars.push_back(p_scalar(choice.p));
    }
    for (const std::size_t input : {at.x, at.dy, at.dresidual_out}) {
        if (input != absent) {
            operation.in_place.push_back({{at.dx, input}});
        }
    }
    operation.call = [choice, at](const halyard_context *context, DLTensor *const *t, const double *scalars) {
        return call(choice, at, context, t, scalars);
    };
    const double extra = (choice.has_weight ? 2 : 0) + (choice.adds ? 1 : 0);
    operation.flops = [count = (choice.is_layer_norm() ? 15 : 9) + extra](const Sizes &sizes) {
        double elements = static_cast<double>(sizes.d);
        for (const std::int64_t extent : sizes.rows) {
            elements *= static_cast<double>(extent);
        }
        return count * elements;
    };
    operation.reference = [choice, at](const std::vector<Rows> &values, const Sizes &sizes, const double *scalars,
                                       Dtype) {
        return expected(choice, at, values, static_cast<std::size_t>(sizes.d), scalars);
    };
    return operation;
}

}  // namespace

std::vector<Operation> norm_gradients() {
    std::vector<Operation> all;
    for (const Choice &choice : choices) {
        all.push_back(operation_of(choice));
    }
    return all;
}

}  // namespace halyard::operations
