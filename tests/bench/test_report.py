#!/usr/bin/env python3
"""bench/report/report.py on runs made up here: what it counts, that the page stands alone and is well formed, and damaged
files."""

import copy
import functools
import html.parser
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH / "report"))
sys.dont_write_bytecode = True

import charts  # noqa: E402
import page  # noqa: E402
import tables  # noqa: E402
from run import DAMAGE, Failure, Row, Run, load, significant, time_text, ulp_text  # noqa: E402

FAMILIES = {"pytorch": "PyTorch", "pytorch-compile": "PyTorch", "separate calls": "halyard"}
TITLES = {"onednn": "oneDNN", "pytorch": "PyTorch eager", "pytorch-compile": "torch.compile"}


def declared(name, missing=""):
    """What a run says of a peer."""
    return {
        "name": name, "version": "1.0", "missing": missing, "family": FAMILIES.get(name, name),
        "title": TITLES.get(name, name), "interface": "C" if name in ("onednn", "mkl") else "Python"}


def estimate(median, mad=0.0):
    return {"median": median, "mad": mad, "least": median, "samples": 7}


def peer(ratio, verdict, ulps=1.0, note=""):
    return {
        "is_wrong": False, "note": note, "error": 1e-7, "ulps": ulps, "seconds": estimate(1e-5 * ratio),
        "ratio": estimate(ratio), "noise": 0.02, "verdict": verdict}


def row(kernel, peers, group="norms", rows=64, d=4096, state="hot", threads=2, seconds=1e-5, **more):
    return {
        "name": f"{kernel}/f32/{rows}x{d}/{state}/{threads}t", "kernel": kernel, "group": group, "dtype": "f32",
        "rows": rows, "d": d, "state": state, "threads": threads, "isa": "avx2", "bytes": 8 * rows * d,
        "traffic": "copy", "rounds": 7, "failure": "", "is_wrong": False, "error": 1e-7, "ulps": 1.5, "tolerance": 1e-5,
        "seconds": estimate(seconds, 0.01 * seconds), "limit_seconds": estimate(0.8 * seconds),
        "limit_stores": "ordinary", "fraction_of_limit": estimate(0.8), "ours_over_ours_again": estimate(1.0), "noise": 0.02, "peers": peers, **more
    }


def layer(rows, seconds, peers):
    more = {
        "d_out": 11008, "flops": 2.0 * rows * 4096 * 11008, "weight_bytes": 4 * 4096 * 11008,
        "weight_set": 4 * 4096 * 11008, "read_seconds": estimate(0.8 * seconds),
        "multiply_add_seconds": estimate(0.1 * seconds)}
    made = row("linear", peers, "linear", rows, 4096, seconds=seconds, **more)
    made["name"] = f"linear/f32/{rows}x4096x11008/hot/2t"
    return made


def run_of(rows):
    bandwidth = [{"stream": stream, "level": level, "working_set": 1 << 20, "threads": threads,
                  "bytes_per_second": speed * threads}
                 for level, speed in (("L1", 3e11), ("memory", 2e10)) for stream in ("read", "copy") for threads in (1, 2)]
    flops = [{"isa": "avx2", "threads": threads, "flops_per_second": threads * 1e11} for threads in (1, 2)]
    return {
        "schema": 3, "date": "2026-01-01 00:00 UTC", "work_list": "default", "interrupted": False,
        "library": {"version": "1.2.3", "isa": "avx2", "compiler": "a compiler"}, "threads": 2, "pinned": False,
        "loop_overhead_seconds": 1e-9, "busy_elsewhere": 0.0,
        "machine": {"cpu": "a <processor>", "system": "a system", "processors": 2, "l1": 32768, "l2": 1 << 20,
                    "l3": 1 << 25, "memory": 1 << 33},
        "limits": {"isa": "avx2", "bandwidth": bandwidth, "flops": flops, "contradictions": []},
        "peers": [declared("fast"), declared("slow"), declared("gone", "is not here & never was")], "rows": rows}


def made(data):
    """The run that a file with this would give."""
    known = {each["name"] for each in data["peers"]}
    more = [
        declared(name) for name in dict.fromkeys(name for row in data["rows"] for name in row["peers"])
        if name not in known]
    return Run({**{key: value for key, value in data.items() if key != "rows"}, "peers": data["peers"] + more},
               data["rows"])


def text_of(data):
    """The file: first what is known before the rows, last what is known after them."""
    end = {key: data[key] for key in ("interrupted", "busy_elsewhere") if key in data}
    head = {key: value for key, value in data.items() if key not in end and key != "rows"}
    return "".join(json.dumps(line) + "\n" for line in [head, *data["rows"], *([end] if end else [])])


