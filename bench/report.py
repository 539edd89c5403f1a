#!/usr/bin/env python3
"""Turns the JSON of halyard-bench into report.md and a self-contained report.html.

    bench/report.py RESULTS.json [--output DIRECTORY]

Both say the same, because both are written from one list of blocks: headings, paragraphs, tables and figures. Figures
are drawn by matplotlib where it is installed, as SVG inside the HTML; without it the tables stand alone.
"""

import argparse
import html
import io
import json
import math
import os
import statistics
import sys

# ---- reading a run ----


def measured(run):
    return [row for row in run["rows"] if row["rounds"] > 0]


def is_layer(row):
    """Whether it is a linear layer or a feed-forward network, which have tables of their own."""
    return "d_out" in row


def is_transformer(row):
    """Whether it is attention, a block or a model."""
    return "family" in row


def ratio_of(row, peer):
    """Time of the peer over ours with what it takes to mean something, or None if there is none that counts."""
    result = row["peers"].get(peer, {})
    if "ratio" not in result:
        return None
    again = row["ours_over_ours_again"]
    noise = max(abs(again["median"] - 1), again["mad"], result["ratio"]["mad"])
    return result["ratio"]["median"], noise


def ratio_cell(row, peer):
    result = row["peers"].get(peer, {})
    if result.get("is_wrong"):
        return "wrong"
    ratio = ratio_of(row, peer)
    if ratio is None:
        return "–"
    return f"{ratio[0]:.2f}×" + (" tie" if abs(ratio[0] - 1) <= ratio[1] else "")


def peers_in(run, rows):
    names = [peer["name"] for peer in run["peers"]]
    return [name for name in names if any(ratio_of(row, name) for row in rows)]


def peers_with_rows(run):
    return peers_in(run, measured(run))


