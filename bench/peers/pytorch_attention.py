"""Attention for pytorch.py: scaled_dot_product_attention on [sequences, heads, positions, head_dim].

All tensors are contiguous, which is the layout that is fastest for it; a decode's keys and values lie there for all
positions, that of the new token included.
"""

import torch
import torch.nn.functional as F
from pytorch_tensors import DTYPES, latest, make_matrix, read_matrix


def heads_first(matrix, sequences, heads):
    """[sequences * positions, heads * head_dim] as [sequences, heads, positions, head_dim], a view."""
    return matrix.view(sequences, matrix.shape[0] // sequences, heads, -1).transpose(1, 2)


def history(request, shape, sets, room):
    """Of each set, keys and values of the cached positions with room for as many more."""

    def make():
        made = [[] for _ in range(sets)]
        for part in shape["history"]:
            past = heads_first(make_matrix(part, DTYPES[request["dtype"]], shape["period"]), shape["sequences"],
                               shape["kv_heads"])
            for tensors in made:
                whole = torch.zeros(*past.shape[:2], past.shape[2] + room, past.shape[3], dtype=past.dtype)
                whole[:, :, : past.shape[2]].copy_(past)
                tensors.append(whole)
        return made

    key = (request["dtype"], sets, room, tuple((part["out"], part["in"]) for part in shape["history"]),
           shape["sequences"], shape["kv_heads"])
    return latest.get("history", key, make)


class AttentionRow:
    def __init__(self, request):
        shape, sets = request["attention"], request["sets"]
        self.shape = shape
        latest.drop_all_but("history")
        dtype, rows = DTYPES[request["dtype"]], request["rows"]
        counts = [shape["heads"], shape["kv_heads"], shape["kv_heads"]]
        matrices = [read_matrix(path, dtype, rows, count * shape["head_dim"])
                    for path, count in zip(request["inputs"], counts)]
        q, k, v = [heads_first(matrix, shape["sequences"], count).contiguous()
                   for matrix, count in zip(matrices, counts)]
        if shape["cached"]:
            self.operands = []
            for keys, values in history(request, shape, sets, 1):
                keys[:, :, -1:].copy_(k)
                values[:, :, -1:].copy_(v)
                self.operands.append((q, keys, values))
        else:
            self.operands = [(q, k, v)] + [tuple(x.clone() for x in (q, k, v)) for _ in range(sets - 1)]

    def calls(self, mode):
        if mode == "compile":
            raise NotImplementedError("does what eager does for one function")
        options = {"is_causal": self.shape["cached"] == 0,
                   "enable_gqa": self.shape["heads"] != self.shape["kv_heads"]}
        return [lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, **options) for q, k, v in self.operands]

    @staticmethod
    def rows_of(y):
        """The outputs as the benchmark has them, of what a call returned."""
        return [y.transpose(1, 2)]

    note = "allocates its output"
