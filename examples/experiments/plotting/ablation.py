"""Experiment 6: activations and gates of the FFN in a language model, at equal parameters."""

import math
import os
import statistics

from .common import COLOURS, INK, LINES, column, grouped, legend_below, plt, read, spaced
from .training import log_y, number, positive, step_axis, words

NAMES = {"relu": "ReLU", "gelu": "GELU", "swiglu": "SwiGLU", "glu": "GLU", "bilinear": "Bilinear", "reglu": "ReGLU",
         "geglu": "GeGLU"}
UNGATED = ("relu", "gelu")
# Heldout log-perplexity, Shazeer 2020, Table 1.
PUBLISHED = {"relu": 1.677, "gelu": 1.679, "geglu": 1.633, "swiglu": 1.636}
# By the number of seeds: how often chance alone exceeds two standard errors, in % (Student's distribution).
CHANCE = {2: 30, 3: 18, 4: 14, 5: 12}


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


class Ablation:
    """Losses by unit and seed. Seeds that some unit did not finish are left out, if any is left then."""

    def __init__(self, lines, finals):
        self.units = [unit for unit in NAMES if unit in column(lines, "unit")]
        self.has_floor = all(known(line["floor"]) for line in lines)
        self.last = {unit: {line["seed"]: above_floor(line) for line in finals if line["unit"] == unit}
                     for unit in self.units}
        self.dead = {unit: [line["dead_share"] for line in finals if line["unit"] == unit and known(line["dead_share"])]
                     for unit in self.units}
        self.seeds = sorted(set.intersection(*(set(self.last[unit]) for unit in self.units)))
        self.curves = {}
        for unit in self.units:
            of_unit = [line for line in lines if line["unit"] == unit]
            seeds = self.seeds or sorted(set(column(of_unit, "seed")))
            steps = grouped([line for line in of_unit if line["seed"] in seeds], "step")
            self.curves[unit] = {step: {line["seed"]: above_floor(line) for line in at}
                                 for step, at in sorted(steps.items()) if len(at) == len(seeds)}
        self.steps = max(column(lines, "step"))

    def mean_curve(self, unit):
        return {step: statistics.fmean(losses.values()) for step, losses in self.curves[unit].items()}

    def final(self, unit):
        """Mean and standard error of the loss at the end, over seeds that every unit finished."""
        return mean_and_error(self.last[unit][seed] for seed in self.seeds)

    def difference(self, unit, other):
        """Mean and standard error of the difference at the end, of equal seeds."""
        return mean_and_error(self.last[unit][seed] - self.last[other][seed] for seed in self.seeds)

    def firsts(self):
        """The level that the slowest unit reaches at the end, and the first step of each unit that is as low."""
        curves = {unit: self.mean_curve(unit) for unit in self.units}
        ends = [curve[max(curve)] for curve in curves.values() if curve]
        if not self.seeds or len(ends) < len(curves) or len(curves) < 2 or not all(map(math.isfinite, ends)):
            return None, {}
        level = max(ends)
        return level, {unit: next(step for step, loss in curve.items() if loss <= level)
                       for unit, curve in curves.items()}

    def lowest(self):
        """The unit of the lowest loss at the end, and those that two standard errors do not tell from it."""
        finite = [unit for unit in self.units if math.isfinite(self.final(unit)[0])]
        if not finite:
            return None, []
        best = min(finite, key=lambda unit: self.final(unit)[0])
        gaps = {unit: self.difference(unit, best) for unit in finite if unit != best}
        return best, [unit for unit, (gap, error) in gaps.items() if error is not None and gap < 2 * error]


def loss_name(ablation):
    return "loss above the floor" if ablation.has_floor else "loss"


def band_figure(ablation, series, title):
    """Means over seeds with a band of a standard error each side; series: values of each step by unit."""
    figure, axes = plt.subplots(figsize=(4.6, 4.2))
    for index, unit in enumerate(ablation.units):
        if unit not in series:
            continue
        steps = list(series[unit])
        points = [mean_and_error(values) for values in series[unit].values()]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(steps, [mean for mean, _ in points], color=colour, linestyle=LINES[index % len(LINES)],
                  label=NAMES[unit])
        if all(error is not None for _, error in points):
            axes.fill_between(steps, *([mean + side * error for mean, error in points] for side in (-1, 1)),
                              color=colour, alpha=0.2, linewidth=0)
    axes.set_title(title)
    step_axis(axes)
    legend_below(figure, axes, 3)
    return figure, axes


def loss_figure(ablation):
    series = {unit: {step: positive(losses.values()) for step, losses in curve.items()}
              for unit, curve in ablation.curves.items()}
    figure, axes = band_figure(ablation, series, loss_name(ablation))
    log_y(axes)
    return figure


