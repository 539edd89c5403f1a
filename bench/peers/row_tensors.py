"""Tensors of a row for peers in Python: NumPy arrays from the files that a request names."""

import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16}


def read(path, dtype, *shape):
    return np.fromfile(path, DTYPES[dtype]).reshape(shape)


def inputs_of(request):
    """The inputs of set 0. Rows of layers with a residual have one as wide as their output."""
    rows, width = request["rows"], request["input_width"]
    return [read(path, request["dtype"], rows, -1 if "layer" in request else width) for path in request["inputs"]]


def vector(request, key):
    """`weight` or `bias` of a norm; None without one."""
    return read(request[key], request["dtype"], -1) if request.get(key) else None


def matrix(part, dtype):
    """What a request describes by {"path", "out", "in"}: [out, in], repeating the values of a file."""
    return np.resize(np.fromfile(part["path"], DTYPES[dtype]), (part["out"], part["in"]))


def matrices_of(request):
    """Of a layer: first or gate, up, down, as far as it has them; in a dictionary."""
    layer = request["layer"]
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


def attention_inputs(request):
    """q, k and v as [sequences, heads, positions, head_dim]; what is cached lies before the new token."""
    shape, rows, dtype = request["attention"], request["rows"], request["dtype"]
    counts = [shape["heads"], shape["kv_heads"], shape["kv_heads"]]

    def heads_first(array, count):
        per_sequence = array.reshape(shape["sequences"], -1, count, shape["head_dim"])
        return np.ascontiguousarray(per_sequence.swapaxes(1, 2))

    arrays = [heads_first(read(path, dtype, rows, -1), count) for path, count in zip(request["inputs"], counts)]
    for i, part in enumerate(shape.get("history", [])):
        past = heads_first(matrix(part, dtype), shape["kv_heads"])
        arrays[1 + i] = np.concatenate([past, arrays[1 + i]], axis=2)
    return arrays
