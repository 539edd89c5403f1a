// Experiment 5: gradients and losses of stacks with norms before or behind their sublayers, by depth.
//
// Each step has new N(0, 1) inputs and targets, so that nothing but the mean of the targets can be learnt: what the curves show is
// whether training is stable. With fixed ones a stack can learn them by heart.
#include <cmath>
#include <string>

#include "csv.h"
#include "experiments.h"
#include "normal.h"
#include "progress.h"
#include "training/adam.h"
#include "training/model.h"

namespace experiments {
namespace {

using namespace training;

constexpr std::int64_t batch = 4, tokens = 32, d = 256, ff = 4 * d;

struct Run {
    const char *start;          // of the weights: torch, or N(0, 0.02^2)
    const char *norm_position;  // pre, post
    int layers;
    const char *data;  // fresh or fixed
    double learning_rate;
    int warm_up;  // steps until that rate is reached
};

Stack<float> empty_stack() {
    BlockShape shape;
    shape.d = d;
    shape.ff = ff;
    return Stack<float>(shape, 0);
}

/** Adds blocks with weights of `normal`: a deeper stack begins with the weights of a shallower one. */
void grow(Stack<float> &stack, int layers, const std::string &start, Normal &normal) {
    auto uniform = [&normal] { return normal.uniform(); };
    const std::size_t before = stack.blocks.size();
    stack.grow(layers);
    for (std::size_t i = before; i < stack.blocks.size(); i++) {
        if (start == "torch") {
            initialize_as_torch(*stack.blocks[i], uniform);
        } else {
            initialize_normal(stack.blocks[i]->parameters(), normal, 0.02);
        }
    }
}

Matrix<float> random_rows(Normal &normal) {
    Matrix<float> x(batch * tokens, d);
    x.values = normal.values(batch * tokens * d, 1);
    return x;
}

/** Gradient norms of every block before any step. Drawing weights takes longest, so all depths and both norm positions share them. */
void write_gradients(const char *start, std::uint64_t seed, const std::vector<int> &depths, Csv &csv,
                     Progress &progress) {
    Stack<float> stack = empty_stack();
    Normal weights(seed), normal(seed + 1000);
    const Matrix<float> x = random_rows(normal), target = random_rows(normal);
    Matrix<float> dy;
    for (const int layers : depths) {
        grow(stack, layers, start, weights);
        for (const char *norm_position : {"pre", "post"}) {
            if (Progress::is_interrupted()) {
                return;
            }
            stack.set_pre_norm(std::string(norm_position) == "pre");
            squared_error(stack.forward(x, tokens), target, dy);
            stack.backward(dy);
            for (int layer = 0; layer < layers; layer++) {
                Block<float> &block = *stack.blocks[static_cast<std::size_t>(layer)];
                csv.line(start, norm_position, layers, seed, layer, gradient_norm(block.parameters()),
                         gradient_norm(Parameters<float>{&block.ffn.down.weight}));
            }
            progress.done(layers, "gradients at the start");
        }
    }
}

void train(const Run &run, int steps, Csv &csv, Progress &progress) {
    Stack<float> stack = empty_stack();
    Normal weights(0), normal(1000);
    grow(stack, run.layers, run.start, weights);
    stack.set_pre_norm(std::string(run.norm_position) == "pre");
    Adam<float> adam(stack.parameters());
    Matrix<float> x, target, dy;
    for (int step = 0; step < steps && !Progress::is_interrupted(); step++) {
        if (step == 0 || std::string(run.data) == "fresh") {
            x = random_rows(normal);
            target = random_rows(normal);
        }
        const double loss = squared_error(stack.forward(x, tokens), target, dy);
        stack.backward(dy);
        csv.line(run.start, run.norm_position, run.layers, run.data, run.learning_rate, run.warm_up, step, loss,
                 gradient_norm(stack.blocks[0]->parameters()));
        adam.step(run.learning_rate * std::min(1.0, (step + 1.0) / std::max(1, run.warm_up)));
        progress.done(run.layers,
                      std::string("training ") + run.norm_position + "-LN, " + std::to_string(run.layers) + " layers");
    }
}

}  // namespace

void training_stability(const std::filesystem::path &directory, const TrainingOptions &options) {
    const bool is_quick = options.effort == Effort::quick, is_full = options.effort == Effort::full;
    const int steps = is_quick ? 20 : 200, seeds = is_full ? 3 : 1;
    const std::vector<int> depths = is_quick ? std::vector{6, 12} : std::vector{6, 12, 24, 48};
    const std::vector<int> depths_at_start = is_quick ? std::vector{6, 12, 24} : std::vector{6, 12, 24, 48, 100};
    std::vector<Run> runs;
    for (const char *start : {"torch", "normal"}) {
        for (const char *norm_position : {"pre", "post"}) {
            for (const int layers : depths) {
                if (is_full || std::string(start) == "torch") {
                    runs.push_back({start, norm_position, layers, "fresh", 1e-4, 0});
                }
                if (is_full) {
                    runs.push_back({start, norm_position, layers, "fixed", 1e-4, 0});
                }
            }
        }
    }
    for (const int layers : is_full ? depths : std::vector<int>{}) {
        runs.push_back({"torch", "post", layers, "fixed", 1e-5, 0});
        runs.push_back({"torch", "post", layers, "fixed", 1e-4, 100});
    }
    double work = 0;
    for (const int layers : depths_at_start) {
        work += 4 * layers * seeds;
    }
    for (const Run &run : runs) {
        work += run.layers * steps;
    }
    set_threads(options.threads);
    Progress progress(work);
    Csv gradients(directory / "training_gradients.csv",
                  {"start", "norm_position", "layers", "seed", "layer", "gradient_norm", "ffn_down_gradient_norm"});
    for (const char *start : {"torch", "normal"}) {
        for (int seed = 0; seed < seeds && !Progress::is_interrupted(); seed++) {
            write_gradients(start, static_cast<std::uint64_t>(seed), depths_at_start, gradients, progress);
        }
    }
    gradients.close();
    Csv csv(directory / "training_stability.csv",
            {"start", "norm_position", "layers", "data", "learning_rate", "warm_up", "step", "loss", "gradient_norm"});
    for (const Run &run : runs) {
        train(run, steps, csv, progress);
    }
    csv.close();
}

}  // namespace experiments
