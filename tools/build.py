"""Configures, builds and installs by the presets of CMakePresets.json, once what they need is there. ./run calls it."""
import fcntl
import os
import re
import shlex
import subprocess
import sys

from prepare import ROOT, VENV, call, die, prepare, say

BUILD = ROOT / "build"
# Presets that share a build folder: what one has switched on stays on.
FOLDERS = {"test": "release", "bench": "release", "tune": "release",
           "experiments": "release", "arm64-test": "arm64", "arm64-bench": "arm64", "cuda-test": "cuda", "fuzz": "clang-asan"}


def cmake(what, *arguments, stdout=sys.stderr):
    """Two calls at once must not build or install over each other."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another ./run in this checkout")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if call(VENV / "bin/cmake", *arguments, cwd=ROOT, stdout=stdout) != 0:
            die(f"the {what} failed; the messages above say why.")


def configure(preset, *options, folder=None, again=False):
    """Configures by the preset, unless that was done with this compiler and virtual environment. The build folder."""
    folder = folder or BUILD / FOLDERS.get(preset, preset)
    stamp = folder / ".halyard"
    here = shlex.join([str(folder), str(VENV), os.environ.get("CXX", ""), os.environ.get("CC", ""), *options])
    before, *presets = stamp.read_text().splitlines() if stamp.exists() else [here]
    is_old = stamp.exists() and stamp.stat().st_mtime < (ROOT / "CMakePresets.json").stat().st_mtime
    if again or is_old or before != here or preset not in presets or not (folder / "build.ninja").exists():
        say(f"configuring {folder.relative_to(ROOT)} by the preset {preset}")
        fresh = [] if before == here else ["--fresh"]  # a cache from another place or compiler is no use
        cmake("configuration", "--preset", preset, "-B", folder, *fresh, *options)
        stamp.write_text("\n".join([here, *dict.fromkeys([*([] if fresh else presets), preset]), ""]))
    return folder


def build(preset, *targets):
    cmake("build", "--build", "--preset", preset, *(["--target", *targets] if targets else []))


def make(preset, *targets, needs=(), subset=()):
    """What the preset builds, or these targets of it, with what that needs. `subset`: options of CMake for a library of some
    operations, in a folder of its own. The build folder."""
    again = prepare(*needs)
    if subset:
        folder = configure(preset, *subset, folder=BUILD / (FOLDERS.get(preset, preset) + "-subset"), again=again)
        cmake("build", "--build", folder, "--target", *(targets or (["all"] if preset == "test" else ["halyard_libraries", "halyard_programs"])))
        return folder
    folder = configure(preset, again=again)
    build(preset, *targets)
    return folder


def install_from(folder, prefix, *options):
    cmake(f"installation into {prefix}", "--install", folder, "--prefix", prefix, *options, stdout=subprocess.DEVNULL)


def report_installed(folder, prefix):
    """What lies there now and how it is used."""
    print(f"Installed in {prefix}:")
    for file in [each for pattern in ("lib*/libhalyard.*", "lib*/*/libhalyard.*", "include/halyard/*.h*", "bin/halyard-*")
                 for each in sorted(prefix.glob(pattern)) if each.is_file() and not each.is_symlink()]:
        print(f"  {file.stat().st_size // 1000:8} KB  {file.relative_to(prefix)}")
    library = prefix / re.search(r"(?m)^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", (folder / "CMakeCache.txt").read_text())[1]
    pkg_config = ["pkg-config", "--cflags", "--libs", "halyard"]
    # pkg-config takes quotes in the path of its file for quotes of its own, and ${name} for a variable.
    if set(str(prefix)) & set("'\"\\") or "${" in str(prefix):
        pkg_config.insert(1, "--define-variable=prefix=" + re.sub(r"([^\w/.-])", r"\\\1", str(prefix)))
    print("Use it with CMake:       find_package(halyard REQUIRED) and target_link_libraries(program PRIVATE halyard::halyard),")
    print(f"{'':24} configured with", shlex.quote("-DCMAKE_PREFIX_PATH=" + str(prefix).replace(";", "\\;")))
    print(f"Use it with pkg-config:  PKG_CONFIG_PATH={shlex.quote(str(library / 'pkgconfig'))} {shlex.join(pkg_config)}\n"
          f"                         and {shlex.quote(f'-Wl,-rpath,{library}')}, so that the program finds the shared library")
