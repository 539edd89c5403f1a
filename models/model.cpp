// Models: the tensors of a folder or a GGUF file packed into blocks and a stack, one layer after another.
#include <algorithm>
#include <optional>
#include <utility>

#include "fail.h"
#include "floating_point.h"
#include "halyard/model.hpp"
#include "inventory.h"
#include "names.h"
#include "stored_tensor.h"
#include "views.h"

namespace halyard {

using models::refuse;

namespace {

using Formats = std::vector<std::pair<std::string, std::int64_t>>;

using models::Inventory;
using models::Source;
using models::StoredTensor;

/// `value` as a tensor of this dtype would hold it.
float rounded_to(DLDataType dtype, float value) {
    std::uint32_t bits = 0;  // room for every dtype
    std::int64_t shape[] = {1};
    DLTensor narrow{&bits, {kDLCPU, 0}, 1, dtype, shape, nullptr, 0};
    check(halyard_cast(nullptr, ConstTensor(&value, 1).get(), &narrow));
    float result = 0;
    check(halyard_cast(nullptr, &narrow, Tensor(&result, 1).get()));
    return result;
}

/// The core's messages name its own arguments: the layer is said before.
template<class Make>
auto made(const std::filesystem::path &path, const std::string &what, const Make &make) {
    try {
        return make();
    } catch (const Error &error) {
        models::fail(error.status(), path, ": ", what, ": ", error.what());
    }
}

/// Where a block's matrix goes that stays quantized.
const Codes *BlockCodes::*codes_member(ConstTensor BlockWeights::*argument) {
    constexpr std::pair<ConstTensor BlockWeights::*, const Codes * BlockCodes::*> members[] = {
        {&BlockWeights::q_proj, &BlockCodes::q_proj},   {&BlockWeights::k_proj, &BlockCodes::k_proj},
        {&BlockWeights::v_proj, &BlockCodes::v_proj},   {&BlockWeights::qkv_proj, &BlockCodes::qkv_proj},
        {&BlockWeights::o_proj, &BlockCodes::o_proj},   {&BlockWeights::gate_proj, &BlockCodes::gate_proj},
        {&BlockWeights::up_proj, &BlockCodes::up_proj}, {&BlockWeights::down_proj, &BlockCodes::down_proj}};
    for (const auto &[tensor, codes] : members) {
        if (tensor == argument) {
            return codes;
        }
    }
    return nullptr;
}

/// Counts matrices by their formats.
class FormatCounts {
public:
    /// `became`: none if it stays quantized. `bits`: of its codes where it is quantized when it is packed, else 0.
    void add(const StoredTensor &stored, std::optional<DLDataType> became, int bits = 0) {
        const bool kept = became ? stored.dtype && models::same(*stored.dtype, *became) : !stored.dtype;
        const std::string name = (kept ? stored.format : stored.format + " as " + name_of(*became)) +
                                 (bits != 0 ? " in " + std::to_string(bits) + " bits" : "");
        const auto found =
            std::find_if(counts_.begin(), counts_.end(), [&](const auto &each) { return each.first == name; });
        (found != counts_.end() ? *found : counts_.emplace_back(name, 0)).second++;
    }
    Formats sorted() const {
        Formats all = counts_;
        std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
        return all;
    }

private:
    static const char *name_of(DLDataType dtype) {
        return models::same(dtype, element<float>::dtype) ? "f32"
               : models::same(dtype, element<f16>::dtype) ? "f16"
                                                          : "bf16";
    }

    Formats counts_;
};

}  // namespace

struct Model::State {
    explicit State(const std::filesystem::path &path) : source(path) {}

    Source source;
    std::int64_t max_positions = 0;
    DLDataType dtype{};  // of the embedding, f32 where it is quantized
    DLDevice device{};
    Formats formats;
    models::Views stack_views;  // on a processor the stack reads the embeddings from them
    std::vector<Block> blocks;
    Stack stack;
};

Model::Model(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model &&) noexcept = default;
Model &Model::operator=(Model &&) noexcept = default;

namespace {

/// Makes the parts of a model, one after the other.
class Loader {
public:
    Loader(const std::filesystem::path &path, const LoadOptions &options, const Inventory &inventory)
        : path_(path), options_(options), inventory_(inventory),
          unpacked_(options.unpacked_dtype.value_or(element<float>::dtype)),
          keeps_(!options.unpacked_dtype && options.device.device_type == kDLCPU) {}

