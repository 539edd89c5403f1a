"""Experiment 1: the activations by depth: their norm, mean and deviation."""

import math
import statistics
from collections import defaultdict

from .common import COLOURS, INK, LINES, grouped, legend_below, log_axis, number, plt, positive, read, scientific

KINDS = {
    "original_2017": "Post-LN, ReLU (2017)",
    "pre_ln": "Pre-LN, ReLU",
    "pre_rms": "Pre-RMSNorm, ReLU",
    "modern": "modern (RMSNorm, RoPE, SwiGLU)",
    "modern_plain": "modern, no RoPE, all heads",
    "post_sublayer": "post-sublayer (OLMo 2)",
}
NOTEBOOK = {"original_2017": "Post-LN, ReLU: “original”", "pre_ln": "Pre-LN, ReLU", "pre_rms": "Pre-RMSNorm, ReLU",
            "modern_plain": "Pre-RMSNorm, SwiGLU: “modern”"}
CALLED_POST_LN = {"original_2017": "N(x + Sub(x))", "post_sublayer_ln": "x + N(Sub(x))",
                  "double_norm": "N′(x + Sub(N(x)))", "pre_ln": "Pre-LN: x + Sub(N(x))"}
MANY, ONE = "multi_head", "single_head"
SMALL, WIDE, LARGE = "0.02^2", "1/fan_in", "1"  # variances of the weights
WEIGHTS = {SMALL: "0.02²", WIDE: "1/fan-in", LARGE: "1"}
# Kind, weights and label of what is drawn without norms, and of two kinds with them.
DRIFT = [("no_norm", LARGE, "no norms, N(0, 1)"), ("no_norm", WIDE, "no norms, N(0, 1/fan-in)"),
         ("no_norm", SMALL, "no norms, N(0, 0.02²)"), ("no_norm_no_residual", SMALL, "and no residual, N(0, 0.02²)"),
         ("pre_ln", LARGE, "Pre-LN, N(0, 1)"), ("original_2017", LARGE, "Post-LN, N(0, 1)")]


class Activations:
    """Lines by form, variance of the weights, kind and layer."""

    def __init__(self, lines):
        self.unit = lines[0]["unit_norm"]
        self.seeds = len({line["seed"] for line in lines})
        self.last = max(line["layer"] for line in lines)
        self.of = defaultdict(dict)
        for (*key, layer), group in grouped(lines, "form", "weight_variance", "kind", "layer").items():
            self.of[tuple(str(each) for each in key)][layer] = group

    def values(self, key, layer, column="norm"):
        return [line[column] for line in self.of[key][layer]]

    def mean(self, key, layer, column="norm"):
        return statistics.fmean(self.values(key, layer, column))

    def growth(self, key):
        return self.mean(key, self.last) / self.mean(key, 0)

    def departure(self, kind):
        """Largest relative difference from the unit norm behind any block."""
        return max(abs(norm / self.unit - 1) for variance in (SMALL, WIDE) for layer in range(1, self.last + 1)
                   for norm in self.values((MANY, variance, kind), layer))

    def shrunk(self, key):
        """Number of seeds whose last norm is below the first."""
        return sum(last < first for first, last in zip(self.values(key, 0), self.values(key, self.last)))

    def first(self, key, holds):
        """The first layer whose norms all have a property; None if there is none."""
        return next((layer for layer in sorted(self.of[key]) if all(map(holds, self.values(key, layer)))), None)


def layer_axis(axes, last):
    axes.set_xlabel("blocks passed")
    axes.set_xticks(range(0, last + 1, 5 if last <= 30 else 20))


def draw(axes, activations, key, index, label, column="norm", band=True):
    """The mean over the seeds, and a band from the least to the greatest."""
    layers = sorted(activations.of[key])
    values = [activations.values(key, layer, column) for layer in layers]
    axes.plot(layers, [statistics.fmean(each) for each in values], linestyle=LINES[index % len(LINES)],
              color=COLOURS[index], label=label)
    if band:
        axes.fill_between(layers, [min(each) for each in values], [max(each) for each in values],
                          color=COLOURS[index], alpha=0.16, linewidth=0)


def depth_figure(activations, form, variance, kinds, title, from_zero, band=True):
    figure, axes = plt.subplots(figsize=(4.6, 4.2))
    for index, (kind, label) in enumerate(kinds.items()):
        draw(axes, activations, (form, variance, kind), index, label, band=band)
    axes.set_title(title)
    axes.set_ylabel("norm of the activations")
    layer_axis(axes, activations.last)
    if from_zero:
        axes.set_ylim(bottom=0)
    legend_below(figure, axes, 1)
    return figure


