"""What all experiments' pictures share: reading CSV files, numbers as words, the look of figures.

An experiment's module turns the files of a directory into a list of blocks, which page.py makes a page of:
("heading", text, anchor), ("text", text), ("figures", [(name, matplotlib figure, caption), ...]),
("table", header, lines, number of columns of text).
"""

import csv
import math
import os
import statistics
from collections import defaultdict

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (after the choice of backend)
from matplotlib.ticker import LogFormatterMathtext, LogLocator, MaxNLocator, NullFormatter, NullLocator  # noqa: E402

# Text and axes; in the page's pictures it becomes the colour of the page's text, which is dark or light.
INK = "#1c2330"
COLOURS = ["#d9622b", "#2f7fd1", "#1f9e77", "#b565b0", "#c0921a", "#7a8290"]
LINES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1))]

INKED = ["text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color",
         "grid.color"]
plt.rcParams.update({key: INK for key in INKED} | {
    "figure.figsize": (4.6, 3.7), "figure.max_open_warning": 0, "figure.constrained_layout.use": True,
    "savefig.dpi": 200, "svg.hashsalt": "halyard",
    "font.size": 10.5, "axes.titlesize": 11, "legend.fontsize": 10, "legend.frameon": False, "lines.linewidth": 1.7,
    "axes.prop_cycle": plt.cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.linewidth": 0.6, "grid.alpha": 0.15, "axes.axisbelow": True,
})


# ---- reading ----


def number_or_text(text):
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return text


def read(directory, name):
    with open(os.path.join(directory, name + ".csv"), encoding="utf-8", newline="") as file:
        return [{key: number_or_text(value) for key, value in line.items()} for line in csv.DictReader(file)]


def grouped(lines, *keys):
    """Lists of lines by the values of some columns."""
    groups = defaultdict(list)
    for line in lines:
        groups[tuple(line[key] for key in keys) if len(keys) > 1 else line[keys[0]]].append(line)
    return groups


def column(lines, key):
    return [line[key] for line in lines]


def quartiles(values):
    """The median, and the quartiles below and above it."""
    values = list(values)
    if len(values) == 1:
        return values * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


# ---- numbers as words ----


def spaced(number):
    """With narrow spaces between thousands."""
    return f"{number:,}".replace(",", "\u202f")


def scientific(number):
    """7.5·10⁻⁶"""
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def readable_time(seconds):
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def readable_bytes(count):
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def number(value, digits=3):
    return f"{value:.{digits}f}" if math.isfinite(value) else "not finite"


def words(numbers):
    """6, 12 and 24"""
    texts = [str(number) for number in numbers]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def published_table(lines):
    """What texts say and what was computed; they agree where what was computed has the published digits."""
    def text(value):
        return spaced(value) if isinstance(value, int) else f"{value:.4g}"

    def agrees(published, here):
        digits = len(str(published).partition(".")[2].rstrip("0")) if isinstance(published, float) else 0
        return "yes" if round(here, digits) == published else "no"

    return ("table", ["published by", "what", "published", "here", "agree"],
            [[line["source"], line["what"], text(line["published"]), text(line["here"]),
              agrees(line["published"], line["here"])] for line in lines], 2)


# ---- figures ----


def legend_below(figure, axes, columns):
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.2)


def positive(values):
    """A logarithmic axis has no place for other values: they leave a gap."""
    return [value if math.isfinite(value) and value > 0 else math.nan for value in values]


def log_axis(axis, low, high):
    """Labels that can be read, however short the axis is."""
    axis.set_minor_formatter(NullFormatter())
    if high < 3 * low:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    else:
        subs = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 200 * low else (1,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter("{x:g}" if low > 1e-4 and high < 1e4 else LogFormatterMathtext())


def log_y(axes):
    axes.set_yscale("log")
    axes.autoscale_view()
    log_axis(axes.yaxis, *axes.get_ylim())


def step_axis(axes):
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
