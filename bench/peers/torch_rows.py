"""Rows of the benchmark in PyTorch, as a model written in it has them, for the peers that are PyTorch.

row_of(request) gives a row with

    modules     of each operand set, a torch.nn.Module that holds its weights, or a function
    arguments   of each operand set, what its module is called with
    outputs     of set 0, from what its call returned

Kernels write into given outputs, which a compiler fuses; the others allocate theirs. Gradients are those of PyTorch's own
differentiation, from what a row has: x and dy. What eager PyTorch can do better by hand is in pytorch_peer.py.
"""

import numpy as np
import torch
import torch.nn.functional as F
from row_functions import GATES, PACKED, Library
from row_functions import OPERATIONS as ROW_OPERATIONS
from row_tensors import attention_inputs, inputs_of, past_of, tensors_of
from torch.nn import Module, Parameter

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


# ---- tensors ----


def tensor(array):
    """An array of row_tensors.py, in memory of PyTorch's."""
    made = torch.from_numpy(array)
    return (made.view(torch.bfloat16) if made.dtype == torch.uint16 else made).clone()


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

ACTIVATIONS = {
    "identity": lambda x: x,
    "softmax": lambda x: torch.softmax(x, -1),
    "relu": torch.relu,
    "relu2": lambda x: torch.square(torch.relu(x)),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "swish": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
}
BACKWARD = "_backward"
DIFFERENTIATED = [*[name for name in ACTIVATIONS if name != "identity"], *GATES,
                  *[name + PACKED for name in GATES], "rms_norm", "layer_norm"]
OPERATIONS = [*list(ACTIVATIONS)[1:], *ROW_OPERATIONS, "block", *[name + BACKWARD for name in DIFFERENTIATED]]


class Torch(Library):
    add, multiply, activation, linear = torch.add, torch.mul, staticmethod(ACTIVATIONS.__getitem__), staticmethod(F.linear)

    def cast(self, x, dtype):
        return x.to(DTYPES[dtype])

    def norm(self, rms, eps):
        if rms:
            return lambda x, weight, bias: F.rms_norm(x, x.shape[-1:], weight, eps)
        return lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    def halves(self, columns):
        """As views."""
        return lambda x: [x[..., start:stop:step] for start, stop, step in columns]

    def row(self, request):
        if not request["operation"].endswith(BACKWARD):
            return super().row(request)
        if request["operation"] == "softmax" + BACKWARD:  # from the result
            return lambda inputs, weights: [inputs[0] * (inputs[1] - (inputs[0] * inputs[1]).sum(-1, keepdim=True))]

        def gradients(inputs, weights):
            forward, variables, of_results = differentiated(request, inputs, weights)
            _, backward = torch.func.vjp(forward, *variables)
            return backward(tuple(of_results))

        return gradients


LIBRARY = Torch()
NORM_TENSORS = ("norm_weight", "norm_bias")


def differentiated(request, inputs, weights):
    """The function whose gradients a row computes, its variables, and the gradients of its results. Where a residual's gradient is
    added, x is a result too, after the norm's."""
    name = request["operation"].removesuffix(BACKWARD)
    function, count = LIBRARY.row({**request, "operation": name}), 2 if name in GATES else 1
    vectors, gradients = {each: weights[each] for each in NORM_TENSORS if weights.get(each) is not None}, inputs[count:]
    if name == "layer_norm" and vectors:
        vectors["norm_bias"] = torch.zeros_like(vectors["norm_weight"])  # the row has its gradient alone

    def forward(*variables):
        results = function(variables[:count], dict(zip(vectors, variables[count:])))
        return (*results, variables[0])[: len(gradients)]

    return forward, [*inputs[:count], *vectors.values()], gradients


