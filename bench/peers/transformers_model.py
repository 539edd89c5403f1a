"""Whole models for the peers that are PyTorch: LlamaForCausalLM of Hugging Face's transformers with the benchmark's
weights. A prompt fills a cache and gives the logits of its last token; a decode adds one token, which is then forgotten.
"""

import torch
from row_tensors import matrix, read
from torch_rows import DTYPES, NumPy, tensor
from transformers.models.llama import modeling_llama
from transformers import StaticCache

# Of a block's matrices and norms in the request, by their names in the model.
PARTS = {"self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
         "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down"}
NORMS = ["input_layernorm", "post_attention_layernorm"]


def make_model(request):
    model, block = request["model"], request["model"]["blocks"][0]

    def whole(part):
        return tensor(matrix(part, request["dtype"]))

    def vector(path):
        return tensor(read(path, request["dtype"], -1))

    config = modeling_llama.LlamaConfig(
        vocab_size=model["vocabulary"], hidden_size=block["d"], intermediate_size=block["d_ff"],
        num_hidden_layers=len(model["blocks"]), num_attention_heads=model["heads"],
        num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"], rms_norm_eps=block["eps"],
        rope_theta=block["rope_theta"], tie_word_embeddings=False, max_position_embeddings=2048)
    state = {
        "model.embed_tokens.weight": whole(model["embedding"]),
        "lm_head.weight": whole(model["head"]),
        "model.norm.weight": vector(model["last_norm"]),
    }
    for index, each in enumerate(model["blocks"]):
        prefix = f"model.layers.{index}."
        for name, part in PARTS.items():
            state[f"{prefix}{name}.weight"] = whole(each["matrices"][part])
        for name, (weight, _) in zip(NORMS, each["norms"]):
            state[f"{prefix}{name}.weight"] = vector(weight)
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
