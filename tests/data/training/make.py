#!/usr/bin/env python3
"""Writes losses.csv beside this file: ten steps of training in float64 by PyTorch, of the stacks in tests/examples/test_training.cpp.
Needs torch."""
import pathlib

import torch
from torch import nn

BATCH, TOKENS, D, HEADS, FF, LAYERS, STEPS = 2, 8, 32, 4, 128, 3, 10


class Numbers:
    """The numbers of the test: in (-1/2, 1/2)."""

    def __init__(self, seed):
        self.state = seed

    def tensor(self, shape, scale):
        def number():
            self.state = (self.state * 1664525 + 1013904223) % 2**32
            return scale * ((self.state >> 8) / 16777216 - 0.5)
        values = torch.tensor([number() for _ in range(shape.numel())], dtype=torch.float32)
        return values.to(torch.float64).reshape(shape)


class Block(nn.Module):
    def __init__(self, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.norm1 = nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(D)
        self.ffn = nn.Sequential(nn.Linear(D, FF), nn.ReLU(), nn.Linear(FF, D))

    def forward(self, x):
        def attend(h):
            return self.attention(h, h, h, need_weights=False)[0]
        if self.pre_norm:
            x = x + attend(self.norm1(x))
            return x + self.ffn(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + self.ffn(x))

    def matrices(self):
        """In the order in which the test fills them."""
        return [self.attention.in_proj_weight, self.attention.out_proj.weight, self.ffn[0].weight, self.ffn[2].weight]


def main():
    lines = ["norm_position,step,loss,gradient_norm"]
    for norm_position in ("pre", "post"):
        blocks = [Block(norm_position == "pre").double() for _ in range(LAYERS)]
        model = nn.Sequential(*blocks, *([nn.LayerNorm(D).double()] if norm_position == "pre" else []))
        numbers = Numbers(9)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.zero_()
            for module in model.modules():
                if isinstance(module, nn.LayerNorm):
                    module.weight.fill_(1)
            for block in blocks:
                for matrix in block.matrices():
                    matrix.copy_(numbers.tensor(matrix.shape, 0.5))
        x, target = (numbers.tensor(torch.Size((BATCH, TOKENS, D)), 4) for _ in range(2))
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        for step in range(STEPS):
            adam.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            norm = torch.sqrt(sum((each.grad**2).sum() for each in blocks[0].parameters()))
            lines.append(f"{norm_position},{step},{loss.item()!r},{norm.item()!r}")
            adam.step()
    (pathlib.Path(__file__).parent / "losses.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
