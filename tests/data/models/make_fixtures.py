#!/usr/bin/env python3
"""Makes tiny random models of every supported architecture, and what Hugging Face transformers computes with them.

    python make_fixtures.py [FOLDER]

needs torch and transformers (5.x), and replaces the fixtures in FOLDER, by default those beside it. Each is a folder as
transformers saves it (config.json, model.safetensors) with one file more, expected.safetensors:

    input_ids     [T] int64
    hidden.I      [T, hidden_size] float32: 0 is the embedding, I the output of block I - 1, the last that of the norm
    logits        [T, vocab_size] float32, of models that have an output projection
    token_type_ids [T] int64, of encoders
    generated     [N] int64, of float32 models: the N most likely tokens, one after another

computed by the model in its own dtype with eager attention. Those of bfloat16 models are rounded after every operation;
beside them, as exact.hidden.I and exact.logits, lies what the same weights give in float32 arithmetic.

Weights are large enough that every part of a model shows in its output: norm weights are not all one, biases not zero,
soft caps and windows smaller than what they cap.
"""

import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

TOKENS = 23
GENERATED = 8

COMMON = dict(
    vocab_size=61, max_position_embeddings=64, rms_norm_eps=0.003, bos_token_id=1, eos_token_id=2, pad_token_id=0)
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 300.0}

CONFIGS = {
    # Learned positions, LayerNorm, [in, out] matrices, heads of odd width.
    "gpt2": GPT2Config(
        vocab_size=61, n_positions=40, n_embd=33, n_layer=3, n_head=3, n_inner=47, layer_norm_epsilon=0.003,
        bos_token_id=1, eos_token_id=2),
    # High frequencies kept, low ones divided, one between interpolated.
    "llama3": LlamaConfig(
        **COMMON, hidden_size=33, intermediate_size=47, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=10, rope_parameters={
            "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32}),
    # Biases everywhere, tied.
    "llama_linear": LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=45, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 300.0, "factor": 2.5}),
    # Biases of q, k and v; windows from the second layer on.
    "qwen2": Qwen2Config(
        **COMMON, hidden_size=30, intermediate_size=49, num_hidden_layers=3, num_attention_heads=5,
        num_key_value_heads=1, use_sliding_window=True, sliding_window=9, max_window_layers=1,
        rope_parameters=DEFAULT_ROPE),
    # Norms of q and k, tied.
    "qwen3": Qwen3Config(
        **COMMON, hidden_size=30, intermediate_size=47, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, rope_parameters=DEFAULT_ROPE),
    # A window shorter than the prompt.
    "mistral": MistralConfig(
        **COMMON, hidden_size=36, intermediate_size=41, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, sliding_window=7, rope_parameters=DEFAULT_ROPE),
    # Scaled embeddings, 1 + weight in the norms.
    "gemma": GemmaConfig(
        **COMMON, hidden_size=27, intermediate_size=43, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, rope_parameters=DEFAULT_ROPE),
    # Soft caps, norms on both sides, windows in every other layer.
    "gemma2": Gemma2Config(
        **COMMON, hidden_size=30, intermediate_size=43, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, head_dim=8, query_pre_attn_scalar=11, attn_logit_softcapping=3.0,
        final_logit_softcapping=4.0, sliding_window=5, rope_parameters=DEFAULT_ROPE),
    # Norms of q and k; layers with a window have a rotation of their own.
    "gemma3": Gemma3TextConfig(
        **COMMON, hidden_size=28, intermediate_size=43, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, query_pre_attn_scalar=7, sliding_window=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}),
}


# Learned positions, kinds of tokens, an encoder's attention; GELU, and norms that show their eps.
ENCODERS = {
    "bert": BertConfig(
        vocab_size=61, hidden_size=33, intermediate_size=47, num_hidden_layers=3, num_attention_heads=3,
        max_position_embeddings=40, type_vocab_size=3, layer_norm_eps=0.003),
}


