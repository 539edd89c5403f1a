"""Experiment 2: time and operations of RMSNorm against LayerNorm."""

import statistics
from collections import defaultdict

from .common import COLOURS, INK, legend_below, plt, published_table, quartiles, read, readable_time, spaced

# Less time than LayerNorm, in %: by whom, at least, at most.
PUBLISHED = [("Zhang and Sennrich", 7, 64), ("a course", 10, 15), ("a notebook", 10, 30), ("a lesson", 30, 30)]
COLOUR_OF = {"LayerNorm": COLOURS[2], "RMSNorm": COLOURS[0], "pRMSNorm": COLOURS[1], "copy": COLOURS[5]}


class Times:
    """Seconds per call by case (dtype, rows, threads), operation and round."""

    def __init__(self, lines):
        self.of = defaultdict(lambda: defaultdict(dict))
        for line in lines:
            self.of[line["dtype"], line["rows"], line["threads"]][line["operation"]][line["round"]] = line["seconds"]
        self.cases = list(self.of)
        self.rounds = 1 + max(line["round"] for line in lines)

    def median(self, case, operation):
        return statistics.median(self.of[case][operation].values())

    def ratios(self, case, over, under="LayerNorm"):
        """Ratios of the times of two operations, each from one round."""
        times = self.of[case]
        return [times[over][i] / times[under][i] for i in sorted(times[under])]

    def saved(self, case, operation):
        """Part of LayerNorm's time that an operation does not take: median and quartiles, in %."""
        return quartiles(100 * (1 - ratio) for ratio in self.ratios(case, operation))


def case_name(case, separator=", "):
    dtype, rows, threads = case
    return f"{dtype}{separator}{rows} row{'s' * (rows > 1)}, {threads} thread{'s' * (threads > 1)}"


