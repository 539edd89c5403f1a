#!/usr/bin/env python3
"""Compares the kernels of two builds: a change that should leave them as they are can be held to that.

Compared is the code of each kernel, the bytes of the objects that have them with their constants and, where both builds have them,
those of the host objects and images of the CUDA kernels. Prints what differs, is missing in B or is added there, and fails if
there is any. With --names, what differs may do so by names: constants are not compared then, and PTX without its comments, in
which Halide names loops.
"""
import argparse
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import kernel_code  # noqa: E402


def renamed(text, rename):
    for old, new in rename:
        text = text.replace(old, new)
    return text


def device_code(path):
    """The code in a file of a CUDA kernel, as it is under any names."""
    if path.suffix != ".o":
        return re.sub(r"\s*//.*", "", path.read_text(errors="replace"))
    text = subprocess.run(["objdump", "-dr", path], check=True, capture_output=True, text=True).stdout.split("\n", 3)[3]
    ptx = path.with_suffix(".device_code")
    # The host code knows how long its PTX is, with comments.
    return re.sub(rf"\S.*\${ptx.stat().st_size:#x},", "LENGTH,", text) if ptx.exists() else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", type=pathlib.Path, help="a build folder")
    parser.add_argument("b", type=pathlib.Path, help="another")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", default=[], help="in the names of A's kernels")
    parser.add_argument("--names", action="store_true", help="names may differ")
    options = parser.parse_args()
    rename = [pair.split("=", 1) for pair in options.rename]

    count, wrong = 0, []

    def compare(what, a, b, same):
        nonlocal count
        if not (a and b):
            print(f"{what}: not in both builds")
            return
        a = {renamed(name, rename): each for name, each in a.items()}
        wrong.extend(f"missing: {what} {name}" for name in a if name not in b)
        wrong.extend(f"added: {what} {name}" for name in b if name not in a)
        both = a.keys() & b.keys()
        count += len(both)
        wrong.extend(f"differs: {what} {name}" for name in both if not same(a[name], b[name]))

    def same_bytes(a, b):
        return a.read_bytes() == b.read_bytes()

    builds = [build / "kernels" for build in (options.a, options.b)]
    compare("kernel", *(kernel_code.of_build("objdump", folder) for folder in builds),
            lambda a, b: renamed(kernel_code.without_places(a), rename) == kernel_code.without_places(b))
    if not options.names:
        compare("object", *({str(path.relative_to(folder)): path for path in folder.glob("*/*.o") if path.parent.name != "cuda"}
                            for folder in builds), same_bytes)
    compare("device", *({path.name: path for path in (folder / "cuda").glob("*") if path.suffix in (".o", ".ptx", ".cubin")}
                        for folder in builds),
            lambda a, b: same_bytes(a, b) or (options.names and a.suffix != ".cubin" and
                                              renamed(device_code(a), rename) == device_code(b)))
    print(*sorted(wrong), f"{count} compared; {len(wrong)} differ, are missing or added", sep="\n")
    sys.exit(1 if wrong or not count else 0)


if __name__ == "__main__":
    main()
