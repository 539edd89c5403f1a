// The references of blocks and stacks.
//
// Bounds that hold for the worst case multiply at each product by the sums of its weights' magnitudes: after a block
// they would allow a thousand times the errors that there are, and hide a value that was rounded to 16 bits on the way.
// So every value is carried with a variance: each rounding is taken for a random error, independent of the others, with
// mean 0 (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). Its standard deviation is
// taken to be the largest error there can be, u = 2^-24 of the result in f32, which is at least 1.7 times what it is.
// An error of a value goes on with the derivative of what is made of it. A result may be six such standard deviations
// off; that is more than ten true ones. How the variances add up:
//
// Products of K inputs: those of the inputs times the squared weights, and u^2 times the square of each product and of
// each sum on the way, in the promised order.
// Norms: y = w x s, s the scale. The squares' mean changes s, ds/s = g d(mean square), by all features; this and the
// feature's own change count separately. What the norm's own arithmetic adds is taken from reference.cpp.
// Activations: their slope, and their error of the accuracy table.
// Rotary embedding: cosines and sines are rounded, then two products and a sum.
// Attention: a score is a product over head_dim inputs, a product with the scale, and perhaps a soft cap. Its error,
// that of score - maximum, exp's 2 ULP (4 u), and for each block of 512 keys the factors exp(m_old - m_new) with the
// products and sums of the merge make the relative error d_j of a weight p_j. y = sum p_j v_j / sum p_j then changes by
// sum p_j (v_j - y) d_j / sum p_j. Which maximum is subtracted is of no consequence, as it cancels in the quotient.
// Keys and values that a cache stores in 16 bits are off by half a spacing of their type. So is what lies between the
// products of a block on a device in 16 bits; the biases of projections are rounded to that type before anything is computed.
#include "reference_block.h"

#include <algorithm>
#include <cmath>

