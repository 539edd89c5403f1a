#!/usr/bin/env python3
"""Checks the cache of objects (cmake/host/compile.cpp) with a real compiler: what is found there, what is compiled anew, and what is
passed on. usage: check_object_cache.py PROGRAM COMPILER"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = COMPILER = None
SOURCE = '#include "value"\nint answer() { return VALUE; }\n'


class Objects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for clone in ("one", "other"):
            (self.root / clone / "build").mkdir(parents=True)
            self.write(SOURCE, clone)

    def write(self, source, clone="one", value="42"):
        (self.root / clone / "source.cpp").write_text(source)
        (self.root / clone / "value").write_text(f"#define VALUE {value}\n")

    def run_it(self, *flags, clone="one", **environment):
        folder = self.root / clone
        object = folder / "build/source.o"
        words = [PROGRAM, COMPILER, f"-I{folder}", "-Wall", *flags, "-MD", "-MT", object, "-MF", f"{object}.d", "-o", object, "-c", folder / "source.cpp"]
        return subprocess.run([str(each) for each in words], capture_output=True, text=True, timeout=60,
                              env={"PATH": os.environ["PATH"], "HALYARD_CACHE": str(self.root / "cache"), **environment})

    def entries(self):
        return [path for path in self.root.glob("cache/**/*") if path.is_file()]

    def compile(self, *flags, clone="one", **environment):
        """How many entries came to be."""
        before = len(self.entries())
        made = self.run_it(*flags, clone=clone, **environment)
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, "", ""))
        self.assertEqual(sorted(each.name for each in (self.root / clone / "build").iterdir()), ["source.o", "source.o.d"])
        self.assertIn("value", (self.root / clone / "build/source.o.d").read_text())
        return len(self.entries()) - before

    def test_another_clone_gets_the_object(self):
        self.assertEqual(self.compile("-O1"), 1)
        entry, = self.entries()
        right = (self.root / "one/build/source.o").read_bytes()
        os.utime(entry, (1, 1))
        self.assertEqual(self.compile("-O1", clone="other"), 0)
        self.assertEqual((self.root / "other/build/source.o").read_bytes(), right)
        self.assertGreater(entry.stat().st_mtime, 1)  # it was used
        self.assertIn(str(self.root / "other/value"), (self.root / "other/build/source.o.d").read_text())

    def test_what_makes_an_object_makes_it_anew(self):
        self.compile("-O1")
        self.assertEqual(self.compile("-O2"), 1)
        self.assertEqual(self.compile("-O1", "-DOTHER"), 1)
        self.write(SOURCE, value="43")
        self.assertEqual(self.compile("-O1"), 1)
        self.write(SOURCE + "// A comment alone is no other text.\n", value="43")
        self.assertEqual(self.compile("-O1"), 0)
        self.write("int other() { return __LINE__; }\n" + SOURCE)
        self.assertEqual(self.compile("-O1"), 1)
        self.write("\nint other() { return __LINE__; }\n" + SOURCE)
        self.assertEqual(self.compile("-O1"), 1)

    def test_what_depends_on_more_is_not_kept(self):
        for flag in ("-g", "-g3", "-fsanitize=undefined", "-march=native", "--coverage", "-fprofile-arcs"):
            made = self.run_it(flag)
            self.assertEqual((made.returncode, made.stderr), (0, ""), flag)
            self.assertEqual(self.entries(), [], flag)

    def test_what_changes_meanwhile_is_not_kept(self):
        # A compiler that does so, of a folder whose name make has to escape.
        folder = self.root / "one/a folder"
        folder.mkdir()
        (self.root / "one/value").rename(folder / "value")
        compiler = self.root / "compiler"
        for change, kept in (("true", 1), (f"echo '#define VALUE 43' >'{folder}/value'", 0), (f"touch -d 2001-01-01 '{folder}/value'", 0)):
            compiler.write_text(f'#!/bin/sh\n"{COMPILER}" "$@" || exit\ncase " $* " in *" -c "*) {change} ;; esac\n')
            compiler.chmod(0o755)
            before = len(self.entries())
            words = [PROGRAM, compiler, f"-I{folder}", "-MD", "-MF", "d", "-o", "o", "-c", "source.cpp"]
            subprocess.run([str(each) for each in words], check=True, cwd=self.root / "one",
                           env={"PATH": os.environ["PATH"], "HALYARD_CACHE": str(self.root / "cache")})
            self.assertEqual(len(self.entries()) - before, kept, change)

    def test_warnings_are_seen_each_time(self):
        self.write("static int unused() { return 1; }\n" + SOURCE)
        for _ in range(2):
            made = self.run_it()
            self.assertEqual(made.returncode, 0)
            self.assertIn("unused", made.stderr)
        self.assertEqual(self.entries(), [])

    def test_errors_are_those_of_the_compiler(self):
        for text in ("int answer() { return }\n", '#include "missing"\n'):
            self.write(text)
            right = subprocess.run([COMPILER, "-c", self.root / "one/source.cpp", "-o", os.devnull], capture_output=True).returncode
            made = self.run_it()
            self.assertEqual(made.returncode, right)
            self.assertIn("source.cpp:1", made.stderr)
            self.assertEqual(self.entries(), [])

    def test_no_cache_is_needed(self):
        self.assertEqual(self.compile(HALYARD_CACHE="off"), 0)
        (self.root / "full").write_text("a file")
        self.assertEqual(self.compile(HALYARD_CACHE=str(self.root / "full")), 0)

    def test_other_calls_are_passed_on(self):
        made = subprocess.run([PROGRAM, COMPILER, "--version"], capture_output=True, text=True)
        self.assertEqual(made.stdout, subprocess.run([COMPILER, "--version"], capture_output=True, text=True).stdout)
        for words, message in (([], "wrong arguments; compile.cpp says what there is"), (["./missing"], "'./missing' could not be started")):
            made = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
            self.assertEqual((made.returncode, made.stderr), (1, f"halyard_compile: {message}\n"))


if __name__ == "__main__":
    PROGRAM, COMPILER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
