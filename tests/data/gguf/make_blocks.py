#!/usr/bin/env python3
"""Makes blocks.gguf: random blocks of every quantized format that is read, and the numbers that they stand for.

    python make_blocks.py [FILE]

needs the package gguf (0.19), of ggml's own project: its writer makes the file, its dequantize the numbers. Of each format
there are two tensors, NAME with the blocks and NAME.f32, [2, 512] both.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

ROWS, COLUMNS = 2, 512
# Where the f16 numbers of a block lie.
F16_AT = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
# Subnormal, zero, large, negative; the others are random.
SPECIAL = np.array([2.0**-24 * 677, 0.0, 60000.0, -0.0371], np.float16)


def main():
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "blocks.gguf"
    random = np.random.default_rng(5)
    writer = gguf.GGUFWriter(file, "llama")
    for name, places in F16_AT.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = ROWS * COLUMNS // elements
        blocks = random.integers(0, 256, (count, size), np.uint8)
        for number, place in enumerate(places):
            scales = random.normal(0, 0.01, count).astype(np.float16)
            special = SPECIAL[number:][:count]
            scales[:len(special)] = special
            blocks[:, place:place + 2] = scales.view(np.uint8).reshape(count, 2)
        rows = blocks.reshape(ROWS, -1)
        writer.add_tensor(name, rows, raw_dtype=kind)
        writer.add_tensor(name + ".f32", gguf.quants.dequantize(rows, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
