#!/usr/bin/env python3
"""Runs the tuner on small kernels: what it writes, that it goes on after an interruption, and what it refuses."""
import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import kernel_code  # noqa: E402

# One kernel of each way in which objects are made, and one that takes several rows side by side.
SAME_OBJECTS = [("silu", "f32"), ("cast_to_bf16", "f32"), ("layer_norm_weight", "bf16"), ("rms_norm_scale", "f32"), ("matmul_2", "f16"),
                ("epilogue_silu_gated", "bf16"), ("pack_out_in_folded", "bf16"), ("attention_softmax", "f32"),
                ("rope", "f16"), ("kv_pack_keys", "bf16")]
SMALL = ["--isa", "sse41", "--dtype", "f32", "--shapes", "4x256", "--effort", "quick"]


def check(condition, text):
    if not condition:
        sys.exit(f"check_tuner: {text}")


class Tuner:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.database, self.output = folder / "tune.jsonl", folder / "tuned.json"

    def command(self, *words):
        return [self.program, "--database", str(self.database), "--output", str(self.output), *words]

    def run(self, *words):
        run = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=600)
        return run.returncode, run.stdout + run.stderr

    def records(self):
        return [json.loads(line) for line in self.database.read_text().splitlines()]


def check_objects(tuner, kernels):
    """What is timed is what the build links, instruction by instruction."""
    built = kernel_code.of_build("objdump", kernels)
    objects = [(kernel, dtype, isa) for kernel, dtype in SAME_OBJECTS for isa in ("sse41", "avx2", "avx512")]
    for kernel, dtype, isa in objects + [("matmul_pairs_2", "bf16", "avx512_bf16")]:
        symbol = f"hk_{kernel}_{dtype}_{isa}"
        made = tuner.folder / "kernel.o"
        status, text = tuner.run("object", "default", "--kernel", kernel, "--dtype", dtype, "--isa", isa,
                                 "--output", str(made))
        if "not in" in text:  # an instruction set that this machine lacks
            continue
        check(status == 0, f"no object of {kernel}: {text}")
        timed = kernel_code.of_object("objdump", made)[symbol]
        check(kernel_code.without_places(timed) == kernel_code.without_places(built[symbol]), f"the object of {kernel} {dtype} {isa} is not that of the build")


def check_refusals(tuner):
    status, text = tuner.run("--kernel", "slu")
    check(status == 2 and "slu not in" in text and "silu" in text and "elementwise" in text, text)
    status, text = tuner.run("--isa", "mmx")
    check(status == 2 and "mmx not in" in text and "sse41" in text, text)
    status, text = tuner.run("--dtype", "f64")
    check(status == 2 and "bf16" in text, text)
    status, text = tuner.run("--shapes", "llama9")
    check(status == 2 and "1024x8192/cold" in text, text)
    status, text = tuner.run("--list", "--kernel", "rope,runtime.stream_row")
    check(status == 0 and "vectors 1, 2, 4; heads 1, 2, 4" in text and "row_streams -1, 0" in text, text)
    status, text = tuner.run("--kernel", "runtime.steam")
    check(status == 2 and "runtime.steam not in" in text and "runtime.stream" in text, text)
    status, text = tuner.run("--dry-run", "--exhaustive", "--kernel", "runtime,relu", "--isa", "sse41")
    check(status == 0 and "runtime.gemm: " in text and "relu f32 sse41: " in text and "about " in text, text)
    status, text = tuner.run("--dry-run", "--kernel", "relu", "--dtype", "f32")
    check(status == 0 and "relu f32 " in text, text)  # whatever machine this is, calls use kernels of some instruction set
    status, text = tuner.run("--budget", "soon")
    check(status == 2 and "soon" in text, text)
    for choice in ("vectors=5", "rows=2"):
        status, text = tuner.run("compare", choice, "default", "--kernel", "silu", *SMALL)
        check(status == 2 and f"'{choice}' is no choice; there are: vectors 1, 2, 4" in text, text)
    status, text = tuner.run("export")
    check(status == 1 and "no decision" in text, text)
    blocked = subprocess.run([tuner.program, "--database", str(tuner.folder), "--kernel", "relu", *SMALL],
                             capture_output=True, text=True, timeout=600)
    check(blocked.returncode == 1 and "cannot be written" in blocked.stderr, blocked.stderr)


def check_no_room(tuner):
    """Where no files can be made it says so, and decides nothing: that is no candidate's fault."""
    nowhere = {**os.environ, "TMPDIR": str(tuner.folder / "none")}
    run = subprocess.run(tuner.command("--kernel", "relu", *SMALL), capture_output=True, text=True, timeout=600, env=nowhere)
    check(run.returncode == 1 and nowhere["TMPDIR"] in run.stderr, run.stderr)

    def no_large_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    run = subprocess.run(tuner.command("--kernel", "relu", *SMALL), capture_output=True, text=True, timeout=600,
                         preexec_fn=no_large_files)
    check(run.returncode == 1 and "cannot write" in run.stderr and "TMPDIR" in run.stderr, run.stderr)
    check(not tuner.output.exists() and (not tuner.database.exists() or not tuner.records()),
          "something was decided without files")