    Block block(const BlockConfig &config, WeightLayout layout, std::size_t layer, std::size_t layers) {
        const std::string what = models::sentence("layer ", layer, " of ", layers);
        const auto stays = [&](const models::BlockPart &part) {
            return keeps_ && inventory_.can_stay_quantized(part, layer);
        };
        const DLDataType matrix_dtype = common_dtype(layer, stays);
        models::Views views;
        BlockWeights weights;
        weights.layout = layout;
        weights.device = options_.device;
        weights.quantization = options_.quantization;
        for (const models::BlockPart &part : inventory_.block(layer)) {
            const StoredTensor &stored = inventory_.find(part);
            const bool is_matrix = part.shape.size() == 2;
            if (stays(part)) {
                weights.codes.*codes_member(part.argument) = views.codes(stored, part.interleaved_heads);
                formats_.add(stored, std::nullopt);
                continue;
            }
            const DLDataType dtype = is_matrix ? matrix_dtype : dtype_of(stored);
            weights.*part.argument = views.of(options_.context, stored, dtype, part.interleaved_heads);
            if (is_matrix) {
                formats_.add(stored, dtype, options_.quantization.bits);
            }
        }
        Block block = made(path_, what, [&] { return Block(config, weights, options_.context); });
        packed(inventory_.block(layer), what);
        return block;
    }

    /// `views` must live as long as the stack. `dtype` becomes that of the embedding.
    Stack stack(StackConfig &config, const std::vector<Block> &blocks, models::Views &views, DLDataType &dtype) {
        const std::string what = "embedding and last layer";
        StackWeights weights;
        weights.quantization = options_.quantization;
        models::Views until_packed;
        dtype = element<float>::dtype;
        for (const models::StackPart &part : inventory_.stack()) {
            const StoredTensor &stored = inventory_.find(part);
            const bool is_table = part.argument == &StackWeights::embed_tokens,
                       is_head = part.argument == &StackWeights::lm_head;
            const bool stays_in_memory = is_table || part.argument == &StackWeights::embed_positions ||
                                         part.argument == &StackWeights::embed_types;
            models::Views &own = stays_in_memory ? views : until_packed;
            if (keeps_ && (is_table || is_head) && !stored.dtype) {
                (is_table ? weights.embed_tokens_codes : weights.lm_head_codes) = own.codes(stored);
                formats_.add(stored, std::nullopt);
                continue;
            }
            weights.*part.argument = own.of(options_.context, stored, dtype_of(stored));
            if (is_table || is_head) {
                formats_.add(stored, dtype_of(stored), is_head ? options_.quantization.bits : 0);
            }
            dtype = is_table ? dtype_of(stored) : dtype;
        }
        // The model multiplies in the dtype of its embedding.
        config.embedding_multiplier = rounded_to(dtype, config.embedding_multiplier);
        Stack stack = made(path_, what, [&] { return Stack(config, weights, blocks, options_.context); });
        packed(inventory_.stack(), what);
        return stack;
    }

    Formats formats() const { return formats_.sorted(); }

private:
    DLDataType dtype_of(const StoredTensor &stored) const { return stored.dtype.value_or(unpacked_); }

    /// The dtype of a block's matrices that come as tensors, which must have one: what quantized ones become where there are some, f32
    /// where they have several.
    template<class Stays>
    DLDataType common_dtype(std::size_t layer, const Stays &stays) const {
        std::optional<DLDataType> common;
        bool several = false;
        for (const models::BlockPart &part : inventory_.block(layer)) {
            if (part.shape.size() == 2 && !stays(part)) {
                const StoredTensor &stored = inventory_.find(part);
                if (!stored.dtype) {
                    return unpacked_;
                }
                several = several || (common && !models::same(*common, *stored.dtype));
                common = stored.dtype;
            }
        }
        return several ? element<float>::dtype : common.value_or(element<float>::dtype);
    }

