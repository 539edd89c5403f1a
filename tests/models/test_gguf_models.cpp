// Models in GGUF files: the same bits as the same models in folders of transformers give, and what is near them where activations are
// rounded to 8 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>

#include "halyard/quantize.hpp"

#include "support/gguf_model.h"
#include "support/gguf_numbers.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

class GgufModels : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, GgufModels, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

const std::vector<std::int64_t> &tokens() {
    static const std::vector<std::int64_t> ids = Transformers(model_fixtures / "llama3_f32").input_ids;
    return ids;
}

void round_to_f16(Folder &folder) {
    for (auto &[name, tensor] : folder.tensors) {
        const std::vector<float> values = floats_of(tensor);
        std::vector<f16> halves(values.size());
        cast(values, halves);
        tensor = {"F16", tensor.shape, {reinterpret_cast<const char *>(halves.data()), halves.size() * sizeof(f16)}};
    }
}

TEST_P(GgufModels, GiveTheBitsOfFolders) {
    for (const char *const dtype : {"_f32", "_bf16", "_f16"}) {
        Folder folder(GetParam() + std::string(std::string_view(dtype) == "_bf16" ? "_bf16" : "_f32"));
        make_expressible(folder);
        if (std::string_view(dtype) == "_f16") {
            round_to_f16(folder);
        }
        const Model want = folder.load();
        write_text(folder / "x.gguf", gguf_of(folder).bytes());
        const Model got = Model::load(folder / "x.gguf");
        EXPECT_EQ(run_prompt(got, tokens()), run_prompt(want, tokens())) << dtype;
        EXPECT_EQ(got.max_positions(), want.max_positions());
        EXPECT_EQ(got.block_bytes(), want.block_bytes());
        EXPECT_EQ(got.config().architecture, want.config().architecture);
        EXPECT_EQ(got.config().tie_word_embeddings, want.config().tie_word_embeddings);
        EXPECT_EQ(got.config().eos_token_ids, want.config().eos_token_ids);
    }
}

// ---- Quantized weights ----

/** Random blocks with small scales. */
std::string random_blocks(const models::BlockFormat &format, std::size_t elements, std::mt19937_64 &random) {
    std::string blocks(elements / static_cast<std::size_t>(format.elements) * static_cast<std::size_t>(format.bytes),
                       '\0');
    for (char &each : blocks) {
        each = static_cast<char>(random());
    }
    const auto size = static_cast<std::size_t>(format.bytes);
    for (std::size_t block = 0; block < blocks.size(); block += size) {
        for (const std::size_t high : {std::size_t{1}, std::size_t{3}, size - 1}) {
            blocks[block + high] = 0x0c;  // of an f16 between 2^-12 and 2^-11
        }
    }
    return blocks;
}

/** Biases of 0 to a fixture that is widened. */
void add_attention_biases(Folder &folder, std::int64_t width) {
    folder.config["attention_bias"] = true;
    for (const std::string layer : {"0", "1", "2"}) {
        for (const auto &[name, elements] : {std::pair("q", 3 * width), {"k", width}, {"v", width}, {"o", width}}) {
            folder.tensors["model.layers." + layer + ".self_attn." + name + "_proj.bias"] = {
                "F32", {elements}, std::string(static_cast<std::size_t>(elements) * sizeof(float), '\0')};
        }
    }
}

// Matrices in all formats, several in each layer, against the same numbers in f32 or rounded to 16 bits.
TEST(GgufModel, OfQuantizedWeightsIsThatOfTheirNumbers) {
    const char *const formats[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
    Folder folder("llama3_f32");
    widen(folder);
    const GgufFile plain = gguf_of(folder);
    GgufFile quantized = plain;
    quantized.take_tensors();
    std::mt19937_64 random(4);
    std::size_t next = 0;
    std::map<std::string, std::vector<float>> numbers;
    for (GgufFile::Tensor tensor : plain.tensors) {
        if (tensor.shape.size() == 2) {
            const models::BlockFormat &format = *models::block_format(std::string_view(formats[next++ % 8]));
            const std::size_t elements = tensor.shape[0] * tensor.shape[1];
            tensor.type = format.type;
            tensor.data = random_blocks(format, elements, random);
            numbers[tensor.name] = numbers_of(format, tensor.data.data(), static_cast<std::int64_t>(elements));
        }
        quantized.add(tensor);
    }
    EXPECT_GT(next, 16u);
    write_text(folder / "quantized.gguf", quantized.bytes());

    const auto is_that_of = [&](DLDataType dtype, std::uint32_t type, const auto &bytes_of_numbers) {
        GgufFile file = plain;
        for (GgufFile::Tensor tensor : file.take_tensors()) {
            if (const auto at = numbers.find(tensor.name); at != numbers.end()) {
                tensor.type = type;
                tensor.data = bytes_of_numbers(at->second);
            }
            file.add(tensor);
        }
        write_text(folder / "numbers.gguf", file.bytes());
        LoadOptions options;
        options.unpacked_dtype = dtype;
        const States got = run_prompt(Model::load(folder / "quantized.gguf", options), tokens());
        EXPECT_EQ(got, run_prompt(Model::load(folder / "numbers.gguf"), tokens())) << type;
        EXPECT_TRUE(std::isfinite(distance(got.back(), std::vector<float>(got.back().size(), 1.0f))));
    };
    const auto in_16_bits = [](auto zero) {
        return [=](const std::vector<float> &values) {
            std::vector<decltype(zero)> rounded(values.size(), zero);
            cast(values, rounded);
            return std::string(reinterpret_cast<const char *>(rounded.data()), 2 * rounded.size());
        };
    };
    is_that_of(element<float>::dtype, 0, [](const std::vector<float> &values) {
        return std::string(reinterpret_cast<const char *>(values.data()), sizeof(float) * values.size());
    });
    is_that_of(element<f16>::dtype, 1, in_16_bits(f16{}));
    is_that_of(element<bf16>::dtype, 30, in_16_bits(bf16{}));
    LoadOptions options;
    options.unpacked_dtype = DLDataType{kDLInt, 32, 1};
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(folder / "quantized.gguf", options); }, "quantized.gguf",
        "unpacked_dtype"));
}