namespace halyard::operations {
namespace {

constexpr double deviations = 6;
constexpr double unit = 0x1p-24;
constexpr double underflow = 0x1p-149;
constexpr std::size_t block_length = 512;  // of inputs of a product, and of keys

double square(double x) {
    return x * x;
}

/** A value, and the variance of what f32 arithmetic makes of it. */
struct Estimate {
    double value, variance;
};
using EstimateRow = std::vector<Estimate>;
using Estimates = std::vector<EstimateRow>;

// ---- One f32 operation -------------------------------------------------------------------------------------------

Estimate rounded(double value, double variance) {
    return {value, variance + square(unit * value) + square(underflow)};
}

Estimate sum_of(const Estimate &a, const Estimate &b) {
    return rounded(a.value + b.value, a.variance + b.variance);
}

Estimate product_of(const Estimate &a, const Estimate &b) {
    return rounded(a.value * b.value,
                   square(a.value) * b.variance + square(b.value) * a.variance + a.variance * b.variance);
}

Estimate exactly(double value) {
    return {value, 0};
}

/** A constant that f32 holds rounded. */
Estimate constant(double value) {
    return rounded(value, 0);
}

/** What memory of a type makes of a value. */
Estimate stored_as(Dtype type, const Estimate &value) {
    return type == Dtype::f32 ? value : Estimate{value.value, value.variance + square(spacing(type, value.value) / 2)};
}

Estimates stored_as(Dtype type, const Estimates &values) {
    Estimates result = values;
    for (EstimateRow &row : result) {
        for (Estimate &each : row) {
            each = stored_as(type, each);
        }
    }
    return result;
}

Estimates sums_of(const Estimates &a, const Estimates &b) {
    Estimates result = a;
    for (std::size_t row = 0; row < a.size(); row++) {
        for (std::size_t i = 0; i < a[row].size(); i++) {
            result[row][i] = sum_of(a[row][i], b[row][i]);
        }
    }
    return result;
}

Estimate activated(halyard_activation which, double beta, const Estimate &x) {
    const LayerActivation &activation = layer_activation(which);
    if (which == HALYARD_IDENTITY) {
        return x;
    }
    const double scale = which == HALYARD_SWISH ? beta : 1.0;
    const double value = activation.at(x.value, beta);
    const double slope = which == HALYARD_RELU ? 1.0 : activation.slope(x.value, beta);
    const double own = ErrorModel(activation.function).allowed(scale * x.value, value, Dtype::f32);
    return {value, square(slope) * x.variance + square(own)};
}

/** softcap * tanh(value / softcap) */
Estimate softcapped(const Estimate &value, double softcap) {
    const Estimate quotient = product_of(value, constant(1 / softcap));
    return product_of(activated(HALYARD_TANH, 0, quotient), exactly(softcap));
}

// ---- Products ----------------------------------------------------------------------------------------------------

/** A row times `count` columns, [in][count]. */
void append_products(const EstimateRow &x, const double *columns, std::size_t count, EstimateRow &products) {
    Row variance(count, 0.0), sum(count, 0.0), total(count, 0.0);
    for (std::size_t k = 0; k < x.size(); k++) {
        const double *const weights = columns + k * count;
        const bool last = (k + 1) % block_length == 0 || k + 1 == x.size();
        for (std::size_t n = 0; n < count; n++) {
            const double term = x[k].value * weights[n];
            sum[n] += term;
            variance[n] += square(weights[n]) * x[k].variance + square(unit) * (square(term) + square(sum[n]));
            if (last) {
                total[n] += sum[n];
                sum[n] = 0;
                variance[n] += square(unit * total[n]);
            }
        }
    }
    for (std::size_t n = 0; n < count; n++) {
        products.push_back({total[n], variance[n] + square(underflow)});
    }
}

Estimates product_of(const Estimates &x, const WeightMatrix &matrix, const Row &bias) {
    constexpr std::int64_t some = 256;
    const std::int64_t at_once = matrix.columns ? some : matrix.out;
    Estimates result(x.size());
    for (std::int64_t first = 0; first < matrix.out; first += at_once) {
        const std::int64_t count = std::min(at_once, matrix.out - first);
        const Row columns = matrix.columns ? matrix.columns(first, count) : Row();
        for (std::size_t row = 0; row < x.size(); row++) {
            append_products(x[row], matrix.columns ? columns.data() : matrix.values.data(),
                            static_cast<std::size_t>(count), result[row]);
        }
    }
    for (EstimateRow &row : result) {
        for (std::size_t n = 0; n < bias.size(); n++) {
            row[n] = sum_of(row[n], exactly(bias[n]));
        }
    }
    return result;
}

// ---- Norms -------------------------------------------------------------------------------------------------------

struct NormOf {
    halyard_norm kind;
    double eps;
    unsigned flags;
};

EstimateRow normalized(const EstimateRow &x, const NormOf &norm, const NormValues &values) {
    if (norm.kind == HALYARD_NORM_NONE) {
        return x;
    }
    const bool centred = norm.kind == HALYARD_NORM_LAYER;
    NormParameters parameters;
    parameters.eps = norm.eps;
    parameters.eps_outside_root = !centred && (norm.flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0;
    parameters.unit_offset = !centred && (norm.flags & HALYARD_RMS_UNIT_OFFSET) != 0;
    parameters.weight = values.weight.empty() ? nullptr : &values.weight;
    parameters.bias = values.bias.empty() ? nullptr : &values.bias;
    const double width = static_cast<double>(x.size());
    Row exact;
    double mean = 0, mean_variance = 0;
    for (const Estimate &each : x) {
        exact.push_back(each.value);
        mean += centred ? each.value / width : 0;
        mean_variance += centred ? each.variance / square(width) : 0;
    }
    double mean_square = 0, mean_square_variance = 0;
    for (const Estimate &each : x) {
        mean_square += square(each.value - mean) / width;
        mean_square_variance += square(2 * (each.value - mean) / width) * (each.variance + mean_variance);
    }
    const double root = std::sqrt(mean_square);
    const double scale = 1 / (parameters.eps_outside_root ? root + norm.eps : std::sqrt(mean_square + norm.eps));
    const double by_mean_square = scale * (parameters.eps_outside_root ? 1 / (2 * root) : scale / 2);
    const double scale_variance = square(by_mean_square) * mean_square_variance;

    const ExpectedRow own = centred ? layer_norm(exact, parameters) : rms_norm(exact, parameters);
    EstimateRow result;
    for (std::size_t i = 0; i < x.size(); i++) {
        const double weight = values.weight.empty() ? 1.0 : values.weight[i] + (parameters.unit_offset ? 1.0 : 0.0);
        const double carried = (x[i].variance + mean_variance) + square(exact[i] - mean) * scale_variance;
        result.push_back({own[i].value, square(weight * scale) * carried + square(own[i].error)});
    }
    return result;
}

Estimates normalized(const Estimates &x, const NormOf &norm, const NormValues &values) {
    Estimates result;
    for (const EstimateRow &row : x) {
        result.push_back(normalized(row, norm, values));
    }
    return result;
}

// ---- Attention ---------------------------------------------------------------------------------------------------

/** By token and head. */
using HeadEstimates = std::vector<Estimates>;

/** Keys and values that a token at `position` sees some of. */
struct Sight {
    std::int64_t position, count;
    std::function<EstimateRow(std::int64_t position, std::size_t head)> key, value;
};

/** The tokens of a call. */
struct Tokens {
    std::vector<std::int64_t> positions;
    /** For each, when the keys and values of all of them are known. */
    std::function<Sight(std::size_t token, const HeadEstimates &keys, const HeadEstimates &values)> sight;
};

/** A pair's angle per position. */
double frequency_of(const halyard_rope_options &rope, std::int64_t rotary_dim, std::int64_t pair) {
    const double frequency =
        std::pow(rope.rope_theta, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
    if (rope.scaling == HALYARD_ROPE_LINEAR) {
        return frequency / rope.factor;
    }
    if (rope.scaling == HALYARD_ROPE_LLAMA3) {
        const double length = static_cast<double>(rope.original_max_position_embeddings);
        const double wavelength = 2 * std::acos(-1.0) / frequency;
        if (wavelength < length / rope.high_freq_factor) {
            return frequency;
        }
        if (wavelength > length / rope.low_freq_factor) {
            return frequency / rope.factor;
        }
        const double smooth =
            (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        return (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
    return frequency;
}

void rotate(EstimateRow &head, const halyard_rope_options &rope, std::int64_t position) {
    const std::int64_t rotary_dim = rope.rotary_dim != 0 ? rope.rotary_dim : static_cast<std::int64_t>(head.size());
    for (std::int64_t pair = 0; pair < rotary_dim / 2; pair++) {
        const double angle = static_cast<double>(position) * frequency_of(rope, rotary_dim, pair);
        const Estimate cosine = constant(std::cos(angle)), sine = constant(std::sin(angle));
        Estimate &a = head[static_cast<std::size_t>(rope.interleaved != 0 ? 2 * pair : pair)];
        Estimate &b = head[static_cast<std::size_t>(rope.interleaved != 0 ? 2 * pair + 1 : pair + rotary_dim / 2)];
        const Estimate turned = sum_of(product_of(a, cosine), product_of(b, {-sine.value, sine.variance}));
        b = sum_of(product_of(b, cosine), product_of(a, sine));
        a = turned;
    }
}

/** q, k or v after norm and, with positions, rotation, as far as there are such. */
HeadEstimates project_heads(const BlockValues &values, const Estimates &x, const WeightMatrix &matrix, const Row &bias,
                            const Row &head_norm, const std::vector<std::int64_t> *positions, const Rounding &rounding,
                            Dtype stored) {
    const halyard_block_config &c = values.config;
    HeadEstimates result;
    for (const EstimateRow &row : stored_as(rounding.between, product_of(x, matrix, bias))) {
        const std::size_t token = result.size();
        result.emplace_back();
        for (auto at = row.begin(); at != row.end(); at += values.head_dim()) {
            EstimateRow head(at, at + values.head_dim());
            if (!head_norm.empty()) {
                head = normalized(head, {HALYARD_NORM_RMS, static_cast<double>(c.rms_norm_eps), c.norm_flags},
                                  {head_norm, {}});
            }
            if (positions != nullptr && c.rope.rope_theta != 0) {
                rotate(head, c.rope, (*positions)[token]);
            }
            for (Estimate &each : head) {
                each = stored_as(stored, each);
            }
            result.back().push_back(std::move(head));
        }
    }
    return result;
}

Estimate score_of(const BlockValues &values, const EstimateRow &q, const EstimateRow &k) {
    const halyard_block_config &c = values.config;
    double sum = 0, variance = 0;
    for (std::size_t i = 0; i < q.size(); i++) {
        const Estimate term = product_of(q[i], k[i]);
        sum += term.value;
        variance += term.variance + square(unit * sum);
    }
    const double divisor =
        c.query_pre_attn_scalar != 0 ? static_cast<double>(c.query_pre_attn_scalar) : static_cast<double>(q.size());
    const Estimate score = product_of({sum, variance}, constant(1 / std::sqrt(divisor)));
    const auto softcap = static_cast<double>(c.attn_logit_softcapping);
    return softcap != 0 ? softcapped(score, softcap) : score;
}

/** Whether the query at one position sees the key at another. */
bool sees(const halyard_block_config &c, std::int64_t query, std::int64_t key) {
    const std::int64_t window = c.sliding_window;
    return (c.causal == 0 || key <= query) &&
           (window == 0 || (key > query - window && (c.causal != 0 || key < query + window)));
}

/** One head of a query; `head`: of keys and values. */
EstimateRow attended(const BlockValues &block, const EstimateRow &q, const Sight &sight, std::size_t head,
                     Dtype products) {
    Estimates seen;  // values
    EstimateRow scores;
    double largest = -INFINITY, least = INFINITY;
    for (std::int64_t position = 0; position < sight.count; position++) {
        if (sees(block.config, sight.position, position)) {
            seen.push_back(sight.value(position, head));
            scores.push_back(score_of(block, q, sight.key(position, head)));
            largest = std::max(largest, scores.back().value);
            least = std::min(least, scores.back().value);
        }
    }
    const double blocks =
        static_cast<double>((static_cast<std::size_t>(sight.count) + block_length - 1) / block_length);
    const double of_merges = blocks * (square(4 * unit) + square((largest - least) * unit) + 2 * square(unit));
    Row weights;
    double total = 0;
    for (const Estimate &score : scores) {
        weights.push_back(std::exp(score.value - largest));
        total += weights.back();
    }

    EstimateRow result;
    for (std::size_t i = 0; i < q.size(); i++) {
        double sum = 0, variance = 0;
        for (std::size_t n = 0; n < seen.size(); n++) {
            sum += weights[n] * seen[n][i].value;
            variance += square(unit * sum);
        }
        const double mean = sum / total;
        for (std::size_t n = 0; n < seen.size(); n++) {
            const Estimate &value = seen[n][i];
            const double relative =
                scores[n].variance + square((largest - scores[n].value) * unit) + square(4 * unit) + of_merges;
            variance += square(weights[n]) *
                            (square(value.value - mean) * relative + value.variance + square(unit * value.value)) +
                        square(underflow);
            // Rounded to be multiplied, after they were summed.
            variance += square(value.value) * stored_as(products, exactly(weights[n])).variance;
        }
        // The sum of the weights: 512 / 64 sums in a lane, 6 of lanes, and the merges.
        const double of_total = (14 + 2 * blocks) * square(unit);
        result.push_back(rounded(mean, variance / square(total) + square(mean) * of_total));
    }
    return result;
}

/** Before the sum with the residual or, without one, before it is stored. */
Estimates attention(const BlockValues &values, const Estimates &input, const Tokens &tokens, const Rounding &r) {
    const auto *turns = &tokens.positions;
    const Estimates x = stored_as(r.products, input);
    const Dtype heads = r.stored == r.products ? r.products : Dtype::f32;
    const HeadEstimates q = project_heads(values, x, values.q, values.q_bias, values.q_norm, turns, r, heads);
    const HeadEstimates k = project_heads(values, x, values.k, values.k_bias, values.k_norm, turns, r, r.stored);
    const HeadEstimates v = project_heads(values, x, values.v, values.v_bias, {}, nullptr, r, r.stored);
    const auto group = static_cast<std::size_t>(values.config.num_attention_heads / values.kv_heads());
    Estimates result;
    for (std::size_t token = 0; token < x.size(); token++) {
        const Sight sight = tokens.sight(token, k, v);
        result.emplace_back();
        for (std::size_t head = 0; head < q[token].size(); head++) {
            const EstimateRow one = attended(values, q[token][head], sight, head / group, heads);
            result.back().insert(result.back().end(), one.begin(), one.end());
        }
    }
    return product_of(stored_as(r.products, stored_as(r.between, result)), values.o, values.o_bias);
}

/** Whole sequences. */
Tokens sequence_of(std::size_t count) {
    Tokens tokens;
    for (std::size_t i = 0; i < count; i++) {
        tokens.positions.push_back(static_cast<std::int64_t>(i));
    }
    tokens.sight = [count](std::size_t token, const HeadEstimates &k, const HeadEstimates &v) {
        const auto in = [](const HeadEstimates &all) {
            return [&all](std::int64_t position, std::size_t head) {
                return all[static_cast<std::size_t>(position)][head];
            };
        };
        return Sight{static_cast<std::int64_t>(token), static_cast<std::int64_t>(count), in(k), in(v)};
    };
    return tokens;
}

EstimateRow exactly(const Row &row) {
    EstimateRow result;
    for (const double value : row) {
        result.push_back(exactly(value));
    }
    return result;
}

Estimates exactly(const std::vector<Row> &rows) {
    Estimates result;
    for (const Row &row : rows) {
        result.push_back(exactly(row));
    }
    return result;
}

/** Tokens of sequences whose earlier keys and values are given. */
Tokens late(const std::vector<LateToken> &given) {
    Tokens tokens;
    for (const LateToken &each : given) {
        tokens.positions.push_back(each.position);
    }
    tokens.sight = [&given](std::size_t token, const HeadEstimates &k, const HeadEstimates &v) {
        const std::int64_t own = given[token].position;
        const auto in = [=](const HeadEstimates &all, const HeadAt &before) {
            return [=, &all, &before](std::int64_t position, std::size_t head) {
                return position == own ? all[token][head] : exactly(before(position, static_cast<std::int64_t>(head)));
            };
        };
        return Sight{own, own + 1, in(k, given[token].keys), in(v, given[token].values)};
    };
    return tokens;
}

// ---- Blocks ------------------------------------------------------------------------------------------------------

/** What the feed-forward network makes of its input. */
Estimates feed_forward(const BlockValues &values, const Estimates &input, const Rounding &r) {
    const Estimates x = stored_as(r.products, input);
    const halyard_block_config &c = values.config;
    const auto beta = static_cast<double>(c.swish_beta);
    const bool gated = c.gated_mlp != 0;
    const auto biased = [&](const WeightMatrix &matrix, const Row &bias) {
        if (!gated || bias.empty() || r.between == Dtype::f32) {
            return stored_as(r.between, product_of(x, matrix, bias));
        }
        // Gate and up are one product, and get their biases where they are activated.
        Estimates sums = stored_as(r.between, product_of(x, matrix, {}));
        for (EstimateRow &row : sums) {
            for (std::size_t i = 0; i < row.size(); i++) {
                row[i] = sum_of(row[i], exactly(bias[i]));
            }
        }
        return sums;
    };
    const Estimates up = biased(values.up, values.up_bias);
    Estimates hidden = gated ? biased(values.gate, values.gate_bias) : up;
    for (std::size_t row = 0; row < hidden.size(); row++) {
        for (std::size_t i = 0; i < hidden[row].size(); i++) {
            Estimate &each = hidden[row][i];
            each = activated(c.hidden_act, beta, each);
            each = gated ? product_of(each, up[row][i]) : each;
        }
    }
    return product_of(stored_as(r.products, stored_as(r.between, hidden)), values.down, values.down_bias);
}

/** Before it is stored. */
Estimates run_block(const BlockValues &values, const Estimates &x, const Tokens &tokens, const Rounding &r) {
    const halyard_block_config &c = values.config;
    const NormOf norm = {c.norm, static_cast<double>(c.rms_norm_eps), c.norm_flags};
    const auto stored = [&](const Estimates &each) { return stored_as(r.between, each); };
    const auto stored_norm = [&](const Estimates &each, const NormValues &vectors) {
        return norm.kind == HALYARD_NORM_NONE ? each : stored(normalized(each, norm, vectors));
    };
    switch (c.norm_placement) {
    case HALYARD_PRE_NORM: {
        const Estimates a = attention(values, stored_norm(x, values.attention_norm), tokens, r);
        const Estimates sum = stored(sums_of(x, a));
        return sums_of(sum, feed_forward(values, stored_norm(sum, values.ffn_norm), r));
    }
    case HALYARD_POST_NORM: {
        const Estimates sum = stored_norm(stored(sums_of(x, attention(values, x, tokens, r))), values.attention_norm);
        return normalized(stored(sums_of(sum, feed_forward(values, sum, r))), norm, values.ffn_norm);
    }
    case HALYARD_POST_SUBLAYER_NORM: {
        const Estimates a = stored_norm(stored(attention(values, x, tokens, r)), values.attention_norm);
        const Estimates sum = stored(sums_of(x, a));
        return sums_of(sum, stored_norm(stored(feed_forward(values, sum, r)), values.ffn_norm));
    }
    case HALYARD_SANDWICH_NORM: {
        const Estimates a = stored(attention(values, stored_norm(x, values.attention_norm), tokens, r));
        const Estimates sum = stored(sums_of(x, stored_norm(a, values.attention_post_norm)));
        const Estimates f = stored(feed_forward(values, stored_norm(sum, values.ffn_norm), r));
        return sums_of(sum, stored_norm(f, values.ffn_post_norm));
    }
    case HALYARD_DOUBLE_NORM: {
        const Estimates a = attention(values, stored_norm(x, values.attention_norm), tokens, r);
        const Estimates sum = stored_norm(stored(sums_of(x, a)), values.attention_post_norm);
        const Estimates f = feed_forward(values, stored_norm(sum, values.ffn_norm), r);
        return normalized(stored(sums_of(sum, f)), norm, values.ffn_post_norm);
    }
    }
    return {};
}

Row rounded_to(Dtype type, Row row) {
    for (double &value : row) {
        value = round_to(type, value);
    }
    return row;
}

/** With the biases of its projections in a type, f32 being what they have anyway. */
BlockValues with_biases_in(Dtype type, const BlockValues &values) {
    BlockValues result = values;
    for (Row *const row : {&result.q_bias, &result.k_bias, &result.v_bias, &result.o_bias, &result.gate_bias,
                           &result.up_bias, &result.down_bias}) {
        *row = rounded_to(type, *row);
    }
    return result;
}

Matrix expected_of(const Estimates &estimates) {
    Matrix result;
    for (const EstimateRow &row : estimates) {
        result.emplace_back();
        for (const Estimate &each : row) {
            result.back().push_back({each.value, deviations * std::sqrt(each.variance)});
        }
    }
    return result;
}

}  // namespace

std::int64_t BlockValues::kv_heads() const {
    return config.num_key_value_heads != 0 ? config.num_key_value_heads : config.num_attention_heads;
}

std::int64_t BlockValues::head_dim() const {
    return config.head_dim != 0 ? config.head_dim : config.hidden_size / config.num_attention_heads;
}

Matrix block(const BlockValues &values, const std::vector<Row> &x, const Rounding &rounding) {
    return expected_of(
        run_block(with_biases_in(rounding.between, values), exactly(x), sequence_of(x.size()), rounding));
}

Matrix block_of_tokens(const BlockValues &values, const std::vector<LateToken> &tokens) {
    Estimates x;
    for (const LateToken &each : tokens) {
        x.push_back(exactly(each.x));
    }
    return expected_of(run_block(values, x, late(tokens), {}));
}

std::vector<KeyValue> keys_and_values(const BlockValues &values, const std::vector<Row> &x) {
    const halyard_block_config &c = values.config;
    const NormOf norm = {c.norm, static_cast<double>(c.rms_norm_eps), c.norm_flags};
    const Estimates inner = normalized(exactly(x), norm, values.attention_norm);
    const Matrix keys = expected_of(product_of(inner, values.k, values.k_bias));
    const Matrix made = expected_of(product_of(inner, values.v, values.v_bias));
    std::vector<KeyValue> result;
    for (std::size_t token = 0; token < x.size(); token++) {
        result.push_back({values_of(keys[token]), values_of(made[token])});
    }
    return result;
}

Row rotated(const BlockValues &values, const Row &head, std::int64_t position) {
    EstimateRow turned = exactly(head);
    if (values.config.rope.rope_theta != 0) {
        rotate(turned, values.config.rope, position);
    }
    return values_of(expected_of({turned}).front());
}

StackResult stack(const StackValues &values, const std::vector<std::int64_t> &input_ids, const Rounding &rounding,
                  const std::vector<std::int64_t> &token_types) {
    const halyard_stack_config &c = values.config;
    const auto eps = static_cast<double>(c.rms_norm_eps);
    const auto multiplier = static_cast<double>(c.embedding_multiplier);
    Estimates x;
    for (const std::int64_t id : input_ids) {
        const std::size_t position = x.size();
        x.emplace_back();
        for (const double value : values.embed_tokens[static_cast<std::size_t>(id)]) {
            Estimate each = exactly(value);
            each = multiplier != 0 && multiplier != 1 ? product_of(each, exactly(multiplier)) : each;
            if (!values.embed_positions.empty()) {
                each = sum_of(each, exactly(values.embed_positions[position][x.back().size()]));
            }
            if (!values.embed_types.empty()) {
                const std::size_t type = token_types.empty() ? 0 : static_cast<std::size_t>(token_types[position]);
                each = sum_of(each, exactly(values.embed_types[type][x.back().size()]));
            }
            x.back().push_back(each);
        }
    }
    if (c.embed_norm != HALYARD_NORM_NONE) {
        x = normalized(stored_as(rounding.between, x), {c.embed_norm, eps, c.norm_flags}, values.embed_norm);
    }
    StackResult result;
    result.hidden.push_back(expected_of(x));
    for (const BlockValues *each : values.blocks) {
        x = run_block(with_biases_in(rounding.between, *each), stored_as(rounding.between, x), sequence_of(x.size()),
                      rounding);
        result.hidden.push_back(expected_of(x));
    }
    x = normalized(stored_as(rounding.between, x), {c.norm, eps, c.norm_flags}, values.norm);
    result.hidden.push_back(expected_of(x));
    if (c.no_lm_head != 0) {
        return result;
    }
    Estimates logits = product_of(stored_as(rounding.products, stored_as(rounding.between, x)), values.lm_head, {});
    const auto softcap = static_cast<double>(c.final_logit_softcapping);
    for (EstimateRow &row : logits) {
        for (Estimate &logit : row) {
            logit = softcap != 0 ? softcapped(logit, softcap) : logit;
        }
    }
    result.logits = expected_of(logits);
    return result;
}

}  // namespace halyard::operations
