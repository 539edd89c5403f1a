#!/usr/bin/env python3
"""One real peer on a tiny row of every kind of operation that it is compared for: halyard-bench checks what it computes
against float64. usage: smoke_peer.py HALYARD_BENCH PEER

Peers in Python run with HALYARD_BENCH_PYTHON, or with the interpreter of this test. Exit status 77: it is not here, or it is wrong by
itself: right in one type of an operation and wrong in another, which an adapter at fault would not be.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIST = """
model tiny  d=64 ff=128 heads=4 kv_heads=2 head_dim=16 norm=rms   activation=silu      gated=yes bias=no  rope_theta=10000 layers=2 vocabulary=256
model plain d=64 ff=128 heads=4 kv_heads=4 head_dim=16 norm=layer activation=gelu_tanh gated=no  bias=yes                 layers=2 vocabulary=256
rows kernel=rms_norm,layer_norm,add_rms_norm,add_layer_norm,softmax,gelu,silu,add,cast_to_f16,swiglu,swiglu.gate_up type=f32 shape=4x64 state=hot threads=1
rows kernel=silu,swiglu type=f16,bf16 shape=4x64 state=hot threads=1
rows kernel=layer_norm_backward,rms_norm_backward,rms_norm_backward.residual,silu_backward,tanh_backward,swiglu_backward,swiglu_backward.gate_up type=f32,bf16 shape=4x64 state=hot threads=1
layers model=tiny,plain part=up,ffn,norm_ffn rows=4 type=f32 state=hot threads=1
layers model=tiny part=up_backward,glu_backward rows=4 type=f32 state=hot threads=1
layers model=tiny,plain part=ffn_backward rows=4 type=f32 state=hot threads=1
layers model=tiny part=up,ffn rows=4 type=f16,bf16 state=hot threads=1
layers model=tiny part=up_q4_0 rows=4 type=f32,bf16 state=hot threads=1
optimizer kernel=sgd,adamw shape=4x64 type=f32 state=hot threads=1
attention model=tiny prompt=8 decode=1x8 type=f32 state=hot threads=1
attention_backward model=tiny prompt=8 type=f32 state=hot threads=1
cross_entropy shape=4x300 type=f32 state=hot threads=1
embedding_backward shape=6x64 vocabulary=5 type=f32 state=hot threads=1
block model=tiny,plain prompt=8 decode=1x8 type=f32 state=hot threads=1
block_backward model=tiny,plain prompt=8 type=f32 state=hot threads=1
training_step model=tiny,plain batch=2x8 type=f32 state=hot threads=1
stack model=tiny prompt=8 decode=1x8 type=f32,bf16 state=hot threads=1
"""
KERNELS = ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm", "softmax", "gelu", "silu", "add", "swiglu"]
LAYERS = ["linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual", "layer_norm_ffn_gelu_tanh_residual"]
PLAIN = ["linear"]
GRADIENTS = ["layer_norm_backward", "rms_norm_backward", "silu_backward", "tanh_backward", "swiglu_backward"]
TORCH = [*KERNELS, "swiglu.gate_up", "cast_to_f16", *GRADIENTS, *LAYERS, "attention", "block"]
STEPS = ["training_step.tiny", "training_step.plain"]
# What each peer must have times for, by the beginning of the rows' names. It may have more.
MUST = {
    "eigen": PLAIN,
    "ggml": [*KERNELS, "swiglu.gate_up", "cast_to_f16", "linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual"],
    "ik_llama.cpp": ["model"],
    "llama.cpp": ["model"],
    "mkl": PLAIN,
    "onednn": ["layer_norm", "add_layer_norm", "softmax", "gelu", "silu", "add", "swiglu", "linear", "ffn_swiglu"],
    "onnxruntime": [*KERNELS, "swiglu.gate_up", "cast_to_f16", *LAYERS, "attention"],
    "openblas": PLAIN,
    "openvino": [*KERNELS, "swiglu.gate_up", "cast_to_f16", *LAYERS, "attention"],
    "pytorch": [*TORCH, "linear.q4_0", "linear_backward", "linear_swiglu_backward", "layer_norm_ffn_gelu_tanh_residual_backward",
                "rms_norm_ffn_swiglu_residual_backward", "attention_backward", "block_backward.tiny", "block_backward.plain",
                "sgd", "adamw", "cross_entropy", "embedding_backward", *STEPS],
    "pytorch-compile": [*TORCH, "model", *STEPS],
    "pytorch-fused": STEPS,
    "transformers": ["model"],
    "zentorch": ["linear", "ffn_swiglu", "model"],
}
# Beginnings of reasons that a peer may have not to do a row; whatever else it says is a fault.
REFUSALS = ("has no", "has only", "is compared", "is not compared", "NotImplementedError")


def kernel_of(name):
    """linear.64x128/f16/4/hot/1t: linear"""
    return name.partition("/")[0].partition(".")[0]


def main(program, peer):
    python = os.environ.get("HALYARD_BENCH_PYTHON", sys.executable)
    listed = subprocess.run([program, "--list-peers", "--python", python, "--peers", peer], capture_output=True, text=True)
    if "  MISSING: " in listed.stdout:
        print(listed.stdout, listed.stderr, sep="", end="")
        return 77
    with tempfile.TemporaryDirectory() as name:
        shapes, results = Path(name) / "list.txt", Path(name) / "bench.json"
        shapes.write_text(LIST)
        options = ["--shapes", shapes, "--python", python, "--peers", peer, "--rounds", "1", "--threads", "1",
                   "--peer-limit", "600"]
        done = subprocess.run([program, *options, "--json", results], capture_output=True, text=True)
        print(done.stderr, end="")
        if done.returncode != 0:
            return 1
        _, *lines = [json.loads(line) for line in results.read_text().splitlines()]
    rows = {line["name"]: line["peers"][peer] for line in lines if "peers" in line}
    timed = [name for name, result in rows.items() if "seconds" in result]
    faults, own_faults = [], []
    for name, result in rows.items():
        if result.get("is_wrong"):
            right_elsewhere = any(kernel_of(other) == kernel_of(name) for other in timed)
            (own_faults if right_elsewhere else faults).append(f"{name}: wrong by {result['error']}")
        elif "reason" in result and not result["reason"].startswith(REFUSALS):
            faults.append(f"{name}: {result['reason']}")
    faults += [f"no row of {each}" for each in MUST[peer] if not any(name.startswith(each) for name in timed)]
    print(f"{peer}: {len(timed)} rows of {len(rows)}", *faults, *own_faults, sep="\n  ")
    return 1 if faults else 77 if own_faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in MUST:
        sys.exit("usage: smoke_peer.py HALYARD_BENCH PEER")
    sys.exit(main(*sys.argv[1:]))
