// Experiment 2, the operations and parameters: norms as texts write them and as this library computes them, run on
// numbers that count, beside the counts that texts give.
//
// The library's sums go over virtual lanes (docs/numerics.md): feature i to lane i mod L, then the lanes by halves. The
// algorithms below follow it step by step, so that their results have its bits, which norm_operations.csv shows by the
// largest difference.
#include "norm_operations.h"

#include "csv.h"
#include "normal.h"
#include "operation_counts.h"

#include <halyard/halyard.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace experiments {
namespace {

constexpr float eps = 1e-5f;

/** The tensors of a norm of one row. */
struct Operands {
    Counts &counts;
    CountedRow x, weight, bias, y;
};

using Lanes = std::vector<Counted>;

/** The sum of the lanes, by halves. */
Counted sum_of(Lanes lanes) {
    for (std::size_t half = lanes.size() / 2; half >= 1; half /= 2) {
        for (std::size_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] + lanes[i + half];
        }
    }
    return lanes[0];
}

// ---- as texts write them ----

/** Three passes: mean, variance, result. */
void textbook_layer_norm(Operands &o) {
    const std::size_t d = o.x.size();
    const Counted width = o.x.constant(static_cast<double>(d));
    Counted sum = o.x.constant(0), squares = sum;
    for (std::size_t i = 0; i < d; i++) {
        sum = sum + o.x.load(i);
    }
    const Counted mean = sum / width;
    for (std::size_t i = 0; i < d; i++) {
        const Counted centred = o.x.load(i) - mean;
        squares = squares + centred * centred;
    }
    const Counted scale = o.x.constant(1) / sqrt(squares / width + o.x.constant(eps));
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.weight.load(i) * ((o.x.load(i) - mean) * scale) + o.bias.load(i));
    }
}

/** Two passes: mean square, result. */
void textbook_rms_norm(Operands &o) {
    const std::size_t d = o.x.size();
    Counted squares = o.x.constant(0);
    for (std::size_t i = 0; i < d; i++) {
        const Counted feature = o.x.load(i);
        squares = squares + feature * feature;
    }
    const Counted mean_square = squares / o.x.constant(static_cast<double>(d));
    const Counted scale = o.x.constant(1) / sqrt(mean_square + o.x.constant(eps));
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.weight.load(i) * (o.x.load(i) * scale));
    }
}

// ---- as lists of operations in texts have them, each a pass over the row or one number ----

using Steps = std::vector<std::function<void()>>;

void run(Operands &o, const Steps &steps) {
    for (const std::function<void()> &step : steps) {
        step();
    }
    o.counts.steps = static_cast<std::int64_t>(steps.size());
}

/** Calls `feature(i)` for each feature. */
template<class Feature>
std::function<void()> of_each(const Operands &o, const Feature &feature) {
    return [&o, feature] {
        for (std::size_t i = 0; i < o.x.size(); i++) {
            feature(i);
        }
    };
}

/** A lesson's: mean, subtract, variance, root, divide, gain, bias. */
void lesson_layer_norm(Operands &o) {
    const Counted width = o.x.constant(static_cast<double>(o.x.size())), zero = o.x.constant(0);
    Counted mean = zero, variance = zero, root = zero;
    run(o, {[&] {
                of_each(o, [&](std::size_t i) { mean = mean + o.x.load(i); })();
                mean = mean / width;
            },
            of_each(o, [&](std::size_t i) { o.y.store(i, o.x.load(i) - mean); }),
            [&] {
                of_each(o, [&](std::size_t i) { variance = variance + o.y.load(i) * o.y.load(i); })();
                variance = variance / width;
            },
            [&] { root = sqrt(variance + o.x.constant(eps)); },
            of_each(o, [&](std::size_t i) { o.y.store(i, o.y.load(i) / root); }),
            of_each(o, [&](std::size_t i) { o.y.store(i, o.y.load(i) * o.weight.load(i)); }),
            of_each(o, [&](std::size_t i) { o.y.store(i, o.y.load(i) + o.bias.load(i)); })});
}

/** That lesson counts: mean of squares, root, divide, gain. */
void lesson_rms_norm(Operands &o) {
    const Counted zero = o.x.constant(0);
    Counted mean_square = zero, root = zero;
    run(o, {[&] {
                of_each(o, [&](std::size_t i) { mean_square = mean_square + o.x.load(i) * o.x.load(i); })();
                mean_square = mean_square / o.x.constant(static_cast<double>(o.x.size()));
            },
            [&] { root = sqrt(mean_square + o.x.constant(eps)); },
            of_each(o, [&](std::size_t i) { o.y.store(i, o.x.load(i) / root); }),
            of_each(o, [&](std::size_t i) { o.y.store(i, o.y.load(i) * o.weight.load(i)); })});
}