def sample():
    """Ahead, tied, behind, wrong, crashed; three sizes of a layer; both thread counts; hot and cold."""
    return run_of([
        row("rms_norm", {"fast": peer(1.5, "ahead"), "slow": peer(3.0, "ahead")}),
        row("rms_norm", {"fast": peer(1.5, "ahead")}, threads=1, seconds=1.9e-5),
        row("rms_norm", {"fast": peer(1.2, "ahead")}, rows=2048, d=8192, state="cold", seconds=1e-3),
        row("silu", {"fast": peer(1.005, "tie", 40.0), "slow": {"reason": "its process crashed (Segmentation fault)"}},
            "activations"),
        row("gelu", {"fast": peer(0.5, "behind", 3.0, "allocates <its> output"),
                     "slow": {"is_wrong": True, "note": "", "error": None, "ulps": None}}, "activations"),
        layer(1, 1e-3, {"fast": peer(1.1, "ahead")}),
        layer(8, 1.2e-3, {"fast": peer(1.3, "ahead")}),
        layer(64, 6e-3, {"fast": peer(1.2, "ahead")})])


def report(program, *arguments):
    """Runs a program of bench/report."""
    return subprocess.run([sys.executable, BENCH / "report" / program, *arguments], capture_output=True, text=True)


class Outline(html.parser.HTMLParser):
    """Fails at tags that do not match, and collects what a page refers to."""

    VOID = {"meta", "input", "br", "img", "link", "wbr"}

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.ids, self.targets = [], [], set(), set()

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                assert value not in self.ids, f"two elements are called {value}"
                self.ids.add(value)
            if name in ("src", "href", "action"):
                ((self.targets if value.startswith("#") else self.outside).add(value)
                 if name == "href" else self.outside.append(value))

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()


def outline_of(text):
    outline = Outline()
    outline.feed(text)
    outline.close()
    assert not outline.open, f"never closed: {outline.open}"
    return outline


