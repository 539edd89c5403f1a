"""Experiment 4: activations and their derivatives."""

import math

from .common import COLOURS, INK, LINES, column, grouped, legend_below, plt, read, scientific

NAMES = {"relu": "ReLU", "relu2": "squared ReLU", "gelu": "GELU", "gelu_tanh": "GELU, tanh",
         "gelu_sigmoid": "GELU, sigmoid", "silu": "SiLU"}


def curve_name(function, beta):
    return f"Swish, β {beta:g}" if function == "swish" else NAMES.get(function, function)


def axes_of_curves(title, with_zero=True):
    figure, axes = plt.subplots()
    if with_zero:
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-4, 4)
    axes.set_xlabel("x")
    axes.set_title(title)
    return figure, axes


def curve_figure(curves, chosen, key, title, bounds=None):
    figure, axes = axes_of_curves(title)
    for index, curve in enumerate(chosen):
        axes.plot(column(curves[curve], "x"), column(curves[curve], key), linestyle=LINES[index], color=COLOURS[index],
                  label=curve_name(*curve))
    if bounds:
        axes.set_ylim(*bounds)
    legend_below(figure, axes, 2 if len(chosen) == 4 else 3)
    return figure


def squashing_figure(curves):
    figure, axes = axes_of_curves("sigmoid and tanh")
    for index, function in enumerate(("sigmoid", "tanh")):
        lines = curves[function, 1]
        for key, label, style in (("value", function, "-"), ("derivative", f"{function}, derivative", "--")):
            axes.plot(column(lines, "x"), column(lines, key), style, color=COLOURS[index], label=label)
    legend_below(figure, axes, 2)
    return figure


def exp_figure(curves):
    figure, axes = axes_of_curves("exp", with_zero=False)
    lines = curves["exp", 1]
    for key, label, width, alpha in (("value", "exp", 5, 0.4), ("derivative", "its derivative", 1.4, 1)):
        axes.plot(column(lines, "x"), column(lines, key), linewidth=width, alpha=alpha, label=label)
    axes.set_yscale("log")
    legend_below(figure, axes, 2)
    return figure


def difference_figure(curves):
    figure, axes = axes_of_curves("|difference from exact GELU|", with_zero=False)
    exact = curves["gelu", 1]
    for index, function in enumerate(("gelu_tanh", "gelu_sigmoid")):
        # No point where the difference is 0, which a logarithmic axis does not have.
        gaps = [abs(a["value"] - b["value"]) or math.nan for a, b in zip(curves[function, 1], exact)]
        axes.plot(column(exact, "x"), gaps, linestyle=LINES[1 + index], color=COLOURS[1 + index], label=NAMES[function])
    axes.set_yscale("log")
    legend_below(figure, axes, 2)
    return figure


def largest_difference(curves, function):
    """From exact GELU, and where."""
    return max((abs(a["value"] - b["value"]), a["x"]) for a, b in zip(curves[function, 1], curves["gelu", 1]))


def lowest_of(lines):
    return min(lines, key=lambda line: line["value"])


def feature_table(curves):
    table = []
    for curve, lines in curves.items():
        centre = next(line for line in lines if line["x"] == 0)
        lowest = lowest_of(lines)
        dips = lines[0]["x"] < lowest["x"] < lines[-1]["x"] and lowest["value"] < 0
        slopes = column(lines, "derivative")
        table.append([curve_name(*curve), f"{centre['value']:.4g}", f"{centre['derivative']:.4g}",
                      f"{lowest['value']:.4f} at {lowest['x']:.2f}" if dips else "–",
                      f"{max(slopes):.4f}", f"{min(slopes):.4f}"])
    return ("table", ["activation", "value at 0", "slope at 0", "dip", "greatest slope", "least slope"], table, 1)


def blocks(directory):
    curves = grouped(read(directory, "activation_curves"), "function", "beta")
    rectifiers = [("relu", 1), ("gelu", 1), ("silu", 1)]
    gelus = [("gelu", 1), ("gelu_tanh", 1), ("gelu_sigmoid", 1)]
    swishes = [curve for curve in curves if curve[0] == "swish"] + [("relu", 1)]
    gelu_dip, silu_dip = (lowest_of(curves[function, 1]) for function in ("gelu", "silu"))
    gelu_slope, silu_slope = (max(column(curves[function, 1], "derivative")) for function in ("gelu", "silu"))
    (tanh_gap, tanh_at), (sigmoid_gap, sigmoid_at) = (largest_difference(curves, function)
                                                      for function in ("gelu_tanh", "gelu_sigmoid"))
    relu_slope = next(line["derivative"] for line in curves["relu", 1] if line["x"] == 0)
    return [
        ("heading", "4 · Activations", "activations"),
        ("text", "Every activation of the library and its derivative, computed by it in f32 at 64 points per unit."),
        ("figures", [
            ("rectifiers", curve_figure(curves, rectifiers, "value", "ReLU, GELU, SiLU", (-0.6, 4.1)),
             "The three in use."),
            ("rectifiers_derivative", curve_figure(curves, rectifiers, "derivative", "their derivatives"),
             "Smooth ones overshoot 1 and dip below 0."),
            ("gelus", curve_figure(curves, gelus, "value", "GELU and its approximations", (-0.2, 0.5)),
             "The dip, where the forms can be told apart."),
            ("gelus_derivative", curve_figure(curves, gelus, "derivative", "derivatives of the GELUs"),
             "Their slopes differ as little."),
            ("gelu_difference", difference_figure(curves), "Where a line has a gap the f32 results are equal."),
            ("swish", curve_figure(curves, swishes, "value", "Swish by β", (-0.7, 4.1)), "From x/2 at β 0 to ReLU."),
            ("swish_derivative", curve_figure(curves, swishes, "derivative", "derivatives of Swish"),
             "A larger β makes the step steeper, not higher."),
            ("squashing", squashing_figure(curves), "Building blocks, and the gate of GLU."),
            ("exp", exp_figure(curves), "On a logarithmic axis a straight line, and its own derivative."),
        ]),
        ("text", f"""
            GELU and SiLU dip to {gelu_dip["value"]:.3f} at {gelu_dip["x"]:.2f} and {silu_dip["value"]:.3f} at
            {silu_dip["x"]:.2f}, and their slopes rise to {gelu_slope:.3f} and {silu_slope:.3f} before they settle at
            1. The tanh form of GELU is nowhere further than {scientific(tanh_gap)} (at {tanh_at:.2f}) from the exact
            one, the sigmoid form {scientific(sigmoid_gap)} (at {sigmoid_at:.2f}). ReLU's derivative at 0 is
            {relu_slope:g}."""),
        feature_table(curves),
    ]
