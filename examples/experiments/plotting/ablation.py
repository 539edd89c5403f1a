"""Experiment 6: activations and gates of the FFN in a language model, at equal parameters."""

import math
import os
import statistics
from collections import defaultdict

from .common import (COLOURS, INK, LINES, column, grouped, legend_below, log_y, number, plt, positive, read, spaced,
                     step_axis, words)

NAMES = {"relu": "ReLU", "gelu": "GELU", "swiglu": "SwiGLU", "glu": "GLU", "bilinear": "Bilinear", "reglu": "ReGLU",
         "geglu": "GeGLU"}
UNGATED = ("relu", "gelu")
# Heldout log-perplexity, Shazeer 2020, Table 1.
PUBLISHED = {"relu": 1.677, "gelu": 1.679, "geglu": 1.633, "swiglu": 1.636}
# By the number of seeds: how often chance alone exceeds two standard errors, in % (Student's distribution).
CHANCE = {2: 30, 3: 18, 4: 14, 5: 12}
SEEDS_FOR_CLAIMS = 5


def known(value):
    """Whether a column that may be empty has a value."""
    return value != "" and not math.isnan(value)


def above_floor(line):
    """The loss itself where the floor is not known."""
    return line["loss"] - line["floor"] if known(line["floor"]) else line["loss"]


def mean_and_error(values):
    """A single value has no standard error (None). Both are NaN if a value is not finite."""
    values = list(values)
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return statistics.fmean(values), error


def with_error(mean, error, sign=""):
    if not math.isfinite(mean):
        return "not finite"
    return f"{mean:{sign}.4f}" + (f" ± {error:.4f}" if error is not None else "")


def by_learning_rate(finals):
    """The mean loss at the end by activation and learning rate, over the seeds that all of them finished."""
    runs = {key: {line["seed"]: above_floor(line) for line in of_key}
            for key, of_key in grouped(finals, "activation", "learning_rate").items()}
    seeds = set.intersection(*map(set, runs.values())) if runs else set()
    means = defaultdict(dict)
    for (activation, rate), losses in runs.items():
        means[activation][rate] = statistics.fmean(losses[seed] for seed in seeds) if seeds else math.nan
    return means


def at_best_rates(lines, means):
    """What was run with the learning rate that suits its activation best."""
    best = {activation: min(losses, key=lambda rate: losses[rate] if math.isfinite(losses[rate]) else math.inf)
            for activation, losses in means.items()}
    return [line for line in lines if line["learning_rate"] == best.get(line["activation"], line["learning_rate"])]


class Ablation:
    """Losses by activation and seed. Seeds that some activation did not finish are left out, if any is left then."""

    def __init__(self, lines, finals):
        self.by_rate = by_learning_rate(finals)
        lines, finals = at_best_rates(lines, self.by_rate), at_best_rates(finals, self.by_rate)
        self.activations = [activation for activation in NAMES if activation in column(lines, "activation")]
        self.has_floor = all(known(line["floor"]) for line in lines)
        ends = grouped(finals, "activation")
        self.last = {activation: {line["seed"]: above_floor(line) for line in ends[activation]}
                     for activation in self.activations}
        self.dead = {activation: [line["dead_share"] for line in ends[activation] if known(line["dead_share"])]
                     for activation in self.activations}
        self.seeds = sorted(set.intersection(*(set(self.last[activation]) for activation in self.activations)))
        self.curves = {}
        for activation in self.activations:
            here = [line for line in lines if line["activation"] == activation]
            seeds = self.seeds or sorted(set(column(here, "seed")))
            steps = grouped([line for line in here if line["seed"] in seeds], "step")
            self.curves[activation] = {step: {line["seed"]: above_floor(line) for line in at}
                                 for step, at in sorted(steps.items()) if len(at) == len(seeds)}
        self.steps = max(column(lines, "step"))

    def mean_curve(self, activation):
        return {step: statistics.fmean(losses.values()) for step, losses in self.curves[activation].items()}

    def final(self, activation):
        """Mean and standard error of the loss at the end, over seeds that every activation finished."""
        return mean_and_error(self.last[activation][seed] for seed in self.seeds)

    def difference(self, activation, other):
        """Mean and standard error of the difference at the end, of equal seeds."""
        return mean_and_error(self.last[activation][seed] - self.last[other][seed] for seed in self.seeds)

    def firsts(self):
        """The level that the slowest activation reaches at the end, and the first step of each one that is as low."""
        curves = {activation: self.mean_curve(activation) for activation in self.activations}
        ends = [curve[max(curve)] for curve in curves.values() if curve]
        if not self.seeds or len(ends) < len(curves) or len(curves) < 2 or not all(map(math.isfinite, ends)):
            return None, {}
        level = max(ends)
        return level, {activation: next(step for step, loss in curve.items() if loss <= level)
                       for activation, curve in curves.items()}

    def lowest(self):
        """The activation of the lowest loss at the end, and those that two standard errors do not tell from it."""
        finite = [activation for activation in self.activations if math.isfinite(self.final(activation)[0])]
        if not finite:
            return None, []
        best = min(finite, key=lambda activation: self.final(activation)[0])
        gaps = {activation: self.difference(activation, best) for activation in finite if activation != best}
        return best, [activation for activation, (gap, error) in gaps.items() if error is not None and gap < 2 * error]


