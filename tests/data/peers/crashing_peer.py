"""A peer for the tests whose process dies while it is timed, in rows of 64 elements; in others it works."""

import os
import signal

from silu import silu

VERSION = "1"
OPERATIONS = ["silu"]
DTYPES = ["f32"]


def prepare(request):
    calls = []

    def call():
        calls.append(0)
        if request["d"] == 64 and len(calls) > 3:
            os.kill(os.getpid(), signal.SIGSEGV)

    return [call] * request["sets"], lambda: [silu(request)], ""
