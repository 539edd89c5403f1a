"""Rows of the benchmark in PyTorch, as a model written in it has them, for the peers that are PyTorch.

row_of(request) gives a row with

    modules     of each operand set, a torch.nn.Module that holds its weights, or a function
    arguments   of each operand set, what its module is called with
    outputs     of set 0, from what its call returned

Kernels write into given outputs, which a compiler fuses; the others allocate theirs. What eager PyTorch can do better
by hand is in pytorch_peer.py.
"""

import torch
import torch.nn.functional as F
from torch.nn import Module, Parameter

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


# ---- tensors ----


def read_vector(path, dtype, count):
    return torch.from_file(path, shared=False, size=count, dtype=dtype).clone()


def read_matrix(path, dtype, rows, width):
    return read_vector(path, dtype, rows * width).view(rows, width)


def make_matrix(part, dtype, period):
    """What the request describes by {"path", "out", "in"}: a matrix that goes on repeating the values of a file."""
    values = read_vector(part["path"], dtype, period)
    matrix = torch.empty(part["out"] * part["in"], dtype=dtype)
    whole = matrix.numel() // period
    matrix[: whole * period].view(whole, period).copy_(values)
    matrix[whole * period :].copy_(values[: matrix.numel() - whole * period])
    return matrix.view(part["out"], part["in"])


def constant(tensor):
    """A parameter that is never trained; None stays None."""
    return None if tensor is None else Parameter(tensor, requires_grad=False)


def copies(tensors, count):
    """The tensors for each operand set."""
    return [tensors if i == 0 else [each.clone() for each in tensors] for i in range(count)]


class NumPy:
    """An output for served.py."""

    def __init__(self, tensor):
        self.tensor = tensor

    def tofile(self, path):
        self.tensor.contiguous().view(torch.uint8).numpy().tofile(path)


# ---- kernels on rows ----

GATES = {
    "glu": torch.sigmoid,
    "bilinear": lambda gate: gate,
    "reglu": torch.relu,
    "geglu": F.gelu,
    "geglu_tanh": lambda gate: F.gelu(gate, approximate="tanh"),
    "swiglu": F.silu,
}
UNARY = {
    "softmax": lambda x: torch.softmax(x, -1),
    "relu": torch.relu,
    "relu2": lambda x: torch.square(torch.relu(x)),
    "gelu": F.gelu,
    "gelu_tanh": GATES["geglu_tanh"],
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "swish": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
}
NORMS = ["rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"]
PACKED = "_packed"
KERNELS = [*UNARY, *GATES, *[gate + PACKED for gate in GATES], *NORMS, "add", "cast"]
OPERATIONS = [*KERNELS, "linear", "ffn", "attention", "block"]


def gate_and_up(x, layout):
    """Of a packed gated unit, as views."""
    if layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    first, second = x.chunk(2, -1)
    return (second, first) if layout == "up_gate" else (first, second)


def norm_of(request):
    """A function of x, weight and bias."""
    if "rms" in request["operation"]:
        eps = request["rms_norm_eps"]
        return lambda x, weight, bias: F.rms_norm(x, x.shape[-1:], weight, eps)
    eps = request["layer_norm_eps"]
    return lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def function_of(request):
    """A function of inputs, weight and bias that returns new tensors, one for each output."""
    name, layout, dtype = request["operation"], request["layout"], DTYPES[request["output_dtype"]]
    if name in UNARY:
        return lambda inputs, *_: [UNARY[name](inputs[0])]
    if name.endswith(PACKED):
        activation = GATES[name.removesuffix(PACKED)]

        def packed(inputs, *_):
            gate, up = gate_and_up(inputs[0], layout)
            return [activation(gate) * up]

        return packed
    if name in GATES:
        return lambda inputs, *_: [GATES[name](inputs[0]) * inputs[1]]
    if name == "add":
        return lambda inputs, *_: [inputs[0] + inputs[1]]
    if name == "cast":
        return lambda inputs, *_: [inputs[0].to(dtype)]
    norm = norm_of(request)
    if name in ("rms_norm", "layer_norm"):
        return lambda inputs, *parameters: [norm(inputs[0], *parameters)]

    def add_norm(inputs, *parameters):
        total = inputs[0] + inputs[1]
        return [total, norm(total, *parameters)]

    return add_norm


