"""Tensors for pytorch.py and the modules beside it: read from files, or made of values that the benchmark repeats."""

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def read_vector(path, dtype, count):
    return torch.from_file(path, shared=False, size=count, dtype=dtype).clone()


def read_matrix(path, dtype, rows, width):
    return read_vector(path, dtype, rows * width).view(rows, width)


def repeat(period, rows, width):
    """A matrix that goes on repeating `period`, as the benchmark fills its own."""
    matrix = torch.empty(rows * width, dtype=period.dtype)
    whole = matrix.numel() // period.numel()
    matrix[: whole * period.numel()].view(whole, -1).copy_(period)
    rest = matrix[whole * period.numel() :]
    rest.copy_(period[: rest.numel()])
    return matrix.view(rows, width)


def make_matrix(part, dtype, period):
    """What the request describes by {"path", "out", "in"}."""
    return repeat(read_vector(part["path"], dtype, period), part["out"], part["in"])


class Latest:
    """The tensors that were made last, by kind: eager and compiled share them, and rows that differ in others."""

    def __init__(self):
        self.kept = {}

    def get(self, kind, key, make):
        """What make() gave for this key, if that was the last of its kind."""
        if kind not in self.kept or self.kept[kind][0] != key:
            self.kept.pop(kind, None)  # gives back what the last ones took before there are new ones
            self.kept[kind] = key, make()
        return self.kept[kind][1]

    def drop_all_but(self, *kinds):
        for kind in [kind for kind in self.kept if kind not in kinds]:
            del self.kept[kind]


latest = Latest()
