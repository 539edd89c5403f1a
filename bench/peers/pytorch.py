"""The PyTorch side of the benchmark: a process that prepares one row and then times it whenever it is asked.

bench/peers/pytorch.cpp starts it, writes one JSON object per line to its standard input and reads one per line from its
standard output, so that samples of PyTorch stand between samples of the library in every round. A process of its own
keeps the two apart: other OpenMP and MKL threads, another allocator. The timed loop is a Python loop of direct calls,
which is how PyTorch is called.

Outputs are written into a given tensor where PyTorch can (`out=`); rows where it allocates its result are marked so.
The compiled functions end in a copy into the given output, which the compiler fuses away.
"""

import gc
import importlib.metadata
import json
import os
import sys
import time

replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # whatever libraries print must not land among the replies
sys.dont_write_bytecode = True  # of the modules beside this one, into the source tree

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from pytorch_attention import AttentionRow  # noqa: E402
from pytorch_block import BlockRow  # noqa: E402
from pytorch_layers import LayerRow  # noqa: E402
from pytorch_tensors import DTYPES, latest, read_matrix, read_vector  # noqa: E402
from transformers_model import ModelRow  # noqa: E402

aten = torch.ops.aten


class Row:
    """What a function below gets: the tensors of one operand set, and the parameters of the row."""

    def __init__(self, inputs, outputs, weight, bias, options):
        self.inputs, self.outputs, self.weight, self.bias, self.options = inputs, outputs, weight, bias, options
        self.x, self.y = inputs[0], outputs[0]


def unpack(row):
    """Gate and up of a packed gated unit, as views."""
    layout = row.options["layout"]
    if layout == "interleaved":
        return row.x[..., 0::2], row.x[..., 1::2]
    first, second = row.x.chunk(2, -1)
    return (second, first) if layout == "up_gate" else (first, second)


def layer_norm(row, x):
    return F.layer_norm(x, x.shape[-1:], row.weight, row.bias, row.options["layer_norm_eps"])


def rms_norm(row, x):
    return F.rms_norm(x, x.shape[-1:], row.weight, row.options["rms_norm_eps"])


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


GATES = {
    "glu": torch.sigmoid,
    "bilinear": lambda gate: gate,
    "reglu": torch.relu,
    "geglu": F.gelu,
    "geglu_tanh": lambda gate: F.gelu(gate, approximate="tanh"),
    "swiglu": F.silu,
}

# What is computed, as a function of the row that returns new tensors, one for each output.
FUNCTIONS = {
    "layer_norm": lambda row: [layer_norm(row, row.x)],
    "rms_norm": lambda row: [rms_norm(row, row.x)],
    "softmax": lambda row: [torch.softmax(row.x, -1)],
    "relu": lambda row: [torch.relu(row.x)],
    "relu2": lambda row: [torch.square(torch.relu(row.x))],
    "gelu": lambda row: [F.gelu(row.x)],
    "gelu_tanh": lambda row: [F.gelu(row.x, approximate="tanh")],
    "gelu_sigmoid": lambda row: [quick_gelu(row.x)],
    "silu": lambda row: [F.silu(row.x)],
    "swish": lambda row: [F.silu(row.x)],
    "sigmoid": lambda row: [torch.sigmoid(row.x)],
    "tanh": lambda row: [torch.tanh(row.x)],
    "exp": lambda row: [torch.exp(row.x)],
    "add": lambda row: [row.x + row.inputs[1]],
    "cast": lambda row: [row.x.to(row.y.dtype)],
}
for name, gate in GATES.items():
    FUNCTIONS[name] = lambda row, gate=gate: [gate(row.x) * row.inputs[1]]
    FUNCTIONS[name + "_packed"] = lambda row, gate=gate: [gate(unpack(row)[0]) * unpack(row)[1]]


def add_then(norm):
    def function(row):
        residual = row.x + row.inputs[1]
        return [residual, norm(row, residual)]

    return function


FUNCTIONS["add_layer_norm"] = add_then(layer_norm)
FUNCTIONS["add_rms_norm"] = add_then(rms_norm)


def gated_into(gate_into):
    """A gated unit on two tensors: the activation into the output, the product in place."""

    def bind(row):
        gate, up, y = row.x, row.inputs[1], row.y

        def call():
            gate_into(gate, y)
            torch.mul(y, up, out=y)

        return call

    return bind


