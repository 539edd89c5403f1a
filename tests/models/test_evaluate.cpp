// Perplexity and divergence of predictions: beside a plain computation of the definitions, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "halyard/evaluate.hpp"
#include "support/gguf_model.h"

namespace halyard::tests {
namespace {

Model fixture(const char *name, const LoadOptions &options = {}) {
    return Model::load(model_fixtures / name, options);
}

LoadOptions in_bits(int bits) {
    LoadOptions options;
    options.quantization.bits = bits;
    options.quantization.group = 16;
    return options;
}

std::vector<std::int64_t> some_ids(const Model &model, std::size_t count) {
    std::vector<std::int64_t> ids(count);
    std::uint64_t state = 1;
    for (std::int64_t &id : ids) {
        state = state * 6364136223846793005 + 1442695040888963407;
        id = static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(model.config().stack.vocab_size));
    }
    return ids;
}

/** Probabilities of every token of a window, in long double. */
std::vector<std::vector<long double>> probabilities(const Model &model, const std::vector<std::int64_t> &window) {
    const std::vector<float> logits = run_prompt(model, window).back();
    const auto vocab = static_cast<std::size_t>(model.config().stack.vocab_size);
    std::vector<std::vector<long double>> all;
    for (std::size_t token = 0; token < window.size(); token++) {
        std::vector<long double> p;
        long double sum = 0;
        for (std::size_t i = 0; i < vocab; i++) {
            p.push_back(std::exp(static_cast<long double>(logits[token * vocab + i])));
            sum += p.back();
        }
        for (long double &each : p) {
            each /= sum;
        }
        all.push_back(p);
    }
    return all;
}

TEST(Evaluate, IsWhatTheDefinitionsSay) {
    const Model model = fixture("llama3_f32", in_bits(4)), reference = fixture("llama3_f32");
    const std::vector<std::int64_t> ids = some_ids(model, 107);
    for (const std::int64_t window : {2, 7, 33, 64}) {
        EvaluateOptions options;
        options.window = window;
        std::vector<std::int64_t> progress;
        options.progress = [&](std::int64_t done, std::int64_t total) {
            EXPECT_EQ(total, 107);
            progress.push_back(done);
        };
        const Evaluation got = evaluate(model, &reference, ids, options);

        long double loss = 0, reference_loss = 0, divergence = 0, largest = 0;
        int count = 0, equal = 0;
        for (std::size_t begin = 0; begin < ids.size(); begin += static_cast<std::size_t>(window)) {
            const std::size_t end = std::min(begin + static_cast<std::size_t>(window), ids.size());
            const std::vector<std::int64_t> text(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 ids.begin() + static_cast<std::ptrdiff_t>(end));
            const auto q = probabilities(model, text), p = probabilities(reference, text);
            for (std::size_t i = 0; i + 1 < text.size(); i++) {
                const auto next = static_cast<std::size_t>(text[i + 1]);
                loss -= std::log(q[i][next]);
                reference_loss -= std::log(p[i][next]);
                long double kl = 0;
                for (std::size_t j = 0; j < p[i].size(); j++) {
                    kl += p[i][j] * std::log(p[i][j] / q[i][j]);
                }
                divergence += kl;
                largest = std::max(largest, kl);
                equal += std::max_element(p[i].begin(), p[i].end()) - p[i].begin() ==
                         std::max_element(q[i].begin(), q[i].end()) - q[i].begin();
                count++;
            }
        }
        ASSERT_TRUE(got.comparison);
        const Comparison &beside = *got.comparison;
        EXPECT_EQ(got.predictions, count);
        EXPECT_NEAR(got.loss.value, static_cast<double>(loss / count), 1e-12);
        EXPECT_NEAR(got.perplexity(), std::exp(static_cast<double>(loss / count)), 1e-9);
        EXPECT_NEAR(beside.reference_loss.value, static_cast<double>(reference_loss / count), 1e-12);
        EXPECT_NEAR(beside.loss_difference.value, static_cast<double>((loss - reference_loss) / count), 1e-12);
        EXPECT_NEAR(beside.divergence.value, static_cast<double>(divergence / count), 1e-12);
        EXPECT_NEAR(beside.largest_divergence, static_cast<double>(largest), 1e-12);
        EXPECT_LE(beside.median_divergence, beside.divergence_99);
        EXPECT_LE(beside.divergence_99, beside.largest_divergence);
        EXPECT_EQ(beside.agreement.value, static_cast<double>(equal) / count);
        EXPECT_GT(beside.divergence.error, 0);
        EXPECT_EQ(progress.back(), 107);
        EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
    }
}

TEST(Evaluate, FindsNoDifferenceBetweenAModelAndItself) {
    const Model model = fixture("gpt2_f32");
    EvaluateOptions options;
    options.window = 16;
    const Evaluation got = evaluate(model, &model, some_ids(model, 40), options);
    EXPECT_EQ(got.comparison->largest_divergence, 0);
    EXPECT_EQ(got.comparison->agreement.value, 1);
    EXPECT_EQ(got.comparison->loss_difference.value, 0);
    EXPECT_EQ(got.comparison->loss_difference.error, 0);
    EXPECT_EQ(got.perplexity(), got.reference_perplexity());
    EXPECT_FALSE(evaluate(model, nullptr, some_ids(model, 2), options).comparison);
    options.window = 0;  // as many as the model has positions
    EXPECT_EQ(evaluate(model, &model, some_ids(model, 200), options).predictions,
              200 - (200 + model.max_positions() - 1) / model.max_positions());
}

TEST(Evaluate, SeesThatFewerBitsSayLess) {
    const Model reference = fixture("llama3_f32"), eight = fixture("llama3_f32", in_bits(8)),
                four = fixture("llama3_f32", in_bits(4));
    EvaluateOptions options;
    options.window = 32;
    const auto ids = some_ids(reference, 64);
    const double small = evaluate(eight, &reference, ids, options).comparison->divergence.value,
                 large = evaluate(four, &reference, ids, options).comparison->divergence.value;
    EXPECT_GT(small, 0);
    EXPECT_GT(large, 10 * small);
}

TEST(Evaluate, DoesNotDependOnThreads) {
    const Model model = fixture("llama3_bf16"), reference = fixture("llama3_f32");
    EvaluateOptions options;
    options.window = 50;
    const auto ids = some_ids(model, 70);
    Context context;
    context.set_num_threads(1);
    options.context = context;
    const Evaluation one = evaluate(model, &reference, ids, options);
    context.set_num_threads(3);
    const Evaluation three = evaluate(model, &reference, ids, options);
    EXPECT_EQ(one.loss.value, three.loss.value);
    EXPECT_EQ(one.comparison->divergence.value, three.comparison->divergence.value);
}

void expect_refused(const Model &model, const Model *reference, const std::vector<std::int64_t> &ids,
                    std::int64_t window, const std::string &message) {
    EvaluateOptions options;
    options.window = window;
    try {
        evaluate(model, reference, ids, options);
        ADD_FAILURE() << "not refused: " << message;
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(error.what(), "halyard::evaluate: " + message);
    }
}

TEST(Evaluate, RefusesWhatIsWrong) {
    const Model model = fixture("llama3_f32"), encoder = fixture("bert_f32");
    const std::string vocab = std::to_string(model.config().stack.vocab_size),
                      positions = std::to_string(model.max_positions());
    expect_refused(model, nullptr, {}, 8, "there are 0 ids; it needs 2 or more");
    expect_refused(model, nullptr, {1}, 8, "there are 1 ids; it needs 2 or more");
    expect_refused(model, nullptr, {1, 2}, 1, "window is 1; it must be 2 or more, or 0");
    expect_refused(model, nullptr, {1, 2}, model.max_positions() + 1,
                   "window is " + std::to_string(model.max_positions() + 1) + "; the model has " + positions +
                       " positions");
    expect_refused(model, nullptr, {1, -2}, 8, "id 2 is -2; the model has " + vocab + " tokens");
    expect_refused(model, nullptr, {model.config().stack.vocab_size, 1}, 8,
                   "id 1 is " + vocab + "; the model has " + vocab + " tokens");
    expect_refused(encoder, nullptr, {1, 2}, 8, "the model is an encoder, which predicts no tokens");
    expect_refused(model, &encoder, {1, 2}, 8, "the reference is an encoder, which predicts no tokens");
    Folder smaller("gpt2_f32");
    smaller.config["vocab_size"] = 60;
    auto &table = smaller.tensors.at("transformer.wte.weight");
    table.bytes.resize(table.bytes.size() / 61 * 60);
    table.shape.front() = 60;
    const Model other = smaller.load();
    expect_refused(model, &other, {1, 2}, 8, "the model has 61 tokens, the reference 60");
}

TEST(Evaluate, RefusesLogitsThatAreNoNumbers) {
    Folder folder("llama3_f32");
    const float nan = NAN;
    std::memcpy(folder.tensors.at("model.norm.weight").bytes.data(), &nan, sizeof(nan));
    const Model broken = folder.load(), model = fixture("llama3_f32");
    expect_refused(broken, nullptr, {1, 2, 3}, 8, "a logit of the model is NaN");
    expect_refused(model, &broken, {1, 2, 3}, 8, "a logit of the reference is NaN");
}

}  // namespace
}  // namespace halyard::tests
