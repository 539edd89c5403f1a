#!/usr/bin/env python3
"""schedules/tune/report.py on records made up here: the page of good ones, and what it does with others."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPORT = Path(__file__).resolve().parent.parent / "schedules" / "tune" / "report.py"

COMMON = {"schema": 1, "machine": {"cpu": "a processor", "processors": 2}, "family": "elementwise", "kernel": "silu",
          "dtype": "f32", "isa": "avx2", "workloads": ["silu/f32/4x256/hot/1t"]}
TRIAL = {**COMMON, "kind": "trial", "ratio": 1.1, "verdict": "final", "params": {"vectors": 4}, "effort": {"rounds": 5}}
VERDICT = {**COMMON, "kind": "verdict", "ratio": 1.1, "error": 0.01, "noise": 0.01, "is_better": True, "tried": 4,
           "rigor": "quick", "usual": {"vectors": 2}, "best": {"vectors": 4}}
BASELINE = {**COMMON, "kind": "baseline", "label": "mullapudi", "failure": "", "gains": [{"ratio": 0.5}]}


class Report(unittest.TestCase):
    def page_of(self, *lines):
        with tempfile.TemporaryDirectory() as folder:
            database, page = Path(folder) / "tune.jsonl", Path(folder) / "report.html"
            texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
            database.write_bytes(b"\n".join(texts) + b"\n")
            done = subprocess.run([sys.executable, str(REPORT), str(database), "--output", str(page)],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr[-300:])
            return page.read_text(encoding="utf-8")

    def test_other_records_are_left_out(self):
        good = self.page_of(TRIAL, VERDICT, BASELINE)
        self.assertIn("1.100x", good)
        self.assertIn("mullapudi", good)
        for other in (b"", b"\xff", b"{", b"[" * 100000, b'{"kind": "verdict", "ratio": NaN}', {**VERDICT, "isa": 7}):
            self.assertTrue(self.page_of(TRIAL, VERDICT, BASELINE, other) == good, other)
        for record in (TRIAL, VERDICT, BASELINE):
            without = [{key: value for key, value in record.items() if key != field} for field in record]
            other = [{**record, field: value} for field in record for value in (None, [1], {"a": None}, "text", 0, -1)]
            self.assertIn("</html>", self.page_of(TRIAL, VERDICT, BASELINE, *without, *other))

    def test_files_that_cannot_be_read_or_written_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "tune.jsonl"
            database.touch()
            for read, written, named in ((folder, folder + "/r.html", folder), (str(database), folder, folder)):
                done = subprocess.run([sys.executable, str(REPORT), read, "--output", written], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, f"report.py: {named}: Is a directory\n")

    def test_no_text_of_a_record_is_taken_for_html(self):
        for record in (TRIAL, VERDICT, BASELINE):
            texts = [field for field, value in record.items() if isinstance(value, str) and field != "kind"]
            page = self.page_of(record, *({**record, field: record[field] + "\"'><embed>"} for field in texts))
            self.assertFalse("<embed" in page)


if __name__ == "__main__":
    unittest.main()