class Counting(unittest.TestCase):
    def setUp(self):
        self.run_ = made(sample())

    def test_tally_of_a_peer(self):
        tally = self.run_.tally_of("fast")
        self.assertEqual([tally[key] for key in ("rows", "ahead", "tied", "behind", "wrong")], [8, 6, 1, 1, 0])
        self.assertEqual(self.run_.tally_of("slow")["wrong"], 1)

    def test_a_row_counts_against_two_libraries(self):
        self.assertEqual(self.run_.rows[0].fastest, ("fast", 1.5, "ahead"))
        tally = self.run_.tally()
        self.assertEqual([tally[key] for key in ("rows", "ahead", "tied", "behind", "few", "few_behind", "small")],
                         [1, 1, 0, 0, 7, 1, 0])
        self.assertIn("7 rows with one other library (1 of them behind it)", self.run_.tally_text())
        standings = [str(tables.standing_cell(each)) for each in self.run_.rows]
        self.assertEqual(standings, ["ahead", *["not counted"] * 7])

    def test_peers_of_one_library_are_one_opponent(self):
        def counts(names, **more):
            (each,) = made(run_of([row("exp", {name: peer(1.5, "ahead") for name in names}, **more)])).rows
            return each.counts

        self.assertFalse(counts(["pytorch", "pytorch-compile"]))
        self.assertFalse(counts(["pytorch", "separate calls"]))
        self.assertTrue(counts(["pytorch", "openvino"]))
        self.assertTrue(counts(["pytorch", "somebody's"]))
        # In little time a loop of Python would be measured.
        self.assertFalse(counts(["pytorch", "onednn", "mkl"], seconds=1e-6))
        self.assertTrue(counts(["onednn", "mkl"], seconds=1e-6))

    def test_small_rows_stand_apart(self):
        ratios = {"pytorch": peer(1.5, "ahead"), "onednn": peer(1.2, "ahead")}
        run = made(run_of([row("exp", ratios, "activations"), row("exp", ratios, "activations", rows=1, seconds=1e-6)]))
        groups = {group: len(rows) for group, rows in run.compared_groups().items()}
        self.assertEqual(groups, {"activations": 1, "under 2 µs, not counted": 1})
        self.assertEqual(run.tally()["small"], 1)

    def test_a_missing_compile_is_said(self):
        ratios = {"pytorch": peer(1.5, "ahead"), "onednn": peer(1.2, "ahead")}
        run = made(run_of([row("exp", ratios), row("silu", {**ratios, "pytorch-compile": peer(1.1, "ahead")})]))
        self.assertIn("torch.compile did not take part in 1 of the 2", run.tally_text())

    def test_the_noise_is_that_of_the_ratios(self):
        ratios = {
            "onednn": {**peer(1.5, "ahead"), "noise": 0.07}, "separate calls": {**peer(1.5, "ahead"), "noise": 0.5}}
        self.assertEqual(made(run_of([row("exp", ratios)])).noise(), 0.07)

    def test_an_abnormal_ratio_does_not_count(self):
        def run(*ratios):
            rows = [
                row("exp", {"onednn": peer(1.5, "ahead"), "mkl": peer(ratio, "ahead")}, rows=rows)
                for rows, ratio in zip((8, 16, 32), ratios)]
            return made(run_of(rows))

        self.assertEqual(run(2.0, 9.0, 2.0).abnormal(), {})
        odd = run(2.0, 90.0, 2.1)
        self.assertEqual([list(each.abnormal) for each in odd.rows], [[], ["mkl"], []])
        self.assertEqual([each.counts for each in odd.rows], [True, False, True])
        self.assertAlmostEqual(odd.tally_of("mkl")["mean"], math.sqrt(2.0 * 2.1))
        self.assertEqual(str(tables.ratio_cell(odd.rows[1], "mkl")), "90.00×‡")
        self.assertIn("mkl is abnormal in exp/f32/16x4096/hot/2t", "".join(odd.objections()))

    def test_the_worst_comes_first(self):
        self.assertEqual([(ratio, row["kernel"]) for ratio, row, _ in self.run_.behind()], [(0.5, "gelu")])

    def test_crashes_are_told_from_rows_a_peer_does_not_have(self):
        self.assertEqual([(row["kernel"], peer) for row, peer, _ in self.run_.stopped()], [("silu", "slow")])

    def test_pairs(self):
        self.assertEqual([(one["threads"], more["threads"]) for one, more in charts.thread_pairs(self.run_)], [(1, 2)])

    def test_in_cache_and_out_as_many_rows_are_compared(self):
        def pairs(*rows):
            return [(name, hot.shape, cold.shape) for name, hot, cold in charts.hot_and_cold(made(run_of(rows)))]

        hot = [row("silu", {}, rows=rows, d=d) for rows, d in ((1, 4096), (512, 4096), (512, 768))]
        self.assertEqual(pairs(*hot, row("silu", {}, rows=1, d=8192, state="cold")), [("silu f32", "1x4096", "1x8192")])
        self.assertEqual(pairs(*hot, row("silu", {}, rows=64, d=8192, state="cold")), [])
        self.assertEqual(pairs(*hot, row("gelu", {}, rows=512, state="cold")), [])
        # An equal shape comes before a larger one.
        cold = [row("silu", {}, rows=512, d=d, state="cold") for d in (768, 8192)]
        self.assertEqual(pairs(*hot, *cold), [("silu f32", "512x768", "512x768")])

    def test_a_noisy_run_calls_itself_doubtful(self):
        def run(*noise, group="norms"):
            return made(run_of([row("exp", {}, group, rows=8 + i, noise=each) for i, each in enumerate(noise)]))

        for quiet in (run(), run(0.02), run(0.1, 0.1), run(0.02, 0.03, 0.9)):
            self.assertEqual((quiet.doubts(), "doubtful" in page.page(quiet)), ([], False))
        noisy = run(0.02, 0.14, 0.2)
        self.assertEqual(len(noisy.doubts()), 1)
        texts = page.page(noisy), tables.as_text(noisy.reservations())
        for text in (*noisy.doubts(), *texts, "".join(noisy.objections())):
            text = " ".join(text.split())
            self.assertIn("This run is doubtful: the median noise of its rows is 14%, and a difference", text)
            self.assertIn("call ./run bench again", text)
        rows = [row("exp", {}, rows=8 + i) for i in range(9)]
        one_family = made(run_of([*rows, row("linear", {}, "linear", noise=0.6)]))
        self.assertIn("doubtful: that of linear is 60%, and", one_family.doubts()[0])

    def test_operations(self):
        counted = Row(row("rms_norm", {}, flops=4 * 64 * 4096), {})
        self.assertEqual(counted.operations, 4 * 64 * 4096)
        self.assertFalse(counted.has_roofline)
        self.assertIsNone(Row(row("exp_derivative", {}), {}).operations)
        product = Row(layer(8, 1e-3, {}), {})
        self.assertEqual(product.operations, 2 * 8 * 4096 * 11008)
        self.assertTrue(product.has_roofline)

    def test_numbers_as_text(self):
        self.assertEqual([time_text(each) for each in (7.5e-8, 1.234e-5, 0.5, 12)],
                         ["75.0 ns", "12.3 µs", "500 ms", "12.0 s"])
        self.assertEqual([significant(each) for each in (0, 0.01234, 1.234, 1234.5)], ["0", "0.0123", "1.23", "1234"])
        self.assertEqual([ulp_text(each) for each in (0.5, 12.4, 2e6, None)], ["0.5", "12", "2e+06", "∞"])


