// The reference of attention.
//
// Error bounds, with u = 2^-24 and gamma(n) = n u / (1 - n u). Per query, with keys j in blocks of 512:
//   s_j      a sum over head_dim <= 256 products in sequence: within gamma(head_dim + 1) sum |q k| of the true one, and
//            moved by what q and k have as errors.
//   t_j      the score: s_j times the scale, which is rounded itself unless it is given. With a softcap c, c tanh(s/c):
//            tanh has slope 1 at most and its bound of the accuracy table; the product with the scale, the quotient and
//            the product with c are rounded.
//   w_j      exp(t_j - m), m the maximum of the block, then multiplied at each merge by exp(m_old - m_new). All maxima
//   are
//            exact numbers, the same for numerator and denominator, so only the roundings of the differences count:
//            these add up to u times the distance of t_j from the largest score of all. Each exponential has its bound
//            of the accuracy table, and each merge rounds a product and a sum. So the computed weight is w_j exp(e_j),
//            with |e_j| at most the sum of all this. Where an exponential is denormal it may lose 2^-148 besides.
//            Where weights are rounded to 16 bits for a matrix product, each loses half an ULP of that type, or of its
//            least normal number.
//   y        sum w_j v_j / sum w_j: the numerator goes through 512 roundings in a block and 2 at each merge, the
//            denominator through 8 in a lane, 6 in the tree and the same merges; the reciprocal and the product with it
//            round once each.
#include "reference_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace halyard::operations {
namespace {

constexpr double unit = 0x1p-24;
constexpr double underflow = 0x1p-148;
constexpr std::int64_t block = 512, product_block = 1024;  // positions that are summed before a merge

double gamma(double n) {
    return n * unit / (1 - n * unit);
}

/** Relative error of an exponential: ULP of a result of any mantissa. */
double exp_error() {
    static const double ulps = ErrorModel("exp").bound_at(0)->max_ulp;
    return ulps * 2 * unit;
}

Expected dot(const ExpectedRow &a, const ExpectedRow &b) {
    double value = 0, magnitude = 0, carried = 0;
    for (std::size_t i = 0; i < a.size(); i++) {
        value += a[i].value * b[i].value;
        magnitude += (std::fabs(a[i].value) + a[i].error) * (std::fabs(b[i].value) + b[i].error);
        carried += std::fabs(a[i].value) * b[i].error + a[i].error * std::fabs(b[i].value) + a[i].error * b[i].error;
    }
    const auto count = static_cast<double>(a.size());
    return {value, carried + gamma(count + 1) * magnitude + underflow * count};
}

Expected times(const Expected &x, double factor, double factor_error) {
    const double value = x.value * factor,
                 carried = x.error * factor * (1 + factor_error) + factor_error * std::fabs(value);
    return {value, carried + unit * (std::fabs(value) + carried) + underflow};
}

/** The largest of the scores that a query sees, where it sees none. */
constexpr double largest_of_none = -std::numeric_limits<double>::infinity();

Expected score(const Expected &s, const AttentionRule &rule, std::size_t head_dim) {
    const double scale = rule.scale > 0 ? rule.scale : 1 / std::sqrt(static_cast<double>(head_dim));
    const double scale_error = rule.scale > 0 ? 0.0 : 2 * unit;
    const Expected t = times(s, scale, scale_error);
    if (rule.softcap == 0) {
        return t;
    }
    const Expected x = times(t, 1 / rule.softcap, 0);
    const double value = std::tanh(x.value);
    return times({value, x.error + ErrorModel("tanh").allowed(x.value, value, Dtype::f32)}, rule.softcap, 0);
}

}  // namespace

bool AttentionRule::sees(std::int64_t query, std::int64_t key) const {
    if (causal && key > query) {
        return false;
    }
    if (window == 0) {
        return true;
    }
    return key > query - window && (causal || key < query + window);
}

