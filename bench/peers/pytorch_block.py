"""Transformer blocks for pytorch.py, as a model written in PyTorch has them: Pre-LN, functions of torch.nn.functional.

Keys and values of a decode go into tensors that have room for the new token.
"""

import torch
import torch.nn.functional as F
from pytorch_attention import history
from pytorch_tensors import DTYPES, latest, make_matrix, read_matrix, read_vector

ACTIVATIONS = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


def rotary_tables(theta, head_dim, first, count, dtype):
    """Cosines and sines [count, head_dim] of the positions from `first` on."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(first, first + count, dtype=torch.float64), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-second, first], dim=-1) * sines


class BlockRow:
    def __init__(self, request):
        block, sets = request["block"], request["sets"]
        self.block = block
        latest.drop_all_but("matrices", "history")
        dtype, rows, d = DTYPES[request["dtype"]], request["rows"], block["d"]
        self.shape = block["sequences"], block["tokens"]
        self.weights = latest.get("matrices", (request["dtype"], sets, d, block["d_ff"], block["kv_heads"]),
                                  lambda: [self.make_weights(dtype) for _ in range(sets)])
        self.norms = [[read_vector(path, dtype, d) if path else None for path in norm] for norm in block["norms"]]
        x = read_matrix(request["inputs"][0], dtype, rows, d).view(*self.shape, d)
        self.inputs = [x if i == 0 else x.clone() for i in range(sets)]
        self.past = history(request, block, sets, block["tokens"]) if block["cached"] else [None] * sets
        self.tables = None
        if block["rope_theta"]:
            self.tables = rotary_tables(block["rope_theta"], block["head_dim"], block["cached"], block["tokens"], dtype)

    def make_weights(self, dtype):
        """{part: (matrix, bias)}; where there are biases, as in GPT-2, q, k and v are one matrix."""
        block, weights = self.block, {}
        for part, matrix in block["matrices"].items():
            path = block["biases"][part]
            bias = read_vector(path, dtype, matrix["out"]) if path else None
            weights[part] = make_matrix(matrix, dtype, block["period"]), bias
        if weights["q"][1] is not None:
            parts = [weights.pop(part) for part in "qkv"]
            weights["qkv"] = tuple(torch.cat(each) for each in zip(*parts))
        return weights

    def norm(self, which, x):
        weight, bias = self.norms[which]
        if self.block["norm"] == "rms":
            return F.rms_norm(x, x.shape[-1:], weight, self.block["eps"])
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.block["eps"])

    def attention(self, weights, x, past):
        block = self.block
        if "qkv" in weights:
            q, k, v = F.linear(x, *weights["qkv"]).chunk(3, dim=-1)
        else:
            q, k, v = [F.linear(x, *weights[part]) for part in "qkv"]
        q, k, v = [each.view(*self.shape, -1, block["head_dim"]).transpose(1, 2) for each in (q, k, v)]
        if self.tables is not None:
            q, k = rotate(q, *self.tables), rotate(k, *self.tables)
        if past is not None:
            keys, values = past
            keys[:, :, block["cached"] :] = k
            values[:, :, block["cached"] :] = v
            k, v = keys, values
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None,
                                           enable_gqa=block["heads"] != block["kv_heads"])
        return F.linear(y.transpose(1, 2).reshape(*self.shape, -1), *weights["o"])

    def ffn(self, weights, x):
        activation = ACTIVATIONS[self.block["activation"]]
        if self.block["gated"]:
            hidden = activation(F.linear(x, *weights["gate"])) * F.linear(x, *weights["up"])
        else:
            hidden = activation(F.linear(x, *weights["up"]))
        return F.linear(hidden, *weights["down"])

    def forward(self, weights, x, past):
        x = x + self.attention(weights, self.norm(0, x), past)
        return x + self.ffn(weights, self.norm(1, x))

    def calls(self, mode):
        run = self.forward
        if mode == "compile":
            torch._dynamo.reset()
            run = torch.compile(self.forward, fullgraph=True, dynamic=False)
        return [lambda w=w, x=x, past=past: run(w, x, past)
                for w, x, past in zip(self.weights, self.inputs, self.past)]

    @staticmethod
    def rows_of(y):
        return [y]

    note = "allocates its output"
