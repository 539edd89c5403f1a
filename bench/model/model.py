#!/usr/bin/env python3
"""Speed of the kernels' hot loops by a model of the processor, llvm-mca, for machines that are not at hand.

For each kernel of a build: its hot loops, found in the object file (loops.py), their cycles per iteration on each
processor by LLVM's scheduling model, what part of that model's own peak they reach, what bounds them, and how often they
go to the stack. Peaks are what the same model says of multiply-adds and of loads alone.

The model knows ports, latencies and the width of dispatch. It knows no caches, no prefetchers, no clock, and of some
processors it has another's description (docs/arm.md): a ratio of two loops says more than the cycles of one.
"""
import argparse
import functools
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import loops  # noqa: E402

ARM_PROCESSORS = ["cortex-a76", "neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"]
SHOWN = ["matmul_tall_6_f32", "matmul_6_f32", "matmul_4_f32", "matmul_2_f32", "matmul_1_f32", "matmul_1_bf16",
         "rms_norm_weight_f32", "layer_norm_weight_bias_f32", "softmax_f32", "relu_f32", "silu_f32", "gelu_f32",
         "gelu_tanh_f32", "swiglu_beta1_f32", "silu_f16", "silu_bf16", "epilogue_silu_gated_f32"]


class Model:
    def __init__(self, mca, processor, arch):
        self.command = [mca, f"-mtriple={arch.triple}", f"-mcpu={processor}"]

    @functools.lru_cache(maxsize=None)
    def report(self, text, iterations, *options):
        result = subprocess.run(self.command + [f"-iterations={iterations}", *options], input=text, capture_output=True,
                                text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(self.command)}: {result.stderr.strip().splitlines()[0]}")
        return result.stdout

    def cycles(self, text):
        """Per iteration, once the loop runs."""
        totals = [int(re.search(r"Total Cycles:\s+(\d+)", self.report(text, n)).group(1)) for n in (100, 300)]
        return (totals[1] - totals[0]) / 200

    def bottleneck(self, text):
        report = self.report(text, 100, "-bottleneck-analysis")
        resources = re.search(r"Resource Pressure\s+\[ ([\d.]+)%", report)
        dependencies = re.search(r"Data Dependencies:\s+\[ ([\d.]+)%", report)
        if not resources:
            return "dispatch"
        if float(dependencies.group(1)) > float(resources.group(1)):
            return "latency"
        units = re.findall(r"^  - (\S+)\s+\[ ([\d.]+)% \]", report[resources.end():dependencies.start()], re.M)
        most = max((float(share) for _, share in units), default=0)
        return "+".join(sorted(name.split("Unit")[-1] for name, share in units if float(share) > 0.8 * most))

    @functools.lru_cache(maxsize=None)
    def peak_flops(self):
        """Per cycle, of independent multiply-adds, whatever their form."""
        forms = (["fmla v{0}.4s, v30.4s, v31.4s", "fmla v{0}.4s, v30.4s, v31.s[0]"] if "aarch64" in self.command[1]
                 else ["vfmadd231ps %ymm14, %ymm15, %ymm{0}", "vfmadd231ps %zmm30, %zmm31, %zmm{0}"])
        flops = [8, 8] if "aarch64" in self.command[1] else [16, 32]
        best = 0
        for form, each in zip(forms, flops):
            chains = 24 if "ymm" not in form else 12
            try:
                best = max(best, chains * each / self.cycles("\n".join(form.format(i) for i in range(chains)) + "\n"))
            except RuntimeError:
                pass  # a form that this processor lacks
        return best

    @functools.lru_cache(maxsize=None)
    def peak_loads(self):
        """Bytes per cycle."""
        form = "ldr q{0}, [x0, #{1}]" if "aarch64" in self.command[1] else "vmovups {1}(%rax), %ymm{0}"
        size = 16 if "aarch64" in self.command[1] else 32
        return 6 * size / self.cycles("\n".join(form.format(i, i * size) for i in range(6)) + "\n")


def hot_loops(objdump, path):
    """(kind, loop): of the loops that store and of those that do not, the one that computes most among those that do much
    with each instruction. (Loops over single elements, or over rows with their passes elsewhere, do little.)"""
    arch, found = loops.innermost_loops(objdump, path)
    hot = {}
    for kind, stores in (("sum", False), ("write", True)):
        candidates = [loop for loop in found if not loop.function.endswith("_argv") and (loop.stored > 0) == stores and
                      (stores or loop.flops > 0)]
        most = max((loop.density() for loop in candidates), default=0)
        dense = [loop for loop in candidates if 1.4 * loop.density() > most]
        if dense:
            hot[kind] = max(dense, key=lambda loop: (loop.flops, loop.density()))
    if path.stem.startswith("hk_matmul"):
        hot.pop("write", None)
    return arch, hot


def kernel_objects(directory, isa, names):
    for path in sorted(directory.glob(f"hk_*_{isa}.o")):
        name = path.stem[len("hk_"):-len(isa) - 1]
        if names is None or name in names:
            yield name, path


def rows_of(arguments, directory, isa, processors, names):
    for name, path in kernel_objects(directory, isa, names):
        arch, hot = hot_loops(arguments.objdump, path)
        for kind, loop in sorted(hot.items()):
            cells = []
            for processor in processors:
                model = Model(arguments.mca, processor, arch)
                cycles = model.cycles(loop.text())
                flops, loads = loop.flops / cycles, loop.loaded / cycles
                cells.append((cycles, flops, flops / model.peak_flops(), (loop.loaded + loop.stored) / cycles,
                              loads / model.peak_loads(), model.bottleneck(loop.text())))
            yield name, kind, loop, cells


def print_table(arguments, directory, isa, processors, names):
    print("| kernel | loop | instructions | flops | bytes | stack | " + " | ".join(processors) + " |")
    print("|---" * (6 + len(processors)) + "|")
    for name, kind, loop, cells in rows_of(arguments, directory, isa, processors, names):
        texts = [f"{cycles:.1f}, {100 * peak:.0f} %, {100 * loads:.0f} %, {bound}"
                 for cycles, _, peak, _, loads, bound in cells]
        print(f"| {name} | {kind} | {len(loop.instructions)} | {loop.flops} | {loop.loaded}+{loop.stored} | {loop.stack} | "
              + " | ".join(texts) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=pathlib.Path, help="directory of the kernels' object files, build/.../kernels")
    parser.add_argument("--objdump", default="objdump", help="one that knows the kernels' processor")
    parser.add_argument("--mca", default="llvm-mca-19")
    parser.add_argument("--isa", default="neon")
    parser.add_argument("--processors", default=",".join(ARM_PROCESSORS), help="names that llvm-mca knows")
    parser.add_argument("--kernel", action="append", help="only this kernel, as silu_f32; several times")
    parser.add_argument("--all", action="store_true", help="all kernels instead of a choice")
    arguments = parser.parse_args()
    names = None if arguments.all else arguments.kernel or SHOWN
    print_table(arguments, arguments.kernels, arguments.isa, arguments.processors.split(","), names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
