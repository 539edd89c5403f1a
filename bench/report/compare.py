#!/usr/bin/env python3
"""What changed from one run of the benchmark to another, row by row: compare.py A B.

A and B are two files bench.json, or two build folders. Builds are measured here, in turns (A B, B A, A B, ...), so that slow
phases of the machine meet both. `change` is the ratio of the times beside it. `to limit` is the same ratio with each time in
units of the row's own limit, which each run measures too: a machine that was slower as a whole is no change of the kernels.

A row is called slower or faster if both ratios changed by more than 2 % and by more than three times the noise. Exit status: 0;
3 if a row is slower by more than --fail-above percent; 1 if files or programs fail; 2 for wrong usage.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run import Failure, load, time_text
from tables import Table, as_text

LEAST_CHANGE = 0.02  # less is not worth a word
NOISES = 3  # how many times its noise a change must be

SAME, FASTER, SLOWER = "same", "faster", "SLOWER"


def percent(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.split("\n")[0])
    parser.add_argument("a", type=Path, help="a bench.json, or a build folder with bench/halyard-bench in it")
    parser.add_argument("b", type=Path, help="the same, to be compared with A")
    parser.add_argument("--fail-above", type=percent, default=5.0, metavar="PERCENT",
                        help="exit with 3 if a row is slower by more than this (default 5)")
    parser.add_argument("--filter", default="", help="rows whose name matches, when builds are measured")
    parser.add_argument("--shapes", default="default", help="their work list, by name or path (default, quick, full, ...)")
    parser.add_argument("--threads", type=int, help="their threads (default: all processors)")
    parser.add_argument("--passes", type=int, default=3, help="runs of each build (default 3)")
    parser.add_argument("--list", action="store_true", help="print the rows of builds that would be measured, and stop")
    parser.add_argument("--json", type=Path, help="write the comparison to this file too")
    return parser.parse_args(arguments)


def times_of(run):
    """{row: (time in units of its limit, its noise, seconds)} of the rows that were measured."""
    rows = {}
    for row in run.rows:
        fraction = row["fraction_of_limit"]
        spread = 1.4826 * fraction["mad"] / fraction["median"]
        noise = max(spread, abs(row["ours_over_ours_again"]["median"] - 1))
        rows[row["name"]] = (1 / fraction["median"], noise, row.seconds)
    return rows


def weaker(change, to_limit):
    """The one of two changes that is nearer to none; none if they disagree in its direction."""
    if (change > 1) != (to_limit > 1):
        return 1.0
    return min(change, to_limit, key=lambda each: abs(math.log(each)))


def compare(passes):
    """passes: [(times of A, times of B)]. Medians over the passes; the noise is that of the runs, or how far the passes differ."""
    rows = []
    for name in passes[0][0]:
        if not all(name in a and name in b for a, b in passes):
            continue
        (units_a, noises_a, seconds_a), (units_b, noises_b, seconds_b) = (
            zip(*(times[name] for times in side)) for side in zip(*passes))
        logs = [math.log(b / a) for a, b in zip(seconds_a, seconds_b)]
        middle = statistics.median(logs)
        between = 1.4826 * statistics.median(abs(each - middle) for each in logs)
        within = statistics.median(map(math.hypot, noises_a, noises_b)) / math.sqrt(len(passes))
        row = {"name": name, "a_seconds": statistics.median(seconds_a), "b_seconds": statistics.median(seconds_b),
               "to_limit": statistics.median(b / a for a, b in zip(units_a, units_b)), "noise": max(between, within)}
        row["change"] = row["b_seconds"] / row["a_seconds"]
        log = math.log(weaker(row["change"], row["to_limit"]))
        is_same = abs(log) <= max(math.log(1 + LEAST_CHANGE), NOISES * row["noise"])
        rows.append({**row, "verdict": SAME if is_same else SLOWER if log > 0 else FASTER})
    return rows


def command_of(build, options):
    program = build / "bench" / "halyard-bench"
    if not program.is_file():
        raise Failure(f"{build} holds no bench/halyard-bench; build it with ./run bench, or name a bench.json")
    command = [str(program), "--peers", "none", "--filter", options.filter, "--shapes", options.shapes]
    if options.threads is not None:
        command += ["--threads", str(options.threads)]
    return command


def list_rows(options):
    for build in (options.a, options.b):
        command = command_of(build, options)
        if subprocess.run([*command, "--list"]).returncode != 0:
            raise Failure(f"{command[0]} refuses these rows")


def measure(build, options, directory):
    command = command_of(build, options)
    program, out = command[0], directory / "bench.json"
    out.unlink(missing_ok=True)
    done = subprocess.run([*command, "--json", str(out)], stdout=subprocess.DEVNULL)
    if done.returncode != 0 or not out.exists():
        raise Failure(f"{program} ended with status {done.returncode}")
    return times_of(load(out))


def measure_builds(options):
    passes = []
    with tempfile.TemporaryDirectory() as directory:
        for index in range(options.passes):
            first, second = (options.a, options.b) if index % 2 == 0 else (options.b, options.a)
            print(f"compare: pass {index + 1} of {options.passes}", file=sys.stderr)
            one, two = (measure(build, options, Path(directory)) for build in (first, second))
            passes.append((one, two) if first == options.a else (two, one))
    return compare(passes)


def report(rows, fail_above):
    """Prints the table; the names of the rows that are too slow."""
    lines = [[row["name"], time_text(row["a_seconds"]), time_text(row["b_seconds"]), f"{row['change'] - 1:+.1%}",
              f"{row['to_limit'] - 1:+.1%}", f"{row['noise']:.1%}", "" if row["verdict"] == SAME else row["verdict"]]
             for row in sorted(rows, key=lambda row: -row["change"])]
    print(as_text([Table("", "", ["row", "A", "B", "change", "to limit", "noise", ""], lines, (6,))]), end="")
    mean = math.exp(statistics.fmean(math.log(row["change"]) for row in rows))
    counts = {each: sum(row["verdict"] == each for row in rows) for each in (FASTER, SAME, SLOWER)}
    print(f"{len(rows)} rows: {counts[FASTER]} faster, {counts[SAME]} the same, {counts[SLOWER]} slower; "
          f"B takes {mean:.3f} of A's time in the geometric mean")
    return [row["name"] for row in rows
            if row["verdict"] == SLOWER and weaker(row["change"], row["to_limit"]) > 1 + fail_above / 100]


def main(arguments):
    options = parse_arguments(arguments)
    if options.passes < 1:
        raise Failure("--passes must be at least 1")
    if options.a.is_dir() != options.b.is_dir():
        raise Failure("A and B must be two files or two build folders")
    if options.json is not None and not options.json.parent.is_dir():
        raise Failure(f"{options.json} cannot be written: its folder does not exist")
    if options.list:
        list_rows(options)
        return 0
    if options.a.is_dir():
        rows = measure_builds(options)
    else:
        a, b = load(options.a), load(options.b)
        for what in ("cpu", "processors"):
            if a.machine.get(what) != b.machine.get(what):
                print(f"compare: the runs are from different machines ({what}: {a.machine.get(what)} and "
                      f"{b.machine.get(what)}); the changes say little", file=sys.stderr)
        rows = compare([(times_of(a), times_of(b))])
    if not rows:
        raise Failure("the two have no measured row in common")
    too_slow = report(rows, options.fail_above)
    if options.json is not None:
        try:
            options.json.write_text(json.dumps({"schema": 1, "rows": rows}, indent=1) + "\n")
        except OSError as error:
            raise Failure(f"{options.json} cannot be written: {error.strerror}") from None
    if too_slow:
        print(f"slower by more than {options.fail_above:g} %: {', '.join(too_slow)}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print(f"compare: {failure}", file=sys.stderr)
        sys.exit(1)