/** The formats of llama.cpp's recipes: one for all matrices, or Q4_K_M's two. */
std::string format_in(const std::string &recipe, const std::string &tensor) {
    const bool is_better =
        tensor.find("attn_v") != tensor.npos || tensor.find("ffn_down") != tensor.npos || tensor == "output.weight";
    return recipe != "Q4_K_M" ? recipe : is_better ? "Q6_K" : "Q4_K";
}

// Matrices stay as they are in the file, embedding and rows of interleaved heads among them, and give what their numbers give but
// for the order of roundings.
TEST(GgufModel, KeepsTheFilesPrecision) {
    Folder folder("llama3_f32");
    widen(folder);
    const GgufFile plain = gguf_of(folder);
    std::mt19937_64 random(7);
    const std::vector<const char *> some = {"Q8_0", "Q4_0", "Q5_1", "Q4_K_M"},
                                    all = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M"};
    for (const char *const recipe : reduced ? some : all) {
        GgufFile quantized = plain;
        quantized.take_tensors();
        std::map<std::string, std::int64_t> formats;
        for (GgufFile::Tensor tensor : plain.tensors) {
            if (tensor.shape.size() == 2) {
                const std::string name = format_in(recipe, tensor.name);
                const models::BlockFormat &format = *models::block_format(std::string_view(name));
                tensor.type = format.type;
                tensor.data = random_blocks(format, tensor.shape[0] * tensor.shape[1], random);
                formats[name]++;
            }
            quantized.add(tensor);
        }
        write_text(folder / "quantized.gguf", quantized.bytes());
        LoadOptions unpacked;
        unpacked.unpacked_dtype = element<float>::dtype;
        const Model model = Model::load(folder / "quantized.gguf"),
                    numbers = Model::load(folder / "quantized.gguf", unpacked);
        EXPECT_EQ((std::map<std::string, std::int64_t>(model.matrix_formats().begin(), model.matrix_formats().end())),
                  formats)
            << recipe;
        for (const auto &[format, count] : numbers.matrix_formats()) {
            EXPECT_NE(format.find(" as f32"), format.npos) << format;
        }
        EXPECT_LT(static_cast<double>(model.block_bytes()), 0.5 * static_cast<double>(numbers.block_bytes())) << recipe;
        const States got = run_prompt(model, tokens()), expected = run_prompt(numbers, tokens());
        for (std::size_t layer = 0; layer < got.size(); layer++) {
            EXPECT_LT(distance(got[layer], expected[layer]), 1e-5) << recipe << ", layer " << layer;
            EXPECT_GT(distance(got[layer], std::vector<float>(got[layer].size(), 0.0f)), 0.1) << recipe;
        }
    }
}

TEST(GgufModel, IsQuantizedWhenThatIsAskedFor) {
    Folder folder("llama3_f32");
    widen(folder);
    write_text(folder / "x.gguf", gguf_of(folder).bytes());
    LoadOptions options;
    options.quantization = {8, 32, 0, {}};
    const Model plain = Model::load(folder / "x.gguf"), quantized = Model::load(folder / "x.gguf", options);
    EXPECT_EQ(quantized.matrix_formats().front().first, "F32 in 8 bits");
    EXPECT_LT(static_cast<double>(quantized.block_bytes()), 0.5 * static_cast<double>(plain.block_bytes()));
    const States got = run_prompt(quantized, tokens()), expected = run_prompt(plain, tokens());
    for (std::size_t layer = 0; layer < got.size(); layer++) {
        EXPECT_LT(distance(got[layer], expected[layer]), 0.02) << layer;
    }
    EXPECT_GT(distance(got.back(), expected.back()), 1e-5);
}

