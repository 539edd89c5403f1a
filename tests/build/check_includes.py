#!/usr/bin/env python3
"""Whether each file of the runtime, whose files are joined in a few translation units, includes what it uses: compiles the files one by one,
by the command that compiles them together, without making code. Usage: check_includes.py BUILD_FOLDER COMPILER"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

build, compiler = sys.argv[1:]


def commands():
    """(file, the command that looks at it alone)"""
    for unit in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        if "halyard_runtime.dir/Unity/" not in unit["file"]:
            continue
        words = shlex.split(unit["command"])
        words = words[words.index(compiler):words.index("-o")]
        for file in re.findall('#include "(.+)"', pathlib.Path(unit["file"]).read_text()):
            yield file, [*words, "-fsyntax-only", file]


def check(task):
    file, command = task
    done = subprocess.run(command, cwd=build, capture_output=True, text=True)
    return f"{file} does not compile alone:\n{done.stderr}" if done.returncode else ""


with ThreadPoolExecutor(os.cpu_count()) as workers:
    results = list(workers.map(check, commands()))
assert results, f"{build} has no joined files"
faults = [each for each in results if each]
print("\n".join(faults) or f"{len(results)} files compile alone")
sys.exit(bool(faults))
