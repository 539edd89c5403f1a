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

#include "halyard/model.hpp"
#include "support/files.h"
#include "support/golden.h"

namespace halyard::tests {
namespace {

const std::filesystem::path data = HALYARD_TEST_MODELS;

const char *const architectures[] = {"gpt2",    "llama3", "llama_linear", "qwen2", "qwen3",
                                     "mistral", "gemma",  "gemma2",       "gemma3"};

// ---- What transformers computed ----

/** Hidden states by layer as in halyard_hidden_state_observer, then the logits: each [T, features]. */
using States = std::vector<std::vector<float>>;

struct Expected {
    explicit Expected(const std::filesystem::path &folder)
        : files(SafeTensors::open(folder / "expected.safetensors")), input_ids(integers("input_ids")) {}

    std::vector<std::int64_t> integers(const std::string &name) const {
        const SafeTensors::Info &info = *files.find(name);
        std::vector<std::int64_t> values(static_cast<std::size_t>(info.bytes) / 8);
        std::memcpy(values.data(), info.data, static_cast<std::size_t>(info.bytes));
        return values;
    }
    /** prefix: "", or "exact." for what the same weights give in float32 arithmetic. */
    States states(const std::string &prefix = "") const {
        States result;
        const auto add = [&](const std::string &name) {
            const SafeTensors::Info *const info = files.find(prefix + name);
            if (info == nullptr) {
                return false;
            }
            std::vector<float> values(static_cast<std::size_t>(info->bytes) / 4);
            std::memcpy(values.data(), info->data, static_cast<std::size_t>(info->bytes));
            result.push_back(values);
            return true;
        };
        for (int layer = 0; add("hidden." + std::to_string(layer)); layer++) {
        }
        add("logits");
        return result;
    }

    SafeTensors files;
    std::vector<std::int64_t> input_ids;
};

// ---- What halyard computes ----

/** Gathers hidden states of calls with some of the tokens each. */
class Observer {
public:
    Observer(const Model &model, std::size_t tokens)
        : states_(model.config().blocks.size() + 3),
          widths_(states_.size(), static_cast<std::size_t>(model.config().stack.hidden_size)) {
        widths_.back() = static_cast<std::size_t>(model.config().stack.vocab_size);
        for (std::size_t layer = 0; layer < states_.size(); layer++) {
            states_[layer].resize(tokens * widths_[layer], std::nanf(""));
        }
    }

    /** Runs tokens [first, first + count); all of them are known. */
    void run(const Model &model, const std::vector<std::int64_t> &tokens, std::size_t first, std::size_t count,
             KvCache *cache, const halyard_context *context) {
        first_ = first;
        halyard_stack_options options{};
        options.all_logits = 1;
        options.observer = &Observer::see;
        options.user = this;
        const Positions ids(tokens.data() + first, count);
        const std::size_t vocab = widths_.back();
        const Tensor logits(states_.back().data() + first * vocab, {count, vocab});
        check(halyard_stack_forward(context, model.stack().get(), ids.get(), cache != nullptr ? cache->get() : nullptr,
                                    nullptr, &options, logits.get()));
    }

    const States &states() const { return states_; }

private:
    static void see(void *user, std::int64_t layer, std::int64_t first_token, const DLTensor *hidden) {
        auto &self = *static_cast<Observer *>(user);
        const auto at = static_cast<std::size_t>(layer);
        const auto width = self.widths_[at];
        const std::size_t first = self.first_ + static_cast<std::size_t>(first_token);
        const auto tokens = static_cast<std::size_t>(hidden->shape[hidden->ndim - 2]);
        ASSERT_EQ(hidden->shape[hidden->ndim - 1], static_cast<std::int64_t>(width));
        ASSERT_LE((first + tokens) * width, self.states_[at].size());
        std::memcpy(self.states_[at].data() + first * width,
                    static_cast<const char *>(hidden->data) + hidden->byte_offset, tokens * width * sizeof(float));
    }

