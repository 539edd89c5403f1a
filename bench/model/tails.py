#!/usr/bin/env python3
"""Instructions that the last elements of a row cost, counted in the emulator.

A row of w elements, w no multiple of the vector's, costs more than the row of whole vectors before it. That is
compared with what a whole vector more costs, on rows of every width up to a few vectors: row kernels by 64 elements,
the lanes of their sums, elementwise ones by what an iteration of their loop takes.
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


def counts(emulator, cpu, program, kernel, widths):
    """Instructions of kernels, by call."""
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run([emulator, "-cpu", cpu, "-singlestep", "-d", "exec,nochain", "-D", log.name, str(program), "count",
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
    assert len(result) == len(widths), (len(result), len(widths))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder for 64-bit ARM")
    parser.add_argument("--compiler", default="aarch64-linux-gnu-g++")
    parser.add_argument("--emulator", default="qemu-aarch64-static")
    parser.add_argument("--cpu", default="max")
    parser.add_argument("--kernel", action="append", choices=sorted(KERNELS), help="only this one; several times")
    arguments = parser.parse_args()
    print("| kernel | a call of 0 to 1 vector | per vector | dearest rest | of a vector |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "calls"
        build(arguments.compiler, arguments.build, program)
        for kernel in arguments.kernel or KERNELS:
            vector = KERNELS[kernel]
            whole = [2 * vector, 3 * vector]
            rests = list(range(2 * vector + 1, 3 * vector))
            found = counts(arguments.emulator, arguments.cpu, program, kernel, [vector] + whole + rests)
            per_vector = found[2] - found[1]
            dearest = max(range(len(rests)), key=lambda i: found[3 + i])
            cost = found[3 + dearest] - found[1]
            print(f"| {kernel} | {found[0]} | {per_vector} | {cost} ({rests[dearest] - 2 * vector} elements) | "
                  f"{cost / per_vector:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
