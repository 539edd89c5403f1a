// See reference_gradients.h. Error terms are as in reference.cpp.
#include "reference_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formulas.h"

namespace halyard::operations {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unit = 0x1p-24;        // relative error of one f32 operation
constexpr double underflow = 0x1p-149;  // absolute error of one f32 operation with a denormal result, and a bit more

/** A sum of terms over 64 or 32 lanes, each term within its error of its value. */
Expected sum_of(const ExpectedRow &terms) {
    Expected sum{};
    double magnitude = 0;
    for (const Expected &term : terms) {
        sum.value += term.value;
        sum.error += term.error;
        magnitude += std::fabs(term.value);
    }
    const double chain = std::ceil(static_cast<double>(terms.size()) / 32) + 5;
    sum.error += chain * unit * (magnitude + sum.error);
    // What leaves f32's range on the way may be anything.
    return std::isfinite(magnitude) && magnitude > 0x1p127 ? Expected{sum.value, infinity} : sum;
}

/** A rounded product; beyond f32's range anything may become of it. */
Expected product(const Expected &a, const Expected &b) {
    const double value = a.value * b.value;
    if (std::isinf(a.error) || std::isinf(b.error)) {
        return {value, infinity};
    }
    const double error = std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
    if (std::isfinite(value) && std::isinf(round_to(Dtype::f32, std::fabs(value) + error))) {
        return {value, infinity};
    }
    return {value, error + unit * (std::fabs(value) + error) + underflow};
}

Expected difference(const Expected &a, const Expected &b) {
    const double value = a.value - b.value, error = a.error + b.error;
    return {value, error + unit * (std::fabs(value) + error)};
}

Expected exactly(double value) {
    return {value, 0};
}

/** dy times the weight. */
ExpectedRow weighted_row(const Row &dy, const NormParameters &parameters) {
    ExpectedRow g;
    for (std::size_t i = 0; i < dy.size(); i++) {
        if (parameters.weight == nullptr) {
            g.push_back(exactly(dy[i]));
        } else {
            const double weight = (*parameters.weight)[i];
            g.push_back(product(exactly(dy[i]),
                                parameters.unit_offset ? difference(exactly(weight), exactly(-1)) : exactly(weight)));
        }
    }
    return g;
}

ExpectedRow products(const ExpectedRow &a, const ExpectedRow &b) {
    ExpectedRow row;
    for (std::size_t i = 0; i < a.size(); i++) {
        row.push_back(product(a[i], b[i]));
    }
    return row;
}

ExpectedRow exact_row(const Row &values) {
    ExpectedRow row;
    row.reserve(values.size());
    for (const double value : values) {
        row.push_back(exactly(value));
    }
    return row;
}

Expected mean(const ExpectedRow &terms, std::size_t count) {
    return product(sum_of(terms), {1.0 / static_cast<double>(count), unit / static_cast<double>(count)});
}

/** (g - shift - n slope) scale, the slope for the first `counted` features. */
NormGradient gradient(const ExpectedRow &g, const ExpectedRow &n, const Row &dy, const Expected &shift,
                      const Expected &slope, const Expected &scale, std::size_t counted) {
    NormGradient result{{}, products(exact_row(dy), n)};
    for (std::size_t i = 0; i < g.size(); i++) {
        const Expected centred = difference(g[i], shift);
        result.dx.push_back(product(i < counted ? difference(centred, product(n[i], slope)) : centred, scale));
    }
    // Beyond f32's range on the way to a number within it: a term is infinite or nothing, as its scale is.
    if (std::isinf(scale.error) || std::isinf(slope.error) || std::isinf(shift.error)) {
        for (ExpectedRow *row : {&result.dx, &result.weight_terms}) {
            for (Expected &each : *row) {
                each.error = infinity;
            }
        }
    }
    return result;
}

}  // namespace

NormGradient layer_norm_gradient(const Row &x, const Row &dy, const NormParameters &parameters) {
    NormParameters plain;
    plain.eps = parameters.eps;
    const ExpectedRow g = weighted_row(dy, parameters), n = layer_norm(x, plain);
    return gradient(g, n, dy, mean(g, x.size()), mean(products(g, n), x.size()), layer_moments(x, parameters.eps).scale,
                    x.size());
}

