"""The peers that a result may name: what each is called, whose it is, and how its calls are timed. A new peer is a line
here; one that is not here stands for itself."""

from typing import NamedTuple

OWN = "halyard"


class Peer(NamedTuple):
    title: str
    library: str  # peers of one library are one opponent
    in_c: bool = False  # timed in a loop of C or C++; otherwise in one of Python, whose cost is that of a small row
    how: str = ""  # it is run


# The order decides the colours, so that a peer has the same in every report.
PEERS = {
    "onednn": Peer("oneDNN", "oneDNN", in_c=True),
    "pytorch": Peer("PyTorch eager", "PyTorch"),
    "pytorch-compile": Peer("torch.compile", "PyTorch"),
    "onnxruntime": Peer("ONNX Runtime", "ONNX Runtime"),
    "openvino": Peer("OpenVINO", "OpenVINO"),
    "ggml": Peer("ggml", "ggml"),
    "mkl": Peer("MKL", "MKL", in_c=True),
    "openblas": Peer("OpenBLAS", "OpenBLAS", in_c=True),
    "eigen": Peer("Eigen", "Eigen", in_c=True),
    "transformers": Peer("transformers", "PyTorch"),
    "llama.cpp": Peer("llama.cpp", "ggml"),
    "zentorch": Peer("zentorch", "PyTorch"),
    # Other ways to call this library, or to compile its algorithms.
    "separate calls": Peer("separate calls", OWN, in_c=True),
    "two calls": Peer("two calls", OWN, in_c=True),
    "in f32": Peer("in f32", OWN, in_c=True),
    "halide-adams2019": Peer("Halide Adams2019", OWN, in_c=True),
    "halide-li2018": Peer("Halide Li2018", OWN, in_c=True),
    "halide-mullapudi2016": Peer("Halide Mullapudi2016", OWN, in_c=True),
}
COMPILED = "pytorch-compile"


def learn(declared):
    """What the peers of a result say of themselves; results from before they did have what stands above."""
    for each in declared:
        if each.get("family"):
            known = peer(each["name"])
            PEERS[each["name"]] = Peer(known.title, each["family"], each["interface"] == "C", each["how"])


def peer(name):
    return PEERS.get(name) or Peer(name, name)