def moments_figure(activations, variance):
    figure, (above, below) = plt.subplots(2, 1, figsize=(4.6, 4.9), sharex=True)
    for index, (kind, label) in enumerate(KINDS.items()):
        for axes, column in ((above, "deviation"), (below, "mean")):
            draw(axes, activations, (MANY, variance, kind), index, label, column)
    above.set_ylabel("deviation")
    below.set_ylabel("mean")
    above.set_title(f"weights N(0, {WEIGHTS[variance]})")
    layer_axis(below, activations.last)
    legend_below(figure, above, 1)
    return figure


def drift_figure(activations):
    figure, axes = plt.subplots(figsize=(4.6, 4.9))
    for index, (kind, variance, label) in enumerate(DRIFT):
        key = (MANY, variance, kind)
        layers = sorted(activations.of[key])
        deviations = positive(activations.mean(key, layer, "deviation") for layer in layers)
        axes.plot(layers, deviations, linestyle=LINES[index % len(LINES)], color=COLOURS[index], label=label)
        shown = [(layer, value) for layer, value in zip(layers, deviations) if math.isfinite(value)]
        if len(shown) < len(layers):
            axes.plot(*shown[-1], "x", color=COLOURS[index], markersize=8, markeredgewidth=2)
    for limit in (1e-6, 1e6):
        axes.axhline(limit, color=INK, linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    log_axis(axes.yaxis, *axes.get_ylim())
    axes.set_ylabel("deviation of the activations")
    layer_axis(axes, activations.last)
    legend_below(figure, axes, 1)
    return figure


def size(value):
    plain = value == 0 or not math.isfinite(value) or 0.01 <= abs(value) < 1e5
    return number(value, 2) if plain else scientific(value)


def factor(value):
    return f"{value:.3f}×" if 0.01 <= value < 1e5 else size(value) + "×" * math.isfinite(value)


def drift_text(activations):
    """What happens without norms, as far as the blocks that were passed show it."""
    def seen(layer, what):
        return f"{what} behind block {layer}" if layer else f"{what} behind none of {activations.last} blocks"

    large, small = (MANY, LARGE, "no_norm"), (MANY, SMALL, "no_norm_no_residual")
    gone = activations.first(large, lambda norm: not math.isfinite(norm))
    none = activations.first(small, lambda norm: norm == 0)
    deviations = {kind: activations.mean((MANY, LARGE, kind), activations.last, "deviation")
                  for kind in ("pre_ln", "original_2017")}
    return f"""
        Without norms a stack drifts wherever its weights send it. With weights N(0, 1)
        {seen(gone, "no number is left")}, and with N(0, 0.02²) and no residuals {seen(none, "all are exactly 0")}; a
        lesson's 10⁶ and 10⁻⁶ (dotted) are passed on the way. Residuals alone keep small weights from fading, but not
        large ones from growing. With norms the largest weights end at a deviation of {size(deviations["pre_ln"])}
        (Pre-LN) and {size(deviations["original_2017"])} (Post-LN). Stacks without norms are computed from their
        sublayers here, with attention by its definition, in f32: its scores
        pass 10⁹."""


def drift_table(lines):
    return ("table", ["block", "mean, published", "deviation, published", "size of the mean, here", "deviation, here",
                      "deviation at the published growth"],
            [[line["layer"], *(number(line[key], 1) for key in ("published_mean", "published_deviation")),
              *(size(line[key]) for key in ("mean_size", "deviation", "deviation_at_published_growth"))]
             for line in lines], 0)


def blocks(directory):
    activations = Activations(read(directory, "activation_norm"))
    sums, drift = read(directory, "activation_sums"), read(directory, "activation_drift")
    close = {kind: label for kind, label in KINDS.items() if kind != "post_sublayer"}
    shown = sorted({1, max(activations.last // 4, 1), max(activations.last // 2, 1), activations.last})
    all_kinds = KINDS | {"post_sublayer_ln": "x + N(Sub(x)), ReLU", "double_norm": "N′(x + Sub(N(x))), ReLU",
                         "no_norm": "no norms, ReLU", "no_norm_no_residual": "no norms, no residual"}
    table = []
    for form, name in ((MANY, "4, causal"), (ONE, "1, all tokens")):
        for variance, weights in WEIGHTS.items():
            for kind, label in all_kinds.items():
                key = form, variance, kind
                if key in activations.of:
                    table.append([label, name, weights] + [size(activations.mean(key, layer)) for layer in shown] +
                                 [factor(activations.growth(key))] +
                                 [size(activations.mean(key, activations.last, column))
                                  for column in ("deviation", "mean")])
    small, wide = ({kind: activations.growth((MANY, variance, kind)) for kind in KINDS} for variance in (SMALL, WIDE))
    one = {kind: activations.growth((ONE, SMALL, kind)) for kind in {**NOTEBOOK, **CALLED_POST_LN}}
    furthest = max(line["largest_difference"] / line["norm"] for line in sums)
    longest = next(line for line in sums if (line["form"], line["weight_variance"], line["kind"], line["layer"]) ==
                   (MANY, WIDE, "pre_ln", activations.last))
    return [
        ("heading", "1 · Activations by depth", "depth"),
        ("text", f"""
            {activations.last} blocks, d 32, feed-forward width 128 (85 where it is gated), 2 sequences of 8 tokens, 4
            heads, causal; weights N(0, 0.02²), norms' weights 1, biases 0. Heads of the two kinds with RoPE share
            keys and values by twos. Every token starts with RMS 1. Lines are means over {activations.seeds} sets of
            weights, bands reach from the least to the greatest."""),
        ("figures", [
            ("activation_norm_all", depth_figure(activations, MANY, SMALL, KINDS, "weights N(0, 0.02²)", True),
             "A norm behind the sublayer makes its output as large as the stream was at the start, "
             "however small the weights."),
            ("activation_norm_close", depth_figure(activations, MANY, SMALL, close, "the same without post-sublayer",
                                                   False),
             "Post-LN is a straight line; the Pre-norm kinds leave it."),
            ("activation_norm_wide", depth_figure(activations, MANY, WIDE, KINDS, "weights N(0, 1/fan-in)", True),
             "Weights that keep a vector's length: sublayers now add about as much as is there at the start."),
        ]),
        ("text", f"""
            Post-LN ends each sublayer with a norm, so behind every block the stream has the norm √(tokens · d) =
            {activations.unit:.2f} (largest departure in all runs: {scientific(activations.departure("original_2017"))}
            of it). Pre-norm kinds only add to the stream: at these small weights Pre-LN's norm ends at
            {small["pre_ln"]:.4f} times its start, Pre-RMSNorm's at {small["pre_rms"]:.4f} and the modern block's at
            {small["modern"]:.4f} ({small["modern_plain"]:.4f} without RoPE and grouped heads). That is little because
            0.02 is far below 1/√d = {1 / math.sqrt(32):.3f}; with weights of deviation 1/√fan-in it is
            {wide["pre_ln"]:.2f}, {wide["pre_rms"]:.2f} and {wide["modern"]:.2f} ({wide["modern_plain"]:.2f}). What a
            sublayer adds may point with the stream or against it: with the small weights
            {activations.shrunk((MANY, SMALL, "pre_ln"))} of {activations.seeds} sets leave Pre-LN's stream shorter than
            it was. The post-sublayer kind, x + N(Sublayer(x)), adds vectors of norm {activations.unit:.2f} whatever the
            weights are, and so grows like √(1 + 2 · blocks): {small["post_sublayer"]:.2f} times, where
            {math.sqrt(1 + 2 * activations.last):.2f} is expected of independent directions."""),
        ("figures", [
            ("activation_notebook", depth_figure(activations, ONE, SMALL, NOTEBOOK, "a notebook's form", False,
                                                  band=False),
             "One head, no mask, no output projection, scores over √32, input N(0, 1), weights N(0, 0.02²). No bands: "
             "inputs differ more than kinds."),
            ("activation_called_post_ln", depth_figure(activations, ONE, SMALL, CALLED_POST_LN,
                                                       "three things called Post-LN", True),
             "The same form. Where the last thing is a norm, the stream keeps its length; where the norm is inside "
             "the residual, it grows."),
            ("activation_moments", moments_figure(activations, WIDE),
             "Deviation and mean of all activations; norm² = tokens · d · (deviation² + mean²)."),
            ("activation_drift", drift_figure(activations),
             "Without norms activations become NaN (× after large numbers) or nothing (× after small ones)."),
        ]),
        ("text", f"""
            In the notebook's form “original” ends at {one["original_2017"]:.4f} times the norm of its input and
            “modern” at {one["modern_plain"]:.4f}; x + N(Sub(x)), which its text calls Post-LN, at
            {one["post_sublayer_ln"]:.2f}, N′(x + Sub(N(x))) of a lesson at {one["double_norm"]:.4f}. A Pre-norm stack
            is its input and the sum of what its sublayers put out, x_L = x₀ + Σ Sub(N(x)): for Pre-LN with weights
            N(0, 1/fan-in) the sum has the norm {longest["sum_norm"]:.4f} and the stream {longest["norm"]:.4f}; in no
            kind and layer does an element differ by more than {scientific(furthest)} of that norm."""),
        ("text", drift_text(activations)),
        drift_table(drift),
        ("text", f"""
            The published numbers are those of a course, for a network that it does not name; here, blocks without norms
            with weights N(0, 1/fan-in), means over {activations.seeds} sets. From block 8 to 16 the course's deviation
            grows by a factor that would give {size(drift[-1]["deviation_at_published_growth"])} behind block
            {drift[-1]["layer"]}, where it has NaN: so large a number is far from overflow, in 16 bits too."""),
        ("table", ["kind", "heads", "variance of weights", *(f"norm, block\u00a0{layer}" for layer in shown), "growth",
                   "last deviation", "last mean"], table, 3),
    ]
