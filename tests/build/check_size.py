#!/usr/bin/env python3
"""Checks how large a library is without its symbols, and how large the kernels of each instruction set are.
Usage: check_size.py --strip PROGRAM --kernels FOLDER LIBRARY MOST_BYTES"""
import argparse
import collections
import pathlib
import subprocess
import tempfile

MOST_KERNEL_BYTES = 1_500_000  # code and data of an instruction set


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strip", required=True)
    parser.add_argument("--kernels", required=True, type=pathlib.Path)
    parser.add_argument("library")
    parser.add_argument("most_bytes", type=int)
    options = parser.parse_args()
    faults = []

    def check(name, size, most):
        print(f"{name}: {size} bytes, at most {most}")
        if size > most:
            faults.append(name)

    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder, "stripped")
        subprocess.run([options.strip, "--strip-unneeded", "-o", stripped, options.library], check=True)
        check(pathlib.Path(options.library).name, stripped.stat().st_size, options.most_bytes)
    kernels = sorted(options.kernels.glob("*/*.o"))
    assert kernels, f"{options.kernels} has no kernels"
    sizes = collections.Counter()
    for line in subprocess.run(["size", *kernels], check=True, capture_output=True, text=True).stdout.splitlines()[1:]:
        code, data, *_, path = line.split(None, 5)
        sizes[pathlib.Path(path).parent.name] += int(code) + int(data)
    for isa, size in sorted(sizes.items()):
        check(f"kernels for {isa}", size, MOST_KERNEL_BYTES)
    assert not faults, f"too large: {', '.join(faults)}"


if __name__ == "__main__":
    main()
