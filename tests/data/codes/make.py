#!/usr/bin/env python3
"""Makes the files beside it: codes and scales of random weights, and the weights that the packages which define the formats make of
them. Needs `pip install gguf compressed-tensors` (made with gguf 0.19.0 and compressed-tensors 0.20.0) and writes here."""
import pathlib

import gguf
import numpy as np
import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

HERE = pathlib.Path(__file__).parent
LINE = 120  # digits


def write(name, numbers, tensors):
    lines = ["# Made by make.py. Little-endian bytes, row by row; values: [out, in] in f32."]
    lines += [f"{field} {value}" for field, value in numbers.items()]
    for field, (tensor, rows) in tensors.items():
        if rows:
            lines.append(f"{field}_rows {rows}")
        text = tensor.tobytes().hex()
        lines += [f"{field} {text[i:i + LINE]}" for i in range(0, len(text), LINE)]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")


def gguf_blocks(number, name, rng):
    """Random bytes, with scales that are small numbers."""
    kind = gguf.GGMLQuantizationType[name]
    inputs, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = 3, 256
    blocks = rng.integers(0, 256, (rows * columns // inputs, size), dtype=np.uint8)
    for place in {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}.get(name, (0,)):
        scales = (rng.standard_normal(len(blocks)) / 16).astype(np.float16)
        blocks[:, place:place + 2] = scales.reshape(-1, 1).view(np.uint8)
    blocks = blocks.reshape(rows, -1)
    values = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    write(name.lower(), {"format": number, "bits": 0, "in": columns, "out": rows, "group": 0},
          {"matrix": (blocks, rows), "values": (values, 0)})


def compressed_tensors(bits, rng):
    rows, columns, group = 11, 75, 32
    groups = -(-columns // group)
    low, high = -(1 << (bits - 1)), 1 << (bits - 1)
    codes = torch.from_numpy(rng.integers(low, high, (rows, columns), dtype=np.int8))
    zeros = torch.from_numpy(rng.integers(low, high, (rows, groups), dtype=np.int8))
    scales = torch.from_numpy((rng.standard_normal((rows, groups)) / 16).astype(np.float32))
    of_input = torch.arange(columns) // group
    values = (codes.to(torch.float32) - zeros[:, of_input].to(torch.float32)) * scales[:, of_input]
    packed, packed_zeros = pack_to_int32(codes, bits), pack_to_int32(zeros, bits, packed_dim=0)
    write(f"compressed_tensors_{bits}", {"format": 9, "bits": bits, "in": columns, "out": rows, "group": group},
          {"matrix": (packed.numpy(), rows), "scales": (scales.numpy(), rows),
           "zeros": (packed_zeros.numpy(), packed_zeros.shape[0]), "values": (values.numpy(), 0)})


if __name__ == "__main__":
    for number, name in enumerate(("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")):
        gguf_blocks(number, name, np.random.default_rng(number))
    for bits in (4, 8):
        compressed_tensors(bits, np.random.default_rng(bits))
