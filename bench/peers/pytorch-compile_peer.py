"""The peer "pytorch-compile": torch.compile with Inductor."""

import torch
import torch._inductor.config
import torch_compiled
import torch_training
from torch_compiled import DTYPES  # noqa: F401

VERSION = torch.__version__
TITLE = "torch.compile"
FAMILY = "PyTorch"
OPERATIONS = [*torch_compiled.OPERATIONS, "training_step"]
HOW = "torch.compile with Inductor for the very shape, max-autotune but for models, weights frozen and packed, but for training steps"
LACKS = "has no derivatives of activations and no partial norm; layers, attention and blocks allocate their output"
SLOW = True
CAPS_ISA = True


def prepare(request):
    torch._inductor.config.max_autotune = "model" not in request  # there it would take minutes
    if request["operation"] == "training_step":
        return torch_training.prepare(request, fused=True,
                                      run=lambda model: torch.compile(model, fullgraph=True, dynamic=False))
    return torch_compiled.prepare(request)