// Minima that are much larger than scales, so that their sums are rounded.
TEST(GgufModel, IsTheSameHoweverTheCallerRounds) {
    Folder folder("llama3_f32");
    widen(folder);
    GgufFile file = gguf_of(folder);
    const models::BlockFormat &format = *models::block_format(std::string_view("Q4_1"));
    std::mt19937_64 random(6);
    for (GgufFile::Tensor tensor : file.take_tensors()) {
        if (tensor.shape.size() == 2) {
            tensor.type = format.type;
            tensor.data = random_blocks(format, tensor.shape[0] * tensor.shape[1], random);
            for (std::size_t block = 0; block < tensor.data.size(); block += static_cast<std::size_t>(format.bytes)) {
                tensor.data[block + 3] = 0x4c;  // of an f16 between 2^4 and 2^5
            }
        }
        file.add(tensor);
    }
    write_text(folder / "x.gguf", file.bytes());
    const States expected = run_prompt(Model::load(folder / "x.gguf"), tokens());
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(rounding);
        const Model model = Model::load(folder / "x.gguf");
        EXPECT_EQ(std::fegetround(), rounding);
        std::fesetround(FE_TONEAREST);
        EXPECT_TRUE(run_prompt(model, tokens()) == expected) << rounding;
    }
}

// Vectors too may be quantized, those of q and k among them, whose elements lie in another order than the model's.
TEST(GgufModel, OfQuantizedVectorsIsThatOfTheirNumbers) {
    Folder folder("llama3_f32");
    widen(folder);
    add_attention_biases(folder, 256);
    const GgufFile plain = gguf_of(folder);
    std::mt19937_64 random(5);
    for (const char *const name : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}) {
        const models::BlockFormat &format = *models::block_format(std::string_view(name));
        GgufFile quantized = plain, numbers = plain;
        quantized.take_tensors();
        numbers.take_tensors();
        for (GgufFile::Tensor tensor : plain.tensors) {
            const bool changed = tensor.shape.size() == 1 && tensor.name != "rope_freqs.weight";
            std::vector<float> values;
            if (changed) {
                tensor.type = format.type;
                tensor.data = random_blocks(format, tensor.shape[0], random);
                values = numbers_of(format, tensor.data.data(), static_cast<std::int64_t>(tensor.shape[0]));
            }
            quantized.add(tensor);
            if (changed) {
                tensor.type = 0;
                tensor.data.assign(reinterpret_cast<const char *>(values.data()), sizeof(float) * values.size());
            }
            numbers.add(tensor);
        }
        write_text(folder / "quantized.gguf", quantized.bytes());
        write_text(folder / "numbers.gguf", numbers.bytes());
        EXPECT_EQ(run_prompt(Model::load(folder / "quantized.gguf"), tokens()),
                  run_prompt(Model::load(folder / "numbers.gguf"), tokens()))
            << name;
    }
}

// Matrices of several dtypes in a layer, at addresses that are multiples of nothing: the same as all in f32.
TEST(GgufModel, MayMixDtypesAndBeUnaligned) {
    Folder folder("llama3_f32");
    round_to_f16(folder);
    GgufFile file = gguf_of(folder);
    Folder same("llama3_f32");
    same.tensors.clear();
    for (const auto &[name, tensor] : folder.tensors) {
        const std::vector<float> values = floats_of(tensor);
        same.tensors[name] = {
            "F32", tensor.shape, {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float)}};
    }
    const GgufFile in_f32 = gguf_of(same);
    GgufFile mixed = file;
    mixed.alignment = 1;
    mixed.set("general.alignment", std::uint32_t{1});
    mixed.take_tensors();
    mixed.add({"rope_freqs.weight", {5}, 0, file.tensors.back().data});
    for (std::size_t i = 0; i + 1 < file.tensors.size(); i++) {
        mixed.add(i % 3 == 0 ? in_f32.tensors[i] : file.tensors[i]);
    }
    write_text(folder / "x.gguf", mixed.bytes());
    EXPECT_EQ(run_prompt(Model::load(folder / "x.gguf"), tokens()), run_prompt(same.load(), tokens()));
}

// ---- Activations in 8 bits ----

/** The deviation of a hidden state or the logits from those with activations in f32, relative to their own.
 *
 *  Rounding a row to 8 bits changes each of its numbers by an error of deviation t / sqrt(12), where t is 1/127 of the largest of 32:
 *  2.5 deviations of the row, where numbers are normal. So a product errs by 2.5 / (127 sqrt(12)) of itself, and errors of products
 *  one after another are independent: of those of q, k and v, the output, gate and up, which are multiplied, and down in each block,
 *  and of the head. What the residual stream has of before is not rounded again, so that this is what there may be at most. */
double int8_deviation(const ModelConfig &config, std::size_t layer) {
    const std::size_t blocks = config.blocks.size();
    const double products = 5.0 * static_cast<double>(std::min(layer, blocks)) + (layer > blocks + 1 ? 1 : 0);
    return 2.5 / (127 * std::sqrt(12.0)) * std::sqrt(products);
}

