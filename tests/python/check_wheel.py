#!/usr/bin/env python3
"""pip makes a wheel of a clean copy of the checkout and installs it into an empty environment, where the package is imported and
called; auditwheel looks at what it needs.
usage: check_wheel.py [WHEEL]; exit status 77 where pip can fetch nothing."""
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 12_000_000
PROGRAM = """
import time
import numpy
begin = time.perf_counter()
import halyard
MODEL = "@MODEL@"
print(time.perf_counter() - begin)
assert halyard.relu(numpy.float32([-1, 2])).tolist() == [0, 2]
assert halyard.Model.load(MODEL).generate([1, 2, 3], 2, stop=()), "no tokens"
assert halyard.__file__.startswith(__import__("sys").prefix), halyard.__file__
"""


def run(*command, **options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run([str(each) for each in command], env=environment, check=True, **options)


def export(folder):
    """A copy of the sources without what a build has left. The folder."""
    left = {".git", ".venv", "build", "dist"}
    return shutil.copytree(ROOT, folder, ignore=lambda at, names: left & set(names) if Path(at) == ROOT else [], symlinks=True)


def main(words):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "probe", "halide==21.0.0"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            print("skipped: pip can fetch nothing")
            return 77
        if not words:
            run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, export(folder / "sources"))
        wheel, = [Path(each) for each in words] or folder.glob("*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size} bytes")
        assert "-cp39-abi3-" in wheel.name and wheel.stat().st_size <= MOST_BYTES, wheel
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv/bin/python"
        run(python, "-m", "pip", "install", "--quiet", "numpy", wheel)
        program = PROGRAM.replace("@MODEL@", str(ROOT / "tests/data/models/llama3_f32"))
        # The best of several: the first one reads the files.
        seconds = min(float(run(python, "-c", program, stdout=subprocess.PIPE, text=True).stdout) for _ in range(5))
        print(f"import: {1000 * seconds:.1f} ms")
        run(python, "-m", "pip", "install", "--quiet", "auditwheel==6.4.2")
        audit = run(folder / "venv/bin/auditwheel", "show", wheel, stdout=subprocess.PIPE, text=True).stdout
        assert "manylinux_" in audit, audit  # nothing but glibc is needed
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
