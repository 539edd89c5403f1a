#!/usr/bin/env python3
"""Checks what the compiler made of the kernels, from the object files.

No kernel calls anything but memory functions: a call of expf, tanhf or fmaf is one call per element. Kernels for
instruction sets with fused multiply-add use it in vectors wherever there is a loop, and no kernel uses registers or
instructions of a stronger set than its own. The loops of matrix products keep their sums in registers (but where they
emulate conversions of f16 besides) and fetch weights into the second-level cache.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

ALLOWED_CALLS = {"memset", "memcpy", "memmove"}
ISAS = ("sse41", "avx2", "avx512")
WIDEST = {"sse41": "xmm", "avx2": "ymm", "avx512": "zmm"}

INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+(?:[0-9a-f]{2} )*\s*(\S+)\s*(.*)$")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
RELOCATION = re.compile(r"^\s*[0-9a-f]+: R_\S+\s+(\S+?)(?:[-+]0x[0-9a-f]+)?$")
SCALAR_FMA = re.compile(r"^vfn?m(?:add|sub)\d{3}ss$")


def disassemble(objdump, path):
    return subprocess.run([objdump, "--disassemble", "--reloc", "--no-show-raw-insn", str(path)], check=True,
                          capture_output=True, text=True).stdout


def undefined_calls(text):
    """Names of what is called or jumped to outside the object."""
    calls, last = set(), ""
    for line in text.splitlines():
        relocation = RELOCATION.match(line)
        if relocation:
            name = relocation.group(1)
            # Sections (.rodata...) hold constants; a jump or call through one of these is to the object itself.
            if last.startswith(("call", "jmp")) and not name.startswith(("hk_", ".")):
                calls.add(name)
            continue
        instruction = INSTRUCTION.match(line)
        if instruction:
            last = instruction.group(1)
    return calls


def scalar_fma_in_loops(text):
    """Number of scalar fused multiply-adds between the target of a backward jump and that jump."""
    jumps, scalar = [], []
    for line in text.splitlines():
        instruction = INSTRUCTION.match(line)
        if not instruction:
            continue
        address = int(line.split(":")[0], 16)
        if SCALAR_FMA.match(instruction.group(1)):
            scalar.append(address)
        elif instruction.group(1).startswith("j"):
            target = instruction.group(2).split()[0]
            if re.fullmatch(r"[0-9a-f]+", target) and int(target, 16) < address:
                jumps.append((int(target, 16), address))
    return sum(any(begin <= address <= end for begin, end in jumps) for address in scalar)


def product_loop(text):
    """The instructions between the target of a backward jump and that jump, of the loop with the most multiplications, and
    their number."""
    instructions = [(int(line.split(":")[0], 16), line) for line in text.splitlines() if INSTRUCTION.match(line)]
    best, most = [], 0
    for address, line in instructions:
        match = INSTRUCTION.match(line)
        target = match.group(2).split()[0] if match.group(2) else ""
        if match.group(1).startswith("j") and re.fullmatch(r"[0-9a-f]+", target) and int(target, 16) < address:
            body = [line for at, line in instructions if int(target, 16) <= at <= address]
            if sum(INSTRUCTION.match(line).group(1).startswith("j") for line in body) > 1:
                continue  # holds another loop
            products = sum("fmadd" in line or "mulps" in line for line in body)
            if products > most:
                best, most = body, products
    return best, most


def product_problems(text, emulates_f16):
    body, products = product_loop(text)
    if not body:
        yield "has no loop of multiplications"
    stack = sum("(%rsp" in line for line in body)
    if stack * 20 > products and not emulates_f16:
        yield f"goes to the stack {stack} times in its innermost loop"
    if not any("prefetcht1" in line for line in body) or "prefetchnta" in text:
        yield "does not fetch weights into the second-level cache"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("kernels", type=pathlib.Path, help="directory of the kernels' object files")
    arguments = parser.parse_args()

    problems = []
    count = collections.Counter()
    for path in sorted(arguments.kernels.glob("hk_*.o")):
        isa = path.stem.rsplit("_", 1)[1]
        if isa not in ISAS:
            problems.append(f"{path.name}: no instruction set is called {isa}")
            continue
        is_tile = path.stem.startswith("hk_matmul_")
        count[isa] += not is_tile  # instruction sets have tiles of their own
        text = disassemble(arguments.objdump, path)
        foreign = undefined_calls(text) - ALLOWED_CALLS
        if foreign:
            problems.append(f"{path.name} calls {', '.join(sorted(foreign))}")

        if is_tile:
            problems += [f"{path.name} {problem}" for problem in product_problems(text, path.stem.endswith("_f16_sse41"))]
        mnemonics = collections.Counter(match.group(1) for match in map(INSTRUCTION.match, text.splitlines()) if match)
        if sum(mnemonics.values()) < 20:
            problems.append(f"{path.name} holds next to no code: was objdump understood?")
        for register in ("ymm", "zmm"):
            if WIDEST[isa] < register and re.search(rf"%{register}\d", text):
                problems.append(f"{path.name} uses {register} registers")
        # Squares of 16-bit elements, and of keys, are transposed in narrower registers, which is faster.
        is_narrow = re.match(r"hk_(pack_out_in(_folded)?_b?f16|kv_(un)?pack_keys_b?f\d+)_", path.name)
        if f"%{WIDEST[isa]}" not in text and not is_narrow:
            problems.append(f"{path.name} does not use {WIDEST[isa]} registers")
        if isa == "sse41":
            if any(name.startswith("v") for name in mnemonics if name not in ("verr", "verw")):
                problems.append(f"{path.name} uses AVX instructions")
        else:
            scalar = scalar_fma_in_loops(text)
            if scalar:
                problems.append(f"{path.name} has {scalar} scalar fused multiply-adds inside loops")

    if len(set(count.values())) != 1 or set(count) != set(ISAS):
        problems.append(f"different numbers of kernels per instruction set: {dict(count)}")
    for problem in problems:
        print("check_codegen:", problem, file=sys.stderr)
    if not problems:
        print(f"check_codegen: {sum(count.values())} objects and the tiles, none calls a function per element")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
