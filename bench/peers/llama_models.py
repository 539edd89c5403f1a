"""Whole models for the peers that are llama.cpp or come of it, through their C interface.

The benchmark's weights go through a GGUF file, which is gone once the model is loaded; a user's file is opened as it is. A prompt is one batch, after which
the logits of its last token are there; a decode adds one token, which is then removed again.
"""

import ctypes
import os
import struct

import numpy as np
from c_calls import POINTER, function
from row_tensors import as_f32, tensor_of

BLOCKS = {"model.q8_0": 8, "model.q4_0": 2}  # ggml's type of the matrices
OPERATIONS = ["model", *BLOCKS, "model.gguf"]
DTYPES = ["f32", "bf16"]

TYPES = {"f32": 0, "f16": 1, "bf16": 30}  # ggml's
UINT32, FLOAT32, STRING = 4, 6, 8  # types of a GGUF file's values
ALIGNMENT = 32

# A block's tensors in the request, by their names in the file.
PARTS = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj", "ffn_gate": "gate_proj",
         "ffn_up": "up_proj", "ffn_down": "down_proj", "attn_norm": "attention_norm", "ffn_norm": "ffn_norm"}


def interleave(matrix, heads):
    """Rows of q and k in the order of llama.cpp's rotary embedding, which turns neighbours."""
    return matrix.reshape(heads, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


class Ggml:
    """What a file needs of the library."""

    def __init__(self, library):
        self.size_of = function(library, "ggml_row_size", ctypes.c_size_t, ctypes.c_int, ctypes.c_int64)
        self.quantize = function(library, "ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, POINTER, POINTER,
                                 *[ctypes.c_int64] * 3, POINTER)

    def in_blocks(self, values, kind):
        """The bytes of a quantized matrix."""
        rows, width = values.shape
        values = np.ascontiguousarray(values)
        made = np.empty(rows * self.size_of(kind, width), np.uint8)
        self.quantize(kind, values.ctypes.data, made.ctypes.data, 0, rows, width, None)
        return made


def tensors_of(request, ggml):
    """(name, shape as [out, in], type, function that makes the values) of every tensor. Vectors are in f32."""
    model = request["model"]

    def tensor(name, part, heads=None):
        shape = request["tensors"][part]["shape"]
        kind = BLOCKS.get(request["operation"]) if len(shape) == 2 and part != "embedding" else None

        def make():
            values = tensor_of(request, part)
            values = interleave(values, heads) if heads else values
            return as_f32(values) if len(shape) == 1 else values if kind is None else ggml.in_blocks(as_f32(values), kind)

        return name + ".weight", shape, kind or TYPES["f32" if len(shape) == 1 else request["dtype"]], make

    yield tensor("token_embd", "embedding")
    for index in range(model["layers"]):
        for name, part in PARTS.items():
            yield tensor(f"blk.{index}.{name}", f"{index}.{part}", {"q_proj": model["heads"], "k_proj": model["kv_heads"]}.get(part))
    yield tensor("output_norm", "norm")
    yield tensor("output", "head")


def write_gguf(path, request, ggml):
    model = request["model"]
    values = {
        "general.architecture": (STRING, "llama"),
        "llama.vocab_size": (UINT32, model["vocabulary"]),
        "llama.context_length": (UINT32, 2048),
        "llama.embedding_length": (UINT32, model["d"]),
        "llama.feed_forward_length": (UINT32, model["d_ff"]),
        "llama.block_count": (UINT32, model["layers"]),
        "llama.attention.head_count": (UINT32, model["heads"]),
        "llama.attention.head_count_kv": (UINT32, model["kv_heads"]),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, request["eps"]),
        "llama.rope.dimension_count": (UINT32, model["head_dim"]),
        "llama.rope.freq_base": (FLOAT32, model["rope_theta"]),
        "tokenizer.ggml.model": (STRING, "none"),
    }

    def text(string):
        encoded = string.encode()
        return struct.pack("<Q", len(encoded)) + encoded

    def padding(size):
        return -size % ALIGNMENT

    tensors = list(tensors_of(request, ggml))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, (kind, value) in values.items():
        packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
        header += text(key) + struct.pack("<I", kind) + packed
    offset = 0
    for name, shape, kind, _ in tensors:
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
        size = int(np.prod(shape[:-1])) * ggml.size_of(kind, shape[-1])
        offset += size + padding(size)
    with open(path, "wb") as file:
        file.write(header + bytes(padding(len(header))))
        for _, _, _, make in tensors:
            array = np.ascontiguousarray(make())
            array.tofile(file)
            file.write(bytes(padding(array.nbytes)))


class Model:
    """A class derived from this has the library's functions as `library`, its Ggml as `ggml`, and what differs between the libraries:
    set_model_options(options), set_context_options(options, dtype), batch_of(tokens, position), forget(position) and
    free_model(model)."""

    def __init__(self, request):
        model = request["model"]
        self.model = self.context = None
        self.vocabulary, self.cached = model["vocabulary"], model["cached"]
        if "file" in model:
            self.load(model["file"])
        else:
            path = os.path.join(os.path.dirname(request["output_paths"][0]), "model.gguf")
            write_gguf(path, request, self.ggml)
            try:
                self.load(path)
            finally:
                os.remove(path)
        tokens = model["token_ids"]
        options = self.library.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = len(tokens)
        options.n_threads = options.n_threads_batch = request["threads"]
        self.set_context_options(options, request["dtype"])
        self.context = self.library.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("cannot make a context")
        if self.cached:
            self.run(self.tokens(tokens[: self.cached]), 0)
        self.new = self.tokens(tokens[self.cached :])

    def load(self, path):
        options = self.library.llama_model_default_params()
        options.n_gpu_layers, options.use_mmap = 0, False
        self.set_model_options(options)
        self.model = self.library.llama_model_load_from_file(path.encode(), options)
        if not self.model:
            raise RuntimeError("cannot load the model")

    def __del__(self):
        if self.context:
            self.library.llama_free(self.context)
        if self.model:
            self.free_model(self.model)

    def tokens(self, tokens):
        return (self.library.llama_token * len(tokens))(*tokens)

    def run(self, tokens, position):
        if self.library.llama_decode(self.context, self.batch_of(tokens, position)) != 0:
            raise RuntimeError("llama_decode failed")

    def __call__(self):
        """Runs the row's tokens and forgets them."""
        self.run(self.new, self.cached)
        logits = self.library.llama_get_logits_ith(self.context, -1)  # waits until they are there
        self.forget(self.cached)
        return logits


def prepared(model):
    """What served.py wants."""
    return [model], lambda: [np.ctypeslib.as_array(model(), (model.vocabulary,))], ""
