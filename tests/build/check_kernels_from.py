#!/usr/bin/env python3
"""Checks which builds HALYARD_KERNELS_FROM takes kernels of (cmake/HalyardKernelsFrom.cmake).

A copy of the sources takes those of this build, alone or as a part of another project. If one of the files that make a kernel differs, is missing or is new, it does
not, and the message names that file.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

COPIED = ("CMakeLists.txt", "cmake", "docs", "generators", "kernels.cmake", "operations.cmake", "runtime", "schedules")


def check(condition, text):
    if not condition:
        sys.exit(f"check_kernels_from: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build of it")
    parser.add_argument("options", nargs="*", help="of the configuration")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder).resolve() / "copy"
        copy.mkdir()
        for name in COPIED:
            path = arguments.source / name
            (shutil.copytree if path.is_dir() else shutil.copy)(path, copy / name)

        def configured(source=copy):
            """Whether the copy is accepted, and what is said."""
            run = subprocess.run(
                [arguments.cmake, "-S", source, "-B", source / "build", *arguments.options,
                 f"-DHALYARD_KERNELS_FROM={arguments.build}", "-DHALYARD_BUILD_TESTS=OFF", "-DHALYARD_BUILD_BENCH=OFF",
                 "-DHALYARD_BUILD_MODELS=OFF"], capture_output=True, text=True)
            # Messages are wrapped.
            return run.returncode == 0, " ".join((run.stdout + run.stderr).split())

        accepted, text = configured()
        check(accepted, f"a copy of the same sources is refused: {text}")
        check(f" of {arguments.build}" in text.partition("Kernels: ")[2], f"it takes other kernels: {text}")

        parent = pathlib.Path(folder).resolve() / "parent"
        parent.mkdir()
        (parent / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(parent CXX)\n"
                                               f"add_subdirectory({copy} halyard)\n")
        accepted, text = configured(parent)
        check(accepted, f"as a part of another project the same sources are refused: {text}")

        layout = sorted((copy / "runtime" / "layout").glob("*.h"))[0].relative_to(copy)
        for file in ("kernels.cmake", "cmake/HalyardTuned.cmake", "cmake/kernel_calls.cpp", "generators/rms_norm.cpp", "schedules/gpu/row.cpp", layout):
            original = (copy / file).read_text()
            (copy / file).write_text(original + "\n")
            accepted, text = configured()
            check(not accepted and str(file) in text, f"another {file} is not refused, or without its name: {text}")
            (copy / file).write_text(original)

        (copy / "generators" / "new.h").touch()
        accepted, text = configured()
        check(not accepted and "generators/new.h" in text, f"a new file is not refused, or without its name: {text}")
        (copy / "generators" / "new.h").unlink()

        (copy / layout).unlink()
        accepted, text = configured()
        check(not accepted and str(layout) in text, f"a missing file is not refused, or without its name: {text}")


if __name__ == "__main__":
    main()
