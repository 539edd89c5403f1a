#!/usr/bin/env python3
"""Writes the README's table of results and docs/results.svg from bench/results/latest.json.

    bench/report/readme.py [--publish RESULT [--despite NAME,...] | --check] [--root DIRECTORY]

With --publish, as ./run bench --publish calls it, bench/results/latest.json becomes RESULT first. Nothing is written if
the run is doubtful, if limits contradict each other, or if a peer is missing, wrong, stopped or abnormal, unless --despite
names "limits" or the peer: then the README says so. With --check nothing is written either, and the exit status is 1
if README and chart are not what the file gives.
"""

import argparse
import sys
import textwrap
from pathlib import Path

from charts import ORDER, picture
from run import COMPILED, DAMAGE, Failure, load, ratio_text, threads_text, time_text
from tables import Table, markdown_table, ratio_cell

MOST_BEHIND = 8
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
KERNELS = {
    "rms_norm": "RMSNorm", "layer_norm": "LayerNorm", "add_rms_norm": "add + RMSNorm", "softmax": "softmax",
    "gelu": "GELU", "gelu_tanh": "GELU, tanh", "silu": "SiLU", "swiglu": "SwiGLU"}


def titles_of(run, rows, *more):
    """{peer: its title}, in the order of colours."""
    names = sorted({*run.peers_of(rows), *more}, key=lambda name: (ORDER.index(name)
                                                                   if name in ORDER else len(ORDER), name))
    return {name: run.about[name].title if name in run.about else name for name in names}


def row_table(run, title, rows, labels):
    """label, time, fraction of the limit, and the peers' times over ours."""
    if not rows:
        return []
    # torch.compile stands there also where it did not take part, so that nobody takes eager PyTorch for it.
    titles = titles_of(run, rows, COMPILED)
    lines = [[
        label,
        time_text(row.seconds), f"{row.fraction_text} ({row.bound_by})", *[ratio_cell(row, name) for name in titles]
    ] for label, row in zip(labels, rows)]
    header = [title, "time", "of the machine's limit", *titles.values()]
    return [markdown_table(Table("", "", header, lines))]


def paragraph(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def behind_text(run, row):
    """With what the peer says of itself there: it may compute something else."""
    name, ratio, _ = row.fastest
    note = row["peers"][name].get("note")
    return f"- `{row['name']}`: {run.about[name].title} {ratio_text(ratio)}" + (f" ({note})" if note else "")


def text_of(run):
    by_name = {row["name"]: row for row in run.rows}
    versions = {}
    for name in run.peers_of(run.rows):
        versions.setdefault(run.about[name].library, run.about[name].version.split()[0].split("+")[0])
    behind = sorted((row.fastest[1], behind_text(run, row)) for row in run.rows
                    if row.fastest and row.counts and row.fastest[2] == "behind")
    parts = [
        paragraph(
            f"Measured by the benchmark suite on {run.machine['cpu']} with {run.library['isa']}, "
            f"{threads_text(run.threads)}, {run.data['date'].split()[0]} (`bench/results/latest.json`). In the same run: "
            f"{', '.join(' '.join(each) for each in versions.items())}. {run.tally_text()}"),
        "\n".join(["Furthest behind:", "", *(text for _, text in behind[:MOST_BEHIND])]) if behind else "",
        paragraph(
            "The peers' columns are their time over ours, above 1 halyard is faster; outputs are preallocated where the "
            "peer can. A dash: the peer has no such operation or was not measured in that row."),
        "![Time of each peer over halyard's, by family of kernels](docs/results.svg)"]
    ffn = sorted(
        (row for row in run.rows if (row["kernel"], row["dtype"], row["state"],
                                     row["d"]) == ("ffn_swiglu", "f32", "hot", 4096) and row["threads"] == run.threads),
        key=lambda row: row["rows"])
    labels = [f"{row['rows']} row{'s' if row['rows'] > 1 else ''}" for row in ffn]
    parts += row_table(run, "SwiGLU FFN, 4096 / 11008, f32", ffn, labels)
    kernels = {label: by_name.get(f"{kernel}/f32/64x4096/hot/{run.threads}t") for kernel, label in KERNELS.items()}
    kernels = {label: row for label, row in kernels.items() if row is not None}
    parts += row_table(run, "64 × 4096, f32, in cache", list(kernels.values()), list(kernels))
    parts += [paragraph(text) for text in notes_of(run, [*ffn, *kernels.values()])]
    return "\n\n".join(filter(None, parts))


def notes_of(run, rows):
    """What a reader of the table must know beside it."""
    texts = []
    if any(row.is_beyond_limit for row in rows):
        texts.append(
            "† In three measurements the row took less time than its limit: the loop that stands for the limit is not "
            "the fastest way to move the bytes.")
    if any(row.abnormal for row in rows):
        texts.append("‡ Far beyond the peer's other rows of the kernel, and not counted.")
    doubts = run.named_objections()
    if doubts:
        texts.append("Published despite this: " +
                     "; ".join(each[0] + (f", and {len(each) - 1} more" if len(each) > 1 else "")
                               for each in doubts.values()) + ".")
    return texts


def chart_of(run):
    titles, means = titles_of(run, run.rows), []
    for group, rows in run.groups().items():
        ratios = {name: mean for name in titles if (mean := run.mean(name, rows))}
        if ratios:
            means.append((group, ratios))
    return picture(means, titles)


def with_section(readme, text):
    """The README with what stands between the marks replaced."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise Failure(f"README.md must have the lines '{BEGIN}' and '{END}' once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description="Writes the README's results from bench/results/latest.json.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--publish", type=Path, metavar="RESULT", help="a bench.json that latest.json is to become")
    what.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    parser.add_argument("--despite", metavar="NAME,...", default="",
                        help="publish though something is wrong with these peers, or with \"limits\"")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="of the repository")
    arguments = parser.parse_args()
    root = arguments.root
    latest = root / "bench" / "results" / "latest.json"
    try:
        run = load(str(arguments.publish or latest))
        objections = run.objections(arguments.despite.split(",")) if arguments.publish else []
        if objections:
            raise Failure("not published:\n  " + "\n  ".join(objections))
        readme = root / "README.md"
        wanted = {
            readme: with_section(readme.read_text(encoding="utf-8"), text_of(run)),
            root / "docs" / "results.svg": chart_of(run)}
        if arguments.publish:
            latest.parent.mkdir(exist_ok=True)
            wanted[latest] = arguments.publish.read_text(encoding="utf-8")
    except (Failure, OSError) as error:
        sys.exit(f"readme.py: {error}")
    except DAMAGE as error:
        sys.exit(f"readme.py: {arguments.publish or latest} is damaged: {type(error).__name__}: {error}")
    for path, text in wanted.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            sys.exit(f"readme.py: {path} is not what bench/results/latest.json gives; run bench/report/readme.py")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