def readable_time(seconds):
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def readable_bytes(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


# ---- the report as blocks ----
# ("heading", level, text), ("text", text), ("table", header, lines), ("figure", svg, heading)


def summary_blocks(run):
    rows = measured(run)
    blocks = [
        ("heading", 1, "halyard benchmark"),
        ("text", f"halyard {run['library']['version']} ({run['library']['isa']}), {run['threads']} threads, on "
                 f"{run['machine']['cpu']}, {run['date']}; {run['mode']} mode, {len(rows)} rows."),
    ]
    if run["interrupted"]:
        blocks.append(("text", "The run was interrupted; these are the rows measured before."))
    if run["busy_elsewhere"] > 0.05:
        blocks.append(("text", f"Other programs used {run['busy_elsewhere']:.0%} of the processors during the "
                               "run, which may have disturbed rows on all threads."))
    wrong = [row["name"] for row in run["rows"] if row["is_wrong"]]
    if wrong:
        blocks.append(("text", "WRONG RESULTS of halyard: " + ", ".join(wrong)))
    for row in run["rows"]:
        if row["failure"]:
            blocks.append(("text", f"FAILED: {row['name']}: {row['failure']}"))

    lines = []
    for peer in peers_with_rows(run):
        ratios = [ratio for ratio in (ratio_of(row, peer) for row in rows) if ratio]
        ahead = sum(value - 1 > noise for value, noise in ratios)
        behind = sum(1 - value > noise for value, noise in ratios)
        mean = math.exp(statistics.fmean(math.log(value) for value, _ in ratios))
        version = next(each["version"] for each in run["peers"] if each["name"] == peer)
        lines.append([f"{peer} {version}", len(ratios), ahead, len(ratios) - ahead - behind, behind, f"{mean:.2f}×"])
    if lines:
        blocks += [
            ("heading", 2, "Against each peer"),
            ("table", ["peer", "rows", "ahead", "tied", "behind", "geometric mean of time over ours"], lines),
        ]
    for peer in run["peers"]:
        if peer["missing"]:
            blocks.append(("text", f"No {peer['name']}: {peer['missing']}."))

    bars = [bar for bar in run["bars"] if bar["measured"]]
    if bars:
        missed = [bar for bar in bars if not bar["is_met"]]
        blocks += [
            ("heading", 2, "Numbers to reach"),
            ("text", f"{len(bars) - len(missed)} of {len(bars)} reached."),
            ("table", ["what", "row", "measured", "bound", ""],
             [[bar["text"].removesuffix(", " + bar["row"]), bar["row"], bar["value"], bar["bound"],
               "reached" if bar["is_met"] else "**missed**"] for bar in missed + [b for b in bars if b["is_met"]]]),
        ]

    behind = []
    for row in rows:
        for peer in peers_with_rows(run):
            ratio = ratio_of(row, peer)
            if ratio and 1 - ratio[0] > ratio[1]:
                behind.append((ratio[0], [row["name"], peer, f"{ratio[0]:.2f}×", row["peers"][peer]["note"]]))
    if behind:
        behind.sort(key=lambda each: each[0])
        blocks += [
            ("heading", 2, "Where we are behind"),
            ("table", ["row", "peer", "its time over ours", ""], [line for _, line in behind]),
        ]
    return blocks


def machine_blocks(run):
    machine, limits = run["machine"], run["limits"]
    blocks = [
        ("heading", 2, "Machine"),
        ("table", ["", ""], [
            ["processor", f"{machine['cpu']}, {machine['processors']} usable"],
            ["caches", ", ".join(f"{name} {readable_bytes(machine[name.lower()])}" for name in ("L1", "L2", "L3"))],
            ["memory", readable_bytes(machine["memory"])],
            ["system", machine["system"]],
            ["compiler of the benchmark", run["library"]["compiler"]],
            ["threads", f"{run['threads']}, not pinned"],
            ["noise of the run", f"{run['noise']:.1%} (ours against ours again, median over rows)"],
            ["timing loop", f"{run['loop_overhead_seconds'] * 1e9:.1f} ns per call, included in every time"],
        ]),
        ("heading", 2, "Limits of the machine"),
        ("text", f"GB/s of bytes read and written by the program; streams with {limits['isa']}, ordinary stores "
                 "unless said."),
    ]
    streams = list(dict.fromkeys(each["stream"] for each in limits["bandwidth"]))
    lines = {}
    for each in limits["bandwidth"]:
        level = f"{each['level']}, {each['threads']} thread{'s' if each['threads'] > 1 else ''}"
        lines.setdefault(level, [level])
        lines[level].append(f"{each['bytes_per_second'] / 1e9:.1f}")
    blocks.append(("table", ["level"] + streams, list(lines.values())))
    flops = [f"{each['isa']}, {each['threads']} thread{'s' if each['threads'] > 1 else ''}: "
             f"{each['flops_per_second'] / 1e9:.0f} GFLOP/s" for each in limits["flops"]]
    blocks.append(("text", "Peak multiply-add rate in f32: " + "; ".join(flops) + "."))
    return blocks


def sections_of(rows, name_of):
    sections = {}
    for row in rows:
        sections.setdefault(name_of(row), []).append(row)
    return sections


def section_of(row):
    place = "out of cache" if row["state"] == "cold" else "in cache"
    threads = "one thread" if row["threads"] == 1 else f"{row['threads']} threads"
    return f"{row['dtype']}, {row['rows']}×{row['d']}, {place}, {threads}"


def row_blocks(run):
    rows_of_run = [row for row in measured(run) if not is_layer(row) and not is_transformer(row)]
    if not rows_of_run:
        return []
    peers = peers_in(run, rows_of_run)
    blocks = [
        ("heading", 2, "Rows"),
        ("text", "Time: median over interleaved rounds, with the median absolute deviation. Of limit: the time of a "
                 "copy that moves the same bytes the same way on the same threads, over ours. Peers: their time over "
                 "ours in the same rounds, above 1 ours is faster; a tie is within the noise of the row."),
    ]
    for name, rows in sections_of(rows_of_run, section_of).items():
        lines = []
        for row in rows:
            seconds = row["seconds"]
            lines.append([row["kernel"], readable_time(seconds["median"]), f"±{seconds['mad'] / seconds['median']:.1%}",
                          f"{row['bytes_per_second'] / 1e9:.1f}", f"{row['elements_per_second'] / 1e9:.2f}",
                          f"{row['fraction_of_limit']['median']:.0%}"] + [ratio_cell(row, peer) for peer in peers])
        blocks += [("heading", 3, name),
                   ("table", ["kernel", "time", "spread", "GB/s", "Gelements/s", "of limit"] + peers, lines)]

    return blocks + note_blocks(rows_of_run, peers)


def note_blocks(rows, peers):
    notes = {}
    for row in rows:
        for peer in peers:
            note = row["peers"].get(peer, {}).get("note")
            if note:
                notes.setdefault(f"{peer} {note}", []).append(row["kernel"])
    return [("text", f"{note}: {', '.join(dict.fromkeys(kernels))}.") for note, kernels in notes.items()]


def layer_section_of(row):
    threads = "one thread" if row["threads"] == 1 else f"{row['threads']} threads"
    return f"{row['kernel']}, {row['dtype']}, {row['d']}→{row['d_out']}, {row['state']}, {threads}"


def layer_sections(run):
    sections = sections_of([row for row in measured(run) if is_layer(row)], layer_section_of)
    return {name: sorted(rows, key=lambda row: row["rows"]) for name, rows in sections.items()}


def place_of_weights(run, row):
    """Where matrices of this size are when their turn comes."""
    machine, turn = run["machine"], row["weight_set"]
    last = machine["l3"] or machine["l2"]
    level = "within" if turn <= last else "beyond"
    copies = round(turn / row["weight_bytes"])
    what = "The same matrices in every call" if copies == 1 else f"{copies} copies of the matrices in turn"
    return f"{what}: {readable_bytes(turn)}, {level} the last-level cache of {readable_bytes(last)}."


def layer_blocks(run):
    sections = layer_sections(run)
    if not sections:
        return []
    blocks = [
        ("heading", 2, "Linear layers and feed-forward networks"),
        ("text", "Of roofline: the time that the row cannot do without, over ours; that is the longer of reading the "
                 "packed matrices once and of as many multiply-adds as the products have, both on the same threads in "
                 "the row's own rounds. Peers: their time over ours."),
    ]
    for name, rows in sections.items():
        peers = peers_in(run, rows)
        lines = []
        for row in rows:
            seconds = row["seconds"]
            reads = row["read_seconds"]["median"] >= row["multiply_add_seconds"]["median"]
            lines.append([row["rows"], readable_time(seconds["median"]),
                          f"±{seconds['mad'] / seconds['median']:.1%}", f"{row['flops_per_second'] / 1e9:.0f}",
                          f"{row['weight_bytes_per_second'] / 1e9:.1f}", f"{row['fraction_of_limit']['median']:.0%}",
                          "reading" if reads else "arithmetic"] + [ratio_cell(row, peer) for peer in peers])
        blocks += [("heading", 3, name), ("text", place_of_weights(run, rows[0])),
                   ("table", ["rows", "time", "spread", "GFLOP/s", "weights GB/s", "of roofline", "bound by"] + peers,
                    lines)]
    every = [row for rows in sections.values() for row in rows]
    return blocks + note_blocks(every, peers_in(run, every))


FAMILIES = {"attention": "Attention", "block": "Transformer blocks", "model": "Whole models"}


def shape_of(row):
    if row["cached"] == 0:
        return f"prompt of {row['tokens']}"
    sequences = f"{row['sequences']} sequence{'s' if row['sequences'] > 1 else ''}"
    return f"decode, {sequences}, {row['cached']} cached"


def transformer_blocks(run):
    blocks = []
    for family, title in FAMILIES.items():
        rows = [row for row in measured(run) if row.get("family") == family]
        if not rows:
            continue
        blocks += [
            ("heading", 2, title),
            ("text", "Of roofline: the longer of reading as many bytes as the row reads (matrices, and the keys and "
                     "values that its queries see) and of making as many multiply-adds, both on the same threads in "
                     "the row's own rounds, over ours. Peers: their time over ours."),
        ]
        for kernel, same in sections_of(rows, lambda row: row["kernel"]).items():
            peers = peers_in(run, same)
            lines = []
            for row in same:
                seconds = row["seconds"]
                reads = row["read_seconds"]["median"] >= row["multiply_add_seconds"]["median"]
                lines.append([f"{shape_of(row)}, {row['dtype']}, {row['state']}", readable_time(seconds["median"]),
                              f"±{seconds['mad'] / seconds['median']:.1%}", f"{row['tokens_per_second']:.0f}",
                              f"{row['flops_per_second'] / 1e9:.0f}", f"{row['bytes_per_second'] / 1e9:.1f}",
                              f"{row['fraction_of_limit']['median']:.0%}", "reading" if reads else "arithmetic"] +
                             [ratio_cell(row, peer) for peer in peers])
            blocks += [("heading", 3, kernel),
                       ("table", ["row", "time", "spread", "tokens/s", "GFLOP/s", "GB/s", "of roofline", "bound by"] +
                        peers, lines)]
        blocks += resident_blocks(run, rows) + note_blocks(rows, peers_in(run, rows))
    return blocks


def resident_blocks(run, rows):
    """The memory that models take."""
    rows = [row for row in rows if "resident" in row]
    if not rows:
        return []
    peers = [peer for peer in peers_in(run, rows) if any("resident" in row["peers"].get(peer, {}) for row in rows)]
    lines = []
    for row in rows:
        taken = [row.get("resident")] + [row["peers"].get(peer, {}).get("resident") for peer in peers]
        lines.append([f"{shape_of(row)}, {row['dtype']}"] + [readable_bytes(each) if each else "–" for each in taken])
    return [("text", "How much larger a process becomes with the model, its cache and what a call needs:"),
            ("table", ["row", "halyard"] + peers, lines)]


# ---- figures ----


def bar_figure(plt, labels, series, xlabel, reference, as_ratios=False):
    """Horizontal bars: one group per label, one colour per series; values may be missing. Ratios stand left and right
    of the reference on a logarithmic axis."""
    height = 0.8 / len(series)
    start = reference if as_ratios else 0
    figure, axes = plt.subplots(figsize=(8, 1 + len(labels) * (0.12 + 0.14 * len(series))))
    for index, (name, values) in enumerate(series.items()):
        present = [(i + index * height, value) for i, value in enumerate(values) if value is not None]
        places, lengths = [place for place, _ in present], [value - start for _, value in present]
        axes.barh(places, lengths, height, left=start, label=name)
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(labels))], labels)
    axes.invert_yaxis()
    axes.axvline(reference, color="black", linewidth=0.8)
    axes.set_xlabel(xlabel)
    if as_ratios:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.grid(axis="x", linewidth=0.3)
    if len(series) > 1:
        axes.legend(loc="best")
    return svg_of(plt, figure)


