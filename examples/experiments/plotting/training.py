"""Experiment 5: gradient norms and losses of Pre-LN and Post-LN by depth."""

import math
import os
import random
import statistics

from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from .common import (COLOURS, INK, LINES, column, grouped, legend_below, log_y, number, plt, positive, read, step_axis,
                     words)

POSITIONS = {"pre": "Pre-LN", "post": "Post-LN"}
POSITION_LINES = {"pre": "-", "post": (0, (4, 1.6))}
THEORY = {"pre": -0.5, "post": 0.0}  # slopes of the last FFN's gradient norm by depth (Xiong et al. 2020)
STARTS = {"torch": "weights as in torch.nn", "normal": "weights N(0, 0.02²)"}
DATA = {"fresh": "fresh targets", "fixed": "fixed targets"}
# By how much Post-LN's last loss must exceed Pre-LN's to count as a failure.
MARGINS = {"fresh": 0.01, "fixed": 0.1}
CLAIMS = "Texts say: Post-LN is stable to 6 or 12 layers and fragile beyond 12, Pre-LN is stable beyond 100."
USUAL = (0.0001, 0)  # learning rate and steps of warm-up


# ---- data ----


class Stability:
    """Lines by start, norm position, data, learning rate, steps of warm-up and layers."""

    def __init__(self, lines):
        keys = ("start", "norm_position", "data", "learning_rate", "warm_up", "layers")
        self.of = grouped(lines, *keys)
        self.depths = sorted(set(column(lines, "layers")))
        self.steps = 1 + max(column(lines, "step"))

    def get(self, start, position, data, layers, settings=USUAL):
        return self.of.get((start, position, data, *settings, layers), [])

    def pairs(self, start, data):
        """(layers, Pre-LN's lines, Post-LN's lines), where both were run; a run that ended early shortens the other."""
        pairs = []
        for layers in self.depths:
            pre, post = (self.get(start, position, data, layers) for position in POSITIONS)
            steps = min(len(pre), len(post))
            if steps > 0:
                pairs.append((layers, pre[:steps], post[:steps]))
        return pairs

    def settings(self):
        """Learning rate and warm-up of the further runs of Post-LN."""
        return sorted({key[3:5] for key in self.of} - {USUAL})


