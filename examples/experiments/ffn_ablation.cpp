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
#include "training/language_model.h"

namespace experiments {
namespace {

using namespace training;

struct Network {
    const char *name;
    halyard::Activation activation;
    bool gated;
};

constexpr Network networks[] = {
    {"relu", halyard::Activation::relu, false},        {"gelu", halyard::Activation::gelu, false},
    {"swiglu", halyard::Activation::silu, true},       {"glu", halyard::Activation::sigmoid, true},
    {"bilinear", halyard::Activation::identity, true}, {"reglu", halyard::Activation::relu, true},
    {"geglu", halyard::Activation::gelu, true},
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
        return {256, 8, 2, 40, 6, 500, 5, {1e-3}};
    }
}

/** 8/3 d for a gated network, which has three matrices, has the parameters of 4 d for one with two: within 0.1 % at 256. */
std::int64_t width_of(const Network &network, std::int64_t d) {
    return network.gated ? 8 * d / 3 : 4 * d;
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

LanguageModel make_model(const Network &network, const Size &size, int vocabulary, std::uint64_t seed,
                         const halyard_context *context) {
    BlockShape shape;
    shape.d = size.d;
    shape.heads = size.heads;
    shape.ff = width_of(network, size.d);
    shape.causal = true;
    shape.activation = network.activation;
    shape.gated = network.gated;
    shape.ffn_biases = false;
    LanguageModel model(shape, size.layers, vocabulary, size.tokens, context);
    Normal normal(seed), normal_of_networks(seed + 1000000);
    Parameters shared = {&model.token_embedding, &model.position_embedding, &model.head}, of_networks;
    for (const auto &block : model.blocks) {
        const Parameters attention = block->of_attention(), own = block->of_network();
        shared.insert(shared.end(), attention.begin(), attention.end());
        of_networks.insert(of_networks.end(), own.begin(), own.end());
    }
    initialize_normal(shared, normal, 0.02);
    initialize_normal(of_networks, normal_of_networks, 0.02);
    return model;
}

std::int64_t count_of(const Parameters &parameters) {
    std::int64_t count = 0;
    for (const Parameter *parameter : parameters) {
        count += static_cast<std::int64_t>(parameter->value.size());
    }
    return count;
}

/** The share of hidden units that no token of the last batch made positive: ReLU gives their weights no gradient. */
double dead_share(const LanguageModel &model) {
    std::int64_t dead = 0, all = 0;
    for (const auto &block : model.blocks) {
        const Parameter &weight = block->gate ? block->gate->weight : block->up.weight;
        for (std::int64_t unit = 0; unit < weight.rows; unit++) {
            const auto row = weight.gradient.begin() + unit * weight.columns;
            dead += std::all_of(row, row + weight.columns, [](float x) { return x == 0; });
        }
        all += weight.rows;
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
    const Network &network;
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
    halyard::Context context;
    context.set_num_threads(1);
    LanguageModel model = make_model(run.network, size, source.vocabulary(), seed, context);
    Mean loss, floor, last_loss, last_floor;
    for (int step = 0; step < size.steps; step++) {
        if (Progress::is_interrupted()) {
            return;
        }
        const Batch batch = next_batch(reader, size);
        loss.add(model.gradients(batch.ids, batch.targets));
        floor.add(batch.floor);
        model.step(run.learning_rate * std::min(1.0, (step + 1.0) / warm_up));
        if ((step + 1) % interval == 0) {
            const double mean_loss = loss.take(), mean_floor = floor.take();
            run.curve.push_back({step + 1, mean_loss, mean_floor});
            if (step >= size.steps - last_steps) {
                last_loss.add(mean_loss);
                last_floor.add(mean_floor);
            }
        }
        progress.done(1, std::string("language model with ") + run.network.name + ", seed " +
                             std::to_string(run.seed + 1));
    }
    const Batch last = next_batch(reader, size);
    model.gradients(last.ids, last.targets);
    const bool can_die = run.network.activation == halyard::Activation::relu;
    run.loss = last_loss.take();
    run.floor = last_floor.take();
    run.dead = can_die ? dead_share(model) : std::numeric_limits<double>::quiet_NaN();
    run.is_complete = true;
}

/** Several runs side by side, of one thread each: they need not wait for each other, as loops of one run do. */
void train_all(std::vector<Run> &runs, int threads, const Size &size, const Source &source, Progress &progress) {
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
}

}  // namespace

std::vector<std::string> ablation_activations() {
    std::vector<std::string> names;
    for (const Network &network : networks) {
        names.emplace_back(network.name);
    }
    return names;
}

void ffn_ablation(const std::filesystem::path &directory, const AblationOptions &options) {
    Size size = size_of(options.training.effort);
    size.seeds = options.seeds > 0 ? options.seeds : size.seeds;
    const Source source(options.text);
    Csv models(directory / "ablation_models.csv",
               {"activation", "width", "parameters", "ffn_parameters", "ffn_parameters_with_biases"});
    std::vector<Network> chosen;
    for (const Network &network : networks) {
        if (std::find(options.activations.begin(), options.activations.end(), network.name) !=
            options.activations.end()) {
            chosen.push_back(network);
            LanguageModel model = make_model(network, size, source.vocabulary(), 0, nullptr);
            const std::int64_t of_network = count_of(model.blocks[0]->of_network());
            const std::int64_t width = width_of(network, size.d), biases = width * (network.gated ? 2 : 1) + size.d;
            models.line(network.name, width, count_of(model.parameters()), of_network, of_network + biases);
        }
    }
    models.close();
    Csv curve(directory / "ablation.csv", {"activation", "seed", "learning_rate", "step", "loss", "floor"});
    Csv final(directory / "ablation_final.csv", {"activation", "seed", "learning_rate", "loss", "floor", "dead_share"});
    Progress progress(static_cast<double>(chosen.size() * size.learning_rates.size()) * size.seeds * size.steps);
    std::vector<Run> runs;
    for (int seed = 0; seed < size.seeds; seed++) {
        for (const Network &network : chosen) {
            for (const double learning_rate : size.learning_rates) {
                runs.push_back({seed, network, learning_rate});
            }
        }
    }
    train_all(runs, options.training.threads, size, source, progress);
    for (const Run &run : runs) {
        for (const Run::Point &point : run.curve) {
            curve.line(run.network.name, run.seed, run.learning_rate, point.step, point.loss, point.floor);
        }
        if (run.is_complete) {
            final.line(run.network.name, run.seed, run.learning_rate, run.loss, run.floor, run.dead);
        }
    }
    curve.close();
    final.close();
}

}  // namespace experiments
