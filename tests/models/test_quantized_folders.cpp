// Folders with quantization_config: the numbers of their codes, whatever method made them.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "support/quantized_folder.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

constexpr const char *fixture = "llama3_f32";

const std::vector<std::int64_t> &tokens() {
    static const std::vector<std::int64_t> ids = Transformers(model_fixtures / fixture).input_ids;
    return ids;
}

// Extents of the fixture are 33, 47, 30 and 10: neither groups nor words are whole.
const QuantizedForm forms[] = {
    {Method::pack_quantized, 4, 16, true, "F32", true},
    {Method::pack_quantized, 4, 16, false, "F16"},
    {Method::pack_quantized, 8, 32, false, "BF16", true},
    {Method::pack_quantized, 8, -1, true, "F32"},
    {Method::int_quantized, 8, -1, true, "F16", true},
    {Method::int_quantized, 8, 16, false, "F32"},
    {Method::int_quantized, 4, 16, true, "BF16"},
    {Method::gptq, 4, 16, true, "F16"},
    {Method::gptq, 4, -1, false, "F32", true},
    {Method::gptq, 8, 32, false, "BF16"},
    {Method::gptq_v2, 4, 16, false, "F16", true},
    {Method::gptq_v2, 8, 16, true, "F32"},
    {Method::awq, 4, 16, false, "F16", true},
    {Method::awq, 4, 32, false, "F32"},
    {Method::awq, 4, -1, false, "BF16"},
    {Method::gptq, 4, 16, true, "F16", true, true},
    {Method::gptq_v2, 8, 16, false, "F32", false, true},
    {Method::pack_quantized, 4, 16, false, "F16", true, true},
    {Method::int_quantized, 8, 16, false, "F32", false, true},
};

class QuantizedFolders : public testing::TestWithParam<QuantizedForm> {};
INSTANTIATE_TEST_SUITE_P(All, QuantizedFolders, testing::ValuesIn(forms), [](const auto &each) {
    const QuantizedForm &form = each.param;
    std::string name = std::to_string(each.index) + form.name() + form.scales;
    name.erase(std::remove_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }), name.end());
    return name;
});

std::map<std::string, std::int64_t> formats_of(const Model &model) {
    return {model.matrix_formats().begin(), model.matrix_formats().end()};
}

std::map<std::string, StoredTensor> in_bf16(std::map<std::string, StoredTensor> tensors, bool with_head) {
    for (auto &[name, tensor] : tensors) {
        if (name.find("_proj.weight") != name.npos || (with_head && name == "lm_head.weight")) {
            const std::vector<float> values = floats_of(tensor);
            std::vector<bf16> narrow(values.size());
            cast(values, narrow);
            tensor = {"BF16", tensor.shape, {reinterpret_cast<const char *>(narrow.data()), 2 * narrow.size()}};
        }
    }
    return tensors;
}

TEST_P(QuantizedFolders, KeepTheFilesPrecision) {
    const QuantizedForm &form = GetParam();
    for (const bool wide : {false, true}) {  // with extents that are multiples of 64
        Folder folder(fixture), numbers(fixture);
        if (wide) {
            widen(folder, 64);
            widen(numbers, 64);
        }
        numbers.tensors = quantize(folder, form);
        const Model model = folder.load();
        const std::int64_t coded = 3 * 7 + (form.with_head ? 1 : 0);
        EXPECT_EQ(formats_of(model), (std::map<std::string, std::int64_t>{{form.name(), coded}, {"F32", 23 - coded}}));
        const States got = run_prompt(model, tokens()), expected = run_prompt(numbers.load(), tokens());
        for (std::size_t layer = 0; layer < got.size(); layer++) {
            EXPECT_LT(distance(got[layer], expected[layer]), 1e-5) << "layer " << layer;
        }

        LoadOptions options;
        options.unpacked_dtype = element<float>::dtype;
        const Model unpacked = folder.load(options);
        EXPECT_TRUE(run_prompt(unpacked, tokens()) == expected);
        EXPECT_EQ(formats_of(unpacked).at(form.name() + " as f32"), coded);
        options.unpacked_dtype = element<bf16>::dtype;
        numbers.tensors = in_bf16(numbers.tensors, form.with_head);
        EXPECT_TRUE(run_prompt(folder.load(options), tokens()) == run_prompt(numbers.load(), tokens()));
    }
}

