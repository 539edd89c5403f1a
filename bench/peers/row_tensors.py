"""Tensors of a row for peers in Python: NumPy arrays from the files that a request names. bf16 are its bits."""

import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "u8": np.uint8}


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
    return [np.fromfile(path, DTYPES[request["dtype"]]).reshape(request["rows"], -1) for path in request["inputs"]]


def output_width(request):
    return request["layer"]["d_out"] if "layer" in request and not request["layer"]["is_ffn"] else request["d"]


def tensor_of(request, name):
    """A matrix [out, in] or a vector by its name (bench/cases/operands.h), repeating what its file holds; None without it. Of a
    matrix in blocks, their bytes [out, bytes]."""
    part = request["tensors"].get(name)
    if part is None:
        return None
    return np.resize(np.fromfile(part["path"], DTYPES[part.get("dtype", request["dtype"])]), part["shape"])


def tensors_of(request):
    return {name: tensor_of(request, name) for name in request["tensors"]}


def heads_first(array, shape, heads):
    """[sequences * positions, heads * head_dim] as [sequences, heads, positions, head_dim]."""
    return np.ascontiguousarray(array.reshape(shape["sequences"], -1, heads, shape["head_dim"]).swapaxes(1, 2))


def past_of(request, shape):
    """Keys and values of the cached positions, with heads first; nothing for a prompt."""
    return [heads_first(tensor_of(request, name), shape, shape["kv_heads"]) for name in ("keys", "values")
            if name in request["tensors"]]


def attention_inputs(request):
    """q, k and v with heads first; what is cached lies before the new token."""
    shape = request["attention"]
    counts = [shape["heads"], shape["kv_heads"], shape["kv_heads"]]
    q, *new = [heads_first(array, shape, count) for array, count in zip(inputs_of(request), counts)]
    past = past_of(request, shape)
    return [q, *([np.concatenate(each, axis=2) for each in zip(past, new)] if past else new)]


class BoundRow:
    """Inputs and outputs of every operand set, for libraries that are told once where they are."""

    def __init__(self, request):
        self.is_attention = request["operation"] == "attention"
        x = attention_inputs(request) if self.is_attention else inputs_of(request)
        shape = x[0].shape if self.is_attention else (request["rows"], output_width(request))
        y = np.zeros(shape, DTYPES[request["output_dtype"]])
        self.inputs = [list(map(aligned, x)) for _ in range(request["sets"])]
        self.outputs = [[aligned(y) for _ in range(request["outputs"])] for _ in self.inputs]

    def results(self):
        y = self.outputs[0]
        return [np.ascontiguousarray(y[0].swapaxes(1, 2))] if self.is_attention else y
