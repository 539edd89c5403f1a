"""The tables of a report, and how they look as text and as Markdown; page.py makes HTML of the same."""

import textwrap
from typing import NamedTuple

from run import bytes_text, rate_unit, ratio_text, threads_text, time_text, ulp_text


class cell(str):
    """Text of a cell; on the page also a value to sort by, a class and an explanation."""

    value, css, hint = None, "", ""

    def __new__(cls, text, value=None, css="", hint=""):
        made = super().__new__(cls, text)
        made.value, made.css, made.hint = value, css, hint
        return made


class Table(NamedTuple):
    title: str
    note: str
    header: list
    lines: list
    texts: tuple = ()  # columns that are text beside the first: to the left


GOOD, EVEN, BAD = "good", "even", "bad"
CSS = {"ahead": GOOD, "tie": EVEN, "behind": BAD}


def ratio_cell(row, name):
    """A peer's time over ours."""
    result, ratio = row.peer(name), row.ratio(name)
    if result.get("is_wrong"):
        return cell("wrong", css=BAD)
    if ratio is None:
        return cell("–", hint=result.get("reason", ""))
    if name in row.abnormal:
        return cell(f"{ratio_text(ratio)}‡", ratio, hint="abnormal, and not counted")
    tie = " tie" if result["verdict"] == "tie" else ""
    return cell(ratio_text(ratio) + tie, ratio, CSS[result["verdict"]], result.get("note", ""))


def standing_cell(row):
    """How the row stands against the fastest peer, if it counts."""
    if row.fastest is None:
        return cell("–")
    name, ratio, verdict = row.fastest
    if row.is_small:
        return cell("under 2 µs", css="soft", hint="not counted: its peers are called from Python")
    if not row.counts:
        return cell("not counted", css="soft", hint=f"only one other library: {row.libraries()[0]}")
    return cell(verdict, css=CSS[verdict], hint=f"{name}: {ratio_text(ratio)}")


def headline(run):
    return (
        f"halyard {run.library['version']} ({run.library['isa']}), {threads_text(run.threads)} on {run.machine['cpu']}, "
        f"{run.data['date']}; {len(run.rows)} rows ({run.data['work_list']}).")


def peers(run):
    lines = []
    for name in run.peers:
        tally = run.tally_of(name)
        if tally["rows"] or tally["wrong"]:
            lines.append([
                f"{name} {run.about[name].version.partition(' (')[0]}",
                cell(ratio_text(tally["mean"]), tally["mean"]), tally["rows"],
                cell(tally["ahead"], css=GOOD), tally["tied"],
                *[cell(tally[each], css=BAD if tally[each] else "") for each in ("behind", "wrong")]])
    return Table(
        "Against each peer",
        "Ahead, tied, behind: rows where ours takes less time, where the difference is within the noise of the row, and "
        "where the peer takes less. Wrong: rows where its result missed the tolerance, so that it has no time. The mean "
        "is the geometric one of its time over ours. Rows under 2 µs are left out where peers are called from Python.",
        ["peer", "mean", "rows", "ahead", "tied", "behind", "wrong"], lines)


def ways(run):
    lines = [[each.name, each.library, each.interface, each.how, each.lacks] for each in run.about.values() if each.how]
    return Table("How each peer is run",
                 "As its own users would. Peers of one library are one opinion; calls timed in Python have its price.",
                 ["peer", "library", "called in", "how it is run", "what it has not"], lines, (1, 2, 3, 4))


def families(run):
    names = run.peers_of(run.rows)
    lines = [[f"{group} ({len(rows)})"] +
             [cell(ratio_text(mean), mean, "heat") for mean in (run.mean(name, rows) for name in names)]
             for group, rows in run.groups().items()]
    note = "Geometric mean of each peer's time over ours; above 1 ours is faster."
    return Table("Families against peers", note, ["family (rows)", *names], lines if names else [])


