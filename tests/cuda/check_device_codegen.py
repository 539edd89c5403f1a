#!/usr/bin/env python3
"""Checks what became of the CUDA kernels, from PTX and, where nvdisasm is at hand, from the assembled code.

Kernels by words, staged or not, touch global memory by 128 bits at a time and in no other way, but for casts between types of different
size and what is interleaved, whose parts come one word at a time, for what epilogues read by column, for positions of
tokens and numbers of rows, and for results that are a few numbers of a row. Warps reduce rows by shuffles, and norms divide
once a row. Results of arithmetic in bf16 keep NaN. Nothing flushes denormal numbers, and nothing is approximate. But in matrix products, sums of
products are fused where the same kernel for OpenCL says fma(), and nowhere else. SwiGLU and GeGLU stay within the number of
instructions that an H200 can issue for an element at its full bandwidth.
"""
import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
GLOBAL = re.compile(r"\b(ld|st)\.global(?:\.nc)?\.(\S+)")
BITS_128 = {"v4.b32", "v2.b64", "v4.f32", "v4.u32", "v2.u64"}

BY_WORDS = ("_words", "_staged")

# Not every access can be one of 128 bits here.
MIXED = re.compile(r"^hk_(cast_to_|device_epilogue_|\w+_interleaved_)")

# Stores of a few numbers for each row; loads of positions, or of a number of the row.
ROW_RESULTS = re.compile(r"^hk_(\w+_norm_scale|attention_split|attention_block_sums)_")
ROW_INPUTS = re.compile(r"^hk_(rope_tokens|attention_block_weights)_")

# What makes nothing in bf16 of bf16 by arithmetic.
NOT_TO_BF16 = re.compile(r"^hk_(cast_to_\w+|\w+_norm_scale|attention_split|product_\w+_to_f32|embed_rows)_bf16_")
# Either a NaN that rounding does not carry into the sign (schedules/element_access.h), or the question whether it is one.
KEEPS_NAN = re.compile(r"\b2143289344\b|setp\.(nan|num)\b")

DIVISION = re.compile(r"\b(div|rcp)\.rn\.f32\b")
LABEL = re.compile(r"^\$\S+:", re.MULTILINE)
NORM = re.compile(r"^hk_\w*norm_")

FUSED = re.compile(r"\bfma\.rn\.f32\b")
FUSED_IN_OPENCL = re.compile(r"\bfma\(")
FUSES_SUMS = re.compile(r"^hk_product_")

# For an element of the output, see docs/cuda.md: 132 multiprocessors issue 4 instructions of 32 threads in each of 1.98e9
# cycles a second, and 16 special functions; 6 bytes of two inputs and an output pass at 4.3e12 bytes a second.
ISSUE_SLOTS = 46.0
SPECIAL_FUNCTIONS = 5.8
BUDGETED = ("hk_swiglu_beta1_bf16_cuda_words", "hk_swiglu_beta1_f16_cuda_words", "hk_geglu_tanh_bf16_cuda_words",
            "hk_geglu_tanh_f16_cuda_words", "hk_geglu_bf16_cuda_words", "hk_geglu_f16_cuda_words")
ELEMENTS_OF_A_THREAD = 8

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_.]*)")
FUNCTION = re.compile(r"^\.text\.(\w+):|^\s*\.section\s+\.text\.(\w+)")


