// Models against what Hugging Face transformers computes with the same files (data/models/make_fixtures.py), and
// folders in which something is missing, superfluous or of another shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "support/files.h"
#include "support/model_folder.h"
#include "support/models.h"
#include "support/reference_hashes.h"

namespace halyard::tests {
namespace {

// ---- Against transformers ----

class Models : public testing::TestWithParam<const char *> {
protected:
    static std::filesystem::path folder(const std::string &suffix) { return model_fixtures / (GetParam() + suffix); }
};
INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

TEST_P(Models, AgreeInFloat32) {
    const Model model = Model::load(folder("_f32"));
    const Transformers expected(folder("_f32"));
    const States want = expected.states();
    ASSERT_EQ(want.size(), model.config().blocks.size() + 3);
    double worst = 0;
    for (int i = 0; i < halyard_isa_count(); i++) {
        const auto isa = static_cast<Isa>(halyard_isa_at(i));
        if (!supported(isa)) {
            continue;
        }
        Context context;
        context.set_max_isa(isa);
        const States got = run_prompt(model, expected.input_ids, nullptr, context);
        const double part = f32_part(model, got, want, expected.input_ids.size());
        EXPECT_LT(part, 1) << to_string(isa);
        worst = std::max(worst, part);
    }
    RecordProperty("part_of_bound", std::to_string(worst));
}

// Weights in bfloat16: transformers rounds every result to it, halyard what is multiplied or, if asked, none. In float32
// arithmetic both do the same.
TEST_P(Models, AgreeInBfloat16) {
    const Model model = Model::load(folder("_bf16"));
    const Transformers expected(folder("_bf16"));
    const auto part_of_roundings = [&](const States &got) {
        return part_of_bound(got, expected.states(), [&](std::size_t layer) {
            return bound(bf16_roundoff, bf16_roundings(model.config(), layer));
        });
    };
    EXPECT_LT(part_of_roundings(run_prompt(model, expected.input_ids)), 1);
    KvCache cache = model.make_cache();  // in bfloat16, as that of transformers
    const double cached = part_of_roundings(run_token_by_token(model, expected.input_ids, cache));
    EXPECT_LT(cached, 1);
    Context full;
    full.set_products(Products::full);
    const States got = run_prompt(model, expected.input_ids, nullptr, full);
    const double rounded = part_of_roundings(got);
    const double exact = f32_part(model, got, expected.states("exact."), expected.input_ids.size());
    EXPECT_LT(rounded, 1);
    EXPECT_LT(exact, 1);
    RecordProperty("part_of_bound", std::to_string(rounded));
    RecordProperty("part_of_bound_cached", std::to_string(cached));
    RecordProperty("part_of_bound_in_f32_arithmetic", std::to_string(exact));
}

TEST(ModelBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("models", [](halyard_isa isa) {
        Hashes hashes;
        Context context;
        context.set_max_isa(static_cast<Isa>(isa));
        context.set_products(Products::full);
        for (const std::string name : architectures) {
            for (const char *const suffix : {"_f32", "_bf16"}) {
                const Model model = Model::load(model_fixtures / (name + suffix));
                BitsHash results;
                for (const std::vector<float> &states :
                     run_prompt(model, Transformers(model_fixtures / (name + suffix)).input_ids, nullptr, context)) {
                    results.add(states);
                }
                hashes[name + suffix] = results.text();
            }
        }
        return hashes;
    });
}

TEST_P(Models, GiveTheSameBitsWithACacheInAnySteps) {
    for (const char *const suffix : {"_f32", "_bf16"}) {
        const Model model = Model::load(folder(suffix));
        const std::vector<std::int64_t> tokens = Transformers(folder(suffix)).input_ids;
        for (const bool in_f32 : {true, false}) {
            KvCache cache = model.make_cache(0, in_f32 ? std::optional(element<float>::dtype) : std::nullopt);
            const States whole = run_prompt(model, tokens, &cache);
            EXPECT_EQ(cache.length(0, 0), static_cast<std::int64_t>(tokens.size()));
            if (in_f32) {
                EXPECT_EQ(run_prompt(model, tokens), whole);
            }
            cache.truncate(0, 0);
            EXPECT_EQ(run_token_by_token(model, tokens, cache), whole);
            cache.truncate(0, 0);
            Observer observer(model, tokens.size());
            for (std::size_t first = 0, count = 1; first < tokens.size(); first += count, count += 2) {
                count = std::min(count, tokens.size() - first);
                observer.run(model, tokens, first, count, &cache, nullptr);
            }
            EXPECT_EQ(observer.states(), whole);
        }
    }
}

// A cache in 16 bits rounds keys and values: two roundings more in every block.
TEST_P(Models, StayCloseWithACacheIn16Bits) {
    const Model model = Model::load(folder("_f32"));
    const Transformers expected(folder("_f32"));
    const States want = expected.states();
    for (const auto &[dtype, roundoff] :
         {std::pair(element<f16>::dtype, f16_roundoff), std::pair(element<bf16>::dtype, bf16_roundoff)}) {
        KvCache cache = model.make_cache(0, dtype);
        const States got = run_token_by_token(model, expected.input_ids, cache);
        const double part = part_of_bound(got, want, [&, unit = roundoff](std::size_t layer) {
            const auto blocks = static_cast<double>(std::min(layer, model.config().blocks.size()));
            return bound(unit, 2 * blocks) +
                   bound(f32_roundoff, f32_roundings(model.config(), layer, expected.input_ids.size()));
        });
        EXPECT_LT(part, 1) << dtype.bits << " bits, code " << int{dtype.code};
        RecordProperty(dtype.code == kDLBfloat ? "part_of_bound_bf16" : "part_of_bound_f16", std::to_string(part));
    }
}

TEST_P(Models, GenerateTheSameTokens) {
    const Model model = Model::load(folder("_f32"));
    const Transformers expected(folder("_f32"));
    const std::vector<std::int64_t> wanted = expected.integers("generated");
    EXPECT_EQ(generate(model, expected.input_ids, wanted.size()), wanted);
}

// ---- Folders ----

/** What the fixture's tokens give; the files may be written in any way that says the same. */
States states_of(const Folder &folder, const std::string &fixture) {
    return run_prompt(folder.load(), Transformers(model_fixtures / fixture).input_ids);
}

// A model with one field changed is another model: were a field passed over, the tests above would not see it.
TEST(ModelsFeel, EveryFieldOfTheConfiguration) {
    const struct {
        const char *fixture, *change;
    } all[] = {
        {"gpt2_f32", R"({"layer_norm_epsilon":0.0029})"},
        {"gpt2_f32", R"({"activation_function":"gelu"})"},
        {"gpt2_f32", R"({"scale_attn_weights":false})"},
        {"gpt2_f32", R"({"scale_attn_by_inverse_layer_idx":true})"},
        {"llama3_f32", R"({"rms_norm_eps":0.0029})"},
        {"llama3_f32", R"({"hidden_act":"gelu"})"},
        {"llama3_f32", R"({"rope_parameters":{"rope_theta":499}})"},
        {"llama3_f32", R"({"rope_parameters":{"factor":8.1}})"},
        {"llama3_f32", R"({"rope_parameters":{"low_freq_factor":1.01}})"},
        {"llama3_f32", R"({"rope_parameters":{"high_freq_factor":4.1}})"},
        {"llama3_f32", R"({"rope_parameters":{"original_max_position_embeddings":33}})"},
        {"llama3_f32", R"({"rope_parameters":{"rope_type":"linear"}})"},
        {"llama3_f32", R"({"rope_parameters":{"rope_type":"default"}})"},
        {"llama_linear_f32", R"({"rope_parameters":{"factor":2.51}})"},
        {"llama_linear_f32", R"({"rope_parameters":{"rope_type":"default"}})"},
        {"qwen2_f32", R"({"sliding_window":10})"},
        {"qwen2_f32", R"({"layer_types":["full_attention","full_attention","sliding_attention"]})"},
        {"mistral_f32", R"({"sliding_window":8})"},
        {"mistral_f32", R"({"sliding_window":null})"},
        {"gemma_f32", R"({"hidden_act":"silu"})"},
        {"gemma2_f32", R"({"attn_logit_softcapping":3.01})"},
        {"gemma2_f32", R"({"attn_logit_softcapping":null})"},
        {"gemma2_f32", R"({"final_logit_softcapping":4.01})"},
        {"gemma2_f32", R"({"query_pre_attn_scalar":11.1})"},
        {"gemma2_f32", R"({"sliding_window":4})"},
        {"gemma2_f32", R"({"layer_types":["full_attention","sliding_attention","full_attention"]})"},
        {"gemma3_f32", R"({"query_pre_attn_scalar":7.1})"},
        {"gemma3_f32", R"({"rope_parameters":{"full_attention":{"rope_theta":1010}}})"},
        {"gemma3_f32", R"({"rope_parameters":{"full_attention":{"factor":2.1}}})"},
        {"gemma3_f32", R"({"rope_parameters":{"sliding_attention":{"rope_theta":30.1}}})"},
        {"gemma3_f32", R"({"layer_types":["sliding_attention","sliding_attention","sliding_attention"]})"},
    };
    for (const auto &each : all) {
        Folder folder(each.fixture);
        folder.config.merge_patch(nlohmann::json::parse(each.change));
        const Transformers expected(model_fixtures / each.fixture);
        const Model model = folder.load();
        const States got = run_prompt(model, expected.input_ids);
        EXPECT_GT(f32_part(model, got, expected.states(), expected.input_ids.size()), 10)
            << each.fixture << ": " << each.change;
    }
}

TEST(ModelFolder, MayBeWrittenInOtherWays) {
    for (const std::string fixture : {"gpt2_bf16", "llama_linear_f32", "llama3_bf16"}) {
        const States want = states_of(Folder(fixture), fixture);
        // A header of odd length: no tensor is aligned.
        for (const std::size_t padding : {1, 2, 3}) {
            const Folder askew(fixture);
            write_text(askew.folder / "config.json", askew.config.dump());
            askew.write_file("model.safetensors", askew.tensors, padding);
            EXPECT_EQ(run_prompt(Model::load(askew.folder.path()), Transformers(model_fixtures / fixture).input_ids),
                      want);
        }
        // Names without what they all begin with.
        Folder bare(fixture);
        std::map<std::string, StoredTensor> renamed;
        for (const auto &[name, tensor] : bare.tensors) {
            renamed[name == "lm_head.weight" ? name : name.substr(name.find('.') + 1)] = tensor;
        }
        bare.tensors = renamed;
        EXPECT_EQ(states_of(bare, fixture), want);
        // Shards: one for each tensor.
        Folder shards(fixture);
        nlohmann::json weight_map;
        int number = 0;
        for (const auto &[name, tensor] : shards.tensors) {
            const std::string file = "model-" + std::to_string(number++) + ".safetensors";
            shards.write_file(file, {{name, tensor}});
            weight_map[name] = file;
        }
        write_text(shards.folder / "model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
        EXPECT_EQ(states_of(shards, fixture), want);
    }
    // Tables that old files hold, and a tied lm_head written out.
    Folder gpt2("gpt2_f32");
    const States want = states_of(gpt2, "gpt2_f32");
    gpt2.tensors["transformer.h.0.attn.bias"] = {"BOOL", {1, 1, 2, 2}, std::string(4, '\1')};
    gpt2.tensors["transformer.h.1.attn.masked_bias"] = {"F32", {}, std::string(4, '\0')};
    gpt2.tensors["lm_head.weight"] = gpt2.tensors["transformer.wte.weight"];
    EXPECT_EQ(states_of(gpt2, "gpt2_f32"), want);
    Folder llama("llama3_f32");
    const States llama_want = states_of(llama, "llama3_f32");
    llama.tensors["model.layers.2.self_attn.rotary_emb.inv_freq"] = {"F32", {5}, std::string(20, '\0')};
    EXPECT_EQ(states_of(llama, "llama3_f32"), llama_want);
}

// Weights rounded to f16: one rounding more for each matrix and vector on the way.
TEST(ModelFolder, MayHoldF16) {
    for (const std::string fixture : {"gpt2_f32", "gemma3_f32"}) {
        Folder folder(fixture);
        for (auto &[name, tensor] : folder.tensors) {
            std::vector<float> values(tensor.bytes.size() / sizeof(float));
            std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
            std::vector<f16> halves(values.size());
            cast(values, halves);
            tensor.dtype = "F16";
            tensor.bytes.assign(reinterpret_cast<const char *>(halves.data()), halves.size() * sizeof(f16));
        }
        const Transformers expected(model_fixtures / fixture);
        const Model model = folder.load();
        const States got = run_prompt(model, expected.input_ids);
        const double part = part_of_bound(got, expected.states(), [&](std::size_t layer) {
            const auto blocks = static_cast<double>(std::min(layer, model.config().blocks.size()));
            return bound(f16_roundoff, 3 + 12 * blocks) +
                   bound(f32_roundoff, f32_roundings(model.config(), layer, expected.input_ids.size()));
        });
        EXPECT_LT(part, 1) << fixture;
        EXPECT_GT(part, 0.01) << fixture;
    }
}

// One matrix of a layer in another dtype: the layer is what it is in f32.
TEST(ModelFolder, MayMixDtypesInALayer) {
    Folder mixed("llama3_f32"), same("llama3_f32");
    StoredTensor &narrow = mixed.tensors["model.layers.2.mlp.up_proj.weight"];
    StoredTensor &wide = same.tensors["model.layers.2.mlp.up_proj.weight"];
    std::vector<float> values(wide.bytes.size() / sizeof(float));
    std::vector<f16> halves(values.size());
    std::memcpy(values.data(), wide.bytes.data(), wide.bytes.size());
    cast(values, halves);
    cast(halves, values);
    wide.bytes.assign(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
    narrow.bytes.assign(reinterpret_cast<const char *>(halves.data()), halves.size() * sizeof(f16));
    narrow.dtype = "F16";
    EXPECT_EQ(states_of(mixed, "llama3_f32"), states_of(same, "llama3_f32"));
}

// A fixture's model in a larger size, so that what the system reads around a page does not count.
TEST(ModelFolder, IsNotKeptInMemory) {
    Folder folder("mistral_f32");
    const nlohmann::json sizes = {{"hidden_size", 256}, {"intermediate_size", 1024}, {"head_dim", 64}};
    const std::map<std::int64_t, std::int64_t> larger = {{36, 256}, {41, 1024}, {48, 256}, {24, 128}, {61, 61}};
    folder.config.merge_patch(sizes);
    for (auto &[name, tensor] : folder.tensors) {
        std::size_t bytes = sizeof(float);
        for (std::int64_t &extent : tensor.shape) {
            extent = larger.at(extent);
            bytes *= static_cast<std::size_t>(extent);
        }
        tensor.bytes.assign(bytes, '\0');
    }
    const Model model = folder.load();
    // The mapping's line in smaps, and how much of it is in memory.
    std::ifstream maps("/proc/self/smaps");
    const std::string name = std::filesystem::canonical(folder.folder / "model.safetensors").string();
    std::string line;
    while (std::getline(maps, line) && line.find(name) == std::string::npos) {
    }
    std::int64_t kibibytes = -1;
    while (kibibytes < 0 && std::getline(maps, line)) {
        std::sscanf(line.c_str(), "Rss: %" SCNd64, &kibibytes);
    }
    ASSERT_GE(kibibytes, 0);
    EXPECT_LT(1024 * kibibytes, static_cast<std::int64_t>(std::filesystem::file_size(name) / 8)) << kibibytes;
}

TEST(ModelFolder, IsNamedRatherThanOneOfItsFiles) {
    const std::filesystem::path folder = model_fixtures / "llama3_f32";
    const std::filesystem::path config = folder / "config.json", weights = folder / "model.safetensors";
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(config); },
        config.string() + " is no GGUF file, but one file of a model: give the folder that holds it"));
    const std::string answer = weights.string() + " is a .safetensors file: give the folder that holds it";
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(weights); }, answer));
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::load(weights); }, answer));
    const std::filesystem::path index = folder / "model.safetensors.index.json";
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(index); },
        index.string() + " lists the files of a model: give the folder that holds it"));
    ModelConfig::load(config);
}