double deviation(const std::vector<float> &values, const std::vector<float> &from) {
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); i++) {
        squares += std::pow(static_cast<double>(values[i]) - static_cast<double>(from[i]), 2);
    }
    return std::sqrt(squares / static_cast<double>(values.size()));
}

double deviation(const std::vector<float> &values) {
    return deviation(values, std::vector<float>(values.size(), 0.0f));
}

/** How many of the tokens that are generated after a prompt the model is sure of, whatever is rounded: those before the first one
 *  whose logit is above the next by less than three and a half deviations of the difference of two. */
std::size_t sure_tokens(const Model &model, std::vector<std::int64_t> prompt, const std::vector<std::int64_t> &next) {
    const std::size_t first = prompt.size() - 1, vocab = static_cast<std::size_t>(model.config().stack.vocab_size);
    prompt.insert(prompt.end(), next.begin(), next.end());
    const States states = run_prompt(model, prompt);
    for (std::size_t i = 0; i < next.size(); i++) {
        const auto begin = states.back().begin() + static_cast<std::ptrdiff_t>((first + i) * vocab);
        std::vector<float> logits(begin, begin + static_cast<std::ptrdiff_t>(vocab));
        const double error = int8_deviation(model.config(), states.size() - 1) * deviation(logits);
        std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
        if (static_cast<double>(logits[0]) - static_cast<double>(logits[1]) < 3.5 * std::sqrt(2.0) * error) {
            return i;
        }
    }
    return next.size();
}

TEST(GgufModel, WithActivationsInEightBitsIsNearThatWithF32) {
    Folder folder("llama3_f32");
    widen(folder);
    write_text(folder / "x.gguf", gguf_of(folder).bytes());
    Context context;
    context.set_products(Products::int8);
    std::size_t sure = 0;
    const std::vector<const char *> one = {"Q4_K_M"}, all = {"Q8_0", "Q4_1", "Q6_K", "Q4_K_M"};
    for (const char *const recipe : sanitized ? one : all) {
        QuantizeOptions options;
        options.format = recipe;
        quantize_model(folder / "x.gguf", folder / "quantized.gguf", options);
        const Model model = Model::load(folder / "quantized.gguf");
        const States got = run_prompt(model, tokens(), nullptr, context), expected = run_prompt(model, tokens());
        EXPECT_EQ(got.front(), expected.front()) << "the embedding, which nothing multiplies";
        for (std::size_t layer = 1; layer < got.size(); layer++) {
            const double most = int8_deviation(model.config(), layer) * deviation(expected[layer]),
                         error = deviation(got[layer], expected[layer]);
            EXPECT_LT(error, most) << recipe << ", layer " << layer;
            EXPECT_GT(error, most / 8) << recipe << ", layer " << layer;
        }
        const std::vector<std::int64_t> ids = generate(model, tokens(), 8),
                                        in_8_bits = generate(model, tokens(), 8, context);
        const std::size_t same = sure_tokens(model, tokens(), ids);
        EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(same), in_8_bits.begin()))
            << recipe;
        sure += same;
    }
    EXPECT_GT(sure, sanitized ? 2u : 10u) << "of 8 for each";
}

// In a cache of f32, whose bits are those of a call without one.
TEST(GgufModel, WithActivationsInEightBitsHasTheSameBitsTokenByToken) {
    Folder folder("llama3_f32");
    widen(folder);
    write_text(folder / "x.gguf", gguf_of(folder).bytes());
    QuantizeOptions options;
    options.format = "Q4_K_M";
    quantize_model(folder / "x.gguf", folder / "quantized.gguf", options);
    const Model model = Model::load(folder / "quantized.gguf");
    for (const int threads : {1, 3}) {
        Context context;
        context.set_num_threads(threads);
        context.set_products(Products::int8);
        KvCache parts = model.make_cache(0, element<float>::dtype), whole = model.make_cache(0, element<float>::dtype);
        const States expected = run_prompt(model, tokens(), nullptr, context);
        EXPECT_EQ(run_token_by_token(model, tokens(), parts, context), expected) << threads;
        EXPECT_EQ(run_prompt(model, tokens(), &whole, context), expected) << threads;
    }
}

// ---- Files ----

TEST(GgufModel, MayLieInAFolder) {
    const Folder folder("qwen3_f32");
    const States want = run_prompt(folder.load(), tokens());
    const TemporaryFolder only;
    write_text(only / "model.gguf", gguf_of(folder).bytes());
    EXPECT_EQ(run_prompt(Model::load(only.path()), tokens()), want);
    for (const std::filesystem::path &path : {only.path(), only / "model.gguf"}) {
        EXPECT_EQ(ModelConfig::load(path).architecture, Architecture::qwen3);
    }
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(folder / "config.json"); }, "config.json is no GGUF file"));
    // Beside a config.json it is not looked at.
    write_text(folder / "model.gguf", "");
    EXPECT_EQ(run_prompt(folder.load(), tokens()), want);
}

