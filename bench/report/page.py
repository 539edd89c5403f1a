"""The report as one HTML page that needs nothing else."""

import math
import os

import charts
import tables
from charts import escape
from run import threads_text

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


def columns(*parts):
    """Side by side where the page is wide."""
    return '<div class="columns">' + "\n".join(f"<div>{each}</div>" for each in parts if each) + "</div>"


LINKS = {
    "limits": "Limits", "behind": "Behind", "roofline": "Roofline", "peers": "Peers", "hot-cold": "Hot and cold",
    "noise": "Noise", "scaling": "Scaling", "accuracy": "Accuracy", "rows": "All rows", "machine": "Machine",
    "notes": "Notes", "reading": "How to read it"}


def head(run):
    alarms = [f'<p class="alarm">{escape(text)}</p>' for text in [*run.faults(), *run.doubts()]]
    links = "".join(f'<a href="#{name}">{text}</a>' for name, text in LINKS.items())
    return (f'<h1>halyard benchmark</h1><p class="soft">{escape(tables.headline(run))}</p>'
            f'<p class="verdict">{escape(run.verdict_text())}</p>{"".join(alarms)}<nav>{links}</nav>')


def limits_section(run):
    parts = [
        '<h2 id="limits">Fraction of the limit</h2>',
        '<p class="note">Each mark is a row; the line is its limit: '
        '<span class="key"><i class="mark circle copy"></i>a copy that moves the same bytes</span> '
        '<span class="key"><i class="mark circle reading"></i>reading matrices, keys and values</span> '
        '<span class="key"><i class="mark circle arithmetic"></i>multiply-adds</span>. In cache, a row is limited by '
        "arithmetic and by the call more than by the copy. Open a family for its rows, from the least.</p>"]
    for group, rows in run.groups().items():
        parts.append(f"<details><summary>{charts.bars([charts.limit_strip(group, rows)])}</summary>"
                     f"{charts.limit_bars(rows, MOST_BARS)}{left_out(rows, MOST_BARS)}</details>")
    return "\n".join(parts)


def behind_section(run):
    table = tables.behind(run, 20)
    parts = [f'<h2 id="behind">{escape(table.title)}</h2>']
    if table.lines:
        return "\n".join([*parts, note("Within: the ratio and its noise to both sides."), table_html(table)])
    if run.peers_of(run.rows):
        return f"{parts[0]}<p>None: no peer takes less time than ours by more than the noise of the row.</p>"
    return (f"{parts[0]}<p>No other library took part. <code>./run bench --peers all</code> installs them and measures "
            "beside them; <code>./run bench --list-peers</code> says which are here. The roofline and the fractions of the "
            "limits need none.</p>")


def roofline_section(run):
    groups = run.groups()
    wide, narrow = [charts.roofline(run, groups, MOST_POINTS, *size) for size in ((760, 500), (370, 400))]
    if not wide:
        return '<h2 id="roofline">Roofline</h2><p>No row on all threads has operations that are counted.</p>'
    return "\n".join([
        '<h2 id="roofline">Roofline</h2>',
        note(
            f"Every row on {threads_text(run.threads)}: how many operations it has for each byte of its tensors, and how "
            "many it does in a second. The lines are what this machine can do, measured in this run: reads from each "
            "level of memory, and multiply-adds of each instruction that a row may use, where bf16's are for products in "
            "bf16 alone. 8-bit integers are for rows in 8 bits with codes of 4 bits; on x86 without VNNI codes of 8 bits take "
            "two instructions. Operations of kernels without products are those of their formulas, an elementary function "
            "counted as ten. Point at a row for its name and its roof."),
        charts.group_legend(groups), f'<div class="wide-only">{wide}</div><div class="narrow-only">{narrow}</div>'])


def noise_section(run):
    return "\n".join([
        '<h2 id="noise">Noise</h2>',
        note("How far the kernel is from itself, measured twice in each row, and the median of each family. A "
             "difference below it says nothing."), charts.noise_strips(run.groups())])


def peers_section(run):
    families = tables.families(run)
    turned = [list(column) for column in zip(families.header, *families.lines)]  # a page is higher than wide
    if turned and families.lines:
        families = families._replace(header=["peer", *turned[0][1:]], lines=turned[1:])
    return "\n".join([
        '<h2 id="peers">Speed beside peers</h2>', f"<p>{escape(run.tally_text() or 'No other library took part.')}</p>",
        part(tables.peers(run)), part(families)])


def families_charts(run, palette):
    families = []
    for group, rows in run.compared_groups().items():
        names = run.peers_of(rows)
        if names:
            bars = charts.ratio_bars(run.worst(rows, MOST_BARS), names, palette)
            families.append(f"<h3>{escape(group)}</h3>{palette.legend(names)}{bars}{left_out(rows, MOST_BARS)}")
    if not families:
        return ""
    return note(
        "Each mark is a peer: its time over ours on a logarithmic scale, right of 1× ours is faster. The band round "
        "1× is the noise of the row; the bar goes from 1× to the fastest peer. The time is ours. Marks at an end of "
        "the scale are beyond it: the number beside them is the farthest.") + columns(*families)


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
    where = f"GB/s of each kernel on {threads_text(run.threads)}, for as many rows in both."
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


def notes_section(run):
    remarks = [f"<p>{escape(text)}</p>" for text in [*run.remarks(), tables.missing_text(run)] if text]
    tables_of_peers = [part(each) for each in (tables.stopped(run), tables.wrong(run), tables.ways(run))]
    return "\n".join(['<h2 id="notes">Notes</h2>', *remarks, *tables_of_peers])


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
        head(run),
        columns(limits_section(run), behind_section(run)),
        columns(roofline_section(run), peers_section(run)),
        families_charts(run, palette),
        columns(hot_cold_section(run), noise_section(run)),
        scaling_section(run, palette),
        part(tables.accuracy(run, accuracy_rows(run)), "h2", "accuracy", "rows"),
        rows_section(run),
        part(tables.machine(run), "h2", "machine"),
        part(tables.levels(run)),
        part(tables.resident(run)),
        notes_section(run), READING]
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><title>halyard benchmark</title>'
            f"<style>{charts.style()}{asset('page.css')}</style></head><body>\n" + "\n".join(sections) +
            f"\n<script>{asset('page.js')}</script></body></html>\n")
