#include "names.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace halyard::models {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::vector<BlockPart> gpt2_block(const BlockConfig &block, const std::string &layer) {
    using W = BlockWeights;
    const std::int64_t d = block.hidden_size, ff = block.intermediate_size;
    return {
        {&W::attention_norm, layer + "ln_1.weight", {d}},
        {&W::attention_norm_bias, layer + "ln_1.bias", {d}},
        {&W::qkv_proj, layer + "attn.c_attn.weight", {d, 3 * d}},
        {&W::qkv_proj_bias, layer + "attn.c_attn.bias", {3 * d}},
        {&W::o_proj, layer + "attn.c_proj.weight", {d, d}},
        {&W::o_proj_bias, layer + "attn.c_proj.bias", {d}},
        {&W::ffn_norm, layer + "ln_2.weight", {d}},
        {&W::ffn_norm_bias, layer + "ln_2.bias", {d}},
        {&W::up_proj, layer + "mlp.c_fc.weight", {d, ff}},
        {&W::up_proj_bias, layer + "mlp.c_fc.bias", {ff}},
        {&W::down_proj, layer + "mlp.c_proj.weight", {ff, d}},
        {&W::down_proj_bias, layer + "mlp.c_proj.bias", {d}},
    };
}

std::vector<BlockPart> bert_block(const BlockConfig &block, const std::string &layer) {
    using W = BlockWeights;
    const std::int64_t d = block.hidden_size, ff = block.intermediate_size;
    const std::string self = layer + "attention.self.", attention = layer + "attention.output.";
    return {
        {&W::q_proj, self + "query.weight", {d, d}},
        {&W::q_proj_bias, self + "query.bias", {d}},
        {&W::k_proj, self + "key.weight", {d, d}},
        {&W::k_proj_bias, self + "key.bias", {d}},
        {&W::v_proj, self + "value.weight", {d, d}},
        {&W::v_proj_bias, self + "value.bias", {d}},
        {&W::o_proj, attention + "dense.weight", {d, d}},
        {&W::o_proj_bias, attention + "dense.bias", {d}},
        {&W::attention_norm, attention + "LayerNorm.weight", {d}},
        {&W::attention_norm_bias, attention + "LayerNorm.bias", {d}},
        {&W::up_proj, layer + "intermediate.dense.weight", {ff, d}},
        {&W::up_proj_bias, layer + "intermediate.dense.bias", {ff}},
        {&W::down_proj, layer + "output.dense.weight", {d, ff}},
        {&W::down_proj_bias, layer + "output.dense.bias", {d}},
        {&W::ffn_norm, layer + "output.LayerNorm.weight", {d}},
        {&W::ffn_norm_bias, layer + "output.LayerNorm.bias", {d}},
    };
}

std::vector<BlockPart> llama_block(const ModelConfig &config, const BlockConfig &block, const std::string &layer) {
    using W = BlockWeights;
    const std::int64_t d = block.hidden_size, ff = block.intermediate_size;
    const std::int64_t q = block.num_attention_heads * block.head_dim, kv = block.num_key_value_heads * block.head_dim;
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    std::vector<BlockPart> parts = {
        {&W::attention_norm, layer + "input_layernorm.weight", {d}},
        {&W::q_proj, attention + "q_proj.weight", {q, d}},
        {&W::k_proj, attention + "k_proj.weight", {kv, d}},
        {&W::v_proj, attention + "v_proj.weight", {kv, d}},
        {&W::o_proj, attention + "o_proj.weight", {d, q}},
        {&W::gate_proj, mlp + "gate_proj.weight", {ff, d}},
        {&W::up_proj, mlp + "up_proj.weight", {ff, d}},
        {&W::down_proj, mlp + "down_proj.weight", {d, ff}},
    };
    const auto add = [&](const std::vector<BlockPart> &more) { parts.insert(parts.end(), more.begin(), more.end()); };
    // What is called post_attention_layernorm comes before the FFN in a Pre-LN block, and after attention in Gemma 2
    // and 3.
    if (block.norm_placement == NormPlacement::sandwich) {
        add({{&W::attention_post_norm, layer + "post_attention_layernorm.weight", {d}},
             {&W::ffn_norm, layer + "pre_feedforward_layernorm.weight", {d}},
             {&W::ffn_post_norm, layer + "post_feedforward_layernorm.weight", {d}}});
    } else {
        add({{&W::ffn_norm, layer + "post_attention_layernorm.weight", {d}}});
    }
    if (config.qk_norm) {
        add({{&W::q_norm, attention + "q_norm.weight", {block.head_dim}},
             {&W::k_norm, attention + "k_norm.weight", {block.head_dim}}});
    }
    if (config.qkv_bias) {
        add({{&W::q_proj_bias, attention + "q_proj.bias", {q}},
             {&W::k_proj_bias, attention + "k_proj.bias", {kv}},
             {&W::v_proj_bias, attention + "v_proj.bias", {kv}}});
    }
    if (config.output_bias) {
        add({{&W::o_proj_bias, attention + "o_proj.bias", {d}}});
    }
    if (config.mlp_bias) {
        add({{&W::gate_proj_bias, mlp + "gate_proj.bias", {ff}},
             {&W::up_proj_bias, mlp + "up_proj.bias", {ff}},
             {&W::down_proj_bias, mlp + "down_proj.bias", {d}}});
    }
    return parts;
}