/** A model in three files, as gguf-split of llama.cpp writes it; the first has `in_first` of the tensors. */
std::vector<GgufFile> split(GgufFile file, std::size_t in_first) {
    const std::vector<GgufFile::Tensor> tensors = file.take_tensors();
    std::vector<GgufFile> parts{file, {}, {}};
    for (std::size_t i = 0; i < tensors.size(); i++) {
        parts[i < in_first ? 0 : 1 + i % 2].add(tensors[i]);
    }
    for (std::size_t number = 0; number < parts.size(); number++) {
        parts[number].entries.push_back({"split.no", 2, bytes_of(static_cast<std::uint16_t>(number))});
        parts[number].entries.push_back({"split.count", 2, bytes_of(std::uint16_t{3})});
        parts[number].entries.push_back(
            {"split.tensors.count", 5, bytes_of(static_cast<std::int32_t>(tensors.size()))});
    }
    return parts;
}

void write_parts(const std::filesystem::path &folder, const std::vector<GgufFile> &parts) {
    for (std::size_t i = 0; i < parts.size(); i++) {
        write_text(folder / ("x-0000" + std::to_string(i + 1) + "-of-00003.gguf"), parts[i].bytes());
    }
}

TEST(GgufModel, MayBeInSeveralFiles) {
    const Folder folder("llama3_f32");
    const States want = run_prompt(folder.load(), tokens());
    for (const std::size_t in_first : {0, 5}) {
        const TemporaryFolder parts;
        write_parts(parts.path(), split(gguf_of(folder), in_first));
        const std::filesystem::path first = parts / "x-00001-of-00003.gguf";
        EXPECT_EQ(run_prompt(Model::load(first), tokens()), want);
        EXPECT_EQ(ModelConfig::load(first).architecture, Architecture::llama);
    }
}

TEST(GgufModel, InFilesThatDoNotBelongTogetherIsRefused) {
    const auto replace = [](std::size_t part, const std::string &key, std::uint32_t value) {
        return [=](std::vector<GgufFile> &parts) {
            parts[part].remove(key);
            parts[part].set(key, value);
        };
    };
    const struct {
        std::function<void(std::vector<GgufFile> &)> change;
        std::string words[2];
        const char *load = "x-00001-of-00003.gguf";
    } all[] = {
        {[](auto &parts) { parts.pop_back(); },
         {"x-00001-of-00003.gguf is part 1 of 3, and 'x-00003-of-00003.gguf' is not beside it"}},
        {[](auto &) {}, {"is part 2 of 3: name the first, 'x-00001-of-00003.gguf'"}, "x-00002-of-00003.gguf"},
        {replace(0, "split.count", 4), {"is part 1 of 4, ", "does not end in '-00001-of-00004.gguf'"}},
        {replace(0, "split.count", 65536), {"split.count is 65536; supported are 0 to 65535"}},
        {replace(0, "split.no", 3), {"split.no is 3; supported are 0 to 2"}},
        {[](auto &parts) { parts[0].remove("split.tensors.count"); }, {"split.tensors.count is missing"}},
        {[](auto &parts) { std::swap(parts[1], parts[2]); }, {"x-00002-of-00003.gguf: split.no is 2 instead of 1"}},
        {replace(2, "split.count", 1), {"x-00003-of-00003.gguf: split.count is 1 instead of 3"}},
        {replace(1, "split.tensors.count", 9), {"x-00002-of-00003.gguf: split.tensors.count is 9 instead of"}},
        {[](auto &parts) { parts[2].magic = "GGML"; }, {"x-00003-of-00003.gguf is no GGUF file"}},
        {[](auto &parts) { parts[2].add(parts[1].tensors[0]); }, {"split.tensors.count is", "and the 3 files have"}},
        {[](auto &parts) { parts[2].tensors[0].name = parts[1].tensors[0].name; },
         {"tensor 'blk.0.ffn_norm.weight' is in ", " as well"}},
    };
    const Folder folder("llama3_f32");
    for (const auto &each : all) {
        const TemporaryFolder parts;
        std::vector<GgufFile> files = split(gguf_of(folder), 6);
        each.change(files);
        write_parts(parts.path(), files);
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { Model::load(parts / each.load); }, each.words[0], each.words[1]))
            << each.words[0];
    }
}

TEST(GgufModel, TakesOptions) {
    const Folder folder("gemma3_bf16");
    const GgufFile file = gguf_of(folder);
    write_text(folder / "x.gguf", file.bytes());
    LoadOptions options;
    options.max_positions = 9;
    std::int64_t last = 0, of = 0, bytes = 0;
    options.progress = [&](std::int64_t done, std::int64_t total, const std::string &) {
        last = done;
        of = total;
    };
    EXPECT_EQ(Model::load(folder / "x.gguf", options).max_positions(), 9);
    for (const GgufFile::Tensor &tensor : file.tensors) {
        bytes += static_cast<std::int64_t>(tensor.data.size());
    }
    EXPECT_EQ(last, bytes);
    EXPECT_EQ(of, bytes);
    options.max_positions = 1000;
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(folder / "x.gguf", options); }, "x.gguf", "max_positions"));
}

