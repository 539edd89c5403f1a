#!/usr/bin/env python3
"""Makes quantized_pack_4 and quantized_int_8 beside it: a random model of one layer as the package compressed-tensors quantizes it, and
the numbers that it makes of the codes. Needs `pip install compressed-tensors torch` (made with compressed-tensors 0.20.0 and torch
2.15) and writes here."""
import json
import pathlib
import struct

import torch
from compressed_tensors.compressors import IntQuantizationCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

HERE = pathlib.Path(__file__).parent
NAMES = {torch.float32: "F32", torch.int32: "I32", torch.int8: "I8", torch.int64: "I64"}


SIZES = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
         "num_hidden_layers": 1, "vocab_size": 61}
LAYER = {"input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32),
         "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32), "mlp.gate_proj": (48, 32), "mlp.up_proj": (48, 32),
         "mlp.down_proj": (32, 48)}


def random_model():
    torch.manual_seed(5)
    shapes = {"model.embed_tokens": (61, 32), "model.norm": (32,), "lm_head": (61, 32)}
    shapes.update({"model.layers.0." + name: shape for name, shape in LAYER.items()})
    return {name + ".weight": torch.randn(shape) / 4 for name, shape in shapes.items()}


def save(path, tensors):
    header, data = {}, b""
    for name, tensor in sorted(tensors.items()):
        part = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def quantize(name, compressor, args, format):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
    stored, numbers = {}, {}
    for tensor, weight in random_model().items():
        if not tensor.endswith("_proj.weight"):
            stored[tensor] = weight
            continue
        size = args.group_size or weight.shape[1]
        groups = torch.split(weight, size, dim=1)
        pairs = [calculate_qparams(part.amin(1, keepdim=True), part.amax(1, keepdim=True), args) for part in groups]
        state = {"weight": weight, "weight_scale": torch.cat([scale for scale, _ in pairs], 1),
                 "weight_zero_point": torch.cat([zero for _, zero in pairs], 1).to(torch.int8)}
        module = tensor[:-len("weight")]
        coded = compressor.compress(state, scheme)
        stored.update({module + key: value for key, value in coded.items()})
        numbers[tensor] = compressor.decompress(coded, scheme)["weight"]
    config = json.loads((HERE / "llama3_f32/config.json").read_text())
    config.update(SIZES)
    config["quantization_config"] = json.loads(QuantizationConfig(
        config_groups={"group_0": scheme}, format=format, ignore=["lm_head"], quantization_status="compressed").model_dump_json())
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(folder / "model.safetensors", stored)
    save(folder / "expected.safetensors", numbers)


if __name__ == "__main__":
    quantize("quantized_pack_4", PackedQuantizationCompressor,
             QuantizationArgs(num_bits=4, strategy="group", group_size=16, symmetric=False), "pack-quantized")
    quantize("quantized_int_8", IntQuantizationCompressor, QuantizationArgs(num_bits=8, strategy="channel", symmetric=True),
             "int-quantized")