def difference_figure(ablation):
    base = ablation.curves["gelu"]
    series = {unit: {step: [losses[seed] - base[step][seed] for seed in losses] for step, losses in curve.items()
                     if step in base and set(losses) <= set(base[step])}
              for unit, curve in ablation.curves.items() if unit != "gelu"}
    figure, axes = band_figure(ablation, series, "loss beyond GELU's, equal seeds")
    axes.axhline(0, color=INK, linewidth=0.8)
    return figure


def unit_table(ablation, models):
    table = []
    for unit in ablation.units:
        line = [NAMES[unit]] + ([f"{models[unit]['width']}"] + [spaced(models[unit][key]) for key in (
            "parameters", "ffn_parameters", "ffn_parameters_with_biases")] if unit in models else ["–"] * 4)
        paired = ablation.seeds and "gelu" in ablation.units
        line.append(with_error(*ablation.final(unit)) if ablation.seeds else "–")
        line.append(with_error(*ablation.difference(unit, "gelu"), "+") if paired and unit != "gelu" else "–")
        line.append(f"{100 * statistics.fmean(ablation.dead[unit]):.1f} %" if ablation.dead[unit] else "–")
        table.append(line)
    return ("table", ["unit", "width", "parameters of the model", "of an FFN", "of an FFN with biases",
                      f"{loss_name(ablation)}, last 50 steps", "difference to GELU", "units that never fire"], table, 1)


def fastest_text(ablation):
    level, firsts = ablation.firsts()
    if not firsts:
        return ""
    first = min(firsts.values())
    fastest = [NAMES[unit] for unit, step in firsts.items() if step == first]
    others = ", ".join(f"{NAMES[unit]} at {step}" for unit, step in firsts.items())
    verb = "converges fastest" if len(fastest) == 1 else "converge equally fast"
    return (f"The slowest unit's mean loss ends at {number(level)}. The steps at which the means are first as low are: "
            f"{others}. So {words(fastest)} {verb} by this measure, whose resolution is ten steps.")


def lowest_text(ablation):
    if not ablation.seeds:
        return "No seed was finished with every unit, so the ends cannot be compared."
    best, tied = ablation.lowest()
    if best is None:
        return "No unit ends with a finite loss."
    lost = [NAMES[unit] for unit in ablation.units if not math.isfinite(ablation.final(unit)[0])]
    text = f"No finite loss is left at the end with {words(lost)}. " if lost else ""
    text += f"At the end {NAMES[best]} has the lowest mean loss, {with_error(*ablation.final(best))}"
    if len(ablation.seeds) == 1:
        return text + "; one seed does not say how much of a difference is chance."
    if tied:
        text += (f", and {words(NAMES[unit] for unit in tied)} tie{'s' * (len(tied) == 1)} with it: the paired "
                 "difference is below two standard errors.")
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
    models = {line["unit"]: line for line in models}
    seeds = len(ablation.seeds)
    size = ""
    if models:
        unit, line = next(iter(models.items()))
        size = f" of d {line['ffn_parameters'] // (line['width'] * (2 if unit in UNGATED else 3))}"
    floor = ("The data come from a seeded grammar whose entropy is known: it is the floor, below which no model comes "
             "but by chance, and the loss is shown above it." if ablation.has_floor else
             "The data are a text, whose entropy is not known, so the loss is shown as it is.")
    figures = [("ablation_loss", loss_figure(ablation),
                "Means of ten steps each; bands are a standard error over seeds each side." if seeds > 1 else
                "Means of ten steps each; without two seeds there is no standard error.")]
    if "gelu" in ablation.units and len(ablation.units) > 1:
        figures.append(("ablation_difference", difference_figure(ablation),
                        "Runs of one seed have equal data, so their difference has less noise than each. A difference "
                        "within two standard errors of 0 is no finding."))
    return [
        heading,
        ("text", f"""
            Causal language models{size}, whose FFNs differ in their unit and have equal parameters: gated ones have a
            third matrix and two thirds of the width. {floor} Runs of one seed have equal data and equal weights outside
            the FFN; every unit finished {seeds} seed{'s' * (seeds != 1)}. All units have one learning rate, which may
            suit some better than others."""),
        ("figures", figures),
        unit_table(ablation, models),
        ("text", f"""
            {fastest_text(ablation)} {lowest_text(ablation)} {ablation.steps} steps show the early phase of training,
            not an asymptote: an order seen here may turn or vanish later. A unit that never fires is a hidden unit
            whose ReLU is 0 for every token of a test batch."""),
        ("text", """
            Published by Shazeer 2020 for another model (T5, base size) and other data (C4), and trained far longer. The
            numbers stand here for their order, not to be compared with the losses above."""),
        ("table", ["unit", "heldout log-perplexity (published)"],
         [[NAMES[unit], f"{value:.3f}"] for unit, value in PUBLISHED.items()], 1),
    ]