// What llama.cpp takes for metadata that is absent, where it is not what transformers takes.
TEST(GgufModel, MayLackMetadata) {
    const auto config_of = [](const char *fixture, const std::vector<const char *> &absent) {
        Folder folder(fixture);
        GgufFile file = gguf_of(folder);
        for (const char *const key : absent) {
            file.remove(key);
        }
        write_text(folder / "x.gguf", file.bytes());
        return Model::load(folder / "x.gguf").config();
    };
    // GPT-2 as it is, and with an output projection of its own, which then is not tied.
    EXPECT_TRUE(config_of("gpt2_f32", {}).tie_word_embeddings);
    Folder gpt2("gpt2_f32");
    GgufFile file = gguf_of(gpt2);
    GgufFile::Tensor output = file.tensors.back();
    for (const GgufFile::Tensor &tensor : file.tensors) {
        output = tensor.name == "token_embd.weight" ? tensor : output;
    }
    output.name = "output.weight";
    file.add(output);
    write_text(gpt2 / "x.gguf", file.bytes());
    const Model untied = Model::load(gpt2 / "x.gguf");
    EXPECT_FALSE(untied.config().tie_word_embeddings);
    EXPECT_EQ(run_prompt(untied, tokens()), run_prompt(gpt2.load(), tokens()));

    const ModelConfig qwen = config_of("qwen2_f32", {"qwen2.attention.key_length", "qwen2.attention.value_length",
                                                     "qwen2.rope.dimension_count", "qwen2.rope.freq_base",
                                                     "qwen2.vocab_size", "tokenizer.ggml.eos_token_id"});
    EXPECT_EQ(qwen.blocks[0].head_dim, 6);
    EXPECT_EQ(qwen.blocks[0].rope.rope_theta, 10000);
    EXPECT_EQ(qwen.stack.vocab_size, 61);
    EXPECT_TRUE(qwen.eos_token_ids.empty());
    const ModelConfig gemma2 =
        config_of("gemma2_f32", {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping",
                                 "gemma2.attention.sliding_window"});
    EXPECT_EQ(gemma2.blocks[0].attn_logit_softcapping, 50);
    EXPECT_EQ(gemma2.stack.final_logit_softcapping, 30);
    EXPECT_EQ(gemma2.blocks[0].sliding_window, 4096);
    EXPECT_EQ(gemma2.blocks[1].sliding_window, 0);
    const ModelConfig gemma3 = config_of(
        "gemma3_f32", {"gemma3.attention.sliding_window", "gemma3.rope.freq_base", "gemma3.rope.freq_base_swa"});
    for (const BlockConfig &block : gemma3.blocks) {
        EXPECT_EQ(block.sliding_window, 0);
        EXPECT_EQ(block.rope.rope_theta, 10000);
        EXPECT_EQ(block.query_pre_attn_scalar, 10);
    }
    EXPECT_EQ(config_of("mistral_f32", {"llama.attention.sliding_window"}).architecture, Architecture::llama);
}

