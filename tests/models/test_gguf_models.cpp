// Models in GGUF files: the same bits as the same models in folders of transformers give.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "support/gguf_model.h"
#include "support/gguf_numbers.h"

namespace halyard::tests {
namespace {

class GgufModels : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, GgufModels, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

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
        EXPECT_EQ(run_prompt(got, llama_prompt()), run_prompt(want, llama_prompt())) << dtype;
        EXPECT_EQ(got.max_positions(), want.max_positions());
        EXPECT_EQ(got.block_bytes(), want.block_bytes());
        EXPECT_EQ(got.config().architecture, want.config().architecture);
        EXPECT_EQ(got.config().tie_word_embeddings, want.config().tie_word_embeddings);
        EXPECT_EQ(got.config().eos_token_ids, want.config().eos_token_ids);
    }
}

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
    EXPECT_EQ(run_prompt(Model::load(folder / "x.gguf"), llama_prompt()), run_prompt(same.load(), llama_prompt()));
}

TEST(GgufModel, MayLieInAFolder) {
    const Folder folder("qwen3_f32");
    const States want = run_prompt(folder.load(), llama_prompt());
    const TemporaryFolder only;
    write_text(only / "model.gguf", gguf_of(folder).bytes());
    EXPECT_EQ(run_prompt(Model::load(only.path()), llama_prompt()), want);
    for (const std::filesystem::path &path : {only.path(), only / "model.gguf"}) {
        EXPECT_EQ(ModelConfig::load(path).architecture, Architecture::qwen3);
    }
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(folder / "config.json"); }, "config.json is no GGUF file"));
    // Beside a config.json it is not looked at.
    write_text(folder / "model.gguf", "");
    EXPECT_EQ(run_prompt(folder.load(), llama_prompt()), want);
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
    const States want = run_prompt(folder.load(), llama_prompt());
    for (const std::size_t in_first : {0, 5}) {
        const TemporaryFolder parts;
        write_parts(parts.path(), split(gguf_of(folder), in_first));
        const std::filesystem::path first = parts / "x-00001-of-00003.gguf";
        EXPECT_EQ(run_prompt(Model::load(first), llama_prompt()), want);
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
    EXPECT_EQ(run_prompt(untied, llama_prompt()), run_prompt(gpt2.load(), llama_prompt()));

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
        EXPECT_EQ(run_prompt(got, llama_prompt()), run_prompt(folder.load(), llama_prompt()));
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