def layer_figure(plt, run, rows):
    """Time per number of rows against the peers, and the fraction of the roofline."""
    figure, (times, fractions) = plt.subplots(1, 2, figsize=(8, 3.2))
    counts = [row["rows"] for row in rows]
    series = {"halyard": [row["seconds"]["median"] for row in rows]}
    for peer in peers_in(run, rows):
        series[peer] = [row["seconds"]["median"] * ratio_of(row, peer)[0] if ratio_of(row, peer) else math.nan
                        for row in rows]
    for name, values in series.items():
        times.plot(counts, [value * 1e3 for value in values], marker="o", markersize=3, label=name)
    times.plot(counts, [row["limit_seconds"]["median"] * 1e3 for row in rows], color="black", linewidth=0.8,
               linestyle="--", label="roofline")
    fractions.plot(counts, [100 * row["fraction_of_limit"]["median"] for row in rows], marker="o", markersize=3)
    fractions.axhline(100, color="black", linewidth=0.8)
    fractions.set_ylim(bottom=0)
    times.set_yscale("log")
    times.set_ylabel("ms")
    fractions.set_ylabel("% of the roofline")
    times.legend(loc="best", fontsize="small")
    for axes in (times, fractions):
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, counts)
        axes.set_xlabel("rows")
        axes.grid(linewidth=0.3)
    return svg_of(plt, figure)