ExpectedRow rotated(const ExpectedRow &x, const RopeRule &rule, std::int64_t position) {
    ExpectedRow y = x;
    for (std::int64_t i = 0; i < rule.rotary_dim / 2; i++) {
        const double angle = static_cast<double>(position) *
                             std::pow(rule.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rule.rotary_dim));
        const auto first = static_cast<std::size_t>(rule.interleaved ? 2 * i : i);
        const auto second = static_cast<std::size_t>(rule.interleaved ? 2 * i + 1 : i + rule.rotary_dim / 2);
        const double c = std::cos(angle), s = std::sin(angle);
        // The table is rounded, and each of the two products and their sum; 4 covers that the table's angle is too.
        const double magnitude =
            std::fabs(x[first].value) + x[first].error + std::fabs(x[second].value) + x[second].error;
        const double error = x[first].error + x[second].error + 4 * unit * magnitude + underflow;
        y[first] = {x[first].value * c - x[second].value * s, error};
        y[second] = {x[first].value * s + x[second].value * c, error};
    }
    return y;
}

Matrix attention(const Matrix &queries, const Matrix &keys, const Matrix &values, std::int64_t first_query,
                 const AttentionRule &rule, ExpectedRow *log_sum_exp) {
    const auto count = static_cast<std::int64_t>(keys.size());
    const double merges = static_cast<double>((count + block - 1) / block);
    const bool narrow = rule.products != Dtype::f32;
    const double value_roundings = static_cast<double>(narrow ? product_block : block) + 2 * merges;
    Matrix result;
    if (log_sum_exp != nullptr) {
        log_sum_exp->assign(queries.size(), {largest_of_none, 0.0});
    }
    for (std::size_t row = 0; row < queries.size(); row++) {
        const ExpectedRow &q = queries[row];
        const std::int64_t position = first_query + static_cast<std::int64_t>(row);
        std::vector<std::size_t> seen;
        std::vector<Expected> scores;
        double largest = largest_of_none;
        for (std::int64_t key = 0; key < count; key++) {
            if (rule.sees(position, key)) {
                seen.push_back(static_cast<std::size_t>(key));
                scores.push_back(score(dot(q, keys[seen.back()]), rule, q.size()));
                largest = std::max(largest, scores.back().value);
            }
        }
        double sum = 0, sum_error = 0;
        Row value(q.size(), 0.0), value_error(q.size(), 0.0);
        for (std::size_t i = 0; i < seen.size(); i++) {
            const Expected &t = scores[i];
            const double weight = std::exp(t.value - largest);
            const double exponent_error =
                t.error + unit * (largest - t.value + t.error) + (merges + 1) * (exp_error() + 2 * unit);
            double error = weight * std::expm1(exponent_error) + underflow;
            if (narrow) {
                error += unit_roundoff(rule.products) * (weight + error) + min_denormal(rule.products);
            }
            sum += weight;
            sum_error += error + gamma(rule.sum_roundings + 2 * merges) * (weight + error);
            const ExpectedRow &v = values[seen[i]];
            for (std::size_t d = 0; d < v.size(); d++) {
                value[d] += weight * v[d].value;
                value_error[d] += std::fabs(v[d].value) * (error + gamma(value_roundings) * (weight + error)) +
                                  v[d].error * (weight + error);
            }
        }
        ExpectedRow y(q.size(), {0.0, 0.0});
        for (std::size_t d = 0; d < y.size() && !seen.empty(); d++) {
            const double exact = value[d] / sum;
            const double carried = (value_error[d] + std::fabs(exact) * sum_error) / (sum - sum_error);
            y[d] = {exact, carried + 3 * unit * (std::fabs(exact) + carried) + underflow};
        }
        if (log_sum_exp != nullptr && !seen.empty()) {
            const double log_sum = std::log(sum), value = largest + log_sum;
            const double carried = sum_error / (sum - sum_error);
            (*log_sum_exp)[row] = {value, carried + unit * (std::fabs(value) + 2 * std::fabs(log_sum) + 2 * carried)};
        }
        result.push_back(std::move(y));
    }
    return result;
}

}  // namespace halyard::operations