NormGradient rms_norm_gradient(const Row &x, const Row &dy, const NormParameters &parameters) {
    NormParameters plain = parameters;
    plain.weight = nullptr;
    const auto counted = static_cast<std::size_t>(std::ceil(parameters.p * static_cast<double>(x.size())));
    const ExpectedRow g = weighted_row(dy, parameters), n = rms_norm(x, plain);
    NormParameters root = plain;  // its scale is the root's inverse
    root.eps = parameters.eps_outside_root ? 0 : parameters.eps;
    root.eps_outside_root = false;
    const Expected slope = product(mean(products(g, exact_row(x)), counted), rms_scale(x, root));
    return gradient(g, n, dy, exactly(0), slope, rms_scale(x, plain), counted);
}

ExpectedRow softmax_gradient(const Row &y, const Row &dy, double scale) {
    const Expected sum = sum_of(products(exact_row(y), exact_row(dy)));
    ExpectedRow dx;
    for (std::size_t i = 0; i < y.size(); i++) {
        dx.push_back(product(product(exactly(y[i]), difference(exactly(dy[i]), sum)), exactly(scale)));
        dx.back().error = std::isinf(sum.error) ? infinity : dx.back().error;
    }
    return dx;
}

CrossEntropy cross_entropy(const Row &logits, std::size_t target, double scale) {
    const double nan = std::numeric_limits<double>::quiet_NaN(), m = *std::max_element(logits.begin(), logits.end());
    if (!std::isfinite(m) || std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); })) {
        return {exactly(nan), ExpectedRow(logits.size(), exactly(nan))};
    }
    const std::size_t largest = static_cast<std::size_t>(std::find(logits.begin(), logits.end(), m) - logits.begin());
    const Row terms = formulas::exponentials(logits, 1);
    ExpectedRow exponentials;
    Expected rest{};
    for (std::size_t i = 0; i < logits.size(); i++) {
        // The difference is rounded, and the exponential errs by 2 ULP at most.
        const double d = logits[i] - m, e = terms[i];
        exponentials.push_back(e == 0 ? exactly(0) : Expected{e, e * unit * (4 - d) + 2 * underflow});
        if (i != largest) {
            rest.value += e;
            rest.error += exponentials[i].error;
        }
    }
    const double additions = std::ceil(static_cast<double>(logits.size()) / 64) + 8;
    rest.error += additions * unit * (rest.value + rest.error);

    CrossEntropy result;
    const double log1p = std::log1p(rest.value), beside = m - logits[target];
    // The slope of log1p is below 1 / (1 + rest), and what it is computed with errs by 1.5 ULP.
    const double log1p_error = rest.error / (1 + rest.value - rest.error) + 3 * unit * log1p + 2 * underflow;
    const double loss = formulas::cross_entropy(logits, target);
    result.loss =
        std::isinf(loss) ? exactly(loss) : Expected{loss, log1p_error + unit * beside + unit * (loss + log1p_error)};
    const double total = 1 + rest.value, total_error = rest.error + unit * total;
    const double factor = scale / total;
    const Expected of_row = {factor, std::fabs(factor) * (total_error / (total - total_error) + unit) + underflow};
    for (const Expected &exponential : exponentials) {
        result.dlogits.push_back(product(exponential, of_row));
    }
    Expected &of_target = result.dlogits[target];
    of_target = beside == 0 ? product({-rest.value, rest.error}, of_row) : difference(of_target, exactly(scale));
    return result;
}

ExpectedRow sum_of_rows(const Matrix &rows, std::size_t width) {
    const double count = static_cast<double>(rows.size()), block = 32;
    const double chain = std::min(count, block) + std::ceil(count / block);
    ExpectedRow sums(width, exactly(0));
    for (std::size_t i = 0; i < width; i++) {
        double magnitude = 0;
        for (const ExpectedRow &row : rows) {
            sums[i].value += row[i].value;
            sums[i].error += row[i].error;
            magnitude += std::fabs(row[i].value);
        }
        sums[i].error += chain * unit * (magnitude + sums[i].error);
        if (std::isfinite(magnitude) && magnitude > 0x1p127) {
            sums[i].error = infinity;
        }
    }
    return sums;
}