TEST(GgufModel, ThatIsWrongOrNotSupportedIsRefusedByName) {
    const auto set = [](const std::string &key, auto value) {
        return [=](GgufFile &file) {
            file.remove(key);
            file.set(key, value);
        };
    };
    const auto without = [](const std::string &key) { return [=](GgufFile &file) { file.remove(key); }; };
    const auto edit = [](const std::string &name, const std::function<void(GgufFile::Tensor &)> &change) {
        return [=](GgufFile &file) {
            for (GgufFile::Tensor &tensor : file.tensors) {
                if (tensor.name == name) {
                    change(tensor);
                }
            }
        };
    };
    const auto wrong_factor = [&](std::size_t index) {
        return edit("rope_freqs.weight", [=](GgufFile::Tensor &tensor) {
            const float factor = 2.9f;
            std::memcpy(&tensor.data[index * sizeof(factor)], &factor, sizeof(factor));
        });
    };
    const auto all_factors = [&](float factor) {
        return edit("rope_freqs.weight", [=](GgufFile::Tensor &tensor) {
            for (std::size_t i = 0; i < tensor.data.size(); i += sizeof(factor)) {
                std::memcpy(&tensor.data[i], &factor, sizeof(factor));
            }
        });
    };
    using U = std::uint32_t;
    const struct {
        std::function<void(GgufFile &)> change;
        std::string words[2];
        halyard_status status = HALYARD_INVALID_ARGUMENT;
        const char *fixture = "llama3_f32";
    } all[] = {
        {without("general.architecture"), {"general.architecture is missing"}},
        {set("general.architecture", U{1}), {"general.architecture is 1"}},
        {set("general.architecture", "phi3"), {"'phi3'", "llama, qwen2, qwen3"}, HALYARD_UNSUPPORTED},
        {set("general.type", "adapter"), {"general.type is 'adapter'"}, HALYARD_UNSUPPORTED},
        {set("general.quantization_version", U{1}), {"general.quantization_version is 1"}},
        {set("llama.expert_count", U{8}), {"'llama.expert_count' is not supported"}, HALYARD_UNSUPPORTED},
        {set("llama.attention.scale", 0.5f), {"'llama.attention.scale' is not supported"}, HALYARD_UNSUPPORTED},
        {set("qwen3.attention.sliding_window", U{8}),
         {"'qwen3.attention.sliding_window' is not supported"},
         HALYARD_UNSUPPORTED,
         "qwen3_f32"},
        {without("llama.context_length"), {"llama.context_length is missing"}},
        {without("llama.embedding_length"), {"llama.embedding_length is missing"}},
        {without("llama.block_count"), {"llama.block_count is missing"}},
        {without("llama.feed_forward_length"), {"llama.feed_forward_length is missing"}},
        {without("llama.attention.head_count"), {"llama.attention.head_count is missing"}},
        {without("llama.attention.layer_norm_rms_epsilon"), {"layer_norm_rms_epsilon is missing"}},
        {without("gemma2.attention.key_length"),
         {"gemma2.attention.key_length is missing"},
         HALYARD_INVALID_ARGUMENT,
         "gemma2_f32"},
        {without("gpt2.attention.layer_norm_epsilon"),
         {"layer_norm_epsilon is missing"},
         HALYARD_INVALID_ARGUMENT,
         "gpt2_f32"},
        {set("llama.block_count", U{0}), {"llama.block_count is 0; supported are 1 to"}},
        {set("llama.block_count", ~U{0}), {"llama.block_count is 4294967295; supported are 1 to"}},
        {set("llama.context_length", "64"), {"llama.context_length is '64' instead of an integer"}},
        {set("llama.embedding_length", 33.0f), {"llama.embedding_length is 33 instead of an integer"}},
        {[](GgufFile &file) {
             file.remove("llama.attention.head_count_kv");
             file.entries.push_back({"llama.attention.head_count_kv", 9, gguf_array(4, 3, std::string(12, '\1'))});
         },
         {"llama.attention.head_count_kv is an array instead of an integer"}},
        {set("llama.attention.head_count_kv", U{2}),
         {"head_count_kv is 2, which does not divide llama.attention.head_count 3"}},
        {set("llama.rope.freq_base", std::nanf("")), {"llama.rope.freq_base is nan; supported are"}},
        {set("llama.rope.dimension_count", U{8}),
         {"llama.rope.dimension_count is 8; supported is 10"},
         HALYARD_UNSUPPORTED},
        {set("llama.attention.value_length", U{8}),
         {"llama.attention.value_length is 8; supported is 10"},
         HALYARD_UNSUPPORTED},
        {set("llama.rope.scaling.type", U{8}), {"llama.rope.scaling.type is 8 instead of a string"}},
        {set("llama.rope.scaling.type", "yarn"), {"llama.rope.scaling.type is 'yarn'"}, HALYARD_UNSUPPORTED},
        {set("llama.rope.scaling.factor", 0.5f), {"llama.rope.scaling.factor is 0.5; supported are 1 to"}},
        {set("llama.rope.scaling.factor", 2.0f),
         {"'rope_freqs.weight' is there, and llama.rope.scaling.type"},
         HALYARD_UNSUPPORTED},
        {set("tokenizer.ggml.eos_token_id", "x"), {"tokenizer.ggml.eos_token_id", "'x' instead of a token"}},
        {set("llama.vocab_size", U{62}), {"'token_embd.weight' has shape [61, 33] instead of [62, 33]"}},
        {wrong_factor(0), {"'rope_freqs.weight'", "low_freq_factor 1"}, HALYARD_UNSUPPORTED},
        {wrong_factor(2), {"'rope_freqs.weight'", "low_freq_factor 1"}, HALYARD_UNSUPPORTED},
        {set("llama.rope.scaling.original_context_length", U{64}), {"'rope_freqs.weight'"}, HALYARD_UNSUPPORTED},
        {[&](GgufFile &file) {
             set("llama.rope.scaling.original_context_length", "x")(file);
             edit("rope_freqs.weight", [](GgufFile::Tensor &tensor) { tensor.name = "x"; })(file);
         },
         {"llama.rope.scaling.original_context_length is 'x'"}},
        {all_factors(0), {"'rope_freqs.weight' ends with the factor 0; supported are 1 to 1e+06"}},
        {all_factors(1e-38f), {"'rope_freqs.weight' ends with the factor 1e-38"}},
        {all_factors(1e38f), {"'rope_freqs.weight' ends with the factor 1e+38"}},
        {all_factors(std::nanf("")), {"'rope_freqs.weight' ends with the factor nan"}},
        {edit("rope_freqs.weight", [](GgufFile::Tensor &tensor) { tensor.shape = {4}; }),
         {"'rope_freqs.weight' is F32 of shape [4] instead of F32 of shape [5]"}},
        {edit("token_embd.weight", [](GgufFile::Tensor &tensor) { tensor.name = "x"; }),
         {"'token_embd.weight' is missing"}},
        {edit("blk.1.attn_norm.weight", [](GgufFile::Tensor &tensor) { tensor.name = "x"; }),
         {"'blk.1.attn_norm.weight' is missing"}},
        {edit("blk.2.ffn_up.weight", [](GgufFile::Tensor &tensor) { std::swap(tensor.shape[0], tensor.shape[1]); }),
         {"'blk.2.ffn_up.weight' has shape [33, 47] instead of [47, 33]"}},
        {[](GgufFile &file) {
             file.add({"blk.0.ffn_gate_inp.weight", {1}, 0, "0123"});
         },
         {"'blk.0.ffn_gate_inp.weight' is not part of LlamaForCausalLM with this metadata"}},
        {[](GgufFile &file) {
             file.add({"rope_freqs.weight", {4}, 0, std::string(16, '0')});
         },
         {"'rope_freqs.weight' is not part of Qwen3ForCausalLM"},
         HALYARD_INVALID_ARGUMENT,
         "qwen3_f32"},
    };
    for (const auto &each : all) {
        const Folder folder(each.fixture);
        GgufFile file = gguf_of(folder);
        each.change(file);
        write_text(folder / "x.gguf", file.bytes());
        EXPECT_TRUE(throws(
            each.status, [&] { Model::load(folder / "x.gguf"); }, (folder / "x.gguf").string(), each.words[0],
            each.words[1]))
            << each.words[0];
    }
}

