// Experiment 7: what quantizing a trained model costs. A language model of GPT-2's form learns the grammar, and is then saved, written
// in each format of GGUF by halyard::quantize_model, and compared with itself by halyard::evaluate on texts not seen before.
#include <cstring>
#include <fstream>
#include <halyard/evaluate.hpp>
#include <halyard/quantize.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "csv.h"
#include "experiments.h"
#include "grammar.h"
#include "normal.h"
#include "progress.h"
#include "training/adam.h"
#include "training/model.h"

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
        return {2, 150, 32, 4};
    case Effort::full:
        return {6, 2000, 512, 8};
    default:
        return {6, 500, 256, 4};
    }
}

LanguageModel<float> trained_model(const Size &size, Progress &progress) {
    BlockShape shape;
    shape.d = width;
    shape.heads = heads;
    shape.ff = 4 * width;
    shape.causal = true;
    shape.function = Function::gelu_tanh;
    LanguageModel<float> model(shape, size.layers, Grammar::vocabulary, positions);
    Normal normal(1);
    const Parameters<float> parameters = model.parameters();
    initialize_normal(parameters, normal, 0.02);
    Adam<float> adam(parameters);
    Grammar grammar(1);
    Matrix<float> dlogits;
    for (int step = 0; step < size.steps && !Progress::is_interrupted(); step++) {
        std::vector<int> ids, targets;
        for (std::int64_t i = 0; i < size.batch; i++) {
            const std::vector<int> tokens = grammar.text(positions + 1).tokens;
            ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
            targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
        }
        cross_entropy(model.forward(ids), targets, dlogits);
        model.backward(dlogits);
        constexpr double learning_rate = 1e-3, warm_up = 50;
        adam.step(learning_rate * std::min(1.0, (step + 1) / warm_up));
        progress.done(1, "training a model to be quantized");
    }
    return model;
}

/** By the names of transformers' GPT2LMHeadModel. */
std::map<std::string, Matrix<float>> tensors_of(LanguageModel<float> &model) {
    std::map<std::string, Matrix<float>> tensors;
    const auto add_linear = [&](const std::string &name, const Linear<float> &linear) {
        tensors[name + ".weight"] = transposed(linear.weight.value);  // [in, out]
        tensors[name + ".bias"] = linear.bias.value;
    };
    const auto add_norm = [&](const std::string &name, const Norm<float> &norm) {
        tensors[name + ".weight"] = norm.weight.value;
        tensors[name + ".bias"] = norm.bias.value;
    };
    for (std::size_t i = 0; i < model.stack.blocks.size(); i++) {
        const Block<float> &block = *model.stack.blocks[i];
        const std::string prefix = "transformer.h." + std::to_string(i) + ".";
        add_norm(prefix + "ln_1", block.norm1);
        add_linear(prefix + "attn.c_attn", block.attention.qkv);
        add_linear(prefix + "attn.c_proj", block.attention.out);
        add_norm(prefix + "ln_2", block.norm2);
        add_linear(prefix + "mlp.c_fc", block.ffn.up);
        add_linear(prefix + "mlp.c_proj", block.ffn.down);
    }
    add_norm("transformer.ln_f", *model.stack.last_norm);
    tensors["transformer.wte.weight"] = model.token_embedding.value;
    tensors["transformer.wpe.weight"] = model.position_embedding.value;
    tensors["lm_head.weight"] = model.head.weight.value;
    return tensors;
}

/** config.json and model.safetensors. */
void save(LanguageModel<float> &model, const std::filesystem::path &folder) {
    std::filesystem::create_directories(folder);
    std::ofstream config(folder / "config.json");
    config
        << R"({"architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "tie_word_embeddings": false, "n_embd": )"
        << width << ", \"n_head\": " << heads << ", \"n_layer\": " << model.stack.blocks.size()
        << ", \"n_positions\": " << positions << ", \"vocab_size\": " << Grammar::vocabulary
        << ", \"layer_norm_epsilon\": 1e-5}\n";
    std::string header, bytes;
    for (const auto &[name, tensor] : tensors_of(model)) {
        const std::string shape =
            (tensor.rows > 1 ? std::to_string(tensor.rows) + "," : "") + std::to_string(tensor.columns);
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
    set_threads(options.threads);
    halyard::Context context;
    context.set_num_threads(options.threads);
    Progress progress(size.steps + 10.0 * static_cast<double>(formats.size()));
    LanguageModel<float> model = trained_model(size, progress);
    const std::filesystem::path folder = directory / "quantization_model";
    save(model, folder);
    halyard::LoadOptions load;
    load.context = context;
    const halyard::Model reference = halyard::Model::load(folder, load);
    const std::vector<std::int64_t> ids = unseen_ids(size);
    halyard::EvaluateOptions evaluate;
    evaluate.context = context;
    evaluate.window = positions;

    Csv csv(directory / "quantization.csv",
            {"format", "matrix_bytes", "perplexity", "reference_perplexity", "loss_difference", "loss_difference_error",
             "divergence", "divergence_error", "median_divergence", "divergence_99", "largest_divergence", "agreement",
             "agreement_error"});
    for (const std::string &format : formats) {
        if (Progress::is_interrupted()) {
            break;
        }
        halyard::QuantizeOptions quantize;
        quantize.format = format;
        quantize.threads = options.threads;
        const std::filesystem::path file = directory / "quantization_model.gguf";
        const std::int64_t bytes = bytes_of(halyard::quantize_model(folder, file, quantize));
        const halyard::Evaluation result =
            halyard::evaluate(halyard::Model::load(file, load), &reference, ids, evaluate);
        const halyard::Comparison &beside = *result.comparison;
        csv.line(format, bytes, result.perplexity(), result.reference_perplexity(), beside.loss_difference.value,
                 beside.loss_difference.error, beside.divergence.value, beside.divergence.error,
                 beside.median_divergence, beside.divergence_99, beside.largest_divergence, beside.agreement.value,
                 beside.agreement.error);
        std::filesystem::remove(file);
        progress.done(10, "quantizing to " + format);
    }
    csv.close();
}

}  // namespace experiments
