#!/usr/bin/env python3
"""halyard-bench with the peers of tests/data/peers: one works, others are wrong, crash, hang or are absent; and what
it says to wrong command lines. usage: test_peers.py [EMULATOR...] HALYARD_BENCH"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = sys.argv[1:]
PEERS = Path(__file__).resolve().parent / "data" / "peers"
LIST = "rows kernel=silu type=f32 shape=4x64,4x128 state=hot threads=1\n"
CRASHES, WORKS = "silu/f32/4x64/hot/1t", "silu/f32/4x128/hot/1t"


def command(folder, *options, shapes=None):
    return [
        *PROGRAM,
        "--shapes",
        str(shapes or folder / "list.txt"),
        "--python",
        sys.executable,
        "--json",
        str(folder / "bench.json"),
        "--rounds",
        "2",
        "--threads",
        "1",
        *options,
    ]


class Peers(unittest.TestCase):
    """One run with all of them."""

    LIMIT = 15

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = Path(folder.name)
        (path / "list.txt").write_text(LIST)
        cls.done = subprocess.run(
            command(
                path,
                "--more-peers",
                str(PEERS),
                "--peers",
                "good,wrong,crashing,hanging,absent",
                "--peer-limit",
                str(cls.LIMIT),
            ),
            capture_output=True,
            text=True,
            timeout=300,
        )
        run = json.loads((path / "bench.json").read_text())
        cls.rows = {row["name"]: row["peers"] for row in run["rows"]}
        cls.peers = {peer["name"]: peer for peer in run["peers"]}

    def test_the_run_ends_well(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)

    def test_one_that_works(self):
        for name in (CRASHES, WORKS):
            result = self.rows[name]["good"]
            self.assertFalse(result["is_wrong"])
            self.assertGreater(result["seconds"]["median"], 0)
            self.assertEqual(result["seconds"]["samples"], 2)
            self.assertLess(result["ulps"], 100)
            self.assertIn(result["verdict"], ("ahead", "tie", "behind"))
            self.assertEqual(result["note"], "in Python")
        self.assertEqual(self.peers["good"]["version"], "1")

    def test_a_wrong_result_has_no_time(self):
        self.assertTrue(self.rows[WORKS]["wrong"]["is_wrong"])
        self.assertNotIn("seconds", self.rows[WORKS]["wrong"])
        self.assertGreater(self.rows[WORKS]["wrong"]["error"], 0.5)

    def test_a_crash_costs_its_row_alone(self):
        self.assertIn("its process crashed (Segmentation fault)", self.rows[CRASHES]["crashing"]["reason"])
        self.assertIn("seconds", self.rows[WORKS]["crashing"])

    def test_a_hang_ends_with_its_time(self):
        self.assertIn(f"gave no answer within the row's time ({self.LIMIT} s)", self.rows[CRASHES]["hanging"]["reason"])
        self.assertIn("seconds", self.rows[WORKS]["hanging"])

    def test_an_absent_one_says_so(self):
        self.assertEqual(self.peers["absent"]["missing"], "ImportError: the library is not on this machine")
        self.assertEqual(self.peers["good"]["missing"], "")
        self.assertIn("no absent: ImportError", self.done.stdout)


class Folders(unittest.TestCase):
    def test_what_a_killed_run_left_goes_and_others_cannot_look_in(self):
        parent = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
        left = parent / f"halyard-bench-L{os.getpid() % 100000:05}"
        left.mkdir()
        self.addCleanup(shutil.rmtree, left, ignore_errors=True)
        (left / "input0").write_text("")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name)
        (path / "list.txt").write_text(LIST)
        before = set(parent.glob("halyard-bench-*"))
        with subprocess.Popen(command(path, "--more-peers", str(PEERS), "--peers", "hanging", "--peer-limit", "2"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            modes = set()
            while process.poll() is None:
                for each in set(parent.glob("halyard-bench-*")) - before:
                    try:
                        modes.add(stat.S_IMODE(each.stat().st_mode))
                    except FileNotFoundError:
                        pass
                time.sleep(0.02)
        self.assertEqual(process.returncode, 0)
        self.assertFalse(left.exists())
        self.assertEqual(modes, {0o700})
        self.assertFalse(set(parent.glob("halyard-bench-*")) - before)


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.list = self.folder / "list.txt"
        self.list.write_text(LIST)
        self.json = self.folder / "bench.json"

    def test_ctrl_c_keeps_what_was_measured(self):
        self.list.write_text(
            "rows kernel=silu type=f32 shape="
            + ",".join(f"4x{8 * i}" for i in range(1, 400))
            + " state=hot threads=1\n"
        )
        with subprocess.Popen(
            command(self.folder, "--peers", "none"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            end = time.monotonic() + 60
            while not self.json.exists() and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        run = json.loads(self.json.read_text())
        self.assertTrue(run["interrupted"])
        self.assertGreater(len(run["rows"]), 0)
        self.assertLess(len(run["rows"]), 399)
        self.assertIn("Interrupted", output)

    def test_unknown_names_list_what_there_is(self):
        for options, words in (
            (["--peers", "onednm"], ["'onednm' is no peer", "there are:", "two calls"]),
            (["--shapes", "nowhere"], ["no work list 'nowhere'", "default", "quick"]),
            (["--filter", "nothing_like_it"], ["no row matches"]),
            (["--filter", "("], ["no regular expression"]),
        ):
            shapes = options.pop() if options[0] == "--shapes" else None
            done = subprocess.run(
                command(self.folder, *([] if shapes else options), shapes=shapes),
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 2, options)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_a_group_of_peers_has_a_name(self):
        done = subprocess.run(
            command(self.folder, "--peers", "halide", "--list"), capture_output=True, text=True, timeout=60
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_place_for_the_result_is_said_before_anything_is_measured(self):
        for option in ("--json", "--text"):
            done = subprocess.run(
                command(self.folder, "--peers", "none", option, str(self.folder / "none" / "result")),
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot write '{self.folder / 'none' / 'result'}'", done.stderr)
            self.assertNotIn("measur", done.stderr)

    def test_a_damaged_list_is_named(self):
        self.list.write_text("\nrows kernel=slu type=f32 shape=4x64 state=hot threads=1\n")
        done = subprocess.run(command(self.folder), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.list}:2:13: unknown kernel 'slu'", done.stderr)


if __name__ == "__main__":
    if not PROGRAM or not os.access(PROGRAM[-1], os.X_OK):
        sys.exit("usage: test_peers.py [EMULATOR...] HALYARD_BENCH")
    unittest.main(argv=sys.argv[:1])