// A file puts tensors at any address.
TEST_P(QuantizedFolders, MayBeUnaligned) {
    Folder folder(fixture);
    quantize(folder, GetParam());
    const States expected = run_prompt(folder.load(), tokens());
    for (const std::size_t padding : {1, 2, 3}) {
        folder.write_file("model.safetensors", folder.tensors, padding);
        EXPECT_TRUE(run_prompt(Model::load(folder.folder.path()), tokens()) == expected) << padding;
    }
}

// Zeros of the gate in the middle and others of up: they cannot lie side by side.
TEST(QuantizedFolder, MakesGateAndUpF32WhereTheyDiffer) {
    Folder folder(fixture), other(fixture), numbers(fixture);
    widen(folder, 64);
    widen(other, 64);
    widen(numbers, 64);
    QuantizedForm form{Method::gptq, 4, 16, false, "F16"};
    const auto theirs = quantize(other, form);
    form.symmetric = true;
    numbers.tensors = quantize(folder, form);
    const std::string up = "model.layers.1.mlp.up_proj.";
    for (const char *const tensor : {"qweight", "qzeros", "scales"}) {
        folder.tensors[up + tensor] = other.tensors[up + tensor];
    }
    numbers.tensors[up + "weight"] = theirs.at(up + "weight");
    const Model model = folder.load();
    EXPECT_EQ(formats_of(model)["GPTQ 4 bits as f32"], 2);
    const States got = run_prompt(model, tokens()), expected = run_prompt(numbers.load(), tokens());
    EXPECT_LT(distance(got.back(), expected.back()), 1e-5);
}

// Old files of GPTQ have a bias of zeros beside every matrix.
TEST(QuantizedFolder, MayHaveBiasesOfZeros) {
    Folder folder(fixture);
    quantize(folder, {Method::gptq});
    const States expected = run_prompt(folder.load(), tokens());
    StoredTensor &bias = folder.tensors["model.layers.0.mlp.up_proj.bias"];
    bias = {"F16", {47}, std::string(94, '\0')};
    EXPECT_EQ(run_prompt(folder.load(), tokens()), expected);
    bias.bytes[50] = 1;
    EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "up_proj.bias' is not part of LlamaForCausalLM"));
}

// The package compressed-tensors made these files: tests/data/models/make_quantized.py.
TEST(QuantizedFolder, OfCompressedTensorsIsWhatThePackageMakesOfIt) {
    for (const char *const name : {"quantized_pack_4", "quantized_int_8"}) {
        Folder folder(name), numbers(name);
        const SafeTensors expected = SafeTensors::open(model_fixtures / name / "expected.safetensors");
        for (auto it = numbers.tensors.begin(); it != numbers.tensors.end();) {
            it = it->first.find("_proj.") != it->first.npos ? numbers.tensors.erase(it) : std::next(it);
        }
        for (const TensorInfo &info : expected.tensors()) {
            numbers.tensors[info.name] = {
                info.dtype,
                info.shape,
                {reinterpret_cast<const char *>(info.data), static_cast<std::size_t>(info.bytes)}};
        }
        numbers.config.erase("quantization_config");
        LoadOptions options;
        options.unpacked_dtype = element<float>::dtype;
        const States want = run_prompt(numbers.load(), tokens()), got = run_prompt(folder.load(), tokens());
        EXPECT_TRUE(run_prompt(folder.load(options), tokens()) == want) << name;
        EXPECT_LT(distance(got.back(), want.back()), 1e-5) << name;
    }
}

