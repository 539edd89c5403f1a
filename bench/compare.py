#!/usr/bin/env python3
"""Compares two builds of halyard: runs the benchmark program of each in turns and prints, per row, how many times as
fast the second one is, with the spread.

    compare.py A/bench/halyard-bench B/bench/halyard-bench [--names A B] [--turns N] [-- options of halyard-bench]

Turns go A B B A A B ...: the ratio of a turn is taken from neighbours in time, and A against itself between turns is
the noise. A difference counts if it is more than 2 % and more than three times the noise.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile


def run_bench(program, options, file):
    """The times of all rows of one run, in seconds."""
    command = [program, "--peers", "none", "--json", str(file), *options]
    status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if status != 0:
        sys.exit(f"compare.py: {program} ended with {status}")
    rows = json.loads(file.read_text())["rows"]
    return {row["name"]: row["seconds"]["median"] for row in rows if row.get("seconds")}


def error_of_median(values):
    centre = statistics.median(values)
    deviation = statistics.median(abs(value - centre) for value in values)
    return 1.4826 * 1.2533 * deviation / math.sqrt(len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--names", nargs=2, default=["A", "B"])
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("options", nargs="*", help="of halyard-bench, after --")
    options = parser.parse_args()

    turns = []  # (times of A, times of B)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "bench.json"
        for turn in range(options.turns):
            print(f"turn {turn + 1} of {options.turns}", file=sys.stderr)
            sides = [(options.a, 0), (options.b, 1)]
            times = {}
            for program, side in sides if turn % 2 == 0 else reversed(sides):
                times[side] = run_bench(program, options.options, file)
            turns.append((times[0], times[1]))

    first, second = options.names
    names = [name for name in turns[0][0] if all(name in a and name in b for a, b in turns)]
    print(f"{'row':58} {first:>12} {second:>12} {'gain':>8} {'spread':>8} {'noise':>8}")
    gains = {}
    for name in names:
        ratios = [a[name] / b[name] for a, b in turns]
        gain = statistics.median(ratios)
        spread = error_of_median(ratios)
        own = [turns[i][0][name] / turns[i + 1][0][name] for i in range(len(turns) - 1)] or [1.0]
        noise = max(abs(statistics.median(own) - 1), error_of_median(own), spread)
        gains[name] = gain
        verdict = ""
        if abs(math.log(gain)) > max(math.log(1.02), 3 * noise):
            verdict = f"  {second if gain > 1 else first} is faster"
        a_time, b_time = (statistics.median(side[name] for side in sides) * 1e6 for sides in zip(*turns))
        print(f"{name:58} {a_time:9.2f} us {b_time:9.2f} us {gain:7.3f}x {100 * spread:6.1f} % {100 * noise:6.1f} %"
              + verdict)
    mean = math.exp(statistics.fmean(math.log(gain) for gain in gains.values())) if gains else 1.0
    print(f"geometric mean over {len(gains)} rows: {second} is {mean:.3f}x as fast as {first}")


if __name__ == "__main__":
    main()
