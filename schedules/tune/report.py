#!/usr/bin/env python3
"""Makes one HTML page of a tuner's database: what was found per kernel, how the search went, and which values mattered.

    report.py tune.jsonl --output report.html
"""
import argparse
import html
import json
import math
import pathlib
import statistics
import sys
from collections import defaultdict

STYLE = """
:root { color-scheme: light dark; --text: #222; --quiet: #666; --line: #ddd; --page: #fff; --better: #e6f4e6;
        --trial: #2b5fc0; --final: #c25a00; --best: #2f8f3f }
@media (prefers-color-scheme: dark) {
    :root { --text: #ddd; --quiet: #999; --line: #444; --page: #1b1b1b; --better: #1d3a22;
            --trial: #7ea6f4; --final: #f0a050; --best: #6cc47c } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75em; margin: 1em auto; padding: 0 1em; color: var(--text);
       background: var(--page) }
h1 { font-size: 1.6em } h2 { font-size: 1.25em; margin-top: 1.6em }
table { border-collapse: collapse; margin: .6em 0; display: block; overflow-x: auto }
td { font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th:first-child, td:first-child, .text { text-align: left }
th { border-bottom: 2px solid var(--quiet) }
tr.better { background: var(--better) }
summary { cursor: pointer; padding: .25em 0 } details details { margin-left: 1em }
svg { width: 100%; max-width: 640px; height: auto; display: block } svg text { fill: var(--quiet); font-size: 11px }
.note { color: var(--quiet) }
"""


def read_records(file):
    """The records of a database; lines that were cut off or that no page can be made of are left out."""
    records = []
    for line in file.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
            page([record])
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError):
            continue
        records.append(record)
    return records


def subject(record):
    texts = record["isa"], record.get("family", ""), record["kernel"], record["dtype"]
    if not all(isinstance(each, str) for each in texts):
        raise TypeError("a name that is no text")
    return texts


def text_of(params):
    return " ".join(f"{name}={value}" for name, value in params.items())


def cell(text, kind="td", css=""):
    return f"<{kind}{f' class={css}' if css else ''}>{html.escape(str(text))}</{kind}>"


def table(header, rows):
    lines = ["<table><tr>" + "".join(cell(each, "th") for each in header) + "</tr>"]
    for css, row in rows:
        lines.append(f"<tr{f' class={css}' if css else ''}>" + "".join(cell(each) for each in row) + "</tr>")
    return "\n".join(lines) + "</table>"


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else 1.0


def progress_figure(trials):
    """How fast each candidate was, in the order in which they were timed, and the best so far."""
    width, height, margin = 460, 180, 36
    ratios = [trial["ratio"] for trial in trials]
    low, high = min(ratios + [0.95]), max(ratios + [1.05])

    def x(i):
        return margin + (width - 2 * margin) * (i / max(1, len(ratios) - 1))

    def y(ratio):
        return height - margin + (2 * margin - height) * (ratio - low) / (high - low)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="ratios of the candidates over time">']
    for ratio in (low, 1.0, high):
        parts.append(f'<line x1="{margin}" x2="{width - margin}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" '
                     f'stroke="var({"--quiet" if ratio == 1 else "--line"})"/>'
                     f'<text x="2" y="{y(ratio) + 4:.1f}">{ratio:.2f}</text>')
    best, path = 0.0, []
    for i, trial in enumerate(trials):
        colour = "--final" if trial["verdict"] == "final" else "--trial"
        best = max(best, trial["ratio"])
        path.append(f"{x(i):.1f},{y(best):.1f}")
        parts.append(f'<circle cx="{x(i):.1f}" cy="{y(trial["ratio"]):.1f}" r="3.5" fill="var({colour})"><title>'
                     f'{html.escape(text_of(trial["params"]))}: {trial["ratio"]:.3f}x, '
                     f'{trial["effort"]["rounds"]} rounds'
                     "</title></circle>")
    parts.append(f'<polyline points="{" ".join(path)}" fill="none" stroke="var(--best)"/>')
    return "".join(parts) + "</svg>"


def gains_figure(verdicts):
    """A bar for each kernel that got other parameters, from 1 to its gain, with three times its noise."""
    won = sorted((v for v in verdicts if v["is_better"]), key=lambda v: -v["ratio"])
    if not won:
        return "<p>Nothing beat the usual parameters beyond the noise.</p>"
    width, row, label = 460, 20, 210
    most = max(v["ratio"] + 3 * v["noise"] for v in won)

    def x(ratio):
        return label + (width - label - 60) * max(0.0, ratio - 1) / (most - 1)

    parts = [f'<svg viewBox="0 0 {width} {row * len(won) + 6}" role="img" aria-label="gains of the kernels that won">']
    for i, v in enumerate(won):
        top, middle = row * i + 4, row * i + 4 + (row - 6) / 2
        noise = 3 * max(v["noise"], v["error"])
        parts.append(f'<text x="{label - 6}" y="{middle + 4:.1f}" text-anchor="end">'
                     f'{html.escape(" ".join((v["kernel"], v["dtype"], v["isa"])))}</text>'
                     f'<rect x="{label}" y="{top}" width="{x(v["ratio"]) - label:.1f}" height="{row - 6}" '
                     f'fill="var(--best)"><title>{html.escape(text_of(v["best"]))} instead of '
                     f'{html.escape(text_of(v["usual"]))}</title></rect>'
                     f'<line x1="{x(v["ratio"] - noise):.1f}" x2="{x(v["ratio"] + noise):.1f}" y1="{middle:.1f}" '
                     f'y2="{middle:.1f}" stroke="var(--text)"/>'
                     f'<text x="{x(v["ratio"] + noise) + 4:.1f}" y="{middle + 4:.1f}">{v["ratio"]:.2f}x</text>')
    return "".join(parts) + "</svg>"


