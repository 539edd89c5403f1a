#!/usr/bin/env python3
"""Checks the streamed form of kernels, which stores around the caches (cmake/host/streamed_form.cpp): which stores it changes, and which
kernels have none, because an address need not be aligned there. Generator and compiler are stand-ins."""
import argparse
import pathlib
import stat
import subprocess
import tempfile
import unittest

PROGRAM = None
GENERATOR = """#!/bin/sh
cp "$(dirname "$0")/kernel.s" "$5"
"""
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    -o) touch "$2" ;;
    esac
    shift
done
"""
LOAD, STORE = "\tvmovups\t(%rdi,%rax), %zmm0", "\tvmovups\t%zmm0, (%rsi,%rax)"
ALIAS = "\t.set\thk_streamed_argv, hk_argv\n"


class StreamedForm(unittest.TestCase):
    def form_of(self, *blocks, prefetch=4096):
        """What is added to a kernel of loops."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (("generate", GENERATOR), ("cc", COMPILER)):
                (root / name).write_text(text)
                (root / name).chmod(stat.S_IRWXU)
            for name in ("digest", "digest_of_cc"):
                (root / name).write_text(name)
            kernel = "\t.section\t.text.hk,\n\t.globl\thk\nhk:\n" + "".join(
                f".LBB0_{i}:\n" + "\n".join(lines) + f"\n\tjne\t.LBB0_{i}\n" for i, lines in enumerate(blocks)) + "\tretq\n"
            kernel += "hk_argv:\n\t.size\thk_argv, 1\n"
            (root / "kernel.s").write_text(kernel)
            (root / "list").write_text(f"hk {prefetch}\n")
            subprocess.run([PROGRAM, root / "made.o", root / "digest", root / "list", "--assemble", root / "digest_of_cc",
                            root / "cc", "--", root / "generate", "relu", "x86"], check=True, env={"HALYARD_CACHE": "off",
                            "PATH": "/usr/bin:/bin"}, timeout=60)
            text = (root / "made.s").read_text()
            self.assertTrue(text.startswith(kernel))
            return text[len(kernel):]

    def test_stores_go_around_the_caches(self):
        form = self.form_of([LOAD, STORE, "\tvmovups\t%zmm1, 64(%rsi,%rax)"])
        self.assertIn("hk_streamed:\n.Lstreamed_BB0_0:\n\tprefetcht0\t4096(%rdi,%rax)\n" + LOAD + "\n\tvmovntps\t%zmm0, (%rsi,%rax)\n"
                      "\tvmovntps\t%zmm1, 64(%rsi,%rax)\n\tjne\t.Lstreamed_BB0_0\n", form)

    def test_a_form_without_prefetches_has_none(self):
        form = self.form_of([LOAD, STORE], prefetch=0)
        self.assertIn(LOAD + "\n\tvmovntps\t%zmm0, (%rsi,%rax)\n", form)
        self.assertNotIn("prefetch", form)

    def test_what_is_left_of_a_row_does_not(self):
        rest = ["\tvmovups\t%zmm0, (%rsi,%rax) {%k1}", "\tvcvtps2ph\t$4, %ymm0, (%rsi,%rax)"]
        form = self.form_of([LOAD, STORE], rest)
        self.assertIn("vmovntps\t%zmm0", form)
        for line in rest:
            self.assertIn(line, form)

    def test_the_stack_does_not(self):
        stores = ["\tvmovups\t%zmm2, 64(%rsp)", "\tvmovups\t%ymm2, -32(%rsp)"]
        form = self.form_of([LOAD, *stores, STORE])
        self.assertIn("vmovntps\t%zmm0", form)
        for line in stores:
            self.assertIn(line, form)

    def test_stores_of_several_widths_are_left(self):
        self.assertIn(ALIAS, self.form_of([LOAD, STORE, "\tvmovups\t%ymm1, 64(%rsi,%rax)"]))

    def test_stores_beside_conversions_are_left(self):
        for conversion in ("vcvtps2ph\t$4, %zmm1, 64(%rsi,%rax)", "vpmovdw\t%zmm1, 64(%rsi,%rax)",
                           "vextracti128\t$1, %ymm1, 64(%rsi,%rax)"):
            self.assertIn(ALIAS, self.form_of([LOAD, STORE, "\t" + conversion]), conversion)

    def test_a_kernel_without_stores_of_vectors_has_none(self):
        self.assertIn(ALIAS, self.form_of([LOAD, "\tvcvtps2ph\t$4, %zmm0, (%rsi,%rax)"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    options, rest = parser.parse_known_args()
    PROGRAM = options.program
    unittest.main(argv=["check_streamed_form.py", *rest])
