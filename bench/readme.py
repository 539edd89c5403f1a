#!/usr/bin/env python3
"""Writes the README's table of results and docs/results.svg from bench/results/latest.json.

    bench/readme.py [--publish RESULT | --check] [--root DIRECTORY]

With --publish, as ./run bench --publish calls it, bench/results/latest.json becomes RESULT first, unless that is doubtful:
then nothing is written. With --check nothing is written either, and the exit status is 1 if README and chart are not what
the file gives.
"""

import argparse
import sys
import textwrap
from pathlib import Path

from reporting.charts import Log, escape
from reporting.run import DAMAGE, Damaged, geometric_mean, load, ratio_text, threads_text, time_text

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PEERS = {
    "onednn": "oneDNN",
    "pytorch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "ggml": "ggml",
    "mkl": "MKL",
    "openblas": "OpenBLAS",
    "eigen": "Eigen",
    "transformers": "transformers",
    "llama.cpp": "llama.cpp",
}
COLOURS = ["#d55e00", "#009e73", "#cc79a7", "#0b5cad", "#b8860b", "#7b4fd0", "#1b9e9e", "#7f7f7f", "#8c564b", "#333333"]
KERNELS = [
    ("rms_norm", "RMSNorm"),
    ("layer_norm", "LayerNorm"),
    ("add_rms_norm", "add + RMSNorm"),
    ("softmax", "softmax"),
    ("gelu", "GELU"),
    ("gelu_tanh", "GELU, tanh"),
    ("silu", "SiLU"),
    ("swiglu", "SwiGLU"),
]


def table(header, lines):
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule] + lines)


def cell(row, peer):
    if row.peer(peer).get("is_wrong"):
        return "wrong"
    return ratio_text(row.ratio(peer)) + (" tie" if row.peer(peer).get("verdict") == "tie" else "")


def peers_of(run, rows):
    return [name for name in PEERS if name in run.peers_of(rows)]


def row_table(run, title, rows, labels):
    if not rows:
        return []
    peers = peers_of(run, rows)
    lines = [
        [label, time_text(row.seconds), f"{row.fraction_text} ({row.bound_by})", *[cell(row, peer) for peer in peers]]
        for label, row in zip(labels, rows)
    ]
    return [table([title, "time", "of the machine's limit", *[PEERS[peer] for peer in peers]], lines)]


def text_of(run):
    by_name = {row["name"]: row for row in run.rows}
    threads = run.threads
    versions = ", ".join(
        f"{PEERS[name]} {run.versions[name].split()[0].split('+')[0]}" for name in PEERS if name in run.peers
    )
    fastest = run.against_fastest()
    introduction = (
        f"Measured by the benchmark suite on {run.machine['cpu']} with {run.library['isa']}, {threads_text(threads)}, "
        f"{run.data['date'].split()[0]}, with {versions} in the same run (`bench/results/latest.json`). "
        f"Of {fastest['rows']} rows, halyard is faster than every peer in {fastest['ahead']}, tied with the fastest in "
        f"{fastest['tied']} and behind it in {fastest['behind']}; the noise of the run was {run.data['noise']:.1%}. "
        "The peers' columns are their time over ours, outputs preallocated where the peer can."
    )
    parts = [
        textwrap.fill(introduction, 120, break_long_words=False, break_on_hyphens=False),
        "![Time of each peer over halyard's, by family of kernels](docs/results.svg)",
    ]
    ffn = sorted(
        (
            row
            for row in run.rows
            if row["kernel"] == "ffn_swiglu"
            and row["dtype"] == "f32"
            and row["state"] == "hot"
            and row["d"] == 4096
            and row["threads"] == threads
        ),
        key=lambda row: row["rows"],
    )
    parts += row_table(
        run, "SwiGLU FFN, 4096 / 11008, f32", ffn, [f"{row['rows']} row{'s' if row['rows'] > 1 else ''}" for row in ffn]
    )
    found = [(label, by_name.get(f"{kernel}/f32/64x4096/hot/{threads}t")) for kernel, label in KERNELS]
    found = [(label, row) for label, row in found if row is not None]
    parts += row_table(run, "64 × 4096, f32, in cache", [row for _, row in found], [label for label, _ in found])
    if any(row.is_beyond_limit for row in [*ffn, *[row for _, row in found]]):
        parts.append(
            "† In three measurements the row took less time than its limit: the loop that stands for the limit is not "
            "the fastest way to move the bytes."
        )
    return "\n\n".join(parts)