def axes_of_cases(times):
    figure, axes = plt.subplots(figsize=(4.6, 4.6))
    axes.set_yticks(range(len(times.cases)), [case_name(case, "\n") for case in times.cases])
    axes.set_ylim(len(times.cases) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    return figure, axes


def band_text(low, high):
    return f"{low} %" if low == high else f"{low}–{high} %"


def saving_figure(times):
    figure, axes = axes_of_cases(times)
    figure.set_size_inches(4.6, 5.8)
    first, cases = len(times.cases), times.cases
    axes.set_yticks(range(first + len(PUBLISHED)), [case_name(case, "\n") for case in cases] +
                    [f"{name}:\n{band_text(low, high)}" for name, low, high in PUBLISHED])
    axes.set_ylim(first + len(PUBLISHED) - 0.5, -0.5)
    for index, (_, low, high) in enumerate(PUBLISHED):
        width = max(high - low, 0.8)  # a single number can be seen
        axes.barh(first + index, width, 0.5, (low + high - width) / 2, color=COLOURS[4],
                  label="published" if index == 0 else None)
    for shift, operation, marker in ((-0.13, "RMSNorm", "o"), (0.13, "pRMSNorm", "D")):
        saved = [times.saved(case, operation) for case in cases]
        spread = [[middle - low for middle, low, _ in saved], [high - middle for middle, _, high in saved]]
        axes.errorbar([middle for middle, _, _ in saved], [i + shift for i in range(len(saved))], xerr=spread,
                      fmt=marker, linestyle="none", markersize=4.5, capsize=2.5, color=COLOUR_OF[operation],
                      label=operation)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.axhline(first - 0.5, color=INK, linewidth=0.8)
    axes.set_xlabel("less time than LayerNorm, %")
    legend_below(figure, axes, 3)
    return figure


def time_figure(times):
    figure, axes = axes_of_cases(times)
    height = 0.8 / len(COLOUR_OF)
    for index, (operation, colour) in enumerate(COLOUR_OF.items()):
        lengths = [statistics.median(times.ratios(case, operation)) for case in times.cases]
        places = [i + (index + 0.5) * height - 0.4 for i in range(len(lengths))]
        axes.barh(places, lengths, height * 0.9, label=operation, color=colour)
    axes.set_xlabel("time over LayerNorm's")
    legend_below(figure, axes, 2)
    return figure


def blocks(directory):
    lines = read(directory, "norm_speed")
    times, d = Times(lines), lines[0]["d"]
    most_rows = max(rows for _, rows, _ in times.cases)
    in_cache = [case for case in times.cases if case[1] < most_rows]
    large = [case for case in times.cases if case[1] == most_rows]

    def span(operation, cases):
        saved = [times.saved(case, operation)[0] for case in cases]
        low, high = f"{min(saved):.0f}", f"{max(saved):.0f}"
        return f"{low} %" if low == high else f"{low} to {high} %"

    claims = [[name, band_text(low, high),
               sum(low <= times.saved(case, "RMSNorm")[0] <= high for case in times.cases) if low < high else "",
               *(f"{times.saved(case, 'RMSNorm')[0]:.1f}" for case in large)] for name, low, high in PUBLISHED]
    noise = max(abs(statistics.median(times.ratios(case, "RMSNorm again", "RMSNorm")) - 1) for case in times.cases)

    operations = read(directory, "norm_operations")
    of = {line["algorithm"]: line for line in operations}
    fewer = {suffix: 1 - of["RMSNorm" + suffix]["flops"] / of["LayerNorm" + suffix]["flops"]
             for suffix in ("", ", textbook")}
    difference = max(of[name]["largest_difference"] for name in ("LayerNorm", "RMSNorm", "pRMSNorm"))

    def said(what):
        return next(line["published"] for line in published if line["what"] == what)

    table = []
    for case in times.cases:
        middle, low, high = times.saved(case, "RMSNorm")
        table.append([case_name(case)] + [readable_time(times.median(case, operation)) for operation in COLOUR_OF] +
                     [f"{middle:.1f}", f"{low:.1f}–{high:.1f}"])
    models, published = read(directory, "norm_parameters"), read(directory, "norm_published")
    llama, largest = models[0], models[-1]
    kinds = {"additions": "add, subtract", "multiplications": "multiply", "fused": "multiply-add",
             "divisions": "divide", "roots": "root", "flops": "operations", "loads": "loads", "stores": "stores",
             "parameters": "parameters"}
    counts = [[line["algorithm"]] + [spaced(line[kind]) for kind in kinds] for line in operations]
    return [
        ("heading", "2 · RMSNorm against LayerNorm", "norms"),
        ("text", f"""
            d {d}, {times.rounds} interleaved rounds for each case; a point is the median of the ratios taken within a
            round, its bar reaches over the middle half of them. LayerNorm has weight and bias, RMSNorm and pRMSNorm
            (mean square of the first 6.25 % of a row) a weight."""),
        ("figures", [
            ("norm_saving", saving_figure(times), "Time that RMSNorm and pRMSNorm save, and what is published."),
            ("norm_time", time_figure(times),
             "Each norm's time over LayerNorm's; a copy moves the same bytes and computes nothing."),
        ]),
        ("text", f"""
            RMSNorm takes {span("RMSNorm", in_cache)} less time than LayerNorm where the rows are in cache, and
            {span("RMSNorm", large)} less on {most_rows} rows; a copy of the same bytes takes {span("copy", in_cache)}
            and {span("copy", large)} less. The paper's 7 to 64 % are of whole
            models, a lesson's 30 % of 32 · 1024 rows of 4096 on a GPU. A difference below
            {100 * noise:.1f} % says nothing: so far RMSNorm is from itself, measured twice. Of arithmetic RMSNorm has
            {100 * fewer[", textbook"]:.0f} % less as texts write it, and {100 * fewer[""]:.0f} % less as this library
            computes it, but both read and write the same features."""),
        ("table", ["published by", "RMSNorm saves", f"cases of {len(times.cases)} within",
                   *(f"saves here, %: {case_name(case)}" for case in large)], claims, 1),
        ("table", ["case"] + list(COLOUR_OF) + ["RMSNorm saves, %", "middle half"], table, 1),
        ("text", f"""
            Operations on one row of {d}, counted by running each algorithm on numbers that count. A fused
            multiply-add is two operations. Textbook LayerNorm passes over the row three times (mean, variance,
            result), this library's twice: both moments come from one pass over x − p, where p is the mean of the
            first 64 features. RMSNorm needs no mean, so it has neither the subtraction nor the bias. The algorithms
            counted as the library's were compared with its output: largest difference {difference:g}."""),
        ("table", ["algorithm"] + list(kinds.values()), counts, 1),
        ("text", f"""
            A notebook has {said("operations of LayerNorm per feature")} d operations for LayerNorm and
            {said("operations of RMSNorm per feature")} d for RMSNorm. Its own list of LayerNorm's steps comes to
            {of["LayerNorm, a notebook's list"]["flops"] / d:.1f} d where it is run, and the textbook form to
            {of["LayerNorm, textbook"]["flops"] / d:.1f} d. A lesson's {said("steps of LayerNorm")} and
            {said("steps of RMSNorm")} operations are steps, each over the whole row or of one number."""),
        published_table(published),
        ("text", f"""
            Two norms a block and a last one: {llama["model"]} has {llama["norms"]}. LayerNorms would have
            {spaced(llama["dropped_biases"])} parameters more for their biases, {llama["norms"]} · {llama["d"]}, of
            {spaced(llama["parameters"])}: not the millions of a text, which only larger models come to
            ({spaced(largest["dropped_biases"])} in {largest["model"]})."""),
        ("table", ["model", "blocks", "d", "norms", "biases of so many LayerNorms", "parameters", "part, %"],
         [[line["model"], line["blocks"], line["d"], line["norms"], spaced(line["dropped_biases"]),
           spaced(line["parameters"]), f"{100 * line['dropped_biases'] / line['parameters']:.4f}"]
          for line in models], 1),
    ]
