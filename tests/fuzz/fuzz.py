"""Runs fuzzers, as many side by side as there are processors: fuzz.py BUILD SECONDS TARGET... Exit status 1 if one found
something.

What they find is kept in BUILD/finds; what they have learnt, in BUILD/corpus, is where the next call goes on. Of fewer fuzzers
than processors each has several processes, which see what the others add."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

MODELS = Path(__file__).resolve().parent.parent / "data/models"


def fuzz(build, seconds, targets):
    """Whether one of these, which run side by side, found something."""
    logs = {target: [build / f"{target}.{index}.log" for index in range(len(os.sched_getaffinity(0)) // len(targets))]
            for target in targets}
    processes, begin, found = [], time.monotonic(), False
    try:
        for target in targets:
            for name in ("tmp", "finds", f"corpus/{target}"):
                (build / name).mkdir(parents=True, exist_ok=True)
            print(f"fuzzing {target} for {seconds} seconds; logs: {build}/{target}.*.log", flush=True)
            for index, log in enumerate(logs[target]):
                processes.append((log, subprocess.Popen(
                    [build / f"tests/fuzz/fuzz_{target}", f"-max_total_time={seconds}", "-reload=1",
                     f"-artifact_prefix={build}/finds/{target}-{index}-", build / "corpus" / target, build / "seeds" / target],
                    stdout=log.open("w"), stderr=subprocess.STDOUT, env={**os.environ, "TMPDIR": str(build / "tmp")})))
        while any(each.poll() is None for _, each in processes):
            time.sleep(min(10, seconds / 4))
            for target in targets:
                reports = re.findall(r"(?m)^#\d.*$", logs[target][0].read_text(errors="replace")) or ["starting"]
                print(f"{target}, {time.monotonic() - begin:.0f} s: {reports[-1]}", flush=True)
    finally:
        for _, each in processes:
            each.terminate()
    for log, process in processes:
        if process.wait() != 0:
            found = True
            text = log.read_text(errors="replace")
            report = re.search(r"(?ms)^[^\n]*(?:ERROR: |runtime error: ).*", text)
            lines = (report[0] if report else text[-2000:]).splitlines()
            print(f"{log} found, or failed with {process.returncode}:", *lines[:20], *lines[20:][-6:], sep="\n", flush=True)
    return found


def main(build, seconds, *targets):
    shutil.rmtree(build / "tmp", ignore_errors=True)  # a program that a find has ended leaves its files there
    subprocess.run([build / "tests/fuzz/fuzz_seeds", MODELS, build / "seeds"], check=True)
    together = len(os.sched_getaffinity(0))
    return sum([fuzz(build, seconds, targets[first:first + together]) for first in range(0, len(targets), together)]) > 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
    except KeyboardInterrupt:
        sys.exit(130)
