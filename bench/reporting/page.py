"""The report as one HTML page that needs nothing else."""

import os

from . import charts
from .charts import escape
from .run import bytes_text, geometric_mean, ratio_text, significant, threads_text, time_text, ulp_text

# A page of all rows of a full run would be too large to open: each part shows at most so many, the worst.
MOST_TABLE_ROWS, MOST_BARS, MOST_POINTS = 250, 40, 300
FOLDER = os.path.dirname(os.path.abspath(__file__))


def asset(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


# ---- tables ----


class Cell(str):
    """HTML of a cell; any other string is text."""


def cell(content, value=None, css=""):
    data = f' data-v="{value:.6g}"' if value is not None else ""
    return Cell(f'<td{f" class={chr(34)}{css}{chr(34)}" if css else ""}{data}>{content}</td>')


def line_of(cells, data=""):
    return f"<tr{data}>" + "".join(each if isinstance(each, Cell) else cell(escape(each)) for each in cells) + "</tr>"


def table(header, lines, css="", identity=""):
    """header: texts, or (text, "number"); lines: made by line_of, or cells and values."""

    def heading(entry):
        text, kind = entry if isinstance(entry, tuple) else (entry, "text")
        inner = f"<button>{escape(text)}</button>" if "rows" in css else escape(text)
        return f'<th scope="col" data-kind="{kind}">{inner}</th>'

    body = "\n".join(line if isinstance(line, str) else line_of(line) for line in lines)
    attributes = (f' class="{css}"' if css else "") + (f' id="{identity}"' if identity else "")
    return f'<table{attributes}><thead><tr>{"".join(map(heading, header))}</tr></thead>\n<tbody>{body}</tbody></table>'


def scroll(content):
    return f'<div class="scroll">{content}</div>'


def verdict_css(verdict):
    return {"ahead": "good", "tie": "even", "behind": "bad"}.get(verdict, "")


def ratio_cell(row, peer):
    result = row.peer(peer)
    if result.get("is_wrong"):
        return cell("wrong", None, "bad")
    ratio = row.ratio(peer)
    if ratio is None:
        return Cell(f'<td title="{escape(result.get("reason", ""))}">–</td>')
    tie = " tie" if result["verdict"] == "tie" else ""
    return cell(f"{ratio_text(ratio)}{tie}", ratio, verdict_css(result["verdict"]))


def heat(ratio):
    """A cell whose background says how far ahead the library is."""
    if ratio is None:
        return cell("–")
    strength = min(abs(charts.math.log2(ratio)) / 2, 1) * 55
    colour = "var(--good)" if ratio > 1 else "var(--bad)"
    return Cell(
        f'<td class="heat" data-v="{ratio:.4g}" style="background:color-mix(in srgb, {colour} {strength:.0f}%, '
        f'transparent)">{ratio_text(ratio)}</td>'
    )


# ---- sections ----


def tile(value, text, css=""):
    return f'<div class="tile"><b class="{css}">{value}</b><span>{escape(text)}</span></div>'


def left_out(rows, most):
    """A sentence on those beyond the most that are shown; empty without such."""
    if len(rows) <= most:
        return ""
    return f'<p class="note">The worst {most} of {len(rows)} rows; bench.json has all.</p>'


def summary(run):
    fastest = run.against_fastest()
    machine = run.machine
    parts = [
        "<h1>halyard benchmark</h1>",
        f'<p class="soft">halyard {escape(run.library["version"])} ({escape(run.library["isa"])}), '
        f'{threads_text(run.threads)} on {escape(machine["cpu"])}, {escape(run.data["date"])}; '
        f"{escape(run.mode)} mode, {len(run.rows)} rows.</p>",
    ]
    tiles = [tile(len(run.rows), "rows measured")]
    if fastest["rows"]:
        tiles += [
            tile(fastest["ahead"], f"of {fastest['rows']} rows faster than every peer", "good"),
            tile(fastest["tied"], "tied with the fastest peer", "even"),
            tile(fastest["behind"], "behind the fastest peer", "bad" if fastest["behind"] else ""),
            tile(ratio_text(fastest["mean"]), "time of the fastest peer over ours, geometric mean"),
        ]
    tiles.append(tile(f"{run.data['noise']:.1%}", "noise: ours against ours again, median over rows"))
    parts.append(f'<div class="tiles">{"".join(tiles)}</div>')
    parts += alarms(run)
    parts.append(
        "<nav>"
        + "".join(
            f'<a href="#{name}">{text}</a>'
            for name, text in (
                ("peers", "Peers"),
                ("behind", "Worst rows"),
                ("roofline", "Roofline"),
                ("families", "Families"),
                ("scaling", "Scaling"),
                ("hot-cold", "Hot and cold"),
                ("accuracy", "Accuracy"),
                ("rows", "All rows"),
                ("machine", "Machine"),
                ("reading", "How to read it"),
            )
        )
        + "</nav>"
    )
    return "\n".join(parts)


def alarms(run):
    return [f'<p class="alarm">{escape(text)}</p>' for text in [*run.reservations(), *run.faults()]]


def peers_section(run):
    parts = [
        '<h2 id="peers">Against each peer</h2>',
        '<p class="note">Ahead, tied, behind: rows where ours takes less time, where the difference is within the '
        "noise of the row, and where the peer takes less. Wrong: rows where its result missed the tolerance, so that "
        "its time does not count.</p>",
    ]
    lines = []
    for name in run.peers:
        tally = run.tally(name)
        if not tally["rows"] and not tally["wrong"]:
            continue
        share = "".join(
            f'<i class="{each}" style="width:{100 * tally[each] / max(tally["rows"], 1):.1f}%"></i>'
            for each in ("ahead", "tied", "behind")
        )
        version = run.versions[name]
        lines.append(
            [
                cell(f'<b>{escape(name)}</b> <span class="soft version">{escape(version[:44])}</span>'),
                cell(f"<b>{ratio_text(tally['mean'])}</b>"),
                cell(f'<span class="share">{share}</span>'),
                tally["rows"],
                cell(tally["ahead"], css="good"),
                tally["tied"],
                cell(tally["behind"], css="bad" if tally["behind"] else ""),
                cell(tally["wrong"], css="bad" if tally["wrong"] else ""),
            ]
        )
    if lines:
        parts.append(
            scroll(table(["peer", "mean of its time over ours", "", "rows", "ahead", "tied", "behind", "wrong"], lines))
        )
    groups = run.groups()
    peers = run.peers_of(run.rows)
    lines = []
    for group, rows in groups.items():
        means = []
        for peer in peers:
            ratios = [row.ratio(peer) for row in rows if row.ratio(peer)]
            means.append(heat(geometric_mean(ratios)))
        lines.append([f"{group} ({len(rows)})", *means])
    if peers:
        parts += [
            "<h3>By family: geometric mean of the peer's time over ours</h3>",
            scroll(table(["family (rows)", *peers], lines)),
        ]
    if run.missing:
        parts.append(
            '<p class="note">Not here: '
            + "; ".join(f"<b>{escape(name)}</b> ({escape(reason)})" for name, reason in run.missing)
            + ".</p>"
        )
    stopped = run.stopped()
    if stopped:
        parts += [
            "<h3>Peers that stopped working in a row</h3>",
            scroll(
                table(
                    ["row", "peer", "what happened"],
                    [[row["name"], peer, cell(escape(reason), css="text")] for row, peer, reason in stopped],
                )
            ),
        ]
    wrong = run.wrong()
    if wrong:
        parts += [
            "<h3>Wrong results of peers</h3>",
            '<p class="note">Errors relative to the largest value of the same row of the result; beyond the tolerance '
            "a time does not count.</p>",
            scroll(
                table(
                    ["row", "peer", "error", "tolerance"],
                    [
                        [row["name"], peer, error_text(row.peer(peer).get("error")), f"{row['tolerance']:.1e}"]
                        for row, peer in wrong
                    ],
                )
            ),
        ]
    return "\n".join(parts)


def error_text(error):
    return "not a number" if error is None else f"{error:.1e}"


def behind_section(run, most=20):
    behind = run.behind()
    parts = ['<h2 id="behind">Where a peer is faster</h2>']
    if not behind:
        return parts[0] + "<p>In no row, beyond the noise.</p>"
    lines = [
        [
            cell(escape(row["name"]), css="left"),
            cell(ratio_text(ratio), ratio, "bad"),
            peer,
            time_text(row.seconds),
            row.fraction_text,
            f"{row.peer(peer)['noise']:.1%}",
            cell(escape(row.peer(peer).get("note", "")), css="text"),
        ]
        for ratio, row, peer in behind[:most]
    ]
    parts.append(
        scroll(table(["row", "its time over ours", "peer", "our time", "of our limit", "noise", "note"], lines))
    )
    if len(behind) > most:
        parts.append(f'<p class="note">And {len(behind) - most} more, in the table of all rows.</p>')
    return "\n".join(parts)


def bars_section(run):
    bars = [bar for bar in run.bars if bar["measured"]]
    if not bars:
        return ""
    missed = [bar for bar in bars if not bar["is_met"]]
    lines = [
        [
            cell(escape(bar["text"].removesuffix(", " + bar["row"])), css="text"),
            cell("reached" if bar["is_met"] else "missed", css="good" if bar["is_met"] else "bad"),
            bar["value"],
            bar["bound"],
            cell(escape(bar["row"]), css="left"),
        ]
        for bar in missed + [bar for bar in bars if bar["is_met"]]
    ]
    return f"<h2>Numbers to reach</h2><p>{len(bars) - len(missed)} of {len(bars)} reached.</p>" + scroll(
        table(["what", "", "measured", "bound", "row"], lines)
    )


def roofline_section(run):
    groups = run.groups()
    wide, narrow = [
        charts.roofline(run, groups, MOST_POINTS, *size) for size in ((1240, 560), (370, 400))
    ]
    parts = ['<h2 id="roofline">Roofline</h2>']
    if wide:
        parts += [
            f'<p class="note">Every row on {threads_text(run.threads)}: how many operations it has for each byte of '
            "its tensors, and how many it does in a second. The lines are what this machine can do, measured in this "
            "run: reads from each level of memory, and multiply-adds. Operations of kernels without products are those "
            "of their formulas, an elementary function counted as ten. Point at a row for its name.</p>",
            charts.group_legend(groups),
            f'<div class="wide-only">{wide}</div>',
            f'<div class="narrow-only">{narrow}</div>',
        ]
    parts.append(
        "<h3>Fraction of the limit, each family's rows from the least</h3>"
        '<p class="note">The line is the limit, measured in the rounds of the row: '
        '<span class="key"><i class="mark" style="background:#1b9e9e"></i>a copy that moves the same bytes</span> '
        '<span class="key"><i class="mark" style="background:var(--ours)"></i>reading matrices, keys and values</span> '
        '<span class="key"><i class="mark" style="background:#7b4fd0"></i>multiply-adds</span>. In cache, a row is '
        "limited by arithmetic and by the call more than by the copy.</p>"
    )
    for group, rows in groups.items():
        parts += [
            f"<details><summary>{escape(group)}: {len(rows)} rows, {min(row.fraction for row in rows):.0%} to "
            f"{max(row.fraction for row in rows):.0%}</summary>{charts.limit_bars(rows, MOST_BARS)}"
            f"{left_out(rows, MOST_BARS)}</details>"
        ]
    return "\n".join(parts)


def families_section(run, palette):
    parts = [
        '<h2 id="families">Families against peers</h2>',
        '<p class="note">Each mark is a peer: its time over ours on a logarithmic scale, right of 1× ours is faster. '
        "The band round 1× is the noise of the row; the bar goes from 1× to the fastest peer. The time is ours.</p>",
    ]
    for group, rows in run.groups().items():
        peers = run.peers_of(rows)
        if not peers:
            continue
        bars = charts.ratio_bars(run.worst(rows, MOST_BARS), peers, palette)
        parts += [f"<h3>{escape(group)}</h3>", palette.legend(peers), bars, left_out(rows, MOST_BARS)]
    return "\n".join(parts)


def scaling_section(run, palette):
    figures = charts.scaling_figures(run, palette)
    pairs = charts.thread_pairs(run)
    if not figures and not pairs:
        return '<h2 id="scaling">Scaling</h2><p>No kernel was measured at three sizes or on two numbers of threads.</p>'
    parts = [
        '<h2 id="scaling">Scaling with rows, width and threads</h2>',
        '<p class="note">Rates at growing sizes; the dashed line is the limit, measured beside each row.</p>',
        f'<div class="plots">{"".join(figures)}</div>',
    ]
    if pairs:
        parts += [
            f"<h3>From one thread to {run.threads}</h3>",
            f'<p class="note">Time on one thread over time on {run.threads}; the line is {run.threads}×.</p>',
            charts.thread_bars(run, sorted(pairs, key=lambda each: each[0].seconds / each[1].seconds)[:MOST_BARS]),
            left_out(pairs, MOST_BARS),
        ]
    return "\n".join(parts)


def hot_cold_section(run):
    pairs = charts.hot_and_cold(run)
    parts = ['<h2 id="hot-cold">In cache and out of cache</h2>']
    if not pairs:
        return parts[0] + "<p>No kernel was measured in both.</p>"
    parts += [
        f'<p class="note">GB/s of each kernel on {threads_text(run.threads)}, at the same shape or the largest of each '
        "state.</p>",
        charts.hot_cold_bars(sorted(pairs, key=lambda each: each[2].fraction)[:MOST_BARS]),
        left_out(pairs, MOST_BARS),
    ]
    return "\n".join(parts)


def accuracy_section(run, palette):
    rows = [row for row in run.rows if "ulps" in row.data and row["dtype"] == "f32"]
    parts = ['<h2 id="accuracy">Accuracy beside speed</h2>']
    if not rows:
        return parts[0] + "<p>No row was measured whose errors are counted in units in the last place.</p>"
    latest = {}
    for row in rows:  # one row for each kernel: the one with most elements
        kernel = row["kernel"]
        if kernel not in latest or row["rows"] * row["d"] > latest[kernel]["rows"] * latest[kernel]["d"]:
            latest[kernel] = row
    rows = run.worst(list(latest.values()), MOST_BARS)
    peers = [name for name in run.peers if name not in run.own_peers and any("ulps" in row.peer(name) for row in rows)]
    parts += [
        '<p class="note">The largest error on the data of the row against float64, in units in the last place of the '
        "exact f32 result (ULP), and beside it the time over ours. Where a formula cancels, as a LayerNorm does near "
        "its mean, small results have large errors whoever computes them. A wrong result has no time.</p>",
        palette.legend(peers, ours="halyard"),
        f'<div class="wide-only">{charts.accuracy_plot(run, palette, rows, 1240, 420)}</div>',
        f'<div class="narrow-only">{charts.accuracy_plot(run, palette, rows, 370, 340)}</div>',
    ]
    lines = []
    for row in rows:
        cells = [cell(escape(row_title(row)), css="left"), cell(ulp_text(row["ulps"]), row["ulps"])]
        for peer in peers:
            result = row.peer(peer)
            if "ulps" not in result:
                cells.append(cell("–"))
                continue
            worse = result["ulps"] is None or result["ulps"] > 4 * max(row["ulps"], 1)
            time = "wrong" if result["is_wrong"] else ratio_text(row.ratio(peer))
            cells.append(
                cell(
                    f'<span class="{"bad" if worse else ""}">{ulp_text(result["ulps"])}</span>'
                    f' <span class="soft">{time}</span>',
                    result["ulps"],
                )
            )
        lines.append(cells)
    parts.append(scroll(table(["row", ("halyard", "number"), *[(peer, "number") for peer in peers]], lines, "rows")))
    return "\n".join(parts)


def row_title(row):
    return f"{row['kernel']} {row.shape} {row['state']}"


def rows_section(run):
    peers = run.peers_of(run.rows)
    header = [
        "row",
        ("time", "number"),
        ("± MAD", "number"),
        ("samples", "number"),
        ("noise", "number"),
        ("GB/s", "number"),
        ("GFLOP/s", "number"),
        ("of limit", "number"),
        "bound by",
        "isa",
        *[(peer, "number") for peer in peers],
    ]
    lines = []
    for row in run.worst(run.rows, MOST_TABLE_ROWS):
        rate = row["flops"] / row.seconds / 1e9 if row.has_roofline else None
        verdicts = sorted({row.peer(peer).get("verdict", "") for peer in peers} - {""})
        cells = [
            cell(escape(row["name"])),
            cell(time_text(row.seconds), row.seconds),
            cell(f"{row.spread:.1%}", row.spread),
            cell(row["rounds"], row["rounds"]),
            cell(f"{row['noise']:.1%}", row["noise"]),
            cell(significant(row.bytes_per_second / 1e9), row.bytes_per_second),
            cell("–" if rate is None else significant(rate), rate),
            cell(row.fraction_text, row.fraction),
            row.bound_by,
            row["isa"],
            *[ratio_cell(row, peer) for peer in peers],
        ]
        data = (
            f' data-group="{escape(row["group"].replace(" ", "-"))}" data-dtype="{escape(row["dtype"])}" '
            f'data-state="{escape(row["state"])}" '
            f'data-threads="{escape(row["threads"])}" data-verdict="{escape(" ".join(verdicts))}"'
        )
        lines.append(line_of(cells, data))

    def select(name, text, values):
        options = "".join(f'<option value="{escape(value)}">{escape(shown)}</option>' for value, shown in values)
        return f'<select name="{name}" aria-label="{text}"><option value="">{text}</option>{options}</select>'

    def values_of(key):
        return [(str(value), str(value)) for value in sorted({row[key] for row in run.rows}, key=str)]

    filters = (
        '<form class="filters"><input name="text" type="search" placeholder="words of the name, such as rms f32 hot" '
        'aria-label="words of the name">'
        + select("group", "every family", [(group.replace(" ", "-"), group) for group in run.groups()])
        + select("dtype", "every type", values_of("dtype"))
        + select("state", "hot and cold", values_of("state"))
        + select("threads", "any threads", values_of("threads"))
        + select(
            "verdict",
            "any verdict",
            [("behind", "a peer is faster"), ("tie", "tied with a peer"), ("ahead", "ahead of a peer")],
        )
        + "</form>"
    )
    return (
        '<section class="wide-page"><h2 id="rows">All rows</h2><p class="note">Click a heading to sort. Peers: their time over ours; '
        "point at a dash for the reason. Threads are not pinned.</p>"
        + filters
        + '<p class="note" id="shown"></p><div class="rows-box">'
        + table(header, lines, "rows", "all-rows")
        + "</div>"
        + left_out(run.rows, MOST_TABLE_ROWS)
        + "</section>"
    )


def machine_section(run):
    machine = run.machine
    caches = ", ".join(f"{name} {bytes_text(machine[name.lower()])}" for name in ("L1", "L2", "L3"))
    flops = "; ".join(
        f"{each['isa']}, {threads_text(each['threads'])}: {each['flops_per_second'] / 1e9:.0f} GFLOP/s"
        for each in run.limits["flops"]
    )
    facts = [
        ["processor", f"{machine['cpu']}, {machine['processors']} usable"],
        ["caches", caches],
        ["memory", bytes_text(machine["memory"])],
        ["system", machine["system"]],
        ["halyard", f"{run.library['version']}, {run.library['isa']}"],
        ["compiler of the benchmark", run.library["compiler"]],
        ["threads", f"{run.threads}, {'pinned' if run.data['pinned'] else 'not pinned'}"],
        ["peak of multiply-adds, f32", flops],
        ["timing loop", f"{run.data['loop_overhead_seconds'] * 1e9:.1f} ns per call, included in every time"],
        ["used by other programs meanwhile", f"{run.data['busy_elsewhere']:.1%} of the processors"],
    ]
    facts += [[name, run.versions[name]] for name in run.peers if name not in run.own_peers]
    header, lines = charts.level_table(run)
    return (
        '<h2 id="machine">Machine and versions</h2>'
        + scroll(table(["", ""], [[name, cell(escape(value), css="text")] for name, value in facts]))
        + "<h3>Limits of the machine</h3>"
        f'<p class="note">GB/s of bytes read and written by the program; streams with {escape(run.limits["isa"])}, '
        "ordinary stores unless said.</p>" + scroll(table(header, lines))
    )


READING = """
<h2 id="reading">How to read it</h2>
<p>A row is a kernel at one type, shape, state and number of threads. <b>Hot</b> rows work on the same tensors in every
call;
<b>cold</b> rows go round copies that together exceed the last-level cache.</p>
<p>Each row is measured in rounds. In a round stand, in an order that changes, the kernel, what limits it, every peer,
and the kernel once more. Ratios are taken within a round and reported as the median over the rounds, so that a slow
phase of the machine meets both sides.</p>
<p><b>Noise</b> is how far a ratio must be from 1 to mean anything: the greatest of the distance of ours from ours
again, its spread, and the spread of the ratio (median absolute deviations, times 1.48). A ratio nearer to 1 than that,
or than 1&nbsp;%, is a <b>tie</b>.</p>
<p><b>Of limit</b> is the time of what the row cannot do without over ours: a copy of as many bytes, or for products
the longer of reading matrices, keys and values and of as many multiply-adds, measured on the same threads in the same
rounds.</p>
<p>Before a contender is timed, its result is compared with a float64 reference. A wrong one is shown as wrong, without
a time.</p>
"""


def page(run):
    palette = charts.Palette(run.peers)
    sections = [
        summary(run),
        peers_section(run),
        behind_section(run),
        bars_section(run),
        roofline_section(run),
        families_section(run, palette),
        scaling_section(run, palette),
        hot_cold_section(run),
        accuracy_section(run, palette),
        rows_section(run),
        machine_section(run),
        READING,
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>halyard benchmark</title>'
        f"<style>{asset('page.css')}</style></head><body>\n"
        + "\n".join(sections)
        + f"\n<script>{asset('page.js')}</script></body></html>\n"
    )
