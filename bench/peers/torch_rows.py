"""Rows of the benchmark in PyTorch, as a model written in it has them, for the peers that are PyTorch.

row_of(request) gives a row with

    modules     of each operand set, a torch.nn.Module that holds its weights, or a function
    arguments   of each operand set, what its module is called with
    outputs     of set 0, from what its call returned

Kernels write into given outputs, which a compiler fuses; the others allocate theirs. What eager PyTorch can do better
by hand is in pytorch_peer.py.
"""

import numpy as np
import torch
import torch.nn.functional as F
from row_tensors import attention_inputs, eps_of, inputs_of, layer_vector, matrices_of, matrix, past_of, read, vector
from torch.nn import Module, Parameter

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


# ---- tensors ----


def tensor(array):
    """Of an array of row_tensors.py, in memory of PyTorch's."""
    made = torch.from_numpy(array)
    return (made.view(torch.bfloat16) if made.dtype == torch.uint16 else made).clone()


def constant(array):
    """As a parameter that is never trained; None stays None."""
    return None if array is None else Parameter(tensor(array), requires_grad=False)


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
    eps = eps_of(request)
    if "rms" in request["operation"]:
        return lambda x, weight, bias: F.rms_norm(x, x.shape[-1:], weight, eps)
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
        rows, sets = request["rows"], request["sets"]
        x = list(map(tensor, inputs_of(request)))
        y = [torch.zeros(rows, request["d"], dtype=DTYPES[request["output_dtype"]]) for _ in range(request["outputs"])]
        parameters = [request.get(key) and tensor(vector(request, key)) for key in ("weight", "bias")]
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
        self.layer, self.eps = request["layer"], eps_of(request)
        self.weights = torch.nn.ParameterList(map(constant, matrices_of(request).values()))
        self.bias, self.bias_down = (constant(layer_vector(request, key)) for key in ("bias", "bias_down"))
        self.norm_weight, self.norm_bias = (constant(vector(request, key)) for key in ("weight", "bias"))

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
        self.modules = [Layer(request) for _ in range(request["sets"])]
        self.arguments = copies(list(map(tensor, inputs_of(request))), request["sets"])


# ---- attention ----
# All tensors are contiguous [sequences, heads, positions, head_dim], which is the layout that is fastest for it; a
# decode's keys and values lie there for all positions, that of the new token included.


class Attention(Module):
    def __init__(self, shape):
        super().__init__()
        self.options = {"is_causal": shape["cached"] == 0, "enable_gqa": shape["heads"] != shape["kv_heads"]}

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


class AttentionRow(AllocatingRow):
    def __init__(self, request):
        self.modules = [Attention(request["attention"])] * request["sets"]
        self.arguments = copies(list(map(tensor, attention_inputs(request))), request["sets"])

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

        def of_file(path):
            return read(path, request["dtype"], -1) if path else None

        weights = {part: (matrix(each, request["dtype"]), of_file(block["biases"][part]))
                   for part, each in block["matrices"].items()}
        self.joined = weights["q"][1] is not None
        if self.joined:
            weights["qkv"] = map(np.concatenate, zip(*[weights.pop(part) for part in "qkv"]))
        for part, (values, bias) in weights.items():
            self.register_parameter(part, constant(values))
            self.register_parameter(part + "_bias", constant(bias))
        for index, norm in enumerate(block["norms"]):
            for name, path in zip(("norm", "norm_bias"), norm):
                self.register_parameter(name + str(index), constant(of_file(path)))
        if block["rope_theta"]:
            tables = rotary_tables(block["rope_theta"], block["head_dim"], block["cached"], block["tokens"], dtype)
            self.cosines, self.sines = (Parameter(each, requires_grad=False) for each in tables)

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
        block, sets = request["block"], request["sets"]
        x = tensor(inputs_of(request)[0]).view(block["sequences"], block["tokens"], block["d"])
        past = [F.pad(tensor(each), (0, 0, 0, block["tokens"])) for each in past_of(request, block)]
        self.modules = [Block(request) for _ in range(sets)]
        self.arguments = copies([x, *past], sets)


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
