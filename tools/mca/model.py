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

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]
import kernel_code  # noqa: E402
import loops  # noqa: E402

VECTOR_BYTES = {"neon": 16, "neon_fp16": 16, "avx2": 32, "avx512": 64}
ARM_PROCESSORS = ["cortex-a76", "neoverse-n1", "neoverse-v1", "neoverse-v2", "apple-m1"]
# (kernel, kind of loop)
SHOWN = [("matmul_6_f32", "sum"), ("matmul_5_f32", "sum"), ("matmul_4_f32", "sum"), ("matmul_3_f32", "sum"),
         ("matmul_2_f32", "sum"), ("matmul_1_f32", "sum"), ("matmul_prefetch4_6_f32", "sum"), ("matmul_1_bf16", "sum"),
         ("matmul_1_f16", "sum"), ("rms_norm_weight_f32", "sum"), ("rms_norm_weight_f32", "write"),
         ("layer_norm_weight_bias_f32", "sum"), ("layer_norm_weight_bias_f32", "write"),
         ("softmax_exponentials_f32", "sum"), ("softmax_exponentials_f32", "write"), ("softmax_normalize_f32", "sum"),
         ("relu_f32", "write"), ("add_f32", "write"), ("silu_f32", "write"), ("gelu_f32", "write"),
         ("gelu_tanh_f32", "write"), ("swiglu_beta1_f32", "write"), ("silu_f16", "write"), ("silu_bf16", "write"),
         ("epilogue_silu_gated_f32", "write"), ("attention_softmax_f32", "sum"), ("attention_softmax_f32", "write"),
         ("attention_merge_f32", "write"), ("attention_finish_f32", "write"), ("rope_f32", "write"),
         ("rope_interleaved_f32", "write")]


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
    def peak_flops(self, vector_bytes=16):
        """Per cycle, of independent multiply-adds of such vectors, whatever their form."""
        forms = {16: ["fmla v{0}.4s, v30.4s, v31.4s", "fmla v{0}.4s, v30.4s, v31.s[0]"],
                 32: ["vfmadd231ps %ymm14, %ymm15, %ymm{0}"], 64: ["vfmadd231ps %zmm30, %zmm31, %zmm{0}"]}[vector_bytes]
        chains = 12 if vector_bytes == 32 else 24
        return max(chains * vector_bytes / 2 / self.cycles("\n".join(form.format(i) for i in range(chains)) + "\n")
                   for form in forms)

    @functools.lru_cache(maxsize=None)
    def peak_loads(self):
        """Bytes per cycle, by single registers or by pairs."""
        if "aarch64" in self.command[1]:
            singles = [f"ldr q{i}, [x0, #{16 * i}]" for i in range(12)]
            pairs = [f"ldp q{i}, q{i + 1}, [x0, #{16 * i}]" for i in range(0, 12, 2)]
            return max(12 * 16 / self.cycles("\n".join(form) + "\n") for form in (singles, pairs))
        return 12 * 32 / self.cycles("\n".join(f"vmovups {32 * i}(%rax), %ymm{i}" for i in range(12)) + "\n")


def architecture(isa):
    return loops.Arm if isa.startswith("neon") else loops.X86


@functools.lru_cache(maxsize=None)
def kernels_of(objdump, folder, isa):
    """{name, as silu_f32: disassembly}"""
    found = kernel_code.of_build(objdump, folder, isa)
    return {symbol[len("hk_"):-len(isa) - 1]: text for symbol, text in found.items()}


def hot_loops(name, text, arch):
    """{kind: loop}: of the loops that store and of those that do not, the one that computes most among those that do much
    with each instruction. (Loops over single elements, or over rows with their passes elsewhere, do little.)"""
    found = loops.innermost_loops(arch, text)
    hot = {}
    for kind, stores in (("sum", False), ("write", True)):
        candidates = [loop for loop in found if not loop.function.endswith("_argv") and (loop.stored > 0) == stores and
                      (stores or loop.flops > 0)]
        most = max((loop.density() for loop in candidates), default=0)
        dense = [loop for loop in candidates if 1.4 * loop.density() > most]
        if dense:
            hot[kind] = max(dense, key=lambda loop: (loop.flops, loop.density()))
    if name.startswith("matmul") or "_scale_" in name:
        hot.pop("write", None)  # of a tile's sums, of a row's two numbers
    if not re.search(r"norm|softmax|matmul|scale|sums", name):
        hot.pop("sum", None)  # there are none: it is what a rest of a row goes through
    return hot


def chosen_loops(arguments):
    """(kernel, kind, loop)"""
    kernels, arch = kernels_of(arguments.objdump, arguments.kernels, arguments.isa), architecture(arguments.isa)
    wanted = SHOWN
    if arguments.all or arguments.kernel:
        wanted = [(name, kind) for name in kernels for kind in ("sum", "write") if arguments.all or name in arguments.kernel]
    for name, kind in wanted:
        hot = hot_loops(name, kernels[name], arch)
        if kind in hot:
            yield name, kind, hot[kind]


def cell(model, loop, vector_bytes):
    cycles = model.cycles(loop.text())
    flops, loads = loop.flops / cycles / model.peak_flops(vector_bytes), loop.loaded / cycles / model.peak_loads()
    part = f"{100 * flops:.0f} % of multiply-adds" if flops > loads else f"{100 * loads:.0f} % of loads"
    return f"{cycles:.1f}: {part}, {model.bottleneck(loop.text())}"


def print_table(arguments):
    processors = arguments.processors.split(",")
    print("| kernel | loop | instructions | flops | bytes in, out | stack | " + " | ".join(processors) + " |")
    print("|---" * (6 + len(processors)) + "|")
    models = {}
    for name, kind, loop in chosen_loops(arguments):
        cells = []
        for processor in processors:
            model = models.setdefault(processor, Model(arguments.mca, processor, architecture(arguments.isa)))
            cells.append(cell(model, loop, VECTOR_BYTES[arguments.isa]))
        print(f"| {name} | {kind} | {len(loop.instructions)} | {loop.flops} | {loop.loaded}, {loop.stored} | {loop.stack} | "
              + " | ".join(cells) + " |", flush=True)


def print_stack(arguments):
    """The hot loops that go to the stack, of all kernels."""
    count = 0
    for name, text in kernels_of(arguments.objdump, arguments.kernels, arguments.isa).items():
        for kind, loop in sorted(hot_loops(name, text, architecture(arguments.isa)).items()):
            count += 1
            if loop.stack:
                print(f"{name}, {kind}: {loop.stack} of {len(loop.instructions)} instructions, {loop.flops} flops")
    print(f"of {count} hot loops")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=pathlib.Path, help="folder of the kernels' object files, build/.../kernels")
    parser.add_argument("--objdump", default="objdump", help="one that knows the kernels' processor")
    parser.add_argument("--mca", default="llvm-mca-19")
    parser.add_argument("--isa", default="neon")
    parser.add_argument("--processors", default=",".join(ARM_PROCESSORS), help="names that llvm-mca knows")
    parser.add_argument("--kernel", action="append", help="only this kernel, as silu_f32; several times")
    parser.add_argument("--all", action="store_true", help="all kernels instead of a choice")
    parser.add_argument("--stack", action="store_true", help="only list the hot loops that go to the stack, of all kernels")
    arguments = parser.parse_args()
    if arguments.stack:
        print_stack(arguments)
    else:
        print_table(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
