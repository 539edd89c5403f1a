// Experiment 6: feed-forward networks with different activations, at equal parameters, in a small language model.
//
// Runs of a seed share the data, their order, and all weights at the start but those of the networks. No data comes twice, so that the
// loss is that of a text not seen before.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "csv.h"
#include "experiments.h"
#include "grammar.h"
#include "normal.h"
#include "progress.h"
#include "training/adam.h"
#include "training/model.h"

namespace experiments {
namespace {

using namespace training;

struct Activation {
    const char *name;
    Function function;
    bool gated;
};

constexpr Activation activations[] = {
    {"relu", Function::relu, false},  {"gelu", Function::gelu, false},        {"swiglu", Function::silu, true},
    {"glu", Function::sigmoid, true}, {"bilinear", Function::identity, true}, {"reglu", Function::relu, true},
    {"geglu", Function::gelu, true},
};

struct Size {
    std::int64_t d, heads, batch, tokens;
    int layers, steps, seeds;
    std::vector<double> learning_rates;
};

Size size_of(Effort effort) {
    switch (effort) {
    case Effort::quick:
        return {64, 4, 4, 32, 2, 100, 2, {1e-3}};
    case Effort::full:
        return {256, 8, 8, 64, 6, 500, 5, {5e-4, 1e-3, 2e-3}};
    default:
        return {256, 8, 2, 48, 6, 500, 5, {1e-3}};
    }
}

/** 8/3 d for a gated network, which has three matrices, has the parameters of 4 d for one with two: within 0.1 % at 256. */
std::int64_t width_of(const Activation &activation, std::int64_t d) {
    return activation.gated ? 8 * d / 3 : 4 * d;
}

/** Where the texts of a run come from. */
class Source {
public:
    explicit Source(const std::string &file) {
        if (file.empty()) {
            return;
        }
        std::ifstream stream(file, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(stream), {});
        if (!stream || bytes_.empty()) {
            throw std::runtime_error("cannot read a text from '" + file + "'");
        }
        letters_ = bytes_;
        std::sort(letters_.begin(), letters_.end());
        letters_.erase(std::unique(letters_.begin(), letters_.end()), letters_.end());
    }

    int vocabulary() const { return bytes_.empty() ? Grammar::vocabulary : static_cast<int>(letters_.size()); }

    /** Texts of so many tokens each; the same for the same seed. */
    class Reader {
    public:
        Reader(const Source &source, std::uint64_t seed) : source_(source), grammar_(seed), random_(seed) {}

        Text next(std::size_t count) {
            const std::string &bytes = source_.bytes_;
            if (bytes.empty()) {
                return grammar_.text(count);
            }
            if (bytes.size() < 2 * count) {
                throw std::runtime_error("the text is too short: it needs " + std::to_string(2 * count) + " bytes");
            }
            Text text;
            const std::size_t begin = random_() % (bytes.size() - count);
            for (std::size_t i = begin; i < begin + count; i++) {
                const auto letter = std::lower_bound(source_.letters_.begin(), source_.letters_.end(), bytes[i]);
                text.tokens.push_back(static_cast<int>(letter - source_.letters_.begin()));
            }
            text.entropies.assign(count, std::numeric_limits<double>::quiet_NaN());
            return text;
        }

    private:
        const Source &source_;
        Grammar grammar_;
        Random random_;
    };

private:
    std::string bytes_, letters_;  // of the file; its different ones in order
};

struct Batch {
    std::vector<int> ids, targets;
    double floor = 0;  // mean entropy of the targets
};

Batch next_batch(Source::Reader &reader, const Size &size) {
    Batch batch;
    const std::size_t tokens = static_cast<std::size_t>(size.tokens);
    for (std::int64_t i = 0; i < size.batch; i++) {
        const Text text = reader.next(tokens + 1);
        batch.ids.insert(batch.ids.end(), text.tokens.begin(), text.tokens.end() - 1);
        batch.targets.insert(batch.targets.end(), text.tokens.begin() + 1, text.tokens.end());
        for (std::size_t j = 1; j <= tokens; j++) {
            batch.floor += text.entropies[j] / static_cast<double>(tokens * static_cast<std::size_t>(size.batch));
        }
    }
    return batch;
}

LanguageModel<float> make_model(const Activation &activation, const Size &size, int vocabulary, std::uint64_t seed) {
    BlockShape shape;
    shape.d = size.d;
    shape.heads = size.heads;
    shape.ff = width_of(activation, size.d);
    shape.causal = true;
    shape.function = activation.function;
    shape.gated = activation.gated;
    shape.ffn_biases = false;
    LanguageModel<float> model(shape, size.layers, vocabulary, size.tokens);
    Normal normal(seed), normal_of_networks(seed + 1000000);
    Parameters<float> shared{&model.token_embedding, &model.position_embedding, &model.head.weight}, networks;
    for (const auto &block : model.stack.blocks) {
        block->attention.append_to(shared);
        block->ffn.append_to(networks);
    }
    initialize_normal(shared, normal, 0.02);
    initialize_normal(networks, normal_of_networks, 0.02);
    return model;
}

std::int64_t count_of(const Parameters<float> &parameters) {
    std::int64_t count = 0;
    for (const Parameter<float> *parameter : parameters) {
        count += static_cast<std::int64_t>(parameter->value.values.size());
    }
    return count;
}

/** The share of hidden units that no token of the last forward pass made positive. */
double dead_share(const LanguageModel<float> &model) {
    std::int64_t dead = 0, all = 0;
    for (const auto &block : model.stack.blocks) {
        const Matrix<float> active = transposed(block->ffn.active());
        for (std::int64_t unit = 0; unit < active.rows; unit++) {
            dead += std::all_of(active.row(unit), active.row(unit) + active.columns, [](float x) { return x == 0; });
        }
        all += active.rows;
    }
    return static_cast<double>(dead) / static_cast<double>(all);
}

/** A mean of what it is given, which begins anew with each reading. */
class Mean {
public:
    void add(double x) { sum += x, count++; }
    double take() {
        const double mean = sum / std::max(1, count);
        sum = 0, count = 0;
        return mean;
    }

private:
    double sum = 0;
    int count = 0;
};

struct Run {
    int seed;
    const Activation &activation;
    double learning_rate;