TEST(ModelFolder, WithWrongTensorsIsRefusedByName) {
    const std::string norm = "model.layers.1.input_layernorm.weight", matrix = "model.layers.2.mlp.up_proj.weight";
    const auto fixture = [] { return std::string("llama3_f32"); };
    {
        Folder folder(fixture());
        folder.tensors.erase(norm);
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'" + norm + "' is missing"));
    }
    {
        Folder folder(fixture());
        folder.tensors.erase("lm_head.weight");
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'lm_head.weight' is missing"));
    }
    {
        Folder folder(fixture());
        folder.tensors["model.layers.3.input_layernorm.weight"] = folder.tensors[norm];
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'model.layers.3.input_layernorm.weight' is not part of",
                                   "LlamaForCausalLM"));
    }
    {
        Folder folder(fixture());
        folder.tensors["model.layers.0.self_attn.q_proj.bias"] = folder.tensors[norm];
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'model.layers.0.self_attn.q_proj.bias' is not part of"));
    }
    {
        Folder folder(fixture());
        std::swap(folder.tensors[matrix].shape[0], folder.tensors[matrix].shape[1]);
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'" + matrix + "' has shape [33, 47] instead of [47, 33]",
                                   "model.safetensors: "));
    }
    {
        Folder folder(fixture());
        folder.tensors[matrix].dtype = "I32";
        EXPECT_TRUE(folder.refused(HALYARD_UNSUPPORTED, "'" + matrix + "' is I32"));
    }
    {
        Folder folder("llama_linear_f32");
        folder.tensors["lm_head.weight"] = folder.tensors["model.embed_tokens.weight"];
        folder.tensors["lm_head.weight"].bytes[5] ^= 1;
        EXPECT_TRUE(
            folder.refused(HALYARD_INVALID_ARGUMENT, "'lm_head.weight' differs from 'model.embed_tokens.weight'"));
    }
    {
        Folder folder(fixture());
        folder.config["num_hidden_layers"] = 2;
        EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "'model.layers.2.", "is not part of"));
    }
    const TemporaryFolder empty;
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load(empty.path()); }, "config.json cannot be opened"));
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Model::load("/nonexistent"); }, "/nonexistent cannot be opened"));
}

