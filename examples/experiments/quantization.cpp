// Experiment 7: what quantizing a trained model costs. A language model of GPT-2's form learns the grammar, and is then saved, written
// in each format of GGUF by halyard::quantize_model, and compared with itself by halyard::evaluate on texts not seen before, for some
// formats with activations in 8 bits too.
#include <cstring>
#include <fstream>
#include <halyard/evaluate.hpp>
#include <halyard/quantize.hpp>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
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

constexpr std::int64_t width = 256, heads = 8, positions = 64;  // rows of 256 are whole blocks of every format

struct Size {
    int layers, steps, texts;  // texts of `positions` tokens that are predicted
    std::int64_t batch;
};

Size size_of(Effort effort) {
    switch (effort) {
    case Effort::quick:
        return {2, 100, 16, 4};
    case Effort::full:
        return {6, 2000, 512, 8};
    default:
        return {6, 500, 256, 4};
    }
}

LanguageModel trained_model(const Size &size, const halyard_context *context, Progress &progress) {
    BlockShape shape;
    shape.d = width;
    shape.heads = heads;
    shape.ff = 4 * width;
    shape.causal = true;
    shape.activation = halyard::Activation::gelu_tanh;
    LanguageModel model(shape, size.layers, Grammar::vocabulary, positions, context);
    Normal normal(1);
    initialize_normal(model.parameters(), normal, 0.02);
    Grammar grammar(1);
    for (int step = 0; step < size.steps && !Progress::is_interrupted(); step++) {
        std::vector<int> ids, targets;
        for (std::int64_t i = 0; i < size.batch; i++) {
            const std::vector<int> tokens = grammar.text(positions + 1).tokens;
            ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
            targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
        }
        model.gradients(ids, targets);
        constexpr double learning_rate = 1e-3, warm_up = 50;
        model.step(learning_rate * std::min(1.0, (step + 1) / warm_up));
        progress.done(1, "training a model to be quantized");
    }
    return model;
}

/** A tensor of the file. */
struct SavedTensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
};

/** By the names of transformers' GPT2LMHeadModel. */
std::map<std::string, SavedTensor> tensors_of(const LanguageModel &model) {
    std::map<std::string, SavedTensor> tensors;
    const auto add = [&](const std::string &name, const Parameter &parameter) {
        tensors[name] = {parameter.rows == 1 ? std::vector{parameter.columns}
                                             : std::vector{parameter.rows, parameter.columns},
                         parameter.value};
    };
    const auto add_linear = [&](const std::string &name, const Linear &linear) {
        const std::int64_t out = linear.weight.rows, in = linear.weight.columns;
        SavedTensor transposed = {{in, out}, std::vector<float>(linear.weight.value.size())};
        for (std::int64_t i = 0; i < in * out; i++) {
            transposed.values[static_cast<std::size_t>(i % in * out + i / in)] =
                linear.weight.value[static_cast<std::size_t>(i)];
        }
        tensors[name + ".weight"] = std::move(transposed);
        add(name + ".bias", linear.bias);
    };
    const auto add_norm = [&](const std::string &name, const NormParameters &norm) {
        add(name + ".weight", norm.weight);
        add(name + ".bias", norm.bias);
    };
    for (std::size_t i = 0; i < model.blocks.size(); i++) {
        const BlockParameters &block = *model.blocks[i];
        const std::string prefix = "transformer.h." + std::to_string(i) + ".";
        add_norm(prefix + "ln_1", block.norm1);
        add_linear(prefix + "attn.c_attn", block.qkv);
        add_linear(prefix + "attn.c_proj", block.out);
        add_norm(prefix + "ln_2", block.norm2);
        add_linear(prefix + "mlp.c_fc", block.up);
        add_linear(prefix + "mlp.c_proj", block.down);
    }
    add_norm("transformer.ln_f", model.last_norm);
    add("transformer.wte.weight", model.token_embedding);
    add("transformer.wpe.weight", model.position_embedding);
    add("lm_head.weight", model.head);
    return tensors;
}

