// The functions of arrays, each described once: from this the module makes what Python calls, signatures and documentation.
#ifndef HALYARD_PYTHON_CORE_FUNCTIONS_H
#define HALYARD_PYTHON_CORE_FUNCTIONS_H

#include <tuple>
#include <type_traits>

#include "halyard/halyard.h"

namespace halyard::python {

enum class Kind : unsigned char {
    input,           // an array
    optional_input,  // an array or None
    real,            // a float, with a default
    layout,          // the name of a halyard_glu_layout
    dtype,           // what a new output is made of; no argument of the C function
    flag,            // a bool that is a bit of the C function's flags
    output,          // an array like the first one, or None for a new one
    half_output,     // the same with half its last axis
};

/** Arguments before the first flag or output may be given by position. */
struct Parameter {
    const char *name;
    Kind kind;
    double value = 0;  // of a real the default, of a flag the bit
};

inline constexpr int most_parameters = 10, most_of_a_kind = 6;

inline constexpr const char *layout_names[] = {"gate_up", "up_gate",
                                               "interleaved"};  // in the order of halyard_glu_layout

/** The arguments of a call by what they are in C, each kind in the order of its parameters. */
struct Frame {
    const DLTensor *inputs[most_of_a_kind] = {};
    DLTensor *outputs[most_of_a_kind] = {};
    float reals[most_of_a_kind] = {};
    unsigned flags = 0;
    halyard_glu_layout layout = HALYARD_GLU_GATE_UP;
};

struct Function {
    const char *name;
    const char *summary;
    halyard_status (*call)(const halyard_context *context, const Frame &frame);
    const Parameter *parameters;
    int count;
};

/** Takes the next argument of a C function by its type. */
class FrameReader {
public:
    explicit FrameReader(const Frame &frame) : frame_(frame) {}