def behind(run, most):
    found = run.behind()
    lines = [[
        row["name"],
        cell(ratio_text(ratio), ratio, BAD), interval_text(ratio, row.peer(name)["noise"]), name,
        time_text(row.seconds), row.fraction_text
    ] for ratio, row, name in found[:most]]
    more = f", the worst {most} of {len(found)}" if len(found) > most else ""
    header = ["row", "its time over ours", "within", "peer", "our time", "of limit"]
    return Table(f"Where a peer is faster{more}", "", header, lines, (3,))


def interval_text(ratio, noise):
    return f"{max(ratio - noise, 0):.2f} to {ratio + noise:.2f}"


def stopped(run):
    lines = [[row["name"], name, reason] for row, name, reason in run.stopped()]
    return Table("Peers that stopped working in a row", "", ["row", "peer", "what happened"], lines, (1, 2))


def wrong(run):
    def text(error):
        return "not a number" if error is None else f"{error:.1e}"

    lines = [[row["name"], name, text(row.peer(name).get("error")), f"{row['tolerance']:.1e}"]
             for row, name in run.wrong()]
    note = "Errors relative to the largest value of the same row of the result."
    return Table("Wrong results of peers", note, ["row", "peer", "error", "tolerance"], lines, (1,))


ROWS_NOTE = (
    "Time: median over interleaved rounds, ± the median absolute deviation. Of limit: docs/benchmarks.md says what it is. "
    "Noise: of ours against ours again. Standing: against the fastest peer, where at least two independent libraries have a "
    "time. Peers: their time over ours in the same rounds, above 1 ours is faster; a tie is within the noise of the row.")


def rows(title, chosen, names):
    lines = [[
        row["name"],
        cell(f"{time_text(row.seconds)} ±{row.spread:.1%}", row.seconds),
        cell(f"{row['noise']:.1%}", row["noise"]),
        cell(row.rate_text, row.bytes_per_second),
        cell(f"{row.fraction_text} {row.bound_by}", row.fraction),
        standing_cell(row), *[ratio_cell(row, name) for name in names]
    ] for row in chosen]
    return Table(title, "", ["row", "time", "noise", "rate", "of limit", "standing", *names], lines, (5,))


def accuracy(run, counted):
    names = [name for name in run.peers if any("ulps" in row.peer(name) for row in counted)]
    lines = []
    for row in counted:
        line = [row["name"], cell(ulp_text(row["ulps"]), row["ulps"])]
        for name in names:
            result = row.peer(name)
            if "ulps" not in result:
                line.append("–")
                continue
            worse = result["ulps"] is None or result["ulps"] > 4 * max(row["ulps"], 1)
            line.append(cell(ulp_text(result["ulps"]), result["ulps"], BAD if worse else ""))
        lines.append(line)
    note = (
        "The largest error on the data of the row against float64, in units in the last place of the exact result (ULP). "
        "Where a formula cancels, as a LayerNorm does near its mean, small results have large errors whoever computes "
        "them.")
    return Table("Largest errors, in ULP", note, ["row", "halyard", *names], lines)


def resident(run):
    """How much larger a process became with a model."""
    models = [row for row in run.rows if row.get("resident")]
    names = [name for name in run.peers if any(row.peer(name).get("resident") for row in models)]
    lines = [[row["name"], bytes_text(row["resident"])] +
             [bytes_text(row.peer(name)["resident"]) if row.peer(name).get("resident") else "–" for name in names]
             for row in models]
    return Table("Memory that a model takes", "", ["row", "halyard", *names], lines)


