// Generates tokens with a model in the files of Hugging Face transformers or of GGUF: ids in, ids out, on processors or on a GPU.
// Tokens go to stdout as they come, progress and figures to stderr.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <halyard/model.hpp>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Arguments {
    std::string model, prompt;
    std::int64_t max_new_tokens = 32;
    std::optional<std::int64_t> max_positions;
    int threads = 0;
    std::string cache_dtype = "auto", device = "cpu", isa = "auto", products = "auto", dtype = "auto";
    bool ignore_eos = false;
    halyard::SamplingOptions sampling;
};

const std::map<std::string, DLDataType> dtypes = {
    {"f32", halyard::element<float>::dtype},
    {"f16", halyard::element<halyard::f16>::dtype},
    {"bf16", halyard::element<halyard::bf16>::dtype},
};

constexpr std::int64_t max_int = std::numeric_limits<std::int64_t>::max();

/// What `text` is if it is nothing but decimal digits, without leading zeros. (CLI11 alone reads 010 as 8, and nothing
/// as 0.)
std::optional<std::uint64_t> decimal(const std::string &text) {
    std::uint64_t value = 0;
    const char *const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || (text.size() > 1 && text[0] == '0')) {
        return std::nullopt;
    }
    return value;
}

/// Checks an option.
auto integer(std::uint64_t least, std::uint64_t most) {
    return [=](const std::string &text) {
        const std::optional<std::uint64_t> value = decimal(text);
        return value && *value >= least && *value <= most
                   ? ""
                   : "'" + text + "' is not an integer from " + std::to_string(least) + " to " + std::to_string(most) +
                         ", in decimal digits";
    };
}

std::string number(const std::string &text) {
    const bool right = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
    return right ? "" : "'" + text + "' is not a decimal number";
}

/// cpu, cuda or cuda:N.
std::optional<DLDevice> device_named(const std::string &name) {
    if (name == "cpu") {
        return DLDevice{kDLCPU, 0};
    }
    const std::string prefix = "cuda:";
    const bool numbered = name.compare(0, prefix.size(), prefix) == 0;
    const auto ordinal = decimal(numbered ? name.substr(prefix.size()) : "0");
    if ((name != "cuda" && !numbered) || !ordinal || *ordinal > 999) {
        return std::nullopt;
    }
    return DLDevice{kDLCUDA, static_cast<int>(*ordinal)};
}

std::vector<halyard::Isa> supported_isas() {
    std::vector<halyard::Isa> all;
    for (int i = 0; i < halyard_isa_count(); i++) {
        const auto isa = static_cast<halyard::Isa>(halyard_isa_at(i));
        if (halyard::supported(isa)) {
            all.push_back(isa);
        }
    }
    return all;
}

/// Checks --isa.
std::string isa_or_auto(const std::string &name) {
    std::string names = "auto";
    for (const halyard::Isa isa : supported_isas()) {
        if (name == halyard::to_string(isa)) {
            return "";
        }
        names += std::string(", ") + halyard::to_string(isa);
    }
    return name == "auto" ? "" : "'" + name + "' is not one of " + names + ", which run here";
}

/// A context as the options ask for it.
halyard::Context make_context(const Arguments &arguments) {
    halyard::Context context;
    context.set_num_threads(arguments.threads);
    for (const halyard::Isa isa : supported_isas()) {
        if (arguments.isa == halyard::to_string(isa)) {
            context.set_max_isa(isa);
            if (context.isa() != isa) {
                throw std::invalid_argument("--isa: HALYARD_MAX_ISA allows " +
                                            std::string(halyard::to_string(context.isa())) + " at most");
            }
        }
    }
    if (arguments.products != "auto") {
        context.set_products(arguments.products == "full"   ? halyard::Products::full
                             : arguments.products == "bf16" ? halyard::Products::bf16
                             : arguments.products == "int8" ? halyard::Products::int8
                                                            : halyard::Products::storage);
    }
    return context;
}