    template<typename T>
    T next() {
        if constexpr (std::is_same_v<T, const DLTensor *>) {
            return frame_.inputs[input_++];
        } else if constexpr (std::is_same_v<T, DLTensor *>) {
            return frame_.outputs[output_++];
        } else if constexpr (std::is_same_v<T, float>) {
            return frame_.reals[real_++];
        } else if constexpr (std::is_same_v<T, unsigned>) {
            return frame_.flags;
        } else {
            static_assert(std::is_same_v<T, halyard_glu_layout>);
            return frame_.layout;
        }
    }

private:
    const Frame &frame_;
    int input_ = 0, output_ = 0, real_ = 0;
};

template<typename... Arguments>
halyard_status apply(halyard_status (*function)(const halyard_context *, Arguments...), const halyard_context *context,
                     const Frame &frame) {
    FrameReader reader(frame);
    const std::tuple<Arguments...> arguments{reader.next<Arguments>()...};  // braces: from left to right
    return std::apply([&](Arguments... each) { return function(context, each...); }, arguments);
}

template<auto C>
halyard_status call_with(const halyard_context *context, const Frame &frame) {
    return apply(C, context, frame);
}

template<int Count>
constexpr Function describe(const char *name, halyard_status (*call)(const halyard_context *, const Frame &),
                            const Parameter (&parameters)[Count], const char *summary) {
    static_assert(Count <= most_parameters);
    return {name, summary, call, parameters, Count};
}

// ---- parameters that functions have in common ----

inline constexpr Parameter unary[] = {{"x", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter unary_beta[] = {{"x", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter unary_backward[] = {{"x", Kind::input}, {"dy", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter unary_beta_backward[] = {
    {"x", Kind::input}, {"dy", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter gated[] = {{"gate", Kind::input}, {"up", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter gated_beta[] = {
    {"gate", Kind::input}, {"up", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter gated_backward[] = {
    {"gate", Kind::input}, {"up", Kind::input}, {"dy", Kind::input}, {"dgate", Kind::output}, {"dup", Kind::output}};
inline constexpr Parameter gated_beta_backward[] = {{"gate", Kind::input},   {"up", Kind::input},
                                                    {"dy", Kind::input},     {"beta", Kind::real, 1},
                                                    {"dgate", Kind::output}, {"dup", Kind::output}};
inline constexpr Parameter packed[] = {{"x", Kind::input}, {"layout", Kind::layout}, {"out", Kind::half_output}};
inline constexpr Parameter packed_beta[] = {
    {"x", Kind::input}, {"layout", Kind::layout}, {"beta", Kind::real, 1}, {"out", Kind::half_output}};
inline constexpr Parameter packed_backward[] = {
    {"x", Kind::input}, {"dy", Kind::input}, {"layout", Kind::layout}, {"out", Kind::output}};
inline constexpr Parameter packed_beta_backward[] = {
    {"x", Kind::input}, {"dy", Kind::input}, {"layout", Kind::layout}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter binary[] = {{"a", Kind::input}, {"b", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter cast[] = {{"x", Kind::input}, {"dtype", Kind::dtype}, {"out", Kind::output}};
inline constexpr Parameter softmax[] = {{"x", Kind::input}, {"scale", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter softmax_backward[] = {
    {"y", Kind::input}, {"dy", Kind::input}, {"scale", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter layer_norm[] = {{"x", Kind::input},
                                           {"weight", Kind::optional_input},
                                           {"bias", Kind::optional_input},
                                           {"eps", Kind::real, 1e-5},
                                           {"out", Kind::output}};
inline constexpr Parameter rms_norm[] = {{"x", Kind::input},
                                         {"weight", Kind::optional_input},
                                         {"eps", Kind::real, 1e-6},
                                         {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                         {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                         {"out", Kind::output}};
inline constexpr Parameter partial_rms_norm[] = {{"x", Kind::input},
                                                 {"weight", Kind::optional_input},
                                                 {"eps", Kind::real, 1e-6},
                                                 {"p", Kind::real, 0.0625},
                                                 {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                                 {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                                 {"out", Kind::output}};
inline constexpr Parameter add_layer_norm[] = {{"x", Kind::input},
                                               {"residual", Kind::input},
                                               {"weight", Kind::optional_input},
                                               {"bias", Kind::optional_input},
                                               {"eps", Kind::real, 1e-5},
                                               {"residual_out", Kind::output},
                                               {"out", Kind::output}};
inline constexpr Parameter add_rms_norm[] = {{"x", Kind::input},
                                             {"residual", Kind::input},
                                             {"weight", Kind::optional_input},
                                             {"eps", Kind::real, 1e-6},
                                             {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                             {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                             {"residual_out", Kind::output},
                                             {"out", Kind::output}};

// ---- the functions, with the parameters above ----

#define HALYARD_FUNCTION(name, parameters, summary) describe(#name, call_with<halyard_##name>, parameters, summary)
#define HALYARD_UNARY(name, kind, summary)                                                                             \
    HALYARD_FUNCTION(name, kind, summary),                                                                             \
        HALYARD_FUNCTION(name##_derivative, kind, "The derivative of " #name "() at x."),                              \
        HALYARD_FUNCTION(name##_backward, kind##_backward, "dx = dy f'(x), the gradient of y = " #name "(x).")
#define HALYARD_GATED(name, kind, packed_kind, summary)                                                                \
    HALYARD_FUNCTION(name, kind, summary),                                                                             \
        HALYARD_FUNCTION(name##_packed, packed_kind, #name "() of gate and up in one array: [..., 2h] to [..., h]."),  \
        HALYARD_FUNCTION(name##_backward, kind##_backward, "The gradients of " #name "(): dgate and dup."),            \
        HALYARD_FUNCTION(name##_packed_backward, packed_kind##_backward, "The gradient of " #name "_packed().")

inline constexpr Function functions[] = {
    HALYARD_UNARY(relu, unary, "max(0, x)"),
    HALYARD_UNARY(relu2, unary, "max(0, x)^2"),
    HALYARD_UNARY(gelu, unary, "x/2 * erfc(-x / sqrt(2)), exact GELU"),
    HALYARD_UNARY(gelu_tanh, unary, "x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"),
    HALYARD_UNARY(gelu_sigmoid, unary, "x * sigmoid(1.702 x)"),
    HALYARD_UNARY(silu, unary, "x * sigmoid(x)"),
    HALYARD_UNARY(swish, unary_beta, "x * sigmoid(beta * x)"),
    HALYARD_UNARY(sigmoid, unary, "1 / (1 + exp(-x))"),
    HALYARD_UNARY(tanh, unary, "tanh(x)"),
    HALYARD_UNARY(exp, unary, "exp(x)"),
    HALYARD_GATED(glu, gated, packed, "sigmoid(gate) * up"),
    HALYARD_GATED(bilinear, gated, packed, "gate * up"),
    HALYARD_GATED(reglu, gated, packed, "max(0, gate) * up"),
    HALYARD_GATED(geglu, gated, packed, "gelu(gate) * up"),
    HALYARD_GATED(geglu_tanh, gated, packed, "gelu_tanh(gate) * up"),
    HALYARD_GATED(swiglu, gated_beta, packed_beta, "swish(gate, beta) * up"),
    HALYARD_FUNCTION(add, binary, "a + b"),
    HALYARD_FUNCTION(cast, cast, "x rounded to another dtype: that of out, or of a new array. Either is given."),
    HALYARD_FUNCTION(softmax, softmax, "exp(scale * (x - m)) / sum(exp(scale * (x - m))) over each row"),
    HALYARD_FUNCTION(softmax_backward, softmax_backward,
                     "scale * y * (dy - sum(y * dy)), the gradient of y = softmax(x)"),
    HALYARD_FUNCTION(layer_norm, layer_norm, "weight * (x - mean) / sqrt(var + eps) + bias over each row"),
    HALYARD_FUNCTION(rms_norm, rms_norm, "weight * x / sqrt(mean(x^2) + eps) over each row"),
    HALYARD_FUNCTION(partial_rms_norm, partial_rms_norm,
                     "rms_norm() with the mean over the first ceil(p * d) features"),
    HALYARD_FUNCTION(add_layer_norm, add_layer_norm, "residual_out = x + residual and layer_norm() of it: both"),
    HALYARD_FUNCTION(add_rms_norm, add_rms_norm, "residual_out = x + residual and rms_norm() of it: both"),
};
inline constexpr int function_count = sizeof functions / sizeof *functions;

#undef HALYARD_FUNCTION
#undef HALYARD_UNARY
#undef HALYARD_GATED

}  // namespace halyard::python

#endif
