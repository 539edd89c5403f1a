"""Sees to what a build needs on this machine: a compiler, Debian's packages and a virtual environment. ./run calls it."""
import contextlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"Linux x86_64": "x86-64", "Linux aarch64": "arm64"}.get(f"{platform.system()} {platform.machine()}")

USABLE_PYTHON = "import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 13))"

# What CMake or Ninja makes something else of in a path.
UNUSABLE = {";": "a semicolon", '"': "a double quote", "\\": "a backslash", "<": "a '<'", "|": "a '|'", "\n": "a line's end"}

# What must be there, by what needs it: a header, command or file, and Debian's package of it.
NEEDS = {
    "library": {"dlpack/dlpack.h": "libdlpack-dev", "xxhash.h": "libxxhash-dev", "nlohmann/json.hpp": "nlohmann-json3-dev"},
    "programs": {"CLI/CLI.hpp": "libcli11-dev"},
    "bench": {"CLI/CLI.hpp": "libcli11-dev", "benchmark/benchmark.h": "libbenchmark-dev"},
    "tests": {"gtest/gtest.h": "libgtest-dev", "pkg-config": "pkg-config"},
    "count": {"valgrind/callgrind.h": "valgrind"},
    "arm64": {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu"},
    "emulator": {"qemu-aarch64-static": "qemu-user-static"},
    "clang": {"clang++": "clang"},
    "opencl": {"CL/cl.h": "ocl-icd-opencl-dev", "/etc/OpenCL/vendors/pocl.icd": "pocl-opencl-icd"},
    "docs": {"doxygen": "doxygen"},
}


def say(text):
    print(f"run: {text}", file=sys.stderr, flush=True)


def die(text):
    sys.exit(f"run: {text}")


def call(*command, preexec_fn=os.setpgrp, **more):
    """Its exit status. Where a signal ends this program, the command and what it started are ended and waited for."""
    process = subprocess.Popen([str(each) for each in command], stdin=subprocess.DEVNULL, preexec_fn=preexec_fn, **more)
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM) if preexec_fn else process.terminate()
        process.wait()
        raise


def call_until_interrupted(*command):
    """Its exit status. Ctrl-C goes to the command, which ends by itself with what it has by then."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    status = call(*command, preexec_fn=None)
    signal.signal(signal.SIGINT, before)
    return status


def output(*command, text=""):
    """What it prints; None if it fails or is not there."""
    with contextlib.suppress(OSError):
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout if done.returncode == 0 else None


def choose_venv():
    """The one that is named, or .venv, whoever made it; one of our own where that has no Python for Halide's wheels."""
    named, usual = os.environ.get("HALYARD_VENV"), ROOT / ".venv"
    if named or not os.path.lexists(usual / "bin/python") or (usual / ".halyard").exists():
        return Path(os.path.abspath(named or usual))
    return usual if output(usual / "bin/python", "-c", USABLE_PYTHON) is not None else ROOT / "build/venv"


VENV = choose_venv()


def prepare(*parts):
    """Whether anything was installed that a configuration may find now."""
    for folder in (ROOT, VENV):
        if wrong := set(str(folder)) & UNUSABLE.keys():
            die(f"CMake cannot build with a folder whose path holds {UNUSABLE[min(wrong)]}: {folder}")
    if MACHINE is None:
        die(f"the kernels are for Linux on x86-64 and arm64, and this machine is {platform.system()} {platform.machine()}.")
    named = os.environ.get("HALYARD_PYTHON")
    if named and output(named, "-c", USABLE_PYTHON) is None:
        die(f"HALYARD_PYTHON names no Python from 3.9 to 3.13, which Halide's wheels are made for: {named}")
    packages = missing_packages({file: package for part in ("library", *parts) for file, package in NEEDS[part].items()})
    stamp, wanted = VENV / ".halyard", f"{VENV}\n{(ROOT / 'requirements.txt').read_text()}"
    has_venv = (VENV / "bin/python").exists() and stamp.exists() and stamp.read_text() == wanted
    python = None if has_venv else find_python()
    if python and output(python, "-c", "import ensurepip, venv") is None:
        packages.append("python3-venv")
    if python:
        announce_first_call(packages)
    if packages:
        install(*packages)
    if "clang" in parts and not Path(output("clang++", "-print-resource-dir").strip(), "lib").exists():
        install(f"libclang-rt-{output('clang++', '-dumpversion').split('.')[0]}-dev")  # its sanitizers
    if python:
        make_venv(python)
        stamp.write_text(wanted)
    if os.environ.get("HALYARD_CACHE", "off") not in ("", "off"):  # named from here, and used in the build folder
        os.environ["HALYARD_CACHE"] = os.path.abspath(os.environ["HALYARD_CACHE"])
    # As an activated environment does: its CMake and Ninja come first, and the presets tell CMake where it is.
    os.environ.update(VIRTUAL_ENV=str(VENV), PATH=f"{VENV / 'bin'}:{os.environ['PATH']}", NINJA_STATUS="[%f/%t, %es] ")
    return bool(packages)