/** config.json and model.safetensors. */
void save(const LanguageModel &model, const std::filesystem::path &folder) {
    std::filesystem::create_directories(folder);
    std::ofstream config(folder / "config.json");
    config
        << R"({"architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "tie_word_embeddings": false, "n_embd": )"
        << width << ", \"n_head\": " << heads << ", \"n_layer\": " << model.blocks.size()
        << ", \"n_positions\": " << positions << ", \"vocab_size\": " << Grammar::vocabulary
        << ", \"layer_norm_epsilon\": 1e-5}\n";
    std::string header, bytes;
    for (const auto &[name, tensor] : tensors_of(model)) {
        std::string shape;
        for (const std::int64_t extent : tensor.shape) {
            shape += (shape.empty() ? "" : ",") + std::to_string(extent);
        }
        const std::size_t begin = bytes.size(), size = tensor.values.size() * sizeof(float);
        bytes.append(reinterpret_cast<const char *>(tensor.values.data()), size);
        header += (header.empty() ? "{" : ",") + ("\"" + name + R"(":{"dtype":"F32","shape":[)" + shape) +
                  R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(begin + size) + "]}";
    }
    header += "}";
    std::ofstream file(folder / "model.safetensors", std::ios::binary);
    const std::uint64_t length = header.size();
    file.write(reinterpret_cast<const char *>(&length), sizeof(length));
    file << header << bytes;
    config.close();
    file.close();
    if (!config || !file) {
        throw std::runtime_error("cannot write the model to " + folder.string());
    }
}

std::vector<std::int64_t> unseen_ids(const Size &size) {
    Grammar grammar(1000001);
    std::vector<std::int64_t> ids;
    for (int i = 0; i < size.texts; i++) {
        for (const int token : grammar.text(static_cast<std::size_t>(positions)).tokens) {
            ids.push_back(token);
        }
    }
    return ids;
}

/** Bytes of the matrices. */
std::int64_t bytes_of(const std::vector<halyard::QuantizedTensor> &tensors) {
    std::int64_t bytes = 0;
    for (const halyard::QuantizedTensor &tensor : tensors) {
        bytes += tensor.shape.size() > 1 ? tensor.bytes_after : 0;
    }
    return bytes;
}

}  // namespace

void quantization(const std::filesystem::path &directory, const TrainingOptions &options) {
    const Size size = size_of(options.effort);
    const std::vector<std::string> formats = {"F32",  "BF16", "F16",    "Q8_0", "Q6_K", "Q5_1", "Q5_K_M",
                                              "Q5_K", "Q5_0", "Q4_K_M", "Q4_1", "Q4_K", "Q4_0"};
    halyard::Context context;
    context.set_num_threads(options.threads);
    Progress progress(size.steps + 10.0 * static_cast<double>(formats.size()));
    const LanguageModel model = trained_model(size, context, progress);
    const std::filesystem::path folder = directory / "quantization_model";
    save(model, folder);
    halyard::LoadOptions load;
    load.context = context;
    const halyard::Model reference = halyard::Model::load(folder, load);
    const std::vector<std::int64_t> ids = unseen_ids(size);
    halyard::EvaluateOptions evaluate;
    evaluate.context = context;
    evaluate.window = positions;
    const std::set<std::string> also_in_8_bits = {"Q8_0", "Q6_K", "Q4_K_M", "Q4_0"};

    Csv csv(directory / "quantization.csv",
            {"format", "activation_bits", "matrix_bytes", "perplexity", "reference_perplexity", "loss_difference",
             "loss_difference_error", "divergence", "divergence_error", "median_divergence", "divergence_99",
             "largest_divergence", "agreement", "agreement_error"});
    for (const std::string &format : formats) {
        if (Progress::is_interrupted()) {
            break;
        }
        halyard::QuantizeOptions quantize;
        quantize.format = format;
        quantize.threads = options.threads;
        const std::filesystem::path file = directory / "quantization_model.gguf";
        const std::int64_t bytes = bytes_of(halyard::quantize_model(folder, file, quantize));
        const halyard::Model model = halyard::Model::load(file, load);
        for (const int activation_bits : also_in_8_bits.count(format) != 0 ? std::vector{32, 8} : std::vector{32}) {
            context.set_products(activation_bits == 8 ? halyard::Products::int8 : halyard::Products::storage);
            const halyard::Evaluation result = halyard::evaluate(model, &reference, ids, evaluate);
            const halyard::Comparison &beside = *result.comparison;
            csv.line(format, activation_bits, bytes, result.perplexity(), result.reference_perplexity(),
                     beside.loss_difference.value, beside.loss_difference.error, beside.divergence.value,
                     beside.divergence.error, beside.median_divergence, beside.divergence_99, beside.largest_divergence,
                     beside.agreement.value, beside.agreement.error);
        }
        std::filesystem::remove(file);
        progress.done(10, "quantizing to " + format);
    }
    csv.close();
}

}  // namespace experiments