class Axes(unittest.TestCase):
    def test_logarithmic(self):
        axis = charts.Log(1, 100, 0, 50)
        self.assertEqual([axis(each) for each in (1, 10, 100, 1000, 0.1)], [0, 25, 50, 50, 0])
        self.assertEqual(axis.ticks(), [1, 10, 100])


class Colours(unittest.TestCase):
    """Peers are told apart in light and dark, and by those who do not tell red from green."""

    # Linear RGB as those see it who lack the cones for green, or for red (Machado and others, 2009).
    LACKING = (((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
               ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)))

    @staticmethod
    def linear(colour):
        values = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        return [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055)**2.4 for each in values]

    @staticmethod
    def luminance(rgb):
        return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]

    @staticmethod
    def times(matrix, vector):
        return [max(0.0, sum(a * b for a, b in zip(line, vector))) for line in matrix]

    def oklab(self, rgb):
        cones = self.times(((0.41222, 0.53633, 0.05145), (0.21190, 0.68070, 0.10740), (0.08830, 0.28172, 0.62998)), rgb)
        l, m, s = (each**(1 / 3) for each in cones)
        return (0.21045 * l + 0.79362 * m - 0.00407 * s, 1.97800 * l - 2.42859 * m + 0.45060 * s,
                0.02590 * l + 0.78277 * m - 0.80868 * s)

    def test_no_two_peers_share_a_colour(self):
        palette = charts.Palette([*charts.ORDER, "somebody's", "another's"])
        colours = [palette.colour(name) for name in palette.index]
        self.assertEqual(len(set(colours)), len(colours))
        self.assertEqual(palette.colour("ggml"), charts.Palette(["ggml"]).colour("ggml"))

    def test_they_stand_out_from_the_page(self):
        css = (BENCH / "report/page.css").read_text()
        for paper in re.findall(r"--paper: (#[0-9a-f]{6})", css):
            for colour in charts.COLOURS:
                low, high = sorted(self.luminance(self.linear(each)) for each in (paper, colour))
                self.assertGreaterEqual((high + 0.05) / (low + 0.05), 2.9, (paper, colour))

    def test_they_differ_for_all_eyes(self):
        palette = charts.Palette([])
        for one, other in itertools.combinations(charts.ORDER, 2):
            rgb = [self.linear(palette.colour(name)) for name in (one, other)]
            self.assertGreater(math.dist(*map(self.oklab, rgb)), 0.05, (one, other))
            if palette.shape(one) == palette.shape(other):
                for lacking in self.LACKING:
                    seen = [self.oklab(self.times(lacking, each)) for each in rgb]
                    self.assertGreater(math.dist(*seen), 0.04, (one, other))


def with_bf16(levels, rates):
    """Products in f32 and bf16 on a machine with these limits."""
    data = run_of([layer(8, 1e-3, {}), {**layer(64, 1e-3, {}), "dtype": "bf16"}, row("exp", {}, flops=1e6)])
    data["limits"]["bandwidth"] = [
        {"stream": "read", "level": level, "working_set": 1 << 20, "threads": 2, "bytes_per_second": speed}
        for level, speed in levels.items()]
    data["limits"]["flops"] = [{"isa": isa, "threads": 2, "flops_per_second": rate} for isa, rate in rates.items()]
    return data


