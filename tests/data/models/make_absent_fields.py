#!/usr/bin/env python3
"""Makes absent_fields.json: what transformers makes of a config.json in which fields are absent or null.

Each entry has the fields that are given, and all fields as transformers completes them; null where it refuses. Needs
transformers alone:

    python tests/data/models/make_absent_fields.py
"""
import json
import os

import transformers

CLASSES = {
    "GPT2LMHeadModel": transformers.GPT2Config,
    "LlamaForCausalLM": transformers.LlamaConfig,
    "MistralForCausalLM": transformers.MistralConfig,
    "Qwen2ForCausalLM": transformers.Qwen2Config,
    "Qwen3ForCausalLM": transformers.Qwen3Config,
    "GemmaForCausalLM": transformers.GemmaConfig,
    "Gemma2ForCausalLM": transformers.Gemma2Config,
    "Gemma3ForCausalLM": transformers.Gemma3TextConfig,
    "BertModel": transformers.BertConfig,
}

# What changes results; other fields are left out of the file.
FIELDS = {
    "activation_function", "attention_bias", "attn_logit_softcapping", "eos_token_id", "final_logit_softcapping",
    "head_dim", "hidden_act", "hidden_activation", "hidden_size", "intermediate_size", "layer_norm_eps",
    "layer_norm_epsilon",
    "layer_types", "max_position_embeddings", "max_window_layers", "mlp_bias", "n_embd", "n_head", "n_inner", "n_layer",
    "n_positions", "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "query_pre_attn_scalar",
    "rms_norm_eps", "rope_parameters", "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "sliding_window",
    "tie_word_embeddings", "type_vocab_size", "use_bidirectional_attention", "use_sliding_window", "vocab_size",
}

# Beside nothing at all, and a null in each field: cases in which a field that is absent depends on one that is given.
SMALL = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 9}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
GIVEN = {
    "GPT2LMHeadModel": [{"n_embd": 96}, {"hidden_size": 96, "num_attention_heads": 4, "n_head": 6},
                        {"num_hidden_layers": 3, "max_position_embeddings": 50}],
    "LlamaForCausalLM": [SMALL, {"rope_theta": 500}, {"max_position_embeddings": 77, "rope_scaling": LLAMA3},
                         {"original_max_position_embeddings": 77, "rope_scaling": LLAMA3},
                         {"original_max_position_embeddings": 77,
                          "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 99}}],
    "MistralForCausalLM": [SMALL, {"sliding_window": 12}],
    "Qwen2ForCausalLM": [{**SMALL, "num_key_value_heads": None}, {"use_sliding_window": True},
                         {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": None}],
    "Qwen3ForCausalLM": [{**SMALL, "num_key_value_heads": 4}, {"use_sliding_window": True, "max_window_layers": 30}],
    "GemmaForCausalLM": [SMALL],
    "Gemma2ForCausalLM": [SMALL, {"sliding_window": 12}],
    "Gemma3ForCausalLM": [SMALL, {"sliding_window_pattern": 2}, {"rope_theta": 500}, {"rope_local_base_freq": 500}],
    "BertModel": [SMALL],
}


def kept(fields):
    return {name: value for name, value in sorted(fields.items()) if name in FIELDS}


def completed(config_class, given):
    try:
        return kept(config_class.from_dict(json.loads(json.dumps(given))).to_dict())
    except Exception as error:
        if type(error).__name__ != "StrictDataclassFieldValidationError":
            raise
        return None


def main():
    entries = []
    for architecture, config_class in CLASSES.items():
        nulls = [{name: None} for name in kept(config_class().to_dict())]
        for given in [{}, *nulls, *GIVEN[architecture]]:
            entries.append({"architecture": architecture, "given": given, "means": completed(config_class, given)})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "absent_fields.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")


main()