def loss_name(ablation):
    return "loss above the floor" if ablation.has_floor else "loss"


def band_figure(ablation, series, title):
    """Means over seeds with a band of a standard error each side; series: values of each step by activation."""
    figure, axes = plt.subplots(figsize=(4.6, 4.2))
    for index, activation in enumerate(ablation.activations):
        if activation not in series:
            continue
        steps = list(series[activation])
        points = [mean_and_error(values) for values in series[activation].values()]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(steps, [mean for mean, _ in points], color=colour, linestyle=LINES[index % len(LINES)],
                  label=NAMES[activation])
        if all(error is not None for _, error in points):
            axes.fill_between(steps, *([mean + side * error for mean, error in points] for side in (-1, 1)),
                              color=colour, alpha=0.2, linewidth=0)
    axes.set_title(title)
    step_axis(axes)
    legend_below(figure, axes, 3)
    return figure, axes


def loss_figure(ablation):
    series = {activation: {step: positive(losses.values()) for step, losses in curve.items()}
              for activation, curve in ablation.curves.items()}
    figure, axes = band_figure(ablation, series, loss_name(ablation))
    log_y(axes)
    return figure


def difference_figure(ablation):
    base = ablation.curves["gelu"]
    series = {activation: {step: [losses[seed] - base[step][seed] for seed in losses] for step, losses in curve.items()
                     if step in base and set(losses) <= set(base[step])}
              for activation, curve in ablation.curves.items() if activation != "gelu"}
    figure, axes = band_figure(ablation, series, "loss beyond GELU's, equal seeds")
    axes.axhline(0, color=INK, linewidth=0.8)
    return figure


def activation_table(ablation, models):
    table = []
    for activation in ablation.activations:
        line = [NAMES[activation]] + ([f"{models[activation]['width']}"] + [spaced(models[activation][key]) for key in (
            "parameters", "ffn_parameters", "ffn_parameters_with_biases")] if activation in models else ["–"] * 4)
        paired = ablation.seeds and "gelu" in ablation.activations
        line.append(with_error(*ablation.final(activation)) if ablation.seeds else "–")
        line.append(with_error(*ablation.difference(activation, "gelu"), "+") if paired and activation != "gelu"
                    else "–")
        dead = ablation.dead[activation]
        line.append(f"{100 * statistics.fmean(dead):.1f} %" if dead else "–")
        table.append(line)
    return ("table", ["activation", "width", "parameters of the model", "of an FFN", "of an FFN with biases",
                      f"{loss_name(ablation)}, last 50 steps", "difference to GELU", "units that never fire"], table, 1)


def rate_blocks(ablation):
    """The losses by learning rate, if there were several."""
    rates = sorted({rate for losses in ablation.by_rate.values() for rate in losses})
    if len(rates) < 2:
        return []
    return [("table", ["activation"] + [f"{loss_name(ablation)}, learning rate {rate:g}" for rate in rates],
             [[NAMES[activation]] + [number(ablation.by_rate[activation].get(rate, math.nan), 4) for rate in rates]
              for activation in ablation.activations if activation in ablation.by_rate], 1)]


def has_rates(ablation):
    return any(len(losses) > 1 for losses in ablation.by_rate.values())


def rate_text(ablation):
    if has_rates(ablation):
        return "Each activation is shown with that of its learning rates which gave the lowest mean loss at the end."
    return "All have one learning rate, which may suit some better than others."


def claims_text(ablation):
    """What so many seeds allow to say."""
    seeds = len(ablation.seeds)
    if seeds >= SEEDS_FOR_CLAIMS:
        rates = "these learning rates" if has_rates(ablation) else "this learning rate"
        return (f"{seeds} paired seeds: a difference well beyond two standard errors may be claimed for this model, "
                f"these data, {rates} and this many steps.")
    return (f"{seeds} seed{'s' * (seeds != 1)}: fewer than the {SEEDS_FOR_CLAIMS} that a claim needs, so a difference "
            "seen here is a hint.")