class Roofline(unittest.TestCase):
    LEVELS = {"L1": 6e11, "L2": 5.9e11, "L3": 5.5e10, "memory": 5e10}
    RATES = {"sse41": 1e11, "avx2": 3e11, "avx512": 5e11, "avx512_bf16": 9e11, "amx": 7e12}

    def test_each_instruction_has_its_roof(self):
        data = with_bf16(self.LEVELS, self.RATES)
        run = made(data)
        self.assertEqual(run.roofs(), {"f32 FMA": 5e11, "bf16 dot product": 9e11, "AMX tiles of bf16": 7e12})
        self.assertEqual([run.roof_of(each)[0] for each in run.rows], ["f32 FMA", "AMX tiles of bf16", "f32 FMA"])
        data["rows"] = data["rows"][::2]
        self.assertEqual(made(data).roofs(), {"f32 FMA": 5e11})

    def test_8_bit_integers_have_a_roof_of_their_own(self):
        data = with_bf16(self.LEVELS, self.RATES)
        data["limits"]["flops"] += [{"isa": isa, "threads": 2, "flops_per_second": rate, "int8": True}
                                    for isa, rate in (("avx2", 6e11), ("avx512", 1.8e12))]
        self.assertNotIn("8-bit integers", made(data).roofs(), "no row uses them")
        data["rows"][0] |= {"int8_products": True}
        run = made(data)
        self.assertEqual(run.roofs(),
                         {"f32 FMA": 5e11, "8-bit integers": 1.8e12, "bf16 dot product": 9e11, "AMX tiles of bf16": 7e12})
        self.assertEqual([run.roof_of(each)[0] for each in run.rows], ["8-bit integers", "AMX tiles of bf16", "f32 FMA"])
        self.assertEqual(run.rows[0].rate_text.split()[1], "Gop/s")
        self.assertIn("8-bit integers 1800 Gop/s", charts.roofline(run, run.groups(), 10, 760, 500))
        peaks = {line[0]: line[1] for line in tables.machine(run).lines}
        self.assertEqual(peaks["peak of multiply-adds, 8-bit integers"], "avx2, 2 threads: 600 Gop/s; avx512, 2 threads: 1800 Gop/s")
        self.assertNotIn("1800", peaks["peak of multiply-adds, f32"])

    def test_no_row_is_above_its_own_roof(self):
        run = load(BENCH / "results" / "latest.json")
        for each in run.rows:
            if each.operations and each["threads"] == run.threads:
                self.assertLess(each.operations / each.seconds, run.roof_of(each)[1], each["name"])

    @staticmethod
    def corners(text):
        """Corners of the box of a label, an em high and 0.55 em for each letter wide."""
        size, x, y, turn, name = re.match(
            r'font-size="(\S+)" transform="translate\((\S+) (\S+)\) rotate\((\S+)\)">(.*)', text).groups()
        size, x, y, turn = float(size), float(x), float(y), math.radians(float(turn))
        width = 0.55 * size * len(name)
        return [(x + a * math.cos(turn) - b * math.sin(turn), y + a * math.sin(turn) + b * math.cos(turn))
                for a, b in ((0, -0.8 * size), (width, -0.8 * size), (width, 0.2 * size), (0, 0.2 * size))]

    @staticmethod
    def overlap(one, other):
        """Whether no line along a side of one of the boxes parts them."""
        for box in (one, other):
            for (x, y), (x_next, y_next) in zip(box, box[1:]):
                sides = [[(a - x) * (y_next - y) - (b - y) * (x_next - x) for a, b in each] for each in (one, other)]
                if max(sides[0]) < min(sides[1]) or max(sides[1]) < min(sides[0]):
                    return False
        return True

    def test_no_label_covers_another(self):
        close = made(with_bf16(self.LEVELS, {**self.RATES, "avx512_bf16": 5.1e11, "amx": 5.2e11}))
        for run, count in ((close, 7), (made(with_bf16(self.LEVELS, self.RATES)), 7),
                           (load(BENCH / "results" / "latest.json"), None)):
            for size in ((760, 500), (370, 400)):
                labels = re.findall('class="roof-name" (.*?)</text>', charts.roofline(run, run.groups(), 300, *size))
                self.assertGreater(len(labels), 4)
                self.assertIn(count, (len(labels), None))
                for one, other in itertools.combinations(labels, 2):
                    self.assertFalse(self.overlap(*map(self.corners, (one, other))), (one, other))


