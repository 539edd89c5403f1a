"""A peer that is one Python file: served.py NAME_peer.py FOLDER answers what bench/peers/process.h asks.

The file says what the peer is:

    VERSION     text
    TITLE       what reports call it (without it the peer's name)
    FAMILY      the library it speaks for: peers of one family are no two opinions (without it the peer's name)
    HOW         a sentence for readers: how it is run
    INTERFACE   "C" if its calls are CCall (c_calls.py), which are timed in C, else "Python" (which is the default)
    LACKS       the same: what it cannot do, or why a row is not compared (without it nothing)
    OPERATIONS  names of operations; bench/peers/describe.cpp says what a row has beside it
    DTYPES      of "f32", "f16", "bf16"
    SLOW        True if preparing a row takes seconds (without it False)
    CAPS_ISA    True if it keeps to the instruction set that process.cpp tells it in its environment (without it False)

    def prepare(request): ...

returns (calls, outputs, note): a call for each operand set, a function that gives the outputs of set 0 after its call,
as NumPy arrays or what else has tofile(path), and what a reader should know of the row; it raises whatever says why it
cannot do the row. Modules beside the file and beside this one can be imported: row_tensors.py reads a request's tensors,
row_functions.py puts a row together of a library's operations. In FOLDER lie the libraries that were built for peers
(c_calls.py).

A peer whose packages contradict those of others has a virtual environment of its own: peers/NAME in that of the
interpreter. If the file cannot be imported, the peer is missing and the error says why: a NotImplementedError that it is
not for this machine. One JSON object per line comes on standard input and goes to standard output; a process of its own
keeps the peer's threads and crashes from the benchmark.
"""

import ctypes
import gc
import importlib.util
import json
import os
import sys
import time

from c_calls import Repeat

WARM_UP_SECONDS = 3e-3


def resident_bytes():
    """Physical memory of the process, without what its allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Row:
    def __init__(self, peer, request):
        before = resident_bytes() if "model" in request else 0
        self.calls, self.outputs, self.note = peer.prepare(request)
        self.timer = Repeat(self.calls) if interface_of(peer) == "C" else self
        self.next = 0
        self.calls[0]()
        self.resident = resident_bytes() - before if before else 0
        outputs, paths = list(self.outputs()), request["output_paths"]
        if len(outputs) < len(paths):
            raise ValueError(f"{len(outputs)} outputs instead of {len(paths)}")
        for output, path in zip(outputs, paths):
            output.tofile(path)
        for call in self.calls[1:]:  # the first call of each compiles, packs, or is the first to touch its memory
            call()

    def time(self, iterations):
        """Seconds for `iterations` calls, after some that are not counted."""
        count = len(self.calls)
        warm_up = WARM_UP_SECONDS if count == 1 else 0
        before, self.next = self.next, self.next + 1 + iterations
        return self.timer.seconds(before, warm_up, iterations)

    def seconds(self, first, warm_up, iterations):
        calls, count, clock = self.calls, len(self.calls), time.perf_counter
        end = clock() + warm_up
        calls[first % count]()
        while clock() < end:
            calls[0]()
        start = clock()
        if count == 1:
            call = calls[0]
            for _ in range(iterations):
                call()
        else:
            for i in range(first + 1, first + 1 + iterations):
                calls[i % count]()
        return clock() - start


def load(path):
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interface_of(peer):
    return getattr(peer, "INTERFACE", "Python")


def hello(peer, name):
    texts = {key.lower(): str(getattr(peer, key, "")) for key in ("VERSION", "HOW", "LACKS")}
    lists = {key.lower(): [str(each) for each in getattr(peer, key)] for key in ("OPERATIONS", "DTYPES")}
    names = {key.lower(): str(getattr(peer, key, name)) for key in ("TITLE", "FAMILY")}
    return {**texts, **names, **lists, "interface": interface_of(peer),
            "slow": bool(getattr(peer, "SLOW", False)), "caps_isa": bool(getattr(peer, "CAPS_ISA", False))}


def text_of(error):
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def main(path, _):
    name = os.path.basename(path).removesuffix("_peer.py")
    own_python = os.path.join(sys.prefix, "peers", name, "bin", "python")
    if os.path.exists(own_python):
        os.execv(own_python, [own_python, "-u", *sys.argv])
    sys.path[:0] = [os.path.dirname(os.path.abspath(file)) for file in (path, __file__)]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print must not land among the replies
    rows, missing = {}, None
    try:
        peer = load(path)
    except NotImplementedError as error:
        missing = f"not for this machine: {error}"
    except Exception as error:  # whatever else its import throws is why it is not there
        missing = text_of(error)
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if missing:
                reply = {"error": missing}
            elif request["do"] == "hello":
                reply = hello(peer, name)
            elif request["do"] == "prepare":
                rows[request["id"]] = Row(peer, request)
                reply = {"note": str(rows[request["id"]].note), "resident": rows[request["id"]].resident}
            elif request["do"] == "time":
                reply = {"seconds": rows[request["id"]].time(request["iterations"])}
            else:
                rows.pop(request["id"], None)
                gc.collect()
                reply = {}
        except Exception as error:  # whatever the peer throws is the answer for this row
            rows.pop(request.get("id"), None)
            reply = {"error": text_of(error)}
        replies.write(json.dumps(reply) + "\n")


main(*sys.argv[1:])