def chart_of(run):
    """Geometric means by family, a dot for each peer."""
    peers = peers_of(run, run.rows)
    means = []
    for group, rows in run.groups().items():
        ratios = {peer: geometric_mean([row.ratio(peer) for row in rows if row.ratio(peer)]) for peer in peers}
        if any(ratios.values()):
            means.append((group, {peer: ratio for peer, ratio in ratios.items() if ratio}))
    values = [ratio for _, ratios in means for ratio in ratios.values()] + [0.7, 4]
    left, right, top, step = 110, 780, 62, 30
    height = top + step * len(means) + 34
    axis = Log(min(values) / 1.1, max(values) * 1.1, left, right, base=2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" width="800" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="800" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="20" font-weight="600" fill="#1d2129">Time of each peer over ours, geometric mean by family of '
        "kernels; right of 1×, halyard is faster</text>",
    ]
    place = 12
    for index, peer in enumerate(peers):
        parts.append(
            f'<circle cx="{place + 5}" cy="38" r="5" fill="{COLOURS[index % len(COLOURS)]}"/>'
            f'<text x="{place + 14}" y="42" fill="#444">{escape(PEERS[peer])}</text>'
        )
        place += 26 + 8.4 * len(PEERS[peer])
    bottom = top + step * len(means)
    for tick in axis.ticks():
        x = axis(tick)
        width = 1.6 if tick == 1 else 0.7
        parts.append(
            f'<path d="M{x:.1f} {top - 6}V{bottom}" stroke="{"#1d2129" if tick == 1 else "#d0d4da"}" '
            f'stroke-width="{width}"/><text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#444">'
            f"{tick:g}×</text>"
        )
    for number, (group, ratios) in enumerate(means):
        y = top + step * number + step / 2
        parts.append(
            f'<text x="{left - 12}" y="{y + 4:.1f}" text-anchor="end" fill="#1d2129">{escape(group)}</text>'
            f'<path d="M{left} {y}H{right}" stroke="#eceff3"/>'
        )
        for peer, ratio in ratios.items():
            parts.append(
                f'<circle cx="{axis(ratio):.1f}" cy="{y}" r="5.5" fill="{COLOURS[peers.index(peer) % len(COLOURS)]}" '
                f'fill-opacity="0.9"><title>{escape(PEERS[peer])}, {escape(group)}: {ratio_text(ratio)}</title>'
                "</circle>"
            )
    return "\n".join(parts) + "\n</svg>\n"


def with_section(readme, text):
    """The README with what stands between the marks replaced."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise Damaged(f"README.md must have the lines '{BEGIN}' and '{END}' once each")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description="Writes the README's results from bench/results/latest.json.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--publish", type=Path, metavar="RESULT", help="a bench.json that latest.json is to become")
    what.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="of the repository")
    arguments = parser.parse_args()
    root = arguments.root
    try:
        latest = root / "bench" / "results" / "latest.json"
        run = load(str(arguments.publish or latest))
        if run.limits.get("contradictions"):
            raise Damaged(f"the limits of the machine contradict each other: {'; '.join(run.limits['contradictions'])}")
        if run.is_disturbed:
            raise Damaged(f"other programs used {run.data['busy_elsewhere']:.0%} of the processors during the run")
        readme = root / "README.md"
        wanted = {
            readme: with_section(readme.read_text(encoding="utf-8"), text_of(run)),
            root / "docs" / "results.svg": chart_of(run),
        }
        if arguments.publish:
            latest.parent.mkdir(exist_ok=True)
            wanted[latest] = arguments.publish.read_text(encoding="utf-8")
    except (Damaged, OSError) as error:
        sys.exit(f"readme.py: {error}")
    except DAMAGE as error:
        sys.exit(f"readme.py: bench/results/latest.json is damaged: {type(error).__name__}: {error}")
    for path, text in wanted.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            sys.exit(f"readme.py: {path} is not what bench/results/latest.json gives; run bench/readme.py")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