// A sum goes over blocks of 512 terms, as reference_linear.cpp says, and here may begin with a number that the first block is added to.
// So no term goes through more than n = min(K, 512) + ceil(K / 512) roundings, and the error is at most gamma(n) of the sum of magnitudes.
namespace {

/** start + the sum over k of a(k) b(k). */
template<typename A, typename B>
Expected sum_of_products(std::size_t count, std::size_t inputs, double start, const A &a, const B &b) {
    const double terms = static_cast<double>(inputs), block = 512;
    const double roundings = std::min(terms, block) + std::ceil(terms / block);
    Expected sum = exactly(start);
    double magnitude = std::fabs(start);
    for (std::size_t k = 0; k < count; k++) {
        const Expected &factor = a(k);
        const double other = b(k);
        sum.value += factor.value * other;
        sum.error += factor.error * std::fabs(other) + underflow;
        magnitude += (std::fabs(factor.value) + factor.error) * std::fabs(other);
    }
    sum.error += roundings * unit / (1 - roundings * unit) * magnitude;
    if (!std::isfinite(sum.value)) {
        sum.error = 0;
    } else if (magnitude + sum.error > 0x1p127) {
        sum.error = infinity;
    }
    return sum;
}

}  // namespace

Matrix linear_input_gradient(const Matrix &dz, const std::vector<Row> &weight, std::int64_t inputs) {
    Matrix dx;
    for (const ExpectedRow &row : dz) {
        ExpectedRow &of_row = dx.emplace_back();
        for (std::size_t in = 0; in < weight[0].size(); in++) {
            of_row.push_back(sum_of_products(
                weight.size(), static_cast<std::size_t>(inputs), 0,
                [&](std::size_t out) -> const Expected & { return row[out]; },
                [&](std::size_t out) { return weight[out][in]; }));
        }
    }
    return dx;
}

Matrix linear_weight_gradient(const Matrix &dz, const std::vector<Row> &x, const std::vector<Row> &start) {
    Matrix dweight;
    for (std::size_t out = 0; out < dz[0].size(); out++) {
        ExpectedRow &of_output = dweight.emplace_back();
        for (std::size_t in = 0; in < x[0].size(); in++) {
            of_output.push_back(sum_of_products(
                dz.size(), dz.size(), start.empty() ? 0 : start[out][in],
                [&](std::size_t row) -> const Expected & { return dz[row][out]; },
                [&](std::size_t row) { return x[row][in]; }));
        }
    }
    return dweight;
}

