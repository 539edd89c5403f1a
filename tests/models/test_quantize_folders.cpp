// Folders that quantize_model writes: the numbers of every method, what is copied, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gguf.h"
#include "halyard/quantize.hpp"
#include "support/gguf_model.h"
#include "support/quantized_folder.h"

namespace halyard::tests {

static bool operator==(const StoredTensor &a, const StoredTensor &b) {
    return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

namespace {

constexpr const char *fixture = "llama3_f32";

struct Form {
    const char *format, *name;  // the name as Model::matrix_formats has it
    int bits;
    std::int64_t group;
    bool asymmetric;
    const char *scales;
    bool with_head;
};

// Extents of the fixture are 33, 47, 30 and 10: neither groups nor words are whole.
const Form forms[] = {
    {"compressed-tensors-4", "compressed-tensors 4 bits", 4, 16, false, "F32", true},
    {"compressed-tensors-4", "compressed-tensors 4 bits", 4, 32, true, "F16", false},
    {"compressed-tensors-8", "compressed-tensors 8 bits", 8, -1, false, "F16", false},
    {"compressed-tensors-8", "compressed-tensors 8 bits", 8, 128, true, "BF16", true},
    {"int8", "INT8", 8, 0, false, "F16", true},
    {"int8", "INT8", 8, 16, true, "F32", false},
    {"gptq-4", "GPTQ 4 bits", 4, 128, false, "F16", false},
    {"gptq-4", "GPTQ 4 bits", 4, 16, true, "F32", true},
    {"gptq-8", "GPTQ 8 bits", 8, 32, false, "BF16", false},
    {"gptq-8", "GPTQ 8 bits", 8, -1, true, "F16", false},
    {"gptq_v2-4", "GPTQ 4 bits", 4, 16, true, "F16", false},
    {"gptq_v2-8", "GPTQ 8 bits", 8, 16, false, "F32", true},
    {"awq-4", "AWQ 4 bits", 4, 16, true, "F16", true},
    {"awq-4", "AWQ 4 bits", 4, -1, true, "F32", false},
};

QuantizeOptions options_of(const Form &form) {
    QuantizeOptions options;
    options.format = form.format;
    options.group = form.group;
    options.asymmetric = form.asymmetric;
    options.scales = form.scales;
    options.output = form.with_head ? form.format : "";
    options.threads = 2;
    return options;
}

QuantizeOptions options_of(const std::string &format, std::int64_t group = 128) {
    QuantizeOptions options;
    options.format = format;
    options.group = group;
    options.threads = 2;
    return options;
}

const std::vector<std::int64_t> &tokens() {
    static const std::vector<std::int64_t> ids = Transformers(model_fixtures / fixture).input_ids;
    return ids;
}

States states(const std::filesystem::path &path, const LoadOptions &options = {}) {
    return run_prompt(Model::load(path, options), tokens());
}

std::map<std::string, StoredTensor> tensors_of(const std::filesystem::path &path) {
    std::map<std::string, StoredTensor> all;
    const SafeTensors files = SafeTensors::open(path);
    for (const TensorInfo &info : files.tensors()) {
        all[info.name] = {
            info.dtype, info.shape, {reinterpret_cast<const char *>(info.data), static_cast<std::size_t>(info.bytes)}};
    }
    return all;
}

float narrow(float scale, const std::string &dtype) {
    std::vector<float> value{scale};
    if (dtype == "F16") {
        std::vector<f16> half(1);
        cast(value, half);
        cast(half, value);
    } else if (dtype == "BF16") {
        std::vector<bf16> half(1);
        cast(value, half);
        cast(half, value);
    }
    return value[0];
}

/** The numbers of one group, by the formulas of halyard_quantization. */
void quantize_group(const Form &form, float *x, std::int64_t count) {
    const float largest = *std::max_element(x, x + count, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    const float low = std::min(*std::min_element(x, x + count), 0.0f),
                high = std::max(*std::max_element(x, x + count), 0.0f);
    const int most = (1 << form.bits) - 1, middle = 1 << (form.bits - 1);
    const float scale = form.asymmetric  ? (high - low) / static_cast<float>(most)
                        : form.bits == 8 ? std::fabs(largest) / 127
                                         : largest / -8;
    const float inverse = scale == 0 ? 0 : 1 / scale, stored = narrow(scale, form.scales);
    const long zero = form.asymmetric ? std::lround(-low * inverse) : middle;
    for (std::int64_t i = 0; i < count; i++) {
        const float quotient = x[i] * inverse;
        const long code =
            !form.asymmetric && form.bits == 4 ? static_cast<long>(quotient + 8.5f) : std::lround(quotient) + zero;
        x[i] = stored * static_cast<float>(std::clamp(code, 0l, long{most}) - zero);
    }
}

void quantize_numbers(const Form &form, StoredTensor &tensor) {
    std::vector<float> values = floats_of(tensor);
    const std::int64_t in = tensor.shape[1], group = form.group <= 0 ? in : form.group;
    for (std::int64_t n = 0; n < tensor.shape[0]; n++) {
        for (std::int64_t k = 0; k < in; k += group) {
            quantize_group(form, values.data() + n * in + k, std::min(group, in - k));
        }
    }
    tensor.bytes.assign(reinterpret_cast<const char *>(values.data()), 4 * values.size());
}

bool is_coded(const std::string &name, bool with_head) {
    return name.find("_proj.weight") != name.npos || (with_head && name == "lm_head.weight");
}

// ---- Codes ----

class FoldersInCodes : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(All, FoldersInCodes, testing::ValuesIn(forms), [](const auto &each) {
    std::string name = std::to_string(each.index) + each.param.format + each.param.scales;
    name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }), name.end());
    return name;
});

TEST_P(FoldersInCodes, HoldTheNumbersOfTheFormulas) {
    const Form &form = GetParam();
    for (const bool wide : {false, true}) {
        Folder folder(fixture), numbers(fixture);
        if (wide) {
            widen(folder, 64);
            widen(numbers, 64);
        }
        for (Folder *const each : {&folder, &numbers}) {  // a row of zeros, which has no scale to speak of
            std::string &bytes = each->tensors["model.layers.0.self_attn.v_proj.weight"].bytes;
            std::fill_n(bytes.begin(), bytes.size() / 10, '\0');
        }
        folder.load();
        const auto results = quantize_model(folder.folder.path(), folder / "out/", options_of(form));
        for (auto &[name, tensor] : numbers.tensors) {
            if (is_coded(name, form.with_head)) {
                quantize_numbers(form, tensor);
            }
        }
        LoadOptions unpacked;
        unpacked.unpacked_dtype = element<float>::dtype;
        const States expected = run_prompt(numbers.load(), tokens());
        EXPECT_TRUE(states(folder / "out", unpacked) == expected);
        const Model model = Model::load(folder / "out");
        const std::int64_t coded = 3 * 7 + (form.with_head ? 1 : 0);
        const std::map<std::string, std::int64_t> formats(model.matrix_formats().begin(), model.matrix_formats().end());
        EXPECT_EQ(formats, (std::map<std::string, std::int64_t>{{form.name, coded}, {"F32", 23 - coded}}));
        EXPECT_LT(distance(run_prompt(model, tokens()).back(), expected.back()), 1e-5);
        for (const QuantizedTensor &each : results) {
            const bool is = is_coded(each.name, form.with_head);
            EXPECT_EQ(each.to, is ? form.name : "F32") << each.name;
            EXPECT_EQ(each.relative_rms_error != 0, is) << each.name;
        }
    }
}

TEST_P(FoldersInCodes, AreTheSameOnceMoreAndWithOtherThreads) {
    Folder folder(fixture);
    folder.load();
    QuantizeOptions options = options_of(GetParam());
    quantize_model(folder.folder.path(), folder / "out", options);
    options.threads = 3;
    quantize_model(folder.folder.path(), folder / "other", options);
    EXPECT_EQ(read_text(folder / "out" / "model.safetensors"), read_text(folder / "other" / "model.safetensors"));
    options.output = "";  // lm_head stays as it is, too
    for (const QuantizedTensor &each : quantize_model(folder / "out", folder / "again", options)) {
        EXPECT_EQ(each.relative_rms_error, 0) << each.name;
        EXPECT_EQ(each.from, each.to) << each.name;
    }
    for (const char *const file : {"model.safetensors", "config.json"}) {
        EXPECT_EQ(read_text(folder / "again" / file), read_text(folder / "out" / file)) << file;
    }
}

// The tests' own files: groups of inputs in another order, and zeros of a tensor that says it is symmetric.
TEST(FolderInCodes, IsCopiedByteForByte) {
    for (const auto &[form, format] :
         {std::pair(QuantizedForm{Method::gptq, 4, 16, true, "F32", true, true}, "gptq-4"),
          {QuantizedForm{Method::pack_quantized, 4, 16, true, "BF16", false, true}, "compressed-tensors-4"},
          {QuantizedForm{Method::int_quantized, 8, 16, true, "F16"}, "int8"},
          {QuantizedForm{Method::awq, 4, 16, false, "F16", true}, "awq-4"}}) {
        Folder folder(fixture);
        quantize(folder, form);
        folder.load();
        quantize_model(folder.folder.path(), folder / "out", options_of(format, 16));
        const auto before = tensors_of(folder.folder.path()), after = tensors_of(folder / "out");
        ASSERT_EQ(before.size(), after.size()) << format;
        for (const auto &[name, tensor] : before) {
            EXPECT_TRUE(after.at(name) == tensor) << name;
        }
        EXPECT_EQ(states(folder / "out"), states(folder.folder.path())) << format;
    }
}

TEST(FolderInCodes, BecomesAnotherMethodOrFloats) {
    Folder folder(fixture);
    auto numbers = quantize(folder, {Method::gptq, 4, 16, false, "F32", true});
    folder.load();
    for (const char *const format : {"F32", "awq-4", "gptq-8"}) {
        QuantizeOptions options = options_of(format, 16);
        options.scales = "F32";
        quantize_model(folder.folder.path(), folder / format, options);
        const auto config = nlohmann::json::parse(read_text(folder / format / "config.json"));
        EXPECT_EQ(config.contains("quantization_config"), format != std::string("F32"));
        EXPECT_TRUE(tensors_of(folder / format).at("lm_head.weight") == numbers.at("lm_head.weight"));
    }
    EXPECT_TRUE(tensors_of(folder / "F32") == numbers);
}

// ---- GGUF and back ----

/** Matrices that Q4_0 or Q8_0 express: what its encoder makes of them. */
void roundtrip(const char *blocks, const char *format) {
    Folder folder(fixture);
    widen(folder);
    folder.load();
    QuantizeOptions options = options_of(blocks);
    options.embedding = options.output = "F32";
    quantize_model(folder.folder.path(), folder / "a.gguf", options);
    quantize_model(folder / "a.gguf", folder / "codes", options_of(format, 32));
    quantize_model(folder / "codes", folder / "b.gguf", options);
    const models::Gguf a = models::Gguf::open(folder / "a.gguf"), b = models::Gguf::open(folder / "b.gguf");
    for (const TensorInfo &info : a.tensors()) {
        const TensorInfo *const other = b.find(info.name);
        ASSERT_NE(other, nullptr) << info.name;
        ASSERT_EQ(info.dtype, other->dtype) << info.name;
        EXPECT_EQ(std::memcmp(info.data, other->data, static_cast<std::size_t>(info.bytes)), 0) << info.name;
    }
    LoadOptions unpacked;
    unpacked.unpacked_dtype = element<float>::dtype;
    EXPECT_EQ(states(folder / "codes", unpacked), states(folder / "a.gguf", unpacked));
}

TEST(FolderOfGguf, HasTheNumbersOfQ4_0) {
    roundtrip("Q4_0", "compressed-tensors-4");
}
TEST(FolderOfGguf, HasTheNumbersOfQ8_0) {
    roundtrip("Q8_0", "compressed-tensors-8");
}

class FoldersOfGguf : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, FoldersOfGguf, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

TEST_P(FoldersOfGguf, GiveTheSameLogits) {
    if (GetParam() == std::string("bert")) {
        return;  // has no GGUF files
    }
    Folder folder(GetParam() + std::string("_f32"));
    make_expressible(folder);
    folder.load();
    write_text(folder / "in.gguf", gguf_of(folder).bytes());
    quantize_model(folder / "in.gguf", folder / "out", options_of("F32"));
    const auto ids = Transformers(model_fixtures / (GetParam() + std::string("_f32"))).input_ids;
    const Model want = Model::load(folder / "in.gguf"), got = Model::load(folder / "out");
    const bool is_gemma = std::string(GetParam()).rfind("gemma", 0) == 0;
    const States expected = run_prompt(want, ids), states = run_prompt(got, ids);
    if (is_gemma) {  // 1 is added to weights of norms in f32, and what that rounds away is gone
        EXPECT_LT(distance(states.back(), expected.back()), 1e-6);
    } else {
        EXPECT_EQ(states, expected);
    }
    EXPECT_EQ(got.config().architecture, want.config().architecture);
    EXPECT_EQ(got.config().eos_token_ids, want.config().eos_token_ids);
    EXPECT_EQ(got.config().max_position_embeddings, want.config().max_position_embeddings);
    const auto before = tensors_of(folder.folder.path()), after = tensors_of(folder / "out");
    for (const auto &[name, tensor] : before) {
        ASSERT_EQ(after.count(name), 1u) << name;
        EXPECT_EQ(after.at(name).shape, tensor.shape) << name;
        if (!is_gemma || name.find("norm") == name.npos) {
            EXPECT_TRUE(after.at(name) == tensor) << name;
        }
    }
}

// Where a folder has floats and the file has blocks, the dtype of the scales stands in.
TEST(FolderOfGguf, HasFloatsForQuantizedEmbeddings) {
    Folder folder(fixture);
    widen(folder);
    folder.load();
    quantize_model(folder.folder.path(), folder / "in.gguf", options_of("Q4_K_M", 128));
    QuantizeOptions options = options_of("gptq-4", 64);
    options.scales = "BF16";
    quantize_model(folder / "in.gguf", folder / "out", options);
    const auto tensors = tensors_of(folder / "out");
    EXPECT_EQ(tensors.at("model.embed_tokens.weight").dtype, "BF16");
    EXPECT_EQ(tensors.at("lm_head.weight").dtype, "BF16");
    EXPECT_EQ(tensors.at("model.norm.weight").dtype, "F32");
    EXPECT_EQ(tensors.at("model.layers.0.mlp.up_proj.qweight").dtype, "I32");
    EXPECT_LT(distance(states(folder / "out").back(), states(folder / "in.gguf").back()), 0.3);
}

// ---- Floats and other files ----

TEST(FolderInFloats, KeepsAllElse) {
    Folder folder("bert_f32");
    folder.config["id2label"] = {{"0", "a \"quoted\" \u00e9\n"}, {"1", nullptr}};
    folder.config["classifier_dropout"] = 0.125;
    folder.tensors["pooler.dense.bias"] = {"F32", {3}, std::string(12, '\1')};
    folder.load();
    for (const char *const name : {"tokenizer.json", "vocab.txt", "generation_config.json"}) {
        write_text(folder / name, name);
    }
    write_text(folder / "notes.md", "none");
    quantize_model(folder.folder.path(), folder / "out", options_of("F32"));
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "out" / "config.json")), folder.config);
    EXPECT_TRUE(tensors_of(folder / "out") == folder.tensors);
    for (const char *const name : {"tokenizer.json", "vocab.txt", "generation_config.json"}) {
        EXPECT_EQ(read_text(folder / "out" / name), name);
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "out" / "notes.md"));
    EXPECT_FALSE(std::filesystem::exists(folder / "out" / "out"));
}

