#!/usr/bin/env python3
"""Checks the cache of kernels (cmake/host/make_kernels.cpp): what is found there, what makes a kernel anew, and what does it no
harm. The generator's program and the compiler are stand-ins that note each call."""
import argparse
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

PROGRAM = PREPROCESSOR = None
# What it makes depends on its arguments and on how it is made itself.
GENERATOR = """#!/bin/sh
echo generate >>"$LOG"
! grep -q panels=refused "$4" || { echo "Error: no such tile"; exit 3; }
while read -r symbol rest; do
    printf '\\t.section\\t.text.%s,\\n' "$symbol"
    echo "VERSION $symbol $rest $3 prefetchnta pldl1strm"
    printf '\\t.size\\t%s_argv, 1\\n' "$symbol"
done <"$4" >"$5"
"""
COMPILER = """#!/bin/sh
echo assemble >>"$LOG"
while [ $# -gt 0 ]; do
    case $1 in
    -c) from=$2 ;;
    -o) to=$2 ;;
    esac
    shift
done
{ echo object of VERSION; cat "$from"; } >"$to"
"""


class Cache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.cache, self.log = self.root / "cache", self.root / "log"
        self.log.touch()
        for name in ("schedule", "libHalide.so"):
            self.write(name, name)
        self.write("generator.cpp", "#include \"schedule\"\nint relu;  // a comment\n")
        self.program("generate", GENERATOR)
        self.program("cc", COMPILER)
        self.digest()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name, text, version="1"):
        path = self.write(name, text.replace("VERSION", version))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *words, **environment):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "LOG": str(self.log), "HALYARD_CACHE": str(self.cache), **environment})

    def digest(self):
        for words in (["digest", self.root / "libHalide.so", "--", PREPROCESSOR, "-E", "-P", self.root / "generator.cpp"],
                      ["digest_of_cc", self.root / "cc"]):
            made = self.run_it("digest", self.root / words[0], *words[1:])
            self.assertEqual(made.returncode, 0, made.stderr)

    def kernels(self, *kernels):
        """A list of kernels."""
        return self.write("list", "".join(f"{kernel}\n" for kernel in kernels))

    def make(self, *arguments, folder="build", assemble=(), generator="generate", target="x86", **environment):
        """What the calls of stand-ins were, and the object."""
        before = self.log.read_text()
        built = self.root / folder / "relu_0.o"
        built.parent.mkdir(exist_ok=True)
        words = ["--assemble", self.root / "digest_of_cc", self.root / "cc", *assemble] if assemble is not None else []
        kernels = self.kernels(f"hk_relu - {' '.join(arguments or ['panels=2'])}", "hk_gelu -")
        made = self.run_it(built, self.root / "digest", kernels, *words, "--", self.root / generator, "relu", target, **environment)
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, "", ""))
        self.assertEqual(built.with_suffix(".s").exists(), assemble is not None)
        return self.log.read_text()[len(before):].split(), built.read_text()

    def entries(self):
        return [path for path in self.cache.rglob("*") if path.is_file()]

    def test_another_folder_gets_the_same(self):
        for assemble, calls in ((None, ["generate"]), ((), ["generate", "assemble"])):
            made, first = self.make(assemble=assemble, folder=f"first {assemble}")
            self.assertEqual(made, calls)
            made, second = self.make(assemble=assemble, folder=f"second {assemble}")
            self.assertEqual((made, second), ([], first))
        texts = [(self.root / each / "relu_0.s").read_text() for each in ("first ()", "second ()")]
        self.assertEqual(texts[0], texts[1])
        self.assertIn("prefetcht1 pldl2keep", texts[1])
        # It is a copy: what a build does to its file is nobody else's.
        (self.root / "second ()/relu_0.o").write_text("other")
        self.assertEqual(self.make(folder="third"), ([], first))

    def test_where_prefetches_go(self):
        for near, kinds in (("true", "prefetcht0 pldl1keep"), ("false", "prefetcht1 pldl2keep")):
            self.make(f"near={near}")
            text = (self.root / "build/relu_0.s").read_text()
            self.assertEqual(re.findall("prefetch.*", text), [kinds, "prefetcht1 pldl2keep"])

    def test_the_order_of_arguments_and_the_path_of_the_program_do_not_matter(self):
        self.make("panels=2", "rows=3")
        shutil.copy(self.root / "generate", self.write("elsewhere/generate", ""))
        self.assertEqual(self.make("rows=3", "panels=2", generator="elsewhere/generate")[0], [])

    def test_what_makes_a_kernel_makes_it_anew(self):
        self.make()

        def changed(what, change, **more):
            with self.subTest(what):
                change()
                self.digest()
                self.assertEqual(self.make(**more)[0], ["generate", "assemble"])
                self.assertEqual(self.make(**more)[0], [])

        changed("generator", lambda: self.write("generator.cpp", "#include \"schedule\"\nint another;\n"))
        changed("schedule", lambda: self.write("schedule", "another"))
        changed("Halide", lambda: self.write("libHalide.so", "another"))
        changed("assembler", lambda: self.program("cc", COMPILER, version="2"))
        changed("flags of the assembler", lambda: None, assemble=["-march=other"])
        changed("target", lambda: None, target="arm")
        for arguments in (["panels=3"], ["panels=2", "more=1"]):
            self.assertEqual(self.make(*arguments)[0], ["generate", "assemble"], arguments)
        self.assertEqual(self.make()[0], [])

    def test_an_unchanged_digest_keeps_its_time(self):
        before = (self.root / "digest").stat().st_mtime_ns
        self.write("generator.cpp", "#include \"schedule\"\nint relu;  // another comment\n")
        self.digest()
        self.assertEqual((self.root / "digest").stat().st_mtime_ns, before)

    def test_a_damaged_entry_is_made_anew(self):
        right = self.make()[1]
        entry, = self.entries()
        good = entry.read_bytes()
        for bad in (b"", good[:-1], good + b"x", good.replace(b"object of 1", b"object of 2"), good.replace(b" ", b" 9", 1),
                    b"halyard-kernel 18446744073709551615 18446744073709551615 2 0\n", b"halyard-kernel -1 -1 -1 0\n"):
            entry.write_bytes(bad)
            self.assertEqual(self.make(), (["generate", "assemble"], right), bad[:60])
            self.assertEqual(entry.read_bytes(), good)
            self.assertEqual(self.make()[0], [])

    def test_an_entry_that_is_no_file_of_kernels_is_passed_over(self):
        right = self.make()[1]
        entry, = self.entries()

        def claims_more_than_memory():
            with entry.open("wb") as file:
                file.truncate(1 << 42)

        for replace in (lambda: os.mkfifo(entry), lambda: entry.symlink_to(entry.name), lambda: entry.symlink_to("/dev/zero"),
                        claims_more_than_memory):
            entry.unlink()
            replace()
            self.assertEqual(self.make(), (["generate", "assemble"], right))
            self.assertEqual(self.make(), ([], right))
        entry.unlink()
        entry.mkdir()
        self.assertEqual(self.make(), (["generate", "assemble"], right))

    def test_no_cache_is_needed(self):
        self.assertEqual(self.make(HALYARD_CACHE="off")[0], self.make(HALYARD_CACHE="off")[0])
        self.assertEqual(self.entries(), [])
        self.make(HALYARD_CACHE="", XDG_CACHE_HOME=str(self.root / "xdg"))
        self.make(HALYARD_CACHE="", HOME=str(self.root / "home"))
        self.make(HALYARD_CACHE="")
        for each in ("xdg/halyard", "home/.cache/halyard"):
            self.assertEqual(len([path for path in (self.root / each).rglob("*") if path.is_file()]), 1, each)

    def test_a_cache_that_cannot_be_written_to_fails_nothing(self):
        self.cache.write_text("a file")
        self.assertEqual(self.make()[0], ["generate", "assemble"])
        full = self.make(HALYARD_CACHE="/dev/full")
        self.assertEqual(full[0], ["generate", "assemble"])

    def test_a_kernel_that_cannot_be_made_is_not_kept(self):
        for _ in range(2):
            made = self.run_it(self.write("build/relu_0.o", ""), self.root / "digest", self.kernels("hk_relu - panels=refused"), "--",
                               self.root / "generate", "relu", "x86")
            self.assertEqual((made.returncode, made.stdout), (3, "Error: no such tile\n"))
        self.assertEqual(self.entries(), [])

    def test_an_object_of_another_name_is_refused(self):
        kernels = self.kernels("hk_relu -")
        for name in ("relu_0.obj", "hk_relu", "k", "", ".o"):
            made = self.run_it(name, self.root / "digest", kernels, "--", self.root / "generate", "relu", "x86")
            self.assertEqual((made.returncode, made.stderr),
                             (1, f"halyard_make_kernels: '{name}' does not end in .o, as an object file must\n"))

    def test_a_list_that_is_wrong_is_refused(self):
        for prefetch, message in (("many", "a number of bytes is needed, not 'many'"), ("-1", "a number of bytes is needed, not '-1'"),
                                  ("1k", "a number of bytes is needed, not '1k'"), ("64", "a streamed form of 'hk_relu' needs --assemble"),
                                  ("", f"'{self.root / 'list'}' has a line without a symbol and a prefetch")):
            made = self.run_it("k.o", self.root / "digest", self.kernels(f"hk_relu {prefetch}"), "--", self.root / "generate", "relu", "x86")
            self.assertEqual((made.returncode, made.stderr), (1, f"halyard_make_kernels: {message}\n"))
        self.assertEqual(self.log.read_text(), "")

    def test_many_at_once(self):
        right = self.make(folder="alone", HALYARD_CACHE="off")[1]
        words = lambda i: [PROGRAM, self.write(f"build{i}/relu_0.o", ""), self.root / "digest", self.root / "list", "--assemble",
                           self.root / "digest_of_cc", self.root / "cc", "--", self.root / "generate", "relu", "x86"]
        environment = {"PATH": os.environ["PATH"], "LOG": str(self.log), "HALYARD_CACHE": str(self.cache)}
        running = [subprocess.Popen(words(i), env=environment) for i in range(20)]
        for each in running[::5]:
            each.kill()
        statuses = [each.wait() for each in running]
        for i, status in enumerate(statuses):
            if i % 5:
                self.assertEqual((status, (self.root / f"build{i}/relu_0.o").read_text()), (0, right))
        self.assertEqual(self.make(), ([], right))

    def test_it_is_bounded_and_what_was_used_last_stays(self):
        self.make()
        entry, = self.entries()
        # Files that claim 40 MiB of the 32 that a part may have, without the disk having them.
        others = [entry.parent / f"{i:032x}" for i in range(10)]
        for i, other in enumerate(others):
            with other.open("wb") as file:
                file.truncate(4 << 20)
            os.utime(other, (1000 + i, 1000 + i))
        os.utime(entry, (1, 1))
        self.assertEqual(self.make()[0], [])  # which counts as a use
        entry_of_other = None
        for number in range(200):  # until one is stored into the same part
            self.make(f"panels={number + 10}")
            stored = [path for path in entry.parent.iterdir() if path != entry and path not in others]
            if stored:
                entry_of_other = stored[0]
                break
        self.assertIsNotNone(entry_of_other)
        self.assertTrue(entry.exists())
        left = [other for other in others if other.exists()]
        self.assertEqual(left, others[len(others) - len(left):])
        self.assertEqual(len(left), 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("compiler")
    options, rest = parser.parse_known_args()
    PROGRAM, PREPROCESSOR = options.program, options.compiler
    unittest.main(argv=["check_kernel_cache.py", *rest])