TEST(QuantizedFolder, ThatIsWrongOrNotSupportedIsRefusedByName) {
    const std::string module = "model.layers.1.mlp.up_proj.";
    const auto without = [&](const std::string &tensor) {
        return [=](Folder &folder) { folder.tensors.erase(module + tensor); };
    };
    const auto edit = [&](const std::string &tensor, const std::function<void(StoredTensor &)> &change) {
        return [=](Folder &folder) { change(folder.tensors[module + tensor]); };
    };
    const auto as = [&](const std::string &tensor, const char *dtype) {
        return edit(tensor, [=](StoredTensor &stored) { stored.dtype = dtype; });
    };
    const auto turned = [&](const std::string &tensor) {
        return edit(tensor, [](StoredTensor &stored) { std::swap(stored.shape[0], stored.shape[1]); });
    };
    const struct {
        QuantizedForm form;
        std::function<void(Folder &)> change;
        std::string words;
        halyard_status status = HALYARD_INVALID_ARGUMENT;
    } all[] = {
        {{Method::gptq}, without("qweight"), "'" + module + "weight' is missing"},
        {{Method::gptq}, without("scales"), "'" + module + "scales' is missing"},
        {{Method::gptq}, without("qzeros"), "'" + module + "qzeros' is missing"},
        {{Method::gptq}, as("qweight", "U32"), "'" + module + "qweight' is U32 instead of I32"},
        {{Method::gptq}, as("qzeros", "F32"), "'" + module + "qzeros' is F32 instead of I32"},
        {{Method::gptq}, as("g_idx", "F32"), "'" + module + "g_idx' is F32 instead of I32"},
        {{Method::gptq}, as("scales", "I32"), "'" + module + "scales' is I32", HALYARD_UNSUPPORTED},
        {{Method::gptq}, turned("qweight"), "'" + module + "qweight' has shape [47, 5] instead of [5, 47]"},
        {{Method::gptq}, turned("scales"), "'" + module + "scales' has shape [47, 3] instead of [3, 47]"},
        {{Method::gptq}, turned("qzeros"), "'" + module + "qzeros' has shape [6, 3] instead of [3, 6]"},
        {{Method::gptq},
         edit("g_idx", [](StoredTensor &stored) { stored.bytes[4 * 3] = 2; }),
         "'" + module + "g_idx' has 15 inputs of group 0 instead of 16"},
        {{Method::gptq},
         edit("g_idx", [](StoredTensor &stored) { stored.bytes[4 * 3] = 3; }),
         "'" + module + "g_idx' has group 3 for input 3; there are 0 to 2"},
        {{Method::gptq},
         [&](Folder &folder) {
             folder.config["quantization_config"]["desc_act"] = true;
             folder.tensors.erase(module + "g_idx");
         },
         "'" + module + "g_idx' is missing"},
        {{Method::gptq},
         [](Folder &folder) { folder.config["quantization_config"]["bits"] = 8; },
         "q_proj.qweight' has shape"},
        {{Method::gptq},
         [&](Folder &folder) {
             folder.tensors[module + "weight"] = {"F32", {47, 33}, std::string(47 * 33 * 4, '\0')};
         },
         "'" + module + "weight' is not part of LlamaForCausalLM"},
        {{Method::gptq},
         [](Folder &folder) { folder.config.erase("quantization_config"); },
         "q_proj.weight' is missing"},
        {{Method::awq, 4, 16, false}, turned("qweight"), "qweight' has shape [6, 33] instead of [33, 6]"},
        {{Method::pack_quantized, 4, 16, false}, without("weight_shape"), "weight_shape' is missing"},
        {{Method::pack_quantized, 4, 16, false}, without("weight_zero_point"), "weight_zero_point' is missing"},
        {{Method::pack_quantized, 4, 16, false},
         turned("weight_zero_point"),
         "weight_zero_point' has shape [3, 6] instead of [6, 3]"},
        {{Method::pack_quantized}, as("weight_shape", "F64"), "weight_shape' is F64 instead of I64"},
        {{Method::pack_quantized},
         edit("weight_shape", [](StoredTensor &stored) { stored.bytes[0] = 7; }),
         "weight_shape' holds [7, 33] instead of [47, 33]"},
        {{Method::pack_quantized},
         [](Folder &folder) {
             folder.config["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] = "group";
         },
         "weight_g_idx' is missing"},
        {{Method::int_quantized, 8, 16, false},
         as("weight_zero_point", "U8"),
         "weight_zero_point' is U8 instead of I8"},
        {{Method::int_quantized, 8},
         [](Folder &folder) {
             folder.tensors["model.embed_tokens.weight"] = {"I8", {61, 33}, std::string(61 * 33, '\1')};
             folder.tensors["model.embed_tokens.weight_scale"] = {"F32", {61, 3}, std::string(61 * 3 * 4, '\0')};
         },
         "'model.embed_tokens.weight' is a quantized embedding",
         HALYARD_UNSUPPORTED},
        // The core refuses numbers.
        {{Method::int_quantized, 8, 16, true},
         edit("weight_scale", [](StoredTensor &stored) { stored.bytes.replace(0, 4, "\0\0\x80\x7f", 4); }),
         "layer 1 of 3: "},
    };
    for (const auto &each : all) {
        Folder folder(fixture);
        quantize(folder, each.form);
        each.change(folder);
        EXPECT_TRUE(folder.refused(each.status, each.words)) << each.words;
    }
}

// Tensors and fields that contradict each other: they become models or are refused, and nothing else happens.
TEST(QuantizedFolderMutations, AreLoadedOrRefused) {
    std::mt19937_64 random(2026);
    const auto up_to = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    const char *const dtypes[] = {"I32", "I8", "U8", "I64", "F32", "F16", "BF16"};
    int loaded = 0;
    constexpr int count = reduced ? 150 : 600;
    for (int i = 0; i < count; i++) {
        Folder folder(fixture);
        quantize(folder, forms[up_to(std::size(forms))]);
        for (std::size_t changes = 1 + up_to(2); changes > 0; changes--) {
            const auto at =
                std::next(folder.tensors.begin(), static_cast<std::ptrdiff_t>(up_to(folder.tensors.size())));
            StoredTensor &tensor = at->second;
            const std::size_t kind = up_to(8);
            if (kind < 4) {
                tensor.bytes[up_to(tensor.bytes.size())] = static_cast<char>(random());
            } else if (kind == 4) {
                const std::size_t now = tensor.dtype == "I32" || tensor.dtype == "F32" ? 4
                                        : tensor.dtype == "I8"                         ? 1
                                                                                       : 2;
                tensor.dtype = dtypes[up_to(7)];
                const std::size_t then = tensor.dtype == "I64"    ? 8
                                         : tensor.dtype[1] == '8' ? 1
                                         : tensor.dtype[1] == '3' ? 4
                                                                  : 2;
                tensor.bytes.resize(tensor.dtype == "I64" && tensor.shape.size() == 1 && tensor.shape[0] == 2
                                        ? 16
                                        : tensor.bytes.size() / (at->first.find("_shape") != at->first.npos ? 8 : now) *
                                              then);
            } else if (kind == 5) {
                tensor.shape.push_back(1);
            } else if (kind == 6) {
                folder.tensors.erase(at);
            } else {
                auto &config = folder.config["quantization_config"];
                auto field = config.begin();
                std::advance(field, up_to(config.size()));
                field.value() = nlohmann::json::array({nullptr, true, 8, -1, 32, "gptq"})[up_to(6)];
            }
        }
        try {
            folder.load();
            loaded++;
        } catch (const Error &error) {
            ASSERT_EQ(std::string(error.what()).rfind(folder.folder.path().string(), 0), 0u) << error.what();
        }
    }
    EXPECT_GT(loaded, count / 10);
    EXPECT_LT(loaded, count * 9 / 10);
}

}  // namespace
}  // namespace halyard::tests
