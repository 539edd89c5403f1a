"""Whole models for pytorch.py: LlamaForCausalLM of Hugging Face's transformers with the benchmark's weights.

A prompt fills a new cache and gives the logits of its last token; a decode adds one token to a cache, which is then cut
back.
"""

import ctypes
import gc
import os

import torch
from pytorch_tensors import DTYPES, latest, make_matrix, read_vector

# Of a block's matrices and norms in the request, by their names in the model.
PARTS = {"self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
         "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down"}
NORMS = ["input_layernorm", "post_attention_layernorm"]


def resident_bytes():
    """Physical memory of the process, without what its allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ModelRow:
    def __init__(self, request):
        from transformers.models.llama import modeling_llama  # takes seconds

        latest.drop_all_but()
        request = request["model"]
        before = resident_bytes()
        self.model = self.make_model(modeling_llama, request)
        self.tokens = torch.tensor(request["token_ids"]).view(1, -1)
        self.cached, self.cache = request["cached"], None
        if self.cached:
            self.cache = modeling_llama.DynamicCache()
            self.model(self.tokens[:, : self.cached], past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.calls()[0]()
        self.resident = resident_bytes() - before

    @staticmethod
    def make_model(library, request):
        dtype, period, block = DTYPES[request["dtype"]], request["period"], request["blocks"][0]
        config = library.LlamaConfig(
            vocab_size=request["vocabulary"], hidden_size=block["d"], intermediate_size=block["d_ff"],
            num_hidden_layers=len(request["blocks"]), num_attention_heads=request["heads"],
            num_key_value_heads=request["kv_heads"], head_dim=request["head_dim"], rms_norm_eps=block["eps"],
            rope_theta=block["rope_theta"], tie_word_embeddings=False, max_position_embeddings=2048)
        state = {
            "model.embed_tokens.weight": make_matrix(request["embedding"], dtype, period),
            "lm_head.weight": make_matrix(request["head"], dtype, period),
            "model.norm.weight": read_vector(request["last_norm"], dtype, block["d"]),
        }
        for index, each in enumerate(request["blocks"]):
            prefix = f"model.layers.{index}."
            for name, part in PARTS.items():
                state[f"{prefix}{name}.weight"] = make_matrix(each["matrices"][part], dtype, period)
            for name, (weight, _) in zip(NORMS, each["norms"]):
                state[f"{prefix}{name}.weight"] = read_vector(weight, dtype, block["d"])
        with torch.device("meta"):  # without values, which all come from `state`
            model = library.LlamaForCausalLM(config)
        model.load_state_dict(state, strict=True, assign=True)
        model.model.rotary_emb = library.LlamaRotaryEmbedding(config)
        model.eval()
        return model

    def calls(self, mode="eager"):
        def prompt():
            return self.model(self.tokens, use_cache=True, logits_to_keep=1).logits

        def decode():
            logits = self.model(self.tokens[:, self.cached :], past_key_values=self.cache, use_cache=True).logits
            self.cache.crop(-1)  # takes the token away again
            return logits

        return [decode if self.cached else prompt]

    @staticmethod
    def rows_of(logits):
        return [logits.float()]

    note = "allocates its output"
