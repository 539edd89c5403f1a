#!/usr/bin/env python3
"""Checks what the compiler made of the kernels, from the object files.

No kernel calls anything but memory functions: a call of expf, tanhf or fmaf is one call per element. Kernels for
instruction sets with fused multiply-add use it in vectors wherever there is a loop, and no kernel uses registers or
instructions of a stronger set than its own. The loops of matrix products keep their sums in registers (but where they
widen 16 bits with SSE4.1) and fetch weights into the second-level cache, where softmax fetches the next row, and those of single rows into the first. Those that are written for NEON go to the stack nowhere.
Streamed forms alone store around the caches, and at addresses that are aligned where an output begins at a line.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import kernel_code  # noqa: E402

ALLOWED_CALLS = {"memset", "memcpy", "memmove"}
WIDEST = {"sse41": "xmm", "avx2": "ymm", "avx512": "zmm", "avx512_bf16": "zmm", "amx": "zmm", "neon": "v", "neon_fp16": "v",
          "neon_bf16": "v", "neon_bfdot": "v", "neon_bfmmla": "v"}
# Instruction sets that have kernels of their own only where they differ from those of another.
PARTIAL = {"avx512_bf16", "amx", "neon_fp16", "neon_bf16", "neon_bfdot", "neon_bfmmla"}
# Kernels that compute a logarithm of each row, once, in the loop over rows.
SCALAR_BY_ROW = {"cross_entropy_statistics"}
KERNEL = re.compile(rf"^hk_(\w+)_(b?f16|f32)_({'|'.join(WIDEST)})$")

INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(?:[0-9a-f]{2} )*\s*(\S+)\s*(.*)$")
RELOCATION = re.compile(r"^\s*[0-9a-f]+:\s+R_\S+\s+(\S+?)(?:[-+]0x[0-9a-f]+)?$")


class X86:
    calls = ("call", "jmp")
    scalar_fma = re.compile(r"^vfn?m(?:add|sub)\d{3}ss$")
    product = re.compile(r"fmadd|mulps|vdpbf16ps|pmaddwd")
    stack = "(%rsp"
    fetch, near_fetch, other_fetch = "prefetcht1", "prefetcht0", "prefetchnta"

    @staticmethod
    def target(name, operands):
        """The address that an instruction may jump to."""
        # LLVM's objdump writes 0x.
        found = re.match(r"(?:0x)?[0-9a-f]+", operands) if name.startswith("j") else None
        return int(found.group(), 16) if found else None


class Arm:
    calls = ("bl", "b")
    scalar_fma = re.compile(r"^fn?m(?:add|sub)$")
    product = re.compile(r"\t(?:fmla|bfmlal[bt]|bfdot|bfmmla|sdot|smull2?)\tv")
    stack = "[sp"
    fetch, near_fetch, other_fetch = "pldl2keep", "pldl1keep", "pldl1strm"

    @staticmethod
    def target(name, operands):
        found = re.search(r"([0-9a-f]+) <[^>]*>", operands) if re.match(r"^(b(\.\w+)?|cbn?z|tbn?z)$", name) else None
        return int(found.group(1), 16) if found else None


def disassemble(objdump, path):
    return subprocess.run([objdump, "--disassemble", "--reloc", "--no-show-raw-insn", str(path)], check=True,
                          capture_output=True, text=True).stdout


def instructions(text):
    """(address, mnemonic, operands, line)"""
    return [(int(m.group(1), 16), m.group(2), m.group(3), m.group(0)) for m in map(INSTRUCTION.match, text.splitlines())
            if m]


def undefined_calls(text, arch):
    """Names of what is called or jumped to outside the object."""
    calls, last = set(), ""
    for line in text.splitlines():
        relocation = RELOCATION.match(line)
        if relocation:
            name = relocation.group(1)
            # Sections (.rodata...) hold constants; a jump or call through one of these is to the object itself.
            if last.startswith(arch.calls) and not name.startswith(("hk_", ".")):
                calls.add(name)
            continue
        instruction = INSTRUCTION.match(line)
        if instruction:
            last = instruction.group(2)
    return calls


def functions(text):
    """The text of each; their addresses may all begin at 0."""
    return re.split(r"(?m)^[0-9a-f]+ <.+>:$", text)[1:]


def loops(text, arch):
    """A function's loops: first and last address of what lies between the target of a backward jump and that jump."""
    found = []
    for address, name, operands, _ in instructions(text):
        target = arch.target(name, operands)
        if target is not None and target < address:
            found.append((target, address))
    return found


