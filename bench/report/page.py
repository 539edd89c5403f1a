"""The report as one HTML page that needs nothing else."""

import math
import os

import charts
import tables
from charts import escape
from run import ratio_text, threads_text

# A page of all rows of a full run would be too large to open: each part shows at most so many, the worst.
MOST_TABLE_ROWS, MOST_BARS, MOST_POINTS = 250, 40, 300
FOLDER = os.path.dirname(os.path.abspath(__file__))


def asset(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


# ---- tables ----


def heat(value):
    """The background of a cell that says how far ahead the library is."""
    strength = min(abs(math.log2(value)) / 2, 1) * 45
    colour = "var(--good)" if value > 1 else "var(--bad)"
    return f' style="background:color-mix(in srgb, {colour} {strength:.0f}%, transparent)"'


def cell_html(content, is_text):
    value, hint = getattr(content, "value", None), getattr(content, "hint", "")
    css = " ".join(filter(None, [getattr(content, "css", ""), "text" if is_text else ""]))
    attributes = f' class="{css}"' if css else ""
    attributes += heat(value) if css == "heat" and value else ""
    attributes += f' data-v="{value:.6g}"' if value is not None else ""
    attributes += f' title="{escape(hint)}"' if hint else ""
    inner = escape(content).replace("/", "/<wbr>") if is_text else escape(content)  # where a name may be broken
    return f"<td{attributes}>{inner}</td>"


def table_html(table, css="", identity="", line_data=None):
    """line_data: attributes of each line, for the filters. A table of class "rows" sorts at a click."""
    texts = {0, *table.texts}
    header = "".join(f'<th scope="col"{" class=text" if i in texts else ""}>' +
                     (f"<button>{escape(text)}</button>" if css else escape(text)) + "</th>"
                     for i, text in enumerate(table.header))
    lines = []
    for number, line in enumerate(table.lines):
        cells = "".join(cell_html(each, i in texts) for i, each in enumerate(line))
        lines.append(f"<tr{line_data[number] if line_data else ''}>{cells}</tr>")
    attributes = (f' class="{css}"' if css else "") + (f' id="{identity}"' if identity else "")
    body = "\n".join(lines)
    box = "rows-box" if identity else "scroll"
    return (
        f'<div class="{box}"><table{attributes}><thead><tr>{header}</tr></thead>\n<tbody>{body}</tbody></table></div>')


def part(table, level="h3", identity="", css=""):
    """The table with its title and note; nothing without lines."""
    if not table.lines and not identity:
        return ""
    title = f"<{level}{f' id={identity}' if identity else ''}>{escape(table.title)}</{level}>"
    return title + (note(table.note) + table_html(table, css) if table.lines else "<p>No row was measured for it.</p>")


def note(text):
    return f'<p class="note">{escape(text)}</p>' if text else ""


def left_out(rows, most):
    """A sentence on those beyond the most that are shown; empty without such."""
    return note(f"The worst {most} of {len(rows)} rows; bench.json has all.") if len(rows) > most else ""


# ---- sections ----


def tile(value, text, css=""):
    return f'<div class="tile"><b class="{css}">{value}</b><span>{escape(text)}</span></div>'


LINKS = {
    "peers": "Peers", "roofline": "Roofline", "families": "Families", "scaling": "Scaling", "hot-cold": "Hot and cold",
    "accuracy": "Accuracy", "rows": "All rows", "machine": "Machine", "reading": "How to read it"}


def summary(run):
    tally = run.tally()
    tiles = [tile(len(run.rows), "rows measured")]
    if tally["rows"]:
        tiles += [
            tile(tally["ahead"], f"of {tally['rows']} rows faster than at least two independent libraries", "good"),
            tile(tally["tied"], "tied with the fastest of them", "even"),
            tile(tally["behind"], "behind the fastest of them", "bad" if tally["behind"] else ""),
            tile(ratio_text(tally["mean"]), "time of the fastest over ours, geometric mean"),
            tile(f"{run.noise():.1%}", "noise of the ratios, median")]
    alarms = [f'<p class="alarm">{escape(text)}</p>' for text in [*run.faults(), *run.reservations()]]
    links = "".join(f'<a href="#{name}">{text}</a>' for name, text in LINKS.items())
    return (
        f'<h1>halyard benchmark</h1><p class="soft">{escape(tables.headline(run))}</p>'
        f'<div class="tiles">{"".join(tiles)}</div><p>{escape(run.tally_text())}</p>{"".join(alarms)}<nav>{links}</nav>'
    )


def peers_section(run):
    parts = ['<h2 id="peers">Peers</h2>', f"<p>{escape(tables.missing_text(run))}</p>"]
    if not run.peers_of(run.rows):
        parts.append(
            "<p><code>./run bench --peers all</code> installs other libraries and measures beside them; <code>./run bench "
            "--list-peers</code> says which are here, and docs/benchmarks.md where each is found. The roofline and the "
            "fractions of the limits below need none.</p>")
    families = tables.families(run)
    turned = [list(column) for column in zip(families.header, *families.lines)]  # a page is higher than wide
    if turned and families.lines:
        families = families._replace(header=["peer", *turned[0][1:]], lines=turned[1:])
    parts += [part(tables.peers(run)), part(tables.ways(run)), part(families)]
    parts += [part(tables.stopped(run)), part(tables.wrong(run)), part(tables.behind(run, 20))]
    return "\n".join(parts)


def roofline_section(run):
    groups = run.groups()
    wide, narrow = [charts.roofline(run, groups, MOST_POINTS, *size) for size in ((1240, 560), (370, 400))]
    parts = ['<h2 id="roofline">Roofline</h2>']
    if wide:
        parts += [
            f'<p class="note">Every row on {threads_text(run.threads)}: how many operations it has for each byte of '
            "its tensors, and how many it does in a second. The lines are what this machine can do, measured in this "
            "run: reads from each level of memory, and multiply-adds. Operations of kernels without products are those "
            "of their formulas, an elementary function counted as ten. Point at a row for its name.</p>",
            charts.group_legend(groups), f'<div class="wide-only">{wide}</div><div class="narrow-only">{narrow}</div>']
    parts.append(
        "<h3>Fraction of the limit, each family's rows from the least</h3>"
        '<p class="note">The line is the limit, measured in the rounds of the row: '
        '<span class="key"><i class="fill copy"></i>a copy that moves the same bytes</span> '
        '<span class="key"><i class="fill reading"></i>reading matrices, keys and values</span> '
        '<span class="key"><i class="fill arithmetic"></i>multiply-adds</span>. In cache, a row is limited by '
        "arithmetic and by the call more than by the copy. A bar that ends at the right with a number goes on.</p>")
    is_open = "" if run.peers_of(run.rows) else " open"
    for group, rows in groups.items():
        low, high = min(row.fraction for row in rows), max(row.fraction for row in rows)
        parts.append(f"<details{is_open}><summary>{escape(group)}: {len(rows)} rows, {low:.0%} to {high:.0%}</summary>"
                     f"{charts.limit_bars(rows, MOST_BARS)}{left_out(rows, MOST_BARS)}</details>")
    return "\n".join(parts)


def families_section(run, palette):
    parts = [
        '<h2 id="families">Families against peers</h2>',
        note(
            "Each mark is a peer: its time over ours on a logarithmic scale, right of 1× ours is faster. The band round "
            "1× is the noise of the row; the bar goes from 1× to the fastest peer. The time is ours. Marks at an end of "
            "the scale are beyond it: the number beside them is the farthest.")]
    for group, rows in run.compared_groups().items():
        names = run.peers_of(rows)
        if names:
            bars = charts.ratio_bars(run.worst(rows, MOST_BARS), names, palette)
            parts += [f"<h3>{escape(group)}</h3>", palette.legend(names), bars, left_out(rows, MOST_BARS)]
    return "\n".join(parts) if len(parts) > 2 else f"{parts[0]}<p>No peer took part.</p>"


def scaling_section(run, palette):
    figures = charts.scaling_figures(run, palette)
    pairs = charts.thread_pairs(run)
    parts = ['<h2 id="scaling">Scaling with rows, width and threads</h2>']
    if not figures and not pairs:
        return f"{parts[0]}<p>No kernel was measured at three sizes or on two numbers of threads.</p>"
    parts += [
        note("Rates at growing sizes; the dashed line is the limit, measured beside each row."),
        f'<div class="plots">{"".join(figures)}</div>']
    if pairs:
        parts += [
            f"<h3>From one thread to {run.threads}</h3>",
            note(f"Time on one thread over time on {run.threads}; the line is {run.threads}×."),
            charts.thread_bars(run,
                               sorted(pairs, key=lambda each: each[0].seconds / each[1].seconds)[:MOST_BARS]),
            left_out(pairs, MOST_BARS)]
    return "\n".join(parts)


def hot_cold_section(run):
    pairs = charts.hot_and_cold(run)
    parts = ['<h2 id="hot-cold">In cache and out of cache</h2>']
    if not pairs:
        return f"{parts[0]}<p>No kernel was measured in both.</p>"
    where = f"GB/s of each kernel on {threads_text(run.threads)}, at the same shape or the largest of each state."
    bars = charts.hot_cold_bars(sorted(pairs, key=lambda each: each[2].fraction)[:MOST_BARS])
    return "\n".join([*parts, note(where), bars, left_out(pairs, MOST_BARS)])


def accuracy_rows(run):
    """One row for each kernel in f32: the one with most elements."""
    largest = {}
    for row in run.rows:
        other = largest.get(row["kernel"])
        if "ulps" in row.data and row["dtype"] == "f32":
            if other is None or row["rows"] * row["d"] > other["rows"] * other["d"]:
                largest[row["kernel"]] = row
    return run.worst(list(largest.values()), MOST_BARS)


def rows_section(run):
    names = run.peers_of(run.rows)
    chosen = run.worst(run.rows, MOST_TABLE_ROWS)
    data = []
    for row in chosen:
        verdicts = " ".join(sorted({row.peer(name).get("verdict", "") for name in names} - {""}))
        keys = {"group": row["group"].replace(" ", "-"), "verdict": verdicts}
        keys.update({key: row[key] for key in ("dtype", "state", "threads")})
        data.append("".join(f' data-{key}="{escape(value)}"' for key, value in keys.items()))

    filters = ('<form class="filters"><input name="text" type="search" placeholder="words of the name, such as rms f32 hot" '
               'aria-label="words of the name"></form>')  # page.js adds the choices
    table = table_html(tables.rows("All rows", chosen, names), "rows", "all-rows", data)
    return (f'<section><h2 id="rows">All rows</h2>{note(tables.ROWS_NOTE)}' +
            note("Click a heading to sort; point at a dash, or at a standing, for the reason.") +
            f'{filters}<p class="note" id="shown"></p>{table}' + left_out(run.rows, MOST_TABLE_ROWS) + "</section>")


READING = """
<h2 id="reading">How to read it</h2>
<p>A row is a kernel at one type, shape, state and number of threads. <b>Hot</b> rows work on the same tensors in every
call; <b>cold</b> rows go round copies that together exceed the last-level cache.</p>
<p>Each row is measured in rounds. In a round stand, in an order that changes, the kernel, what limits it, every peer,
and the kernel once more. Ratios are taken within a round and reported as the median over the rounds, so that a slow
phase of the machine meets both sides.</p>
<p><b>Noise</b> is how far a ratio must be from 1 to mean anything: the greatest of the distance of ours from ours
again, its spread, and the spread of the ratio (median absolute deviations, times 1.48). A ratio nearer to 1 than that,
or than 1&nbsp;%, is a <b>tie</b>.</p>
<p><b>What counts.</b> A row counts where at least two independent libraries have a time: PyTorch eager and
torch.compile are one library. Rows under 2&nbsp;µs count only if every peer is called from C; ratios far beyond a peer's
other rows of the kernel (‡) do not count.</p>
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
        roofline_section(run),
        families_section(run, palette),
        scaling_section(run, palette),
        hot_cold_section(run),
        part(tables.accuracy(run, accuracy_rows(run)), "h2", "accuracy", "rows"),
        rows_section(run),
        part(tables.machine(run), "h2", "machine"),
        part(tables.levels(run)),
        part(tables.resident(run)), READING]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><title>halyard benchmark</title>'
            f"<style>{charts.style()}{asset('page.css')}</style></head><body>\n" + "\n".join(sections) +
            f"\n<script>{asset('page.js')}</script></body></html>\n")
