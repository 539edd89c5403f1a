#!/usr/bin/env python3
"""halyard-bench with the peers of tests/data/peers: one works, others are wrong, crash, hang or are absent; and what
it says to wrong command lines. usage: test_peers.py HALYARD_BENCH"""

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

PROGRAM = sys.argv[1] if len(sys.argv) == 2 else ""
BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH / "report"))
sys.dont_write_bytecode = True
from run import load  # noqa: E402

PEERS = Path(__file__).resolve().parents[1] / "data" / "peers"
LIST = "rows kernel=silu type=f32 shape=4x64,4x128 state=hot threads=1\n"
CRASHES, WORKS = "silu/f32/4x64/hot/1t", "silu/f32/4x128/hot/1t"


def command(folder, *options, shapes=None):
    return [PROGRAM, "--shapes", str(shapes or folder / "list.txt"), "--python", sys.executable,
            "--json", str(folder / "bench.json"), "--rounds", "2", "--threads", "1", *options]


class Peers(unittest.TestCase):
    """One run with all of them."""

    LIMIT = 15

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = Path(folder.name)
        (path / "list.txt").write_text(LIST)
        options = ["--more-peers", str(PEERS), "--peers", "good,wrong,crashing,hanging,absent", "--peer-limit", str(cls.LIMIT)]
        cls.done = subprocess.run(command(path, *options), capture_output=True, text=True, timeout=300)
        run = load(path / "bench.json")
        cls.rows = {row["name"]: row["peers"] for row in run.rows}
        cls.peers = {peer["name"]: peer for peer in run.data["peers"]}
        cls.report = subprocess.run([sys.executable, str(BENCH / "report/report.py"), str(path / "bench.json")],
                                    capture_output=True, text=True)

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
        self.assertIn("absent (ImportError: the library is not", " ".join(self.report.stdout.split()))