/** A notebook's: d additions; d subtractions; d multiplications and d additions; d subtractions and d divisions; 2 d for
 *  gain and bias. It subtracts the mean twice. */
void notebook_layer_norm(Operands &o) {
    const Counted width = o.x.constant(static_cast<double>(o.x.size())), zero = o.x.constant(0);
    Counted sum = zero, squares = zero;
    run(o, {of_each(o, [&](std::size_t i) { sum = sum + o.x.load(i); }),
            [&] {
                sum = sum / width;
                of_each(o, [&](std::size_t i) { o.y.store(i, o.x.load(i) - sum); })();
            },
            of_each(o, [&](std::size_t i) { squares = squares + o.y.load(i) * o.y.load(i); }),
            [&] {
                const Counted root = sqrt(squares / width + o.x.constant(eps));
                of_each(o, [&](std::size_t i) { o.y.store(i, (o.x.load(i) - sum) / root); })();
            },
            of_each(o, [&](std::size_t i) { o.y.store(i, o.y.load(i) * o.weight.load(i) + o.bias.load(i)); })});
}

// ---- as the library computes them ----

/** Two passes: both moments of x - pivot, the pivot being the mean of the first 64 features; result. */
void library_layer_norm(Operands &o) {
    const std::size_t d = o.x.size(), pivot_features = std::min<std::size_t>(d, 64);
    const Counted zero = o.x.constant(0), one = o.x.constant(1);
    const Counted per_feature = one / o.x.constant(static_cast<double>(d));

    Lanes pivot_lanes(64, zero);
    for (std::size_t i = 0; i < pivot_features; i++) {
        pivot_lanes[i] = pivot_lanes[i] + o.x.load(i);
    }
    const Counted pivot = sum_of(pivot_lanes) / o.x.constant(static_cast<double>(pivot_features));

    Lanes sums(32, zero), squares(32, zero);
    for (std::size_t i = 0; i < d; i++) {
        const Counted e = o.x.load(i) - pivot;
        sums[i % 32] = sums[i % 32] + e;
        squares[i % 32] = fma(e, e, squares[i % 32]);
    }
    const Counted mean_e = sum_of(sums) * per_feature;
    const Counted variance = max(sum_of(squares) * per_feature - mean_e * mean_e, zero);
    const Counted scale = one / sqrt(variance + o.x.constant(eps));
    const Counted shift = -mean_e * scale;
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, fma(fma(o.x.load(i) - pivot, scale, shift), o.weight.load(i), o.bias.load(i)));
    }
}

/** Two passes: mean square of the first `moment_features`, result. */
void library_rms_norm(Operands &o, std::size_t moment_features) {
    const std::size_t d = o.x.size();
    const Counted zero = o.x.constant(0), one = o.x.constant(1);
    const Counted per_feature = one / o.x.constant(static_cast<double>(moment_features));
    Lanes squares(64, zero);
    for (std::size_t i = 0; i < moment_features; i++) {
        const Counted feature = o.x.load(i);
        squares[i % 64] = fma(feature, feature, squares[i % 64]);
    }
    const Counted scale = one / sqrt(sum_of(squares) * per_feature + o.x.constant(eps));
    const Counted offset = zero;  // 1 for weights that are stored as their difference from one
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.x.load(i) * scale * (o.weight.load(i) + offset));
    }
}

float largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); i++) {
        largest = std::max(largest, std::fabs(a[i] - b[i]));
    }
    return largest;
}

/** What an algorithm took. */
struct Result {
    Counts counts;
    std::int64_t parameters;  // elements of weight and bias that it read
};

// ---- models ----

/** A model whose blocks are those of Llama. */
struct Llama {
    const char *name;
    std::int64_t blocks, d, ff, key_values, vocabulary;

    /** Two of each block, and the last one. */
    std::int64_t norms() const { return 2 * blocks + 1; }
    /** What LayerNorms in place of its RMSNorms would have besides. */
    std::int64_t dropped_biases() const { return norms() * d; }
    std::int64_t parameters() const {
        const std::int64_t attention = 2 * d * d + 2 * d * key_values, network = 3 * d * ff;
        return 2 * vocabulary * d + blocks * (attention + network) + norms() * d;
    }
};

constexpr Llama llamas[] = {
    {"Llama 3 8B", 32, 4096, 14336, 1024, 128256},
    {"Llama 3 70B", 80, 8192, 28672, 1024, 128256},
    {"Llama 3.1 405B", 126, 16384, 53248, 1024, 128256},
};

