// Prints how well a model predicts given tokens and, beside a reference, how far its predictions are from that one's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <halyard/evaluate.hpp>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "progress.h"

namespace {

struct Arguments {
    std::string model, reference, ids, dtype = "auto", products = "auto";
    std::int64_t window = 0;
    int threads = 0;
};

const std::map<std::string, DLDataType> dtypes = {
    {"f32", halyard::element<float>::dtype},
    {"f16", halyard::element<halyard::f16>::dtype},
    {"bf16", halyard::element<halyard::bf16>::dtype},
};
const std::map<std::string, halyard::Products> products = {
    {"storage", halyard::Products::storage},
    {"full", halyard::Products::full},
    {"bf16", halyard::Products::bf16},
    {"int8", halyard::Products::int8},
};

/// All of a file, or of stdin.
std::string text_of(const std::string &name) {
    if (name == "-") {
        return {std::istreambuf_iterator<char>(std::cin), {}};
    }
    if (std::filesystem::is_directory(name)) {
        throw std::runtime_error(name + " is a folder; --ids needs a file");
    }
    std::ifstream file(name, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        throw std::runtime_error(name + " cannot be read");
    }
    return text;
}

/// Ids in decimal digits, with commas or white space between.
std::vector<std::int64_t> ids_of(const std::string &name) {
    constexpr std::string_view between = ", \t\r\n";
    const std::string text = text_of(name);
    std::vector<std::int64_t> ids;
    for (std::size_t at = text.find_first_not_of(between); at != std::string::npos;) {
        const std::size_t end = std::min(text.find_first_of(between, at), text.size());
        std::int64_t id = 0;
        const auto [rest, error] = std::from_chars(&text[at], text.data() + end, id);
        if (error != std::errc() || rest != text.data() + end || id < 0) {
            throw std::invalid_argument(name + ": '" + text.substr(at, std::min<std::size_t>(end - at, 40)) +
                                        "' is not a token id (word " + std::to_string(ids.size() + 1) +
                                        "); it needs decimal numbers with commas or spaces between");
        }
        ids.push_back(id);
        at = text.find_first_not_of(between, end);
    }
    return ids;
}

halyard::Model load(const std::string &path, const Arguments &arguments, const halyard_context *context) {
    halyard::LoadOptions options;
    options.context = context;
    const std::int64_t window = arguments.window != 0 ? arguments.window : halyard::EvaluateOptions::usual_window;
    options.max_positions = std::min(window, halyard::ModelConfig::load(path).max_position_embeddings);
    if (const auto dtype = dtypes.find(arguments.dtype); dtype != dtypes.end() && path == arguments.model) {
        options.unpacked_dtype = dtype->second;
    }
    options.progress = [progress = Progress("loading " + path)](auto done, auto total, const auto &) mutable {
        progress(done, total);
    };
    halyard::Model model = halyard::Model::load(path, options);
    std::printf("%s:", path.c_str());
    const char *separator = " ";
    for (const auto &[format, count] : model.matrix_formats()) {
        std::printf("%s%lld %s", separator, static_cast<long long>(count), format.c_str());
        separator = ", ";
    }
    std::printf("\n");
    return model;
}

void print(const char *name, const halyard::Mean &mean, double scale, const char *unit) {
    std::printf("  %-34s %11.6f +- %.6f%s\n", name, scale * mean.value, scale * mean.error, unit);
}

void print(const halyard::Evaluation &result) {
    std::printf("%lld predictions\n", static_cast<long long>(result.predictions));
    std::printf("  %-34s %11.4f\n", "perplexity", result.perplexity());
    print("loss", result.loss, 1, " nats");
    if (!result.comparison) {
        return;
    }
    const halyard::Comparison &beside = *result.comparison;
    std::printf("  %-34s %11.4f\n", "perplexity of the reference", result.reference_perplexity());
    print("loss above the reference's", beside.loss_difference, 1, " nats");
    print("KL divergence from it", beside.divergence, 1, " nats");
    std::printf("  %-34s %11.6f, %.6f, %.6f nats\n", "  median, 99 % of all, largest", beside.median_divergence,
                beside.divergence_99, beside.largest_divergence);
    print("same most likely token", beside.agreement, 100, " %");
}

void evaluate(const Arguments &arguments) {
    const std::vector<std::int64_t> ids = ids_of(arguments.ids);
    halyard::Context context;
    context.set_num_threads(arguments.threads);
    if (const auto chosen = products.find(arguments.products); chosen != products.end()) {
        context.set_products(chosen->second);
    }
    const halyard::Model model = load(arguments.model, arguments, context);
    std::optional<halyard::Model> reference;
    if (!arguments.reference.empty()) {
        reference = load(arguments.reference, arguments, context);
    }
    halyard::EvaluateOptions options;
    options.context = context;
    options.window = arguments.window;
    options.progress = Progress("predicting");
    print(halyard::evaluate(model, reference ? &*reference : nullptr, ids, options));
}

void declare(CLI::App &app, Arguments &arguments) {
    app.add_option("MODEL", arguments.model,
                   "a folder with config.json and model.safetensors, quantized or not, or a GGUF file")
        ->required();
    app.add_option("--ids", arguments.ids,
                   "a file of the text's token ids, in decimal with spaces, lines or commas between; - for stdin")
        ->required();
    app.add_option("--reference", arguments.reference,
                   "the model to compare with, usually the one that MODEL was quantized from");
    app.option_defaults()->always_capture_default();
    app.add_option(
           "--window", arguments.window,
           "tokens that are one text; the first of them is not predicted, and nothing before it is seen; 0: 512, or "
           "as many positions as the models have")
        ->check(CLI::Range(0, 1 << 24));
    app.add_option("--dtype", arguments.dtype, "f32, f16 or bf16: what MODEL's quantized weights become first")
        ->check(CLI::IsMember({"auto", "f32", "f16", "bf16"}));
    app.add_option("--products", arguments.products,
                   "storage, full, bf16 or int8: what is rounded before it is multiplied")
        ->check(CLI::IsMember({"auto", "storage", "full", "bf16", "int8"}));
    app.add_option("--threads", arguments.threads, "0 for all processors")->check(CLI::Range(0, 256));
}

}  // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    CLI::App app("Prints a model's perplexity over given token ids and, with --reference, the KL divergence of its "
                 "predictions from "
                 "another model's and how often both find the same token most likely.");
    declare(app, arguments);
    try {
        app.parse(argc, argv);
        evaluate(arguments);
        return 0;
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard-evaluate: %s\n", error.what());
        return 1;
    }
}