def layer_figures(plt, run, most=8):
    """Of the sections with the most rows: the others are in the tables."""
    sections = [(name, rows) for name, rows in layer_sections(run).items() if len(rows) > 2]
    chosen = sorted(sections, key=lambda each: -len(each[1]))[:most]
    return [("figure", layer_figure(plt, run, rows), name) for name, rows in chosen]


def transformer_figures(plt, run):
    """Of each family the rows against their peers."""
    figures = []
    for family, title in FAMILIES.items():
        rows = [row for row in measured(run) if row.get("family") == family]
        series = {}
        for peer in peers_in(run, rows):
            values = [ratio_of(row, peer) for row in rows]
            series[peer] = [value[0] if value else None for value in values]
        if series:
            labels = [f"{row['kernel']} {row['dtype']}, {shape_of(row)}" for row in rows]
            figure = bar_figure(plt, labels, series, "time over ours (right of 1: ours is faster)", 1, True)
            figures.append(("figure", figure, f"Against the peers: {title.lower()}"))
    return figures


def svg_of(plt, figure):
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")
    plt.close(figure)
    return buffer.getvalue()[buffer.getvalue().index("<svg"):]


def figure_blocks(run):
    try:
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt
    except ImportError:
        return []
    layers = layer_figures(plt, run)
    others = [row for row in measured(run) if not is_layer(row) and not is_transformer(row)]
    sections = sections_of(others, section_of)
    transformers = transformer_figures(plt, run)
    if not sections:
        return layers + transformers
    name, rows = max(sections.items(), key=lambda each: len(each[1]))
    labels = [row["kernel"] for row in rows]
    fractions = {"of limit": [100 * row["fraction_of_limit"]["median"] for row in rows]}
    blocks = [("figure", bar_figure(plt, labels, fractions, "% of a copy that moves the same bytes the same way", 100),
               f"Fraction of the limit: {name}")]
    series = {}
    for peer in peers_in(run, rows):
        values = [ratio_of(row, peer) for row in rows]
        if any(values):
            series[peer] = [value[0] if value else None for value in values]
    if series:
        figure = bar_figure(plt, labels, series, "time over ours (right of 1: ours is faster)", 1, True)
        blocks.append(("figure", figure, f"Against the peers: {name}"))
    return blocks + layers + transformers


