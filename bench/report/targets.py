#!/usr/bin/env python3
"""For developers: the numbers that the project set itself, and what a result says of them.

bench/report/targets.py [RESULTS]
"""

import re
import sys
from pathlib import Path

from run import Failure, load
from tables import Table, as_text


def ratio(*names):
    """Time of the fastest of these peers over ours."""
    return lambda row, _: min((row.ratio(name) for name in names if row.ratio(name)), default=None)


def fraction(row, _):
    return row.fraction


def nanoseconds(row, _):
    return -1e9 * row.seconds


def of_f32(row, run):
    """Time of the same row in f32 over ours."""
    name = row["name"].replace(f"/{row['dtype']}/", "/f32/")
    return next((each.seconds / row.seconds for each in run.rows if each["name"] == name), None)


COLD = "/2048x8192/cold/{threads}t$"
LINEAR = "^linear(?![.](q|u?int))[^/]*/f32/"  # of weights that are not quantized
INT8 = "^linear[^/]*[.]int8/f32/"
# (rows, what, number, least); every row must reach it, and the worst is shown. Times are negative: at least -100 is at
# most 100.
TARGETS = [
    ("^rms_norm/f32/64x4096/hot/{threads}t$", "onednn", ratio("onednn"), 1.1),
    ("^rms_norm/f32/64x4096/hot/{threads}t$", "pytorch", ratio("pytorch"), 4),
    ("^rms_norm/f32/64x4096/hot/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 2),
    ("^layer_norm/f32/64x4096/hot/{threads}t$", "onednn", ratio("onednn"), 1.2),
    ("^layer_norm/f32/64x4096/hot/{threads}t$", "pytorch", ratio("pytorch"), 2),
    ("^gelu/f32/64x4096/hot/{threads}t$", "onednn", ratio("onednn"), 1.1),
    ("^(gelu_tanh|silu)/f32/64x4096/hot/{threads}t$", "onednn", ratio("onednn"), 1.5),
    ("^swiglu/f32/64x4096/hot/{threads}t$", "pytorch", ratio("pytorch"), 2),
    ("^swiglu/f32/64x4096/hot/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 2),
    ("^ffn_swiglu/f32/8x4096x11008/hot/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 2.5),
    ("^ffn_swiglu/f32/(128|512)x4096x11008/hot/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 1.15),
    ("^attention.32x128/f32/prompt(512|2048)/hot/{threads}t$", "pytorch", ratio("pytorch"), 1.3),
    ("^block.llama2_7b/f32/prompt128/cold/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 1.2),
    ("^block.llama2_7b/f32/prompt512/cold/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 1.1),
    ("^(?!cast).*/f32" + COLD, "fraction of a copy", fraction, 0.95),
    ("^(?!cast).*/bf16" + COLD, "the same in f32", of_f32, 1.8),
    (LINEAR + "(128|512)x.*/{threads}t$", "onednn or pytorch", ratio("onednn", "pytorch"), 1),
    (LINEAR + "512x.*/{threads}t$", "fraction of the peak", fraction, 0.95),
    (LINEAR + "(2|4|8|16|32)x.*/{threads}t$", "onednn or pytorch", ratio("onednn", "pytorch"), 1.3),
    (LINEAR + "(2|4|8|16|32)x.*/{threads}t$", "fraction of the roofline", fraction, 0.8),
    (LINEAR + "1x.*/{threads}t$", "fraction of the bandwidth", fraction, 0.95),
    (INT8 + "(1|8|32|128)x.*/{threads}t$", "ggml, onnxruntime or pytorch", ratio("ggml", "onnxruntime", "pytorch"), 1),
    (INT8 + "1x.*/cold/{threads}t$", "fraction of the bandwidth", fraction, 0.92),
    (INT8 + "(8|32)x.*/{threads}t$", "fraction of the roofline", fraction, 0.85),
    ("^linear[^/]*/(bf16|f16)/1x.*/cold/{threads}t$", "the same in f32", of_f32, 1.9),
    ("^attention.*/decode[0-9]+x8192/.*/{threads}t$", "fraction of the bandwidth", fraction, 0.9),
    ("^block.llama2_7b/f32/decode1x.*/{threads}t$", "fraction of the bandwidth", fraction, 0.9),
    ("^block.llama2_7b/f32/decode1x.*/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 1.1),
    ("^block.llama2_7b/f32/decode8x.*/{threads}t$", "pytorch-compile", ratio("pytorch-compile"), 2),
    ("^rms_norm/f32/1x64/hot/1t$", "time, ns", nanoseconds, -100),
    ("^rms_norm/f32/1x4096/hot/1t$", "time, ns", nanoseconds, -700),
]


def judged(run):
    lines = []
    for pattern, what, number, least in TARGETS:
        rows = [row for row in run.rows if re.search(pattern.replace("{threads}", str(run.threads)), row["name"])]
        values = [(value, row["name"]) for row in rows if (value := number(row, run)) is not None]
        if values:
            value, name = min(values)
            texts = [f"{abs(each):.3g}" for each in (value, least)]
            lines.append([name, what, *texts, "reached" if value >= least else "MISSED"])
    return lines


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "results/latest.json"
    lines = judged(load(str(path)))
    reached = sum(line[-1] == "reached" for line in lines)
    header = ["worst row", "against", "measured", "target", ""]
    print(as_text([Table(f"{reached} of {len(lines)} targets reached", "", header, lines, (1, 4))]), end="")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"targets.py: {failure}")
