"""The peer "pytorch-compile": torch.compile with Inductor."""

import torch
import torch._inductor.config
import torch_compiled
from torch_compiled import DTYPES, OPERATIONS  # noqa: F401

VERSION = torch.__version__
FAMILY = "PyTorch"
HOW = "torch.compile with Inductor for the very shape, max-autotune, weights frozen and packed; called from Python"
LACKS = "has no derivatives of activations and no partial norm; layers, attention and blocks allocate their output"
SLOW = True
CAPS_ISA = True

torch._inductor.config.max_autotune = True


def prepare(request):
    return torch_compiled.prepare(request)