class Folders(unittest.TestCase):
    def test_what_a_killed_run_left_goes_and_others_cannot_look_in(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name)
        (path / "list.txt").write_text(LIST)
        parent = path / "temporary"
        left = parent / f"halyard-bench-L{os.getpid() % 100000:05}"
        left.mkdir(parents=True)
        (left / "input0").write_text("")
        with subprocess.Popen(command(path, "--more-peers", str(PEERS), "--peers", "hanging", "--peer-limit", "2"),
                              env={**os.environ, "TMPDIR": str(parent)}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            modes = set()
            while process.poll() is None:
                for each in set(parent.glob("halyard-bench-*")) - {left}:
                    try:
                        modes.add(stat.S_IMODE(each.stat().st_mode))
                    except FileNotFoundError:
                        pass
                time.sleep(0.02)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(list(parent.iterdir()), [])
        self.assertEqual(modes, {0o700})


class Odd(unittest.TestCase):
    """Peers that do not keep to what served.py says of them."""

    def test_a_peer_that_is_odd_costs_itself_alone(self):
        good = "return [lambda: silu(request)] * request['sets'], lambda: [silu(request)], 'note'"
        peers = {
            "version": ("VERSION = 3", good), "types": ("DTYPES = None", good), "numbers": ("DTYPES = [32]", good),
            "notes": ("", good.replace("'note'", "None")), "few": ("", good.replace("[silu(request)],", "[],")),
            "children": ("", "subprocess.Popen(['sleep', '7654'])\n    time.sleep(1000)"),
            "ended": ("", "subprocess.Popen(['sleep', '7654'])\n    os._exit(0)")}
        head = ("import os, subprocess, time\nfrom silu import silu\n"
                "VERSION = '1'\nOPERATIONS = ['silu']\nDTYPES = ['f32']\n")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "list.txt").write_text(LIST)
            shutil.copy(PEERS / "silu.py", folder)
            for peer, (more, body) in peers.items():
                text = f"{head}{more}\ndef prepare(request):\n    {body}\n"
                (folder / f"{peer}_peer.py").write_text(text)
            options = ["--more-peers", name, "--peers", ",".join(peers), "--peer-limit", "5"]
            done = subprocess.run(command(folder, *options), capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            run = load(folder / "bench.json")
        self.assertEqual({each["name"]: each["missing"] for each in run.data["peers"] if each["missing"]},
                         {"types": "TypeError: 'NoneType' object is not iterable"})
        self.assertEqual(run.about["version"].version, "3")
        for row in run.rows:
            self.assertEqual(row["peers"]["notes"]["note"], "None")
            self.assertEqual(row["peers"]["few"]["reason"], "ValueError: 0 outputs instead of 1")
        end = time.monotonic() + 10  # a killed process may take a moment to go
        while (left := sleepers()) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(left, [])


def sleepers():
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if text_of(path) == "sleep\0007654\0"]


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return ""  # it has ended


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.list = self.folder / "list.txt"
        self.list.write_text(LIST)
        self.json = self.folder / "bench.json"

    def test_ctrl_c_keeps_what_was_measured(self):
        self.list.write_text("rows kernel=silu type=f32 shape=" + ",".join(f"4x{8 * i}" for i in range(1, 400)) +
                             " state=hot threads=1\n")
        with subprocess.Popen(command(self.folder, "--peers", "none"), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as process:
            end = time.monotonic() + 60
            while text_of(self.json).count("\n") < 2 and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        run = load(self.json)
        self.assertTrue(run.data["interrupted"])
        self.assertTrue(text_of(self.json).splitlines()[-1].startswith('{"interrupted":true'))
        self.assertGreater(len(run.rows), 0)
        self.assertLess(len(run.rows), 399)

    def test_a_killed_run_keeps_what_was_measured(self):
        self.list.write_text("rows kernel=silu type=f32 rows=4,8,16,32,64 d=64,128,256,512 state=hot threads=1\n")
        with subprocess.Popen(command(self.folder, "--peers", "none"), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 60
            while text_of(self.json).count("\n") < 2 and time.monotonic() < end:
                time.sleep(0.02)
            process.kill()
        run = load(self.json)
        self.assertGreater(len(run.rows), 0)
        self.assertTrue(run.data["interrupted"])

    def test_unknown_names_list_what_there_is(self):
        for options, *words in ((["--peers", "onednm"], "'onednm' is no peer", "there are:", "onednn"),
                                (["--shapes", "nowhere"], "no work list 'nowhere'", "default", "quick"),
                                (["--filter", "nothing_like_it"], "no row matches"),
                                (["--filter", "("], "no regular expression")):
            shapes = options.pop() if options[0] == "--shapes" else None
            done = subprocess.run(command(self.folder, *([] if shapes else options), shapes=shapes),
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, options)
            for word in words:
                self.assertIn(word, done.stderr)

    def test_an_instruction_set_that_this_machine_lacks_is_refused(self):
        """By the kernel's list of the processor's features."""
        if os.uname().machine != "x86_64":
            self.skipTest("the names of instruction sets are those of x86-64")
        has = set(Path("/proc/cpuinfo").read_text().split())
        for isa, features in (("sse41", {"sse4_1"}), ("avx2", {"avx2", "fma", "f16c"}),
                              ("avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
                              ("avx512_bf16", {"avx512_bf16"}), ("amx", {"amx_tile", "amx_bf16"})):
            done = subprocess.run(command(self.folder, "--isa", isa, "--list"), capture_output=True, text=True, timeout=60)
            if features <= has:
                self.assertEqual(done.returncode, 0, done.stderr)
            else:
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"--isa: {isa} not in {{", done.stderr)

    def test_no_place_for_the_result_is_said_before_anything_is_measured(self):
        self.json.write_text("old")
        nowhere = str(self.folder / "none" / "result")
        for options, word in ((["--json", nowhere], f"cannot write '{nowhere}'"), (["--json", ""], "takes the name of a file"),
                              (["--json", str(self.folder)], "Is a directory"), (["--peer-limit", "nan"], "--peer-limit")):
            done = subprocess.run(command(self.folder, "--peers", "none", *options), capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn(word, done.stderr)
            self.assertNotIn("measur", done.stderr.split("\n")[0])
        self.assertEqual(self.json.read_text(), "old")

    def test_a_damaged_list_is_named(self):
        self.list.write_text("\nrows kernel=slu type=f32 shape=4x64 state=hot threads=1\n")
        done = subprocess.run(command(self.folder), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{self.list}:2:13: unknown kernel 'slu'", done.stderr)


if __name__ == "__main__":
    if not os.access(PROGRAM, os.X_OK):
        sys.exit("usage: test_peers.py HALYARD_BENCH")
    unittest.main(argv=sys.argv[:1])