class KernelRow:
    """A function on the tensors themselves, whose call costs a compiler's users least."""

    note = ""

    def __init__(self, request):
        dtype, rows, sets = DTYPES[request["dtype"]], request["rows"], request["sets"]
        x = [read_matrix(path, dtype, rows, request["input_width"]) for path in request["inputs"]]
        y = [torch.zeros(rows, request["d"], dtype=DTYPES[request["output_dtype"]]) for _ in range(request["outputs"])]
        parameters = [read_vector(request[key], dtype, request["d"]) if request.get(key) else None
                      for key in ("weight", "bias")]
        self.inputs, self.results = copies(x, sets), copies(y, sets)
        function, inputs, outputs = function_of(request), len(x), len(y)

        def into(*tensors):
            values = function(tensors[:inputs], *tensors[inputs + outputs :])
            for result, value in zip(tensors[inputs:], values):
                result.copy_(value)

        self.modules = [into] * sets
        self.arguments = [(*x, *y, *parameters) for x, y in zip(self.inputs, self.results)]
        self.allocating = [lambda x=x: function(x, *parameters) for x in self.inputs]

    def outputs(self, returned):
        return self.results[0]


# ---- linear layers and feed-forward networks ----

ACTIVATIONS = {"identity": lambda x: x, "gelu_tanh": GATES["geglu_tanh"], "silu": F.silu}


class Layer(Module):
    def __init__(self, request):
        super().__init__()
        layer, dtype, d = request["layer"], DTYPES[request["dtype"]], request["d"]

        def vector(path, count):
            return constant(read_vector(path, dtype, count)) if path else None

        self.layer = layer
        self.weights = torch.nn.ParameterList(
            [constant(make_matrix(part, dtype, layer["period"])) for part in layer["matrices"]])
        self.bias, self.bias_down = vector(layer["bias"], layer["d_out"]), vector(layer["bias_down"], d)
        self.norm_weight, self.norm_bias = vector(request.get("weight"), d), vector(request.get("bias"), d)
        self.eps = request["rms_norm_eps" if layer["norm"] == "rms" else "layer_norm_eps"]

    def forward(self, *inputs):
        layer, x = self.layer, inputs[0]
        if layer["norm"] == "rms":
            x = F.rms_norm(x, x.shape[-1:], self.norm_weight, self.eps)
        elif layer["norm"] == "layer":
            x = F.layer_norm(x, x.shape[-1:], self.norm_weight, self.norm_bias, self.eps)
        y = ACTIVATIONS[layer["activation"]](F.linear(x, self.weights[0], self.bias))
        if layer["gated"]:
            y = y * F.linear(x, self.weights[1])
        if layer["is_ffn"]:
            y = F.linear(y, self.weights[-1], self.bias_down)
        return y + inputs[0 if layer["is_ffn"] else 1] if layer["has_residual"] else y


class AllocatingRow:
    note = "allocates its output"

    def outputs(self, returned):
        return [returned]


class LayerRow(AllocatingRow):
    def __init__(self, request):
        rows, sets, dtype = request["rows"], request["sets"], DTYPES[request["dtype"]]
        widths = [request["d"], request["layer"]["d_out"]]
        inputs = [read_matrix(path, dtype, rows, width) for path, width in zip(request["inputs"], widths)]
        self.modules = [Layer(request) for _ in range(sets)]
        self.arguments = copies(inputs, sets)


# ---- attention ----
# All tensors are contiguous [sequences, heads, positions, head_dim], which is the layout that is fastest for it; a
# decode's keys and values lie there for all positions, that of the new token included.


