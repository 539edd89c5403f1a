"""The peer "ik_llama.cpp": whole models through ik-llama-cpp-python's C interface (llama_models.py)."""

import ctypes
import importlib.metadata
import os

import ik_llama_cpp
import llama_models
from c_calls import POINTER, function
from ik_llama_cpp import _ctypes_api as library
from llama_models import DTYPES, OPERATIONS  # noqa: F401

VERSION = importlib.metadata.version("ik_llama_cpp_python")
FAMILY = "ggml"
HOW = ("a GGUF model of the weights' type, its matrices repacked as they are loaded (-rtr 1), keys and values in f16, flash "
       "attention; whole prompts in one batch; its wheel is built for AVX2")
LACKS = "is compared for whole models; has no f32 ones, since it keeps keys and values in 16 bits"


def load(name):
    return ctypes.CDLL(os.path.join(os.path.dirname(ik_llama_cpp.__file__), "lib", name))


# Functions that the package does not declare.
LLAMA = load("libllama.so")
batch_of = function(LLAMA, "llama_batch_get_one", library.llama_batch, library.llama_token_p, ctypes.c_int32, library.llama_pos,
                    library.llama_seq_id)
remove = function(LLAMA, "llama_kv_cache_seq_rm", ctypes.c_bool, POINTER, library.llama_seq_id, library.llama_pos,
                  library.llama_pos)


class Model(llama_models.Model):
    library, ggml = library, llama_models.Ggml(load("libggml.so"))
    free_model = staticmethod(library.llama_free_model)

    def set_model_options(self, options):
        options.repack_tensors = True

    def set_context_options(self, options, dtype):
        options.flash_attn = True
        options.type_k = options.type_v = llama_models.TYPES["f16"]  # its CPU kernels have no bf16 cache but with AVX512-BF16

    def batch_of(self, tokens, position):
        return batch_of(tokens, len(tokens), position, 0)

    def forget(self, position):
        remove(self.context, 0, position, -1)


def prepare(request):
    if request["operation"] == "model" and request["dtype"] == "f32":
        raise NotImplementedError("keeps keys and values in 16 bits")
    return llama_models.prepared(Model(request))
