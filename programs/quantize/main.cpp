// Writes a model in the files of Hugging Face transformers or of GGUF as a GGUF file or a folder in other formats. The table of tensors goes to
// stdout, progress to stderr.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <halyard/quantize.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "progress.h"
#include "report.h"

namespace {

struct Arguments {
    std::string in, out;
    std::vector<std::string> tensors;
    halyard::QuantizeOptions options;
};

/// Checks an option: CLI11 alone reads 010 as 8.
std::string threads(const std::string &text) {
    const bool right = !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == std::string::npos &&
                       (text.size() == 1 || text[0] != '0') && std::stoi(text) <= 256;
    return right ? "" : "'" + text + "' is not an integer from 0 to 256, in decimal digits";
}

void declare(CLI::App &app, Arguments &arguments) {
    halyard::QuantizeOptions &options = arguments.options;
    app.add_option("IN", arguments.in,
                   "a folder with config.json and model.safetensors, as transformers saves them, or a GGUF file")
        ->required();
    app.add_option(
           "OUT", arguments.out,
           "what to write: a GGUF file if it ends in .gguf, and an old one is replaced when all is written; else a new "
           "folder with config.json and model.safetensors")
        ->required();
    app.add_option("--tensor", arguments.tensors,
                   "of a GGUF file: PATTERN=FORMAT, as in 'blk.*.ffn_down.weight=Q6_K': the format of matrices whose "
                   "names match; the first that matches counts; may be given again")
        ->take_all()
        ->allow_extra_args(false);
    app.add_option("--embedding", options.embedding,
                   "the format of the embedding, in a folder F32, F16 or BF16; by default as the others, or as it was "
                   "beside codes "
                   "of a folder");
    app.add_option(
        "--output", options.output,
        "the format of output.weight, or lm_head; by default as the others, or as it was beside codes of a folder");
    app.add_flag("--asymmetric", options.asymmetric,
                 "of codes of a folder: groups have zeros; those of awq-4 always do");
    app.add_flag("--dry-run", options.dry_run, "encode, print the table, and write nothing");
    app.option_defaults()->always_capture_default();
    app.add_option(
        "--format", options.format,
        "of matrices in a GGUF file: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, or a mix, "
        "Q4_K_M or Q5_K_M; in a folder: F32, F16, BF16, or codes: compressed-tensors-4, compressed-tensors-8, "
        "int8, gptq-4, gptq-8, gptq_v2-4, gptq_v2-8, awq-4");
    app.add_option("--group", options.group,
                   "of codes of a folder: inputs that share a scale, multiples of 16, or 0 or -1 for all");
    app.add_option("--scales", options.scales, "of codes of a folder: F16, BF16 or F32");
    app.add_option("--threads", options.threads, "0 for all processors")->check(threads);
}

void take_tensors(Arguments &arguments) {
    for (const std::string &text : arguments.tensors) {
        const std::size_t sign = text.rfind('=');
        if (sign == std::string::npos) {
            throw std::invalid_argument("--tensor: '" + text + "' is not PATTERN=FORMAT");
        }
        arguments.options.tensors.emplace_back(text.substr(0, sign), text.substr(sign + 1));
    }
}

}  // namespace

int main(int argc, char **argv) {
    Arguments arguments;
    CLI::App app("Writes a model as a GGUF file or a folder with its matrices in other formats, and says what errors "
                 "that makes.");
    declare(app, arguments);
    try {
        app.parse(argc, argv);
        take_tensors(arguments);
        arguments.options.progress = Progress("quantizing");
        print_report(halyard::quantize_model(arguments.in, arguments.out, arguments.options));
        return 0;
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard-quantize: %s\n", error.what());
        return 1;
    }
}
