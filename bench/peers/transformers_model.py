"""Whole models for the peers that are PyTorch: LlamaForCausalLM of Hugging Face's transformers with the benchmark's
weights. A prompt fills a cache and gives the logits of its last token; a decode adds one token, which is then forgotten.
"""

import torch
from row_tensors import tensor_of
from torch_rows import DTYPES, NumPy, tensor
from transformers.models.llama import modeling_llama
from transformers import StaticCache

# A block's tensors in the request, by their names in the model.
PARTS = {"self_attn.q_proj": "q_proj", "self_attn.k_proj": "k_proj", "self_attn.v_proj": "v_proj",
         "self_attn.o_proj": "o_proj", "mlp.gate_proj": "gate_proj", "mlp.up_proj": "up_proj",
         "mlp.down_proj": "down_proj", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}


def make_model(request):
    model = request["model"]

    def values(name):
        return tensor(tensor_of(request, name))

    config = modeling_llama.LlamaConfig(
        vocab_size=model["vocabulary"], hidden_size=model["d"], intermediate_size=model["d_ff"],
        num_hidden_layers=model["layers"], num_attention_heads=model["heads"],
        num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"], rms_norm_eps=request["eps"],
        rope_theta=model["rope_theta"], tie_word_embeddings=False, max_position_embeddings=2048)
    state = {"model.embed_tokens.weight": values("embedding"), "lm_head.weight": values("head"),
             "model.norm.weight": values("norm")}
    for index in range(model["layers"]):
        for name, part in PARTS.items():
            state[f"model.layers.{index}.{name}.weight"] = values(f"{index}.{part}")
    with torch.device("meta"):  # without values, which all come from `state`
        made = modeling_llama.LlamaForCausalLM(config)
    made.load_state_dict(state, strict=True, assign=True)
    made.model.rotary_emb = modeling_llama.LlamaRotaryEmbedding(config)
    return made.eval()


def calls_of(request, make_cache, forget, compile_model=lambda model: model):
    """`forget` makes a cache hold the cached positions alone again."""
    torch.set_num_threads(request["threads"])
    model = make_model(request)
    tokens, cached = torch.tensor(request["model"]["token_ids"]).view(1, -1), request["model"]["cached"]
    cache = make_cache(model.config, tokens.shape[1])
    if cached:
        model(tokens[:, :cached], past_key_values=cache, use_cache=True, logits_to_keep=1)
    run = compile_model(model)

    def call():
        logits = run(tokens[:, cached:], past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        forget(cache, cached)
        return logits

    return [call], lambda: [NumPy(call().float())], "allocates its output"


def eager(request):
    def forget(cache, cached):
        cache.crop(-1) if cached else cache.reset()

    return calls_of(request, lambda config, positions: modeling_llama.DynamicCache(), forget)


def compiled(request, **options):
    """With the cache that its documentation has for torch.compile."""

    def make_cache(config, positions):
        cache = StaticCache(config=config, max_cache_len=positions)
        cache.early_initialization(1, config.num_key_value_heads, config.head_dim, DTYPES[request["dtype"]],
                                   torch.device("cpu"))
        return cache

    def forget(cache, cached):
        for layer in cache.layers:
            layer.cumulative_length.fill_(cached)

    torch._inductor.config.freezing_discard_parameters = True  # or the weights would be there twice
    return calls_of(request, make_cache, forget, lambda model: torch.compile(model, dynamic=False, **options))
