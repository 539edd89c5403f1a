#!/usr/bin/env python3
"""Hot loops of the kernels beside the same functions in plain C, both by the model of model.py.

plain.cpp is compiled as people compile for speed and run in the emulator, which logs every instruction: so an iteration
of a loop holds what it executes in libm too. Vectors of SVE are as long as the processor's.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

import loops
import model

N = 256  # elements of a call in plain.cpp's main, and inputs of the product
# Function: the kernel and the kind of its loop.
PAIRS = {"silu": ("silu_f32", "write"), "gelu": ("gelu_f32", "write"), "gelu_tanh": ("gelu_tanh_f32", "write"),
         "swiglu": ("swiglu_beta1_f32", "write"), "sum_of_squares": ("rms_norm_f32", "sum"),
         "moments": ("layer_norm_f32", "sum"), "product": ("matmul_6_f32", "sum")}
VECTOR_BYTES = {"neoverse-v1": 32, "neoverse-v2": 16}
PC = re.compile(r"^Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/")


def build(compiler, processor, program):
    source = pathlib.Path(__file__).with_name("plain.cpp")
    subprocess.run([compiler, "-O3", "-ffast-math", f"-mcpu={processor}", "-static", str(source), "-o", str(program)],
                   check=True)


def trace(emulator, processor, program):
    """Addresses of all instructions that the program executes."""
    with tempfile.NamedTemporaryFile("r") as log:
        cpu = f"max,sve-default-vector-length={VECTOR_BYTES[processor]}"
        subprocess.run([emulator, "-cpu", cpu, "-singlestep", "-d", "exec,nochain", "-D", log.name, str(program)],
                       check=True)
        return [int(match.group(1), 16) for match in map(PC.match, log) if match]


def iterations(addresses, begin, end):
    """(one iteration of the loop in [begin, end) that runs most often, as addresses; how often it runs)"""
    inside = [index for index, address in enumerate(addresses) if begin <= address < end]
    often = collections.Counter(addresses[index] for index in inside)
    most = max(often.values())
    head = min(address for address, count in often.items() if count == most)
    at = [index for index in inside if addresses[index] == head]
    middle = len(at) // 2
    return addresses[at[middle]:at[middle + 1]], most


def text(body):
    lines = []
    for number, each in enumerate(body):
        name, operands = each.name, each.operands
        if name in ("bl", "ret", "b"):
            name, operands = "b", ""
        label = re.search(r"(?:0x)?[0-9a-f]+ <[^>]*>$", operands)
        operands = operands[:label.start()] + f".Lnext{number}" if label else operands or f".Lnext{number}"
        lines += [f"{name} {operands}", f".Lnext{number}:"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=pathlib.Path, help="directory of the kernels' object files, build/.../kernels")
    parser.add_argument("--compiler", default="aarch64-linux-gnu-g++")
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    parser.add_argument("--emulator", default="qemu-aarch64-static")
    parser.add_argument("--mca", default="llvm-mca-19")
    parser.add_argument("--processor", default="neoverse-v1", choices=sorted(VECTOR_BYTES))
    arguments = parser.parse_args()

    mca = model.Model(arguments.mca, arguments.processor, loops.Arm)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "plain"
        build(arguments.compiler, arguments.processor, program)
        addresses = trace(arguments.emulator, arguments.processor, program)
        functions = list(loops.functions(loops.disassembly(arguments.objdump, program)))
    by_address = {each.address: each for _, body in functions for each in body}

    print(f"Cycles per element (of the product: per input of 6 rows and 16 outputs) on {arguments.processor}")
    print("| function | halyard | plain C | ratio |\n|---|---|---|---|")
    for function, (kernel, kind) in PAIRS.items():
        body = next(body for name, body in functions if name == f"plain_{function}")
        iteration, count = iterations(addresses, body[0].address, body[-1].address + 4)
        plain = mca.cycles(text([by_address[address] for address in iteration])) * count / N
        hot = model.hot_loops(kernel, model.kernels_of(arguments.objdump, arguments.kernels, "neon")[kernel], loops.Arm)
        loop = hot[kind]
        elements = loop.flops / (2 * 6 * 16) if function == "product" else (
            loop.stored if kind == "write" else loop.loaded) / 4
        ours = mca.cycles(loop.text()) / elements
        print(f"| {function} | {ours:.2f} | {plain:.2f} | {plain / ours:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
