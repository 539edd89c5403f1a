"""The peer "transformers": Hugging Face's LlamaForCausalLM, eager, for whole models."""

import torch
import transformers
import transformers_model
from torch_rows import DTYPES as TYPES

VERSION = transformers.__version__
FAMILY = "PyTorch"
HOW = "LlamaForCausalLM, eager; keys and values in its own cache"
LACKS = "is compared for whole models"
OPERATIONS = ["model"]
DTYPES = list(TYPES)
CAPS_ISA = True

torch.set_grad_enabled(False)
prepare = transformers_model.eager
