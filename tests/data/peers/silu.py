"""What the peers of the tests compute, without NumPy."""

import array
import math


class Values:
    def __init__(self, values):
        self.values = array.array("f", values)

    def tofile(self, path):
        with open(path, "wb") as file:
            self.values.tofile(file)


def read(request):
    values = array.array("f")
    with open(request["inputs"][0], "rb") as file:
        values.frombytes(file.read())
    return values


def silu(request):
    return Values(x / (1 + math.exp(-x)) for x in read(request))


def zeros(request):
    return Values(0.0 for _ in read(request))