// Gradients of attention, with u = 2^-24. Per query i and key j that it sees:
//   s_ij     a sum over head_dim products, within gamma(head_dim + 1) sum |q k| of the true one.
//   P_ij     exp(x), x = scale s - lse rounded once; the scale is rounded itself unless it is given, and the exponential has
//            its bound of the accuracy table. So P errs by a factor of exp(error of x) and that bound.
//   dS_ij    scale P (dP - D): dP as s, D over the 64 lanes of a row, three roundings.
//   cap c    x = c t - lse, t = tanh(scale s / c): a product and a quotient are rounded, tanh has its bound of the accuracy table, and
//            the product with c is rounded. dS has the factor (1 - t') (1 + t'), t' = (c t) / c: another quotient, two sums, two products.
//   dv, dk   sums over blocks of 128 queries, the blocks of all heads of the group one after the other; dq over blocks of 192
//            keys. No term goes through more roundings than in blocks of 512 until there are 55000 of them.
namespace {

/** A score, and its slope by what a soft cap takes: 1 without one. */
struct Score {
    Expected value, slope;
};

Score score_of(const Expected &s, const Expected &scale, double cap) {
    if (cap == 0) {
        const double error = s.error * (scale.value + scale.error) + std::fabs(s.value) * scale.error;
        return {{s.value * scale.value, error}, exactly(1)};
    }
    static const ErrorModel of_tanh("tanh");
    const Expected x = std::isfinite(s.value) ? product(product(s, scale), exactly(1 / cap)) : exactly(s.value);
    const double value = std::tanh(x.value);
    const double carried = std::max(std::tanh(x.value + x.error) - value, value - std::tanh(x.value - x.error));
    const Expected capped = product({value, carried + of_tanh.allowed(x.value, value, Dtype::f32)}, exactly(cap));
    const Expected t = product(capped, exactly(1 / cap));
    return {capped, product(difference(exactly(1), t), difference(exactly(1), {-t.value, t.error}))};
}

/** P and dS of one head: [query][key], nothing where the key is hidden. */
struct AttentionWeights {
    Matrix p, ds;
};

AttentionWeights weights_of(const AttentionHead &head, const std::vector<Row> &keys, const std::vector<Row> &values,
                            std::int64_t first_query, const AttentionRule &rule) {
    static const double exp_error = ErrorModel("exp").bound_at(0)->max_ulp * 2 * unit;
    const std::size_t features = keys[0].size();
    const double root = 1 / std::sqrt(static_cast<double>(features));
    const Expected scale = rule.scale > 0 ? exactly(rule.scale) : Expected{root, root * 2 * unit};
    AttentionWeights weights;
    for (std::size_t i = 0; i < head.q.size(); i++) {
        const auto dot = [&](const ExpectedRow &a, const Row &b) {
            return sum_of_products(
                features, features, 0, [&](std::size_t k) -> const Expected & { return a[k]; },
                [&](std::size_t k) { return b[k]; });
        };
        const ExpectedRow q = exact_row(head.q[i]), dy = exact_row(head.dy[i]);
        const Expected d = sum_of(products(dy, exact_row(head.y[i])));
        ExpectedRow &p = weights.p.emplace_back(keys.size()), &ds = weights.ds.emplace_back(keys.size());
        for (std::size_t j = 0; j < keys.size(); j++) {
            if (!rule.sees(first_query + static_cast<std::int64_t>(i), static_cast<std::int64_t>(j))) {
                continue;
            }
            const Score score = score_of(dot(q, keys[j]), scale, rule.softcap);
            const double x = score.value.value - head.log_sum_exp[i], value = std::exp(x), carried = score.value.error;
            const double factor = std::expm1(carried + unit * (std::fabs(x) + carried) + exp_error);
            p[j] = {value, std::isfinite(x) ? value * factor + underflow : 0};
            const Expected centred = difference(dot(dy, values[j]), d);
            ds[j] = rule.softcap == 0 ? product(product(p[j], centred), scale)
                                      : product(p[j], product(product(centred, score.slope), scale));
        }
    }
    return weights;
}

}  // namespace

AttentionGradients attention_gradients(const std::vector<AttentionHead> &heads, const std::vector<Row> &keys,
                                       const std::vector<Row> &values, std::int64_t first_query,
                                       const AttentionRule &rule) {
    std::vector<AttentionWeights> weights;
    for (const AttentionHead &head : heads) {
        weights.push_back(weights_of(head, keys, values, first_query, rule));
    }
    struct Term {
        Expected factor;
        const Row *row;
    };
    const auto sums_of = [&](const std::vector<Term> &terms) {
        ExpectedRow sums;
        for (std::size_t feature = 0; feature < keys[0].size(); feature++) {
            sums.push_back(sum_of_products(
                terms.size(), terms.size(), 0, [&](std::size_t k) -> const Expected & { return terms[k].factor; },
                [&](std::size_t k) { return (*terms[k].row)[feature]; }));
        }
        return sums;
    };
    const auto sees = [&](std::size_t i, std::size_t j) {
        return rule.sees(first_query + static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
    };
    AttentionGradients gradients;
    for (std::size_t head = 0; head < heads.size(); head++) {
        Matrix &dq = gradients.dq.emplace_back();
        for (std::size_t i = 0; i < heads[head].q.size(); i++) {
            std::vector<Term> terms;
            for (std::size_t j = 0; j < keys.size(); j++) {
                if (sees(i, j)) {
                    terms.push_back({weights[head].ds[i][j], &keys[j]});
                }
            }
            dq.push_back(sums_of(terms));
        }
    }
    for (std::size_t j = 0; j < keys.size(); j++) {
        std::vector<Term> of_key, of_value;
        for (std::size_t head = 0; head < heads.size(); head++) {
            for (std::size_t i = 0; i < heads[head].q.size(); i++) {
                if (sees(i, j)) {
                    of_key.push_back({weights[head].ds[i][j], &heads[head].q[i]});
                    of_value.push_back({weights[head].p[i][j], &heads[head].dy[i]});
                }
            }
        }
        gradients.dk.push_back(sums_of(of_key));
        gradients.dv.push_back(sums_of(of_value));
    }
    return gradients;
}

}  // namespace halyard::operations
