"""What the peers that compile PyTorch share: one function of a compiler for each row, weights frozen in it."""

import torch
import torch._dynamo
import torch._inductor.config
import torch_rows
from torch_rows import prepared, row_of

DTYPES = list(torch_rows.DTYPES)
OPERATIONS = [*torch_rows.OPERATIONS, "model"]

torch.set_grad_enabled(False)
torch._inductor.config.freezing = True  # weights are constants, packed beforehand
torch._dynamo.config.recompile_limit = 1000  # every operand set has weights, and so a graph, of its own


def prepare(request, **options):
    """`options` are torch.compile's."""
    torch._dynamo.reset()
    if "model" in request:
        from transformers_model import compiled  # takes seconds

        return compiled(request, **options)
    row = row_of(request)
    compiled_modules = {}
    for module in row.modules:
        if id(module) not in compiled_modules:
            compiled_modules[id(module)] = torch.compile(module, fullgraph=True, dynamic=False, **options)
    return prepared(row, [compiled_modules[id(module)] for module in row.modules])
