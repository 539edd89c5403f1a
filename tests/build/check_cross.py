#!/usr/bin/env python3
"""Configures the build for 64-bit ARM where libraries of this machine lie in the prefix, as ./run bench --peers all puts them: it
must not take them. Exit status 77 where there is no compiler for ARM."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = {"include/eigen3/Eigen/Core": "", "include/valgrind/callgrind.h": ""}
# What ./run unpacks for the target; without it there is no benchmark suite.
BENCHMARK = {"lib/cmake/benchmark/benchmarkConfig.cmake": "add_library(benchmark::benchmark INTERFACE IMPORTED)\n"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--make-program", required=True)
    parser.add_argument("--prefix", required=True, help="CMAKE_PREFIX_PATH of this build, for Halide")
    options = parser.parse_args()
    if shutil.which("aarch64-linux-gnu-g++") is None:
        print("check_cross: there is no aarch64-linux-gnu-g++")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        for prefix, files in (("peers", PEERS), ("target", BENCHMARK)):
            for name, text in files.items():
                file = path / prefix / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        prefixes = f"{path / 'peers'};{path / 'target'};{options.prefix}"
        run = subprocess.run(
            [options.cmake, "--preset", "arm64", "-B", str(path / "build"), f"-DCMAKE_MAKE_PROGRAM={options.make_program}",
             f"-DCMAKE_PREFIX_PATH={prefixes}", "-DHALYARD_BUILD_BENCH=ON", "-DHALYARD_BUILD_TESTS=OFF"],
            cwd=ROOT, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"check_cross: the configuration failed:\n{run.stdout}{run.stderr}")
        taken = [line for line in (path / "build/CMakeCache.txt").read_text().splitlines()
                 if str(path / "peers") in line and not line.startswith("CMAKE_PREFIX_PATH:")]
        if taken:
            sys.exit("check_cross: the cross build takes libraries of this machine:\n" + "\n".join(taken))
    print("check_cross: all right")


if __name__ == "__main__":
    main()