/// The name of the tensor that becomes an argument.
template<class Table, class Weights>
std::string name_of(const Table &table, ConstTensor Weights::*argument) {
    return std::find_if(std::begin(table), std::end(table), [&](const auto &entry) { return entry.first == argument; })
        ->second;
}

}  // namespace

const char *prefix_of(Architecture architecture) noexcept {
    return architecture == Architecture::gpt2   ? "transformer."
           : architecture == Architecture::bert ? "bert."
                                                : "model.";
}

std::string prefix_of(const ModelConfig &config, const SafeTensors &files) {
    const char *const table = config.architecture == Architecture::gpt2   ? "wte.weight"
                              : config.architecture == Architecture::bert ? "embeddings.word_embeddings.weight"
                                                                          : "embed_tokens.weight";
    return files.find(table) != nullptr ? "" : prefix_of(config.architecture);
}

std::string name_in(const SafeTensors &files, const std::string &name) {
    for (const auto &[now, before] : {std::pair(".LayerNorm.weight", "gamma"), std::pair(".LayerNorm.bias", "beta")}) {
        if (ends_with(name, now)) {
            const std::string old = name.substr(0, name.rfind('.') + 1) + before;
            return files.find(old) != nullptr ? old : name;
        }
    }
    return name;
}

std::vector<StackPart> stack_parts(const ModelConfig &config, const std::string &prefix) {
    using W = StackWeights;
    const std::int64_t vocab = config.stack.vocab_size, d = config.stack.hidden_size;
    std::vector<StackPart> parts;
    if (config.architecture == Architecture::gpt2) {
        parts = {{&W::embed_tokens, prefix + "wte.weight", {vocab, d}},
                 {&W::embed_positions, prefix + "wpe.weight", {config.max_position_embeddings, d}},
                 {&W::norm, prefix + "ln_f.weight", {d}},
                 {&W::norm_bias, prefix + "ln_f.bias", {d}}};
    } else if (config.architecture == Architecture::bert) {
        const std::string embeddings = prefix + "embeddings.";
        return {{&W::embed_tokens, embeddings + "word_embeddings.weight", {vocab, d}},
                {&W::embed_positions, embeddings + "position_embeddings.weight", {config.max_position_embeddings, d}},
                {&W::embed_types, embeddings + "token_type_embeddings.weight", {config.type_vocab_size, d}},
                {&W::embed_norm, embeddings + "LayerNorm.weight", {d}},
                {&W::embed_norm_bias, embeddings + "LayerNorm.bias", {d}}};
    } else {
        parts = {{&W::embed_tokens, prefix + "embed_tokens.weight", {vocab, d}},
                 {&W::norm, prefix + "norm.weight", {d}}};
    }
    if (!config.tie_word_embeddings) {
        parts.push_back({&W::lm_head, std::string(lm_head_name), {vocab, d}});
    }
    return parts;
}

