"""llama.cpp's side of the benchmark: a process that makes a model, runs it once and then times it whenever it is asked.

bench/peers/llama_cpp.cpp starts it, writes one JSON object per line to its standard input and reads one per line from
its standard output. The benchmark's weights go through a GGUF file, which is gone once the model is loaded. Keys and
values are stored in the type of the weights. A prompt is one batch, after which the logits of its last token are there;
a decode adds one token, which is then removed again.
"""

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import struct
import sys
import time

replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what the library prints must not land among the replies

import numpy as np  # noqa: E402

STORED = {"f32": np.float32, "bf16": np.uint16}
GGML_F32, GGML_TYPES = 0, {"f32": 0, "bf16": 30}
UINT32, FLOAT32, STRING = 4, 6, 8  # types of a GGUF file's values
ALIGNMENT = 32

# A block's matrices and norms in the request, by their names in the file.
PARTS = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "ffn_gate": "gate", "ffn_up": "up",
         "ffn_down": "down"}
NORMS = ["attn_norm", "ffn_norm"]


def resident_bytes():
    """Physical memory of the process, without what its allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_matrix(part, dtype):
    """What the request describes by {"path", "out", "in"}: a matrix that repeats the values of a file."""
    return np.resize(np.fromfile(part["path"], STORED[dtype]), (part["out"], part["in"]))


def read_f32(path, dtype):
    values = np.fromfile(path, STORED[dtype])
    return values if dtype == "f32" else (values.astype(np.uint32) << 16).view(np.float32)


def interleave(matrix, heads):
    """Rows of q and k in the order of llama.cpp's rotary embedding, which turns neighbours."""
    return matrix.reshape(heads, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def tensors_of(model):
    """(name, shape as [out, in], type, function that makes the values) of every tensor."""
    dtype, kind = model["dtype"], GGML_TYPES[model["dtype"]]

    def matrix(name, part, change=lambda values: values):
        return name + ".weight", [part["out"], part["in"]], kind, lambda: change(read_matrix(part, dtype))

    def norm(name, path):
        return name + ".weight", [model["blocks"][0]["d"]], GGML_F32, lambda: read_f32(path, dtype)

    yield matrix("token_embd", model["embedding"])
    for index, block in enumerate(model["blocks"]):
        for name, (weight, _) in zip(NORMS, block["norms"]):
            yield norm(f"blk.{index}.{name}", weight)
        for name, part in PARTS.items():
            heads = {"q": model["heads"], "k": model["kv_heads"]}.get(part)
            change = (lambda values, heads=heads: interleave(values, heads)) if heads else (lambda values: values)
            yield matrix(f"blk.{index}.{name}", block["matrices"][part], change)
    yield norm("output_norm", model["last_norm"])
    yield matrix("output", model["head"])


def write_gguf(path, model):
    block = model["blocks"][0]
    values = {
        "general.architecture": (STRING, "llama"),
        "llama.vocab_size": (UINT32, model["vocabulary"]),
        "llama.context_length": (UINT32, 2048),
        "llama.embedding_length": (UINT32, block["d"]),
        "llama.feed_forward_length": (UINT32, block["d_ff"]),
        "llama.block_count": (UINT32, len(model["blocks"])),
        "llama.attention.head_count": (UINT32, model["heads"]),
        "llama.attention.head_count_kv": (UINT32, model["kv_heads"]),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT32, block["eps"]),
        "llama.rope.dimension_count": (UINT32, model["head_dim"]),
        "llama.rope.freq_base": (FLOAT32, block["rope_theta"]),
        "tokenizer.ggml.model": (STRING, "none"),
    }

    def text(string):
        encoded = string.encode()
        return struct.pack("<Q", len(encoded)) + encoded

    def padding(size):
        return -size % ALIGNMENT

    tensors = list(tensors_of(model))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, (kind, value) in values.items():
        packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
        header += text(key) + struct.pack("<I", kind) + packed
    offset = 0
    for name, shape, kind, _ in tensors:
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
        size = int(np.prod(shape)) * (4 if kind == GGML_F32 else 2)
        offset += size + padding(size)
    with open(path, "wb") as file:
        file.write(header + bytes(padding(len(header))))
        for _, _, _, make in tensors:
            array = np.ascontiguousarray(make())
            array.tofile(file)
            file.write(bytes(padding(array.nbytes)))


class Prepared:
    def __init__(self, request):
        from llama_cpp import llama_cpp as library

        model = request["model"]
        self.library, self.model, self.context = library, None, None
        path = os.path.join(request["folder"], "model.gguf")
        before = resident_bytes()
        write_gguf(path, model)
        try:
            options = library.llama_model_default_params()
            options.n_gpu_layers, options.use_mmap = 0, False
            self.model = library.llama_model_load_from_file(path.encode(), options)
        finally:
            os.remove(path)
        if not self.model:
            raise RuntimeError("cannot load the model")
        self.tokens, self.cached = model["token_ids"], model["cached"]
        options = library.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = len(self.tokens)
        options.n_threads = options.n_threads_batch = request["threads"]
        options.type_k = options.type_v = GGML_TYPES[model["dtype"]]
        if model["dtype"] == "f32":  # its flash attention is less accurate than f32 arithmetic is
            options.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = library.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("cannot make a context")
        self.memory = library.llama_get_memory(self.context)
        self.vocabulary = model["vocabulary"]
        if self.cached:
            self.decode(self.tokens[: self.cached])
        self.batch = (library.llama_token * (len(self.tokens) - self.cached))(*self.tokens[self.cached :])
        self.call()
        self.resident = resident_bytes() - before

    def decode(self, tokens):
        self.run((self.library.llama_token * len(tokens))(*tokens))

    def run(self, tokens):
        if self.library.llama_decode(self.context, self.library.llama_batch_get_one(tokens, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def call(self):
        """Runs the row's tokens and forgets them."""
        self.run(self.batch)
        logits = self.library.llama_get_logits_ith(self.context, -1)  # waits until they are there
        self.library.llama_memory_seq_rm(self.memory, 0, self.cached, -1)
        return logits

    def once(self, paths):
        np.ctypeslib.as_array(self.call(), (self.vocabulary,)).tofile(paths[0])

    def time(self, iterations):
        self.call()
        start = time.perf_counter()
        for _ in range(iterations):
            self.call()
        return time.perf_counter() - start

    def release(self):
        if self.context:
            self.library.llama_free(self.context)
        if self.model:
            self.library.llama_model_free(self.model)


def main():
    prepared = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "hello":
                found = importlib.util.find_spec("llama_cpp") is not None
                reply = {"version": importlib.metadata.version("llama_cpp_python") if found else ""}
            elif request["do"] == "prepare":
                prepared = Prepared(request)
                prepared.once(request["output_paths"])
                reply = {"note": "", "resident": prepared.resident}
            elif request["do"] == "time":
                reply = {"seconds": prepared.time(request["iterations"])}
            else:
                if prepared is not None:
                    prepared.release()
                prepared = None
                reply = {}
        except Exception as error:  # whatever it is, it is the answer for this row
            reply = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        replies.write(json.dumps(reply) + "\n")


main()