def missing_packages(needs):
    """What is found needs no package, wherever it came from."""
    headers = [file for file in needs if file.endswith((".h", ".hpp"))]
    missing = [file for file in needs if file not in headers and not (os.path.exists(file) or shutil.which(file))]
    program = "#include <optional>\n" + "".join(f"#if !__has_include(<{each}>)\nMISSING {each}\n#endif\n" for each in headers)
    for compiler in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        try:
            command = shlex.split(compiler)
        except ValueError:
            die(f"CXX is no command, for a quote in it is not closed: {compiler}")
        found = output(*command, "-std=c++20", "-x", "c++", "-E", "-P", "-", text=program)
        if found is not None:
            return [needs[each] for each in missing + re.findall("^MISSING (.*)$", found, re.MULTILINE)]
    die("no C++20 compiler was found; install one (on Debian or Ubuntu: sudo apt-get install g++) or name it in CXX.")


def install(*packages):
    packages = list(dict.fromkeys(packages))
    if shutil.which("apt-get") is None:
        die(f"please install what Debian calls {' '.join(packages)} with this system's package manager.")
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    if sudo and output(*sudo, "true") is None:
        die(f"please type: sudo apt-get update && sudo apt-get install -y {' '.join(packages)}")
    say(f"installing with apt-get: {' '.join(packages)}")
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    now = [*apt, "install", "-y", "--no-install-recommends", *packages]
    # The lists of packages may be missing or stale: they are fetched only if it does not work without.
    if output(*now) is None and (call(*apt, "update", stdout=sys.stderr) != 0 or call(*now, stdout=sys.stderr) != 0):
        die(f"apt-get failed with the messages above; when that is mended: apt-get install -y {' '.join(packages)}")


def find_python():
    others = [f"python3.{minor}" for minor in range(13, 8, -1)]
    for python in filter(None, (os.environ.get("HALYARD_PYTHON"), sys.executable, "python3", *others)):
        if output(python, "-c", USABLE_PYTHON) is not None:
            return python
    die("no Python from 3.9 to 3.13 was found, which Halide's wheels are made for; install one "
        "(on Debian or Ubuntu: sudo apt-get install python3 python3-venv) or name it in HALYARD_PYTHON.")


def wheels_of(requirements):
    return " ".join(re.findall(r"^[^#\s]+", requirements.read_text(), re.MULTILINE))


def announce_first_call(packages):
    say("the first call takes about 3 minutes on two cores for the library, more for tests and benchmarks; later ones build what changed.")
    say(f"It downloads about 130 MB from the Python package index: {wheels_of(ROOT / 'requirements.txt')} and what they need, for {VENV}.")
    say("Debian packages that are missing, and that it installs if it may: " + (" ".join(packages) or "none") + ".")


def make_venv(python):
    """What lies there stays: it may be somebody's own, or a link to one that others share."""
    program, cmake = VENV / "bin/python", VENV / "bin/cmake"
    if not os.path.lexists(program):
        say(f"making the virtual environment {VENV}")
        if call(python, "-m", "venv", VENV) != 0:
            die("no virtual environment could be made; the message above says why.")
    if output(program, "-c", USABLE_PYTHON) is None:
        die(f"the virtual environment {VENV} has no Python from 3.9 to 3.13, which Halide's wheels are made for; name another "
            "folder in HALYARD_VENV, where one is then made.")
    if output(program, "-m", "pip", "--version") is None and call(program, "-m", "ensurepip", stdout=sys.stderr) != 0:
        die(f"the virtual environment {VENV} has no pip and none could be put there; the message above says why.")
    # Programs of one that was moved or copied here name the Python of the other place.
    is_moved = cmake.exists() and not any(f"{each}/bin/" in cmake.read_text(errors="replace") for each in (VENV, VENV.resolve()))
    pip_install(ROOT / "requirements.txt", *(["--force-reinstall"] if is_moved else []))


def pip_install(requirements, *options):
    """What pip prints is shown if it fails."""
    say(f"installing {wheels_of(requirements)}, which takes a minute or two")
    os.environ.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    start, command = time.monotonic(), (VENV / "bin/python", "-m", "pip", "install", *options, "--requirement", requirements)
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        status = call(*command, stdout=printed, stderr=printed)
        printed.seek(0)
        if status != 0:
            sys.stderr.write(printed.read())
    if status != 0:
        die("pip could not install the wheels; the message above says why. Without a network, pip download -r "
            f"{requirements.name} -d FOLDER on a machine that has one fetches {wheels_of(requirements)} and what they need; then "
            "PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER takes them from there. PIP_INDEX_URL names another package index.")
    say(f"installed them in {time.monotonic() - start:.0f} s")


def unpack(architecture, folder, *packages):
    """Debian's libraries for another processor, into the folder alone. Whether they could be had."""
    if (folder / "done").exists():
        return True
    say(f"unpacking Debian's packages for {architecture}: {' '.join(packages)}")
    shutil.rmtree(folder, ignore_errors=True)
    for each in ("state/lists/partial", "cache/archives/partial"):
        (folder / each).mkdir(parents=True)
    (folder / "state/status").touch()
    options = {"Dir::State": folder / "state", "Dir::State::status": folder / "state/status", "Dir::Cache": folder / "cache",
               "APT::Architecture": architecture, "APT::Architectures::": architecture, "Acquire::Languages": "none",
               "APT::Sandbox::User": "root"}
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    try:
        for command in ([*apt, "update"], [*apt, "download", *packages]):
            subprocess.run(command, cwd=folder, stdout=sys.stderr, check=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
            package.unlink()
    except (OSError, subprocess.CalledProcessError):
        return False
    for each in ("state", "cache"):
        shutil.rmtree(folder / each)
    (folder / "done").touch()
    return True