def scalar_fma_in_loops(text, arch):
    return sum(any(begin <= address <= end for begin, end in loops(function, arch))
               for function in functions(text)
               for address, name, _, _ in instructions(function) if arch.scalar_fma.match(name))


def innermost_loops(text, arch):
    """The lines of each."""
    for function in functions(text):
        jumps, lines = loops(function, arch), instructions(function)
        for begin, end in jumps:
            if not any((b, e) != (begin, end) and begin <= b and e <= end for b, e in jumps):
                yield [line for address, _, _, line in lines if begin <= address <= end]


def product_loops(text, arch):
    """The innermost loops with multiplications, and the number of these: most first."""
    counted = [(sum(bool(arch.product.search(line)) for line in body), body) for body in innermost_loops(text, arch)]
    return sorted((each for each in counted if each[0]), key=lambda each: -each[0])


def product_problems(text, arch, few_registers, takes_codes, fetch):
    found = product_loops(text, arch)
    if not found:
        yield "has no loop of multiplications"
        return
    products, body = found[0]
    stack = sum(arch.stack in line for line in body)
    # A product with codes is so many instructions that loads beside them cost little.
    if stack * (1 if takes_codes else 20) > products and not few_registers:
        yield f"goes to the stack {stack} times in its innermost loop"
    # The loop with most of them may be that which widens halves.
    if not any(fetch in line for _, body in found for line in body) or arch.other_fetch in text:
        yield f"does not fetch weights by {fetch}"


def exponentials_problems(text, arch):
    if arch.fetch not in text or arch.other_fetch in text:
        yield "does not fetch the next row into the second-level cache"


STREAMED_STORE = re.compile(r"\bv?movnt\S+\s+%([xyz])mm\d+,(-?0x[0-9a-f]+)?\(([^)]+)\)")
# Without a mask: what has one is the rest of a row.
STORED_CONVERSION = re.compile(r"\bv(?:cvtps2ph|pmov|extract)\S*\s.*%[xyz]mm\d+,(?:-?0x[0-9a-f]+)?\((?!%rsp)[^)]+\)\s*$")


