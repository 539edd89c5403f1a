#!/usr/bin/env python3
"""Rows of a model in a GGUF file: test_model_file.py HALYARD_QUANTIZE FIXTURES HALYARD_BENCH."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

quantize, fixtures, bench = sys.argv[1:]


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    # Its rows are whole blocks of Q8_0, but for one matrix.
    shutil.copytree(pathlib.Path(fixtures) / "llama_linear_f32", folder / "model")
    config = json.loads((folder / "model/config.json").read_text())

    def made(positions, form):
        config["max_position_embeddings"] = positions
        (folder / "model/config.json").write_text(json.dumps(config))
        file = folder / f"small-{positions}.gguf"
        result = run(quantize, folder / "model", file, "--format", form)
        assert result.returncode == 0, result.stderr
        return file

    result = run(bench, "--model", made(600, "Q8_0"), "--list")
    rows = [f"model.small-600{kind}/{shape}/cold/" for kind in ("/f32", "/bf16", ".int8/f32")
            for shape in ("prompt128", "prompt512", "decode1x128")]
    lines = result.stdout.split()
    assert [line.rpartition("/")[0] + "/" for line in lines] == rows, result

    file = made(200, "F32")
    result = run(bench, "--model", file, "--list")
    assert "prompt512" not in result.stdout and "decode1x128" in result.stdout, result
    result = run(bench, "--model", file, "--peers", "none", "--rounds", "1", "--json", folder / "result")
    assert result.returncode == 0, result.stderr
    measured = [row for row in map(json.loads, (folder / "result").read_text().splitlines()) if "resident" in row]
    assert len(measured) == 4, measured
    for row in measured:
        assert 0 <= row["error"] < (1e-4 if "/f32/" in row["name"] else 0.05), row

    for wrong, words in ((made(100, "F32"), "has 100 positions"), (folder / "model/config.json", "is no GGUF file"),
                         (folder / "none", "File does not exist")):
        result = run(bench, "--model", wrong, "--list")
        assert result.returncode != 0 and words in result.stderr, result