class Pages(unittest.TestCase):
    def test_what_matters_comes_first(self):
        for data in (sample(), run_of([]), {**sample(), "interrupted": True}):
            text = page.page(made(data))
            order = re.findall('<h2 id=["]?([a-z-]+)', text)
            self.assertEqual(order, list(page.LINKS))
            before = text[:text.index('<h2 id="limits"')]
            self.assertIn(made(data).verdict_text(), before)
            self.assertEqual(before.count('class="alarm"'), len(made(data).doubts()))
            self.assertGreater(text.index("is not here &amp; never was"), text.index('<h2 id="notes"'))

    def test_where_a_peer_is_faster(self):
        text = page.page(made(sample()))
        self.assertIn("<td>0.48 to 0.52</td>", text[text.index('id="behind"'):text.index('id="roofline"')])
        self.assertIn("<p>None: no peer", page.page(made(run_of([row("exp", {"fast": peer(1.5, "ahead")})]))))

    def test_the_page_stands_alone_and_is_well_formed(self):
        text = page.page(made(sample()))
        outline = outline_of(text)
        self.assertFalse(outline.outside)
        self.assertEqual({each[1:] for each in outline.targets} - outline.ids, set())
        self.assertNotIn("http", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
        for words in ("a &lt;processor&gt;", "allocates &lt;its&gt; output", "is not here &amp; never was",
                      "its process crashed (Segmentation fault)", "not a number", "1.2.3", "roofline",
                      "From one thread to 2", "GB/s", "avx2", "not pinned"):
            self.assertIn(words, text)

    def test_no_text_of_a_run_is_taken_for_html(self):
        def texts_in(value):
            inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, each in inner:
                if isinstance(each, str):
                    yield value, key
                yield from texts_in(each)

        for index in range(len(list(texts_in(sample())))):
            for before, after in (("<td><embed>", ""), ("", "\"'><embed>")):
                data = sample()
                owner, key = list(texts_in(data))[index]
                owner[key] = before + owner[key] + after
                try:
                    text = page.page(made(data))
                except DAMAGE:
                    continue
                self.assertFalse("<embed" in text, f"{key}: {owner[key]}")

    def test_a_large_run_makes_a_small_page(self):
        data = sample()
        some = data["rows"][:]
        data["rows"] = []
        for number in range(400):
            for each in copy.deepcopy(some):
                each["name"] = each["name"].replace("/f32", f"_{number}/f32")
                each["kernel"] += f"_{number}"
                data["rows"].append(each)
        for number in range(12):
            data["peers"].append({"name": f"peer{number}", "version": "1", "missing": ""})
            for each in data["rows"]:
                result = peer(1.7, "ahead") if number % 2 else {"reason": "has no such row " * 4}
                each["peers"][f"peer{number}"] = result
        run = made(data)
        text = page.page(run)
        self.assertLess(len(text.encode()), 2 << 20)
        self.assertIn(f"The worst {page.MOST_TABLE_ROWS} of 3200 rows", text)
        # What is left out is what is best.
        self.assertEqual({each["kernel"].split("_")[0] for each in run.worst(run.rows, 400)}, {"gelu"})

    def test_runs_with_little_in_them(self):
        alone = sample()
        alone["peers"] = []
        for each in alone["rows"]:
            each["peers"] = {}
        failed = run_of([{**row("rms_norm", {}), "rounds": 0, "failure": "is out of memory"}])
        empty = run_of([])
        one = run_of([row("rms_norm", {"fast": peer(1.5, "ahead")})])
        wrong = run_of([{**row("rms_norm", {}), "rounds": 0, "is_wrong": True}])
        for data, words in ((alone, "./run bench --peers all"), (failed, "is out of memory"), (empty, "0 rows"),
                            (one, "1 rows"), (wrong, "WRONG RESULT")):
            text = page.page(made(data))
            outline_of(text)
            self.assertIn(words, text)
            if data is not alone:
                self.assertIn(words, tables.as_markdown(tables.document(made(data))))
            self.assertTrue(tables.as_text(tables.summary(made(data))))

    def test_markdown(self):
        text = tables.as_markdown(tables.document(made(sample())))
        self.assertIn("Of 1 rows with at least two independent libraries, halyard is faster than each in 1", text)
        self.assertIn("| wrong |", text)
        for line in text.splitlines():
            if line.startswith("| "):
                self.assertTrue(line.endswith(" |"))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, content):
        path = self.folder / "bench.json"
        path.write_text(content if isinstance(content, str) else text_of(content))
        return str(path)

    def test_the_program(self):
        done = report("report.py", self.write(sample()), "--output", self.folder / "out", "--text", self.folder / "bench.txt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Against each peer", done.stdout)
        self.assertIn("Largest errors", (self.folder / "bench.txt").read_text())
        self.assertTrue((self.folder / "out" / "report.html").exists())
        self.assertTrue((self.folder / "out" / "report.md").exists())

    def test_damaged_files_are_named(self):
        def changed(value, *keys):
            data = sample()
            owner = functools.reduce(lambda inner, key: inner[key], keys[:-1], data)
            owner[keys[-1]] = value
            return data

        no_machine = sample()
        del no_machine["machine"]
        odd_times = [(changed(value, "rows", 2, field, "median"), "row 2 (rms_norm/f32/2048x8192/cold/2t) is damaged")
                     for field in ("seconds", "fraction_of_limit", "ours_over_ours_again")
                     for value in (0, -1, "1e-3", 10**400)]
        for content, words in (
                ("{\n", "is damaged"), ("", "schema"), ("[]\n", "schema"), ({"schema": 2, "rows": []}, "schema 3"),
                (changed({}, "rows", 2), "row 2 (without a name) is damaged"),
                (changed(7, "rows", 1), "row 1 (no object) is damaged"),
                (changed("perhaps", "rows", 0, "peers", "fast", "verdict"), "the verdict on fast"),
                (no_machine, "machine"), (changed([1], "machine"), "machine"), ("[" * 100000 + "\n", "is damaged"),
                ('{"schema": 3, "noise": NaN}\n', "NaN"), (changed("<b>", "threads"), "damaged"), *odd_times):
            path = self.write(content)
            with self.assertRaises(Failure) as caught:
                load(path)
            self.assertIn(words, str(caught.exception))
            self.assertIn(path, str(caught.exception))
        done = report("report.py", path, "--output", self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("Traceback", done.stderr)
        with self.assertRaises(Failure) as caught:
            load(self.folder / "nothing.json")
        self.assertIn("cannot be read", str(caught.exception))

    def test_a_run_that_was_killed_keeps_its_rows(self):
        whole = text_of(sample())
        lines = whole.splitlines(keepends=True)
        for text, rows in (("".join(lines[:-1]), 8), ("".join(lines[:3]) + lines[3][:50], 2), (lines[0], 0)):
            run = load(self.write(text))
            self.assertEqual(len(run.rows), rows)
            self.assertTrue(run.data["interrupted"])
        self.assertFalse(load(self.write(whole)).data["interrupted"])

    def test_a_report_that_cannot_be_written_is_said(self):
        done = report("report.py", self.write(sample()), "--output", self.folder / "bench.json")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stderr.startswith(f"report.py: {self.folder / 'bench.json'}: "), done.stderr)

    def test_what_shows_only_in_the_making_is_named_too(self):
        for key, value in (("loop_overhead_seconds", "x"), ("busy_elsewhere", None),
                           ("limits", {"bandwidth": 3, "flops": []})):
            path = self.write({**sample(), key: value})
            done = report("report.py", path, "--output", self.folder / "out")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{path} is damaged", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertFalse((self.folder / "out").exists())


