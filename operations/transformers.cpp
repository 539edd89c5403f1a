// See transformers.h.
#include "transformers.h"

#include "operations.h"
#include "quantized.h"

namespace halyard::operations {

double Span::seen(bool causal) const {
    const double hidden = causal ? static_cast<double>(queries - 1) / 2 : 0;
    return static_cast<double>(rows()) * (static_cast<double>(positions) - hidden);
}

Cost attention_cost(const HeadShape &heads, const Span &span, Dtype type, bool causal) {
    Cost cost;
    cost.flops = 4 * span.seen(causal) * static_cast<double>(heads.query_width());
    cost.cache_bytes = static_cast<std::size_t>(2 * span.sequences * span.positions * heads.kv_width()) * size_of(type);
    cost.bytes = cost.cache_bytes + static_cast<std::size_t>(2 * span.rows() * heads.query_width()) * size_of(type);
    return cost;
}

halyard_status call_attention(const halyard_context *context, const DLTensor &q, const DLTensor &k, const DLTensor &v,
                              halyard_kv_cache *cache, float softcap, DLTensor &y) {
    halyard_attention_options options{};
    options.causal = 1;
    options.softcap = softcap;
    return cache == nullptr ? halyard_attention(context, &q, &k, &v, &options, &y)
                            : halyard_attention_cached(context, &q, &k, &v, cache, 0, nullptr, &options, &y);
}

Row attend(const HeadShape &shape, const Row &q, std::int64_t count, const RowAt &keys, const RowAt &values,
           double softcap) {
    const auto part = [&](const Row &row, std::int64_t head) {
        const auto begin = row.begin() + head * shape.head_dim;
        return Row(begin, begin + shape.head_dim);
    };
    // By head of keys and values.
    std::vector<std::vector<Row>> key_rows(static_cast<std::size_t>(shape.kv_heads)), value_rows = key_rows;
    for (std::int64_t position = 0; position < count; position++) {
        const Row key = keys(position), value = values(position);
        for (std::int64_t head = 0; head < shape.kv_heads; head++) {
            key_rows[static_cast<std::size_t>(head)].push_back(part(key, head));
            value_rows[static_cast<std::size_t>(head)].push_back(part(value, head));
        }
    }
    AttentionRule rule;  // all of these positions are seen
    rule.softcap = softcap;
    const std::int64_t group = shape.heads / shape.kv_heads;
    Row y;
    for (std::size_t head = 0; head < key_rows.size(); head++) {
        std::vector<Row> queries;
        for (std::int64_t i = 0; i < group; i++) {
            queries.push_back(part(q, static_cast<std::int64_t>(head) * group + i));
        }
        for (const ExpectedRow &row :
             attention(exact_rows(queries), exact_rows(key_rows[head]), exact_rows(value_rows[head]), 0, rule)) {
            const Row exact = values_of(row);
            y.insert(y.end(), exact.begin(), exact.end());
        }
    }
    return y;
}

Cost BlockForm::cost(const Span &span, Dtype type) const {
    const Cost attention = attention_cost(heads, span, type, causal);
    const double products = 2 * static_cast<double>(span.rows()) * static_cast<double>(block_elements());
    Cost cost;
    cost.flops = static_cast<double>(layers) * (attention.flops + products) +
                 2 * static_cast<double>(span.sequences * vocabulary * d);
    const double element = element_bytes != 0       ? element_bytes
                           : quantization.bits != 0 ? bytes_of_weight(quantization, d)
                                                    : static_cast<double>(size_of(type));
    cost.weight_bytes =
        static_cast<std::size_t>(static_cast<double>(layers * block_elements() + vocabulary * d) * element);
    cost.cache_bytes = static_cast<std::size_t>(layers) * attention.cache_bytes;
    cost.bytes = cost.weight_bytes + cost.cache_bytes + static_cast<std::size_t>(2 * span.rows() * d) * size_of(type);
    return cost;
}

float BlockForm::eps() const {
    return norm == HALYARD_NORM_RMS ? rms_norm_eps : layer_norm_eps;
}

halyard_status BlockForm::config(std::int64_t max_positions, halyard_block_config &result) const {
    result = {};
    const halyard_status status = halyard_block_config_preset(preset, &result);
    result.hidden_size = d;
    result.intermediate_size = d_ff;
    result.num_attention_heads = heads.heads;
    result.num_key_value_heads = heads.kv_heads;
    result.head_dim = heads.head_dim;
    result.norm = norm;
    result.rms_norm_eps = eps();
    result.hidden_act = activation;
    result.gated_mlp = gated ? 1 : 0;
    result.causal = causal ? 1 : 0;
    result.rope.rope_theta = rope_theta;
    result.max_position_embeddings = max_positions;
    return status;
}

}  // namespace halyard::operations
