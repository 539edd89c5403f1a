"""Experiment 1: norm of the activations by depth."""

import math
import statistics
from collections import defaultdict

from .common import COLOURS, LINES, grouped, legend_below, plt, read, scientific

KINDS = {
    "original_2017": "Post-LN, ReLU (2017)",
    "pre_ln": "Pre-LN, ReLU",
    "pre_rms": "Pre-RMSNorm, ReLU",
    "modern": "modern (RMSNorm, RoPE, SwiGLU)",
    "post_sublayer": "post-sublayer (OLMo 2)",
}
SMALL, WIDE = "0.02^2", "1/fan_in"  # variances of the weights


class Norms:
    """Norms by variance of the weights, kind and layer."""

    def __init__(self, lines):
        self.unit = lines[0]["unit_norm"]
        self.seeds = len({line["seed"] for line in lines})
        self.last = max(line["layer"] for line in lines)
        self.of = defaultdict(dict)
        for (variance, kind, layer), group in grouped(lines, "weight_variance", "kind", "layer").items():
            self.of[variance, kind][layer] = [line["norm"] for line in group]

    def mean(self, variance, kind, layer):
        return statistics.fmean(self.of[variance, kind][layer])

    def growth(self, variance, kind):
        return self.mean(variance, kind, self.last) / self.mean(variance, kind, 0)

    def departure(self, kind):
        """Largest relative difference from the unit norm behind any block."""
        return max(abs(norm / self.unit - 1) for variance in (SMALL, WIDE)
                   for layer, norms in self.of[variance, kind].items() if layer > 0 for norm in norms)

    def shrunk(self, variance, kind):
        """Number of seeds whose last norm is below the first."""
        of = self.of[variance, kind]
        return sum(last < first for first, last in zip(of[0], of[self.last]))


def depth_figure(norms, variance, kinds, title, from_zero):
    figure, axes = plt.subplots(figsize=(4.6, 4.2))
    for index, kind in enumerate(KINDS):
        if kind in kinds:
            layers = sorted(norms.of[variance, kind])
            values = [norms.of[variance, kind][layer] for layer in layers]
            axes.plot(layers, [statistics.fmean(each) for each in values], linestyle=LINES[index], color=COLOURS[index],
                      label=KINDS[kind])
            axes.fill_between(layers, [min(each) for each in values], [max(each) for each in values],
                              color=COLOURS[index], alpha=0.16, linewidth=0)
    axes.set_title(title)
    axes.set_xlabel("blocks passed")
    axes.set_ylabel("norm of the activations")
    axes.set_xticks(range(0, norms.last + 1, 5))
    if from_zero:
        axes.set_ylim(bottom=0)
    legend_below(figure, axes, 1)
    return figure


def blocks(directory):
    norms = Norms(read(directory, "activation_norm"))
    close = [kind for kind in KINDS if kind != "post_sublayer"]
    shown = sorted({1, norms.last // 4, norms.last // 2, norms.last})
    table = [[KINDS[kind], label] + [f"{norms.mean(variance, kind, layer):.2f}" for layer in shown] +
             [f"{norms.growth(variance, kind):.3f}×"]
             for variance, label in ((SMALL, "0.02²"), (WIDE, "1/fan-in")) for kind in KINDS]
    small, wide = ({kind: norms.growth(variance, kind) for kind in KINDS} for variance in (SMALL, WIDE))
    return [
        ("heading", "1 · Norm of the activations by depth", "depth"),
        ("text", f"""
            {norms.last} blocks, d 32, feed-forward width 128 (85 where it is gated), 2 sequences of 8 tokens, 4
            heads, causal; weights N(0, 0.02²), norms' weights 1, biases 0. Heads of the two kinds with SwiGLU share
            keys and values by twos. Every token starts with RMS 1. Lines are means over {norms.seeds} sets of
            weights, bands reach from the least to the greatest."""),
        ("figures", [
            ("activation_norm_all", depth_figure(norms, SMALL, KINDS, "weights N(0, 0.02²)", True),
             "The five kinds. A norm behind the sublayer makes its output as large as the stream was at the start, "
             "however small the weights."),
            ("activation_norm_close", depth_figure(norms, SMALL, close, "the same without post-sublayer", False),
             "Post-LN is a straight line; the Pre-norm kinds leave it."),
            ("activation_norm_wide", depth_figure(norms, WIDE, KINDS, "weights N(0, 1/fan-in)", True),
             "Weights that keep a vector's length: sublayers now add about as much as is there at the start."),
        ]),
        ("text", f"""
            Post-LN ends each sublayer with a norm, so behind every block the stream has the norm √(tokens · d) =
            {norms.unit:.2f} (largest departure in all runs: {scientific(norms.departure("original_2017"))} of it).
            Pre-norm kinds only add to the stream: at these small weights Pre-LN's norm ends at {small["pre_ln"]:.4f}
            times its start, Pre-RMSNorm's at {small["pre_rms"]:.4f} and the modern block's at {small["modern"]:.4f}.
            That is little because 0.02 is far below 1/√d = {1 / math.sqrt(32):.3f}; with weights of deviation
            1/√fan-in it is {wide["pre_ln"]:.2f}, {wide["pre_rms"]:.2f} and {wide["modern"]:.2f}. What a sublayer adds
            may point with the stream or against it: with the small weights {norms.shrunk(SMALL, "pre_ln")} of
            {norms.seeds} sets leave Pre-LN's stream shorter than it was. The fifth kind, x + N(Sublayer(x)), adds
            vectors of norm {norms.unit:.2f} whatever the weights are, and so grows like √(1 + 2 · blocks):
            {small["post_sublayer"]:.2f} times, where {math.sqrt(1 + 2 * norms.last):.2f} is expected of independent
            directions."""),
        ("table", ["kind", "variance of weights", *(f"block\u00a0{layer}" for layer in shown), "growth"], table, 2),
    ]
