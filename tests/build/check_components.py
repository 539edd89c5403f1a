#!/usr/bin/env python3
"""Checks what the installed package says was built: the lists and components of find_package(halyard) and halyard/config.h."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(halyard REQUIRED COMPONENTS {components})
message(STATUS "built: ${{halyard_ISAS}};${{halyard_DTYPES}};${{halyard_OPERATIONS}}.")
"""


def check(condition, text):
    if not condition:
        sys.exit(f"check_components: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("built", nargs="+", help="instruction sets, dtypes and operations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        subprocess.run([options.cmake, "--install", options.build, "--prefix", path / "prefix"], check=True, capture_output=True)

        def found(*components):
            (path / "CMakeLists.txt").write_text(PROJECT.format(components=" ".join(components)))
            run = subprocess.run([options.cmake, "-S", path, "-B", path / "build", f"-DCMAKE_PREFIX_PATH={path / 'prefix'}"],
                                 capture_output=True, text=True)
            return run.returncode == 0, " ".join((run.stdout + run.stderr).split())

        accepted, text = found(*options.built)
        check(accepted and f"built: {';'.join(options.built)}." in text, f"the package does not have what was built: {text}")
        for wrong, answer in (("rms_layer", "halyard has no component 'rms_layer'. There are models, "),
                              ("model", "halyard has no component 'model'; did you mean models?"),
                              ("norm", "halyard has no component 'norm'; did you mean norms?"),
                              ("linears", "halyard has no component 'linears'; did you mean linear?")):
            accepted, text = found(wrong, options.built[0])
            check(not accepted and answer in text, f"of {wrong} the package says: {text}")

        macros = dict(re.findall(r"HALYARD_HAS_(\w+) ([01])", (path / "prefix/include/halyard/config.h").read_text()))
        check({name.lower() for name, has in macros.items() if has == "1"} == set(options.built), f"config.h has {macros}")
        for left_out in [name.lower() for name, has in macros.items() if has == "0"][:1]:
            accepted, text = found(left_out)
            check(not accepted and f"built without {left_out}; HALYARD_OPERATIONS" in text, f"{left_out} is found: {text}")
        print(f"check_components: {len(macros)} macros")


if __name__ == "__main__":
    main()