    template<class Parts>
    void packed(const Parts &parts, const std::string &what) {
        for (const auto &part : parts) {
            const StoredTensor &stored = inventory_.find(part);
            stored.each_tensor([](const TensorInfo &info) { models::let_go(info); });
            done_ += stored.bytes();
        }
        if (options_.progress) {
            options_.progress(done_, inventory_.total(), what);
        }
    }

    const std::filesystem::path &path_;
    const LoadOptions &options_;
    const Inventory &inventory_;
    const DLDataType unpacked_;
    const bool keeps_;  // quantized matrices as they are
    FormatCounts formats_;
    std::int64_t done_ = 0;
};

void check_unpacked_dtype(const std::filesystem::path &path, DLDataType dtype) {
    if (!models::same(dtype, element<float>::dtype) && !models::same(dtype, element<f16>::dtype) &&
        !models::same(dtype, element<bf16>::dtype)) {
        refuse(path, ": unpacked_dtype has ", int{dtype.bits}, " bits and code ", int{dtype.code},
               "; supported are f32, f16 and bf16");
    }
}

}  // namespace

Model Model::load(const std::filesystem::path &path, const LoadOptions &options) {
    const models::DefaultFloatingPoint floating_point;
    auto state = std::make_unique<State>(path);
    State &model = *state;
    ModelConfig &config = model.source.config;
    if (options.max_positions < 0 || options.max_positions > config.max_position_embeddings) {
        refuse(path, ": max_positions is ", options.max_positions, "; the model has ", config.max_position_embeddings);
    }
    if (options.unpacked_dtype) {
        check_unpacked_dtype(path, *options.unpacked_dtype);
    }
    const Inventory inventory(path, model.source);
    const bool rotates = config.blocks.front().rope.rope_theta != 0;
    model.max_positions = options.max_positions > 0 ? options.max_positions
                          : rotates ? std::min(config.max_position_embeddings, LoadOptions::usual_positions)
                                    : config.max_position_embeddings;
    model.device = options.device;

    Loader loader(path, options, inventory);
    const std::size_t layers = config.blocks.size();
    for (std::size_t layer = 0; layer < layers; layer++) {
        if (layer + 1 < layers) {
            for (const models::BlockPart &part : inventory.block(layer + 1)) {
                inventory.find(part).each_tensor([](const TensorInfo &info) { models::read_ahead(info); });
            }
        }
        config.blocks[layer].max_position_embeddings = model.max_positions;
        model.blocks.push_back(loader.block(config.blocks[layer], model.source.layout(), layer, layers));
    }
    model.stack = loader.stack(config.stack, model.blocks, model.stack_views, model.dtype);
    model.formats = loader.formats();
    return Model(std::move(state));
}

const ModelConfig &Model::config() const noexcept {
    return state_->source.config;
}

std::int64_t Model::max_positions() const noexcept {
    return state_->max_positions;
}

const std::vector<std::pair<std::string, std::int64_t>> &Model::matrix_formats() const noexcept {
    return state_->formats;
}

std::int64_t Model::block_bytes() const noexcept {
    std::int64_t bytes = 0;
    for (const Block &block : state_->blocks) {
        bytes += block.bytes();
    }
    return bytes;
}

const Stack &Model::stack() const noexcept {
    return state_->stack;
}

KvCache Model::make_cache(std::int64_t max_positions, std::optional<DLDataType> dtype, std::int64_t n_sequences) const {
    const BlockConfig &block = state_->source.config.blocks.front();
    KvCacheOptions options;
    options.n_layers = static_cast<std::int64_t>(state_->blocks.size());
    options.n_sequences = n_sequences;
    options.n_kv_heads = block.num_key_value_heads;
    options.head_dim = block.head_dim;
    options.max_positions = max_positions != 0 ? max_positions : state_->max_positions;
    options.dtype = dtype.value_or(state_->dtype);
    return KvCache(options, state_->device);
}

void Model::forward(const std::vector<std::int64_t> &tokens, KvCache &cache, const Tensor &logits,
                    const halyard_context *context) const {
    stack().forward(tokens, cache, {0}, logits, context);
}

}  // namespace halyard