// Files whose tensors and metadata contradict each other: they become models or are refused, and nothing else happens.
TEST(GgufModelMutations, AreLoadedOrRefused) {
    Folder folder("llama3_f32");
    widen(folder, 32);
    add_attention_biases(folder, 32);
    const GgufFile good = gguf_of(folder);
    const char *const formats[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K"};
    std::mt19937_64 random(2026);
    const auto up_to = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    int loaded = 0;
    constexpr int count = 1000;
    for (int i = 0; i < count; i++) {
        GgufFile file = good;
        std::vector<GgufFile::Tensor> tensors = file.take_tensors();
        for (std::size_t changes = 1 + up_to(3); changes > 0; changes--) {
            GgufFile::Tensor &tensor = tensors[up_to(tensors.size())];
            const std::size_t kind = up_to(8);
            if (kind < 5) {
                const models::BlockFormat &format = *models::block_format(std::string_view(formats[up_to(10)]));
                std::size_t elements = 1;
                for (const std::uint64_t extent : tensor.shape) {
                    elements *= extent;
                }
                tensor.type = format.type;
                tensor.data = format.codes ? random_blocks(format, elements, random)
                                           : std::string(elements * static_cast<std::size_t>(format.bytes), '\x3d');
            } else if (kind == 5) {
                tensor.shape[up_to(tensor.shape.size())] = 1 + up_to(100);
            } else if (kind == 6) {
                tensor.shape.resize(1 + up_to(3), 1);
            } else {
                GgufFile::Entry &entry = file.entries[up_to(file.entries.size())];
                if (entry.type == 4) {
                    entry.value = bytes_of(static_cast<std::uint32_t>(1 + up_to(70)));
                }
            }
        }
        for (const GgufFile::Tensor &tensor : tensors) {
            file.add(tensor);
        }
        const std::filesystem::path path = folder / "x.gguf";
        write_text(path, file.bytes());
        try {
            Model::load(path);
            loaded++;
        } catch (const Error &error) {
            ASSERT_EQ(std::string(error.what()).rfind(path.string(), 0), 0u) << error.what();
        }
    }
    EXPECT_GT(loaded, count / 10);
    EXPECT_LT(loaded, count * 9 / 10);
}

// Factors of Llama 3.1: 8192 positions, heads of 128 features.
TEST(GgufModel, KnowsTheFactorsOfLlama3) {
    Folder folder("llama3_f32");
    for (const int positions : {256, 8192}) {
        folder.config["rope_parameters"]["original_max_position_embeddings"] = positions;
        folder.config["rope_parameters"]["rope_theta"] = 500000.0;
        folder.config["rope_parameters"]["factor"] = 32.0;
        write_text(folder / "x.gguf", gguf_of(folder).bytes());
        const Model got = Model::load(folder / "x.gguf");
        EXPECT_EQ(got.config().blocks[2].rope.factor, 32);
        EXPECT_EQ(run_prompt(got, tokens()), run_prompt(folder.load(), tokens()));
    }
    // Factors of 1 are no scaling.
    GgufFile file = gguf_of(folder);
    const std::vector<float> ones(5, 1.0f);
    file.tensors.back().data.assign(reinterpret_cast<const char *>(ones.data()), sizeof(float) * ones.size());
    write_text(folder / "x.gguf", file.bytes());
    EXPECT_EQ(Model::load(folder / "x.gguf").config().blocks[0].rope.scaling, RopeScaling::none);
}

}  // namespace
}  // namespace halyard::tests
