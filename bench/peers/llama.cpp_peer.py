"""The peer "llama.cpp": whole models through llama-cpp-python's C interface (llama_models.py)."""

import ctypes
import glob
import importlib.metadata
import os

import llama_cpp
import llama_models
from llama_cpp import llama_cpp as library
from llama_models import DTYPES, OPERATIONS  # noqa: F401

VERSION = importlib.metadata.version("llama_cpp_python")
FAMILY = "ggml"
HOW = "a GGUF model of the weights' type, keys and values in it too; whole prompts in one batch"
LACKS = "is compared for whole models"

BASE = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(llama_cpp.__file__), "lib", "libggml-base.so*"))[0])


class Model(llama_models.Model):
    library, ggml = library, llama_models.Ggml(BASE)
    free_model = staticmethod(library.llama_model_free)

    def set_model_options(self, options):
        pass

    def set_context_options(self, options, dtype):
        options.type_k = options.type_v = llama_models.TYPES[dtype]
        if dtype == "f32":  # its flash attention is less accurate than f32 arithmetic is
            options.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED

    def batch_of(self, tokens, position):
        return library.llama_batch_get_one(tokens, len(tokens))

    def forget(self, position):
        library.llama_memory_seq_rm(library.llama_get_memory(self.context), 0, position, -1)


def prepare(request):
    return llama_models.prepared(Model(request))
