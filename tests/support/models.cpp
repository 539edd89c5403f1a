// The fixtures of models, and runs of them.
#include "support/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/device_hooks.h"

namespace halyard::tests {

// Elsewhere where the environment says so, as for programs that were taken to another machine.
const std::filesystem::path model_fixtures =
    std::getenv("HALYARD_TEST_MODELS") != nullptr ? std::getenv("HALYARD_TEST_MODELS") : HALYARD_TEST_MODELS;

const char *const architectures[9] = {"gpt2",    "llama3", "llama_linear", "qwen2", "qwen3",
                                      "mistral", "gemma",  "gemma2",       "gemma3"};

// ---- What transformers computed ----

std::vector<std::int64_t> Transformers::integers(const std::string &name) const {
    const SafeTensors::Info &info = *files.find(name);
    std::vector<std::int64_t> values(static_cast<std::size_t>(info.bytes) / 8);
    std::memcpy(values.data(), info.data, static_cast<std::size_t>(info.bytes));
    return values;
}

States Transformers::states(const std::string &prefix) const {
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

// ---- What halyard computes ----

Observer::Observer(const Model &model, std::size_t tokens)
    : states_(model.config().blocks.size() + 3),
      widths_(states_.size(), static_cast<std::size_t>(model.config().stack.hidden_size)) {
    widths_.back() = static_cast<std::size_t>(model.config().stack.vocab_size);
    for (std::size_t layer = 0; layer < states_.size(); layer++) {
        states_[layer].resize(tokens * widths_[layer], std::nanf(""));
    }
}

void Observer::run(const Model &model, const std::vector<std::int64_t> &tokens, std::size_t first, std::size_t count,
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

void Observer::see(void *user, std::int64_t layer, std::int64_t first_token, const DLTensor *hidden) {
    auto &self = *static_cast<Observer *>(user);
    const auto at = static_cast<std::size_t>(layer);
    const auto width = self.widths_[at];
    const std::size_t first = self.first_ + static_cast<std::size_t>(first_token);
    const auto tokens = static_cast<std::size_t>(hidden->shape[hidden->ndim - 2]);
    ASSERT_EQ(hidden->shape[hidden->ndim - 1], static_cast<std::int64_t>(width));
    ASSERT_LE((first + tokens) * width, self.states_[at].size());
    DLTensor here = *hidden;
    std::vector<char> fetched;
    if (hidden->device.device_type == kDLCUDA) {
        const auto elements = static_cast<std::size_t>(hidden->strides[hidden->ndim - 2]) * (tokens - 1) + width;
        fetched.resize(elements * hidden->dtype.bits / 8);
        fetch_from_device(fetched.data(), static_cast<const char *>(hidden->data) + hidden->byte_offset,
                          fetched.size());
        here.data = fetched.data();
        here.byte_offset = 0;
        here.device = DLDevice{kDLCPU, 0};
    }
    const Tensor state(self.states_[at].data() + first * width, {std::size_t{1}, tokens, width});
    ASSERT_EQ(halyard_cast(nullptr, &here, state.get()), HALYARD_OK) << halyard_last_error();
}

States run_prompt(const Model &model, const std::vector<std::int64_t> &tokens, KvCache *cache,
                  const halyard_context *context) {
    Observer observer(model, tokens.size());
    observer.run(model, tokens, 0, tokens.size(), cache, context);
    return observer.states();
}

States run_token_by_token(const Model &model, const std::vector<std::int64_t> &tokens, KvCache &cache,
                          const halyard_context *context) {
    Observer observer(model, tokens.size());
    for (std::size_t i = 0; i < tokens.size(); i++) {
        observer.run(model, tokens, i, 1, &cache, context);
    }
    return observer.states();
}

std::vector<std::int64_t> generate(const Model &model, const std::vector<std::int64_t> &prompt, std::size_t count,
                                   const halyard_context *context) {
    KvCache cache = model.make_cache();
    Sampler sampler;
    std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
    std::vector<std::int64_t> generated;
    model.forward(prompt, cache, logits, context);
    while (generated.size() < count) {
        generated.push_back(sampler(logits));
        model.forward({generated.back()}, cache, logits, context);
    }
    return generated;
}

// ---- How far they may be apart ----

double bound(double unit_roundoff, double roundings) {
    return 2 * unit_roundoff * std::sqrt(roundings);
}

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
    const double embedding = 2 + (config.stack.embed_norm != halyard::Norm::none ? 1 + 2 * d : 0);
    return embedding + static_cast<double>(std::min(layer, blocks)) * per_block + (layer > blocks ? 2 * d : 0);
}

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
    const double embedding = 1 + (config.stack.embed_norm != halyard::Norm::none ? 3 : 0);
    return embedding + static_cast<double>(std::min(layer, blocks)) * per_block + head;
}

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

double f32_part(const Model &model, const States &got, const States &want, std::size_t tokens) {
    return part_of_bound(got, want, [&](std::size_t layer) {
        return bound(f32_roundoff, f32_roundings(model.config(), layer, tokens));
    });
}

}  // namespace halyard::tests
