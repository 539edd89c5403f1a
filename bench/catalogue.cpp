// Every kernel as a row of the benchmark: the activations and gated units from the build's lists of kernels, the
// functions with signatures of their own by hand. A kernel of the build that no row covers does not compile.
#include <string_view>
#include <type_traits>

#include "work.h"

namespace halyard::bench {
namespace {

namespace reference = tests::reference;
using tests::Row;
using Rows = std::vector<Row>;

// ---- References of whole rows ----

/** A function of each element of the inputs. */
template<typename Function>
Reference elementwise(const Function &function) {
    return [function](const Rows &inputs, const Row &, const Row &) {
        Row y(inputs[0].size());
        for (std::size_t i = 0; i < y.size(); i++) {
            if constexpr (std::is_invocable_v<Function, double, double>) {
                y[i] = function(inputs[0][i], inputs[1][i]);
            } else {
                y[i] = function(inputs[0][i]);
            }
        }
        return Rows{y};
    };
}

/** A gated unit on one tensor. */
template<typename Function>
Reference packed(const Function &activation, halyard_glu_layout layout) {
    return [activation, layout](const Rows &inputs, const Row &, const Row &) {
        const Row &x = inputs[0];
        const std::size_t h = x.size() / 2;
        Row y(h);
        for (std::size_t i = 0; i < h; i++) {
            const double first = layout == HALYARD_GLU_INTERLEAVED ? x[2 * i] : x[i];
            const double second = layout == HALYARD_GLU_INTERLEAVED ? x[2 * i + 1] : x[i + h];
            y[i] = layout == HALYARD_GLU_UP_GATE ? activation(second) * first : activation(first) * second;
        }
        return Rows{y};
    };
}

Row values_of(const tests::ExpectedRow &expected) {
    Row values;
    for (const tests::Expected &each : expected) {
        values.push_back(each.value);
    }
    return values;
}

const Row *unless_empty(const Row &row) {
    return row.empty() ? nullptr : &row;
}

Rows layer_norm_row(const Rows &inputs, const Row &weight, const Row &bias) {
    return {values_of(
        tests::layer_norm(inputs[0], {unless_empty(weight), unless_empty(bias), layer_norm_eps, false, false, 1}))};
}

Reference rms_norm_rows(double p) {
    return [p](const Rows &inputs, const Row &weight, const Row &) {
        return Rows{
            values_of(tests::rms_norm(inputs[0], {unless_empty(weight), nullptr, rms_norm_eps, false, false, p}))};
    };
}

/** add+norm. That the sum is rounded to a 16-bit type on the way is within the tolerance. */
Reference after_add(const Reference &norm) {
    return [norm](const Rows &inputs, const Row &weight, const Row &bias) {
        Row sum(inputs[0].size());
        for (std::size_t i = 0; i < sum.size(); i++) {
            sum[i] = inputs[0][i] + inputs[1][i];
        }
        return Rows{sum, norm({sum}, weight, bias)[0]};
    };
}

// ---- Kernels by signature ----

const DLTensor *view_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? &matrix->view : nullptr;
}

Kernel base(const char *group, const std::string &name, const std::string &operation, Stream stream) {
    Kernel kernel;
    kernel.group = group;
    kernel.name = name;
    kernel.operation = operation;
    kernel.stream = stream;
    return kernel;
}

Kernel unary(const char *name, halyard_status (*function)(const halyard_context *, const DLTensor *, DLTensor *),
             double (*exact)(double)) {
    Kernel kernel = base("activations", name, name, stream_copy);
    kernel.call = [function](Work &work, Operands &set) {
        return function(work.context.get(), &set.inputs[0].view, &set.outputs[0].view);
    };
    kernel.reference = elementwise(exact);
    return kernel;
}

Kernel unary_beta(const char *name,
                  halyard_status (*function)(const halyard_context *, const DLTensor *, float, DLTensor *),
                  double (*exact)(double, double)) {
    Kernel kernel = base("activations", name, name, stream_copy);
    kernel.call = [function](Work &work, Operands &set) {
        return function(work.context.get(), &set.inputs[0].view, beta, &set.outputs[0].view);
    };
    kernel.reference = elementwise([exact](double x) { return exact(x, beta); });
    return kernel;
}

constexpr struct {
    halyard_glu_layout layout;
    const char *suffix;
} packed_layouts[] = {
    {HALYARD_GLU_GATE_UP, ".gate_up"}, {HALYARD_GLU_UP_GATE, ".up_gate"}, {HALYARD_GLU_INTERLEAVED, ".interleaved"}};

/** A gated unit on two tensors and on one in each layout. `call_two` and `call_packed` hide whether there is a beta. */
template<typename CallTwo, typename CallPacked, typename Activation>
void append_gated(std::vector<Kernel> &kernels, const std::string &name, const CallTwo &call_two,
                  const CallPacked &call_packed, const Activation &activation) {
    Kernel two = base("gated units", name, name, stream_read2_write1);
    two.inputs = 2;
    two.call = [call_two](Work &work, Operands &set) {
        return call_two(work.context.get(), &set.inputs[0].view, &set.inputs[1].view, &set.outputs[0].view);
    };
    two.reference = elementwise([activation](double gate, double up) { return activation(gate) * up; });
    kernels.push_back(two);
    for (const auto &each : packed_layouts) {
        const halyard_glu_layout layout = each.layout;
        Kernel one = base("gated units", name + each.suffix, name + "_packed", stream_halve);
        one.input_width = 2;
        one.layout = layout;
        one.common = layout != HALYARD_GLU_UP_GATE;
        one.call = [call_packed, layout](Work &work, Operands &set) {
            return call_packed(work.context.get(), &set.inputs[0].view, layout, &set.outputs[0].view);
        };
        one.reference = packed(activation, layout);
        kernels.push_back(one);
    }
}

// ---- Functions with signatures of their own ----

void append_norms(std::vector<Kernel> &kernels) {
    const auto layer_norm = [](Work &work, Operands &set) {
        return halyard_layer_norm(work.context.get(), &set.inputs[0].view, view_of(work.weight), view_of(work.bias),
                                  layer_norm_eps, &set.outputs[0].view);
    };
    const auto rms_norm = [](Work &work, Operands &set) {
        return halyard_rms_norm(work.context.get(), &set.inputs[0].view, view_of(work.weight), rms_norm_eps, 0,
                                &set.outputs[0].view);
    };
    const auto partial_rms_norm = [](Work &work, Operands &set) {
        return halyard_partial_rms_norm(work.context.get(), &set.inputs[0].view, view_of(work.weight), rms_norm_eps, 0,
                                        partial_p, &set.outputs[0].view);
    };
    const auto add_layer_norm = [](Work &work, Operands &set) {
        return halyard_add_layer_norm(work.context.get(), &set.inputs[0].view, &set.inputs[1].view,
                                      view_of(work.weight), view_of(work.bias), layer_norm_eps, &set.outputs[0].view,
                                      &set.outputs[1].view);
    };
    const auto add_rms_norm = [](Work &work, Operands &set) {
        return halyard_add_rms_norm(work.context.get(), &set.inputs[0].view, &set.inputs[1].view, view_of(work.weight),
                                    rms_norm_eps, 0, &set.outputs[0].view, &set.outputs[1].view);
    };
    const auto append = [&](const char *name, const char *operation, bool common, bool weight, bool bias,
                            const auto &call, const Reference &exact) {
        Kernel kernel = base("norms", name, operation, stream_copy);
        kernel.common = common;
        kernel.has_weight = weight;
        kernel.has_bias = bias;
        kernel.call = call;
        kernel.reference = exact;
        kernels.push_back(kernel);
    };
    append("rms_norm", "rms_norm", true, true, false, rms_norm, rms_norm_rows(1));
    append("rms_norm.plain", "rms_norm", false, false, false, rms_norm, rms_norm_rows(1));
    append("partial_rms_norm", "partial_rms_norm", true, true, false, partial_rms_norm,
           rms_norm_rows(static_cast<double>(partial_p)));
    append("layer_norm", "layer_norm", true, true, true, layer_norm, layer_norm_row);
    append("layer_norm.weight", "layer_norm", false, true, false, layer_norm, layer_norm_row);
    append("layer_norm.bias", "layer_norm", false, false, true, layer_norm, layer_norm_row);
    append("layer_norm.plain", "layer_norm", false, false, false, layer_norm, layer_norm_row);
    append("add_rms_norm", "add_rms_norm", true, true, false, add_rms_norm, after_add(rms_norm_rows(1)));
    append("add_layer_norm", "add_layer_norm", true, true, true, add_layer_norm, after_add(layer_norm_row));
    for (std::size_t i = kernels.size() - 2; i < kernels.size(); i++) {
        kernels[i].inputs = kernels[i].outputs = 2;
        kernels[i].stream = stream_read2_write2;
    }
    append(
        "softmax", "softmax", true, false, false,
        [](Work &work, Operands &set) {
            return halyard_softmax(work.context.get(), &set.inputs[0].view, 1.0f, &set.outputs[0].view);
        },
        [](const Rows &inputs, const Row &, const Row &) {
            return Rows{values_of(tests::softmax(inputs[0], 1.0, tests::Dtype::f32))};
        });
}

void append_elementwise(std::vector<Kernel> &kernels) {
    Kernel add = base("elementwise", "add", "add", stream_read2_write1);
    add.inputs = 2;
    add.call = [](Work &work, Operands &set) {
        return halyard_add(work.context.get(), &set.inputs[0].view, &set.inputs[1].view, &set.outputs[0].view);
    };
    add.reference = elementwise([](double a, double b) { return a + b; });
    kernels.push_back(add);
    for (const Dtype to : tests::all_dtypes) {
        Kernel cast = base("elementwise", std::string("cast_to_") + tests::name_of(to), "cast", stream_copy);
        cast.cast_to = to;
        cast.call = [](Work &work, Operands &set) {
            return halyard_cast(work.context.get(), &set.inputs[0].view, &set.outputs[0].view);
        };
        cast.reference = elementwise([](double x) { return x; });
        kernels.push_back(cast);
    }
}

std::vector<Kernel> make_catalogue() {
    std::vector<Kernel> kernels;
    append_norms(kernels);
#define HALYARD_KERNEL(name) kernels.push_back(unary(#name, halyard_##name, reference::name));
#include "kernels/unary.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name) kernels.push_back(unary_beta(#name, halyard_##name, reference::name));
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    append_gated(kernels, #name, halyard_##name, halyard_##name##_packed, reference::name.value);
#include "kernels/gated.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    append_gated(                                                                                                      \
        kernels, #name,                                                                                                \
        [](const halyard_context *context, const DLTensor *gate, const DLTensor *up, DLTensor *y) {                    \
            return halyard_##name(context, gate, up, beta, y);                                                         \
        },                                                                                                             \
        [](const halyard_context *context, const DLTensor *x, halyard_glu_layout layout, DLTensor *y) {                \
            return halyard_##name##_packed(context, x, layout, beta, y);                                               \
        },                                                                                                             \
        [](double gate) { return reference::name.value(gate, beta); });
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
    append_elementwise(kernels);
    return kernels;
}

// ---- Every kernel of the build must be in a row above ----

/** Kernels behind the functions with signatures of their own. */
constexpr std::string_view by_hand[] = {
    "rms_norm",
    "rms_norm_weight",
    "layer_norm",
    "layer_norm_weight",
    "layer_norm_bias",
    "softmax",
    "softmax_exponentials",
    "softmax_normalize",
    "add",
    "layer_norm_weight_bias",
    "cast_to_f32",
    "cast_to_f16",
    "cast_to_bf16",
    "swiglu_beta1",
    "swiglu_beta1_interleaved",
};

constexpr std::string_view by_signature[] = {
#define HALYARD_KERNEL(name) #name,
#include "kernels/unary.inc"
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name) #name, #name "_interleaved",
#include "kernels/gated.inc"
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
};

constexpr bool has_row(std::string_view name) {
    for (const std::string_view each : by_hand) {
        if (each == name) {
            return true;
        }
    }
    for (const std::string_view each : by_signature) {
        if (each == name) {
            return true;
        }
    }
    return false;
}
#define HALYARD_KERNEL(name) static_assert(has_row(#name), "the kernel " #name " has no row in the benchmark");
#include "kernels/tensorwise.inc"
#undef HALYARD_KERNEL

}  // namespace

const std::vector<Kernel> &catalogue() {
    static const std::vector<Kernel> kernels = make_catalogue();
    return kernels;
}

}  // namespace halyard::bench
