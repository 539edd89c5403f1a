// Blocks as they are written with torch.nn.MultiheadAttention against what torch computes (data/torch_blocks/make.py):
// norms before or behind, LayerNorm or RMSNorm, a standard or a gated network.
#include <gtest/gtest.h>

#include <cstring>

#include "support/models.h"

namespace halyard::tests {
namespace {

struct Form {
    const char *name;
    NormPlacement placement;
    Norm norm;
    Activation activation;
    bool gated;
};
const Form forms[] = {
    {"pre_layer_standard", NormPlacement::pre, Norm::layer, Activation::relu, false},
    {"pre_layer_swiglu", NormPlacement::pre, Norm::layer, Activation::silu, true},
    {"pre_rms_standard", NormPlacement::pre, Norm::rms, Activation::relu, false},
    {"pre_rms_swiglu", NormPlacement::pre, Norm::rms, Activation::silu, true},
    {"post_layer_standard", NormPlacement::post, Norm::layer, Activation::relu, false},
    {"post_layer_swiglu", NormPlacement::post, Norm::layer, Activation::silu, true},
    {"post_rms_standard", NormPlacement::post, Norm::rms, Activation::relu, false},
    {"post_rms_swiglu", NormPlacement::post, Norm::rms, Activation::silu, true},
    {"pre_rms_silu", NormPlacement::pre, Norm::rms, Activation::silu, false},
};

class TorchBlocks : public testing::TestWithParam<Form> {
protected:
    const SafeTensors files = SafeTensors::open(HALYARD_TEST_DATA "/torch_blocks/blocks.safetensors");

    /** A parameter under its name in torch, if the block has it. */
    ConstTensor parameter(const std::string &name) const {
        const SafeTensors::Info *const info = files.find(std::string(GetParam().name) + "." + name);
        return info != nullptr ? ConstTensor(SafeTensors::view(*info)) : ConstTensor();
    }
    template<class T>
    std::vector<T> values(const std::string &name) const {
        const SafeTensors::Info &info = *files.find(name);
        std::vector<T> result(static_cast<std::size_t>(info.bytes) / sizeof(T));
        std::memcpy(result.data(), info.data, static_cast<std::size_t>(info.bytes));
        return result;
    }
};
INSTANTIATE_TEST_SUITE_P(All, TorchBlocks, testing::ValuesIn(forms),
                         [](const auto &each) { return std::string(each.param.name); });

TEST_P(TorchBlocks, GiveTheSame) {
    const std::vector<std::int64_t> shape = files.find("x")->shape;
    BlockWeights weights;
    weights.qkv_proj = parameter("attention.in_proj_weight");
    weights.qkv_proj_bias = parameter("attention.in_proj_bias");
    weights.o_proj = parameter("attention.out_proj.weight");
    weights.o_proj_bias = parameter("attention.out_proj.bias");
    weights.gate_proj = parameter("ffn.gate.weight");
    weights.up_proj = parameter("ffn.up.weight");
    weights.up_proj_bias = parameter("ffn.up.bias");
    weights.down_proj = parameter("ffn.down.weight");
    weights.down_proj_bias = parameter("ffn.down.bias");
    weights.attention_norm = parameter("attention_norm.weight");
    weights.attention_norm_bias = parameter("attention_norm.bias");
    weights.ffn_norm = parameter("ffn_norm.weight");
    weights.ffn_norm_bias = parameter("ffn_norm.bias");
    BlockConfig config;
    config.hidden_size = shape[2];
    config.num_attention_heads = 3;
    config.intermediate_size = weights.up_proj.get()->shape[0];
    config.norm = GetParam().norm;
    config.norm_placement = GetParam().placement;
    config.rms_norm_eps =
        config.norm == Norm::layer ? 1e-5f : 1e-6f;  // as LayerNorm of torch, and as the texts' RMSNorm
    config.hidden_act = GetParam().activation;
    config.gated_mlp = GetParam().gated;
    config.causal = false;
    const Block block(config, weights);

    const std::vector<float> x = values<float>("x");
    const std::vector<double> exact = values<double>(std::string(GetParam().name) + ".y");
    ModelConfig model;
    model.blocks = {block.config()};
    const double allowed = bound(f32_roundoff, f32_roundings(model, 1, static_cast<std::size_t>(shape[1])));
    for (int i = 0; i < halyard_isa_count(); i++) {
        const auto isa = static_cast<Isa>(halyard_isa_at(i));
        if (supported(isa)) {
            Context context;
            context.set_max_isa(isa);
            std::vector<float> y(x.size());
            block.forward({x, {shape[0], shape[1], shape[2]}}, {y, {shape[0], shape[1], shape[2]}}, context);
            EXPECT_LT(distance(y, std::vector<float>(exact.begin(), exact.end())), allowed) << to_string(isa);
        }
    }
}

}  // namespace
}  // namespace halyard::tests
