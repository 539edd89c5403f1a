#!/usr/bin/env python3
"""Makes blocks.safetensors: small blocks as they are written with torch.nn.MultiheadAttention, and what they compute.

    python tests/data/torch_blocks/make.py

needs torch and safetensors. Blocks are named by the place of their norms, their norm and their feed-forward network:
pre_layer_standard, and so on; `silu` is a network of Linear, SiLU, Linear. Beside the parameters of each, under their
names in torch, NAME.y is the block's result, float64 arithmetic on the float32 numbers. x: [batch, T, d].
"""
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

D, HEADS, HIDDEN, GATED_HIDDEN, BATCH, TOKENS = 12, 3, 48, 32, 2, 7


class RMSNorm(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(D)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class StandardFFN(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D), activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class SwiGLUFFN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(D, GATED_HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(GATED_HIDDEN, D, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, pre, norm, ffn):
        super().__init__()
        self.pre = pre
        self.attention_norm, self.ffn_norm = ((nn.LayerNorm if norm == "layer" else lambda _: RMSNorm())(D) for _ in range(2))
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.ffn = SwiGLUFFN() if ffn == "swiglu" else StandardFFN(nn.functional.silu if ffn == "silu" else torch.relu)

    def attend(self, x):
        return self.attention(x, x, x, need_weights=False)[0]

    def forward(self, x):
        if self.pre:
            x = x + self.attend(self.attention_norm(x))
            return x + self.ffn(self.ffn_norm(x))
        x = self.attention_norm(x + self.attend(x))
        return self.ffn_norm(x + self.ffn(x))


def main():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, TOKENS, D, generator=generator)
    tensors = {"x": x}
    forms = [(place, norm, ffn) for place in ("pre", "post") for norm in ("layer", "rms") for ffn in ("standard", "swiglu")]
    for place, norm, ffn in forms + [("pre", "rms", "silu")]:
        name, block = f"{place}_{norm}_{ffn}", Block(place == "pre", norm, ffn)
        for parameter_name, parameter in block.named_parameters():
            random = torch.randn(parameter.shape, generator=generator)
            is_norm = parameter_name.endswith("norm.weight")
            parameter.data = random * (1.3 / parameter.shape[-1] ** 0.5 if parameter.dim() == 2 else 0.3) + (1.0 if is_norm else 0.0)
            tensors[f"{name}.{parameter_name}"] = parameter.data.clone()
        with torch.no_grad():
            tensors[f"{name}.y"] = block.double()(x.double())
    save_file(tensors, Path(__file__).with_name("blocks.safetensors"), metadata={"torch": torch.__version__})


main()
