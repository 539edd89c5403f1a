// The functions, each described once: from this the module makes what Python calls, signatures and documentation.
#ifndef HALYARD_PYTHON_CORE_FUNCTIONS_H
#define HALYARD_PYTHON_CORE_FUNCTIONS_H

#include "adapters.h"
#include "function.h"

namespace halyard::python {

// ---- enumerations, in the order of their values ----

#define HALYARD_NAMES(type, ...)                                                                                       \
    inline constexpr const char *type##_names[] = {__VA_ARGS__};                                                       \
    template<>                                                                                                         \
    inline constexpr Names names_of<type> = {type##_names, sizeof type##_names / sizeof *type##_names};
HALYARD_NAMES(halyard_glu_layout, "gate_up", "up_gate", "interleaved")
HALYARD_NAMES(halyard_weight_layout, "out_in", "in_out")
HALYARD_NAMES(halyard_activation, "identity", "relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish", "sigmoid",
              "tanh", "exp", "relu2")
HALYARD_NAMES(halyard_norm, "none", "rms", "layer")
HALYARD_NAMES(halyard_norm_placement, "pre", "post", "post_sublayer", "sandwich", "double")
HALYARD_NAMES(halyard_rope_scaling, "unscaled", "linear", "llama3")
HALYARD_NAMES(halyard_code_format, "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k", "int8",
              "compressed_tensors", "gptq", "gptq_v2", "awq")
#undef HALYARD_NAMES

inline constexpr Parameter named = {"*", Kind::named};

// ---- parameters that functions have in common ----

inline constexpr Parameter unary[] = {{"x", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter unary_beta[] = {{"x", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter unary_backward[] = {{"x", Kind::input}, {"dy", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter unary_beta_backward[] = {
    {"x", Kind::input}, {"dy", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter gated[] = {{"gate", Kind::input}, {"up", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter gated_beta[] = {
    {"gate", Kind::input}, {"up", Kind::input}, {"beta", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter gated_backward[] = {
    {"gate", Kind::input}, {"up", Kind::input}, {"dy", Kind::input}, {"dgate", Kind::output}, {"dup", Kind::output}};
inline constexpr Parameter gated_beta_backward[] = {{"gate", Kind::input},   {"up", Kind::input},
                                                    {"dy", Kind::input},     {"beta", Kind::real, 1},
                                                    {"dgate", Kind::output}, {"dup", Kind::output}};
inline constexpr Parameter packed[] = {
    {"x", Kind::input}, choice<halyard_glu_layout>("layout"), {"out", Kind::half_output}};
inline constexpr Parameter packed_beta[] = {
    {"x", Kind::input}, choice<halyard_glu_layout>("layout"), {"beta", Kind::real, 1}, {"out", Kind::half_output}};
inline constexpr Parameter packed_backward[] = {
    {"x", Kind::input}, {"dy", Kind::input}, choice<halyard_glu_layout>("layout"), {"out", Kind::output}};
inline constexpr Parameter packed_beta_backward[] = {{"x", Kind::input},
                                                     {"dy", Kind::input},
                                                     choice<halyard_glu_layout>("layout"),
                                                     {"beta", Kind::real, 1},
                                                     {"out", Kind::output}};
inline constexpr Parameter binary[] = {{"a", Kind::input}, {"b", Kind::input}, {"out", Kind::output}};
inline constexpr Parameter cast[] = {{"x", Kind::input}, {"dtype", Kind::dtype}, {"out", Kind::output}};
inline constexpr Parameter softmax[] = {{"x", Kind::input}, {"scale", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter softmax_backward[] = {
    {"y", Kind::input}, {"dy", Kind::input}, {"scale", Kind::real, 1}, {"out", Kind::output}};
inline constexpr Parameter layer_norm[] = {{"x", Kind::input},
                                           {"weight", Kind::optional_input},
                                           {"bias", Kind::optional_input},
                                           {"eps", Kind::real, 1e-5},
                                           {"out", Kind::output}};
inline constexpr Parameter rms_norm[] = {{"x", Kind::input},
                                         {"weight", Kind::optional_input},
                                         {"eps", Kind::real, 1e-6},
                                         {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                         {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                         {"out", Kind::output}};
inline constexpr Parameter partial_rms_norm[] = {{"x", Kind::input},
                                                 {"weight", Kind::optional_input},
                                                 {"eps", Kind::real, 1e-6},
                                                 {"p", Kind::real, 0.0625},
                                                 {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                                 {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                                 {"out", Kind::output}};
inline constexpr Parameter add_layer_norm[] = {{"x", Kind::input},
                                               {"residual", Kind::input},
                                               {"weight", Kind::optional_input},
                                               {"bias", Kind::optional_input},
                                               {"eps", Kind::real, 1e-5},
                                               {"residual_out", Kind::output},
                                               {"out", Kind::output}};
inline constexpr Parameter add_rms_norm[] = {{"x", Kind::input},
                                             {"residual", Kind::input},
                                             {"weight", Kind::optional_input},
                                             {"eps", Kind::real, 1e-6},
                                             {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                             {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                             {"residual_out", Kind::output},
                                             {"out", Kind::output}};

// ---- gradients of norms: dweight and dbias are written where they are given ----

inline constexpr Parameter layer_norm_backward[] = {{"x", Kind::input},
                                                    {"weight", Kind::input_or_none},
                                                    {"dy", Kind::input},
                                                    {"eps", Kind::real, 1e-5},
                                                    named,
                                                    {"dresidual_out", Kind::optional_input},
                                                    {"accumulate", Kind::boolean},
                                                    {"out", Kind::output},
                                                    {"dweight", Kind::optional_output},
                                                    {"dbias", Kind::optional_output}};
inline constexpr Parameter rms_norm_backward[] = {{"x", Kind::input},
                                                  {"weight", Kind::input_or_none},
                                                  {"dy", Kind::input},
                                                  {"eps", Kind::real, 1e-6},
                                                  {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
                                                  {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
                                                  {"dresidual_out", Kind::optional_input},
                                                  {"accumulate", Kind::boolean},
                                                  {"out", Kind::output},
                                                  {"dweight", Kind::optional_output}};
inline constexpr Parameter partial_rms_norm_backward[] = {
    {"x", Kind::input},
    {"weight", Kind::input_or_none},
    {"dy", Kind::input},
    {"eps", Kind::real, 1e-6},
    {"p", Kind::real, 0.0625},
    {"eps_outside_root", Kind::flag, HALYARD_RMS_EPS_OUTSIDE_ROOT},
    {"unit_offset", Kind::flag, HALYARD_RMS_UNIT_OFFSET},
    {"dresidual_out", Kind::optional_input},
    {"accumulate", Kind::boolean},
    {"out", Kind::output},
    {"dweight", Kind::optional_output}};

// ---- weights, linear layers and networks ----

inline constexpr Parameter weights_pack[] = {
    {"array", Kind::input},
    HALYARD_FIELD_AS("gate", halyard_pack_options, up, 0),
    named,
    HALYARD_FIELD(halyard_pack_options, layout),
    HALYARD_FIELD(halyard_pack_options, norm_weight),
    HALYARD_FIELD(halyard_pack_options, norm_bias),
    HALYARD_FIELD(halyard_pack_options, norm_unit_offset),
    HALYARD_FIELD_AS("bits", halyard_pack_options, quantization.bits, 0, Kind::small_integer),
    HALYARD_FIELD_AS("group", halyard_pack_options, quantization.group, 0, Kind::small_integer),
    HALYARD_FIELD_AS("asymmetric", halyard_pack_options, quantization.asymmetric, 0),
    HALYARD_FIELD_AS("scale_dtype", halyard_pack_options, quantization.scale_dtype, 1)};
inline constexpr Parameter weights_codes[] = {HALYARD_FIELD_AS("matrix", halyard_codes, matrix, 0, Kind::input),
                                              HALYARD_FIELD_AS("format", halyard_codes, format, required),
                                              HALYARD_FIELD_AS("outputs", halyard_codes, out_features, required),
                                              HALYARD_FIELD_AS("inputs", halyard_codes, in_features, required),
                                              named,
                                              HALYARD_FIELD_AS("bits", halyard_codes, bits, 0, Kind::small_integer),
                                              HALYARD_FIELD(halyard_codes, group),
                                              HALYARD_FIELD(halyard_codes, scales),
                                              HALYARD_FIELD(halyard_codes, zeros),
                                              HALYARD_FIELD(halyard_codes, g_idx)};
inline constexpr Parameter weights_update[] = {
    object("self", Type::weights, Kind::changed_handle),   {"array", Kind::input},
    HALYARD_FIELD_AS("gate", halyard_pack_options, up, 0), named,
    HALYARD_FIELD(halyard_pack_options, layout),           HALYARD_FIELD(halyard_pack_options, norm_weight),
    HALYARD_FIELD(halyard_pack_options, norm_bias),        HALYARD_FIELD(halyard_pack_options, norm_unit_offset)};
inline constexpr Parameter linear[] = {{"x", Kind::input},
                                       object("weights", Type::weights),
                                       HALYARD_FIELD(halyard_linear_options, bias),
                                       named,
                                       HALYARD_FIELD(halyard_linear_options, bias_up),
                                       HALYARD_FIELD(halyard_linear_options, activation),
                                       HALYARD_FIELD_AS("beta", halyard_linear_options, beta, 1),
                                       HALYARD_FIELD(halyard_linear_options, residual),
                                       HALYARD_FIELD(halyard_linear_options, row_scale),
                                       HALYARD_FIELD(halyard_linear_options, row_mean),
                                       HALYARD_FIELD(halyard_linear_options, sums),
                                       HALYARD_FIELD(halyard_linear_options, sums_up),
                                       {"out", Kind::layer_output}};
inline constexpr Parameter ffn[] = {
    {"x", Kind::input},
    object("up", Type::weights),
    object("down", Type::weights),
    named,
    HALYARD_FIELD(halyard_ffn_options, activation),
    HALYARD_FIELD_AS("beta", halyard_ffn_options, beta, 1),
    HALYARD_FIELD(halyard_ffn_options, bias),
    HALYARD_FIELD(halyard_ffn_options, bias_up),
    HALYARD_FIELD(halyard_ffn_options, bias_down),
    HALYARD_FIELD(halyard_ffn_options, norm),
    HALYARD_FIELD(halyard_ffn_options, norm_weight),
    HALYARD_FIELD(halyard_ffn_options, norm_bias),
    HALYARD_FIELD_AS("eps", halyard_ffn_options, eps, 1e-6),
    HALYARD_FIELD_AS("eps_outside_root", halyard_ffn_options, norm_flags, HALYARD_RMS_EPS_OUTSIDE_ROOT),
    HALYARD_FIELD_AS("unit_offset", halyard_ffn_options, norm_flags, HALYARD_RMS_UNIT_OFFSET),
    HALYARD_FIELD(halyard_ffn_options, deferred_norm),
    HALYARD_FIELD(halyard_ffn_options, residual),
    HALYARD_FIELD(halyard_ffn_options, sums),
    HALYARD_FIELD(halyard_ffn_options, sums_up),
    {"out", Kind::layer_output}};

// ---- rotary embedding, the cache of keys and values, attention ----

inline constexpr Parameter rope_create[] = {
    HALYARD_FIELD_AS("head_dim", halyard_rope_options, head_dim, required),
    HALYARD_FIELD_AS("max_positions", halyard_rope_options, max_positions, required),
    HALYARD_FIELD_AS("rope_theta", halyard_rope_options, rope_theta, 10000),
    named,
    HALYARD_FIELD(halyard_rope_options, rotary_dim),
    HALYARD_FIELD(halyard_rope_options, interleaved),
    HALYARD_FIELD(halyard_rope_options, scaling),
    HALYARD_FIELD_AS("factor", halyard_rope_options, factor, 1),
    HALYARD_FIELD_AS("low_freq_factor", halyard_rope_options, low_freq_factor, 1),
    HALYARD_FIELD_AS("high_freq_factor", halyard_rope_options, high_freq_factor, 4),
    HALYARD_FIELD_AS("original_max_position_embeddings", halyard_rope_options, original_max_position_embeddings, 8192)};
inline constexpr Parameter rope_apply[] = {
    object("self", Type::rope), {"x", Kind::input}, {"positions", Kind::optional_input}, {"out", Kind::output}};
inline constexpr Parameter rope_apply_backward[] = {
    object("self", Type::rope), {"dy", Kind::input}, {"positions", Kind::optional_input}, {"out", Kind::output}};
inline constexpr Parameter cache_create[] = {
    HALYARD_FIELD_AS("n_layers", halyard_kv_cache_options, n_layers, required),
    HALYARD_FIELD_AS("n_kv_heads", halyard_kv_cache_options, n_kv_heads, required),
    HALYARD_FIELD_AS("head_dim", halyard_kv_cache_options, head_dim, required),
    HALYARD_FIELD_AS("max_positions", halyard_kv_cache_options, max_positions, required),
    named,
    HALYARD_FIELD_AS("n_sequences", halyard_kv_cache_options, n_sequences, 1),
    HALYARD_FIELD(halyard_kv_cache_options, dtype)};
inline constexpr Parameter cache_append[] = {object("self", Type::kv_cache, Kind::changed_handle),
                                             {"k", Kind::input},
                                             {"v", Kind::input},
                                             {"layer", Kind::integer},
                                             {"sequences", Kind::indices, 4}};
inline constexpr Parameter cache_truncate[] = {object("self", Type::kv_cache, Kind::changed_handle),
                                               {"length", Kind::integer, required},
                                               {"sequence", Kind::integer}};
inline constexpr Parameter cache_read[] = {object("self", Type::kv_cache), {"layer", Kind::integer},
                                           {"sequence", Kind::integer},    {"first", Kind::integer},
                                           {"k", Kind::optional_output},   {"v", Kind::optional_output}};
#define HALYARD_ATTENTION_OPTIONS                                                                                      \
    HALYARD_FIELD(halyard_attention_options, scale), HALYARD_FIELD(halyard_attention_options, causal),                 \
        HALYARD_FIELD(halyard_attention_options, sliding_window), HALYARD_FIELD(halyard_attention_options, softcap),   \
        HALYARD_FIELD(halyard_attention_options, q_norm_weight),                                                       \
        HALYARD_FIELD(halyard_attention_options, k_norm_weight),                                                       \
        HALYARD_FIELD_AS("qk_norm_eps", halyard_attention_options, qk_norm_eps, 1e-6),                                 \
        HALYARD_FIELD_AS("eps_outside_root", halyard_attention_options, qk_norm_flags, HALYARD_RMS_EPS_OUTSIDE_ROOT),  \
        HALYARD_FIELD_AS("unit_offset", halyard_attention_options, qk_norm_flags, HALYARD_RMS_UNIT_OFFSET),            \
        HALYARD_FIELD(halyard_attention_options, rope), HALYARD_FIELD(halyard_attention_options, log_sum_exp)
inline constexpr Parameter attention[] = {{"q", Kind::input},        {"k", Kind::input},   {"v", Kind::input}, named,
                                          HALYARD_ATTENTION_OPTIONS, {"out", Kind::output}};
inline constexpr Parameter attention_cached[] = {{"q", Kind::input},
                                                 {"k", Kind::input},
                                                 {"v", Kind::input},
                                                 object("cache", Type::kv_cache, Kind::changed_handle),
                                                 {"layer", Kind::integer},
                                                 {"sequences", Kind::indices, 4},
                                                 named,
                                                 HALYARD_ATTENTION_OPTIONS,
                                                 {"out", Kind::output}};
#undef HALYARD_ATTENTION_OPTIONS

// ---- blocks, stacks and models ----

#define HALYARD_QUANTIZATION(options)                                                                                  \
    HALYARD_FIELD_AS("bits", options, quantization.bits, 0, Kind::small_integer),                                      \
        HALYARD_FIELD_AS("group", options, quantization.group, 0, Kind::small_integer),                                \
        HALYARD_FIELD_AS("asymmetric", options, quantization.asymmetric, 0),                                           \
        HALYARD_FIELD_AS("scale_dtype", options, quantization.scale_dtype, 1)
#define HALYARD_CONFIG(member) HALYARD_KEPT_FIELD(#member, BlockDescription, config.member, 0)
#define HALYARD_ROPE_CONFIG(member) HALYARD_KEPT_FIELD("rope_" #member, BlockDescription, config.rope.member, 0)
inline constexpr Parameter block_create[] = {
    {"preset", Kind::preset, 0, offsetof(BlockDescription, config)},
    {"weights", Kind::block_weights, 0, offsetof(BlockDescription, parts)},
    named,
    HALYARD_FIELD(BlockDescription, layout),
    HALYARD_QUANTIZATION(BlockDescription),
    HALYARD_CONFIG(hidden_size),
    HALYARD_CONFIG(intermediate_size),
    HALYARD_CONFIG(num_attention_heads),
    HALYARD_CONFIG(num_key_value_heads),
    HALYARD_CONFIG(head_dim),
    HALYARD_CONFIG(norm),
    HALYARD_CONFIG(norm_placement),
    HALYARD_CONFIG(rms_norm_eps),
    HALYARD_KEPT_FIELD("eps_outside_root", BlockDescription, config.norm_flags, HALYARD_RMS_EPS_OUTSIDE_ROOT),
    HALYARD_KEPT_FIELD("unit_offset", BlockDescription, config.norm_flags, HALYARD_RMS_UNIT_OFFSET),
    HALYARD_CONFIG(hidden_act),
    HALYARD_CONFIG(swish_beta),
    HALYARD_CONFIG(gated_mlp),
    HALYARD_CONFIG(causal),
    HALYARD_CONFIG(sliding_window),
    HALYARD_CONFIG(query_pre_attn_scalar),
    HALYARD_CONFIG(attn_logit_softcapping),
    HALYARD_KEPT_FIELD("rope_theta", BlockDescription, config.rope.rope_theta, 0),
    HALYARD_ROPE_CONFIG(head_dim),
    HALYARD_ROPE_CONFIG(rotary_dim),
    HALYARD_ROPE_CONFIG(max_positions),
    HALYARD_ROPE_CONFIG(interleaved),
    HALYARD_ROPE_CONFIG(scaling),
    HALYARD_ROPE_CONFIG(factor),
    HALYARD_ROPE_CONFIG(low_freq_factor),
    HALYARD_ROPE_CONFIG(high_freq_factor),
    HALYARD_ROPE_CONFIG(original_max_position_embeddings),
    HALYARD_CONFIG(max_position_embeddings)};
#undef HALYARD_CONFIG
#undef HALYARD_ROPE_CONFIG
inline constexpr Parameter cache_or_none = object("cache", Type::kv_cache, Kind::optional_changed_handle);
inline constexpr Parameter block_call[] = {
    object("self", Type::block),     {"x", Kind::input},   cache_or_none, {"layer", Kind::integer},
    {"sequences", Kind::indices, 3}, {"out", Kind::output}};
inline constexpr Parameter stack_create[] = {
    {"blocks", Kind::blocks, 0, offsetof(StackDescription, parts)},
    {"weights", Kind::stack_weights, 0, offsetof(StackDescription, parts)},
    named,
    HALYARD_FIELD_AS("vocab_size", StackDescription, config.vocab_size, required),
    HALYARD_FIELD_AS("hidden_size", StackDescription, config.hidden_size, required),
    HALYARD_FIELD_AS("embedding_multiplier", StackDescription, config.embedding_multiplier, 1),
    HALYARD_FIELD_AS("norm", StackDescription, config.norm, HALYARD_NORM_RMS),
    HALYARD_FIELD_AS("rms_norm_eps", StackDescription, config.rms_norm_eps, 1e-6),
    HALYARD_FIELD_AS("eps_outside_root", StackDescription, config.norm_flags, HALYARD_RMS_EPS_OUTSIDE_ROOT),
    HALYARD_FIELD_AS("unit_offset", StackDescription, config.norm_flags, HALYARD_RMS_UNIT_OFFSET),
    HALYARD_FIELD_AS("final_logit_softcapping", StackDescription, config.final_logit_softcapping, 0),
    HALYARD_FIELD_AS("embed_norm", StackDescription, config.embed_norm, 0),
    HALYARD_FIELD_AS("no_lm_head", StackDescription, config.no_lm_head, 0),
    HALYARD_QUANTIZATION(StackDescription)};
#define HALYARD_OF_IDS(type)                                                                                           \
    object("self", Type::type), {"input_ids", Kind::input}, cache_or_none, {"sequences", Kind::indices, 2}, named,     \
        HALYARD_FIELD(halyard_stack_options, token_types)
inline constexpr Parameter stack_forward[] = {
    HALYARD_OF_IDS(stack), HALYARD_FIELD(halyard_stack_options, all_logits), {"out", Kind::logits_output}};
inline constexpr Parameter stack_hidden_states[] = {HALYARD_OF_IDS(stack), {"out", Kind::hidden_output}};
#ifdef HALYARD_PYTHON_MODELS
inline constexpr Parameter model_load[] = {{"path", Kind::path},
                                           named,
                                           HALYARD_FIELD(LoadDescription, max_positions),
                                           HALYARD_KEPT_FIELD("dtype", LoadDescription, dtype, 0),
                                           HALYARD_QUANTIZATION(LoadDescription)};
inline constexpr Parameter model_forward[] = {
    HALYARD_OF_IDS(model), HALYARD_FIELD(halyard_stack_options, all_logits), {"out", Kind::logits_output}};
inline constexpr Parameter model_hidden_states[] = {HALYARD_OF_IDS(model), {"out", Kind::hidden_output}};
inline constexpr Parameter model_make_cache[] = {object("self", Type::model),
                                                 HALYARD_FIELD(CacheDescription, max_positions), named,
                                                 HALYARD_FIELD_AS("n_sequences", CacheDescription, n_sequences, 1),
                                                 HALYARD_KEPT_FIELD("dtype", CacheDescription, dtype, 0)};
inline constexpr Parameter model_stream[] = {object("self", Type::model, Kind::kept_handle),
                                             {"ids", Kind::ids, required},
                                             HALYARD_FIELD_AS("max_tokens", StreamDescription, max_tokens, required),
                                             named,
                                             HALYARD_FIELD(StreamDescription, temperature),
                                             HALYARD_FIELD(StreamDescription, top_k),
                                             HALYARD_FIELD_AS("top_p", StreamDescription, top_p, 1),
                                             HALYARD_FIELD(StreamDescription, seed),
                                             {"stop", Kind::ids}};
#endif
#undef HALYARD_OF_IDS
#undef HALYARD_QUANTIZATION

// ---- training: gradients that C may leave out are written where they are given; none is returned ----

#define HALYARD_SUMS(options)                                                                                          \
    HALYARD_FIELD_AS("sums", options, sums, 0, Kind::optional_input),                                                  \
        HALYARD_FIELD_AS("sums_up", options, sums_up, 0, Kind::optional_input)
#define HALYARD_GRADIENT(member) after<halyard_linear_options>(HALYARD_FIELD(halyard_linear_gradients, member))
inline constexpr Parameter linear_backward[] = {{"x", Kind::input},
                                                object("weights", Type::weights),
                                                {"dy", Kind::input},
                                                named,
                                                HALYARD_FIELD(halyard_linear_options, activation),
                                                HALYARD_FIELD_AS("beta", halyard_linear_options, beta, 1),
                                                HALYARD_SUMS(halyard_linear_options),
                                                HALYARD_GRADIENT(layout),
                                                HALYARD_GRADIENT(accumulate),
                                                HALYARD_GRADIENT(dx),
                                                HALYARD_GRADIENT(dweight),
                                                HALYARD_GRADIENT(dweight_up),
                                                HALYARD_GRADIENT(dbias),
                                                HALYARD_GRADIENT(dbias_up)};
#undef HALYARD_GRADIENT
#define HALYARD_GRADIENT(member) after<halyard_ffn_options>(HALYARD_FIELD(halyard_ffn_gradients, member))
inline constexpr Parameter ffn_backward[] = {
    {"x", Kind::input},
    object("up", Type::weights),
    object("down", Type::weights),
    {"dy", Kind::input},
    named,
    HALYARD_FIELD(halyard_ffn_options, activation),
    HALYARD_FIELD_AS("beta", halyard_ffn_options, beta, 1),
    HALYARD_FIELD(halyard_ffn_options, norm),
    HALYARD_FIELD(halyard_ffn_options, norm_weight),
    HALYARD_FIELD(halyard_ffn_options, norm_bias),
    HALYARD_FIELD_AS("eps", halyard_ffn_options, eps, 1e-6),
    HALYARD_FIELD_AS("eps_outside_root", halyard_ffn_options, norm_flags, HALYARD_RMS_EPS_OUTSIDE_ROOT),
    HALYARD_FIELD_AS("unit_offset", halyard_ffn_options, norm_flags, HALYARD_RMS_UNIT_OFFSET),
    HALYARD_FIELD(halyard_ffn_options, residual),
    HALYARD_SUMS(halyard_ffn_options),
    HALYARD_GRADIENT(layout),
    HALYARD_GRADIENT(accumulate),
    HALYARD_GRADIENT(dx),
    HALYARD_GRADIENT(dweight),
    HALYARD_GRADIENT(dweight_up),
    HALYARD_GRADIENT(dweight_down),
    HALYARD_GRADIENT(dbias),
    HALYARD_GRADIENT(dbias_up),
    HALYARD_GRADIENT(dbias_down),
    HALYARD_GRADIENT(dnorm_weight),
    HALYARD_GRADIENT(dnorm_bias)};
#undef HALYARD_GRADIENT
#undef HALYARD_SUMS
inline constexpr Parameter attention_backward[] = {{"q", Kind::input},
                                                   {"k", Kind::input},
                                                   {"v", Kind::input},
                                                   {"y", Kind::input},
                                                   {"log_sum_exp", Kind::input},
                                                   {"dy", Kind::input},
                                                   named,
                                                   HALYARD_FIELD(halyard_attention_options, scale),
                                                   HALYARD_FIELD(halyard_attention_options, causal),
                                                   HALYARD_FIELD(halyard_attention_options, sliding_window),
                                                   HALYARD_FIELD(halyard_attention_options, softcap),
                                                   {"dq", Kind::optional_output},
                                                   {"dk", Kind::optional_output},
                                                   {"dv", Kind::optional_output}};

// The int that says whether there is an ignore_index comes after it.
static_assert(offsetof(halyard_cross_entropy_options, has_ignore_index) ==
              offsetof(halyard_cross_entropy_options, ignore_index) + sizeof(int64_t));
inline constexpr Parameter ignore_index =
    HALYARD_FIELD_AS("ignore_index", halyard_cross_entropy_options, ignore_index, 0, Kind::optional_integer);
inline constexpr Parameter cross_entropy[] = {
    {"logits", Kind::input},
    {"targets", Kind::input},
    named,
    ignore_index,
    HALYARD_FIELD_AS("gradient_scale", halyard_cross_entropy_options, gradient_scale, 1),
    {"losses", Kind::rows_output},
    {"dlogits", Kind::optional_output}};
inline constexpr Parameter mean_loss[] = {
    {"losses", Kind::input},     {"targets", Kind::input},       named, ignore_index,
    {"mean", Kind::real_result}, {"count", Kind::integer_result}};
inline constexpr Parameter embedding_backward[] = {
    {"input_ids", Kind::input}, {"dy", Kind::input}, {"dtable", Kind::changed}, named, {"accumulate", Kind::boolean}};
inline constexpr Parameter gradient_norm[] = {{"gradients", Kind::input_list}, {"norm", Kind::real_result}};
inline constexpr Parameter sgd_step[] = {{"parameter", Kind::changed},
                                         {"gradient", Kind::input},
                                         {"momentum_buffer", Kind::optional_output},
                                         HALYARD_FIELD_AS("lr", halyard_sgd_options, lr, 1e-3),
                                         HALYARD_FIELD(halyard_sgd_options, momentum),
                                         HALYARD_FIELD(halyard_sgd_options, weight_decay),
                                         HALYARD_FIELD(halyard_sgd_options, nesterov),
                                         HALYARD_FIELD_AS("gradient_scale", halyard_sgd_options, gradient_scale, 1)};
inline constexpr Parameter adamw_step[] = {{"parameter", Kind::changed},
                                           {"gradient", Kind::input},
                                           {"first_moment", Kind::changed},
                                           {"second_moment", Kind::changed},
                                           {"step", Kind::integer, required},
                                           named,
                                           HALYARD_FIELD_AS("lr", halyard_adamw_options, lr, 1e-3),
                                           HALYARD_FIELD_AS("beta1", halyard_adamw_options, beta1, 0.9),
                                           HALYARD_FIELD_AS("beta2", halyard_adamw_options, beta2, 0.999),
                                           HALYARD_FIELD_AS("eps", halyard_adamw_options, eps, 1e-8),
                                           HALYARD_FIELD_AS("weight_decay", halyard_adamw_options, weight_decay, 1e-2),
                                           HALYARD_FIELD_AS("gradient_scale", halyard_adamw_options, gradient_scale, 1),
                                           HALYARD_FIELD_AS("decoupled", halyard_adamw_options, decoupled, 1)};

// ---- the functions, with the parameters above ----

#define HALYARD_FUNCTION(name, parameters, summary) describe(#name, call_with<halyard_##name>, parameters, summary)
#define HALYARD_CONSTRUCTOR(name, type, function, parameters, summary)                                                 \
    describe(name, call_with<function>, parameters, summary, Role::constructor, Type::type, Type::type)
#define HALYARD_MAKER(name, type, function, parameters, summary)                                                       \
    describe(name, call_with<function>, parameters, summary, Role::maker, Type::type, Type::type)
#define HALYARD_METHOD(name, type, function, parameters, summary)                                                      \
    describe(name, call_with<function>, parameters, summary, Role::method, Type::type)
#define HALYARD_UNARY(name, kind, summary)                                                                             \
    HALYARD_FUNCTION(name, kind, summary),                                                                             \
        HALYARD_FUNCTION(name##_derivative, kind, "The derivative of " #name "() at x."),                              \
        HALYARD_FUNCTION(name##_backward, kind##_backward, "dx = dy f'(x), the gradient of y = " #name "(x).")
#define HALYARD_GATED(name, kind, packed_kind, summary)                                                                \
    HALYARD_FUNCTION(name, kind, summary),                                                                             \
        HALYARD_FUNCTION(name##_packed, packed_kind, #name "() of gate and up in one array: [..., 2h] to [..., h]."),  \
        HALYARD_FUNCTION(name##_backward, kind##_backward, "The gradients of " #name "(): dgate and dup."),            \
        HALYARD_FUNCTION(name##_packed_backward, packed_kind##_backward, "The gradient of " #name "_packed().")

inline constexpr Function functions[] = {
    HALYARD_UNARY(relu, unary, "max(0, x)"),
    HALYARD_UNARY(relu2, unary, "max(0, x)^2"),
    HALYARD_UNARY(gelu, unary, "x/2 * erfc(-x / sqrt(2)), exact GELU"),
    HALYARD_UNARY(gelu_tanh, unary, "x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))"),
    HALYARD_UNARY(gelu_sigmoid, unary, "x * sigmoid(1.702 x)"),
    HALYARD_UNARY(silu, unary, "x * sigmoid(x)"),
    HALYARD_UNARY(swish, unary_beta, "x * sigmoid(beta * x)"),
    HALYARD_UNARY(sigmoid, unary, "1 / (1 + exp(-x))"),
    HALYARD_UNARY(tanh, unary, "tanh(x)"),
    HALYARD_UNARY(exp, unary, "exp(x)"),
    HALYARD_GATED(glu, gated, packed, "sigmoid(gate) * up"),
    HALYARD_GATED(bilinear, gated, packed, "gate * up"),
    HALYARD_GATED(reglu, gated, packed, "max(0, gate) * up"),
    HALYARD_GATED(geglu, gated, packed, "gelu(gate) * up"),
    HALYARD_GATED(geglu_tanh, gated, packed, "gelu_tanh(gate) * up"),
    HALYARD_GATED(swiglu, gated_beta, packed_beta, "swish(gate, beta) * up"),
    HALYARD_FUNCTION(add, binary, "a + b"),
    HALYARD_FUNCTION(cast, cast, "x rounded to another dtype: that of out, or of a new array. Either is given."),
    HALYARD_FUNCTION(softmax, softmax, "exp(scale * (x - m)) / sum(exp(scale * (x - m))) over each row"),
    HALYARD_FUNCTION(softmax_backward, softmax_backward,
                     "scale * y * (dy - sum(y * dy)), the gradient of y = softmax(x)"),
    HALYARD_FUNCTION(layer_norm, layer_norm, "weight * (x - mean) / sqrt(var + eps) + bias over each row"),
    HALYARD_FUNCTION(rms_norm, rms_norm, "weight * x / sqrt(mean(x^2) + eps) over each row"),
    HALYARD_FUNCTION(partial_rms_norm, partial_rms_norm,
                     "rms_norm() with the mean over the first ceil(p * d) features"),
    HALYARD_FUNCTION(add_layer_norm, add_layer_norm, "residual_out = x + residual and layer_norm() of it: both"),
    HALYARD_FUNCTION(add_rms_norm, add_rms_norm, "residual_out = x + residual and rms_norm() of it: both"),
    HALYARD_FUNCTION(layer_norm_backward, layer_norm_backward,
                     "dx of layer_norm(); dweight and dbias where they are given."),
    HALYARD_FUNCTION(rms_norm_backward, rms_norm_backward, "dx of rms_norm(); dweight where it is given."),
    HALYARD_FUNCTION(partial_rms_norm_backward, partial_rms_norm_backward,
                     "dx of partial_rms_norm(); dweight where it is given."),
    HALYARD_FUNCTION(linear, linear,
                     "residual + activation(x W + bias); of gated weights residual + activation(gate) * up"),
    HALYARD_FUNCTION(ffn, ffn, "[x +] (activation(N(x) up + bias) [* (N(x) V + bias_up)]) down + bias_down"),
    HALYARD_FUNCTION(attention, attention, "softmax(scale q k^T + mask) v, head by head"),
    HALYARD_FUNCTION(attention_cached, attention_cached,
                     "Appends k and v to a layer of the cache and attends to all that it holds of each sequence."),
    HALYARD_FUNCTION(
        linear_backward, linear_backward,
        "The gradients of linear(), each where it is given; of gated weights dweight and dbias are the gate's."),
    HALYARD_FUNCTION(
        ffn_backward, ffn_backward,
        "The gradients of ffn(), each where it is given; of gated weights dweight and dbias are the gate's."),
    HALYARD_FUNCTION(attention_backward, attention_backward, "The gradients of attention(), each where it is given."),
    HALYARD_FUNCTION(
        cross_entropy, cross_entropy,
        "-log(softmax(logits)[target]) of each row; its gradient where dlogits is given, which may be logits."),
    HALYARD_FUNCTION(mean_loss, mean_loss, "The mean of the losses that count, summed in float64, and their number."),
    HALYARD_FUNCTION(embedding_backward, embedding_backward,
                     "Adds the rows of dy to those of their ids in dtable, which begins with zeros or what is there."),
    HALYARD_FUNCTION(gradient_norm, gradient_norm, "The root of the sum of the squares of all elements."),
    HALYARD_FUNCTION(sgd_step, sgd_step, "A step of torch.optim.SGD, in place; a momentum needs its buffer."),
    HALYARD_FUNCTION(adamw_step, adamw_step,
                     "A step, counted from 1, of torch.optim.AdamW, in place; of Adam where it is not decoupled."),
    HALYARD_CONSTRUCTOR("Weights", weights, pack_weights, weights_pack,
                        "A matrix [outputs, inputs] as linear layers read it; with a gate they compute both."),
    HALYARD_MAKER("Weights.from_codes", weights, pack_codes, weights_codes,
                  "Packs a matrix that is quantized already, in the format of a file."),
    HALYARD_METHOD("Weights.update", weights, update_weights, weights_update,
                   "Packs another matrix into the memory of these weights, which no call may use meanwhile."),
    HALYARD_CONSTRUCTOR("Rope", rope, halyard_rope_create, rope_create,
                        "The cosines and sines of positions, by which features are rotated."),
    HALYARD_METHOD("Rope.apply", rope, halyard_rope_apply, rope_apply,
                   "x with each head's features rotated by the angles of its position, an int32 or int64."),
    HALYARD_METHOD("Rope.apply_backward", rope, halyard_rope_apply_backward, rope_apply_backward,
                   "The gradient of apply(): dy rotated by the negative angles."),
    HALYARD_CONSTRUCTOR("KVCache", kv_cache, create_cache, cache_create,
                        "An empty cache of keys and values, whose memory is taken as it fills."),
    HALYARD_METHOD("KVCache.append", kv_cache, halyard_kv_cache_append, cache_append,
                   "Stores more keys and values [(batch,) T, n_kv_heads, head_dim] in a layer."),
    HALYARD_METHOD("KVCache.truncate", kv_cache, truncate_cache, cache_truncate,
                   "Forgets what lies at and after a position of a sequence, in every layer."),
    HALYARD_METHOD("KVCache.read", kv_cache, halyard_kv_cache_read, cache_read,
                   "Copies positions from the first on into k and v, [T, n_kv_heads, head_dim]."),
    HALYARD_CONSTRUCTOR("Block", block, create_block, block_create,
                        "Attention and a feed-forward network. A field that is None is that of the preset, or 0."),
    HALYARD_METHOD("Block.__call__", block, halyard_block_forward, block_call,
                   "The block of x, [(batch,) T, hidden_size]; with a cache, after the tokens in its layer."),
    HALYARD_CONSTRUCTOR("Stack", stack, create_stack, stack_create,
                        "Token embedding, blocks, a last norm and the output projection."),
    HALYARD_METHOD("Stack.forward", stack, halyard_stack_forward, stack_forward,
                   "Logits of ids, [(batch,) T]: of each sequence's last token, or of all; in f32 if out is new."),
    HALYARD_METHOD("Stack.hidden_states", stack, halyard_stack_hidden_states, stack_hidden_states,
                   "What comes out of the last norm for every token; in f32 if out is new."),
#ifdef HALYARD_PYTHON_MODELS
    HALYARD_MAKER("Model.load", model, load_model, model_load,
                  "A model in the files of transformers or of GGUF, which must not be changed while it is in use."),
    HALYARD_METHOD("Model.forward", model, forward_model, model_forward,
                   "Logits of ids, [(batch,) T]: of each sequence's last token, or of all; in f32 if out is new."),
    HALYARD_METHOD("Model.hidden_states", model, model_hidden, model_hidden_states,
                   "What comes out of the last norm for every token; in f32 if out is new."),
    describe("Model.make_cache", call_with<make_model_cache>, model_make_cache,
             "An empty cache for this model. Zero positions are all that it has, and no dtype is the embedding's.",
             Role::method, Type::model, Type::kv_cache),
    describe(
        "Model.stream", call_with<open_stream>, model_stream,
        "The ids after a prompt, as they come. It ends after one of `stop`, None being the model's own end tokens.",
        Role::method, Type::model, Type::token_stream),
#endif
};
inline constexpr int function_count = sizeof functions / sizeof *functions;

#undef HALYARD_FUNCTION
#undef HALYARD_CONSTRUCTOR
#undef HALYARD_MAKER
#undef HALYARD_METHOD
#undef HALYARD_UNARY
#undef HALYARD_GATED

}  // namespace halyard::python

#endif
