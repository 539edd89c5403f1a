// See kernel_calls.h.
#include "kernel_calls.h"

#include <cmath>

namespace halyard::bench {
namespace {

using Tensor = KernelTensor;
using Arguments = std::vector<KernelArgument>;

Tensor whole(Tensor::Which which, int index, std::int64_t width) {
    return {which, index, 0, width};
}

bool begins_with(const std::string &text, const std::string &beginning) {
    return text.rfind(beginning, 0) == 0;
}

/** The kernel that the library takes where beta is 1 (runtime/elementwise.cpp). */
std::string without_beta(const std::string &kernel) {
    static_assert(beta == 1.0f, "the general kernels are meant");
    return begins_with(kernel, "swish")    ? "silu" + kernel.substr(5)
           : begins_with(kernel, "swiglu") ? "swiglu_beta1"
                                           : kernel;
}

KernelCall call_of(const WorkId &row, std::string kernel, Arguments arguments) {
    return {std::move(kernel), row.dtype, row.rows, row.d, row.threads, std::move(arguments)};
}

KernelCall norm_call(const WorkId &row, const Tensor &x, const Tensor &y) {
    const std::string &operation = row.kernel->operation;
    const bool is_rms = operation.find("rms_norm") != std::string::npos, is_partial = begins_with(operation, "partial");
    const auto d = static_cast<float>(row.d);
    std::string kernel = is_rms ? "rms_norm" : "layer_norm";
    Arguments arguments = is_rms
                              ? Arguments{{"x", x},
                                          {"eps", rms_norm_eps},
                                          {"eps_outside_root", false},
                                          {"weight_offset", 0.0f},
                                          {"moment_width", static_cast<int>(std::ceil(is_partial ? partial_p * d : d))}}
                              : Arguments{{"x", x}, {"eps", layer_norm_eps}};
    if (row.kernel->has_weight) {
        kernel += "_weight";
        arguments.push_back({"weight", whole(Tensor::weight, 0, row.d)});
    }
    if (row.kernel->has_bias) {
        kernel += "_bias";
        arguments.push_back({"bias", whole(Tensor::bias, 0, row.d)});
    }
    arguments.push_back({"y", y});
    return call_of(row, kernel, arguments);
}

KernelCall gated_call(const WorkId &row, const Tensor &y) {
    const Kernel &kernel = *row.kernel;
    const std::string &operation = kernel.operation, unit = operation.substr(0, operation.find("_packed"));
    const KernelArgument scale = {"beta", beta}, output = {"y", y};
    if (unit == operation) {
        return call_of(
            row, without_beta(unit),
            {{"gate", whole(Tensor::input, 0, row.d)}, {"up", whole(Tensor::input, 1, row.d)}, scale, output});
    }
    if (kernel.layout == HALYARD_GLU_INTERLEAVED) {
        return call_of(row, without_beta(unit) + "_interleaved",
                       {{"gate", whole(Tensor::input, 0, 2 * row.d)}, scale, output});
    }
    const Tensor first = {Tensor::input, 0, 0, row.d}, second = {Tensor::input, 0, row.d, row.d};
    const bool gate_first = kernel.layout == HALYARD_GLU_GATE_UP;
    return call_of(row, without_beta(unit),
                   {{"gate", gate_first ? first : second}, {"up", gate_first ? second : first}, scale, output});
}

}  // namespace

std::string KernelCall::name() const {
    return kernel + "_" + tests::name_of(dtype) + "_" + std::to_string(rows) + "x" + std::to_string(d) + "_" +
           std::to_string(threads) + "t";
}

std::vector<KernelCall> kernel_calls(const WorkId &row) {
    if (row.has_roofline()) {
        return {};
    }
    const Kernel &kernel = *row.kernel;
    const Tensor x = whole(Tensor::input, 0, row.d), second = whole(Tensor::input, 1, row.d);
    const Tensor y = whole(Tensor::output, 0, row.d);
    if (kernel.group == "norms" && kernel.operation == "softmax") {
        return {call_of(row, "softmax", {{"x", x}, {"score_scale", 1.0f}, {"y", y}})};
    }
    if (kernel.group == "norms" && begins_with(kernel.operation, "add_")) {
        return {call_of(row, "add", {{"a", x}, {"b", second}, {"y", y}}),
                norm_call(row, y, whole(Tensor::output, 1, row.d))};
    }
    if (kernel.group == "norms") {
        return {norm_call(row, x, y)};
    }
    if (kernel.group == "activations") {
        return {call_of(row, without_beta(kernel.operation), {{"x", x}, {"beta", beta}, {"y", y}})};
    }
    if (kernel.group == "gated units") {
        return {gated_call(row, y)};
    }
    if (kernel.operation == "add") {
        return {call_of(row, "add", {{"a", x}, {"b", second}, {"y", y}})};
    }
    return {call_of(row, std::string("cast_to_") + tests::name_of(*kernel.cast_to), {{"x", x}, {"y", y}})};
}

}  // namespace halyard::bench