def last_loss(lines):
    """Mean over the last tenth of the steps; infinite if one of them has no finite loss."""
    losses = column(lines[-max(1, len(lines) // 10):], "loss")
    return statistics.fmean(losses) if all(map(math.isfinite, losses)) else math.inf


def fails(pre, post, data):
    return last_loss(post) > (1 + MARGINS[data]) * last_loss(pre) or math.isinf(last_loss(post))


def slope(points):
    """The least-squares line through log y by log x has this slope."""
    xs, ys = ([math.log(each) for each in axis] for axis in zip(*points))
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / sum((x - x_mean) ** 2 for x in xs)


def last_ffn(gradients, start, position):
    """Gradient norms of the last FFN's second matrix, one of each seed, by depth."""
    norms = {}
    for (layers, layer), lines in sorted(grouped(gradients, "layers", "layer").items()):
        values = [line["ffn_down_gradient_norm"] for line in lines
                  if (line["start"], line["norm_position"]) == (start, position)]
        values = [value for value in values if math.isfinite(value) and value > 0]
        if layer == layers - 1 and values:
            norms[layers] = values
    return norms


# ---- figures ----


def smooth(lines, key):
    """Steps and running means over about a twentieth of them, where there are as many on both sides."""
    values, reach = positive(column(lines, key)), len(lines) // 40
    middles = range(reach, len(values) - reach)
    return ([lines[i]["step"] for i in middles], [statistics.fmean(values[i - reach:i + reach + 1]) for i in middles])


def key_below(figure, depths, shown):
    """A legend of colours by depth, and in its last column of dashes by norm position."""
    rows = max(2, math.ceil(len(shown) / 2))
    handles = [Line2D([], [], color=colour_of(depths, layers), linewidth=3, label=f"{layers} layers")
               for layers in shown]
    handles += [Line2D([], [], linestyle="none", label=" ")] * (-len(shown) % rows)
    handles += [Line2D([], [], color=INK, linestyle=POSITION_LINES[position], label=name)
                for position, name in POSITIONS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / rows), handlelength=2.4,
                  columnspacing=1.2)


def colour_of(depths, layers):
    return COLOURS[depths.index(layers) % len(COLOURS)]


def plot_by_step(axes, lines, key, colour, position, width=1.7, label=None):
    """Each step's value faint, their running mean strong."""
    axes.plot(column(lines, "step"), positive(column(lines, key)), color=colour, linewidth=0.6, alpha=0.3,
              zorder=1.9)  # below all strong ones
    axes.plot(*smooth(lines, key), color=colour, linestyle=POSITION_LINES[position], linewidth=width, label=label)


def step_figure(stability, start, data, key, title):
    figure, axes = plt.subplots(figsize=(4.6, 4.4))
    shown = [layers for layers in stability.depths
             if any(stability.get(start, position, data, layers) for position in POSITIONS)]
    # Lines that meet stay visible: each covers a wider one.
    widths = [1.2 + 0.7 * i for i in reversed(range(len(shown)))]
    for layers, width in zip(shown, widths):
        for position in POSITIONS:
            lines = stability.get(start, position, data, layers)
            if lines:
                plot_by_step(axes, lines, key, colour_of(stability.depths, layers), position, width)
    axes.set_title(title)
    step_axis(axes)
    log_y(axes)
    key_below(figure, stability.depths, shown)
    return figure


def settings_name(settings):
    rate, warm_up = settings
    return f"rate {rate:.0e}".replace("e-0", "e-") + (f", {warm_up} steps warm-up" if warm_up else "")


def runs_by_settings(stability, start, data, layers):
    """Names and lines: Pre-LN, and Post-LN with every learning rate and warm-up it was run with."""
    runs = [("pre", USUAL)] + [("post", settings) for settings in [USUAL, *stability.settings()]]
    return [(f"{POSITIONS[position]}, {settings_name(settings)}", lines) for position, settings in runs
            if (lines := stability.get(start, position, data, layers, settings))]


def settings_figure(stability, start, data, layers):
    figure, axes = plt.subplots(figsize=(4.6, 4.4))
    for index, (name, lines) in enumerate(runs_by_settings(stability, start, data, layers)):
        axes.plot(column(lines, "step"), positive(column(lines, "loss")), color=COLOURS[index % len(COLOURS)],
                  linestyle=LINES[index % len(LINES)], label=name)
    axes.set_title(f"loss, {DATA[data]}, {layers} layers")
    step_axis(axes)
    log_y(axes)
    legend_below(figure, axes, 1)
    return figure


def layer_figure(gradients, start):
    """The first block stands at 0 and the last one at 1, whatever their number."""
    figure, axes = plt.subplots(figsize=(4.6, 4.4))
    depths = sorted(set(column(gradients, "layers")))
    here = [line for line in gradients if line["start"] == start]
    for (position, layers), lines in grouped(here, "norm_position", "layers").items():
        by_layer = sorted(grouped(lines, "layer").items())
        places = [layer / max(1, layers - 1) for layer, _ in by_layer]
        norms = [column(each, "gradient_norm") for _, each in by_layer]
        colour = colour_of(depths, layers)
        axes.plot(places, positive([statistics.fmean(each) for each in norms]), color=colour,
                  linestyle=POSITION_LINES[position])
        axes.fill_between(places, positive([min(each) for each in norms]), positive([max(each) for each in norms]),
                          color=colour, alpha=0.16, linewidth=0)
    axes.set_title(STARTS[start])
    axes.set_xlabel("place in the stack: first block 0, last 1")
    axes.set_ylabel("gradient norm of a block")
    log_y(axes)
    key_below(figure, depths, sorted(set(column(here, "layers"))))
    return figure


def slope_figure(gradients, start):
    figure, axes = plt.subplots(figsize=(4.6, 4.4))
    depths = set()
    for index, (position, name) in enumerate(POSITIONS.items()):
        norms = last_ffn(gradients, start, position)
        if not norms:
            continue
        depths |= set(norms)
        means = [statistics.fmean(values) for values in norms.values()]
        axes.plot(list(norms), means, "os"[index], linestyle=POSITION_LINES[position], markersize=5,
                  color=COLOURS[index], label=name)
        # Beside the points: Pre-LN's slope below them, Post-LN's above.
        beside = means[0] * (0.87 if position == "pre" else 1.15)
        axes.plot(list(norms), [beside * (layers / min(norms)) ** THEORY[position] for layers in norms], ":",
                  color=COLOURS[index], label=f"slope {'−½' if position == 'pre' else '0'}")
    axes.set_xscale("log")
    axes.set_xticks(sorted(depths), [str(layers) for layers in sorted(depths)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(STARTS[start])
    axes.set_xlabel("layers")
    axes.set_ylabel("gradient norm, last FFN's second matrix")
    log_y(axes)
    legend_below(figure, axes, 2)
    return figure


def comparison_figure(stability, layers):
    """The first text's figure: losses, gradient norms, activations, a gate."""
    figure, ((losses, norms), (curves, gate)) = plt.subplots(2, 2, figsize=(6.2, 5.8))
    for axes, key, title in ((losses, "loss", f"loss, {layers} layers"),
                             (norms, "gradient_norm", "gradient norm, layer 0")):
        for index, (position, name) in enumerate(POSITIONS.items()):
            lines = stability.get("torch", position, "fresh", layers)
            if lines:
                plot_by_step(axes, lines, key, COLOURS[index], position, label=name)
        step_axis(axes)
        axes.set_title(title)
        log_y(axes)

    def silu(x):
        return x / (1 + math.exp(-x))

    xs = [i / 50 for i in range(-150, 151)]
    functions = {"ReLU": lambda x: max(0.0, x), "GELU": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
                 "SiLU": silu}
    for index, (name, function) in enumerate(functions.items()):
        curves.plot(xs, [function(x) for x in xs], color=COLOURS[2 + index], linestyle=["-", "--", "-."][index],
                    label=name)
    curves.set_title("activations")
    curves.set_xlabel("x")
    source = random.Random(0)
    points = [source.gauss(0, 1) for _ in range(1000)]
    gate.plot(points, [silu(g) for g in points], "o", color=COLOURS[4], markersize=2.5, alpha=0.4, markeredgewidth=0)
    gate.set_title("SiLU of 1000 normal points")
    gate.set_xlabel("g")
    gate.set_ylabel("silu(g)")
    for axes in (losses, norms, curves):
        axes.legend(loc="best", fontsize=9, handlelength=2)
    return figure


# ---- findings ----


def capital(text):
    return text[0].upper() + text[1:]


def answer(stability, start, data):
    """At what depth Post-LN fails, by the margin."""
    pairs = stability.pairs(start, data)
    if not pairs:
        return f"{DATA[data]}, {STARTS[start]}: no depth was run with both Pre-LN and Post-LN."
    failed = [layers for layers, pre, post in pairs if fails(pre, post, data)]
    at = f"first at {failed[0]}" if failed else "at none"
    text = (f"{DATA[data]}, {STARTS[start]}: within {max(len(pre) for _, pre, _ in pairs)} steps Post-LN fails {at} of "
            f"{words(layers for layers, _, _ in pairs)} layers.")
    recovered = [layers for layers, _, _ in pairs if failed and layers > failed[0] and layers not in failed]
    if recovered:
        text += f" It does not fail at {words(recovered)} layers."
    lost = [layers for layers, pre, _ in pairs if math.isinf(last_loss(pre))]
    if lost:
        text += f" Pre-LN's own loss is not finite at {words(lost)} layers."
    return text


def stability_text(stability):
    sets = [(start, data) for data in DATA for start in STARTS if stability.pairs(start, data)]
    least = 1 + max(0.0, 1 - 2 * USUAL[0] * stability.steps) ** 2
    if not sets:
        return ("text", "No depth was run with both Pre-LN and Post-LN, so they cannot be compared.")
    text = f"""
        At what depth does Post-LN fail to converge? The captions say what was seen. A run counts as failed where the
        mean loss of its last tenth of steps is not finite, or above that of Pre-LN at the same depth by more than
        {100 * MARGINS["fresh"]:g} % with fresh targets and {100 * MARGINS["fixed"]:g} % with fixed ones. Each curve is
        one run from one set of weights, so the curves neither prove nor refute what texts say of longer training, other
        rates or other tasks. """
    if any(data == "fresh" for _, data in sets):
        text += f"""
            With fresh random targets nothing but their mean can be learnt, and the best possible loss is 1. Both
            end in a norm, whose output keeps the length of its weights, and in {stability.steps} steps Adam
            moves each of its parameters by about {USUAL[0] * stability.steps:.2g} at most. So no run can come below
            about {least:.2f}: this loss shows a run that diverges, but not how well a stack learns. """
    if any(data == "fixed" for _, data in sets):
        text += """
            With fixed targets a stack can learn them by heart: 1 is what predicting the mean gives, and a curve that
            stays there has lost its input. """
    return ("text", text)


def loss_table(stability):
    table = []
    for start in STARTS:
        for data in DATA:
            for layers, pre, post in stability.pairs(start, data):
                before, behind = last_loss(pre), last_loss(post)
                ratio = behind / before - 1
                table.append([STARTS[start], DATA[data], layers, len(pre), number(before), number(behind),
                              f"{round(100 * ratio, 1) + 0:+.1f} %" if math.isfinite(ratio) else "–"] +
                             [f"{lines[i]['gradient_norm']:.3g}" for lines in (pre, post) for i in (0, -1)])
    return ("table", ["start", "data", "layers", "steps", "last loss, Pre-LN", "last loss, Post-LN",
                      "Post-LN beyond Pre-LN", "gradient of layer 0, Pre-LN, first", "last",
                      "gradient of layer 0, Post-LN, first", "last"], table, 2)


def slope_text(gradients, start):
    fits = []
    for position, name in POSITIONS.items():
        norms = last_ffn(gradients, start, position)
        if len(norms) > 1:
            fitted = slope([(layers, statistics.fmean(values)) for layers, values in norms.items()])
            fits.append(f"{name} {round(fitted, 2) + 0:.2f}")  # no negative zero
    return f"Fitted slopes: {', '.join(fits)}; theory: −½ and 0." if fits else "One depth alone has no slope."


def gradient_blocks(gradients):
    starts = [start for start in STARTS if start in column(gradients, "start")]
    seeds = len(set(column(gradients, "seed")))
    deepest = max(column(gradients, "layers"))
    parts = []
    for start in starts:
        for position, name in POSITIONS.items():
            lines = [line for line in gradients
                     if (line["start"], line["norm_position"], line["layers"]) == (start, position, deepest)]
            norms = {layer: statistics.fmean(column(each, "gradient_norm"))
                     for layer, each in grouped(lines, "layer").items()}
            if norms and norms[0] > 0:
                parts.append(f"{norms[max(norms)] / norms[0]:.2g} ({name}, {STARTS[start]})")
    ratios = (f"At {deepest} layers the last block's gradient norm over the first one's is {', '.join(parts)}."
              if parts else "")
    return [
        ("text", f"""
            Gradients before any step, with {seeds} set{'s' * (seeds > 1)} of weights; lines are means, bands reach from
            the least to the greatest. {ratios} The theory (Xiong et al. 2020) is about the second matrix of the last
            FFN: its gradient norm does not depend on the number of layers L with Post-LN, and falls as 1/√L with
            Pre-LN. It has no theorem on layer 0, and says nothing about what training does. It
            assumes weights whose variance is near 1/d; 0.02² is far below that, so such sublayers add little."""),
        ("figures", [(f"training_gradient_layers_{start}", layer_figure(gradients, start),
                      "Gradient norm by layer at the start.") for start in starts] +
         [(f"training_gradient_slopes_{start}", slope_figure(gradients, start), slope_text(gradients, start))
          for start in starts]),
    ]


def further_figures(stability):
    """What --full adds: other data, another start, other learning rates and warm-ups of Post-LN."""
    figures = [(f"training_loss_{start}_{data}",
                step_figure(stability, start, data, "loss", f"loss, {DATA[data]}, {STARTS[start]}"),
                capital(answer(stability, start, data)))
               for start in STARTS for data in DATA
               if (start, data) != ("torch", "fresh") and stability.pairs(start, data)]
    if stability.settings():
        for start, data, layers in sorted({(key[0], key[2], key[5]) for key in stability.of if key[3:5] != USUAL}):
            figures.append((f"training_loss_settings_{start}_{data}_{layers}",
                            settings_figure(stability, start, data, layers),
                            "Last losses: " + "; ".join(f"{name}: {number(last_loss(lines))}" for name, lines in
                                                        runs_by_settings(stability, start, data, layers)) + "."))
    return figures


def stability_blocks(stability):
    blocks = []
    if any((key[0], key[2]) == ("torch", "fresh") for key in stability.of):
        shown = [layers for layers, _, _ in stability.pairs("torch", "fresh")]
        figures = [
            ("training_loss", step_figure(stability, "torch", "fresh", "loss", "loss, fresh targets"),
             f"{capital(answer(stability, 'torch', 'fresh'))} {CLAIMS} Faint lines are single steps, strong ones "
             "running means; where a depth has no dashes to be seen, both its lines run together."),
            ("training_gradient_norm",
             step_figure(stability, "torch", "fresh", "gradient_norm", "gradient norm of layer 0, fresh targets"),
             "How much of the gradient reaches the first block."),
        ]
        if shown:
            layers = 24 if 24 in shown else max(shown)
            figures.append(("norm_activation_comparison", comparison_figure(stability, layers),
                            "Four panels: losses of Pre-LN and Post-LN, their gradient norms of layer 0, and "
                            "activations from their formulas."))
        blocks.append(("figures", figures))
    blocks.append(stability_text(stability))
    if any(stability.pairs(start, data) for start in STARTS for data in DATA):
        blocks.append(loss_table(stability))
    further = further_figures(stability)
    if further:
        blocks += [("text", "The further curves of --full: other targets, other weights at the start, and other "
                            "learning rates and warm-ups of Post-LN. One text advises 1e-5 and more than 1000 steps of "
                            "warm-up for it, which is longer than these runs."), ("figures", further)]
    return blocks


def blocks(directory):
    gradients = read(directory, "training_gradients")
    stability = []
    if os.path.exists(os.path.join(directory, "training_stability.csv")):
        stability = read(directory, "training_stability")
    return [
        ("heading", "5 · Training by depth", "training"),
        ("text", """
            Stacks of d 256 with 8 heads, full attention with biases and a ReLU FFN of width 1024, on 4 sequences of 32
            tokens; inputs and targets are N(0, 1), the loss is the mean square error, and Adam has the learning rate
            1e-4 without warm-up unless a picture says otherwise. Pre-LN ends in one more norm."""),
        *(gradient_blocks(gradients) if gradients else []),
        *(stability_blocks(Stability(stability)) if stability else []),
    ]
