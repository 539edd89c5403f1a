// Configurations of blocks: those of known families, and what a configuration
// must satisfy.
#include <cstdio>
#include <cstring>

#include "blocks/block.h"
#include "core/calls/attention.h"
#include "core/check_shapes.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"

namespace halyard {
namespace {

// Vaswani et al. 2017: the encoder's block; LayerNorm's eps as in PyTorch.
halyard_block_config original_2017() {
    halyard_block_config c = {};
    c.norm = HALYARD_NORM_LAYER;
    c.norm_placement = HALYARD_POST_NORM;
    c.rms_norm_eps = 1e-5f;
    c.hidden_act = HALYARD_RELU;
    return c;
}

// Devlin et al. 2018, whose GELU is exact.
halyard_block_config bert() {
    halyard_block_config c = original_2017();
    c.rms_norm_eps = 1e-12f;
    c.hidden_act = HALYARD_GELU;
    return c;
}

// Radford et al. 2019
halyard_block_config gpt2() {
    halyard_block_config c = {};
    c.norm = HALYARD_NORM_LAYER;
    c.norm_placement = HALYARD_PRE_NORM;
    c.rms_norm_eps = 1e-5f;
    c.hidden_act = HALYARD_GELU_TANH;
    c.causal = 1;
    return c;
}

// Touvron et al. 2023; Llama 2 and 3 have this eps, Llama 3 rope_theta 500000.
halyard_block_config llama() {
    halyard_block_config c = {};
    c.norm = HALYARD_NORM_RMS;
    c.norm_placement = HALYARD_PRE_NORM;
    c.rms_norm_eps = 1e-5f;
    c.hidden_act = HALYARD_SILU;
    c.gated_mlp = 1;
    c.causal = 1;
    c.rope.rope_theta = 10000.0;
    return c;
}

// Qwen 2 to 3, with biases of q, k and v (2) or norms of q and k (3) as they
// are among the weights.
halyard_block_config qwen() {
    halyard_block_config c = llama();
    c.rms_norm_eps = 1e-6f;
    c.rope.rope_theta = 1e6;
    return c;
}

// Gemma 2 (2B and 9B), a layer with full attention; every other one has
// sliding_window 4096.
halyard_block_config gemma() {
    halyard_block_config c = llama();
    c.rms_norm_eps = 1e-6f;
    c.norm_placement = HALYARD_SANDWICH_NORM;
    c.norm_flags = HALYARD_RMS_UNIT_OFFSET;
    c.hidden_act = HALYARD_GELU_TANH;
    c.query_pre_attn_scalar = 256.0f;
    c.attn_logit_softcapping = 50.0f;
    return c;
}

// Mistral 7B v0.1; later versions have no window and rope_theta 1e6.
halyard_block_config mistral() {
    halyard_block_config c = llama();
    c.sliding_window = 4096;
    return c;
}

constexpr const char *preset_names[] = {"original_2017", "bert", "gpt2", "llama", "qwen", "gemma", "mistral", nullptr};
constexpr halyard_block_config (*preset_functions[])() = {original_2017, bert, gpt2, llama, qwen, gemma, mistral};

void complete_heads(Checker &check, halyard_block_config &c) {
    check_range(check, "num_attention_heads", c.num_attention_heads, 1, max_features);
    if (check.failed()) {
        return;
    }
    if (c.num_key_value_heads == 0) {
        c.num_key_value_heads = c.num_attention_heads;
    }
    if (c.num_key_value_heads < 1 || c.num_attention_heads % c.num_key_value_heads != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "num_key_value_heads is %lld, but must be 0 or divide "
                   "num_attention_heads, which is %lld",
                   static_cast<long long>(c.num_key_value_heads), static_cast<long long>(c.num_attention_heads));
        return;
    }
    if (c.head_dim == 0) {
        if (c.hidden_size % c.num_attention_heads != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "head_dim is 0, but num_attention_heads, which is %lld, does "
                       "not divide hidden_size, which is "
                       "%lld",
                       static_cast<long long>(c.num_attention_heads), static_cast<long long>(c.hidden_size));
            return;
        }
        c.head_dim = c.hidden_size / c.num_attention_heads;
    }
    check_range(check, "head_dim", c.head_dim, 1, max_head_dim);
    const int64_t heads = c.num_attention_heads + 2 * c.num_key_value_heads;
    if (!check.failed() && heads * c.head_dim > max_features) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "num_attention_heads, num_key_value_heads and head_dim make "
                   "%lld features of q, k and v, but at most "
                   "%lld are supported",
                   static_cast<long long>(heads * c.head_dim), static_cast<long long>(max_features));
    }
}