def fastest_text(ablation):
    level, firsts = ablation.firsts()
    if not firsts:
        return ""
    first = min(firsts.values())
    fastest = [NAMES[activation] for activation, step in firsts.items() if step == first]
    others = ", ".join(f"{NAMES[activation]} at {step}" for activation, step in firsts.items())
    verb = "converges fastest" if len(fastest) == 1 else "converge equally fast"
    return (f"The slowest activation's mean loss ends at {number(level)}. The steps at which the means are first as "
            f"low are: {others}. So {words(fastest)} {verb} by this measure, whose resolution is ten steps.")


def lowest_text(ablation):
    if not ablation.seeds:
        return "No seed was finished with every activation, so the ends cannot be compared."
    best, tied = ablation.lowest()
    if best is None:
        return "No activation ends with a finite loss."
    lost = [NAMES[activation] for activation in ablation.activations
            if not math.isfinite(ablation.final(activation)[0])]
    text = f"No finite loss is left at the end with {words(lost)}. " if lost else ""
    text += f"At the end {NAMES[best]} has the lowest mean loss, {with_error(*ablation.final(best))}"
    if len(ablation.seeds) == 1:
        return text + "; one seed does not say how much of a difference is chance."
    if tied:
        text += (f", and {words(NAMES[activation] for activation in tied)} tie{'s' * (len(tied) == 1)} with it: the "
                 "paired difference is below two standard errors.")
    else:
        text += "; from every other one its paired difference is two standard errors or more."
    chance = CHANCE.get(len(ablation.seeds))
    return text + (f" With {len(ablation.seeds)} seeds chance alone exceeds two standard errors in {chance} % of cases."
                   if chance else "")


def blocks(directory):
    lines = read(directory, "ablation")
    heading = ("heading", "6 · ReLU, GELU and SwiGLU in a language model", "ablation")
    if not lines:
        return [heading, ("text", "The run was interrupted before its first line.")]
    finals, models = (read(directory, name) if os.path.exists(os.path.join(directory, name + ".csv")) else []
                      for name in ("ablation_final", "ablation_models"))
    ablation = Ablation(lines, finals)
    models = {line["activation"]: line for line in models}
    seeds = len(ablation.seeds)
    size = ""
    if models:
        activation, line = next(iter(models.items()))
        size = f" of d {line['ffn_parameters'] // (line['width'] * (2 if activation in UNGATED else 3))}"
    floor = ("The data come from a seeded grammar whose entropy is known: it is the floor, below which no model comes "
             "but by chance, and the loss is shown above it." if ablation.has_floor else
             "The data are a text, whose entropy is not known, so the loss is shown as it is.")
    figures = [("ablation_loss", loss_figure(ablation),
                ("Means of ten steps each; bands are a standard error over seeds each side. " if seeds > 1 else
                 "Means of ten steps each; without two seeds there is no standard error. ") + claims_text(ablation))]
    if "gelu" in ablation.activations and len(ablation.activations) > 1:
        figures.append(("ablation_difference", difference_figure(ablation),
                        "Runs of one seed have equal data, so their difference has less noise than each. A difference "
                        "within two standard errors of 0 is no finding. " + claims_text(ablation)))
    return [
        heading,
        ("text", f"""
            Causal language models{size}, whose FFNs differ in their activation and have equal parameters: gated ones
            have a third matrix and two thirds of the width. {floor} Runs of one seed have equal data and equal weights
            outside the FFN; every activation finished {seeds} seed{'s' * (seeds != 1)}. {rate_text(ablation)}"""),
        ("figures", figures),
        activation_table(ablation, models),
        *rate_blocks(ablation),
        ("text", f"""
            {fastest_text(ablation)} {lowest_text(ablation)} {ablation.steps} steps show the early phase of training,
            not an asymptote: an order seen here may turn or vanish later. A unit that never fires is a hidden unit
            whose ReLU is 0 for every token of a test batch."""),
        ("text", """
            Published by Shazeer 2020 for another model (T5, base size) and other data (C4), and trained far longer. The
            numbers stand here for their order, not to be compared with the losses above."""),
        ("table", ["activation", "heldout log-perplexity (published)"],
         [[NAMES[activation], f"{value:.3f}"] for activation, value in PUBLISHED.items()], 1),
    ]