def what_mattered(trials):
    """For each parameter and value the best and the median ratio of the choices that had it."""
    by_value = defaultdict(list)
    for trial in trials:
        for name, value in trial["params"].items():
            by_value[name, value].append(trial["ratio"])
    spread = {}
    for name in {name for name, _ in by_value}:
        best = [max(ratios) for (other, _), ratios in by_value.items() if other == name]
        spread[name] = max(best) / min(best) - 1
    rows = [("", [name, value, len(ratios), f"{max(ratios):.3f}x", f"{statistics.median(ratios):.3f}x",
                  f"{100 * spread[name]:.0f} %"])
            for (name, value), ratios in sorted(by_value.items(), key=lambda each: (-spread[each[0][0]], each[0]))]
    return table(["parameter", "value", "comparisons", "best", "median", "between best values"], rows)


def baseline_table(baselines):
    newest = {}
    for record in baselines:
        newest[subject(record), record["label"]] = record
    rows = []
    for (_, label), record in sorted(newest.items(), key=lambda each: str(each[0])):
        if record["failure"]:
            result = "no times: " + record["failure"].splitlines()[0][:120]
        else:
            result = f'{1 / geometric_mean([gain["ratio"] for gain in record["gains"]]):.2f}x the time of ours'
        rows.append(("", [f'{record["workloads"][0]} ({record["isa"]})', label, result]))
    return table(["call", "autoscheduler", "result"], rows)


def page(records):
    verdicts, trials, baselines = {}, defaultdict(list), []
    for record in records:
        if record["kind"] == "verdict":
            verdicts[subject(record)] = record
        elif record["kind"] == "trial" and "ratio" in record:
            trials[subject(record)].append(record)
        elif record["kind"] == "baseline":
            baselines.append(record)
    machines = sorted({f'{r["machine"]["cpu"]}, {r["machine"]["processors"]} processors' for r in records})

    families = defaultdict(list)
    rows = []
    for key, verdict in sorted(verdicts.items()):
        gain = verdict["ratio"] if verdict["is_better"] else 1.0
        families[key[0], key[1]].append(gain)
        rows.append(("better" if verdict["is_better"] else "",
                     [f"{key[2]} {key[3]}", key[0], text_of(verdict["usual"]),
                      text_of(verdict["best"]) if verdict["is_better"] else "stays",
                      f"{gain:.3f}x", f'{100 * verdict["noise"]:.1f} %', verdict["tried"], verdict["rigor"]]))
    everything = [gain for gains in families.values() for gain in gains]
    summary = [("", [f"{family}, {isa}", len(gains), sum(gain > 1 for gain in gains), f"{geometric_mean(gains):.3f}x",
                     f"{max(gains):.3f}x"]) for (isa, family), gains in sorted(families.items())]
    summary.append(("", ["all", len(everything), sum(gain > 1 for gain in everything),
                         f"{geometric_mean(everything):.3f}x", f"{max(everything, default=1):.3f}x"]))

    parts = ['<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
             '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Tuned schedules</title>',
             f"<style>{STYLE}</style></head><body><h1>Tuned schedules</h1>",
             f"<p>{html.escape('; '.join(machines))}. Gains are medians of ratios within a round; a choice replaces "
             "the usual one if it gains more than 2\u00a0% and three times the noise, twice.</p>",
             "<h2>Families</h2>",
             table(["family", "kernels", "better", "mean gain", "largest"], summary),
             "<h2>Best against usual</h2><p class=note>The line on each bar is three times the noise.</p>",
             gains_figure(verdicts.values()),
             f"<details{'' if len(rows) > 40 else ' open'}><summary>All {len(rows)} kernels</summary>",
             table(["kernel", "instruction set", "usual", "best", "gain", "noise", "tried", "rigor"], rows),
             "</details>"]
    if baselines:
        parts += ["<h2>Halide's autoschedulers on the same algorithms</h2>", baseline_table(baselines)]
    parts.append("<h2>Searches</h2><p class=note>Points are candidates in the order in which they were timed "
                 "(orange: finals), the line the best so far; above 1 is faster than usual.</p>")
    by_family = defaultdict(list)
    for key, tried in sorted(trials.items()):
        by_family[key[:2]].append(
            f"<details><summary>{html.escape(' '.join(key[2:]))}: {len(tried)} comparisons</summary>"
            + progress_figure(tried) + what_mattered(tried) + "</details>")
    for (isa, family), searches in by_family.items():
        parts.append(f"<details><summary>{html.escape(family)}, {html.escape(isa)}: {len(searches)} kernels</summary>"
                     + "\n".join(searches) + "</details>")
    return "\n".join(parts) + "\n</body></html>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("report.html"))
    options = parser.parse_args()
    if not options.database.exists():
        sys.exit(f"report.py: there is no database {options.database}")
    try:
        options.output.write_text(page(read_records(options.database)), encoding="utf-8")
    except OSError as error:
        sys.exit(f"report.py: {error.filename or options.output}: {error.strerror}")
    print(options.output)


if __name__ == "__main__":
    main()