void complete_rope(Checker &check, halyard_block_config &c) {
    halyard_rope_options &rope = c.rope;
    if (check.failed() || rope.rope_theta == 0) {
        return;
    }
    const struct {
        const char *name, *of_block;
        int64_t &value;
        int64_t block_value;
    } shared[] = {{"rope.head_dim", "head_dim", rope.head_dim, c.head_dim},
                  {"rope.max_positions", "max_position_embeddings", rope.max_positions, c.max_position_embeddings}};
    for (const auto &field : shared) {
        if (field.value == 0) {
            field.value = field.block_value;
        }
        if (!check.failed() && field.value != field.block_value) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be 0 or %s, which is %lld", field.name,
                       static_cast<long long>(field.value), field.of_block, static_cast<long long>(field.block_value));
        }
    }
    if (!check.failed() && c.max_position_embeddings < 1) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "max_position_embeddings is %lld, but must be 1 or more where "
                   "rope.rope_theta is not 0",
                   static_cast<long long>(c.max_position_embeddings));
    }
    if (!check.failed() && c.head_dim % 2 != 0 && rope.rotary_dim == 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "head_dim is %lld, but must be even where rope.rope_theta is "
                   "not 0 and rope.rotary_dim is 0",
                   static_cast<long long>(c.head_dim));
    }
    if (rope.rotary_dim == 0) {
        rope.rotary_dim = c.head_dim;
    }
}

}  // namespace

void check_norm_kind(Checker &check, const NormKind &kind, bool flags_used) {
    constexpr unsigned known = HALYARD_RMS_EPS_OUTSIDE_ROOT | HALYARD_RMS_UNIT_OFFSET;
    if (!check.failed() && (kind.norm < HALYARD_NORM_NONE || kind.norm > HALYARD_NORM_LAYER)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm is %d, which is no value of halyard_norm", kind.norm);
    }
    check.finite_not_negative("rms_norm_eps", kind.eps);
    if (!check.failed() && (kind.flags & ~known)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm_flags is 0x%x, which holds unknown bits", kind.flags);
    }
    if (!check.failed() && kind.flags != 0 && kind.norm != HALYARD_NORM_RMS && !flags_used) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm_flags is 0x%x, but must be 0 where no norm is an RMSNorm",
                   kind.flags);
    }
}

void complete_block_config(Checker &check, halyard_block_config &c, bool head_norms) {
    check_range(check, "hidden_size", c.hidden_size, 1, max_columns);
    check_range(check, "intermediate_size", c.intermediate_size, 1, max_features);
    complete_heads(check, c);

    check_norm_kind(check, {c.norm, c.rms_norm_eps, c.norm_flags}, head_norms);
    if (!check.failed() && (c.norm_placement < HALYARD_PRE_NORM || c.norm_placement > HALYARD_DOUBLE_NORM)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm_placement is %d, which is no value of halyard_norm_placement",
                   c.norm_placement);
    }
    check_activation(check, "hidden_act", c.hidden_act, "swish_beta", c.swish_beta);

    check_range(check, "sliding_window", c.sliding_window, 0, INT64_MAX);
    check.finite_not_negative("query_pre_attn_scalar", c.query_pre_attn_scalar);
    if (c.query_pre_attn_scalar == 0.0f) {
        c.query_pre_attn_scalar = static_cast<float>(c.head_dim);
    }
    check.softcap("attn_logit_softcapping", c.attn_logit_softcapping);
    check_range(check, "max_position_embeddings", c.max_position_embeddings, 0, INT64_MAX);
    complete_rope(check, c);
}

}  // namespace halyard

using namespace halyard;

const char *const *halyard_block_presets(void) {
    return preset_names;
}

halyard_status halyard_block_config_preset(const char *preset, halyard_block_config *config) {
    Checker check("halyard_block_config_preset");
    check.not_null("preset", preset);
    if (!check.not_null("config", config)) {
        return check.status();
    }
    for (int i = 0; preset_names[i]; i++) {
        if (strcmp(preset_names[i], preset) == 0) {
            *config = preset_functions[i]();
            return HALYARD_OK;
        }
    }
    char names[200] = "";
    for (int i = 0; preset_names[i]; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "", preset_names[i]);
    }
    return check.fail(HALYARD_INVALID_ARGUMENT, "preset is \"%.40s\", but must be one of %s", preset, names);
}
