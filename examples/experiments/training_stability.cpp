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
#include "training/block.h"

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

Stack empty_stack(const halyard_context *context) {
    BlockShape shape;
    shape.d = d;
    shape.ff = ff;
    return Stack(shape, 0, context);
}

/** Adds blocks with weights of `normal`: a deeper stack begins with the weights of a shallower one. */
void grow(Stack &stack, int layers, const std::string &start, Normal &normal) {
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

std::vector<float> random_rows(Normal &normal) {
    return normal.values(batch * tokens * d, 1);
}

/** Gradient norms of every block before any step. Drawing weights takes longest, so all depths and both norm positions share them. */
void write_gradients(const char *start, std::uint64_t seed, const std::vector<int> &depths,
                     const halyard_context *context, Csv &csv, Progress &progress) {
    Stack stack = empty_stack(context);
    Normal weights(seed), normal(seed + 1000);
    const std::vector<float> x = random_rows(normal), target = random_rows(normal);
    std::vector<float> dy;
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
                BlockParameters &block = *stack.blocks[static_cast<std::size_t>(layer)];
                csv.line(start, norm_position, layers, seed, layer, gradient_norm(block.parameters(), context),
                         gradient_norm({&block.down.weight}, context));
            }
            progress.done(layers, "gradients at the start");
        }
    }
}

void train(const Run &run, int steps, const halyard_context *context, Csv &csv, Progress &progress) {
    Stack stack = empty_stack(context);
    Normal weights(0), normal(1000);
    grow(stack, run.layers, run.start, weights);
    stack.set_pre_norm(std::string(run.norm_position) == "pre");
    std::vector<float> x, target, dy;
    for (int step = 0; step < steps && !Progress::is_interrupted(); step++) {
        if (step == 0 || std::string(run.data) == "fresh") {
            x = random_rows(normal);
            target = random_rows(normal);
        }
        const double loss = squared_error(stack.forward(x, tokens), target, dy);
        stack.backward(dy);
        csv.line(run.start, run.norm_position, run.layers, run.data, run.learning_rate, run.warm_up, step, loss,
                 gradient_norm(stack.blocks[0]->parameters(), context));
        adam_step(stack.parameters(), step + 1,
                  run.learning_rate * std::min(1.0, (step + 1.0) / std::max(1, run.warm_up)), context);
        stack.update();
        progress.done(run.layers,
                      std::string("training ") + run.norm_position + "-LN, " + std::to_string(run.layers) + " layers");
    }
}

}  // namespace

void training_stability(const std::filesystem::path &directory, const TrainingOptions &options) {
    const bool is_quick = options.effort == Effort::quick, is_full = options.effort == Effort::full;
    const int steps = is_quick ? 10 : is_full ? 200 : 150, seeds = is_full ? 3 : 1;
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
    halyard::Context context;
    context.set_num_threads(options.threads);
    Progress progress(work);
    Csv gradients(directory / "training_gradients.csv",
                  {"start", "norm_position", "layers", "seed", "layer", "gradient_norm", "ffn_down_gradient_norm"});
    for (const char *start : {"torch", "normal"}) {
        for (int seed = 0; seed < seeds && !Progress::is_interrupted(); seed++) {
            write_gradients(start, static_cast<std::uint64_t>(seed), depths_at_start, context, gradients, progress);
        }
    }
    gradients.close();
    Csv csv(directory / "training_stability.csv",
            {"start", "norm_position", "layers", "data", "learning_rate", "warm_up", "step", "loss", "gradient_norm"});
    for (const Run &run : runs) {
        train(run, steps, context, csv, progress);
    }
    csv.close();
}

}  // namespace experiments
