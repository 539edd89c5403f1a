"""The code of kernels, from the disassembly of the objects that have several each (cmake/HalyardKernels.cmake)."""
import re
import subprocess

FUNCTION = re.compile(r"(?m)^[0-9a-f]+ <(hk_\w+)>:$")
# What a kernel's functions are called besides itself. Halide's description of its arguments is no part of the library.
PARTS = re.compile(r"(_streamed)?(_argv)?$")


def of_object(objdump, path):
    """{symbol: the text of its functions, with relocations}"""
    text = subprocess.run([objdump, "--disassemble", "--reloc", "--no-show-raw-insn", str(path)], check=True, capture_output=True,
                          text=True).stdout
    text = re.sub(r"(?m)^Disassembly of section .*\n", "", text)
    found, starts = {}, list(FUNCTION.finditer(text))
    for start, following in zip(starts, [*starts[1:], None]):
        if not start.group(1).endswith("_metadata"):
            symbol = PARTS.sub("", start.group(1), count=1)
            found[symbol] = found.get(symbol, "") + text[start.start():following.start() if following else None]
    return found


def of_build(objdump, kernels, isa="*"):
    """As of_object, of all objects in the folder `kernels` of a build."""
    found = {}
    for path in sorted(kernels.glob(f"{isa}/*.o")):
        found.update(of_object(objdump, path))
    return found


def without_places(text):
    """The text without where constants and other functions are, which depends on what else is in the object, and without the
    instructions that align loops, which depend on what assembled it."""
    text = re.sub(r"(?m)^\s*[0-9a-f]+:\s+(?:data16 |cs )*(?:nop|xchg +%ax,%ax).*\n", "", text)
    text = re.sub(r"\.LCPI\d+_", ".LCPI_", text)
    return re.sub(r"(?m)(\.rodata\S*|\.text\.\S+)[-+]0x[0-9a-f]+$", r"\1", text)