// ---- Options ----

TEST(ModelOptions, SayHowFarLoadingIs) {
    std::vector<std::int64_t> steps;
    std::int64_t of = 0;
    std::vector<std::string> names;
    LoadOptions options;
    options.progress = [&](std::int64_t done, std::int64_t total, const std::string &what) {
        steps.push_back(done);
        of = total;
        names.push_back(what);
    };
    Model::load(model_fixtures / "llama3_bf16", options);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_GT(steps.front(), 0);
    EXPECT_EQ(steps.back(), of);
    EXPECT_EQ(names.front(), "layer 0 of 3");
    EXPECT_EQ(names.back(), "embedding and last layer");
    std::int64_t bytes = 0;
    const SafeTensors files = SafeTensors::open(model_fixtures / "llama3_bf16");
    for (const SafeTensors::Info &info : files.tensors()) {
        bytes += info.bytes;
    }
    EXPECT_EQ(of, bytes);
}

TEST(ModelOptions, BoundPositions) {
    for (const char *const fixture : {"gpt2_f32", "gemma3_f32"}) {
        const std::vector<std::int64_t> tokens = Transformers(model_fixtures / fixture).input_ids;
        LoadOptions options;
        options.max_positions = 9;
        Model model = Model::load(model_fixtures / fixture, options);
        EXPECT_EQ(model.max_positions(), 9);
        EXPECT_GT(model.block_bytes(), 0);
        KvCache cache = model.make_cache();
        EXPECT_EQ(cache.options().max_positions, 9);
        EXPECT_EQ(model.make_cache(5).options().max_positions, 5);
        std::vector<float> logits(61);
        model.forward({tokens.begin(), tokens.begin() + 9}, cache, logits);
        EXPECT_THROW(model.forward({1}, cache, logits), Error);

        const Model whole = Model::load(model_fixtures / fixture);
        EXPECT_EQ(whole.max_positions(), whole.config().max_position_embeddings);
        const std::size_t vocab = logits.size();
        const States want = run_prompt(whole, tokens);
        const auto *const row = want.back().data() + 8 * vocab;
        EXPECT_EQ(logits, std::vector<float>(row, row + vocab));
        // What is moved is the same model.
        const Model moved = std::move(model);
        KvCache fresh = moved.make_cache();
        std::vector<float> again(vocab);
        moved.forward({tokens.begin(), tokens.begin() + 9}, fresh, again);
        EXPECT_EQ(again, logits);

        for (const std::int64_t positions : {std::int64_t{-1}, whole.max_positions() + 1}) {
            options.max_positions = positions;
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT, [&] { Model::load(model_fixtures / fixture, options); }, "max_positions"));
        }
    }
}