class KernelRow:
    """A function on the tensors themselves, whose call costs a compiler's users least."""

    note = ""

    def __init__(self, request):
        sets, function = request["sets"], LIBRARY.row(request)
        x = list(map(tensor, inputs_of(request)))
        weights = {name: tensor(each) for name, each in tensors_of(request).items()}
        y = [torch.zeros(each.shape, dtype=each.dtype) for each in function(x, weights)]
        parameters = [weights.get(name) for name in NORM_TENSORS]
        self.inputs, self.weights, self.results = copies(x, sets), weights, copies(y, sets)
        inputs, outputs = len(x), len(y)

        def into(*tensors):
            values = function(tensors[:inputs], dict(zip(NORM_TENSORS, tensors[inputs + outputs :])))
            for result, value in zip(tensors[inputs:], values):
                result.copy_(value)

        self.modules = [into] * sets
        self.arguments = [(*x, *y, *parameters) for x, y in zip(self.inputs, self.results)]
        self.allocating = [lambda x=x: function(x, weights) for x in self.inputs]

    def outputs(self, returned):
        return in_types_of_row(self.results[0])


def in_types_of_row(results):
    """Sums over rows are in f32, which PyTorch has in the type of the weights."""
    return [each.float() if each.dim() == 1 else each for each in results]


# ---- linear layers and feed-forward networks ----


class Parameters(Module):
    """Holds the tensors of a row."""

    def __init__(self, request):
        super().__init__()
        self.names = []
        for name, values in tensors_of(request).items():
            self.hold(name, values)

    def hold(self, name, values):
        self.names.append(name)
        self.register_parameter(name, Parameter(tensor(values), requires_grad=False))


class Layer(Parameters):
    def __init__(self, request):
        super().__init__(request)
        self.form, self.function = request["layer"], LIBRARY.layer(request["layer"], request["eps"])

    def forward(self, *inputs):
        return self.function(inputs, {name: getattr(self, name) for name in self.names})[0]


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


class Block(Parameters):
    def __init__(self, request):
        tensors = tensors_of(request)
        super().__init__({"tensors": {}})
        block, dtype = request["block"], DTYPES[request["dtype"]]
        self.block, self.shape = block, (block["sequences"], block["tokens"])
        self.norm_of, self.joined = LIBRARY.norm(block["norm"] == "rms", request["eps"]), "q_proj_bias" in tensors
        if self.joined:
            for name in ("_proj", "_proj_bias"):
                tensors["qkv" + name] = np.concatenate([tensors.pop(part + name) for part in "qkv"])
        for name, values in tensors.items():
            if name not in ("keys", "values"):
                self.hold(name, values)
        if block["rope_theta"]:
            tables = rotary_tables(block["rope_theta"], block["head_dim"], block["cached"], block["tokens"], dtype)
            self.cosines, self.sines = (Parameter(each, requires_grad=False) for each in tables)

    def apart(self, gradients):
        """Gradients by the names of the row's tensors."""
        if not self.joined:
            return gradients
        heads, kv_heads, width = (self.block[name] for name in ("heads", "kv_heads", "head_dim"))
        gradients, widths = dict(gradients), [heads * width, kv_heads * width, kv_heads * width]
        for kind in ("_proj", "_proj_bias"):
            gradients |= {part + kind: each for part, each in zip("qkv", gradients.pop("qkv" + kind).split(widths))}
        return gradients

    def in_order(self, gradients):
        """The gradients apart, in the order of the row's outputs."""
        gradients = self.apart(gradients)
        parts = [part + kind for part in ("q", "k", "v", "o", "gate", "up", "down") for kind in ("_proj", "_proj_bias")]
        norms = [norm + kind for norm in ("attention_norm", "ffn_norm") for kind in ("", "_bias")]
        return [gradients[name] for name in [*parts, *norms] if name in gradients]

    def linear(self, part, x):
        return F.linear(x, getattr(self, part + "_proj"), getattr(self, part + "_proj_bias", None))

    def norm(self, name, x):
        return self.norm_of(x, getattr(self, name), getattr(self, name + "_bias", None))

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
        x = x + self.attention(self.norm("attention_norm", x), past)
        return x + self.ffn(self.norm("ffn_norm", x))


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
