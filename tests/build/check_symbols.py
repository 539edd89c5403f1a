#!/usr/bin/env python3
"""Checks what the libraries export and need.

Both define no global symbol but halyard_*, and need nothing beyond libc, libm, libpthread, libdl and the loader. The
static library leaves no symbol of a C++ standard library, of Halide's runtime or of libm undefined. The fuzzer of the C
API calls all that they export.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# The compiler's own support, which libgcc.a holds: detection of instruction sets.
COMPILER_SUPPORT = {"__cpu_model", "__cpu_features2", "__cpu_indicator_init", "_GLOBAL_OFFSET_TABLE_"}
ALLOWED_LIBRARIES = re.compile(r"^(libc|libm|libpthread|libdl|ld-linux-[\w-]+)\.so\.\d+$")
SANITIZER_LIBRARIES = re.compile(r"^lib(asan|ubsan|tsan|gcc_s|stdc\+\+)\.so\.\d+$")
FOREIGN = re.compile(r"^(_Z|__cxa_(?!atexit|finalize)|__gxx_|halide_|_Unwind_)")
MATH = re.compile(r"^_*(exp|exp2|expm1|log|log2|log1p|pow|sin|cos|tan|sinh|cosh|tanh|erf|erfc|fma|sqrt|cbrt|tgamma|"
                  r"ceil|floor|round|trunc|rint|nearbyint|fmod|ldexp|frexp)[fl]?(_finite)?$")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(nm, *options):
    """(symbol, type) of every line that nm prints."""
    found = []
    for line in run(nm, *options).splitlines():
        fields = line.split()
        if len(fields) >= 2 and len(fields[-2]) == 1:
            found.append((fields[-1].split("@")[0], fields[-2]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    parser.add_argument("--sanitized", action="store_true", help="the libraries are built with sanitizers")
    parser.add_argument("--fuzzer", type=pathlib.Path, required=True, help="the folder of c_api*, which are to call every function")
    parser.add_argument("static")
    parser.add_argument("shared")
    arguments = parser.parse_args()
    problems = []

    static = names(arguments.nm, "--extern-only", "--defined-only", arguments.static)
    shared = names(arguments.nm, "--dynamic", "--defined-only", arguments.shared)
    for library, symbols in (("static", static), ("shared", shared)):
        strays = sorted(name for name, _ in symbols if not name.startswith("halyard_"))
        if strays:
            problems.append(f"the {library} library defines the global symbols {', '.join(strays[:10])}")
        if not any(name == "halyard_rms_norm" for name, _ in symbols):
            problems.append(f"the {library} library does not define halyard_rms_norm")
    if {name for name, _ in static} != {name for name, _ in shared}:
        problems.append("the two libraries define different functions: " +
                        ", ".join(sorted({name for name, _ in static} ^ {name for name, _ in shared})))

    calls = "".join(source.read_text() for source in arguments.fuzzer.glob("c_api*"))
    called = set(re.findall(r"\b(halyard_\w+)[()]", calls))
    for name in sorted({name for name, _ in shared} - called):
        problems.append(f"the fuzzer of the C API does not call {name}")

    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run(arguments.readelf, "--dynamic", arguments.shared))
    if not needed:
        problems.append("the shared library names no library that it needs, not even libc: was readelf understood?")
    for name in needed:
        if not ALLOWED_LIBRARIES.match(name) and not (arguments.sanitized and SANITIZER_LIBRARIES.match(name)):
            problems.append(f"the shared library needs {name}")

    undefined = {name for name, _ in names(arguments.nm, "--undefined-only", arguments.static)}
    for name in sorted(undefined - COMPILER_SUPPORT):
        if FOREIGN.match(name) or MATH.match(name):
            problems.append(f"the static library needs the symbol {name}")

    for problem in problems:
        print("check_symbols:", problem, file=sys.stderr)
    if not problems:
        print(f"check_symbols: {len(static)} functions, libraries needed: {', '.join(needed)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
