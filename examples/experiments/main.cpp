// Runs the experiments and leaves their results as CSV files: `experiments --help`. plot.py makes pictures of them.
#include "csv.h"
#include "experiments.h"

#include <CLI/CLI.hpp>
#include <halyard/halyard.hpp>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

namespace {

using namespace experiments;

std::string processor() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) == 0) {
            return line.substr(line.find(": ") + 2);
        }
    }
    return "unknown";
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
    return text;
}

/** What the results were made with. */
void write_run(const std::filesystem::path &directory) {
    halyard::Context context;
    Csv csv(directory / "run.csv", {"what", "value"});
    csv.line("version", halyard::version());
    csv.line("instruction set", halyard::to_string(context.isa()));
    csv.line("processor", processor());
    csv.line("threads", context.num_threads());
    csv.line("date", utc_now());
    csv.close();
}

void add_training_options(CLI::App &command, TrainingOptions &options) {
    command.add_flag_callback(
        "--quick", [&] { options.effort = Effort::quick; }, "what takes a minute");
    command.add_flag_callback(
        "--full", [&] { options.effort = Effort::full; }, "all of it, which takes long");
    command.add_option("--threads", options.threads, "threads, on which no result depends; 0: all")
        ->check(CLI::Range(0, 256))
        ->capture_default_str();
}

}  // namespace

int main(int count, char **arguments) {
#ifdef __GLIBC__
    // Training frees and takes the same matrices in each step: memory that is given back would be cleared anew.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
    CLI::App app("Experiments with the layers of a transformer. Without a name, all of them.");
    std::string output = ".";
    app.add_option("--output", output, "directory of the CSV files, made if it is not there")->capture_default_str();
    app.require_subcommand(0, 0);
    app.fallthrough();

    ActivationNormOptions depth;
    auto *depth_command = app.add_subcommand("depth", "norm, mean and deviation of the activations by depth");
    depth_command->add_option("--seeds", depth.seeds, "sets of weights")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    depth_command->add_option("--layers", depth.layers, "blocks")->check(CLI::Range(1, 100))->capture_default_str();

    NormSpeedOptions speed;
    auto *norms_command = app.add_subcommand("norms", "speed and operations of RMSNorm and LayerNorm");
    norms_command->add_option("--rounds", speed.rounds, "samples of each time")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    norms_command->add_option("--tokens", speed.tokens, "rows of the case that is in no cache")
        ->check(CLI::Range(1, 1 << 24))
        ->capture_default_str();
    norms_command->add_option("--threads", speed.threads, "threads; 0: all")
        ->check(CLI::Range(0, 256))
        ->capture_default_str();

    auto *ffn_command = app.add_subcommand("ffn", "feed-forward networks: widths, parameters, gates");
    auto *activations_command = app.add_subcommand("activations", "activations and their derivatives");

    TrainingOptions training;
    auto *training_command =
        app.add_subcommand("training", "gradients and losses of Pre-LN and Post-LN stacks by depth");
    add_training_options(*training_command, training);

    AblationOptions ablation;
    auto *ablation_command =
        app.add_subcommand("ablation", "language models with ReLU, GELU and SwiGLU, at equal parameters");
    add_training_options(*ablation_command, ablation.training);
    ablation_command->add_option("--seeds", ablation.seeds, "runs of each activation; 0: as many as there is time for")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str();
    ablation_command
        ->add_option("--activations", ablation.activations, "activations of the networks, with commas between them")
        ->delimiter(',')
        ->check(CLI::IsMember(ablation_activations()))
        ->capture_default_str();
    ablation_command
        ->add_option("--text", ablation.text, "a file to learn, byte by byte, in place of the made-up language")
        ->check(CLI::ExistingFile);
    TrainingOptions quantizing;
    auto *quantization_command =
        app.add_subcommand("quantization", "a trained language model in every format of GGUF beside itself");
    add_training_options(*quantization_command, quantizing);
    CLI11_PARSE(app, count, arguments);

    const bool all = app.get_subcommands().empty();
    try {
        std::filesystem::create_directories(output);
        write_run(output);
        if (all || depth_command->parsed()) {
            activation_norm(output, depth);
        }
        if (all || norms_command->parsed()) {
            norm_speed(output, speed);
        }
        if (all || ffn_command->parsed()) {
            ffn_shapes(output);
        }
        if (all || activations_command->parsed()) {
            activation_curves(output);
        }
        if (all) {  // takes seconds otherwise
            training.effort = ablation.training.effort = quantizing.effort = Effort::quick;
        }
        if (all || training_command->parsed()) {
            training_stability(output, training);
        }
        if (all || ablation_command->parsed()) {
            ffn_ablation(output, ablation);
        }
        if (all || quantization_command->parsed()) {
            quantization(output, quantizing);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "experiments: %s\n", error.what());
        return 1;
    }
}