/// The ids in `text`, all in a vocabulary of this size.
std::vector<std::int64_t> prompt_of(const std::string &text, std::int64_t vocab_size) {
    std::vector<std::int64_t> ids;
    std::size_t begin = 0, end = 0;
    do {
        end = std::min(text.find(',', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        const std::string wrong = integer(0, static_cast<std::uint64_t>(vocab_size) - 1)(word);
        if (!wrong.empty()) {
            throw std::invalid_argument("--prompt-ids: " + wrong + " (id " + std::to_string(ids.size() + 1) +
                                        "; the model has " + std::to_string(vocab_size) + " tokens)");
        }
        ids.push_back(static_cast<std::int64_t>(*decimal(word)));
        begin = end + 1;
    } while (end < text.size());
    return ids;
}

/// Answers --prompt.
void refuse_text(const std::string &) {
    throw CLI::ValidationError(
        "--prompt",
        "there is no tokenizer here: give token ids in --prompt-ids, as the model's own tokenizer makes them: "
        "python3 -c \"import sys, transformers as t; "
        "print(*t.AutoTokenizer.from_pretrained(sys.argv[1])(sys.argv[2]).input_ids, sep=',')\" MODEL TEXT");
}

void declare(CLI::App &app, Arguments &arguments) {
    app.add_option("MODEL", arguments.model,
                   "a folder with config.json and model.safetensors, as transformers saves them, or a GGUF file")
        ->required();
    app.add_option("--prompt-ids", arguments.prompt, "the prompt's token ids, as in 1,2,3; text is not tokenized")
        ->required();
    // Other programs take text, so it is answered rather than unknown.
    app.add_option_function<std::string>("--prompt", refuse_text)->group("");
    app.add_option("--max-positions", arguments.max_positions,
                   "bound of prompt and new tokens; by default what the two need")
        ->check(integer(1, max_int));
    app.add_flag("--ignore-eos", arguments.ignore_eos, "do not stop at the model's end token");

    app.option_defaults()->always_capture_default();
    app.add_option("--max-new-tokens", arguments.max_new_tokens, "tokens to generate, unless the model ends before")
        ->check(integer(1, 1 << 24));
    app.add_option("--temperature", arguments.sampling.temperature, "0 for the most likely token")->check(number);
    app.add_option("--seed", arguments.sampling.seed, "of the random choice")
        ->check(integer(0, std::numeric_limits<std::uint64_t>::max()));
    app.add_option("--top-k", arguments.sampling.top_k, "choose among the k most likely tokens; 0 for all")
        ->check(integer(0, max_int));
    app.add_option("--top-p", arguments.sampling.top_p, "choose among those that have this probability together")
        ->check(number);
    app.add_option("--cache-dtype", arguments.cache_dtype,
                   "f32, f16 or bf16: how keys and values are kept; auto: as the embedding")
        ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
    app.add_option("--dtype", arguments.dtype,
                   "f32, f16 or bf16: what the quantized weights of a file become; auto: on processors they stay "
                   "quantized, on a GPU they become f32")
        ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
    app.add_option("--isa", arguments.isa,
                   "the instruction set, as avx2 or neon; auto: the best that this processor has and HALYARD_MAX_ISA "
                   "allows")
        ->check(isa_or_auto);
    app.add_option(
           "--products", arguments.products,
           "storage: a model in bf16 rounds to bf16 what it multiplies; full: it rounds nothing between products; "
           "bf16: with f32 activations it rounds too; int8: activations go to 8 bits where weights are quantized; "
           "auto: as HALYARD_PRODUCTS says, else storage")
        ->check(CLI::IsMember({"auto", "storage", "full", "bf16", "int8"}));
    app.add_option("--device", arguments.device, "cpu, or cuda or cuda:N for an NVIDIA GPU")
        ->check([](const std::string &name) { return device_named(name) ? "" : "must be cpu, cuda or cuda:N"; });
    app.add_option("--threads", arguments.threads, "0 for all processors")->check(integer(0, 256));
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

void flush() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw std::runtime_error("the tokens cannot be written");
    }
}

void generate(const Arguments &arguments) {
    halyard::Sampler sampler(arguments.sampling);
    const auto config = halyard::ModelConfig::load(arguments.model);
    const std::vector<std::int64_t> prompt = prompt_of(arguments.prompt, config.stack.vocab_size);
    const auto prompt_size = static_cast<std::int64_t>(prompt.size());
    // The last token is not read back.
    const std::int64_t needed = prompt_size + arguments.max_new_tokens - 1;
    const std::int64_t positions = arguments.max_positions.value_or(std::min(needed, config.max_position_embeddings));
    if (prompt_size > positions) {
        throw std::invalid_argument("--prompt-ids: the prompt has " + std::to_string(prompt_size) +
                                    " tokens, and there are " + std::to_string(positions) + " positions");
    }
    const halyard::Context context = make_context(arguments);
    halyard::LoadOptions options;
    options.context = context;
    options.max_positions = positions;
    options.device = *device_named(arguments.device);
    if (const auto dtype = dtypes.find(arguments.dtype); dtype != dtypes.end()) {
        options.unpacked_dtype = dtype->second;
    }
    options.progress = show_progress;

    const Clock loading;
    const auto model = halyard::Model::load(arguments.model, options);
    const double load_seconds = loading.seconds();
    std::fprintf(stderr, "matrices:");
    for (const auto &[format, count] : model.matrix_formats()) {
        std::fprintf(stderr, " %lld %s,", static_cast<long long>(count), format.c_str());
    }
    const bool in_8_bits = context.products() == halyard::Products::int8 && arguments.device == "cpu";
    std::fprintf(stderr, " multiplied with %s%s\n", halyard::to_string(context.isa()),
                 in_8_bits ? ", activations in 8 bits where weights are quantized" : "");
    const auto cache_dtype = dtypes.find(arguments.cache_dtype);
    auto cache = model.make_cache(0, cache_dtype != dtypes.end() ? std::optional(cache_dtype->second) : std::nullopt);
    std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
    const auto &ends = model.config().eos_token_ids;

    const Clock prompting;
    model.forward(prompt, cache, logits, context);
    const double prompt_seconds = prompting.seconds();

    const Clock decoding;
    std::int64_t count = 0;
    for (;;) {
        const std::int64_t token = sampler(logits);
        std::printf("%s%lld", count > 0 ? " " : "", static_cast<long long>(token));
        flush();
        count++;
        const bool ended = !arguments.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
        if (ended || count == arguments.max_new_tokens) {
            break;
        }
        if (cache.length(0, 0) == positions) {
            std::fprintf(stderr, "%s: stopped after %lld of %lld tokens, because all %lld positions are filled\n",
                         program_invocation_short_name, static_cast<long long>(count),
                         static_cast<long long>(arguments.max_new_tokens), static_cast<long long>(positions));
            break;
        }
        model.forward({token}, cache, logits, context);
    }
    const double decode_seconds = decoding.seconds();
    std::printf("\n");
    flush();

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
    CLI::App app("Generates tokens with a model in the files of Hugging Face transformers or of GGUF. Takes and prints "
                 "token ids; the model's tokenizer is not used.");
    declare(app, arguments);
    try {
        app.parse(argc, argv);
        generate(arguments);
        return 0;
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.what());
        return 1;
    }
}