class Published(unittest.TestCase):
    """What bench/results/latest.json says agrees with itself."""

    def setUp(self):
        self.run = load(BENCH / "results" / "latest.json")

    def test_more_threads_reach_no_less(self):
        found = {}
        for limit in self.run.limits["flops"]:
            found.setdefault(("peak", limit["isa"]), {})[limit["threads"]] = limit["flops_per_second"]
        for limit in self.run.limits["bandwidth"]:
            found.setdefault((limit["level"], limit["stream"]), {})[limit["threads"]] = limit["bytes_per_second"]
        for name, by_threads in found.items():
            values = [by_threads[threads] for threads in sorted(by_threads)]
            self.assertEqual(values, sorted(values), name)
        readme = " ".join((BENCH.parent / "README.md").read_text(encoding="utf-8").split())
        for each in self.run.limits["contradictions"]:
            self.assertIn(each, readme)

    def test_no_row_is_beyond_its_limit_unmarked(self):
        self.assertGreater(len(self.run.rows), 50)
        for row in self.run.rows:
            noise = max(row["noise"], 1.4826 * row["fraction_of_limit"]["mad"], 0.05)
            self.assertTrue(row.fraction <= 1 + noise or row["is_beyond_limit"], (row["name"], row.fraction))


class Readme(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "bench" / "results").mkdir(parents=True)
        self.readme, self.latest = self.root / "README.md", self.root / "bench" / "results" / "latest.json"
        self.readme.write_text("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n")
        ratios = {"onednn": peer(1.5, "ahead"), "pytorch": peer(3.0, "ahead")}
        behind = {"onednn": peer(0.9, "behind", note="x in 8 bits"), "pytorch": peer(3.0, "ahead")}
        self.data = run_of([row("rms_norm", ratios), row("gelu", behind), row("exp", {"pytorch": peer(2.0, "ahead")})])
        self.data["peers"] = [declared(name) for name in ratios]
        self.latest.write_text(text_of(self.data))

    def program(self, *options):
        return report("readme.py", "--root", str(self.root), *options)

    def test_table_and_chart(self):
        self.assertEqual(self.program("--check").returncode, 1)
        done = self.program()
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.readme.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertNotIn("old", text)
        self.assertIn("| oneDNN | PyTorch eager | pytorch-compile |", text)
        self.assertIn("| RMSNorm | 10.0 µs | 80% (copy) | 1.50× | 3.00× | – |", text)
        words = " ".join(text.split())
        self.assertIn("faster than each in 1, tied with the fastest in 0 and behind it in 1", words)
        self.assertIn("Not counted: 1 rows with one other library", words)
        self.assertIn("Furthest behind: - `gelu/f32/64x4096/hot/2t`: oneDNN 0.90× (x in 8 bits)", words)
        picture = (self.root / "docs" / "results.svg").read_text()
        outline_of(picture)
        self.assertIn("prefers-color-scheme: dark", picture)
        self.assertEqual(self.program("--check").returncode, 0)
        self.readme.write_text(text.replace("1.50×", "9.50×"))
        self.assertEqual(self.program("--check").returncode, 1)

    def publish(self, change, *options):
        doubtful = self.root / "bench.json"
        doubtful.write_text(text_of({**self.data, **change}))
        return self.program("--publish", str(doubtful), *options)

    def test_doubtful_runs_are_not_published(self):
        good = self.latest.read_text()
        limits = {**self.data["limits"], "contradictions": ["L2 copy, 2 threads"]}
        wrong = {"is_wrong": True, "note": "", "error": None}
        def more(*rows):
            return {"rows": [*self.data["rows"], *rows]}

        for why, change in (
                ("L2 copy, 2 threads", {"limits": limits}),
                ("other programs used 40%", {"busy_elsewhere": 0.4}),
                ("interrupted", {"interrupted": True}),
                ("two other libraries", {"rows": self.data["rows"][2:]}),
                ("WRONG RESULT of halyard", more({**row("silu", {}), "is_wrong": True})),
                ("openvino is missing: it broke", {"peers": [*self.data["peers"], declared("openvino", "it broke")]}),
                ("pytorch is wrong in silu", more(row("silu", {"pytorch": wrong}))),
                ("pytorch stopped in silu", more(row("silu", {"pytorch": {"reason": "its process crashed"}}))),
                ("pytorch is abnormal in exp", more(row("exp", {"pytorch": peer(50.0, "ahead")}, rows=8)))):
            done = self.publish(change)
            self.assertEqual(done.returncode, 1, why)
            self.assertIn(why, done.stderr)
            self.assertIn("old", self.readme.read_text())
            self.assertEqual(self.latest.read_text(), good)
        done = self.publish({"date": "2026-02-03 00:00 UTC"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2026-02-03", self.latest.read_text())
        self.assertIn("2026-02-03", self.readme.read_text())

    def test_what_a_peer_lacks_is_published_by_name_alone(self):
        def missing(name, reason):
            return {"peers": [*self.data["peers"], declared(name, reason)]}

        self.assertEqual(self.publish(missing("openvino", "it broke"), "--despite", "ggml").returncode, 1)
        done = self.publish(missing("openvino", "it broke"), "--despite", "ggml,openvino")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Published despite this: openvino is missing: it broke.", self.readme.read_text())
        limits = {"limits": {**self.data["limits"], "contradictions": ["L2 copy, 2 threads"]}}
        self.assertEqual(self.publish(limits).returncode, 1)
        self.assertEqual(self.publish(limits, "--despite", "limits").returncode, 0)
        self.assertIn("contradict each other: L2 copy, 2 threads", self.readme.read_text())
        # One that cannot be here is no lack.
        done = self.publish(missing("zentorch", "not for this machine: no AMD processor"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("despite", self.readme.read_text())

    def test_a_row_beyond_its_limit_is_marked(self):
        self.data["rows"][0].update(fraction_of_limit=estimate(1.43), is_beyond_limit=True)
        self.latest.write_text(text_of(self.data))
        self.assertEqual(self.program().returncode, 0)
        self.assertIn("| 143%† (copy) |", self.readme.read_text())
        self.assertIn("\n† In three measurements", self.readme.read_text())
        self.assertIn("rms_norm/f32/64x4096/hot/2t", "".join(made(self.data).reservations()))

    def test_marks_must_be_there(self):
        self.readme.write_text("nothing\n")
        done = self.program()
        self.assertEqual(done.returncode, 1)
        self.assertIn("results: begin", done.stderr)

    def test_the_readme_is_what_the_committed_result_gives(self):
        done = report("readme.py", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
