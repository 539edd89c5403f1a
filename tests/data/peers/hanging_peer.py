"""A peer for the tests that never comes back, in rows of 64 elements; in others it works."""

import time

from silu import silu

VERSION = "1"
OPERATIONS = ["silu"]
DTYPES = ["f32"]


def prepare(request):
    while request["d"] == 64:
        time.sleep(60)
    return [lambda: None] * request["sets"], lambda: [silu(request)], ""
