"""The report as Markdown: the summary, the tables and how to read them, without the charts."""

from . import charts
from .run import bytes_text, geometric_mean, ratio_text, significant, threads_text, time_text, ulp_text


def table(header, lines):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    escaped = [[str(each).replace("|", "\\|") for each in line] for line in [header, rule] + lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped)


def ratio_cell(row, peer):
    result = row.peer(peer)
    if result.get("is_wrong"):
        return "**wrong**"
    return ratio_text(row.ratio(peer)) + (" tie" if result.get("verdict") == "tie" else "")


def summary(run):
    fastest = run.against_fastest()
    parts = [
        "# halyard benchmark",
        f"halyard {run.library['version']} ({run.library['isa']}), {threads_text(run.threads)} on "
        f"{run.machine['cpu']}, {run.data['date']}; {run.mode} mode, {len(run.rows)} rows.",
    ]
    if fastest["rows"]:
        parts.append(
            f"Of {fastest['rows']} rows with a peer, ours is faster than every peer in {fastest['ahead']}, tied with "
            f"the fastest in {fastest['tied']} and behind it in {fastest['behind']}; the fastest peer takes "
            f"{ratio_text(fastest['mean'])} of our time in the geometric mean."
        )
    parts.append(f"Noise of the run: {run.data['noise']:.1%} (ours against ours again, median over rows).")
    parts += run.reservations()
    parts += [f"**{fault}**" for fault in run.faults()]
    return parts


def peers(run):
    lines = []
    for name in run.peers:
        tally = run.tally(name)
        if tally["rows"] or tally["wrong"]:
            lines.append(
                [
                    f"{name} {run.versions[name][:44]}",
                    tally["rows"],
                    tally["ahead"],
                    tally["tied"],
                    tally["behind"],
                    tally["wrong"],
                    ratio_text(tally["mean"]),
                ]
            )
    parts = []
    if lines:
        parts += [
            "## Against each peer",
            table(["peer", "rows", "ahead", "tied", "behind", "wrong", "mean of its time over ours"], lines),
        ]
    names = run.peers_of(run.rows)
    if names:
        lines = [
            [group]
            + [ratio_text(geometric_mean([row.ratio(name) for row in rows if row.ratio(name)])) for name in names]
            for group, rows in run.groups().items()
        ]
        parts.append(table(["family", *names], lines))
    if run.missing:
        parts.append("Not here: " + "; ".join(f"{name} ({reason})" for name, reason in run.missing) + ".")
    stopped = run.stopped()
    if stopped:
        parts += [
            "## Peers that stopped working in a row",
            table(["row", "peer", "what happened"], [[row["name"], peer, reason] for row, peer, reason in stopped]),
        ]
    return parts


def behind(run, most=20):
    worst = run.behind()
    lines = [
        [row["name"], peer, ratio_text(ratio), f"{row.peer(peer)['noise']:.1%}"] for ratio, row, peer in worst[:most]
    ]
    if not lines:
        return []
    return ["## Where a peer is faster", table(["row", "peer", "its time over ours", "noise"], lines)]


def bars(run):
    measured = [bar for bar in run.bars if bar["measured"]]
    lines = [
        [
            bar["text"].removesuffix(", " + bar["row"]),
            bar["row"],
            bar["value"],
            bar["bound"],
            "reached" if bar["is_met"] else "**missed**",
        ]
        for bar in sorted(measured, key=lambda bar: bar["is_met"])
    ]
    return ["## Numbers to reach", table(["what", "row", "measured", "bound", ""], lines)] if lines else []


def rows(run):
    parts = [
        "## Rows",
        "Time: median over interleaved rounds, with the median absolute deviation. Of limit: see "
        "docs/benchmarks.md. Peers: their time over ours in the same rounds, above 1 ours is faster; a tie is within "
        "the noise of the row.",
    ]
    for group, members in run.groups().items():
        names = run.peers_of(members)
        lines = []
        for row in members:
            rate = (
                f"{significant(row['flops'] / row.seconds / 1e9)} GFLOP/s"
                if row.has_roofline
                else f"{significant(row.bytes_per_second / 1e9)} GB/s"
            )
            lines.append(
                [
                    row["name"],
                    time_text(row.seconds),
                    f"±{row.spread:.1%}",
                    row["rounds"],
                    f"{row['noise']:.1%}",
                    rate,
                    f"{row.fraction_text} ({row.bound_by})",
                    *[ratio_cell(row, name) for name in names],
                ]
            )
        parts += [f"### {group}", table(["row", "time", "MAD", "samples", "noise", "rate", "of limit", *names], lines)]
    return parts


def accuracy(run):
    counted = [row for row in run.rows if "ulps" in row.data]
    names = [
        name for name in run.peers if name not in run.own_peers and any("ulps" in row.peer(name) for row in counted)
    ]
    if not counted:
        return []
    lines = [
        [row["name"], ulp_text(row["ulps"])]
        + [ulp_text(row.peer(name)["ulps"]) if "ulps" in row.peer(name) else "–" for name in names]
        for row in counted
    ]
    return ["## Largest errors, in ULP of the exact result", table(["row", "halyard", *names], lines)]


def machine(run):
    facts = run.machine
    caches = ", ".join(f"{name} {bytes_text(facts[name.lower()])}" for name in ("L1", "L2", "L3"))
    header, lines = charts.level_table(run)
    versions = [[name, run.versions[name]] for name in run.peers if name not in run.own_peers]
    return [
        "## Machine",
        table(
            ["", ""],
            [
                ["processor", f"{facts['cpu']}, {facts['processors']} usable"],
                ["caches", caches],
                ["memory", bytes_text(facts["memory"])],
                ["system", facts["system"]],
                ["compiler", run.library["compiler"]],
                ["threads", f"{run.threads}, {'pinned' if run.data['pinned'] else 'not pinned'}"],
                *versions,
            ],
        ),
        "GB/s of bytes read and written:",
        table(header, lines),
    ]


def document(run):
    parts = summary(run) + peers(run) + behind(run) + bars(run) + rows(run) + accuracy(run) + machine(run)
    return "\n\n".join(parts) + "\n"
