#!/usr/bin/env python3
"""Measures PyTorch, torch.compile and Triton at the cases of a result of cuda_bench, and prints all side by side.

    peers.py bench.json [--output FILE]

The method is that of cuda_bench: sets of operands that take three times the second-level cache, one CUDA graph of many calls
between two events, the median of 15 launches. What cannot be imported is left out, and said to be. Triton's kernels are
plain ones, a program for each row or block.
"""
import argparse
import json
import statistics
import sys

REPETITIONS = 15
EPS = 1e-6


def load_torch():
    try:
        import torch
    except ImportError as error:
        print(f"without PyTorch: {error}")
        return None
    if not torch.cuda.is_available():
        print("without PyTorch: it finds no GPU")
        return None
    return torch


def triton_functions():
    """Functions of (inputs, weight) by operation; none without Triton."""
    try:
        import triton
        import triton.language as tl
    except ImportError as error:
        print(f"without Triton: {error}")
        return {}

    @triton.jit
    def rms_norm_kernel(x, w, y, width, eps, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        i = tl.arange(0, block)
        inside = i < width
        value = tl.load(x + row * width + i, mask=inside, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + eps)
        weight = tl.load(w + i, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * width + i, (value * scale * weight).to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def layer_norm_kernel(x, w, b, y, width, eps, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        i = tl.arange(0, block)
        inside = i < width
        value = tl.load(x + row * width + i, mask=inside, other=0.0).to(tl.float32)
        centred = tl.where(inside, value - tl.sum(value, axis=0) / width, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + eps)
        weight = tl.load(w + i, mask=inside, other=0.0).to(tl.float32)
        bias = tl.load(b + i, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * width + i, (centred * scale * weight + bias).to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def add_rms_norm_kernel(x, r, w, s, y, width, eps, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        i = tl.arange(0, block)
        inside = i < width
        at = row * width + i
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + tl.load(r + at, mask=inside, other=0.0).to(tl.float32)
        value = value.to(s.dtype.element_ty)
        tl.store(s + at, value, mask=inside)
        value = value.to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + eps)
        weight = tl.load(w + i, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + at, (value * scale * weight).to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def softmax_kernel(x, y, width, block: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        i = tl.arange(0, block)
        inside = i < width
        value = tl.load(x + row * width + i, mask=inside, other=-float("inf")).to(tl.float32)
        power = tl.exp(value - tl.max(value, axis=0))
        tl.store(y + row * width + i, (power / tl.sum(power, axis=0)).to(y.dtype.element_ty), mask=inside)

    @triton.jit
    def swiglu_kernel(g, u, y, count, block: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = at < count
        gate = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(u + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + at, (gate * tl.sigmoid(gate) * up).to(y.dtype.element_ty), mask=inside)

    def by_row(kernel, x, *more):
        block = triton.next_power_of_2(x.shape[1])
        kernel[(x.shape[0],)](x, *more, block=block, num_warps=min(32, max(1, block // 512)))

    return {
        "rms_norm": lambda t, w: by_row(rms_norm_kernel, t[0], w, t[1], t[0].shape[1], EPS),
        "layer_norm": lambda t, w: by_row(layer_norm_kernel, t[0], w, w, t[1], t[0].shape[1], EPS),
        "add_rms_norm": lambda t, w: by_row(add_rms_norm_kernel, t[0], t[1], w, t[2], t[3], t[0].shape[1], EPS),
        "softmax": lambda t, w: by_row(softmax_kernel, t[0], t[1], t[0].shape[1]),
        "swiglu": lambda t, w: swiglu_kernel[(triton.cdiv(t[0].numel(), 1024),)](*t, t[0].numel(), block=1024, num_warps=4),
    }


def torch_functions(torch):
    """Functions of (inputs, weight), which return their results."""
    functional = torch.nn.functional

    def add_rms_norm(t, w):
        total = t[0] + t[1]
        return total, functional.rms_norm(total, (total.shape[-1],), w, EPS)

    def ffn(t, w):
        x, gate_up, down = t[0], t[1], t[2]
        gate, up = (functional.rms_norm(x, (x.shape[-1],), w, EPS) @ gate_up.T).chunk(2, dim=-1)
        return torch.addmm(x, functional.silu(gate) * up, down.T)

    return {
        "rms_norm": lambda t, w: functional.rms_norm(t[0], (t[0].shape[-1],), w, EPS),
        "layer_norm": lambda t, w: functional.layer_norm(t[0], (t[0].shape[-1],), w, w, EPS),
        "add_rms_norm": add_rms_norm,
        "softmax": lambda t, w: functional.softmax(t[0], -1),
        "swiglu": lambda t, w: functional.silu(t[0]) * t[1],
        "geglu_tanh": lambda t, w: functional.gelu(t[0], approximate="tanh") * t[1],
        "linear": lambda t, w: t[0] @ t[1].T,
        "ffn_swiglu": ffn,
        # Queries are the last of the positions: one sees all, as many as positions a triangle.
        "attention": lambda t, w: functional.scaled_dot_product_attention(
            *t, is_causal=t[0].shape[-2] == t[1].shape[-2] > 1, enable_gqa=True),
    }


def operands(torch, row, dtype):
    """One set of operands of a case; results that Triton writes are among them."""
    def tensor(*shape, scale=1.0):
        return torch.randn(*shape, device="cuda", dtype=dtype) * scale

    rows, width, hidden = row["rows"], row["width"], row["hidden"]
    if row["operation"] == "linear":
        return [tensor(rows, width), tensor(hidden, width, scale=width ** -0.5)]
    if row["operation"] == "ffn_swiglu":
        return [tensor(rows, width), tensor(2 * hidden, width, scale=width ** -0.5), tensor(width, hidden, scale=hidden ** -0.5)]
    if row["operation"] == "attention":
        def heads(tokens, count):
            return tensor(1, tokens, count, 128).transpose(1, 2)
        return [heads(rows, hidden), heads(width, hidden // 4), heads(width, hidden // 4)]
    count = {"add_rms_norm": 4, "swiglu": 3, "geglu_tanh": 3}.get(row["operation"], 2)
    return [tensor(rows, width) for _ in range(count)]


def measure(torch, function, sets, weight, calls):
    """Microseconds of a call: median."""
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for operand in sets:
            function(operand, weight)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                function(sets[i % len(sets)], weight)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        warm, times = 0.0, []
        while len(times) < REPETITIONS:
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            if warm < 200.0:
                warm += max(begin.elapsed_time(end), 0.001)
            else:
                times.append(1e3 * begin.elapsed_time(end) / calls)
    del graph
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", help="what cuda_bench --json wrote")
    parser.add_argument("--output", help="a file for the result with the peers' times")
    arguments = parser.parse_args()
    with open(arguments.result, encoding="utf-8") as file:
        result = json.load(file)
    if result["stand_in"]:
        print("THIS WAS NO GPU: NO NUMBER BELOW MEANS ANYTHING.")
    torch = load_torch()
    peers = {}
    if torch:
        native = torch_functions(torch)
        peers = {"PyTorch": native, "torch.compile": {name: torch.compile(f, dynamic=False) for name, f in native.items()},
                 "Triton": triton_functions()}
        print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name(0)}")
    names = [name for name, functions in peers.items() if functions]
    print(f"{'us':36} {'halyard':>10}" + "".join(f"{name:>15}" for name in names))
    for row in result["rows"]:
        row["peers"] = {}
        if torch:
            dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[row["dtype"]]
            torch.compiler.reset()
            sets = [operands(torch, row, dtype) for _ in range(row["sets"])]
            weight = torch.ones(row["width"], device="cuda", dtype=dtype)
            for name in names:
                function = peers[name].get(row["operation"])
                if not function:
                    continue
                try:
                    row["peers"][name] = measure(torch, function, sets, weight, row["calls"])
                except Exception as error:  # whatever a peer fails of, the others go on
                    print(f"{name} failed at {row['operation']} {row['rows']} x {row['width']}: {error}", file=sys.stderr)
            del sets
            torch.cuda.empty_cache()
        hidden = f" x {row['hidden']}" if row["hidden"] else ""
        case = f"{row['operation']} {row['dtype']} {row['rows']} x {row['width']}{hidden}"
        cells = "".join(f"{row['peers'][name]:15.2f}" if name in row["peers"] else f"{'-':>15}" for name in names)
        print(f"{case:36} {row['us']:10.2f}{cells}", flush=True)
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