def streaming_problems(text):
    starts = list(re.finditer(r"(?m)^[0-9a-f]+ <(.+)>:$", text))
    for start, following in zip(starts, [*starts[1:], None]):
        name, body = start.group(1), text[start.start():following.start() if following else None]
        if "movnt" not in body:
            continue
        if not name.endswith("_streamed"):
            yield f"stores around the caches in {name}"
        for lines in innermost_loops(body, X86):
            by_base = collections.defaultdict(list)
            for line in lines:
                if store := STREAMED_STORE.search(line):
                    by_base[store.group(3)].append(({"x": 16, "y": 32, "z": 64}[store.group(1)], int(store.group(2) or "0", 16)))
            if by_base and any(STORED_CONVERSION.search(line) for line in lines):
                yield f"stores around the caches beside conversions, in {name}, where it need not be aligned"
            for base, stores in by_base.items():
                width = stores[0][0]
                if any(w != width or (offset - stores[0][1]) % width for w, offset in stores) or "rsp" in base:
                    yield f"stores around the caches at ({base}), in {name}, where it need not be aligned"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objdump", default="objdump")
    parser.add_argument("--isas", required=True, help="the instruction sets that there are to be, with commas between them")
    parser.add_argument("--runtime", nargs="*", type=pathlib.Path, default=[], help="the runtime's object files")
    parser.add_argument("kernels", type=pathlib.Path, help="folder of the kernels' object files")
    arguments = parser.parse_args()

    problems = []
    count = collections.Counter()
    kernels = kernel_code.of_build(arguments.objdump, arguments.kernels)
    for kernel, text in kernels.items():
        named = KERNEL.match(kernel)
        if not named:
            problems.append(f"{kernel}: the name ends with no storage type and instruction set that is known")
            continue
        isa = named.group(3)
        arch = Arm if isa.startswith("neon") else X86
        is_tile = kernel.startswith("hk_matmul_")
        count[isa] += not is_tile  # instruction sets have tiles of their own
        foreign = undefined_calls(text, arch) - ALLOWED_CALLS
        if foreign:
            problems.append(f"{kernel} calls {', '.join(sorted(foreign))}")

        if is_tile:
            fetch = arch.near_fetch if "_near_" in kernel else arch.fetch
            problems += [f"{kernel} {problem}"
                         for problem in product_problems(text, arch, kernel.endswith("f16_sse41"), "_codes" in kernel, fetch)]
        if kernel.startswith("hk_softmax_exponentials_"):
            problems += [f"{kernel} {problem}" for problem in exponentials_problems(text, arch)]
        mnemonics = collections.Counter(name for _, name, _, _ in instructions(text))
        if sum(mnemonics.values()) < 20:
            problems.append(f"{kernel} holds next to no code: was objdump understood?")
        if arch is Arm:
            if not re.search(r"\bv\d+\.(?:16b|8h|4s|2d)|\bq\d+\b", text):
                problems.append(f"{kernel} does not use whole vector registers")
        else:
            for register in ("ymm", "zmm"):
                if WIDEST[isa] < register and re.search(rf"%{register}\d", text):
                    problems.append(f"{kernel} uses {register} registers")
            problems += [f"{kernel} {problem}" for problem in streaming_problems(text)]
            # Squares may be transposed in narrower registers, which is faster for some.
            is_narrow = re.match(r"hk_(pack_out_in(_folded)?|kv_(un)?pack_keys)_b?f\d+_", kernel)
            if f"%{WIDEST[isa]}" not in text and not is_narrow:
                problems.append(f"{kernel} does not use {WIDEST[isa]} registers")
        if isa == "sse41":
            if any(name.startswith("v") for name in mnemonics if name not in ("verr", "verw")):
                problems.append(f"{kernel} uses AVX instructions")
        else:
            scalar = 0 if named.group(1) in SCALAR_BY_ROW else scalar_fma_in_loops(text, arch)
            if scalar:
                problems.append(f"{kernel} has {scalar} scalar fused multiply-adds inside loops")

    for path in arguments.runtime:
        if re.search(r"/linear/neon_\w+/", str(path)):
            loops_of_products = [body for body in innermost_loops(disassemble(arguments.objdump, path), Arm)
                                 if any(Arm.product.search(line) for line in body)]
            if not loops_of_products or any(Arm.stack in line for body in loops_of_products for line in body):
                problems.append(f"{path} has no loop of multiplications, or one that goes to the stack")

    for kernel, text in kernels.items():
        if re.match("hk_(silu|rms_norm_weight|layer_norm_weight_bias|softmax_normalize)_f32_avx", kernel) and "movnt" not in text:
            problems.append(f"{kernel} has no form that stores around the caches")

    whole = {isa: number for isa, number in count.items() if isa not in PARTIAL}
    if len(set(whole.values())) != 1 or set(count) | PARTIAL != set(arguments.isas.split(",")) | PARTIAL:
        problems.append(f"different numbers of kernels per instruction set: {dict(count)}")
    for problem in problems:
        print("check_codegen:", problem, file=sys.stderr)
    if not problems:
        print(f"check_codegen: {sum(count.values())} kernels and the tiles, none calls a function per element")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
