"""What the peers share that are a BLAS: plain products in f32, with a matrix of its own for each operand set."""

import ctypes

from c_calls import POINTER, CCall, built, function
from row_tensors import BoundRow, aligned, tensor_of

OPERATIONS = ["linear"]
DTYPES = ["f32"]
LACKS = "is compared for plain f32 products"
PRODUCTS = built("halyard-bench-c-calls")


def product(name):
    """A function of c_calls.c: of a function of the library, sizes and tensors."""
    return function(PRODUCTS, name, None, POINTER, POINTER, POINTER)


def prepare(request, *called, weights_of=aligned):
    """`called` comes before the sizes (rows, inputs, outputs) and the addresses of x, w and y; weights_of(w) is an array."""
    form = request["layer"]
    if form["gated"] or form["has_residual"] or "bias" in request["tensors"] or (form["activation"], form["norm"]) != ("identity", "none"):
        raise NotImplementedError(LACKS)
    row, matrix = BoundRow(request), tensor_of(request, "first")
    sizes = (ctypes.c_int * 3)(request["rows"], *reversed(matrix.shape))
    calls = []
    for (x,), (y,) in zip(row.inputs, row.outputs):
        weights = weights_of(matrix)
        tensors = (POINTER * 3)(x.ctypes.data, weights.ctypes.data, y.ctypes.data)
        calls.append(CCall((*called, sizes, tensors), kept=(row, weights)))
    return calls, row.results, ""