def set_weights(model, unit_offset, generator):
    """Random weights of sizes that keep every part of the model in play."""
    for name, parameter in model.named_parameters():
        random = torch.randn(parameter.shape, generator=generator)
        if name.endswith((".norm.weight", ".ln_f.weight")):
            # Weights have both signs, or tied models would say each token again.
            parameter.data = random - (1.0 if unit_offset else 0.0)
        elif parameter.dim() == 1:
            is_norm = "bias" not in name
            parameter.data = random * 0.3 + (1.0 if is_norm and not unit_offset else 0.0)
        elif "wpe" in name or "wte" in name or "embed_tokens" in name:
            # Gemma multiplies its embeddings by the root of their width.
            parameter.data = random * (0.3 if unit_offset else 0.5 if "wpe" in name else 1.0)
        else:
            inputs = parameter.shape[0] if "c_" in name else parameter.shape[1]  # Conv1D is [in, out]
            parameter.data = random * (1.3 / inputs**0.5)
    model.tie_weights()


def observe(model, input_ids):
    """The logits, and the hidden states between the blocks, as float32."""
    states = {}
    inner = model.base_model
    layers = inner.h if hasattr(inner, "h") else inner.layers
    norm = inner.ln_f if hasattr(inner, "ln_f") else inner.norm

    def first(value):
        return value[0] if isinstance(value, tuple) else value

    def before(module, arguments, keywords):
        states[0] = first(arguments) if arguments else keywords["hidden_states"]

    def after(index):
        return lambda module, arguments, output: states.__setitem__(index, first(output))

    hooks = [layers[0].register_forward_pre_hook(before, with_kwargs=True)]
    hooks += [layer.register_forward_hook(after(1 + i)) for i, layer in enumerate(layers)]
    hooks.append(norm.register_forward_hook(after(1 + len(layers))))
    with torch.no_grad():
        logits = model(input_ids[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    result = {f"hidden.{i}": state.reshape(len(input_ids), -1) for i, state in states.items()}
    result["logits"] = logits
    return {name: value.float().contiguous() for name, value in result.items()}


def generate(model, input_ids, count):
    tokens = input_ids.tolist()
    for _ in range(count):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    return torch.tensor(tokens[len(input_ids):])


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def make(folder, name, config, dtype, seed):
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    set_weights(model, name.startswith("gemma"), generator)
    input_ids = torch.randint(3, config.vocab_size, (TOKENS,), generator=generator)
    model.to(dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    model = load(folder, dtype)
    expected = {"input_ids": input_ids, **observe(model, input_ids)}
    if dtype == torch.float32:
        expected["generated"] = generate(model, input_ids, GENERATED)
    else:
        exact = load(folder, torch.float32)
        for module in exact.modules():
            if hasattr(module, "embed_scale"):  # which a model rounds to its dtype
                module.embed_scale = module.embed_scale.to(dtype).float()
        expected.update({f"exact.{key}": value for key, value in observe(exact, input_ids).items()})
    save_file(expected, folder / "expected.safetensors", metadata={"transformers": transformers.__version__})


def make_encoder(folder, config, dtype, seed):
    shutil.rmtree(folder, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    model = BertModel(config)
    set_weights(model, False, generator)
    input_ids = torch.randint(3, config.vocab_size, (TOKENS,), generator=generator)
    token_type_ids = torch.randint(0, config.type_vocab_size, (TOKENS,), generator=generator)
    model.to(dtype).save_pretrained(folder)

    def states(dtype):
        model = BertModel.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
        with torch.no_grad():
            output = model(input_ids[None], token_type_ids=token_type_ids[None], output_hidden_states=True)
        return {f"hidden.{i}": state[0].float().contiguous() for i, state in enumerate(output.hidden_states)}

    expected = {"input_ids": input_ids, "token_type_ids": token_type_ids, **states(dtype)}
    if dtype != torch.float32:
        expected.update({f"exact.{key}": value for key, value in states(torch.float32).items()})
    save_file(expected, folder / "expected.safetensors", metadata={"transformers": transformers.__version__})


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.disable_progress_bar()
    for number, (name, config) in enumerate({**CONFIGS, **ENCODERS}.items()):
        for dtype, suffix in (torch.float32, "f32"), (torch.bfloat16, "bf16"):
            folder = root / f"{name}_{suffix}"
            if name in ENCODERS:
                make_encoder(folder, config, dtype, 100 + number)
            else:
                make(folder, name, config, dtype, 100 + number)
            print(f"{folder.name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes")


if __name__ == "__main__":
    main()
