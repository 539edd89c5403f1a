// Generates tokens with a model in the files of Hugging Face transformers: ids in, ids out, on processors or on a GPU.
// Tokens go to stdout as they come, progress and figures to stderr.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <halyard/model.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

struct Arguments {
    std::string folder;
    std::vector<std::int64_t> prompt;
    std::int64_t max_new_tokens = 32, max_positions = 0;
    int threads = 0;
    std::string cache_dtype = "f32", device = "cpu";
    bool ignore_eos = false;
    halyard::SamplingOptions sampling;
};

const std::map<std::string, DLDataType> dtypes = {
    {"f32", halyard::element<float>::dtype},
    {"f16", halyard::element<halyard::f16>::dtype},
    {"bf16", halyard::element<halyard::bf16>::dtype},
};

/// cpu, cuda or cuda:N.
std::optional<DLDevice> device_named(const std::string &name) {
    if (name == "cpu") {
        return DLDevice{kDLCPU, 0};
    }
    const std::string prefix = "cuda:";
    const bool numbered = name.compare(0, prefix.size(), prefix) == 0;
    const std::string number = numbered ? name.substr(prefix.size()) : "0";
    if ((name != "cuda" && !numbered) || number.empty() || number.size() > 3 ||
        number.find_first_not_of("0123456789") != std::string::npos) {
        return std::nullopt;
    }
    return DLDevice{kDLCUDA, std::stoi(number)};
}

void declare(CLI::App &app, Arguments &arguments) {
    app.add_option("FOLDER", arguments.folder, "config.json and model.safetensors, as transformers saves them")
        ->required();
    app.add_option("--prompt-ids", arguments.prompt, "the prompt's token ids; text is not tokenized")
        ->required()
        ->delimiter(',')
        ->allow_extra_args(false);
    app.add_option("--max-positions", arguments.max_positions,
                   "bound of prompt and new tokens; by default what the two need");
    app.add_flag("--ignore-eos", arguments.ignore_eos, "do not stop at the model's end token");

    app.option_defaults()->always_capture_default();
    app.add_option("--max-new-tokens", arguments.max_new_tokens, "tokens to generate, unless the model ends before")
        ->check(CLI::Range(1, 1 << 24));
    app.add_option("--temperature", arguments.sampling.temperature, "0 for the most likely token");
    app.add_option("--seed", arguments.sampling.seed, "of the random choice");
    app.add_option("--top-k", arguments.sampling.top_k, "choose among the k most likely tokens; 0 for all");
    app.add_option("--top-p", arguments.sampling.top_p, "choose among those that have this probability together");
    app.add_option("--cache-dtype", arguments.cache_dtype, "f32, f16 or bf16: how keys and values are kept")
        ->check(CLI::IsMember({"f32", "f16", "bf16"}));
    app.add_option("--device", arguments.device, "cpu, or cuda or cuda:N for an NVIDIA GPU")
        ->check([](const std::string &name) { return device_named(name) ? "" : "must be cpu, cuda or cuda:N"; });
    app.add_option("--threads", arguments.threads, "0 for all processors")->check(CLI::Range(0, 256));
}

/// One line that is written over on a terminal, or a line for every tenth.
void show_progress(std::int64_t done, std::int64_t total, const std::string &what) {
    static std::int64_t shown = -1;
    const std::int64_t percent = total > 0 ? 100 * done / total : 100;
    if (isatty(STDERR_FILENO) != 0) {
        std::fprintf(stderr, "\rpacking: %3lld %%  %-30s%s", static_cast<long long>(percent), what.c_str(),
                     done == total ? "\n" : "");
    } else if (percent / 10 > shown) {
        shown = percent / 10;
        std::fprintf(stderr, "packing: %lld %%\n", static_cast<long long>(percent));
    }
}

/// Bytes from a line of /proc/self/status, which are in KiB.
double memory(const std::string &name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word == name + ":") {
            double kibibytes = 0;
            status >> kibibytes;
            return 1024 * kibibytes;
        }
    }
    return 0;
}

class Clock {
public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void generate(const Arguments &arguments) {
    const auto prompt_size = static_cast<std::int64_t>(arguments.prompt.size());
    std::int64_t positions = arguments.max_positions;
    if (positions == 0) {
        // The last token is not read back.
        const std::int64_t needed = prompt_size + arguments.max_new_tokens - 1;
        const auto config = halyard::ModelConfig::load(std::filesystem::path(arguments.folder) / "config.json");
        positions = std::min(needed, config.max_position_embeddings);
    }
    halyard::Sampler sampler(arguments.sampling);
    halyard::Context context;
    context.set_num_threads(arguments.threads);
    halyard::LoadOptions options;
    options.context = context;
    options.max_positions = positions;
    options.device = *device_named(arguments.device);
    options.progress = show_progress;

    const Clock loading;
    const auto model = halyard::Model::load(arguments.folder, options);
    const double load_seconds = loading.seconds();
    auto cache = model.make_cache(0, dtypes.at(arguments.cache_dtype));
    std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
    const auto &ends = model.config().eos_token_ids;

    const Clock prompting;
    model.forward(arguments.prompt, cache, logits, context);
    const double prompt_seconds = prompting.seconds();

    const Clock decoding;
    std::int64_t count = 0;
    for (;;) {
        const std::int64_t token = sampler(logits);
        std::printf("%s%lld", count > 0 ? " " : "", static_cast<long long>(token));
        std::fflush(stdout);
        count++;
        const bool ended = !arguments.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
        if (ended || count == arguments.max_new_tokens || cache.length(0, 0) == positions) {
            break;
        }
        model.forward({token}, cache, logits, context);
    }
    const double decode_seconds = decoding.seconds();
    std::printf("\n");
    std::fflush(stdout);

    std::fprintf(stderr, "load: %.2f s; prompt: %lld tokens, %.1f tokens/s", load_seconds,
                 static_cast<long long>(prompt_size), static_cast<double>(prompt_size) / prompt_seconds);
    if (count > 1) {
        std::fprintf(stderr, "; decode: %lld tokens, %.1f tokens/s", static_cast<long long>(count - 1),
                     static_cast<double>(count - 1) / decode_seconds);
    }
    std::fprintf(stderr, "; resident memory: %.1f MB, at most %.1f MB\n", memory("VmRSS") / 1e6, memory("VmHWM") / 1e6);
}

}  // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    CLI::App app("Generates tokens with a model in the files of Hugging Face transformers. Takes and prints token ids; "
                 "a tokenizer.json in the folder is not used.");
    declare(app, arguments);
    try {
        app.parse(argc, argv);
        generate(arguments);
        return 0;
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "generate: %s\n", error.what());
        return 1;
    }
}
