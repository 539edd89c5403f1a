"""The peer "pytorch-fused": eager PyTorch with its fused AdamW, for training steps alone."""

import torch
import torch_training

VERSION = torch.__version__
TITLE = "PyTorch eager, fused AdamW"
FAMILY = "PyTorch"
HOW = "eager, with the kernel of its optimizer that takes all parameters at once"
LACKS = "is compared for training steps alone"
OPERATIONS = ["training_step"]
DTYPES = ["f32"]
CAPS_ISA = True

torch.set_grad_enabled(False)


def prepare(request):
    return torch_training.prepare(request, fused=True)
