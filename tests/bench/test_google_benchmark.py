#!/usr/bin/env python3
"""halyard-bench with Google Benchmark's own options: what it lists, what its JSON holds, and that Google Benchmark's compare.py
reads it. usage: test_google_benchmark.py [EMULATOR...] HALYARD_BENCH"""

import csv
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv[1:]
COMPARE = Path("/usr/share/benchmark/compare.py")  # Debian's libbenchmark-tools
ROWS = """rows kernel=silu type=f32 shape=4x64,4x128 state=hot threads=1
model tiny d=64 ff=128 heads=4 kv_heads=4 head_dim=16 norm=rms activation=silu gated=yes bias=no
layers model=tiny part=down rows=2 type=f32 state=hot threads=1
"""
NAMES = ["silu/f32/4x64/hot/1t/real_time", "silu/f32/4x128/hot/1t/real_time", "linear/f32/2x128x64/hot/1t/real_time"]


class GoogleBenchmark(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "list.txt").write_text(ROWS)

    def run_it(self, *options):
        command = [*PROGRAM, "--shapes", str(self.folder / "list.txt"), "--benchmark_min_time=0.001", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def test_lists_rows(self):
        done = self.run_it("--benchmark_list_tests")
        self.assertEqual((done.returncode, done.stdout.split()), (0, NAMES), done.stderr)
        done = self.run_it("--benchmark_list_tests=true", "--benchmark_filter=^silu/f32/4x64/")
        self.assertEqual(done.stdout.split(), NAMES[:1])
        done = self.run_it("--benchmark_list_tests", "--filter", "linear")
        self.assertEqual(done.stdout.split(), NAMES[2:])

    def test_json(self):
        out = self.folder / "out.json"
        done = self.run_it("--benchmark_format=json", "--benchmark_repetitions=2", f"--benchmark_out={out}")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown, written = json.loads(done.stdout), json.loads(out.read_text())
        self.assertEqual(shown["benchmarks"], written["benchmarks"])
        self.assertIn("halyard_version", shown["context"])
        runs = [each for each in shown["benchmarks"] if each["run_type"] == "iteration"]
        self.assertEqual([(each["name"], each["repetition_index"]) for each in runs],
                         [(name, index) for name in NAMES for index in (0, 1)])
        self.assertEqual({each["aggregate_name"] for each in shown["benchmarks"] if each not in runs},
                         {"mean", "median", "stddev", "cv"})
        nanoseconds = {"ns": 1, "us": 1e3, "ms": 1e6}
        for each in runs:
            seconds = each["real_time"] * nanoseconds[each["time_unit"]] * 1e-9
            self.assertGreater(seconds, 0)
            self.assertGreater(each["fraction_of_limit"], 0)
            self.assertEqual("flops" in each, each["name"].startswith("linear"))
            moved = {NAMES[0]: 2 * 4 * 64 * 4, NAMES[1]: 2 * 4 * 128 * 4, NAMES[2]: 4 * (2 * 128 + 128 * 64 + 2 * 64)}
            self.assertAlmostEqual(each["bytes_per_second"] * seconds / moved[each["name"]], 1, 6)
            if "flops" in each:
                self.assertAlmostEqual(each["flops"] * seconds / (2 * 2 * 128 * 64), 1, 6)

    def test_other_formats(self):
        done = self.run_it("--benchmark_format=csv", "--benchmark_filter=silu")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([line["name"] for line in lines], NAMES[:2])
        self.assertTrue(all(float(line["bytes_per_second"]) > 0 for line in lines))
        self.assertIn("fraction_of_limit=", self.run_it("--benchmark_filter=4x64").stdout)

    def test_wrong_usage_is_said(self):
        for options, words in (
            (["--benchmark_nonsense"], "does not know '--benchmark_nonsense'"),
            (["--benchmark_list_tests", "--json", "x"], "do not go together"),
        ):
            done = self.run_it(*options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

    @unittest.skipUnless(COMPARE.exists() and importlib.util.find_spec("scipy"), "compare.py and scipy are not here")
    def test_compare_reads_it(self):
        for name in ("a.json", "b.json"):
            self.run_it("--benchmark_format=json", f"--benchmark_out={self.folder / name}")
        command = [sys.executable, str(COMPARE), "benchmarks", str(self.folder / "a.json"), str(self.folder / "b.json")]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in NAMES:
            self.assertIn(name, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
