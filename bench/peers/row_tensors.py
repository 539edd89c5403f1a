"""Tensors of a row for peers in Python: NumPy arrays from the files that a request names. bf16 are its bits."""

import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
# Gated units by the name of their activation; the one of "bilinear" is none.
GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu"}
# What a library has that builds a graph of a row, beside activations.
IN_GRAPHS = [*GATES, "bilinear", *[name + "_packed" for name in (*GATES, "bilinear")], "rms_norm", "layer_norm",
             "add_rms_norm", "add_layer_norm", "add", "cast", "linear", "ffn", "attention"]


def read(path, dtype, *shape):
    return np.fromfile(path, DTYPES[dtype]).reshape(shape)


def aligned(array):
    """A copy that begins with a cache line, as an allocator of tensors would have it."""
    line = 64
    room = np.empty(array.nbytes + line, np.uint8)
    start = -room.ctypes.data % line
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def as_f32(array):
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def from_f32(array, dtype):
    if dtype == "bf16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return array.astype(DTYPES[dtype], copy=False)


def inputs_of(request):
    """The inputs of set 0. Rows of layers with a residual have one as wide as their output."""
    return [read(path, request["dtype"], request["rows"], -1) for path in request["inputs"]]


def output_width(request):
    return request["layer"]["d_out"] if "layer" in request and not request["layer"]["is_ffn"] else request["d"]


def gate_and_up(request):
    """(start, stop, step) of the columns of gate and up in a packed gated unit."""
    d = request["d"]
    if request["layout"] == "interleaved":
        return (0, 2 * d, 2), (1, 2 * d, 2)
    first, second = (0, d, 1), (d, 2 * d, 1)
    return (second, first) if request["layout"] == "up_gate" else (first, second)


def vector(request, key):
    """`weight` or `bias` of a norm; None without one."""
    return read(request[key], request["dtype"], -1) if request.get(key) else None


def matrix(part, dtype):
    """What a request describes by {"path", "out", "in"}: [out, in], repeating the values of a file."""
    return np.resize(np.fromfile(part["path"], DTYPES[dtype]), (part["out"], part["in"]))


def matrices_of(request):
    """Of a layer: first or gate, up, down, as far as it has them; in a dictionary, empty for other rows."""
    layer = request.get("layer")
    if layer is None:
        return {}
    names = ["first"] + (["up"] if layer["gated"] else []) + (["down"] if layer["is_ffn"] else [])
    return {name: matrix(part, request["dtype"]) for name, part in zip(names, layer["matrices"])}


def layer_vector(request, key):
    """`bias` or `bias_down` of a layer; None without one."""
    path = request["layer"].get(key)
    return read(path, request["dtype"], -1) if path else None


def eps_of(request):
    """Of the norm of a row or of its layer."""
    rms = "rms" in request["operation"] or request.get("layer", {}).get("norm") == "rms"
    return request["rms_norm_eps" if rms else "layer_norm_eps"]


def heads_first(array, shape, heads):
    """[sequences * positions, heads * head_dim] as [sequences, heads, positions, head_dim]."""
    return np.ascontiguousarray(array.reshape(shape["sequences"], -1, heads, shape["head_dim"]).swapaxes(1, 2))


def past_of(request, shape):
    """Keys and values of the cached positions, with heads first; nothing for a prompt."""
    return [heads_first(matrix(part, request["dtype"]), shape, shape["kv_heads"]) for part in shape.get("history", [])]


def attention_inputs(request):
    """q, k and v with heads first; what is cached lies before the new token."""
    shape = request["attention"]
    counts = [shape["heads"], shape["kv_heads"], shape["kv_heads"]]
    q, *new = [heads_first(array, shape, count) for array, count in zip(inputs_of(request), counts)]
    past = past_of(request, shape)
    return [q, *([np.concatenate(each, axis=2) for each in zip(past, new)] if past else new)]


class BoundRow:
    """Inputs and outputs of every operand set, for libraries that are told once where they are."""

    def __init__(self, request, output_count):
        self.is_attention = request["operation"] == "attention"
        x = attention_inputs(request) if self.is_attention else inputs_of(request)
        shape = x[0].shape if self.is_attention else (request["rows"], output_width(request))
        y = np.zeros(shape, DTYPES[request["output_dtype"]])
        self.inputs = [list(map(aligned, x)) for _ in range(request["sets"])]
        self.outputs = [[aligned(y) for _ in range(output_count)] for _ in self.inputs]

    def results(self):
        y = self.outputs[0]
        return [np.ascontiguousarray(y[0].swapaxes(1, 2))] if self.is_attention else y
