// See norm_operations.h.
#include "norm_operations.h"

#include <limits>

#include "norm_gradients.h"
#include "norm_scalars.h"
#include "operations.h"
#include "reference_gradients.h"

namespace halyard::operations {
namespace {

/** The rounded sum that an add+norm returns and normalizes. */
Row residual_sum(const Row &x, const Row &residual, Dtype type) {
    Row sum;
    for (std::size_t i = 0; i < x.size(); i++) {
        sum.push_back(round_to(type, round_to(Dtype::f32, x[i] + residual[i])));
    }
    return sum;
}

/** Which vectors a norm has, and which of them are f32 whatever the dtype of x. */
struct NormVectors {
    bool weight = true, bias = false, f32_weight = false, f32_bias = false;

    std::string suffix() const { return std::string(f32_weight ? ".f32_weight" : "") + (f32_bias ? ".f32_bias" : ""); }
};

/** x first (and residual), then the parameters present, then the outputs. */
std::vector<Operand> norm_operands(bool adds, const NormVectors &has) {
    const auto type = [](bool f32) { return f32 ? std::optional<Dtype>(Dtype::f32) : std::nullopt; };
    std::vector<Operand> operands = {{"x"}};
    if (adds) {
        operands.push_back({"residual"});
    }
    if (has.weight) {
        operands.push_back({"weight", Role::parameter, true, {Extent::d}, type(has.f32_weight)});
    }
    if (has.bias) {
        operands.push_back({"bias", Role::parameter, true, {Extent::d}, type(has.f32_bias)});
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

/** Names which of weight and bias there are, where not all that the function takes. */
std::string with_parameters(const std::string &name, bool has_weight, bool has_bias, bool takes_bias) {
    const bool all = has_weight && (has_bias || !takes_bias);
    return all ? name : name + (has_weight ? ".weight" : has_bias ? ".bias" : ".plain");
}

void add_layer_norm(std::vector<Operation> &all, bool adds, Use use, const NormVectors &has) {
    Operation operation;
    operation.function = adds ? "halyard_add_layer_norm" : "halyard_layer_norm";
    operation.label = with_parameters(adds ? "add_layer_norm" : "layer_norm", has.weight, has.bias, true);
    operation.label += has.suffix();
    operation.group = "norms";
    operation.use = use;
    operation.operands = norm_operands(adds, has);
    operation.scalars = {eps_scalar(layer_norm_eps)};
    operation.in_place = norm_aliases(adds, operation.operands.size());
    operation.needs_features = true;
    const std::size_t weight_at = adds ? 2 : 1, bias_at = weight_at + (has.weight ? 1 : 0);
    operation.call = [=, y = operation.operands.size() - 1](const halyard_context *context, DLTensor *const *t,
                                                            const double *scalars) {
        const DLTensor *weight = has.weight ? t[weight_at] : nullptr;
        const DLTensor *bias = has.bias ? t[bias_at] : nullptr;
        const auto eps = static_cast<float>(scalars[0]);
        return adds ? halyard_add_layer_norm(context, t[0], t[1], weight, bias, eps, t[y - 1], t[y])
                    : halyard_layer_norm(context, t[0], weight, bias, eps, t[y]);
    };
    operation.flops = flops_per_element(adds ? 9 : 8);
    const RowReference reference = [=](const std::vector<Row> &rows, const double *scalars, Dtype type) {
        NormParameters parameters;
        parameters.weight = has.weight ? &rows[weight_at] : nullptr;
        parameters.bias = has.bias ? &rows[bias_at] : nullptr;
        parameters.eps = scalars[0];
        if (!adds) {
            return std::vector<ExpectedRow>{layer_norm(rows[0], parameters)};
        }
        const Row sum = residual_sum(rows[0], rows[1], type);
        return std::vector<ExpectedRow>{exact(sum), layer_norm(sum, parameters)};
    };
    operation.reference = by_row(operation.operands, reference);
    all.push_back(operation);
}

void add_layer_norms(std::vector<Operation> &all, bool adds) {
    const Use without = adds ? Use::option : Use::variant;
    add_layer_norm(all, adds, Use::usual, {true, true});
    add_layer_norm(all, adds, without, {true, false});
    add_layer_norm(all, adds, without, {false, true});
    add_layer_norm(all, adds, without, {false, false});
    add_layer_norm(all, adds, Use::option, {true, true, true, false});
    add_layer_norm(all, adds, Use::option, {true, true, false, true});
    add_layer_norm(all, adds, Use::option, {true, true, true, true});
}

enum class RmsKind { plain, partial, add };

void add_rms_norm(std::vector<Operation> &all, RmsKind kind, Use use, const NormVectors &has, unsigned flags = 0,
                  float p = 1) {
    const bool has_weight = has.weight;
    static const char *const functions[] = {"rms_norm", "partial_rms_norm", "add_rms_norm"};
    const bool adds = kind == RmsKind::add;
    Operation operation;
    operation.function = std::string("halyard_") + functions[static_cast<int>(kind)];
    operation.label = with_parameters(functions[static_cast<int>(kind)], has_weight, false, false);
    if (kind == RmsKind::partial && p != usual_partial_p) {
        operation.label += with_number(".p_", p);
    }
    operation.label += (flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0 ? ".eps_outside_root" : "";
    operation.label += (flags & HALYARD_RMS_UNIT_OFFSET) != 0 ? ".unit_offset" : "";
    operation.label += has.suffix();
    operation.group = "norms";
    operation.use = use;
    operation.operands = norm_operands(adds, has);
    operation.scalars = {eps_scalar(rms_norm_eps), flags_scalar(flags)};
    if (kind == RmsKind::partial) {
        operation.scalars.push_back(p_scalar(p));
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
    operation.flops = flops_per_element(adds ? 5 : kind == RmsKind::partial ? 2 : 4);
    const RowReference reference = [=](const std::vector<Row> &rows, const double *scalars, Dtype type) {
        const auto options = static_cast<unsigned>(scalars[1]);
        NormParameters parameters;
        parameters.weight = has_weight ? &rows[weight_at] : nullptr;
        parameters.eps = scalars[0];
        parameters.eps_outside_root = (options & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0;
        parameters.unit_offset = (options & HALYARD_RMS_UNIT_OFFSET) != 0;
        parameters.p = kind == RmsKind::partial ? scalars[2] : 1;
        if (!adds) {
            return std::vector<ExpectedRow>{rms_norm(rows[0], parameters)};
        }
        const Row sum = residual_sum(rows[0], rows[1], type);
        return std::vector<ExpectedRow>{exact(sum), rms_norm(sum, parameters)};
    };
    operation.reference = by_row(operation.operands, reference);
    all.push_back(operation);
}

void add_norms(std::vector<Operation> &all) {
    constexpr unsigned outside = HALYARD_RMS_EPS_OUTSIDE_ROOT, offset = HALYARD_RMS_UNIT_OFFSET;
    constexpr NormVectors weight = {true}, none = {false}, f32_weight = {true, false, true};
    add_rms_norm(all, RmsKind::plain, Use::usual, weight);
    add_rms_norm(all, RmsKind::plain, Use::variant, none);
    add_rms_norm(all, RmsKind::plain, Use::option, weight, outside);
    add_rms_norm(all, RmsKind::plain, Use::option, weight, offset);
    add_rms_norm(all, RmsKind::plain, Use::option, weight, outside | offset);
    add_rms_norm(all, RmsKind::plain, Use::option, none, outside);
    add_rms_norm(all, RmsKind::plain, Use::option, f32_weight);
    add_rms_norm(all, RmsKind::partial, Use::usual, weight, 0, usual_partial_p);
    add_rms_norm(all, RmsKind::partial, Use::option, none, 0, 0.5f);
    add_rms_norm(all, RmsKind::partial, Use::option, weight, outside | offset, 0.75f);
    add_rms_norm(all, RmsKind::partial, Use::option, f32_weight, outside | offset, 0.75f);
    add_layer_norms(all, false);
    add_rms_norm(all, RmsKind::add, Use::usual, weight);
    add_rms_norm(all, RmsKind::add, Use::option, none);
    add_rms_norm(all, RmsKind::add, Use::option, weight, outside | offset);
    add_rms_norm(all, RmsKind::add, Use::option, f32_weight);
    add_layer_norms(all, true);
}

void add_softmax(std::vector<Operation> &all) {
    for (const float scale : {1.0f, 0.088388346f, -2.0f}) {
        Operation operation;
        operation.label = scale == 1.0f ? "softmax" : with_number("softmax.scale_", scale);
        operation.function = "halyard_softmax";
        operation.group = "norms";
        operation.use = scale == 1.0f ? Use::usual : Use::option;
        operation.operands = {{"x"}, {"y", Role::output}};
        operation.scalars = {{"scale",
                              scale,
                              {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}}};
        operation.in_place = {{{1, 0}}};
        operation.needs_features = true;
        operation.call = [](const halyard_context *context, DLTensor *const *t, const double *scalars) {
            return halyard_softmax(context, t[0], static_cast<float>(scalars[0]), t[1]);
        };
        operation.flops = flops_per_element(4 + elementary_flops);
        operation.reference =
            by_row(operation.operands, [](const std::vector<Row> &rows, const double *scalars, Dtype type) {
                return std::vector<ExpectedRow>{softmax(rows[0], scalars[0], type)};
            });
        all.push_back(operation);

        Operation gradient = operation;
        gradient.gradient_of = operation.label;
        gradient.label = scale == 1.0f ? "softmax_backward" : with_number("softmax_backward.scale_", scale);
        gradient.function = "halyard_softmax_backward";
        gradient.processors_alone = true;
        gradient.operands = {{"y"}, {"dy"}, {"dx", Role::output}};
        gradient.in_place = {{{2, 0}}, {{2, 1}}};
        gradient.call = [](const halyard_context *context, DLTensor *const *t, const double *scalars) {
            return halyard_softmax_backward(context, t[0], t[1], static_cast<float>(scalars[0]), t[2]);
        };
        gradient.flops = flops_per_element(5);
        gradient.reference = by_row(gradient.operands, [](const std::vector<Row> &rows, const double *scalars, Dtype) {
            return std::vector<ExpectedRow>{softmax_gradient(rows[0], rows[1], scalars[0])};
        });
        all.push_back(gradient);
    }
}

}  // namespace

std::vector<Operation> norm_operations() {
    std::vector<Operation> all;
    add_norms(all);
    const std::vector<Operation> gradients = norm_gradients();
    all.insert(all.end(), gradients.begin(), gradients.end());
    add_softmax(all);
    return all;
}

}  // namespace halyard::operations
