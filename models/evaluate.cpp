// Perplexity of a model, and the divergence of its predictions from those of another.
#include "halyard/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "fail.h"
#include "floating_point.h"

namespace halyard {

namespace {

constexpr std::int64_t tokens_at_once = 32;

[[noreturn]] void refuse(const std::string &what) {
    throw Error(HALYARD_INVALID_ARGUMENT, ("halyard::evaluate: " + what).c_str());
}

/// Its logits of a window, some tokens at a time.
class Reader {
public:
    Reader(const char *name, const Model &model, std::int64_t window, const halyard_context *context)
        : name_(name), model_(model), context_(context), cache_(model.make_cache(window)),
          vocab_(model.config().stack.vocab_size), logits_(static_cast<std::size_t>(tokens_at_once * vocab_)) {}

    void begin_window() { cache_.truncate(0, 0); }

    /// The logits of each of at most `tokens_at_once` tokens.
    void read(const std::int64_t *tokens, std::int64_t count) {
        const Extents shape{count, vocab_};
        model_.stack().forward_all(TokenIds(tokens, {count}), cache_, {0}, Tensor(logits_.data(), shape), context_);
    }

    const float *logits(std::int64_t token) const { return logits_.data() + token * vocab_; }
    std::int64_t vocab() const { return vocab_; }
    const char *name() const { return name_; }

private:
    const char *name_;
    const Model &model_;
    const halyard_context *context_;
    KvCache cache_;
    std::int64_t vocab_;
    std::vector<float> logits_;
};

/// softmax(logits) of one prediction, in float64.
class Prediction {
public:
    Prediction(const Reader &reader, std::int64_t token) : logits_(reader.logits(token)), vocab_(reader.vocab()) {
        if (std::any_of(logits_, logits_ + vocab_, [](float logit) { return std::isnan(logit); })) {
            refuse(std::string("a logit of the ") + reader.name() + " is NaN");
        }
        best_ = std::max_element(logits_, logits_ + vocab_) - logits_;
        const double largest = logits_[best_];
        if (std::isinf(largest)) {
            refuse(std::string(largest > 0 ? "a logit" : "every logit") + " of the " + reader.name() + " is " +
                   (largest > 0 ? "+Inf" : "-Inf"));
        }
        double sum = 0;
        for (std::int64_t i = 0; i < vocab_; i++) {
            sum += std::exp(logits_[i] - largest);
        }
        log_sum_ = largest + std::log(sum);
    }

    std::int64_t best() const { return best_; }
    double log_probability(std::int64_t token) const { return logits_[token] - log_sum_; }

    /// KL(this || other)
    double divergence_of(const Prediction &other) const {
        double sum = 0;
        for (std::int64_t i = 0; i < vocab_; i++) {
            const double log_p = log_probability(i), p = std::exp(log_p);
            if (p > 0) {
                sum += p * (log_p - other.log_probability(i));
            }
        }
        return std::max(sum, 0.0);  // rounding
    }

private:
    const float *logits_;
    std::int64_t vocab_, best_ = 0;
    double log_sum_ = 0;
};

Mean mean_of(const std::vector<double> &values) {
    const auto count = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const double value : values) {
        sum += value;
    }
    const double mean = sum / count;
    for (const double value : values) {
        squares += (value - mean) * (value - mean);
    }
    return {mean, count > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

/// The least that `share` of the sorted values do not exceed.
double quantile(const std::vector<double> &sorted, double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<std::size_t>(rank, 1) - 1];
}

/// One value per prediction.
struct Measured {
    std::vector<double> loss, reference_loss, difference, divergence, agreement;

    void add(std::int64_t next, const Prediction &q) { loss.push_back(-q.log_probability(next)); }

    void add(std::int64_t next, const Prediction &q, const Prediction &p) {
        add(next, q);
        reference_loss.push_back(-p.log_probability(next));
        difference.push_back(loss.back() - reference_loss.back());
        divergence.push_back(p.divergence_of(q));
        agreement.push_back(p.best() == q.best() ? 1 : 0);
    }

