"""The peer "pytorch-compile": torch.compile with Inductor."""

import torch
import torch._inductor.config
import torch_compiled
from torch_compiled import DTYPES, OPERATIONS  # noqa: F401

VERSION = torch.__version__
TITLE = "torch.compile"
FAMILY = "PyTorch"
HOW = "torch.compile with Inductor for the very shape, max-autotune but for models, weights frozen and packed"
LACKS = "has no derivatives of activations and no partial norm; layers, attention and blocks allocate their output"
SLOW = True
CAPS_ISA = True


def prepare(request):
    torch._inductor.config.max_autotune = "model" not in request  # there it would take minutes
    return torch_compiled.prepare(request)