# The same into given outputs, where eager PyTorch can: the call that is timed, made once per operand set.
INTO = {
    "softmax": lambda row: lambda x=row.x, y=row.y: torch.softmax(x, -1, out=y),
    "relu": lambda row: lambda x=row.x, y=row.y: aten.relu.out(x, out=y),
    "gelu": lambda row: lambda x=row.x, y=row.y: aten.gelu.out(x, out=y),
    "gelu_tanh": lambda row: lambda x=row.x, y=row.y: aten.gelu.out(x, approximate="tanh", out=y),
    "silu": lambda row: lambda x=row.x, y=row.y: aten.silu.out(x, out=y),
    "swish": lambda row: lambda x=row.x, y=row.y: aten.silu.out(x, out=y),
    "sigmoid": lambda row: lambda x=row.x, y=row.y: torch.sigmoid(x, out=y),
    "tanh": lambda row: lambda x=row.x, y=row.y: torch.tanh(x, out=y),
    "exp": lambda row: lambda x=row.x, y=row.y: torch.exp(x, out=y),
    "add": lambda row: lambda a=row.x, b=row.inputs[1], y=row.y: torch.add(a, b, out=y),
    "bilinear": lambda row: lambda a=row.x, b=row.inputs[1], y=row.y: torch.mul(a, b, out=y),
    "cast": lambda row: lambda x=row.x, y=row.y: y.copy_(x),
    "glu": gated_into(lambda gate, y: torch.sigmoid(gate, out=y)),
    "reglu": gated_into(lambda gate, y: aten.relu.out(gate, out=y)),
    "geglu": gated_into(lambda gate, y: aten.gelu.out(gate, out=y)),
    "geglu_tanh": gated_into(lambda gate, y: aten.gelu.out(gate, approximate="tanh", out=y)),
    "swiglu": gated_into(lambda gate, y: aten.silu.out(gate, out=y)),
}


def glu_into(row):
    """PyTorch's own gated unit: halves, gate second."""
    x, y = row.x, row.y
    return lambda: aten.glu.out(x, -1, out=y)


# By what the request has of it; without any of them it is a kernel.
FAMILIES = {"layer": LayerRow, "attention": AttentionRow, "block": BlockRow, "model": ModelRow}


class KernelRow:
    """One of the functions above on tensors of rows."""

    def __init__(self, request):
        latest.drop_all_but()
        self.operation = request["operation"]
        if self.operation not in FUNCTIONS:
            raise NotImplementedError("has no such function")
        parameters = [
            read_vector(request[key], DTYPES[request["dtype"]], request["d"]) if request.get(key) else None
            for key in ("weight", "bias")
        ]
        shape = DTYPES[request["dtype"]], request["rows"], request["input_width"]
        first = [read_matrix(path, *shape) for path in request["inputs"]]
        options = {key: request[key] for key in ("layout", "layer_norm_eps", "rms_norm_eps")}
        self.rows = []
        for index in range(request["sets"]):
            inputs = first if index == 0 else [x.clone() for x in first]
            outputs = [
                torch.zeros(request["rows"], request["d"], dtype=DTYPES[request["output_dtype"]])
                for _ in range(request["outputs"])
            ]
            self.rows.append(Row(inputs, outputs, *parameters, options))
        self.note = ""

    def calls(self, mode):
        operation = self.operation
        if mode == "compile":
            return self.compile(FUNCTIONS[operation])
        if operation == "glu_packed" and self.rows[0].options["layout"] == "up_gate":
            return [glu_into(row) for row in self.rows]
        if operation in INTO:
            return [INTO[operation](row) for row in self.rows]
        self.note = "allocates its output"
        return [lambda row=row: FUNCTIONS[operation](row) for row in self.rows]

    def rows_of(self, result):
        return result if self.note else self.rows[0].outputs

    def compile(self, function):
        """One compiled function for all operand sets; the options are constants in it."""
        options = self.rows[0].options

        def into_outputs(inputs, outputs, weight, bias):
            for output, value in zip(outputs, function(Row(inputs, outputs, weight, bias, options))):
                output.copy_(value)

        torch._dynamo.reset()
        run = torch.compile(into_outputs, fullgraph=True, dynamic=False)
        return [lambda row=row: run(row.inputs, row.outputs, row.weight, row.bias) for row in self.rows]


class Prepared:
    """Any row, ready to be timed."""

    def __init__(self, request):
        torch.set_num_threads(request["threads"])
        self.next = 0
        family = next((FAMILIES[name] for name in FAMILIES if name in request), KernelRow)
        self.row = family(request)
        self.calls = self.row.calls(request.get("mode"))

    def once(self, paths):
        """Does the work on set 0 and writes the outputs to files."""
        for output, path in zip(self.row.rows_of(self.calls[0]()), paths):
            output.contiguous().view(torch.uint8).numpy().tofile(path)

    def time(self, iterations):
        """Seconds for `iterations` calls, after some that are not counted."""
        calls, count = self.calls, len(self.calls)
        clock = time.perf_counter
        if count == 1:
            call = calls[0]
            end = clock() + 3e-3
            call()
            while clock() < end:
                call()
            start = clock()
            for _ in range(iterations):
                call()
            return clock() - start
        calls[self.next % count]()
        first = self.next + 1
        start = clock()
        for i in range(first, first + iterations):
            calls[i % count]()
        seconds = clock() - start
        self.next = first + iterations
        return seconds


def version_of(package):
    """Empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main():
    prepared = {}
    torch.set_grad_enabled(False)
    gc.disable()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "hello":
                reply = {"version": torch.__version__, "transformers": version_of("transformers")}
            elif request["do"] == "prepare":
                row = prepared[request["id"]] = Prepared(request)
                row.once(request["output_paths"])
                reply = {"note": row.row.note, "resident": getattr(row.row, "resident", 0)}
            elif request["do"] == "time":
                reply = {"seconds": prepared[request["id"]].time(request["iterations"])}
            else:
                prepared.pop(request["id"], None)
                gc.collect()
                reply = {}
        except Exception as error:  # whatever PyTorch throws is the answer for this row
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        replies.write(json.dumps(reply) + "\n")


main()