    Evaluation result() {
        Evaluation result{static_cast<std::int64_t>(loss.size()), mean_of(loss), std::nullopt};
        if (!divergence.empty()) {
            const Mean mean = mean_of(divergence);
            std::sort(divergence.begin(), divergence.end());
            result.comparison = {mean_of(reference_loss),   mean_of(difference),        mean,
                                 quantile(divergence, 0.5), quantile(divergence, 0.99), divergence.back(),
                                 mean_of(agreement)};
        }
        return result;
    }
};

void check(const char *name, const Model &model, const EvaluateOptions &options) {
    if (model.config().stack.no_lm_head) {
        refuse(std::string("the ") + name + " is an encoder, which predicts no tokens");
    }
    if (options.window > model.max_positions()) {
        refuse("window is " + std::to_string(options.window) + "; the " + name + " has " +
               std::to_string(model.max_positions()) + " positions");
    }
}

void check(const Model &model, const Model *reference, const std::vector<std::int64_t> &ids,
           const EvaluateOptions &options) {
    if (options.window < 2 && options.window != 0) {
        refuse("window is " + std::to_string(options.window) + "; it must be 2 or more, or 0");
    }
    check("model", model, options);
    const std::int64_t vocab = model.config().stack.vocab_size;
    if (reference != nullptr) {
        check("reference", *reference, options);
        if (reference->config().stack.vocab_size != vocab) {
            refuse("the model has " + std::to_string(vocab) + " tokens, the reference " +
                   std::to_string(reference->config().stack.vocab_size));
        }
    }
    if (ids.size() < 2) {
        refuse("there are " + std::to_string(ids.size()) + " ids; it needs 2 or more");
    }
    for (std::size_t i = 0; i < ids.size(); i++) {
        if (ids[i] < 0 || ids[i] >= vocab) {
            refuse("id " + std::to_string(i + 1) + " is " + std::to_string(ids[i]) + "; the model has " +
                   std::to_string(vocab) + " tokens");
        }
    }
}

}  // namespace

double Evaluation::perplexity() const noexcept {
    return std::exp(loss.value);
}

double Evaluation::reference_perplexity() const noexcept {
    return std::exp(comparison->reference_loss.value);
}

Evaluation evaluate(const Model &model, const Model *reference, const std::vector<std::int64_t> &ids,
                    const EvaluateOptions &options) {
    const models::DefaultFloatingPoint floating_point;
    check(model, reference, ids, options);
    const std::int64_t positions = std::min(model.max_positions(),
                                            reference != nullptr ? reference->max_positions() : INT64_MAX),
                       window =
                           options.window != 0 ? options.window : std::min(EvaluateOptions::usual_window, positions);
    Reader reader("model", model, window, options.context);
    std::optional<Reader> reference_reader;
    if (reference != nullptr) {
        reference_reader.emplace("reference", *reference, window, options.context);
    }
    Measured measured;
    const auto total = static_cast<std::int64_t>(ids.size());
    for (std::int64_t begin = 0; begin < total; begin += window) {
        const std::int64_t end = std::min(begin + window, total);
        reader.begin_window();
        if (reference_reader) {
            reference_reader->begin_window();
        }
        // Nothing is known of what follows the last token of a window.
        for (std::int64_t first = begin; first < end - 1; first += tokens_at_once) {
            const std::int64_t count = std::min(tokens_at_once, end - 1 - first);
            reader.read(&ids[static_cast<std::size_t>(first)], count);
            if (reference_reader) {
                reference_reader->read(&ids[static_cast<std::size_t>(first)], count);
            }
            for (std::int64_t i = 0; i < count; i++) {
                const std::int64_t next = ids[static_cast<std::size_t>(first + i + 1)];
                const Prediction q(reader, i);
                if (reference_reader) {
                    measured.add(next, q, Prediction(*reference_reader, i));
                } else {
                    measured.add(next, q);
                }
            }
            if (options.progress) {
                options.progress(first + count, total);
            }
        }
        if (options.progress) {
            options.progress(end, total);
        }
    }
    return measured.result();
}

}  // namespace halyard