def heads_first(matrix, sequences, heads):
    """[sequences * positions, heads * head_dim] as [sequences, heads, positions, head_dim], a view."""
    return matrix.view(sequences, matrix.shape[0] // sequences, heads, -1).transpose(1, 2)


def history(request, shape, room):
    """Keys and values of the cached positions with room for as many more."""
    tensors = []
    for part in shape["history"]:
        past = heads_first(make_matrix(part, DTYPES[request["dtype"]], shape["period"]), shape["sequences"],
                           shape["kv_heads"])
        whole = torch.zeros(*past.shape[:2], past.shape[2] + room, past.shape[3], dtype=past.dtype)
        whole[:, :, : past.shape[2]].copy_(past)
        tensors.append(whole)
    return tensors


class Attention(Module):
    def __init__(self, shape):
        super().__init__()
        self.options = {"is_causal": shape["cached"] == 0, "enable_gqa": shape["heads"] != shape["kv_heads"]}

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


class AttentionRow(AllocatingRow):
    def __init__(self, request):
        shape, sets, dtype, rows = request["attention"], request["sets"], DTYPES[request["dtype"]], request["rows"]
        counts = [shape["heads"], shape["kv_heads"], shape["kv_heads"]]
        q, k, v = [heads_first(read_matrix(path, dtype, rows, count * shape["head_dim"]), shape["sequences"],
                               count).contiguous() for path, count in zip(request["inputs"], counts)]
        if shape["cached"]:
            keys, values = history(request, shape, 1)
            keys[:, :, -1:].copy_(k)
            values[:, :, -1:].copy_(v)
            k, v = keys, values
        self.modules = [Attention(shape)] * sets
        self.arguments = copies([q, k, v], sets)

    def outputs(self, returned):
        return [returned.transpose(1, 2)]


# ---- transformer blocks ----
# Pre-LN; where there are biases, as in GPT-2, q, k and v are one matrix. Keys and values of a decode go into tensors
# that have room for the new token.


def rotary_tables(theta, head_dim, first, count, dtype):
    """Cosines and sines [count, head_dim] of the positions from `first` on."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(first, first + count, dtype=torch.float64), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class Block(Module):
    def __init__(self, request):
        super().__init__()
        block, dtype = request["block"], DTYPES[request["dtype"]]
        self.block, self.shape = block, (block["sequences"], block["tokens"])
        weights = {}
        for part, matrix in block["matrices"].items():
            path = block["biases"][part]
            bias = read_vector(path, dtype, matrix["out"]) if path else None
            weights[part] = make_matrix(matrix, dtype, block["period"]), bias
        self.joined = weights["q"][1] is not None
        if self.joined:
            parts = [weights.pop(part) for part in "qkv"]
            weights["qkv"] = tuple(torch.cat(each) for each in zip(*parts))
        for part, (matrix, bias) in weights.items():
            self.register_parameter(part, constant(matrix))
            self.register_parameter(part + "_bias", constant(bias))
        for index, norm in enumerate(block["norms"]):
            for name, path in zip(("norm", "norm_bias"), norm):
                self.register_parameter(name + str(index),
                                        constant(read_vector(path, dtype, block["d"])) if path else None)
        if block["rope_theta"]:
            self.cosines, self.sines = map(constant, rotary_tables(block["rope_theta"], block["head_dim"],
                                                                   block["cached"], block["tokens"], dtype))

    def linear(self, part, x):
        return F.linear(x, getattr(self, part), getattr(self, part + "_bias"))

    def norm(self, index, x):
        weight, bias = getattr(self, f"norm{index}"), getattr(self, f"norm_bias{index}")
        if self.block["norm"] == "rms":
            return F.rms_norm(x, x.shape[-1:], weight, self.block["eps"])
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.block["eps"])

    def attention(self, x, past):
        block = self.block
        q, k, v = self.linear("qkv", x).chunk(3, dim=-1) if self.joined else [self.linear(part, x) for part in "qkv"]
        q, k, v = [each.view(*self.shape, -1, block["head_dim"]).transpose(1, 2) for each in (q, k, v)]
        if block["rope_theta"]:
            q, k = rotate(q, self.cosines, self.sines), rotate(k, self.cosines, self.sines)
        if len(past) > 0:
            keys, values = past
            keys[:, :, block["cached"] :] = k
            values[:, :, block["cached"] :] = v
            k, v = keys, values
        y = F.scaled_dot_product_attention(q, k, v, is_causal=len(past) == 0,
                                           enable_gqa=block["heads"] != block["kv_heads"])
        return self.linear("o", y.transpose(1, 2).reshape(*self.shape, -1))

    def ffn(self, x):
        activation = ACTIVATIONS[self.block["activation"]]
        hidden = (activation(self.linear("gate", x)) * self.linear("up", x) if self.block["gated"]
                  else activation(self.linear("up", x)))
        return self.linear("down", hidden)

    def forward(self, x, *past):
        x = x + self.attention(self.norm(0, x), past)
        return x + self.ffn(self.norm(1, x))


class BlockRow(AllocatingRow):
    def __init__(self, request):
        block, dtype, sets = request["block"], DTYPES[request["dtype"]], request["sets"]
        x = read_matrix(request["inputs"][0], dtype, request["rows"], block["d"])
        past = history(request, block, block["tokens"]) if block["cached"] else []
        self.modules = [Block(request) for _ in range(sets)]
        self.arguments = copies([x.view(block["sequences"], block["tokens"], block["d"]), *past], sets)


# ---- calls ----


def row_of(request):
    """A row of any kind but a whole model, which is in transformers_model.py."""
    torch.set_num_threads(request["threads"])
    kinds = {"layer": LayerRow, "attention": AttentionRow, "block": BlockRow}
    return next((kind for name, kind in kinds.items() if name in request), KernelRow)(request)


def prepared(row, functions):
    """What served.py wants, of functions that do what the row's modules do."""
    calls = [lambda function=function, arguments=arguments: function(*arguments)
             for function, arguments in zip(functions, row.arguments)]
    return calls, lambda: [NumPy(each) for each in row.outputs(calls[0]())], row.note
