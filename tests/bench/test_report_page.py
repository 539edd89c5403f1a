#!/usr/bin/env python3
"""The report's page in a browser: no script fails, nothing is cut or overlaps the edge on a wide and on a narrow screen, and
all can be read in light and in dark. Exits with 77, which is skipped, where there is no Chromium."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH / "report"))
sys.dont_write_bytecode = True

import page  # noqa: E402
from run import Run, load, read_lines  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LATEST = BENCH / "results" / "latest.json"

# Runs in the page: what is amiss there goes to the page round it, whose width is not the window's.
PROBE = """
const faults = [];
addEventListener("error", (event) => faults.push("script: " + event.message));
addEventListener("load", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  const width = document.documentElement.clientWidth, named = (each) => each.getAttribute("class") + " " + each.textContent.slice(0, 60);
  if (document.documentElement.scrollWidth > width) faults.push("the page is wider than its window");
  for (const each of document.body.querySelectorAll("*")) {
    const box = each.getBoundingClientRect(), style = getComputedStyle(each);
    if (!each.closest(".scroll, .rows-box") && box.width && (box.right > width + 1 || box.left < -1)) {
      faults.push("beyond the edge: " + named(each));
    }
    if (style.overflowX === "hidden" && each.scrollWidth > each.clientWidth + 1) faults.push("cut: " + named(each));
  }
  for (const text of document.querySelectorAll("svg text")) {
    const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
    if (inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1)) faults.push("cut: " + named(text));
  }
  for (const table of document.querySelectorAll("table")) {
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      for (const row of table.tBodies[0].rows) {
        if (getComputedStyle(head).textAlign !== getComputedStyle(row.cells[i]).textAlign) {
          faults.push("not below its heading: " + named(row.cells[i]));
        }
      }
    });
  }
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map((each) => {
      const part = each / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  for (const css of ["body", ".note", ".good", ".bad", "th", "a", ".legend", ".time"]) {
    for (const each of document.querySelectorAll(css)) {
      const ink = light(getComputedStyle(each).color);
      if (Math.max(ink, paper) / Math.min(ink, paper) < 4.5) faults.push("low contrast: " + css);
    }
  }
  const sort = document.querySelector("#all-rows th button");
  sort.click();
  const names = [...document.querySelectorAll("#all-rows tbody tr")].map((row) => row.cells[0].textContent);
  const sorted = [...names].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  if (names.join() !== sorted.join()) faults.push("a click does not sort");
  parent.postMessage(JSON.stringify({ faults: [...new Set(faults)], width: innerWidth, paper }), "*");
});
"""
AROUND = """<!DOCTYPE html><body><iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>
<script>addEventListener("message", (event) => document.title = encodeURIComponent(event.data));</script>"""


def without_peers():
    head, rows = read_lines(LATEST)
    return Run({**head, "peers": []}, [{**row, "peers": {}} for row in rows])


class Browser(unittest.TestCase):
    def faults(self, run, width, mode):
        with tempfile.TemporaryDirectory() as folder:
            html = page.page(run).replace("<head>", f"<head><script>{PROBE}</script>", 1)
            (Path(folder) / "page.html").write_text(html, encoding="utf-8")
            (Path(folder) / "around.html").write_text(AROUND.format(width=width))
            command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
            command += ["--window-size=1600,1000", "--virtual-time-budget=20000", "--dump-dom"]
            command += [f"--blink-settings=preferredColorScheme={0 if mode == 'dark' else 1}"]
            done = subprocess.run([*command, f"file://{folder}/around.html"], capture_output=True, text=True, timeout=300)
        title = re.search("<title>(.*?)</title>", done.stdout)
        self.assertIsNotNone(title, done.stderr[-2000:])
        found = json.loads(unquote(title.group(1)))
        self.assertEqual(found["width"], width)
        self.assertEqual(found["paper"] < 0.2, mode == "dark")
        return found["faults"]

    def test_wide_and_narrow_in_light_and_dark(self):
        run = load(LATEST)
        for width in (1400, 400):
            for mode in ("light", "dark"):
                with self.subTest(width=width, mode=mode):
                    self.assertEqual(self.faults(run, width, mode), [])

    def test_without_peers(self):
        self.assertEqual(self.faults(without_peers(), 400, "light"), [])


if __name__ == "__main__":
    if CHROMIUM is None:
        print("skipped: there is no Chromium here")
        sys.exit(77)
    unittest.main()