    States states_;
    std::vector<std::size_t> widths_;
    std::size_t first_ = 0;
};

States run_prompt(const Model &model, const std::vector<std::int64_t> &tokens, KvCache *cache = nullptr,
                  const halyard_context *context = nullptr) {
    Observer observer(model, tokens.size());
    observer.run(model, tokens, 0, tokens.size(), cache, context);
    return observer.states();
}

States run_token_by_token(const Model &model, const std::vector<std::int64_t> &tokens, KvCache &cache) {
    Observer observer(model, tokens.size());
    for (std::size_t i = 0; i < tokens.size(); i++) {
        observer.run(model, tokens, i, 1, &cache, nullptr);
    }
    return observer.states();
}

// ---- How far they may be apart ----

/** The largest difference over the largest number that is expected. */
double distance(const std::vector<float> &got, const std::vector<float> &want) {
    if (got.size() != want.size()) {
        return INFINITY;
    }
    double largest = 0, difference = 0;
    for (std::size_t i = 0; i < want.size(); i++) {
        const double d = std::fabs(static_cast<double>(got[i]) - want[i]);
        difference = d > difference || std::isnan(d) ? d : difference;  // a NaN stays
        largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
    }
    return difference / largest;
}

// Roundings are as good as independent: n of them, each of at most u of what is rounded, come to about sqrt(n) u
// (Higham and Mary 2019), with a standard deviation of 0.58 sqrt(n) u. Twice that, or three and a half deviations, is
// the bound for the largest of the few hundred differences of a tensor.
//
// Measured, as a part of the bound: float32 at most 0.41; bfloat16 at most 0.48, and 0.29 in float32 arithmetic; caches
// in 16 bits at most 0.53. A configuration with one field changed by a few percent is beyond it 26 times at least,
// mostly hundreds.
double bound(double unit_roundoff, double roundings) {
    return 2 * unit_roundoff * std::sqrt(roundings);
}

constexpr double f32_roundoff = 0x1p-24, bf16_roundoff = 0x1p-8, f16_roundoff = 0x1p-11;

/** Roundings on the way to hidden state `layer` where arithmetic is in float32: one for each term of a sum. */
double f32_roundings(const ModelConfig &config, std::size_t layer, std::size_t tokens) {
    const BlockConfig &block = config.blocks.front();
    const auto d = static_cast<double>(block.hidden_size), t = static_cast<double>(tokens);
    double per_block = 4 * d;                                  // two norms; q, k and v; gate and up
    per_block += static_cast<double>(block.head_dim) + 2 * t;  // scores, softmax, values
    per_block += static_cast<double>(block.num_attention_heads * block.head_dim + block.intermediate_size);
    per_block += 20;  // single operations
    if (block.rope.rope_theta != 0) {
        per_block += t * t;  // transformers has angles in float32: at position t they are off by t roundings
    }
    const std::size_t blocks = config.blocks.size();
    return 2 + static_cast<double>(std::min(layer, blocks)) * per_block + (layer > blocks ? 2 * d : 0);
}

/** The same where transformers rounds every result to bfloat16. */
double bf16_roundings(const ModelConfig &config, std::size_t layer) {
    const BlockConfig &block = config.blocks.front();
    // Norm 2, q 1, scores 2, softmax 1, values 1, output 1, sum 1; norm 2, gate 1, activation 1, product 1, down 1,
    // sum 1.
    double per_block = 16;
    per_block += block.rope.rope_theta != 0 ? 4 : 0;  // cosine, two products, sum
    per_block += config.qk_norm ? 2 : 0;
    per_block += block.attn_logit_softcapping != 0 ? 3 : 0;
    per_block += block.norm_placement == NormPlacement::sandwich ? 4 : 0;
    per_block += config.architecture == Architecture::gpt2 ? 6 : 0;  // GELU from single operations
    const std::size_t blocks = config.blocks.size();
    const double head = layer <= blocks ? 0 : config.stack.final_logit_softcapping != 0 && layer > blocks + 1 ? 6 : 3;
    return 1 + static_cast<double>(std::min(layer, blocks)) * per_block + head;
}

/** The largest distance of all states, each as a part of its bound. */
template<class Bound>
double part_of_bound(const States &got, const States &want, const Bound &bound_of) {
    if (got.size() != want.size()) {
        return INFINITY;
    }
    double largest = 0;
    for (std::size_t layer = 0; layer < want.size(); layer++) {
        const double part = distance(got[layer], want[layer]) / bound_of(layer);
        largest = part > largest || std::isnan(part) ? part : largest;
    }
    return largest;
}

double f32_part(const Model &model, const States &got, const States &want, std::size_t tokens) {
    return part_of_bound(got, want, [&](std::size_t layer) {
        return bound(f32_roundoff, f32_roundings(model.config(), layer, tokens));
    });
}

// ---- Against transformers ----

class Models : public testing::TestWithParam<const char *> {
protected:
    static std::filesystem::path folder(const std::string &suffix) { return data / (GetParam() + suffix); }
};
INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

TEST_P(Models, AgreeInFloat32) {
    const Model model = Model::load(folder("_f32"));
    const Expected expected(folder("_f32"));
    const States want = expected.states();
    ASSERT_EQ(want.size(), model.config().blocks.size() + 3);
    double worst = 0;
    for (int isa = 0; isa < halyard_isa_count(); isa++) {
        if (halyard_isa_supported(static_cast<halyard_isa>(isa)) == 0) {
            continue;
        }
        Context context;
        context.set_max_isa(static_cast<Isa>(isa));
        const States got = run_prompt(model, expected.input_ids, nullptr, context);
        const double part = f32_part(model, got, want, expected.input_ids.size());
        EXPECT_LT(part, 1) << to_string(static_cast<Isa>(isa));
        worst = std::max(worst, part);
    }
    RecordProperty("part_of_bound", std::to_string(worst));
}

// Weights in bfloat16: transformers rounds every result to it, halyard none. In float32 arithmetic both do the same.
TEST_P(Models, AgreeInBfloat16) {
    const Model model = Model::load(folder("_bf16"));
    const Expected expected(folder("_bf16"));
    const States got = run_prompt(model, expected.input_ids);
    const double rounded = part_of_bound(got, expected.states(), [&](std::size_t layer) {
        return bound(bf16_roundoff, bf16_roundings(model.config(), layer));
    });
    const double exact = f32_part(model, got, expected.states("exact."), expected.input_ids.size());
    EXPECT_LT(rounded, 1);
    EXPECT_LT(exact, 1);
    RecordProperty("part_of_bound", std::to_string(rounded));
    RecordProperty("part_of_bound_in_f32_arithmetic", std::to_string(exact));
}

TEST(ModelBits, AreThoseOfEveryMachine) {
    expect_golden_bits("models", [](halyard_isa isa) {
        Hashes hashes;
        Context context;
        context.set_max_isa(static_cast<Isa>(isa));
        for (const std::string name : architectures) {
            for (const char *const suffix : {"_f32", "_bf16"}) {
                const Model model = Model::load(data / (name + suffix));
                BitsHash results;
                for (const std::vector<float> &states :
                     run_prompt(model, Expected(data / (name + suffix)).input_ids, nullptr, context)) {
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
        const std::vector<std::int64_t> tokens = Expected(folder(suffix)).input_ids;
        const States whole = run_prompt(model, tokens);
        KvCache cache = model.make_cache();
        EXPECT_EQ(run_prompt(model, tokens, &cache), whole);
        EXPECT_EQ(cache.length(0, 0), static_cast<std::int64_t>(tokens.size()));
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

// A cache in 16 bits rounds keys and values: two roundings more in every block.
TEST_P(Models, StayCloseWithACacheIn16Bits) {
    const Model model = Model::load(folder("_f32"));
    const Expected expected(folder("_f32"));
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
    const Expected expected(folder("_f32"));
    KvCache cache = model.make_cache();
    Sampler sampler;
    std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
    std::vector<std::int64_t> generated;
    model.forward(expected.input_ids, cache, logits);
    while (generated.size() < expected.integers("generated").size()) {
        generated.push_back(sampler(logits));
        model.forward({generated.back()}, cache, logits);
    }
    EXPECT_EQ(generated, expected.integers("generated"));
}

// ---- Folders ----

struct StoredTensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

/** A fixture's files, to be changed and written to a folder of their own. */
class Folder {
public:
    explicit Folder(const std::string &fixture)
        : config(nlohmann::json::parse(read_text(data / fixture / "config.json"))) {
        const SafeTensors files = SafeTensors::open(data / fixture);
        for (const SafeTensors::Info &info : files.tensors()) {
            tensors[info.name] = {info.dtype,
                                  info.shape,
                                  {reinterpret_cast<const char *>(info.data), static_cast<std::size_t>(info.bytes)}};
        }
    }

    void write_file(const std::string &name, const std::map<std::string, StoredTensor> &stored,
                    std::size_t padding = 0) const {
        nlohmann::json header = nlohmann::json::object();
        std::string bytes;
        for (const auto &[tensor, value] : stored) {
            header[tensor] = {{"dtype", value.dtype},
                              {"shape", value.shape},
                              {"data_offsets", {bytes.size(), bytes.size() + value.bytes.size()}}};
            bytes += value.bytes;
        }
        const std::string text = header.dump() + std::string(padding, ' ');
        const std::uint64_t length = text.size();
        write_text(folder / name, std::string(reinterpret_cast<const char *>(&length), 8) + text + bytes);
    }
    Model load(const LoadOptions &options = {}) const {
        write_text(folder / "config.json", config.dump());
        if (!std::filesystem::exists(folder / "model.safetensors.index.json")) {
            write_file("model.safetensors", tensors);
        }
        return Model::load(folder.path(), options);
    }
    testing::AssertionResult refused(halyard_status status, const std::string &first,
                                     const std::string &second = "") const {
        return throws(
            status, [&] { load(); }, folder.path().string(), first, second);
    }

    TemporaryFolder folder;
    nlohmann::json config;
    std::map<std::string, StoredTensor> tensors;
};

/** What the fixture's tokens give; the files may be written in any way that says the same. */
States states_of(const Folder &folder, const std::string &fixture) {
    return run_prompt(folder.load(), Expected(data / fixture).input_ids);
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
        const Expected expected(data / each.fixture);
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
            EXPECT_EQ(run_prompt(Model::load(askew.folder.path()), Expected(data / fixture).input_ids), want);
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
        const Expected expected(data / fixture);
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

// The same model in a larger size, so that what the system reads around a page does not count.
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
        // Matrices of one block have one dtype.
        Folder folder(fixture());
        StoredTensor &tensor = folder.tensors[matrix];
        tensor.dtype = "F16";
        tensor.bytes.resize(tensor.bytes.size() / 2);
        EXPECT_TRUE(folder.refused(HALYARD_UNSUPPORTED, "layer 2 of 3: ", "up_proj"));
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
        HALYARD_INVALID_ARGUMENT, [&] { Model::load("/nonexistent"); }, "/nonexistent/config.json"));
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
    Model::load(data / "llama3_bf16", options);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
    EXPECT_GT(steps.front(), 0);
    EXPECT_EQ(steps.back(), of);
    EXPECT_EQ(names.front(), "layer 0 of 3");
    EXPECT_EQ(names.back(), "embedding and last layer");
    std::int64_t bytes = 0;
    const SafeTensors files = SafeTensors::open(data / "llama3_bf16");
    for (const SafeTensors::Info &info : files.tensors()) {
        bytes += info.bytes;
    }
    EXPECT_EQ(of, bytes);
}

TEST(ModelOptions, BoundPositions) {
    for (const char *const fixture : {"gpt2_f32", "gemma3_f32"}) {
        const std::vector<std::int64_t> tokens = Expected(data / fixture).input_ids;
        LoadOptions options;
        options.max_positions = 9;
        Model model = Model::load(data / fixture, options);
        EXPECT_EQ(model.max_positions(), 9);
        EXPECT_GT(model.block_bytes(), 0);
        KvCache cache = model.make_cache();
        EXPECT_EQ(cache.options().max_positions, 9);
        EXPECT_EQ(model.make_cache(5).options().max_positions, 5);
        std::vector<float> logits(61);
        model.forward({tokens.begin(), tokens.begin() + 9}, cache, logits);
        EXPECT_THROW(model.forward({1}, cache, logits), Error);

        const Model whole = Model::load(data / fixture);
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
                HALYARD_INVALID_ARGUMENT, [&] { Model::load(data / fixture, options); }, "max_positions"));
        }
    }
}

TEST(ModelForward, RefusesTokensThatThereAreNot) {
    const Model model = Model::load(data / "qwen3_f32");
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