# ---- the two forms ----


def as_markdown(blocks):
    parts = []
    for kind, *content in blocks:
        if kind == "heading":
            parts.append("#" * content[0] + " " + content[1])
        elif kind == "text":
            parts.append(content[0])
        elif kind == "table":
            header, lines = content
            rule = ["---"] + ["---:"] * (len(header) - 1)
            parts.append("\n".join("| " + " | ".join(map(str, line)) + " |" for line in [header, rule] + lines))
    return "\n\n".join(parts) + "\n"


STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75em; margin: 1em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .6em 0; display: block; overflow-x: auto }
td { font-variant-numeric: tabular-nums }
th, td { padding: .15em .7em; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
th { border-bottom: 2px solid #999 }
figure { margin: 0 } svg { max-width: 100%; height: auto }
.ahead { color: #176c2c } .behind { color: #b3261e; font-weight: 600 }
"""


def html_cell(tag, value):
    text = str(value)
    css = ""
    if text == "**missed**" or text == "wrong":
        css = ' class="behind"'
    elif text == "reached":
        css = ' class="ahead"'
    elif text.endswith("×") and tag == "td":
        css = ' class="ahead"' if float(text[:-1]) > 1 else ' class="behind"'
    return f"<{tag}{css}>{html.escape(text.strip('*'))}</{tag}>"


def as_html(blocks):
    parts = []
    for kind, *content in blocks:
        if kind == "heading":
            parts.append(f"<h{content[0]}>{html.escape(content[1])}</h{content[0]}>")
        elif kind == "text":
            parts.append(f"<p>{html.escape(content[0])}</p>")
        elif kind == "table":
            header, lines = content
            rows = ["<tr>" + "".join(html_cell(tag, cell) for cell in line) + "</tr>"
                    for tag, line in [("th", header)] + [("td", line) for line in lines]]
            parts.append("<table>" + "\n".join(rows) + "</table>")
        else:
            parts.append(f"<h2>{html.escape(content[1])}</h2><figure>{content[0]}</figure>")
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><title>halyard benchmark</title>'
            f"<style>{STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n")


def main():
    parser = argparse.ArgumentParser(description="Writes report.md and report.html from the JSON of halyard-bench.")
    parser.add_argument("results", help="the file that halyard-bench --json wrote")
    parser.add_argument("--output", default=".", help="directory of the report (default: this one)")
    arguments = parser.parse_args()
    try:
        with open(arguments.results, encoding="utf-8") as file:
            run = json.load(file)
        if run.get("schema") != 1:
            raise ValueError("it is not of schema 1")
        rows = (summary_blocks(run) + figure_blocks(run) + row_blocks(run) + layer_blocks(run) +
                transformer_blocks(run) + machine_blocks(run))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"report.py: cannot use '{arguments.results}': {error}")
    os.makedirs(arguments.output, exist_ok=True)
    for name, text in (("report.md", as_markdown(rows)), ("report.html", as_html(rows))):
        with open(os.path.join(arguments.output, name), "w", encoding="utf-8") as file:
            file.write(text)
    print(os.path.join(arguments.output, "report.html"))


if __name__ == "__main__":
    main()