def entries(text):
    """Body of every kernel in a PTX file, by name."""
    found = list(ENTRY.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return {m.group(1): text[m.start():end] for m, end in zip(found, ends)}


def check_ptx(name, body, is_row):
    """What is wrong with a kernel."""
    if name.endswith(BY_WORDS):
        narrow = [access for kind, access in GLOBAL.findall(body) if access not in BITS_128 and
                  not (kind == "st" and ROW_RESULTS.match(name)) and
                  not (kind == "ld" and ROW_INPUTS.match(name) and access.endswith("32"))]
        if narrow and not MIXED.match(name):
            yield f"{len(narrow)} accesses to global memory are not of 128 bits ({', '.join(sorted(set(narrow)))})"
        for kind in ("ld",) if ROW_RESULTS.match(name) else ("ld", "st"):
            if not any(k == kind and access in BITS_128 for k, access in GLOBAL.findall(body)) and not MIXED.match(name):
                yield f"no {kind}.global of 128 bits"
    if "_bf16_cuda_" in name and not NOT_TO_BF16.match(name) and not KEEPS_NAN.search(body):
        yield "NaN could become -0 in bf16"
    if is_row and body.count("shfl.sync") < 5:
        yield "fewer than 5 shuffles in a row kernel"
    if NORM.match(name) and any(DIVISION.search(block) and ".global" in block for block in LABEL.split(body)):
        yield "a division for each vector of a row"
    for word in (".ftz", ".approx", ".full", ".local", "call.uni", "vprintf"):
        if word in body:
            yield f"it holds {word}"


def check_fused(name, body, opencl):
    """Whether the assembler's input rounds as the source that the tests run does."""
    fused = len(FUSED.findall(body))
    said = len(FUSED_IN_OPENCL.findall((opencl / f"{name}.device_code").read_text(encoding="utf-8")))
    if fused > said and not FUSES_SUMS.match(name):
        yield f"{fused} fused multiply-adds, but {said} in the kernel for OpenCL"


def instructions(nvdisasm, cubin):
    """Instructions of every function of a cubin, by name."""
    text = subprocess.run([nvdisasm, str(cubin)], check=True, capture_output=True, text=True).stdout
    functions, current = collections.defaultdict(list), None
    for line in text.splitlines():
        function = FUNCTION.match(line)
        if function:
            current = function.group(1) or function.group(2)
        elif current:
            instruction = INSTRUCTION.match(line)
            if instruction:
                functions[current].append(instruction.group(1))
    return functions


def executed(code):
    """The instructions that a thread executes: those up to the last exit, without what leads from a branch to the slow path
    of a division, which denormal numbers and the like take."""
    code = code[:max(i for i, name in enumerate(code) if name == "EXIT") + 1]
    kept = []
    for name in code:
        if name.startswith("CALL"):
            while not kept[-1].startswith("BRA"):
                kept.pop()
        else:
            kept.append(name)
    return kept


def check_sass(nvdisasm, directory):
    """Failures, and lines that say what was counted."""
    failures, lines = [], []
    for cubin in sorted(directory.glob("*.sm_90.cubin")):
        for name, code in instructions(nvdisasm, cubin).items():
            if not name.endswith(BY_WORDS):
                continue
            loads = [i for i in code if i.startswith(("LDG", "STG")) and
                     not (i.startswith("STG") and ROW_RESULTS.match(name)) and
                     not (i.startswith("LDG") and ROW_INPUTS.match(name) and i in ("LDG.E", "LDG.E.CONSTANT"))]
            narrow = [i for i in loads if ".128" not in i]
            if narrow and not MIXED.match(name):
                failures.append(f"{name}: {len(narrow)} of {len(loads)} accesses to global memory are not of 128 bits")
            if any(i.startswith(("LDL", "STL")) for i in code):
                failures.append(f"{name}: local memory")
            if name in BUDGETED:
                body = executed(code)
                issued = len(body) / ELEMENTS_OF_A_THREAD
                special = sum(i.startswith("MUFU") for i in body) / ELEMENTS_OF_A_THREAD
                lines.append(f"{name}: {issued:.1f} instructions and {special:.1f} special functions an element")
                if issued > ISSUE_SLOTS or special > SPECIAL_FUNCTIONS:
                    failures.append(f"{lines[-1]}, but only {ISSUE_SLOTS} and {SPECIAL_FUNCTIONS} can be issued")
    return failures, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, help="of *.ptx and *.cubin")
    parser.add_argument("opencl", type=pathlib.Path, help="directory of the same kernels' OpenCL sources")
    parser.add_argument("--nvdisasm", help="the program (looked for in PATH)")
    arguments = parser.parse_args()
    failures, count = [], 0
    for path in sorted(arguments.directory.glob("*.ptx")):
        is_row = re.search(r"norm|softmax|block_sums", path.stem) is not None
        for name, body in entries(path.read_text(encoding="utf-8")).items():
            count += 1
            failures += [f"{name}: {what}" for what in check_ptx(name, body, is_row)]
            failures += [f"{name}: {what}" for what in check_fused(name, body, arguments.opencl)]
    nvdisasm = arguments.nvdisasm or shutil.which("nvdisasm")
    if nvdisasm:
        more, lines = check_sass(nvdisasm, arguments.directory)
        failures += more
        print("\n".join(lines))
    else:
        print("nvdisasm was not found: only the PTX was checked")
    print("\n".join(failures))
    print(f"{count} kernels, {len(failures)} failures")
    return 1 if failures or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
