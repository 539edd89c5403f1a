"""Arrays of a dtype with what is in them in float64, and how far a stored result may be from it."""
import numpy as np
from dlpack_array import DlpackArray, to_bf16

HALF_SPACING = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}  # relative to a power of two, and at least


def within(result, exact, error, dtype):
    """Whether every number is as near as it may be, its storage being rounded once."""
    if dtype != "f32":
        relative, least = HALF_SPACING[dtype]
        _, exponent = np.frexp(np.abs(exact) + error)
        error = error + np.maximum(np.ldexp(relative, exponent - 1), least)
    return bool(np.all(np.abs(result - exact) <= error))


class Numbers:
    """Arrays of a dtype, and what is in them in float64."""

    def __init__(self, dtype, seed=1):
        self.dtype, self.random = dtype, np.random.default_rng(seed)

    def array(self, shape, low=-4.0, high=4.0):
        numbers = self.random.uniform(low, high, shape).astype(np.float32)
        return self.of(numbers)

    def of(self, numbers):
        if self.dtype == "bf16":
            return DlpackArray(to_bf16(numbers))
        return numbers.astype({"f32": np.float32, "f16": np.float16}[self.dtype])

    def exact(self, array):
        return (array.numbers() if self.dtype == "bf16" else array).astype(np.float64)

    def empty(self, shape):
        return self.of(np.full(shape, np.nan, np.float32))
