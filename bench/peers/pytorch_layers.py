"""Layers for pytorch.py: linear layers and feed-forward networks, as a model written in PyTorch has them.

One product without a gate is timed as torch.mm or torch.addmm into a given output, with activation and residual in place
there; everything else as the eager expression, and through torch.compile, both of which allocate their outputs.
"""

import torch
import torch.nn.functional as F
from pytorch_tensors import DTYPES, latest, make_matrix, read_vector

aten = torch.ops.aten

ACTIVATIONS = {
    "identity": lambda x: x,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
IN_PLACE = {
    "identity": lambda x: x,
    "gelu_tanh": lambda x: aten.gelu_(x, approximate="tanh"),
    "silu": aten.silu_,
}


class LayerRow:
    """One row: its tensors for each operand set, and what is computed of them."""

    def __init__(self, request):
        layer = request["layer"]
        dtype = DTYPES[request["dtype"]]
        rows, d, d_out = request["rows"], request["d"], layer["d_out"]
        latest.drop_all_but("matrices")
        key = tuple((part["out"], part["in"], part["seed"]) for part in layer["matrices"]), dtype, request["sets"]
        self.layer, self.sets = layer, latest.get("matrices", key, lambda: [
            [make_matrix(part, dtype, layer["period"]) for part in layer["matrices"]] for _ in range(request["sets"])
        ])

        def vector(path, count):
            return read_vector(path, dtype, count) if path else None

        self.bias = vector(layer["bias"], d_out)
        self.bias_down = vector(layer["bias_down"], d)
        self.norm_weight = vector(request.get("weight"), d)
        self.norm_bias = vector(request.get("bias"), d)
        self.eps = request["rms_norm_eps" if layer["norm"] == "rms" else "layer_norm_eps"]
        widths = [d, d_out]
        x = [vector(path, rows * width).view(rows, width) for path, width in zip(request["inputs"], widths)]
        self.inputs = [x if i == 0 else [each.clone() for each in x] for i in range(request["sets"])]
        self.y = torch.zeros(rows, d if layer["is_ffn"] else d_out, dtype=dtype)

    def forward(self, weights, inputs):
        layer, x = self.layer, inputs[0]
        if layer["norm"] == "rms":
            x = F.rms_norm(x, x.shape[-1:], self.norm_weight, self.eps)
        elif layer["norm"] == "layer":
            x = F.layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias, self.eps)
        y = ACTIVATIONS[layer["activation"]](F.linear(x, weights[0], self.bias))
        if layer["gated"]:
            y = y * F.linear(x, weights[1])
        if layer["is_ffn"]:
            y = F.linear(y, weights[-1], self.bias_down)
        if layer["has_residual"]:
            y = y + (inputs[0] if layer["is_ffn"] else inputs[1])
        return [y]

    def into(self, weights, inputs):
        x, w, bias, y = inputs[0], weights[0].t(), self.bias, self.y
        activate = IN_PLACE[self.layer["activation"]]
        residual = inputs[1] if self.layer["has_residual"] else None
        if bias is None and residual is None and self.layer["activation"] == "identity":
            return lambda: torch.mm(x, w, out=y)

        def call():
            if bias is None:
                torch.mm(x, w, out=y)
            else:
                torch.addmm(bias, x, w, out=y)
            activate(y)
            if residual is not None:
                y.add_(residual)

        return call

    def calls(self, mode):
        """The calls to be timed, one for each operand set; they return their output where `allocates` says so."""
        pairs = list(zip(self.sets, self.inputs))
        single = not self.layer["is_ffn"] and not self.layer["gated"]
        self.allocates = not single
        if mode == "compile":
            if single:
                raise NotImplementedError("does what eager does for one product")
            torch._dynamo.reset()
            run = torch.compile(self.forward, fullgraph=True, dynamic=False)
            return [lambda w=w, x=x: run(w, x) for w, x in pairs]
        if single:
            return [self.into(w, x) for w, x in pairs]
        return [lambda w=w, x=x: self.forward(w, x) for w, x in pairs]

    def rows_of(self, result):
        return result if self.allocates else [self.y]

    @property
    def note(self):
        return "allocates its output" if self.allocates else ""