// A small file may claim any number of positions, and a table of rotations has entries for each.
TEST(ModelOptions, AskForMorePositionsThanUsual) {
    Folder rotating("llama3_f32");
    rotating.config["max_position_embeddings"] = 1 << 24;
    const Model usual = rotating.load();
    EXPECT_EQ(usual.config().max_position_embeddings, 1 << 24);
    EXPECT_EQ(usual.max_positions(), 131072);
    EXPECT_EQ(usual.make_cache(9).options().max_positions, 9);
    LoadOptions options;
    options.max_positions = 131073;
    EXPECT_EQ(rotating.load(options).max_positions(), 131073);
    options.max_positions = (1 << 24) + 1;
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { rotating.load(options); }, "max_positions is 16777217",
        "the model has 16777216"));
    // Learned positions are in the file.
    Folder learned("gpt2_f32");
    learned.config["n_positions"] = 131073;
    StoredTensor &table = learned.tensors.at("transformer.wpe.weight");
    table.bytes.assign(table.bytes.size() / static_cast<std::size_t>(table.shape[0]) * 131073, '\0');
    table.shape[0] = 131073;
    EXPECT_EQ(learned.load().max_positions(), 131073);
}

TEST(ModelCaches, AreOfTheModelsTypeUnlessAskedOtherwise) {
    const auto f32 = element<float>::dtype, narrow = element<bf16>::dtype;
    const auto dtype_of = [](const KvCache &cache) {
        return std::pair(cache.options().dtype.code, cache.options().dtype.bits);
    };
    const Model of_f32 = Model::load(model_fixtures / "qwen3_f32"),
                of_bf16 = Model::load(model_fixtures / "qwen3_bf16");
    EXPECT_EQ(dtype_of(of_f32.make_cache()), std::pair(f32.code, f32.bits));
    EXPECT_EQ(dtype_of(of_bf16.make_cache(20)), std::pair(narrow.code, narrow.bits));
    EXPECT_EQ(dtype_of(of_bf16.make_cache(0, f32)), std::pair(f32.code, f32.bits));
}

TEST(ModelForward, RefusesTokensThatThereAreNot) {
    const Model model = Model::load(model_fixtures / "qwen3_f32");
    KvCache cache = model.make_cache();
    std::vector<float> logits(61);
    EXPECT_THROW(model.forward({61}, cache, logits), Error);
    EXPECT_THROW(model.forward({-1}, cache, logits), Error);
    EXPECT_THROW(model.forward({}, cache, logits), Error);
    std::vector<float> few(60);
    EXPECT_THROW(model.forward({1}, cache, few), Error);
    KvCache none;
    EXPECT_THROW(model.forward({1}, none, logits), Error);
    EXPECT_EQ(cache.length(0, 0), 0);
}

}  // namespace
}  // namespace halyard::tests
