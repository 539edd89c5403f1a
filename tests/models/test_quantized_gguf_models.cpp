// Models in GGUF files whose weights are quantized: the bits of their numbers, and what is near them where activations are rounded to 8
// bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "halyard/quantize.hpp"

#include "support/gguf_model.h"
#include "support/gguf_numbers.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

// Matrices in all formats, several in each layer, against the same numbers in f32 or rounded to 16 bits.
TEST(QuantizedGgufModel, OfQuantizedWeightsIsThatOfTheirNumbers) {
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
        const States got = run_prompt(Model::load(folder / "quantized.gguf", options), llama_prompt());
        EXPECT_EQ(got, run_prompt(Model::load(folder / "numbers.gguf"), llama_prompt())) << type;
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
TEST(QuantizedGgufModel, KeepsTheFilesPrecision) {
    Folder folder("llama3_f32");
    widen(folder);
    const GgufFile plain = gguf_of(folder);
    std::mt19937_64 random(7);
    const std::vector<const char *> few = {"Q8_0", "Q4_K_M"}, some = {"Q8_0", "Q4_0", "Q5_1", "Q4_K_M"},
                                    all = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q4_K_M"};
    for (const char *const recipe : emulated ? few : reduced ? some : all) {
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
        const States got = run_prompt(model, llama_prompt()), expected = run_prompt(numbers, llama_prompt());
        for (std::size_t layer = 0; layer < got.size(); layer++) {
            EXPECT_LT(distance(got[layer], expected[layer]), 1e-5) << recipe << ", layer " << layer;
            EXPECT_GT(distance(got[layer], std::vector<float>(got[layer].size(), 0.0f)), 0.1) << recipe;
        }
    }
}

TEST(QuantizedGgufModel, IsQuantizedWhenThatIsAskedFor) {
    Folder folder("llama3_f32");
    widen(folder);
    write_text(folder / "x.gguf", gguf_of(folder).bytes());
    LoadOptions options;
    options.quantization = {8, 32, 0, {}};
    const Model plain = Model::load(folder / "x.gguf"), quantized = Model::load(folder / "x.gguf", options);
    EXPECT_EQ(quantized.matrix_formats().front().first, "F32 in 8 bits");
    EXPECT_LT(static_cast<double>(quantized.block_bytes()), 0.5 * static_cast<double>(plain.block_bytes()));
    const States got = run_prompt(quantized, llama_prompt()), expected = run_prompt(plain, llama_prompt());
    for (std::size_t layer = 0; layer < got.size(); layer++) {
        EXPECT_LT(distance(got[layer], expected[layer]), 0.02) << layer;
    }
    EXPECT_GT(distance(got.back(), expected.back()), 1e-5);
}

// Minima that are much larger than scales, so that their sums are rounded.
TEST(QuantizedGgufModel, IsTheSameHoweverTheCallerRounds) {
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
    const States expected = run_prompt(Model::load(folder / "x.gguf"), llama_prompt());
    for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        std::fesetround(rounding);
        const Model model = Model::load(folder / "x.gguf");
        EXPECT_EQ(std::fegetround(), rounding);
        std::fesetround(FE_TONEAREST);
        EXPECT_TRUE(run_prompt(model, llama_prompt()) == expected) << rounding;
    }
}

// Vectors too may be quantized, those of q and k among them, whose elements lie in another order than the model's.
TEST(QuantizedGgufModel, OfQuantizedVectorsIsThatOfTheirNumbers) {
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
        EXPECT_EQ(run_prompt(Model::load(folder / "quantized.gguf"), llama_prompt()),
                  run_prompt(Model::load(folder / "numbers.gguf"), llama_prompt()))
            << name;
    }
}

// Matrices of several dtypes in a layer, at addresses that are multiples of nothing: the same as all in f32.
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

TEST(QuantizedGgufModel, WithActivationsInEightBitsIsNearThatWithF32) {
    Folder folder("llama3_f32");
    widen(folder);
    write_text(folder / "x.gguf", gguf_of(folder).bytes());
    Context context;
    context.set_products(Products::int8);
    std::size_t sure = 0;
    const std::vector<const char *> one = {"Q4_K_M"}, all = {"Q8_0", "Q4_1", "Q6_K", "Q4_K_M"};
    for (const char *const recipe : reduced ? one : all) {
        QuantizeOptions options;
        options.format = recipe;
        quantize_model(folder / "x.gguf", folder / "quantized.gguf", options);
        const Model model = Model::load(folder / "quantized.gguf");
        const States got = run_prompt(model, llama_prompt(), nullptr, context),
                     expected = run_prompt(model, llama_prompt());
        EXPECT_EQ(got.front(), expected.front()) << "the embedding, which nothing multiplies";
        for (std::size_t layer = 1; layer < got.size(); layer++) {
            const double most = int8_deviation(model.config(), layer) * deviation(expected[layer]),
                         error = deviation(got[layer], expected[layer]);
            EXPECT_LT(error, most) << recipe << ", layer " << layer;
            EXPECT_GT(error, most / 8) << recipe << ", layer " << layer;
        }
        const std::vector<std::int64_t> ids = generate(model, llama_prompt(), 8),
                                        in_8_bits = generate(model, llama_prompt(), 8, context);
        const std::size_t same = sure_tokens(model, llama_prompt(), ids);
        EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(same), in_8_bits.begin()))
            << recipe;
        sure += same;
    }
    EXPECT_GT(sure, reduced ? 2u : 10u) << "of 8 for each";
}

// In a cache of f32, whose bits are those of a call without one.
TEST(QuantizedGgufModel, WithActivationsInEightBitsHasTheSameBitsTokenByToken) {
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
        const States expected = run_prompt(model, llama_prompt(), nullptr, context);
        EXPECT_EQ(run_token_by_token(model, llama_prompt(), parts, context), expected) << threads;
        EXPECT_EQ(run_prompt(model, llama_prompt(), &whole, context), expected) << threads;
    }
}

}  // namespace
}  // namespace halyard::tests
