#!/usr/bin/env python3
"""./run in a folder of its own, where compiler, CMake and programs are stand-ins: what it answers, refuses and keeps.
usage: test_run.py [--bench PROGRAM] [--tune PROGRAM] [--experiments PROGRAM] [--cmake PROGRAM]; with the options of the first
three the texts of `run` are compared, and what it reads from CMake's files with what CMake reads."""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = argparse.Namespace(bench=None, tune=None, experiments=None, cmake=None)

# Until the test lets go, or has given up.
WAIT = """tries=0
while [ "$HELD" != nothing ] && [ ! -e "$GO" ] && [ $tries -lt 200 ]; do
    sleep 0.1 && tries=$((tries + 1))
done
"""
CMAKE = """#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*" -B "*) folder=${*#* -B } && mkdir -p "${folder%% -D*}" ;;
esac
case "$*" in
*--install*)
    for prefix; do :; done
    prefix=$DESTDIR$prefix
    mkdir -p "$prefix/lib/pkgconfig" && cp "$PC" "$prefix/lib/pkgconfig/halyard.pc"
    ;;
*"$HELD"*)
    """ + WAIT + """
    ;;
*-DHALYARD_TUNED=*) echo "-- Schedule parameters: some" ;;
esac
"""
# What halyard-bench does: a wrong filter is refused, results go where they are told to.
BENCH = """#!/bin/sh
case "$*" in
*--list-peers*) echo "mkl  1.0" && exit ;;
*"--filter nothing"*) echo "no row matches" >&2 && exit 2 ;;
*--list*) exit ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    esac
    shift
done
echo new >"$json"
"""
# What bench/report/report.py does: the tables go where they are told to.
REPORT = """import sys
with open(sys.argv[sys.argv.index("--text") + 1], "w") as file:
    file.write("new\\n")
"""


