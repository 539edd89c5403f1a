#!/usr/bin/env python3
"""The model beside the clock: cycles per element of this machine's own kernels by llvm-mca, and measured.

A measured cycle is what a machine's fastest multiply-adds say it is: their time, times what the model says their peak per
cycle is. Rows lie in the first-level cache, which is what the model assumes. How far the two differ here is how far the
model may be trusted about processors that are not at hand.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import loops
import model

FLAGS = {"avx2": ["-mavx2", "-mfma"], "avx512": ["-mavx512f", "-mfma"]}


def build(compiler, directory, isa, folder):
    here = pathlib.Path(__file__).resolve().parent
    root = here.parents[1]
    objects = []
    for name, flags in FLAGS.items():
        objects.append(str(folder / f"streams_{name}.o"))
        subprocess.run([compiler, "-std=c++17", "-O3", "-ffp-contract=fast", *flags, "-c", str(root / "bench/timing/streams.cpp"),
                        "-o", objects[-1]], check=True)
    program = folder / "calls"
    subprocess.run([compiler, "-std=c++17", "-O2", "-DHALYARD_MODEL_PEAK", f"-I{root}/runtime/include",
                    f"-I{root}/bench", str(here / "calls.cpp"), *objects, str(directory / "libhalyard.a"), "-pthread",
                    "-o", str(program)], check=True)
    return program


def modelled(mca, objdump, kernels, kernel, isa):
    """Cycles per element: of the loop that writes and, in row kernels, of the one that sums."""
    hot = model.hot_loops(kernel, model.kernels_of(objdump, kernels, isa)[kernel], loops.X86)
    total = mca.cycles(hot["write"].text()) * 4 / hot["write"].stored
    if "norm" in kernel:
        total += mca.cycles(hot["sum"].text()) * 4 / hot["sum"].loaded
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="a build folder for this machine")
    parser.add_argument("--processor", required=True, help="what llvm-mca calls this machine, as sapphirerapids or znver3")
    parser.add_argument("--isa", default="avx2", choices=sorted(FLAGS))
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--mca", default="llvm-mca-19")
    arguments = parser.parse_args()
    mca = model.Model(arguments.mca, arguments.processor, loops.X86)
    with tempfile.TemporaryDirectory() as folder:
        program = build(arguments.compiler, arguments.build, arguments.isa, pathlib.Path(folder))
        output = subprocess.run([str(program), "time", arguments.isa], check=True, capture_output=True, text=True).stdout
    seconds = {name: float(value) for name, value in (line.split() for line in output.splitlines())}
    cycle = seconds.pop("flop") * mca.peak_flops(64 if arguments.isa == "avx512" else 32)
    print(f"{arguments.isa} on {arguments.processor}, {1e-9 / cycle:.2f} GHz by its multiply-adds")
    print("| kernel | cycles per element by the model | measured | measured over model |\n|---|---|---|---|")
    for kernel, each in seconds.items():
        by_model = modelled(mca, arguments.objdump, arguments.build / "kernels", kernel, arguments.isa)
        print(f"| {kernel} | {by_model:.3f} | {each / cycle:.3f} | {each / cycle / by_model:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
