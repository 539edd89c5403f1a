#!/usr/bin/env python3
"""bench/report/compare.py on runs made up here: what it calls slower, its exit status, and what it says of damaged files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPARE = Path(__file__).resolve().parents[2] / "bench/report/compare.py"


def estimate(median, mad=0.0):
    return {"median": median, "mad": mad}


def run_of(rows, cpu="a processor"):
    """rows: {name: (seconds, seconds of the limit, relative spread)}; the lines of a file."""
    def row(name, seconds, limit, spread):
        fraction = limit / seconds
        return {"name": name, "kernel": name, "group": "", "dtype": "f32", "state": "hot", "isa": "", "failure": "",
                "is_wrong": False, "rows": 1, "d": 1, "threads": 1, "rounds": 7, "bytes": 8, "noise": 0.0, "peers": {},
                "seconds": estimate(seconds), "fraction_of_limit": estimate(fraction, fraction * spread / 1.4826),
                "ours_over_ours_again": estimate(1.0)}
    head = {"schema": 3, "machine": {"cpu": cpu, "processors": 2}, "threads": 1, "peers": [], "limits": {}, "library": {}}
    return [head, *[row(name, *each) for name, each in rows.items()], {"interrupted": False, "busy_elsewhere": 0.0}]


def text_of(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, content):
        path = Path(self.folder.name) / name
        path.write_text(content if isinstance(content, str) else text_of(content))
        return str(path)

    def compare(self, a, b, *options):
        done = subprocess.run([sys.executable, str(COMPARE), self.file("a.json", a), self.file("b.json", b),
                               "--json", str(Path(self.folder.name) / "out.json"), *options], capture_output=True, text=True)
        verdicts = {}
        out = Path(self.folder.name) / "out.json"
        if out.exists():
            verdicts = {row["name"]: row["verdict"] for row in json.loads(out.read_text())["rows"]}
        return done, verdicts

    def test_slower_faster_same(self):
        a = run_of({"slow": (1e-3, 5e-4, 0.01), "fast": (1e-3, 5e-4, 0.01), "steady": (1e-3, 5e-4, 0.01)})
        b = run_of({"slow": (1.1e-3, 5e-4, 0.01), "fast": (0.9e-3, 5e-4, 0.01), "steady": (1.015e-3, 5e-4, 0.01)})
        done, verdicts = self.compare(a, b)
        self.assertEqual(verdicts, {"slow": "SLOWER", "fast": "faster", "steady": "same"})
        self.assertEqual(done.returncode, 3)
        self.assertIn("slow", done.stderr)

    def test_the_limit_for_failing(self):
        a, b = run_of({"row": (1e-3, 5e-4, 0.001)}), run_of({"row": (1.1e-3, 5e-4, 0.001)})
        self.assertEqual(self.compare(a, b, "--fail-above", "5")[0].returncode, 3)
        self.assertEqual(self.compare(a, b, "--fail-above", "20")[0].returncode, 0)

    def test_noise_hides_a_change(self):
        a, b = run_of({"row": (1e-3, 5e-4, 0.05)}), run_of({"row": (1.1e-3, 5e-4, 0.05)})
        done, verdicts = self.compare(a, b)
        self.assertEqual((done.returncode, verdicts), (0, {"row": "same"}))

    def test_a_slower_machine_is_no_change(self):
        """`change` is that of the times beside it."""
        a, b = run_of({"row": (1e-3, 5e-4, 0.001)}), run_of({"row": (1.5e-3, 7.5e-4, 0.001)})
        done, verdicts = self.compare(a, b)
        self.assertEqual((done.returncode, verdicts), (0, {"row": "same"}))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["row", "A", "B", "change", "to", "limit", "noise"])
        self.assertEqual(lines[1].split(), ["row", "1.00", "ms", "1.50", "ms", "+50.0%", "+0.0%", "0.1%"])
        self.assertIn("B takes 1.500 of A's time", lines[2])

    def test_a_slower_limit_alone_makes_no_row_faster(self):
        a, b = run_of({"row": (1e-3, 5e-4, 0.001)}), run_of({"row": (1.01e-3, 7.5e-4, 0.001)})
        done, verdicts = self.compare(a, b)
        self.assertEqual((done.returncode, verdicts), (0, {"row": "same"}))

    def test_builds(self):
        """Programs that answer with results made up here."""
        times = {"a": (1e-3, 2e-3), "b": (1.5e-3, 2e-3)}  # of one and the same row, in two passes
        for name, seconds in times.items():
            folder = Path(self.folder.name) / name / "bench"
            folder.mkdir(parents=True)
            for number, each in enumerate(seconds):
                (folder / str(number)).write_text(text_of(run_of({"row": (each, 5e-4, 0.001)})))
            program = folder / "halyard-bench"
            program.write_text("""#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
*"--filter none"*) echo "no row matches" >&2; exit 2 ;;
*--list*) echo row; exit ;;
esac
number=$(cat count 2>/dev/null || echo 0)
while [ "$1" != --json ]; do shift; done
cp "$number" "$2"
echo $((number + 1)) >count
""")
            program.chmod(0o755)
        builds = [str(Path(self.folder.name) / name) for name in times]

        def compare(*options):
            return subprocess.run([sys.executable, str(COMPARE), *builds, *options], capture_output=True, text=True)

        listed = compare("--list")
        self.assertEqual((listed.returncode, listed.stdout.split()), (0, ["row", "row"]))
        self.assertEqual(compare("--list", "--filter", "none").returncode, 1)
        done = compare("--passes", "2")
        # Medians of 1 and 2 ms, and of 1.5 and 2 ms.
        self.assertIn("1.50 ms", done.stdout)
        self.assertIn("1.75 ms", done.stdout)
        self.assertIn("+16.7%", done.stdout)

    def test_another_machine_is_said(self):
        rows = {"row": (1e-3, 5e-4, 0.001)}
        self.assertIn("different machines", self.compare(run_of(rows), run_of(rows, cpu="another"))[0].stderr)

    def test_files_that_cannot_be_compared(self):
        good = run_of({"row": (1e-3, 5e-4, 0.001)})
        for bad, word in (("{\n", "damaged"), (run_of({"other": (1e-3, 5e-4, 0.001)}), "in common")):
            done, _ = self.compare(good, bad)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_comparison_that_cannot_be_written_is_said(self):
        good = run_of({"row": (1e-3, 5e-4, 0.001)})
        for out in (str(Path(self.folder.name) / "none" / "out.json"), "/dev/full"):
            done, _ = self.compare(good, good, "--json", out)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{out} cannot be written", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_bound_that_is_none_is_refused(self):
        a, b = run_of({"row": (1e-3, 5e-4, 0.001)}), run_of({"row": (1.1e-3, 5e-4, 0.001)})
        for bound in ("nan", "inf", "-1"):
            self.assertEqual(self.compare(a, b, "--fail-above", bound)[0].returncode, 2)


if __name__ == "__main__":
    unittest.main()
