#!/usr/bin/env python3
"""Compares the kernels of two builds: a change that should leave them as they are can be held to that.

Compared are the bytes of the kernels' object files and, where both builds have them, of the host objects and images of the
CUDA kernels. Prints what differs, is missing in B or is added there, and fails if there is any. With --names, what differs
may do so by names: objects are compared by their disassembly, PTX without its comments, in which Halide names loops.
"""
import argparse
import pathlib
import re
import subprocess
import sys


def kernels(build, folder):
    """The files by name."""
    return {path.name: path for path in sorted((build / folder).glob("*")) if path.suffix in (".o", ".ptx", ".cubin")}


def code(path, rename):
    """The code in a file, with other names in it."""
    if path.suffix == ".o":
        text = subprocess.run(["objdump", "-dr", path], check=True, capture_output=True, text=True).stdout.split("\n", 3)[3]
        ptx = path.with_suffix(".device_code")
        if ptx.exists():
            # The host code of a CUDA kernel knows how long its PTX is, with comments.
            text = re.sub(rf"\S.*\${ptx.stat().st_size:#x},", "LENGTH,", text)
    else:
        text = re.sub(r"\s*//.*", "", path.read_text(errors="replace"))
    for old, new in rename:
        text = text.replace(old, new)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=pathlib.Path, help="a build folder")
    parser.add_argument("b", type=pathlib.Path, help="another")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", default=[], help="in the names of A's kernels")
    parser.add_argument("--names", action="store_true", help="names may differ")
    options = parser.parse_args()
    rename = [pair.split("=", 1) for pair in options.rename]

    count, wrong = 0, []
    for folder in ("kernels", "kernels/cuda"):
        a, b = kernels(options.a, folder), kernels(options.b, folder)
        if not (a and b):
            print(f"{folder}: not in both builds")
            continue
        for old, new in rename:
            a = {name.replace(old, new): path for name, path in a.items()}
        wrong += [f"missing: {folder}/{name}" for name in a if name not in b]
        wrong += [f"added: {folder}/{name}" for name in b if name not in a]
        for name in a.keys() & b.keys():
            count += 1
            if a[name].read_bytes() != b[name].read_bytes():
                if not (options.names and not name.endswith(".cubin") and code(a[name], rename) == code(b[name], [])):
                    wrong.append(f"differs: {folder}/{name}")
    print(*sorted(wrong), f"{count} compared; {len(wrong)} differ, are missing or added", sep="\n")
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main()
