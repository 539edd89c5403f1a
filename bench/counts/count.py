#!/usr/bin/env python3
"""Instructions per element of every AVX2 kernel, counted by callgrind, and how they differ from the baseline.

Rows are calls of the library; those of several kernels have a line for each. Two numbers per row: instructions of the kernels (functions hk_*, but those written by hand), which depend on nothing but the generators, schedules
and Halide's version and are compared with the committed baseline; and all instructions of the call, which depend on the
C++ compiler too and are only shown. Exits with 1 if a row's kernels have become longer by more than the tolerance.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOLERANCE = 0.002  # of a row's instructions: room for a different alignment of a caller's tensors
BY_HAND = "matmul_int8_", "matmul_codes4_", "matmul_codes8_"  # how names of kernels begin that are written in C++ for AVX2: their counts are its compiler's

def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True, type=Path, help="halyard-count")
    parser.add_argument("--baseline", required=True, type=Path, help="JSON file to compare with")
    parser.add_argument("--update", action="store_true", help="write the counts to the baseline instead")
    parser.add_argument("--json", type=Path, help="write the counts to this file too")
    return parser.parse_args()


def run(program, directory, part, parts):
    """Elements and counts of a part of the rows."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("count: valgrind was not found; install it (on Debian or Ubuntu: sudo apt-get install valgrind).")
    out = directory / f"callgrind.out.{part}"
    command = [valgrind, "--tool=callgrind", "--instr-atstart=no", "--combine-dumps=yes", "--compress-strings=no",
               "--compress-pos=no", f"--callgrind-out-file={out}", str(program), str(part), str(parts)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"count: {program.name} under valgrind failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    elements = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    counts = instructions(out.read_text())
    if set(counts) != set(elements):
        sys.exit(f"count: callgrind has {len(counts)} rows, the program {len(elements)}; is this valgrind 3.15 or later?")
    return elements, counts


def run_all(program):
    """Elements and counts of all rows, by a process for each processor: callgrind runs on one."""
    parts = max(1, min(4, os.cpu_count() or 1))
    elements, counts = {}, {}
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ThreadPoolExecutor(parts) as executor:
        running = [executor.submit(run, program, Path(directory), part, parts) for part in range(parts)]
        for each in running:
            part_elements, part_counts = each.result()
            elements |= part_elements
            counts |= part_counts
    return elements, counts


def instructions(text):
    """{row: ({kernel: instructions}, those of the whole call)} of a combined dump."""
    counts = {}
    for part in re.split(r"(?m)^part: ", text)[1:]:
        trigger = re.search(r"(?m)^desc: Trigger: Client Request: (.+)$", part)
        if trigger is None:
            continue
        kernels, total = {}, 0
        kernel, after_call = None, False
        for line in part.splitlines():
            if line.startswith("fn="):
                found = re.match(r"fn=hk_(\w+)_avx2", line)
                kernel = found.group(1) if found and not found.group(1).startswith(BY_HAND) else None
            elif line.startswith("calls="):
                after_call = True
            elif re.match(r"[\d+*-]\S* \d+$", line):
                # The line after calls= is the callee's cost, which is counted where the callee is.
                if not after_call:
                    cost = int(line.split()[1])
                    total += cost
                    if kernel is not None:
                        kernels[kernel] = kernels.get(kernel, 0) + cost
                after_call = False
        counts[trigger.group(1).strip()] = (kernels, total)
    return counts


def rounded(value):
    """To five digits: twenty times finer than what is tolerated."""
    return float(f"{value:.5g}")


def main():
    arguments = parse_arguments()
    elements, counts = run_all(arguments.program)
    # What a row's kernels take together and, if they are several, each of them: "ROW: KERNEL".
    per_element = {}
    for name, count in elements.items():
        kernels = counts[name][0]
        per_element[name] = rounded(sum(kernels.values()) / count)
        if len(kernels) > 1:
            per_element |= {f"{name}: {kernel}": rounded(kernels[kernel] / count) for kernel in sorted(kernels)}
    for file in [arguments.json] + ([arguments.baseline] if arguments.update else []):
        if file is not None:
            file.write_text(json.dumps({"kernel_instructions_per_element": per_element}, indent=1) + "\n")
    if arguments.update:
        print(f"{len(elements)} rows with {len(per_element)} counts written to {arguments.baseline}")
        return 0

    try:
        baseline = json.loads(arguments.baseline.read_text())["kernel_instructions_per_element"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"count: {arguments.baseline} is no baseline ({error}); make one with --update.")
    longer = shorter = 0
    print(f"{'row':56} {'kernel':>9} {'call':>9} {'baseline':>9}  instructions per element")
    for name, now in per_element.items():
        was = baseline.get(name)
        verdict = ""
        if was is None:
            verdict = "new"
        elif now > was * (1 + TOLERANCE):
            verdict = f"LONGER by {100 * (now / was - 1):.1f} %"
            longer += 1
        elif now < was * (1 - TOLERANCE):
            verdict = f"shorter by {100 * (1 - now / was):.1f} %"
            shorter += 1
        shown = "-" if was is None else f"{was:.3f}"
        label, call = "  " + name.partition(": ")[2], ""
        if name in counts:
            label, call = name, f"{counts[name][1] / elements[name]:.3f}"
        print(f"{label:56} {now:9.3f} {call:>9} {shown:>9}  {verdict}".rstrip())
    gone = [name for name in baseline if name not in per_element]
    for name in gone:
        print(f"{name:56} {'gone':>9}")
    print(f"{len(elements)} rows, {len(per_element)} counts: {longer} longer, {shorter} shorter, {len(gone)} gone")
    if longer or gone:
        print("If that is meant, make a new baseline: ./run bench --count --update")
    return 1 if longer or gone else 0


if __name__ == "__main__":
    sys.exit(main())
