"""The peer "zentorch": torch.compile with AMD's backend, in an environment of its own (bench/peers/install)."""

with open("/proc/cpuinfo") as processors:
    if "AuthenticAMD" not in processors.read():
        raise NotImplementedError("its processor is not one of AMD's")

import torch  # noqa: E402
import torch_compiled  # noqa: E402
import zentorch  # noqa: E402

VERSION = f"{zentorch.__version__} (PyTorch {torch.__version__})"
FAMILY = "PyTorch"
HOW = "torch.compile with the backend zentorch for the very shape, weights frozen"
LACKS = "is not compared in f16, nor where pytorch-compile has nothing"
OPERATIONS = torch_compiled.OPERATIONS
DTYPES = ["f32", "bf16"]
SLOW = True


def prepare(request):
    return torch_compiled.prepare(request, backend="zentorch")