    // What came of it: losses along the way and, if it was not interrupted, at its end.
    struct Point {
        int step;
        double loss, floor;
    };
    std::vector<Point> curve{};
    bool is_complete = false;
    double loss = 0, floor = 0, dead = 0;
};

void train(Run &run, const Size &size, const Source &source, Progress &progress) {
    constexpr int interval = 10, last_steps = 50, warm_up = 50;
    const auto seed = static_cast<std::uint64_t>(run.seed);
    Source::Reader reader(source, seed);
    LanguageModel<float> model = make_model(run.activation, size, source.vocabulary(), seed);
    Adam<float> adam(model.parameters());
    Mean loss, floor, last_loss, last_floor;
    Matrix<float> dlogits;
    for (int step = 0; step < size.steps; step++) {
        if (Progress::is_interrupted()) {
            return;
        }
        const Batch batch = next_batch(reader, size);
        loss.add(cross_entropy(model.forward(batch.ids), batch.targets, dlogits));
        floor.add(batch.floor);
        model.backward(dlogits);
        adam.step(run.learning_rate * std::min(1.0, (step + 1.0) / warm_up));
        if ((step + 1) % interval == 0) {
            const double mean_loss = loss.take(), mean_floor = floor.take();
            run.curve.push_back({step + 1, mean_loss, mean_floor});
            if (step >= size.steps - last_steps) {
                last_loss.add(mean_loss);
                last_floor.add(mean_floor);
            }
        }
        progress.done(1, std::string("language model with ") + run.activation.name + ", seed " +
                             std::to_string(run.seed + 1));
    }
    model.forward(next_batch(reader, size).ids);
    const bool can_die = run.activation.function == Function::relu;
    run.loss = last_loss.take();
    run.floor = last_floor.take();
    run.dead = can_die ? dead_share(model) : std::numeric_limits<double>::quiet_NaN();
    run.is_complete = true;
}

/** Several runs side by side, of one thread each: they need not wait for each other, as loops of one run do. */
void train_all(std::vector<Run> &runs, int threads, const Size &size, const Source &source, Progress &progress) {
    set_threads(1);
    std::atomic<std::size_t> next{0};
    std::vector<std::future<void>> workers;
    for (int i = 0; i < (threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency())); i++) {
        workers.push_back(std::async(std::launch::async, [&] {
            for (std::size_t run; (run = next++) < runs.size();) {
                train(runs[run], size, source, progress);
            }
        }));
    }
    for (std::future<void> &worker : workers) {
        worker.get();
    }
    set_threads(threads);
}

}  // namespace

std::vector<std::string> ablation_activations() {
    std::vector<std::string> names;
    for (const Activation &activation : activations) {
        names.emplace_back(activation.name);
    }
    return names;
}

void ffn_ablation(const std::filesystem::path &directory, const AblationOptions &options) {
    Size size = size_of(options.training.effort);
    size.seeds = options.seeds > 0 ? options.seeds : size.seeds;
    const Source source(options.text);
    set_threads(options.training.threads);
    Csv models(directory / "ablation_models.csv",
               {"activation", "width", "parameters", "ffn_parameters", "ffn_parameters_with_biases"});
    std::vector<Activation> chosen;
    for (const Activation &activation : activations) {
        if (std::find(options.activations.begin(), options.activations.end(), activation.name) !=
            options.activations.end()) {
            chosen.push_back(activation);
            LanguageModel<float> model = make_model(activation, size, source.vocabulary(), 0);
            Parameters<float> network;
            model.stack.blocks[0]->ffn.append_to(network);
            const std::int64_t width = width_of(activation, size.d),
                               biases = width * (activation.gated ? 2 : 1) + size.d;
            models.line(activation.name, width, count_of(model.parameters()), count_of(network),
                        count_of(network) + biases);
        }
    }
    models.close();
    Csv curve(directory / "ablation.csv", {"activation", "seed", "learning_rate", "step", "loss", "floor"});
    Csv final(directory / "ablation_final.csv", {"activation", "seed", "learning_rate", "loss", "floor", "dead_share"});
    Progress progress(static_cast<double>(chosen.size() * size.learning_rates.size()) * size.seeds * size.steps);
    std::vector<Run> runs;
    for (int seed = 0; seed < size.seeds; seed++) {
        for (const Activation &activation : chosen) {
            for (const double learning_rate : size.learning_rates) {
                runs.push_back({seed, activation, learning_rate});
            }
        }
    }
    train_all(runs, options.training.threads, size, source, progress);
    for (const Run &run : runs) {
        for (const Run::Point &point : run.curve) {
            curve.line(run.activation.name, run.seed, run.learning_rate, point.step, point.loss, point.floor);
        }
        if (run.is_complete) {
            final.line(run.activation.name, run.seed, run.learning_rate, run.loss, run.floor, run.dead);
        }
    }
    curve.close();
    final.close();
}

}  // namespace experiments
