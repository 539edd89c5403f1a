#!/usr/bin/env python3
"""The table of what takes what in docs/reference.md: it has every operation of operations.cmake once, and what it says of CUDA is what the
operation's function asks of its tensors.
usage: check_support.py CMAKE"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
function(halyard_operation name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "GROUP" "NEEDS;KERNELS;FUNCTIONS;SOURCES")
    message("${{name}},${{arg_GROUP}},${{arg_SOURCES}}")
endfunction()
include("{}")
"""


def operations(cmake):
    """Name, group and files of each."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "operations.cmake")
        script.write_text(PROGRAM.format(ROOT / "operations.cmake"))
        done = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True)
    return [(name, group, files.split(";")) for name, group, files in (line.split(",") for line in done.stderr.splitlines())]


def takes_cuda(files):
    return any("Devices::cpu_or_cuda" in (ROOT / "runtime" / file).read_text() for file in files)


def main(cmake):
    text = (ROOT / "docs/reference.md").read_text().partition("## What takes what")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")][1:]
    wrong, seen, all_operations = [], [], operations(cmake)
    for first, _, cuda, _, _ in rows:
        for name in re.findall("`(.*?)`", first):
            of_row = [each for each in all_operations if name in each[:2]]
            wrong += [] if of_row else [f"{name} is neither an operation nor a group"]
            seen += [operation for operation, _, _ in of_row]
            wrong += [f"{operation} has CUDA: {cuda}, and its files say otherwise" for operation, _, files in of_row
                      if takes_cuda(files) != cuda.startswith("yes")]
    wrong += [f"{name} is there {seen.count(name)} times" for name, _, _ in all_operations if seen.count(name) != 1]
    print("\n".join(wrong) or f"check_support: {len(seen)} operations in {len(rows)} rows")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:]))
