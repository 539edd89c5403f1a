"""The peer "pytorch": PyTorch without a compiler. Outputs are written into given tensors where it can (`out=`)."""

import torch
import torch_rows
from row_functions import GATES
from torch_rows import F, NumPy, prepared, row_of

VERSION = torch.__version__
TITLE = "PyTorch eager"
FAMILY = "PyTorch"
HOW = "eager, into given outputs where it can; its f32 GEMM is MKL, that of 16-bit types oneDNN"
LACKS = "has no derivatives of activations and no partial norm; without out= it allocates its output"
OPERATIONS = torch_rows.OPERATIONS
DTYPES = list(torch_rows.DTYPES)
CAPS_ISA = True

aten = torch.ops.aten
torch.set_grad_enabled(False)

# Activations into y.
UNARY_INTO = {
    "softmax": lambda x, y: torch.softmax(x, -1, out=y),
    "relu": lambda x, y: aten.relu.out(x, out=y),
    "gelu": lambda x, y: aten.gelu.out(x, out=y),
    "gelu_tanh": lambda x, y: aten.gelu.out(x, approximate="tanh", out=y),
    "silu": lambda x, y: aten.silu.out(x, out=y),
    "swish": lambda x, y: aten.silu.out(x, out=y),
    "sigmoid": lambda x, y: torch.sigmoid(x, out=y),
    "tanh": lambda x, y: torch.tanh(x, out=y),
    "exp": lambda x, y: torch.exp(x, out=y),
    "cast": lambda x, y: y.copy_(x),
}
BINARY_INTO = {"add": torch.add, "bilinear": torch.mul}
IN_PLACE = {
    "identity": lambda x: x,
    "gelu_tanh": lambda x: aten.gelu_(x, approximate="tanh"),
    "silu": aten.silu_,
}


def kernel_into(operation, layout, inputs, y):
    """A call that writes into y; None if PyTorch has none."""
    x = inputs[0]
    if operation in UNARY_INTO:
        return lambda into=UNARY_INTO[operation]: into(x, y)
    if operation in BINARY_INTO:
        return lambda into=BINARY_INTO[operation]: into(x, inputs[1], out=y)
    if operation in GATES:
        activate, up = UNARY_INTO[GATES[operation]], inputs[1]

        def gated():  # the product in place
            activate(x, y)
            torch.mul(y, up, out=y)

        return gated
    if operation == "glu_packed" and layout == "up_gate":  # PyTorch's own gated unit
        return lambda: aten.glu.out(x, -1, out=y)
    return None


def linear_into(module, inputs, y):
    """One product without a gate, with activation and residual in place."""
    x, w, bias, layer = inputs[0], module.first.t(), getattr(module, "bias", None), module.form
    activate, residual = IN_PLACE[layer["activation"]], inputs[1] if layer["has_residual"] else None

    def call():
        torch.mm(x, w, out=y) if bias is None else torch.addmm(bias, x, w, out=y)
        activate(y)
        if residual is not None:
            y.add_(residual)

    if bias is None and residual is None and layer["activation"] == "identity":
        return lambda: torch.mm(x, w, out=y)
    return call


def prepare(request):
    row = row_of(request)
    if "layer" in request and not (request["layer"]["is_ffn"] or request["layer"]["gated"]):
        y = F.linear(row.arguments[0][0], row.modules[0].first)
        calls = [linear_into(module, inputs, y) for module, inputs in zip(row.modules, row.arguments)]
        return calls, lambda: [NumPy(y)], ""
    if isinstance(row, torch_rows.KernelRow):
        calls = [kernel_into(request["operation"], request["layout"], inputs, results[0])
                 for inputs, results in zip(row.inputs, row.results)]
        if calls[0] is not None:
            return calls, lambda: [NumPy(row.results[0][0])], ""
        return row.allocating, lambda: map(NumPy, row.allocating[0]()), "allocates its output"
    return prepared(row, row.modules)
