#!/usr/bin/env python3
"""Instructions that the last elements of a row cost, counted in the emulator.

A row of w elements, w no multiple of the vector's, costs more than the row of whole vectors before it. That is
compared with what a whole vector more costs, on rows of two vectors and every rest, or some rests of row kernels: their
vectors are 64 elements, the lanes of their sums, those of elementwise kernels what an iteration of their loop takes. What a second row costs is the
row's; the rest of a call of one row is the call's. Once with the result apart from the input, and once in its place,
where no element can be computed twice.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

KERNELS = {"relu_f32": 8, "add_f32": 8, "silu_f32": 4, "gelu_f32": 4, "gelu_tanh_f32": 4, "swiglu_beta1_f32": 4,
           "relu_f16": 8, "silu_f16": 8, "silu_bf16": 8, "gelu_bf16": 8, "rms_norm_weight_f32": 64,
           "layer_norm_weight_f32": 64, "rms_norm_weight_bf16": 64}
TRACE = re.compile(r"^Trace \d+: \S+ \[[^]]*\] (\S+)")


def build(compiler, directory, program):
    root = pathlib.Path(__file__).resolve().parents[2]
    subprocess.run([compiler, "-std=c++17", "-O2", "-static", f"-I{root}/runtime/include",
                    str(pathlib.Path(__file__).with_name("calls.cpp")), str(directory / "libhalyard.a"), "-o",
                    str(program)], check=True)


def counts(emulator, cpu, program, word, kernel, widths):
    """Instructions of kernels by width: (of a row, of a call beside)."""
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run([emulator, "-cpu", cpu, "-singlestep", "-d", "exec,nochain", "-D", log.name, str(program), word,
                        kernel] + [str(width) for width in widths], check=True)
        result, last = [], None
        for line in log:
            match = TRACE.match(line)
            name = match.group(1) if match else ""
            if name == "next_call" and last != "next_call":
                result.append(0)
            elif name.startswith("hk_") and result:
                result[-1] += 1
            last = name
    assert len(result) == 2 * len(widths), (len(result), len(widths))
    return [(two - one, 2 * one - two) for one, two in zip(result[::2], result[1::2])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder for 64-bit ARM")
    parser.add_argument("--compiler", default="aarch64-linux-gnu-g++")
    parser.add_argument("--emulator", default="qemu-aarch64-static")
    parser.add_argument("--cpu", default="max")
    parser.add_argument("--kernel", action="append", choices=sorted(KERNELS), help="only this one; several times")
    arguments = parser.parse_args()
    print("| kernel | a call beside its rows | per vector | dearest rest | of a vector | once for a call | in place | "
          "of a vector | once for a call |\n" + "|---" * 9 + "|")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "calls"
        build(arguments.compiler, arguments.build, program)
        for kernel in arguments.kernel or KERNELS:
            vector = KERNELS[kernel]
            rests = [2 * vector + rest for rest in (range(1, vector) if vector < 64 else (1, 3, 4, 15, 31, 32, 47, 60, 63))]
            cells = []
            for word in ("count", "replace"):
                (row, beside), (longer, _), *found = counts(arguments.emulator, arguments.cpu, program, word, kernel,
                                                            [2 * vector, 3 * vector] + rests)
                dearest = max(range(len(rests)), key=lambda i: found[i])
                cost = found[dearest][0] - row
                if not cells:
                    cells = [beside, longer - row]
                cells += [f"{cost} ({rests[dearest] - 2 * vector} elements)", f"{cost / (longer - row):.1f}",
                          found[dearest][1] - beside]
            print("| " + " | ".join(str(cell) for cell in [kernel] + cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
