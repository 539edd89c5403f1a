"""A training step of a language model for the peers that are PyTorch: its blocks are those of torch_rows.py."""

import torch
from torch_rows import Block, F, LIBRARY, NumPy, Parameters
from torch.nn import ModuleList
from torch.nn.utils import clip_grad_norm_


class LanguageModel(Parameters):
    """The losses of a text. The embedding is the output projection too; positions are learned where there is no rotary embedding."""

    def __init__(self, request):
        own = {name: part for name, part in request["tensors"].items() if "." not in name}
        super().__init__({**request, "tensors": own})
        self.shape = request["model"]
        self.norm_of = LIBRARY.norm(self.shape["norm"] == "rms", request["eps"])
        self.blocks = ModuleList(self.block(request, f"{i}.") for i in range(self.shape["layers"]))

    def block(self, request, prefix):
        own = {name.removeprefix(prefix): part for name, part in request["tensors"].items() if name.startswith(prefix)}
        return Block({**request, "block": self.shape, "tensors": own})

    def forward(self, ids, targets):
        x = F.embedding(ids, self.embedding)
        if "positions" in self.names:
            x = x + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm_of(x, self.norm, getattr(self, "norm_bias", None))
        return F.cross_entropy(F.linear(x, self.embedding).flatten(0, 1), targets, reduction="none")

    def trained(self):
        return [getattr(module, name).requires_grad_() for module in (self, *self.blocks) for name in module.names]

    def gradients(self):
        """In the order of the row's outputs."""
        own = [getattr(self, name).grad for name in ("embedding", "positions", "norm", "norm_bias") if name in self.names]
        for block in self.blocks:
            own += block.in_order({name: getattr(block, name).grad for name in block.names})
        return own


class Step:
    """Forward, backward, clipping and AdamW. The result is that of the first call, whose parameters are the row's."""

    def __init__(self, request, fused, run):
        torch.set_num_threads(request["threads"])
        lr, beta1, beta2, eps, weight_decay, self.most = request["numbers"]
        self.model = LanguageModel(request)
        self.parameters, self.run = self.model.trained(), run(self.model)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay,
                                           fused=fused)
        text, shape = torch.tensor(request["model"]["token_ids"]), request["model"]
        self.ids, self.targets = text[:-1].view(shape["sequences"], shape["tokens"]), text[1:]

    def __call__(self):
        self.optimizer.zero_grad()
        with torch.enable_grad():
            self.losses = self.run(self.ids, self.targets)
            self.losses.mean().backward()
        self.norm = clip_grad_norm_(self.parameters, self.most)
        self.optimizer.step()

    def outputs(self):
        """Gradients as they were before they were clipped."""
        scale = min(1.0, self.most / (float(self.norm) + 1e-6))
        return [NumPy(self.losses.detach()), *[NumPy(each / scale) for each in self.model.gradients()]]


def prepare(request, fused, run=lambda model: model):
    """`run` makes of the model what is called in its place."""
    step = Step(request, fused, run)
    return [step], step.outputs, "AdamW fused" if fused else "AdamW as it is by default"