def options_in(text):
    """The options at the beginning of a line."""
    return set(re.findall(r"^ +(?:-\w, ?)?(--[a-z-]+)", text, re.MULTILINE)) - {"--help", "--version"}


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "check out's"
        self.venv, self.log = self.root / ".venv", self.root / "log"
        self.report = self.root / "build/release/report"
        for each in ("run", "requirements.txt", "CMakePresets.json", "tools/build.py", "tools/choices.py", "tools/prepare.py",
                     "cmake/HalyardTarget.cmake", "operations.cmake"):
            (self.root / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / each, self.root / each)
        shutil.copytree(ROOT / "tools/words", self.root / "tools/words")
        shutil.copytree(ROOT / "bench/report", self.root / "bench/report", ignore=shutil.ignore_patterns("__pycache__"))
        self.script("bench/report/report.py", REPORT)
        self.script("bench/report/readme.py", 'import os, sys\nprint(*sys.argv[1:], file=open(os.environ["LOG"], "a"))\n')
        shutil.copytree(ROOT / "bench/shapes", self.root / "bench/shapes")
        for each in ("mkl", "onednn"):
            self.script(f"bench/peers/{each}_peer.py", "")
        self.script("bench/peers/install", "#!/bin/sh\n")
        self.script("bin/c++", "#!/bin/sh\ncat >/dev/null\n")
        for each in ("apt-get", "sudo"):
            self.script(f"bin/{each}", "#!/bin/sh\nexit 1\n")

    def script(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def prepared(self):
        """A virtual environment and an earlier build with results."""
        self.script(".venv/bin/python", f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
        self.script(".venv/bin/cmake", CMAKE)
        (self.venv / ".halyard").write_text(f"{self.venv}\n{(self.root / 'requirements.txt').read_text()}")
        self.script("build/release/bench/halyard-bench", BENCH)
        (self.root / "build/release/CMakeCache.txt").write_text(
            f"CMAKE_HOME_DIRECTORY:INTERNAL={self.root}\nCMAKE_INSTALL_LIBDIR:PATH=lib\n")
        self.report.mkdir(parents=True)
        for each in ("bench.json", "bench.txt"):
            (self.report / each).write_text("old\n")

    def environment(self, **more):
        return {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", "LOG": str(self.log), "HELD": "nothing", "GO": str(self.root / "go"),
                "PC": str(self.root / "halyard.pc"), "CXX": "c++", "HOME": str(self.root), **more}

    def run_it(self, *words, program=None, folder=None, **more):
        return subprocess.run([program or str(self.root / "run"), *words], capture_output=True, text=True, timeout=60,
                              cwd=folder, env=self.environment(**more))

    def files(self):
        return sorted(str(path) for path in self.root.rglob("*"))

    def logged(self):
        return self.log.read_text() if self.log.exists() else ""

    def words(self):
        text = self.run_it("help").stdout
        return re.findall(r"^([a-z-]+) +[A-Zp]", text, re.MULTILINE)

    def test_help_is_at_once(self):
        """In a checkout in which nothing was made yet."""
        before = self.files()
        words = self.words()
        self.assertLessEqual({"build", "test", "fuzz", "bench", "tune", "experiments", "wheel", "cuda-kit", "docs", "help"},
                             set(words))
        for word in words:
            for arguments in ([word, "--help"], [word, "-h"]) if word != "help" else ([word],):
                done = self.run_it(*arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
                self.assertTrue(done.stdout.startswith("usage: ./run "), arguments)
        self.assertEqual(self.files(), before)

    def test_a_mistyped_word_costs_nothing(self):
        self.prepared()
        before = self.files()
        for words, answer in ((["tset"], "did you mean test?"), (["bogus"], "unknown word 'bogus'. There are build"), ([], "which word?"), (["tune", "shwo"], "did you mean show?"),
                              (["fuzz", "weights", "confg"], "did you mean config?"),
                              (["test", "--sanitize", "adress"], "did you mean address?"), (["bench", "--clang"], "'--clang'"),
                              (["test", "--room", "liner"], "did you mean linear?"), (["test", "--room", "arm"], "core, cpp, cuda"),
                              (["test", "--room", "linear", "--target", "cuda"], "--room cuda"),
                              (["test", "--room", "linear,cuda"], "--room cuda"), (["test", "--room", "linear,op"], "did you mean ops?"),
                              (["bench", "--quik"], "did you mean --quick?"),
                              (["bench", "--count", "--quick"], "--quick"), (["bench", "--update"], "--update"),
                              (["bench", "--compare", "none"], "--compare"), (["build", "--prefix"], "--prefix")):
            done = self.run_it(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(answer, done.stderr)
        for word in set(self.words()) - {"help"}:
            for option in ("--quik", "--quik=3", "--"):
                done = self.run_it(word, option)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"{word} does not know '{option.split('=')[0]}'", done.stderr)
                self.assertIn(f"usage: ./run {word}", done.stderr)
        self.assertEqual(self.files(), before)

    def test_a_wrong_name_costs_nothing(self):
        """In a checkout in which nothing was made yet; the answer says what there is."""
        before = self.files()
        isas, least = {"x86_64": ("sse41, avx2, avx512", "sse41"), "aarch64": ("neon, neon_fp16", "neon")}[os.uname().machine]
        for words, answer in ((["build", "--isas", "avx3"], f"argument --isa: 'avx3' is none of all, {isas}"),
                              (["build", "--isa=avx3"], f"argument --isa: 'avx3' is none of all, {isas}"),
                              (["build", "--target", "arm64", "--isa", "neon,sse41"], "'sse41' is none of all, neon, neon_fp16"),
                              (["test", "--isas=f32"], f"'f32' is none of all, {isas}"),
                              (["tune", "--isas", "avx3"], f"'avx3' is none of all, {least}"),
                              (["bench", "--isas", "avx3"], f"'avx3' is none of {least}"),
                              (["bench", "--isa", "all"], f"'all' is none of {least}"),
                              (["build", "--dtypes", "f32,f17"], "argument --dtypes: 'f17' is none of all, f32, f16, bf16; did you mean f16?"),
                              (["tune", "--dtype", "f17"], "argument --dtype: 'f17' is none of all, f32, f16, bf16"),
                              (["test", "--operations", "norms,sofmax"], "did you mean softmax?"),
                              (["bench", "--peers", "mkl,foo"], "argument --peers: 'foo' is none of all, none, mkl, onednn\n"),
                              (["bench", "--shapes", "quik"], "argument --shapes: 'quik' is none of count, default, full,"),
                              (["bench", "--compare", "none", "native", "--shapes", "quik"], "did you mean quick?"),
                              (["bench", "--model", "model.gguf"], "argument --model: there is no file 'model.gguf'"),
                              (["bench", "--more-peers", "run"], "argument --more-peers: there is no folder 'run'"),
                              (["bench", "--filter", "("], "argument --filter: '(' is no regular expression: missing )"),
                              (["test", "--filter", "*norm"], "argument --filter: '*norm' is no regular expression: nothing to repeat"),
                              (["test", "--label", "[a\\]"], "argument --label: '[a\\]' is no regular expression: unterminated")):
            done = self.run_it(*words, folder=self.root)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(answer, done.stderr)
        self.assertEqual(self.files(), before)

    def test_what_this_machine_lacks_is_refused(self):
        """At once, where the kernel's list of the processor's features says so; built it can be."""
        has = Path("/proc/cpuinfo").read_text().split()
        features = {"x86_64": {"avx2": "avx2", "avx512": "avx512f", "amx": "amx_bf16"},
                    "aarch64": {"neon_fp16": "asimdhp", "neon_bfmmla": "bf16"}}[os.uname().machine]
        self.prepared()
        (self.root / "halyard.pc").touch()
        self.script("build/release-subset/CMakeCache.txt", "CMAKE_INSTALL_LIBDIR:PATH=lib\n")
        self.script("build/release/schedules/tune/halyard-tune", "#!/bin/sh\n")
        for isa, feature in features.items():
            for word in ("bench", "tune"):
                done = self.run_it(word, "--isa", isa)
                self.assertEqual(done.returncode, 0 if feature in has else 2, done.stderr)
                self.assertEqual(f"argument --isa: '{isa}' is none of " in done.stderr, feature not in has)
            self.assertEqual(self.run_it("build", "--isa", isa).returncode, 0)

    def test_a_right_name_is_not_refused(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        isa = {"x86_64": "sse41", "aarch64": "neon"}[os.uname().machine]
        self.script("build/release-subset/CMakeCache.txt", "CMAKE_INSTALL_LIBDIR:PATH=lib\n")
        for word in ("--isa", "--isas"):
            self.log.unlink(missing_ok=True)
            done = self.run_it("build", word, isa, "--operations", "norms,softmax_backward")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"-DHALYARD_ISAS={isa} -DHALYARD_DTYPES=all -DHALYARD_OPERATIONS=norms,softmax_backward\n", self.logged())
        self.script("build/release/bench/halyard-bench", BENCH.replace("#!/bin/sh\n", '#!/bin/sh\necho "bench $*" >>"$LOG"\n'))
        (self.root / "own,list.txt").touch()
        self.script("more/other_peer.py", "")
        for words in (["--isas", isa], [f"--isas={isa}"], ["--peers", "mkl,none"], ["--peers", "other", "--more-peers", "more"],
                      ["--shapes", "own,list.txt"], ["--shapes", "quick"], ["--filter", "^a[[:alpha:]]\\d{2}|b$"]):
            self.log.unlink(missing_ok=True)
            done = self.run_it("bench", *words, folder=self.root)
            self.assertEqual((done.returncode, "Warning" in done.stderr), (0, False), done.stderr)
            self.assertIn(f" {' '.join(words)}\n".replace("--isas", "--isa"), self.logged())

    def test_peers_are_listed_before_anything_is_built(self):
        shutil.copy(ROOT / "bench/peers/install", self.root / "bench/peers/install")
        before = self.files()
        done = self.run_it("bench", "--list-peers")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("There are mkl, onednn.\n./run bench --peers NAME,... installs"), done.stdout)
        self.assertRegex(done.stdout, "\n  mkl         its wheel, .*\n")
        self.assertEqual(self.files(), before)
        self.prepared()
        done = self.run_it("bench", "--list-peers")
        self.assertEqual((done.returncode, done.stdout), (0, "mkl  1.0\n"))
        self.assertEqual(self.logged(), "")

    def test_a_wrong_python_is_named(self):
        """Also where a virtual environment is there already."""
        for before in (lambda: None, self.prepared):
            before()
            done = self.run_it("build", HALYARD_PYTHON="/no/python")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(done.stderr, "run: HALYARD_PYTHON names no Python from 3.9 to 3.13, which Halide's wheels are made for: "
                                          "/no/python\n")
        (self.root / "halyard.pc").touch()
        for right in ("", sys.executable):
            self.assertEqual(self.run_it("build", HALYARD_PYTHON=right).returncode, 0)

    def test_the_first_call_says_what_it_takes(self):
        """The answer of a machine whose pip reaches nothing names what helps; a later call is silent."""
        self.script("bin/c++", "#!/bin/sh\ncat >/dev/null\n[ -z \"$LACKS\" ] || echo MISSING xxhash.h\n")
        before = self.files()
        done = self.run_it("build", LACKS="yes")
        self.assertEqual(done.returncode, 1)
        said = re.findall("(?m)^run: (.*)$", done.stderr)
        self.assertRegex(said[0], r"^the first call takes about \d+ minutes")
        self.assertRegex(said[1], rf"^It downloads about \d+ MB from the Python package index: halide==\S+ .*, for {re.escape(str(self.venv))}\.$")
        self.assertEqual(said[2], "Debian packages that are missing, and that it installs if it may: libxxhash-dev.")
        self.assertEqual(self.files(), before)
        self.script(".venv/bin/python", '#!/bin/sh\ncase "$*" in *" install "*) echo no network >&2 && exit 1 ;; esac\n')
        done = self.run_it("build", HALYARD_VENV=str(self.venv))
        self.assertEqual(done.returncode, 1)
        self.assertIn("installs if it may: none.\n", done.stderr)
        self.assertIn("\nno network\n", done.stderr)
        for each in ("pip could not install the wheels", "PIP_INDEX_URL", "PIP_FIND_LINKS", "pip download -r requirements.txt",
                     "fetches halide==", "ninja=="):
            self.assertIn(each, done.stderr.splitlines()[-1])
        self.prepared()
        (self.root / "halyard.pc").touch()
        self.assertNotIn("the first call", self.run_it("build").stderr)

    def test_results_stay_until_there_are_new_ones(self):
        self.prepared()
        texts = [self.report / "bench.json", self.report / "bench.txt"]
        done = self.run_it("bench", "--filter", "nothing")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual([text.read_text() for text in texts], ["old\n", "old\n"])
        done = self.run_it("bench", "--json", str(self.root / "elsewhere"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(texts[0].read_text(), "old\n")
        self.assertEqual((self.root / "elsewhere").read_text(), "new\n")
        done = self.run_it("bench")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([text.read_text() for text in texts], ["new\n", "new\n"])
        self.assertEqual(sorted(path.name for path in self.report.iterdir()), ["bench.json", "bench.txt"])

    def test_publish_needs_every_peer(self):
        self.prepared()
        self.script("bench/peers/install", "#!/bin/sh\necho onednn\nexit 1\n")
        done = self.run_it("bench", "--publish")
        self.assertEqual(done.returncode, 1)
        self.assertIn("could not be installed: onednn", done.stderr)
        self.assertEqual(self.logged(), "")
        self.assertEqual(self.run_it("bench", "--peers", "onednn").returncode, 0)
        self.script("bench/peers/install", "#!/bin/sh\n")
        for words in (["--publish", "--peers", "none"], ["--peers=onednn", "--publish"]):
            done = self.run_it("bench", *words)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--publish measures beside all peers", done.stderr)
        self.script("build/release/bench/halyard-bench", BENCH.replace("mkl  1.0", "mkl  MISSING: why"))
        done = self.run_it("bench", "--publish")
        self.assertEqual(done.returncode, 1)
        self.assertIn("these are missing:\nmkl", done.stderr)
        self.assertEqual((self.report / "bench.json").read_text(), "new\n")
        self.assertNotIn("--publish", self.logged())
        elsewhere = BENCH.replace("mkl  1.0", "mkl  MISSING: not for this machine: why")
        self.script("build/release/bench/halyard-bench", elsewhere)
        self.assertEqual(self.run_it("bench", "--publish", "--peers", "all").returncode, 0)
        self.assertIn(f"--publish {self.report}/bench.json", self.logged())

    def test_how_it_says_to_use_the_library_is_right_in_any_folder(self):
        self.prepared()
        text = (ROOT / "cmake/halyard.pc.in").read_text()
        for name, value in (("PC_PREFIX", "${pcfiledir}/../.."), ("PC_LIBDIR", "${prefix}/lib"),
                            ("PC_INCLUDEDIR", "${prefix}/include")):
            text = text.replace(f"@HALYARD_{name}@", value)
        (self.root / "halyard.pc").write_text(re.sub("@.*@", "0", text))
        names = ("plain", "a b", "it's", 'a"b', "a$b", "a&b", "a;b", "a${b}", "a\\b", "a' \"$b")
        # The checkout's own path has a quote.
        for prefix in [folder / name for folder in (self.root, self.root.parent) for name in names]:
            done = self.run_it("build", "--prefix", str(prefix))
            self.assertEqual(done.returncode, 0, done.stderr)
            # A semicolon divides CMake's lists.
            self.assertEqual(shlex.split(re.search(r"configured with (.*)", done.stdout)[1]),
                             ["-DCMAKE_PREFIX_PATH=" + str(prefix).replace(";", "\\;")])
            command = re.search(r"pkg-config: +(.*)", done.stdout)[1]
            flags = subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
            folders = [os.path.realpath(each[2:]) for each in shlex.split(flags) if each[:2] in ("-I", "-L")]
            self.assertEqual(folders, [str(prefix / "include"), str(prefix / "lib")])

    def test_it_finds_its_checkout_however_it_is_called(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        link, other = self.root.parent / "link", self.root.parent / "other"
        link.symlink_to(self.root / "run")
        (other / self.root.name).mkdir(parents=True)
        for program, more in ((str(link), {}), (f"{self.root.name}/run", {"CDPATH": str(other)})):
            done = self.run_it("build", program=program, folder=self.root.parent, **more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"Installed in {self.root}/dist:", done.stdout)

    def test_other_scripts_find_their_folder_too(self):
        shutil.copy(ROOT / "bench/peers/install", self.root / "bench/peers/install")
        other = self.root / "other"
        (other / "bench/peers").mkdir(parents=True)
        done = self.run_it(program="bench/peers/install", folder=self.root, CDPATH=str(other))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"peers: there is no virtual environment at {self.venv}; ./run build makes one.\n")

    def test_the_virtual_environment_may_be_named_from_here(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        elsewhere = self.root.parent / "else where"
        self.venv.rename(elsewhere)
        stamp = elsewhere / ".halyard"
        stamp.write_text(stamp.read_text().replace(str(self.venv), str(elsewhere)))
        done = self.run_it("build", folder=self.root.parent, HALYARD_VENV=elsewhere.name)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_cache_of_kernels_may_be_named_from_here(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        self.script(".venv/bin/cmake", CMAKE.replace('echo "$*"', 'echo "cache: $HALYARD_CACHE."'))
        for given, used in (("some where", self.root.parent / "some where"), ("/some/where", "/some/where"), ("off", "off"), ("", "")):
            self.log.unlink(missing_ok=True)
            done = self.run_it("build", folder=self.root.parent, HALYARD_CACHE=given)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(set(self.logged().splitlines()), {f"cache: {used}."})

    def test_a_virtual_environment_without_pip_gets_it(self):
        """One whose making was interrupted, or that another program made."""
        self.prepared()
        (self.root / "halyard.pc").touch()
        (self.venv / ".halyard").unlink()
        self.script(".venv/bin/python", """#!/bin/sh
case "$*" in
*ensurepip*) : >"$0.has_pip" ;;
"-m pip "*) [ -e "$0.has_pip" ] ;;
esac
""")
        for _ in range(2):
            done = self.run_it("build", HALYARD_VENV=str(self.venv))
            self.assertEqual(done.returncode, 0, done.stderr)

    def made_by_hand(self, folder, usable=True):
        """A virtual environment with no more than a Python, which notes what it is asked to install."""
        for name, text in (("python", f"""#!/bin/sh
case "$*" in
*sys.version_info*) exit {0 if usable else 1} ;;
*" install "*) echo "$0 $*" >>"$LOG" && cp "{self.root}/installed_cmake" "${{0%python}}cmake" ;;
esac
"""), ("kept", "")):
            self.script(folder / "bin" / name, text)
        self.script("installed_cmake", CMAKE)
        self.script("build/release/CMakeCache.txt", "CMAKE_INSTALL_LIBDIR:PATH=lib\n")
        (self.root / "halyard.pc").touch()

    def test_a_virtual_environment_that_it_did_not_make_stays(self):
        """One without our CMake, a link to one that others share, and one that was moved here."""
        for shared in (False, True):
            with self.subTest(shared=shared):
                folder = self.root.parent / "shared environment" if shared else self.venv
                self.made_by_hand(folder)
                if shared:
                    shutil.rmtree(self.venv)
                    self.venv.symlink_to(folder)
                done = self.run_it("build")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"{self.venv}/bin/python -m pip install --requirement", self.logged())
                self.assertTrue((folder / "bin/kept").exists())
        (self.venv / ".halyard").unlink()
        self.script(".venv/bin/cmake", "#!/another place/bin/python\n")
        self.assertEqual(self.run_it("build").returncode, 0)
        self.assertIn("pip install --force-reinstall --requirement", self.logged())
        self.assertTrue((folder / "bin/kept").exists())

    def test_what_pip_prints_is_shown_only_if_it_fails(self):
        self.made_by_hand(self.venv)
        python = self.venv / "bin/python"
        python.write_text(python.read_text() + 'case "$*" in *" install "*) echo Collecting && echo WARNING >&2 ;; esac\n')
        done = self.run_it("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\nrun: installing halide==\S+ .*, which takes a minute or two\nrun: installed them in \d+ s\n")
        for each in ("Collecting", "WARNING"):
            self.assertNotIn(each, done.stdout + done.stderr)

    def test_a_virtual_environment_of_another_python_stays(self):
        self.made_by_hand(self.venv, usable=False)
        self.made_by_hand(self.root / "build/venv")
        done = self.run_it("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{self.root}/build/venv/bin/python -m pip install", self.logged())
        self.assertFalse((self.venv / "bin/cmake").exists())
        done = self.run_it("build", HALYARD_VENV=str(self.venv))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"the virtual environment {self.venv} has no Python from 3.9 to 3.13", done.stderr)

    def test_a_wheel_is_made_by_pip(self):
        """In a build of pip's own, so that nothing is configured here."""
        self.prepared()
        self.script(".venv/bin/python", '#!/bin/sh\necho "$*" >>"$LOG"\n[ -z "$FAILS" ]\n')
        done = self.run_it("wheel")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.logged(), f"-m pip wheel --no-deps --wheel-dir {self.root}/dist {self.root}\n")
        self.assertEqual(self.run_it("wheel", FAILS="yes").returncode, 1)

    def test_it_says_where_it_installed_and_nothing_else(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        prefix = self.root / "prefix"
        earlier = prefix / "a/halyard.pc"
        earlier.parent.mkdir(parents=True)
        earlier.touch()
        for more, folder in (({}, prefix), ({"DESTDIR": str(self.root / "stage")}, Path(f"{self.root}/stage{prefix}"))):
            for name in (str(prefix), os.path.relpath(prefix, self.root.parent)):
                done = self.run_it("build", "--prefix", name, folder=self.root.parent, **more)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"Installed in {folder}:", done.stdout)
                command = re.search(r"pkg-config: +(.*)", done.stdout)[1]
                self.assertEqual(shlex.split(command)[0], f"PKG_CONFIG_PATH={folder}/lib/pkgconfig")
        before = self.logged()
        for words in (["--prefix", ""], ["--prefix="], ["--prefix", "/dev/null"]):
            done = self.run_it("build", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--prefix takes a directory", done.stderr)
        self.assertEqual(self.logged(), before)

    def start(self, word, **more):
        return subprocess.Popen([str(self.root / "run"), word], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env=self.environment(**more))

    def test_two_at_once_do_not_build_over_each_other(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        for held in ("--preset", "--build"):
            self.log.unlink(missing_ok=True)
            (self.root / "go").unlink(missing_ok=True)
            (self.root / "build/release/.halyard").unlink(missing_ok=True)
            with self.start("build", HELD=held) as first:
                while held not in self.logged():
                    self.assertIsNone(first.poll(), "it ended")
                with self.start("build") as second:
                    self.assertTrue(any("waiting for another ./run in this checkout" in line for line in second.stderr))
                    self.assertEqual(sum(held in line for line in self.logged().splitlines()), 1)
                    (self.root / "go").touch()
                    second.stderr.read()
                first.stderr.read()
            self.assertEqual([first.returncode, second.returncode], [0, 0])

    def test_a_signal_ends_it_and_what_it_started(self):
        self.prepared()
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            self.log.unlink(missing_ok=True)
            with self.start("build", HELD="--build") as run:
                while "--build" not in self.logged():
                    self.assertIsNone(run.poll(), "it ended")
                run.send_signal(number)
                self.assertNotIn("Traceback", run.stderr.read())  # which ends when all have ended who can write to it
            self.assertEqual(run.returncode, status)

    def test_a_second_measurement_leaves_the_first_alone(self):
        self.prepared()
        self.script("build/release/bench/halyard-bench", BENCH.replace("echo new", WAIT + "echo new"))
        with self.start("bench", HELD="the measurement") as first:
            while not (self.report / "unfinished").exists():
                self.assertIsNone(first.poll(), "it ended")
            done = self.run_it("bench")
            self.assertEqual(done.returncode, 1)
            self.assertIn("another ./run bench", done.stderr)
            (self.root / "go").touch()
            first.stderr.read()
        self.assertEqual(first.returncode, 0)
        self.assertEqual((self.report / "bench.json").read_text(), "new\n")
        self.assertEqual(self.run_it("bench").returncode, 0)

    def test_it_names_the_packages_that_are_missing(self):
        self.prepared()
        self.script("bin/c++", "#!/bin/sh\ncat >/dev/null\necho MISSING xxhash.h\n")
        done = self.run_it("build")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "apt-get install -y libxxhash-dev")
        self.script("bin/sudo", "#!/bin/sh\nshift\nexec \"$@\"\n")
        self.script("bin/apt-get", "#!/bin/sh\necho apt-get \"$*\" >>\"$LOG\"\n")
        (self.root / "halyard.pc").touch()
        done = self.run_it("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.logged(), "^apt-get .*install .*libxxhash-dev\n.*--preset release")

    def test_a_compiler_that_is_no_command_is_named(self):
        self.prepared()
        done = self.run_it("build", CXX="g++ -DNAME='a")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "run: CXX is no command, for a quote in it is not closed: g++ -DNAME='a\n")

    def test_a_second_call_configures_nothing(self):
        self.prepared()
        (self.root / "halyard.pc").touch()
        (self.root / "build/release/build.ninja").touch()
        for more, again in (({}, True), ({}, False), ({"CC": "other"}, True), ({"CC": "other"}, False)):
            self.log.unlink(missing_ok=True)
            done = self.run_it("build", **more)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("--preset release -B" in self.logged(), again)
            self.assertEqual("--fresh" in self.logged(), again and "CC" in more)  # a cache for another compiler is no use

    def test_a_folder_that_cmake_cannot_build_in_is_named(self):
        self.prepared()
        for character, name in ((";", "a semicolon"), ('"', "a double quote"), ("\\", "a backslash"), ("<", "a '<'"), ("|", "a '|'"),
                                ("\n", "a line's end")):
            moved = self.root.parent / f"check{character}out"
            self.root.rename(moved)
            done = subprocess.run([str(moved / "run"), "build"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{name}: {moved}\n", done.stderr)
            moved.rename(self.root)
            done = self.run_it("build", HALYARD_VENV=str(moved))
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{name}: {moved}\n", done.stderr)

    def test_a_folder_that_cannot_be_written_to_is_named(self):
        self.prepared()
        shutil.rmtree(self.root / "build")
        for make in (lambda path: path.symlink_to(self.root / "nowhere/build"), Path.touch):
            make(self.root / "build")
            done = self.run_it("build")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, f"\nrun: {re.escape(str(self.root / 'build'))}[^\n]*: [^\n]*\n$")
            self.assertNotIn("Traceback", done.stderr)
            (self.root / "build").unlink()

    def test_a_room_builds_and_runs_its_tests_alone(self):
        self.prepared()
        self.script(".venv/bin/ctest", "#!/bin/sh\necho ctest \"$*\" >>\"$LOG\"\n")
        for words, built, ran in ((["--room", "linear"], " --target room-linear", " -L ^room-(linear)$"), (["--quick"], "", " -L ^quick$"),
                                  (["--room", "ops", "--quick"], " --target room-ops", " -L ^room-(ops)$ -L ^quick$"),
                                  (["--room", "ops,core"], " --target room-ops room-core", " -L ^room-(ops|core)$")):
            self.log.unlink(missing_ok=True)
            done = self.run_it("test", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.logged().splitlines()[-2:], [f"--build --preset test{built}", f"ctest --preset test{ran}"])

    def test_compare_builds_what_it_is_told_to(self):
        self.prepared()
        shutil.rmtree(self.root / "build/release/bench")
        self.run_it("bench", "--compare", "none", "native")
        built = [line for line in self.logged().splitlines() if "--build" in line]
        self.assertEqual(built, [f"--build {self.root}/build/compare-{each} --target halyard-bench" for each in ("none", "native")])

    def test_compare_checks_its_rows_before_it_builds(self):
        self.prepared()
        for options, word in ((["--filter", "nothing"], "no row matches"), (["--quick"], "--quick is not for --compare")):
            done = self.run_it("bench", "--compare", "none", "native", *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(word, done.stderr)
            self.assertEqual(self.logged(), "")


class Texts(unittest.TestCase):
    """What `run` says of a word is what its program takes."""

    def said(self, word):
        return options_in(subprocess.run([str(ROOT / "run"), word, "--help"], capture_output=True, text=True, check=True).stdout)

    def taken(self, *command):
        return options_in(subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout)

    def test_bench(self):
        if PROGRAMS.bench is None:
            self.skipTest("no program")
        compare = self.taken(sys.executable, str(ROOT / "bench/report/compare.py"))
        self.assertEqual(self.said("bench"),
                         self.taken(PROGRAMS.bench) | compare | {"--compare", "--count", "--update", "--publish", "--text"})

    def test_lists(self):
        """The lists of CMake's files are what CMake reads."""
        if PROGRAMS.cmake is None:
            self.skipTest("no program")
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "lists.cmake")
            read = {}
            for processor in ("x86_64", "aarch64"):
                script.write_text(f"""
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {processor})
include("{ROOT}/cmake/HalyardTarget.cmake")
function(halyard_operation name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "GROUP" "NEEDS;KERNELS;FUNCTIONS;SOURCES")
    list(APPEND groups ${{arg_GROUP}})
    list(REMOVE_DUPLICATES groups)
    set(groups ${{groups}} PARENT_SCOPE)
    set(names ${{names}} ${{name}} PARENT_SCOPE)
endfunction()
include("{ROOT}/operations.cmake")
foreach(list IN ITEMS HALYARD_ALL_ISAS HALYARD_ALL_DTYPES groups names)
    list(JOIN ${{list}} " " text)
    message("${{text}}")
endforeach()
""")
                done = subprocess.run([PROGRAMS.cmake, "-P", script], capture_output=True, text=True, check=True)
                read[processor] = [line.split() for line in done.stderr.splitlines()]
        sys.path.insert(0, str(ROOT / "tools"))
        import choices
        self.assertEqual([choices.isas("x86-64"), choices.isas("arm64")], [lists[0] for lists in read.values()])
        self.assertEqual(list(choices.FEATURES), choices.isas("x86-64") + choices.isas("arm64"))
        _, dtypes, groups, names = read["x86_64"]
        self.assertEqual(choices.lists_of_target("HALYARD_ALL_DTYPES"), [dtypes])
        self.assertEqual(choices.operations(), groups + names)

    def test_rooms(self):
        done = subprocess.run([str(ROOT / "run"), "test", "--help"], capture_output=True, text=True, check=True)
        said = re.search(r"--room (\S+)", done.stdout)[1].removesuffix(",...").split("|")
        self.assertEqual(said, sorted({each.parent.name for each in ROOT.glob("tests/*/CMakeLists.txt")} - {"fuzz", "support"}))

    def test_tune(self):
        if PROGRAMS.tune is None:
            self.skipTest("no program")
        self.assertEqual(self.said("tune"), self.taken(PROGRAMS.tune))

    def test_experiments(self):
        if PROGRAMS.experiments is None:
            self.skipTest("no program")
        taken = self.taken(PROGRAMS.experiments) - {"--output"}  # that is given by `run`
        for each in ("depth", "norms", "ffn", "activations", "training", "ablation"):
            taken |= self.taken(PROGRAMS.experiments, each)
        self.assertEqual(self.said("experiments"), taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in vars(PROGRAMS):
        parser.add_argument(f"--{name}")
    _, others = parser.parse_known_args(namespace=PROGRAMS)
    # An empty word stands for a program that is not built.
    unittest.main(argv=[sys.argv[0], *filter(None, others)])
