"""A peer for the tests that works."""

from silu import silu

VERSION = "1"
OPERATIONS = ["silu"]
DTYPES = ["f32"]


def prepare(request):
    return [lambda: silu(request)] * request["sets"], lambda: [silu(request)], "in Python"