TEST(FolderInFloats, HasOneDtype) {
    Folder folder(fixture);
    folder.config["torch_dtype"] = "float32";
    folder.load();
    QuantizeOptions options = options_of("BF16");
    options.output = "F32";
    quantize_model(folder.folder.path(), folder / "out", options);
    for (const auto &[name, tensor] : tensors_of(folder / "out")) {
        EXPECT_EQ(tensor.dtype, name == "lm_head.weight" ? "F32" : "BF16") << name;
    }
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "out" / "config.json"))["torch_dtype"], "bfloat16");
    Model::load(folder / "out");
}

// ---- Refusals ----

TEST(QuantizeToFolder, RefusesWhatItCannotDoAndLeavesNothing) {
    Folder folder(fixture);
    folder.load();
    std::filesystem::create_directory(folder / "there");
    const auto files = [&] {
        return std::distance(std::filesystem::recursive_directory_iterator(folder.folder.path()), {});
    };
    const auto before = files();
    const auto refused = [&](const std::string &out, const QuantizeOptions &options, const auto &...words) {
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { quantize_model(folder.folder.path(), folder / out, options); }, words...);
    };
    const QuantizeOptions plain = options_of("gptq-4");
    EXPECT_TRUE(refused("there", plain, "there", "is there already"));
    EXPECT_TRUE(refused("config.json", plain, "config.json", "is there already"));
    EXPECT_TRUE(refused("none/x", plain, "none/x", "No such file"));
    EXPECT_TRUE(refused("x", options_of("Q4_0"), "format is 'Q4_0'", "becomes a folder", "gptq-4", "awq-4"));
    EXPECT_TRUE(refused("x.gguf", plain, "format is", "'gptq-4'"));
    EXPECT_TRUE(refused("x.gguf", options_of("gptq-4"), "'gptq-4'", "Q4_K_M"));
    EXPECT_TRUE(refused("x.gguf", options_of("Q8_0", 64), "group", "are for folders"));
    for (const std::int64_t group : {8, 24, -2}) {
        EXPECT_TRUE(refused("x", options_of("gptq-4", group), "group is " + std::to_string(group)));
    }
    QuantizeOptions options = plain;
    options.scales = "F64";
    EXPECT_TRUE(refused("x", options, "scales is 'F64'"));
    options = plain;
    options.embedding = "gptq-4";
    EXPECT_TRUE(refused("x", options, "embedding is 'gptq-4'"));
    options = plain;
    options.output = "awq-4";
    EXPECT_TRUE(refused("x", options, "output is 'awq-4'", "gptq-4"));
    options = plain;
    options.tensors = {{"*", "F16"}};
    EXPECT_TRUE(refused("x", options, "tensors"));
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
        Folder broken(fixture);
        std::memcpy(broken.tensors["model.layers.1.mlp.up_proj.weight"].bytes.data() + 400, &value, sizeof value);
        write_text(broken / "config.json", broken.config.dump());
        broken.write_file("model.safetensors", broken.tensors);
        for (const char *const format : {"gptq-4", "awq-4", "compressed-tensors-8", "int8", "F16"}) {
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT,
                [&] { quantize_model(broken.folder.path(), folder / "x", options_of(format)); },
                "'model.layers.1.mlp.up_proj.weight'", value == 3e38f ? "too large" : "NaN or Inf"))
                << format << " of " << value;
        }
    }
    options = plain;
    options.dry_run = true;
    EXPECT_EQ(quantize_model(folder.folder.path(), folder / "x", options).size(), folder.tensors.size());
    EXPECT_EQ(files(), before);
}

TEST(QuantizeToFolder, RefusesCodesOfMatricesInOut) {
    Folder folder("gpt2_f32");
    folder.load();
    EXPECT_TRUE(throws(
        HALYARD_UNSUPPORTED, [&] { quantize_model(folder.folder.path(), folder / "x", options_of("gptq-4")); },
        "GPT2LMHeadModel", "[in, out]"));
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

}  // namespace
}  // namespace halyard::tests
