#!/usr/bin/env python3
"""Checks how the build reads files of tuned parameters (cmake/HalyardTuned.cmake).

A file's entries go before those for any machine; the same file gives the same parameters again; what cannot be right is
refused with the file, the key and the reason.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

REFUSED = [
    # what the file holds, the key and the reason that the message must name
    ({"schedules": {"neon": {"silu": {"vectors": 2}}}}, "schedules.neon", "another instruction set"),
    ({"schedules": {"avx2": {"sliu": {"vectors": 2}}}}, "schedules.avx2.sliu", "no such family or kernel"),
    ({"schedules": {"avx2": {"silu_f64": {"vectors": 2}}}}, "schedules.avx2.silu_f64", "no such family or kernel"),
    ({"schedules": {"avx2": {"silu_f32": {"rows": 2}}}}, "schedules.avx2.silu_f32.rows", "no such parameter"),
    ({"schedules": {"avx2": {"silu_f32": {"vectors": 5}}}}, "schedules.avx2.silu_f32.vectors", "5 is no legal value"),
    ({"schedules": {"avx2": {"row": {"rows": "2x"}}}}, "schedules.avx2.row.rows", '"2x" is no legal value'),
    ({"schedules": {"avx2": {"silu_f32": {"vectors": "3"}}}}, "schedules.avx2.silu_f32.vectors", '"3" is no legal value'),
    ({"schedules": {"avx2": {"silu_f32": {"vectors": [3]}}}}, "schedules.avx2.silu_f32.vectors", "[ 3 ] is no legal value"),
    ({"schedules": {"avx2": {"silu_f32": {"vectors": True}}}}, "schedules.avx2.silu_f32.vectors", "is no legal value"),
    ({"schedules": {"avx2": {"silu_f32": {"vectors": None}}}}, "schedules.avx2.silu_f32.vectors", "is no legal value"),
    ({"schedules": {"avx2": {"silu_f32": {"": 3}}}}, "schedules.avx2.silu_f32.", "no such parameter"),
    ({"schedules": {"avx2": {"silu_f32": {"vectors;a": 3}}}}, "schedules.avx2.silu_f32.vectors;a", "no such parameter"),
    ({"schedules": {"avx2": {"": {"vectors": 3}}}}, "schedules.avx2.:", "no such family or kernel"),
    ({"schedules": {"avx2": {"silu;gelu": {"vectors": 3}}}}, "schedules.avx2.silu;gelu", "no such family or kernel"),
    *(({"schedules": {"avx2": {"silu_f32": value}}}, "schedules.avx2.silu_f32:", "it is no object")
      for value in (3, "x", None, True, [], [3])),
    *(({"schedules": {"avx2": value}}, "schedules.avx2:", "it is no object") for value in (3, "x", None, [], [{}])),
    *(({"schedules": value}, "schedules:", "it is no object") for value in (3, "x", None, [], [{}])),
    ([], "schedules", "no JSON with an object"),
    (3, "schedules", "no JSON with an object"),
    ({"schedules": {"avx2": {"kv_pack_keys": {"side": 5}}}}, "schedules.avx2.kv_pack_keys.side", "5 is no legal value"),
    ({"schedules": {"avx2": {"matmul_9": {"panels": 1}}}}, "schedules.avx2.matmul_9", "no such family or kernel"),
    ({"other": {}}, "schedules", "no JSON with an object"),
    ({"schedules": {}, "runtime": {"task_bites": 16384}}, "runtime.task_bites", "no such parameter"),
    ({"schedules": {}, "runtime": {"": 1}}, "runtime.:", "no such parameter"),
    ({"schedules": {}, "runtime": {"task_bytes;row_streams": 1}}, "runtime.task_bytes;row_streams", "no such parameter"),
    *(({"schedules": {}, "runtime": {"task_bytes": value}}, "runtime.task_bytes", "is no legal value")
      for value in (16385, 0, -1, 16384.5, "16384", "", None, True, [16384], {"a": 16384})),
    *(({"schedules": {}, "runtime": value}, "runtime:", "it is no object") for value in (3, "x", None, [], [{}])),
]


def parameters(cmake, script, tuned):
    """The lines that the script prints, or what the configuration says against it."""
    run = subprocess.run([cmake, f"-DHALYARD_TUNED={tuned}", "-P", script], capture_output=True, text=True)
    # Messages are wrapped.
    text = " ".join(run.stderr.split()) if run.returncode else run.stderr
    return run.returncode == 0, text


def check(condition, text):
    if not condition:
        sys.exit(f"check_tuned: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cmake", default="cmake")
    options = parser.parse_args()
    script = pathlib.Path(__file__).parent / "print_tuned.cmake"
    base_file = script.parents[2] / "schedules" / "tuned" / "x86-64.json"

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "mine.json"

        def written(content):
            file.write_text(content if isinstance(content, str) else json.dumps(content))
            return parameters(options.cmake, script, file)

        accepted, none = parameters(options.cmake, script, "none")
        check(accepted, f"HALYARD_TUNED=none is refused: {none}")
        usual = dict(line.split(": ", 1) for line in none.splitlines() if ": " in line)

        # A round trip: every entry arrives, and nothing else changes.
        tuned = {"silu_f32": {"vectors": 4}, "layer_norm_bf16": {"vectors": 3, "rows": 1, "passes": 2},
                 "matmul_3_f16": {"panels": 2}, "epilogue": {"panels": 3}}
        accepted, text = written({"schedules": {"avx512": tuned}})
        check(accepted, f"a good file is refused: {text}")
        check(f"file: {file}" in text, "it is not said which file won")
        got = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        changed = {name: value for name, value in got.items() if usual.get(name) != value and name != "file"}
        check(changed.pop("silu f32 avx512") == "vectors=4", "silu has other parameters than the file says")
        check(set(changed.pop("layer_norm bf16 avx512").split(";")) == {"vectors=3", "rows=1", "passes=2"},
              "layer_norm has other parameters than the file says")
        check(changed.pop("matmul_3 f16 avx512") == "panels=2", "matmul_3 has other parameters than the file says")
        check(changed and all(name.startswith("epilogue_") and name.endswith(" avx512") and value == "panels=3"
                              for name, value in changed.items()), f"unexpected changes: {changed}")
        check(written({"schedules": {"avx512": tuned}})[1] == text, "the same file gives other parameters")

        # Parameters of the runtime, in their own section; schedules stay.
        runtime = {"task_bytes": 16384, "row_streams": -1, "gemm_block_rows": 64}
        accepted, text = written({"schedules": {}, "runtime": runtime})
        check(accepted, f"parameters of the runtime are refused: {text}")
        got = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        check(set(got.pop("runtime").split(";")) == {f"{name}={value}" for name, value in runtime.items()},
              "the runtime has other parameters than the file says")
        check({**got, "file": "", "runtime": ""} == usual, "parameters of the runtime change schedules")

        # A kernel that is called as its family is meant alone.
        accepted, text = written({"schedules": {"avx2": {"rope_f32": {"vectors": 2}}}})
        check(accepted and "rope f32 avx2: vectors=2\n" in text and "rope_interleaved f32 avx2: \n" in text,
              "an entry of a kernel counts for its family")

        # Which tiles there are is no matter of tuning.
        accepted, text = written({"schedules": {"avx2": {"matmul_8": {"panels": 1}}}})
        check(accepted and "matmul_8 f32 avx2: \n" in text + "\n", "a tuned file adds a tile")

        # Files with names of before.
        accepted, text = written({"schedules": {"avx512": {"matmul_tall_5": {"panels": 2}}}})
        check(accepted and "matmul_prefetch4_5 f32 avx512: panels=2\n" in text, "an old name of a kernel is not read")

        # The file for any machine over itself.
        accepted, text = written(base_file.read_text())
        check(accepted, f"the file for any machine is refused: {text}")
        check({**usual, "file": ""} == {**dict(line.split(": ", 1) for line in text.splitlines() if ": " in line),
                                        "file": ""}, "the file for any machine over itself changes parameters")

        for content, key, reason in REFUSED:
            accepted, text = written(content)
            check(not accepted, f"{content} is accepted")
            for part in (str(file), key, reason):
                check(part in text, f"the refusal of {content} does not say '{part}': {text}")
        accepted, text = written("{ not json")
        check(not accepted and str(file) in text, "what is no JSON is accepted")
        accepted, text = parameters(options.cmake, script, folder + "/none.json")
        check(not accepted and "no such file" in text, "a file that is not there is accepted")
    print("check_tuned: all right")


if __name__ == "__main__":
    main()