def check_run(tuner):
    other = {"vectors": 2}
    tuner.output.write_text(json.dumps({"schedules": {"sse41": {"relu_f32": other, "gelu_f32": other},
                                                      "avx2": {"relu_f32": other}}}))
    status, text = tuner.run("--kernel", "relu,rms_norm", *SMALL)
    check(status == 0, text)
    check("2 of 2 decided (0 known before)" in text, text)
    decisions = {record["kernel"]: record for record in tuner.records()}
    check(sorted(decisions) == ["relu", "rms_norm"], "there are other decisions than asked for")
    decisions = decisions.values()
    check(all(v["tried"] > 0 for v in decisions), "nothing was tried")
    check(not any(record["refused"] for record in tuner.records()), "a schedule changed a result")
    exported = json.loads(tuner.output.read_text())
    for decision in decisions:
        entry = exported["schedules"].get("sse41", {}).get(decision["kernel"] + "_f32")
        check(entry == (decision["best"] if decision["is_better"] else None), "the file is not what was found")
    check(exported["schedules"]["sse41"]["gelu_f32"] == other and exported["schedules"]["avx2"]["relu_f32"] == other,
          "the file lost entries that were not measured")
    before = tuner.output.read_bytes()

    status, text = tuner.run("--kernel", "relu,rms_norm", *SMALL)
    check(status == 0 and "(2 known before)" in text, text)
    check(tuner.output.read_bytes() == before, "the same decisions gave another file")
    status, text = tuner.run("show")
    check(status == 0 and "| all | 2 |" in text and "| row | 1 |" in text, text)

    # A file that cannot be read stays: it is refused before anything is measured, and by export.
    cut_off = before[:-20]
    tuner.output.write_bytes(cut_off)
    for words in (["export"], ["--kernel", "gelu", *SMALL]):
        status, text = tuner.run(*words)
        check(status == 1 and str(tuner.output) in text and "no file of parameters" in text and "[1/1" not in text, text)
        check(tuner.output.read_bytes() == cut_off, "a file that cannot be read was replaced")
    tuner.output.write_bytes(before)


def check_runtime(tuner):
    """Parameters of the runtime: their own section of the file, no bit changed by any."""
    tuner.database.unlink()
    before = json.loads(tuner.output.read_text())
    tuner.output.write_text(json.dumps({**before, "runtime": {"gemm_block_rows": 64, "second_thread_bytes": 65536}}))
    status, text = tuner.run("--kernel", "runtime.threads", *SMALL)
    check(status == 0 and "1 of 1 decided" in text, text)
    records = tuner.records()
    check(not any(record["refused"] for record in records), "a parameter of the runtime changed a result")
    decision = records[0]
    after = json.loads(tuner.output.read_text())
    expected = {"gemm_block_rows": 64}
    if decision["is_better"]:
        expected.update({name: value for name, value in decision["best"].items() if value != decision["defaults"][name]})
    check(after["runtime"] == expected, "the file is not what was found")
    check(after["schedules"] == before["schedules"], "the file lost schedules")


def check_interruption(tuner, sent, expected):
    """Interrupted or killed, it goes on where it was."""
    tuner.database.unlink()
    words = ["--kernel", "elementwise", *SMALL]
    process = subprocess.Popen(tuner.command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if tuner.database.exists() and "\n" in tuner.database.read_text():
            break
        time.sleep(0.05)
    before = tuner.output.read_bytes()
    process.send_signal(sent)
    _, text = process.communicate(timeout=120)
    check(process.returncode == expected, f"it ended with {process.returncode}: {text}")
    if sent == signal.SIGKILL:
        check(tuner.output.read_bytes() == before, "a killed process changed the file")
    decided = list({record["kernel"]: record for record in tuner.records()})
    check(decided, "nothing was decided before the interruption")
    status, text = tuner.run("--kernel", ",".join(decided), *SMALL)
    check(status == 0 and f"({len(decided)} known before)" in text, text)


def check_records(tuner):
    """A line that was cut off, and records of another machine."""
    kernel = tuner.records()[0]["kernel"]
    with open(tuner.database, "a", encoding="utf-8") as file:
        file.write('{"machine":{},"ker')
    status, text = tuner.run("show")
    check(status == 0 and "cut off" in text, text)
    status, text = tuner.run("--kernel", kernel, *SMALL)
    check(status == 0 and "(1 known before)" in text, text)

    foreign = []
    for line in tuner.database.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        record["machine"]["cpu"] = "Another CPU"
        foreign.append(json.dumps(record))
    tuner.database.write_text("\n".join(foreign) + "\n")
    status, text = tuner.run("show")
    check(status == 0 and "machine's cpu is Another CPU there" in text, text)
    status, text = tuner.run("--kernel", kernel, *SMALL)
    check(status == 0 and "(0 known before)" in text, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--kernels", type=pathlib.Path,
                        help="the directory of the build's kernels, if they have their default parameters")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tuner = Tuner(os.path.abspath(options.program), pathlib.Path(folder))
        check_refusals(tuner)
        check_no_room(tuner)
        check_run(tuner)
        check_runtime(tuner)
        check_interruption(tuner, signal.SIGINT, 130)
        check_interruption(tuner, signal.SIGKILL, -signal.SIGKILL)
        check_records(tuner)
        if options.kernels:
            check_objects(tuner, options.kernels)
    print("check_tuner: all right")


if __name__ == "__main__":
    main()