def machine(run):
    facts = run.machine
    caches = ", ".join(f"{name} {bytes_text(facts[name.lower()])}" for name in ("L1", "L2", "L3"))
    def peaks(int8):
        return "; ".join(
            f"{each['isa']}, {threads_text(each['threads'])}: {each['flops_per_second'] / 1e9:.0f} {rate_unit(int8)}"
            for each in run.limits["flops"] if each.get("int8", False) == int8)

    lines = [["processor", f"{facts['cpu']}, {facts['processors']} usable"], ["caches", caches],
             ["memory", bytes_text(facts["memory"])], ["system", facts["system"]],
             ["halyard", f"{run.library['version']}, {run.library['isa']}"],
             ["compiler of the benchmark", run.library["compiler"]],
             ["threads", f"{run.threads}, {'pinned' if run.data['pinned'] else 'not pinned'}"],
             ["peak of multiply-adds, f32", peaks(int8=False)],
             *([["peak of multiply-adds, 8-bit integers", peaks(int8=True)]] if peaks(int8=True) else []),
             ["timing loop", f"{run.data['loop_overhead_seconds'] * 1e9:.1f} ns per call, included in every time"],
             ["used by other programs meanwhile", f"{run.data['busy_elsewhere']:.1%} of the processors"],
             *[[name, run.about[name].version] for name in run.peers]]
    return Table("Machine and versions", "", ["", ""], lines, (1,))


def levels(run):
    streams = list(dict.fromkeys(each["stream"] for each in run.limits["bandwidth"]))
    lines = {}
    for each in run.limits["bandwidth"]:
        level = f"{each['level']}, {threads_text(each['threads'])} ({bytes_text(each['working_set'])})"
        lines.setdefault(level, [level]).append(f"{each['bytes_per_second'] / 1e9:.1f}")
    note = (
        f"GB/s of bytes read and written by the program; streams with {run.limits['isa']}, ordinary stores unless said."
    )
    return Table("Limits of the machine", note, ["", *streams], list(lines.values()))


def missing_text(run):
    if not run.data["peers"]:
        return "No other library took part: './run bench --peers all' installs those that can be had."
    return "Not here: " + "; ".join(f"{name} ({reason})" for name, reason in run.missing) + "." if run.missing else ""


# ---- whole reports, as lists of sentences and tables ----


def summary(run):
    """What fits a screen."""
    sentences = [headline(run), run.tally_text(), *run.faults(), *run.reservations(), missing_text(run)]
    return [*sentences, peers(run)._replace(note=""), families(run), behind(run, 10)]


def document(run):
    parts = [headline(run), run.tally_text(), *run.faults(), *run.reservations(), peers(run), families(run)]
    parts += [missing_text(run), stopped(run), wrong(run), behind(run, 20), ROWS_NOTE]
    parts += [rows(group, members, run.peers_of(members)) for group, members in run.compared_groups().items()]
    parts += [resident(run), accuracy(run, [row for row in run.rows if "ulps" in row.data]), machine(run), levels(run)]
    return parts


def as_text(parts):
    """In columns: the first and those of text to the left, the others to the right."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts += [textwrap.fill(part, 120)] if part else []
        elif part.lines:
            lines = [[str(each) for each in line] for line in [part.header, *part.lines]]
            widths = [max(map(len, column)) for column in zip(*lines)]
            left = {0, *part.texts}
            columns = [
                "  ".join(
                    each.ljust(width) if i in left else each.rjust(width)
                    for i, (each, width) in enumerate(zip(line, widths))).rstrip() for line in lines]
            texts.append("\n".join([*filter(None, [part.title]), *textwrap.wrap(part.note, 120), *columns]))
    return "\n\n".join(texts) + "\n"


def markdown_table(table):
    left = {0, *table.texts}
    rule = ["---" if i in left else "---:" for i in range(len(table.header))]
    lines = [[str(each).replace("|", "\\|") for each in line] for line in [table.header, rule, *table.lines]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def as_markdown(parts):
    texts = ["# halyard benchmark"]
    for part in parts:
        if isinstance(part, str):
            texts += [part] if part else []
        elif part.lines:
            texts += [f"## {part.title}", *([part.note] if part.note else []), markdown_table(part)]
    return "\n\n".join(texts) + "\n"