void write_parameters(const std::filesystem::path &directory) {
    Csv csv(directory / "norm_parameters.csv", {"model", "blocks", "d", "norms", "dropped_biases", "parameters"});
    for (const Llama &model : llamas) {
        csv.line(model.name, model.blocks, model.d, model.norms(), model.dropped_biases(), model.parameters());
    }
    csv.close();
}

// ---- what texts say ----

void write_published(const std::filesystem::path &directory, std::int64_t d,
                     const std::map<std::string, Result> &counted) {
    const auto per_feature = [&](const char *name) {
        return static_cast<double>(counted.at(name).counts.flops()) / static_cast<double>(d);
    };
    const auto steps = [&](const char *name) { return counted.at(name).counts.steps; };
    const auto parameters_per_feature = [&](const char *name) { return counted.at(name).parameters / d; };
    const char *const layer = "LayerNorm, textbook", *const rms = "RMSNorm, textbook";
    const Llama &llama = llamas[0];

    Csv csv(directory / "norm_published.csv", {"source", "what", "published", "here"});
    csv.line("a notebook", "operations of LayerNorm per feature", 6, per_feature(layer));
    csv.line("a notebook", "the same, by its own list of steps", 6, per_feature("LayerNorm, a notebook's list"));
    csv.line("a notebook", "operations of RMSNorm per feature", 4, per_feature(rms));
    csv.line("a notebook", "fewer operations, %", 33, 100 * (1 - per_feature(rms) / per_feature(layer)));
    csv.line("a lesson", "steps of LayerNorm", 7, steps("LayerNorm, a lesson's list"));
    csv.line("a lesson", "steps of RMSNorm", 4, steps("RMSNorm, a lesson's list"));
    csv.line("several", "parameters of LayerNorm per feature", 2, parameters_per_feature(layer));
    csv.line("several", "parameters of RMSNorm per feature", 1, parameters_per_feature(rms));
    csv.line("a text", "norms of Llama 3 8B", 64, llama.norms());
    csv.line("a text", "biases that they do without, at least", 1'000'000, llama.dropped_biases());
    csv.close();
}

}  // namespace

void write_norm_operations(const std::filesystem::path &directory, std::int64_t d, float partial) {
    Normal normal(1);
    const std::vector<float> x = normal.values(d, 1), weight = normal.values(d, 1), bias = normal.values(d, 1);
    std::vector<float> layer(x.size()), rms(x.size()), partial_rms(x.size());
    halyard::layer_norm(x, weight, bias, eps, layer);
    halyard::rms_norm(x, weight, eps, rms);
    halyard::partial_rms_norm(x, weight, eps, 0, partial, partial_rms);
    const auto partial_features =
        static_cast<std::size_t>(std::ceil(static_cast<double>(partial) * static_cast<double>(d)));

    std::map<std::string, Result> counted;
    Csv csv(directory / "norm_operations.csv",
            {"algorithm", "d", "additions", "multiplications", "fused", "divisions", "roots", "flops", "loads",
             "stores", "steps", "parameters", "largest_difference"});
    const auto line = [&](const char *name, const auto &algorithm, const std::vector<float> &result) {
        Counts counts;
        Operands operands{
            counts, {x, counts}, {weight, counts}, {bias, counts}, {std::vector<float>(x.size()), counts}};
        algorithm(operands);
        const std::int64_t parameters = operands.weight.elements_read() + operands.bias.elements_read();
        csv.line(name, d, counts.additions, counts.multiplications, counts.fused, counts.divisions, counts.roots,
                 counts.flops(), counts.loads, counts.stores, counts.steps, parameters,
                 largest_difference(operands.y.numbers(), result));
        counted[name] = {counts, parameters};
    };
    line("LayerNorm, textbook", textbook_layer_norm, layer);
    line("RMSNorm, textbook", textbook_rms_norm, rms);
    line("LayerNorm, a notebook's list", notebook_layer_norm, layer);
    line("LayerNorm, a lesson's list", lesson_layer_norm, layer);
    line("RMSNorm, a lesson's list", lesson_rms_norm, rms);
    line("LayerNorm", library_layer_norm, layer);
    line(
        "RMSNorm", [&](Operands &o) { library_rms_norm(o, o.x.size()); }, rms);
    line(
        "pRMSNorm", [&](Operands &o) { library_rms_norm(o, partial_features); }, partial_rms);
    csv.close();
    write_parameters(directory);
    write_published(directory, d, counted);
}

}  // namespace experiments