std::vector<BlockPart> block_parts(const ModelConfig &config, const std::string &prefix, std::size_t layer) {
    const BlockConfig &block = config.blocks[layer];
    const std::string number = std::to_string(layer) + ".";
    switch (config.architecture) {
    case Architecture::gpt2:
        return gpt2_block(block, prefix + "h." + number);
    case Architecture::bert:
        return bert_block(block, prefix + "encoder.layer." + number);
    default:
        return llama_block(config, block, prefix + "layers." + number);
    }
}

std::vector<StackPart> in_gguf(std::vector<StackPart> parts) {
    using W = StackWeights;
    constexpr std::pair<ConstTensor W::*, const char *> names[] = {
        {&W::embed_tokens, "token_embd.weight"}, {&W::embed_positions, "position_embd.weight"},
        {&W::norm, "output_norm.weight"},        {&W::norm_bias, "output_norm.bias"},
        {&W::lm_head, "output.weight"},
    };
    for (StackPart &part : parts) {
        part.name = name_of(names, part.argument);
    }
    return parts;
}

std::vector<BlockPart> in_gguf(const ModelConfig &config, std::vector<BlockPart> parts, std::size_t layer) {
    using W = BlockWeights;
    constexpr std::pair<ConstTensor W::*, const char *> names[] = {
        {&W::attention_norm, "attn_norm.weight"},
        {&W::attention_norm_bias, "attn_norm.bias"},
        {&W::q_proj, "attn_q.weight"},
        {&W::q_proj_bias, "attn_q.bias"},
        {&W::k_proj, "attn_k.weight"},
        {&W::k_proj_bias, "attn_k.bias"},
        {&W::v_proj, "attn_v.weight"},
        {&W::v_proj_bias, "attn_v.bias"},
        {&W::qkv_proj, "attn_qkv.weight"},
        {&W::qkv_proj_bias, "attn_qkv.bias"},
        {&W::o_proj, "attn_output.weight"},
        {&W::o_proj_bias, "attn_output.bias"},
        {&W::q_norm, "attn_q_norm.weight"},
        {&W::k_norm, "attn_k_norm.weight"},
        {&W::attention_post_norm, "post_attention_norm.weight"},
        {&W::ffn_norm, "ffn_norm.weight"},
        {&W::ffn_norm_bias, "ffn_norm.bias"},
        {&W::gate_proj, "ffn_gate.weight"},
        {&W::gate_proj_bias, "ffn_gate.bias"},
        {&W::up_proj, "ffn_up.weight"},
        {&W::up_proj_bias, "ffn_up.bias"},
        {&W::down_proj, "ffn_down.weight"},
        {&W::down_proj_bias, "ffn_down.bias"},
        {&W::ffn_post_norm, "post_ffw_norm.weight"},
    };
    const Architecture architecture = config.architecture;
    const BlockConfig &block = config.blocks[layer];
    for (BlockPart &part : parts) {
        part.name = "blk." + std::to_string(layer) + "." + name_of(names, part.argument);
        if (layout_of(architecture) == WeightLayout::in_out) {
            std::reverse(part.shape.begin(), part.shape.end());
        }
        if (is_llama(architecture)) {
            part.interleaved_heads =
                part.argument == &W::q_proj || part.argument == &W::q_proj_bias   ? block.num_attention_heads
                : part.argument == &W::k_proj || part.argument == &W::k_proj_bias ? block.num_key_value_heads
                                                                                  : 0;
        }
    }
    return parts;
}

bool is_llama(Architecture architecture) noexcept {
    return architecture == Architecture::llama || architecture == Architecture::mistral;
}

WeightLayout layout_of(Architecture architecture) noexcept {
    return architecture == Architecture::gpt2 ? WeightLayout::in_out : WeightLayout::out_in;
}

bool is_ignorable(Architecture architecture, std::string_view name) noexcept {
    if (architecture == Architecture::gpt2) {
        return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");  // the causal mask
    }
    if (architecture == Architecture::bert) {
        const std::string_view inner = name.substr(name.rfind("bert.", 0) == 0 ? 5 : 0);
        return inner == "embeddings.position_ids" || inner.rfind("pooler.", 0) == 0 || name.rfind("cls.", 0) == 0;
    }
    return ends_with(name, "rotary_emb.inv_freq");
}

}  // namespace halyard::models
