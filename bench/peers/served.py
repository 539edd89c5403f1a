"""A peer that is one Python file: served.py FILE_peer.py answers what bench/peers/process.h asks.

The file has VERSION (text), OPERATIONS (names of operations; bench/peers/describe.cpp says what a row has beside it),
DTYPES (of "f32", "f16", "bf16") and

    def prepare(request): ...

which returns (calls, outputs, note): a call for each operand set, a function that gives the outputs of set 0 after its
call, as NumPy arrays or what else has tofile(path), and what a reader should know of it; it raises whatever says why
it cannot do the row. Modules beside the file and beside this one can be imported; row_tensors.py reads a request's
tensors.

If the file cannot be imported, the peer is missing and the error says why. One JSON object per line comes on standard
input and goes to standard output; a process of its own keeps the peer's threads and crashes from the benchmark.
"""

import gc
import importlib.util
import json
import os
import sys
import time

WARM_UP_SECONDS = 3e-3


def load(path):
    sys.dont_write_bytecode = True
    sys.path[:0] = [os.path.dirname(os.path.abspath(file)) for file in (path, __file__)]
    spec = importlib.util.spec_from_file_location("peer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Row:
    def __init__(self, peer, request):
        self.calls, self.outputs, self.note = peer.prepare(request)
        self.next = 0
        self.calls[0]()
        outputs, paths = list(self.outputs()), request["output_paths"]
        if len(outputs) < len(paths):
            raise ValueError(f"{len(outputs)} outputs instead of {len(paths)}")
        for output, path in zip(outputs, paths):
            output.tofile(path)

    def time(self, iterations):
        """Seconds for `iterations` calls, after some that are not counted."""
        calls, count = self.calls, len(self.calls)
        clock = time.perf_counter
        end = clock() + (WARM_UP_SECONDS if count == 1 else 0)
        calls[self.next % count]()
        while clock() < end:
            calls[0]()
        first = self.next + 1
        start = clock()
        if count == 1:
            call = calls[0]
            for _ in range(iterations):
                call()
        else:
            for i in range(first, first + iterations):
                calls[i % count]()
        seconds = clock() - start
        self.next = first + iterations
        return seconds


def text_of(error):
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def main(path):
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print must not land among the replies
    rows, missing = {}, None
    try:
        peer = load(path)
    except Exception as error:  # whatever its import throws is why it is not there
        missing = text_of(error)
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if missing:
                reply = {"error": missing}
            elif request["do"] == "hello":
                operations, dtypes = ([str(each) for each in names] for names in (peer.OPERATIONS, peer.DTYPES))
                reply = {"version": str(peer.VERSION), "operations": operations, "dtypes": dtypes}
            elif request["do"] == "prepare":
                row = rows[request["id"]] = Row(peer, request)
                reply = {"note": str(row.note)}
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


main(sys.argv[1])
