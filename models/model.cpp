// Models: the tensors of a folder or a GGUF file packed into blocks and a stack, one layer after another.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "config.h"
#include "fail.h"
#include "floating_point.h"
#include "gguf.h"
#include "gguf_config.h"
#include "halyard/model.hpp"
#include "mapped_file.h"
#include "names.h"
#include "tensor_table.h"
#include "views.h"

namespace halyard {

using models::in_quotes;
using models::refuse;
using models::shape_text;

namespace {

void let_go(const TensorInfo &info) {
    models::let_go(info.data, static_cast<std::size_t>(info.bytes));
}

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

/// Where a model comes from: a folder with config.json and safetensors, or a GGUF file.
struct Source {
    explicit Source(const std::filesystem::path &path) {
        const std::filesystem::path file = models::config_file(path);
        if (file == path && path.filename() == "config.json") {
            refuse(path, "is no GGUF file, but one file of a model: name the folder that holds it");
        }
        if (file == path || file.extension() == ".gguf") {
            gguf.emplace(models::Gguf::open(file));
            config = models::config_of(*gguf);
        } else {
            config = ModelConfig::load(file);
            safetensors.emplace(SafeTensors::open(path));
        }
    }

    const std::vector<TensorInfo> &tensors() const { return gguf ? gguf->tensors() : safetensors->tensors(); }
    WeightLayout layout() const { return gguf ? WeightLayout::out_in : models::layout_of(config.architecture); }
    std::vector<models::StackPart> stack_parts() const {
        std::vector<models::StackPart> parts = models::stack_parts(config, prefix());
        return gguf ? models::in_gguf(std::move(parts)) : in_safetensors(std::move(parts));
    }
    std::vector<models::BlockPart> block_parts(std::size_t layer) const {
        std::vector<models::BlockPart> parts = models::block_parts(config, prefix(), layer);
        return gguf ? models::in_gguf(config, std::move(parts), layer) : in_safetensors(std::move(parts));
    }
    bool is_ignorable(std::string_view name) const {
        return gguf ? name == models::rope_factors_name && models::is_llama(config.architecture)
                    : models::is_ignorable(config.architecture, name);
    }

    ModelConfig config;
    std::optional<SafeTensors> safetensors;  // one of them
    std::optional<models::Gguf> gguf;

private:
    template<class Parts>
    Parts in_safetensors(Parts parts) const {
        for (auto &part : parts) {
            part.name = models::name_in(*safetensors, part.name);
        }
        return parts;
    }
    std::string prefix() const { return gguf ? "" : models::prefix_of(config, *safetensors); }
};

/// The tensors of a model, all found and of the right shape.
class Inventory {
public:
    Inventory(const std::filesystem::path &path, const Source &source) : path_(path), source_(source) {
        stack_ = source.stack_parts();
        for (std::size_t layer = 0; layer < source.config.blocks.size(); layer++) {
            blocks_.push_back(source.block_parts(layer));
        }
        std::vector<std::string_view> wanted;
        const auto require = [&](const auto &parts) {
            for (const auto &part : parts) {
                total_ += find(part).bytes;
                wanted.push_back(part.name);
            }
        };
        require(stack_);
        for (const auto &block : blocks_) {
            require(block);
        }
        std::sort(wanted.begin(), wanted.end());
        for (const TensorInfo &info : source.tensors()) {
            if (!std::binary_search(wanted.begin(), wanted.end(), std::string_view(info.name)) &&
                !source.is_ignorable(info.name)) {
                unexpected(info);
            }
        }
    }

    const std::vector<models::StackPart> &stack() const { return stack_; }
    const std::vector<models::BlockPart> &block(std::size_t layer) const { return blocks_[layer]; }
    std::int64_t total() const { return total_; }

    template<class Weights>
    const TensorInfo &find(const models::Part<Weights> &part) const {
        const TensorInfo *const info = models::find_by_name(source_.tensors(), part.name);
        if (info == nullptr) {
            refuse(path_, ": tensor ", in_quotes(part.name), " is missing");
        }
        if (info->shape != part.shape) {
            refuse(info->file, ": tensor ", in_quotes(part.name), " has shape ", shape_text(info->shape),
                   " instead of ", shape_text(part.shape));
        }
        models::plain_dtype(*info);  // refuses what is not supported
        return *info;
    }

    /// What the matrices of a block become, which must have one dtype: `unpacked` where some are quantized, f32 where they
    /// have several.
    DLDataType matrix_dtype(std::size_t layer, DLDataType unpacked) const {
        std::optional<DLDataType> common;
        bool several = false;
        for (const models::BlockPart &part : block(layer)) {
            if (part.shape.size() == 2) {
                const std::optional<DLDataType> dtype = models::plain_dtype(find(part));
                if (!dtype) {
                    return unpacked;
                }
                several = several || (common && !models::same(*common, *dtype));
                common = dtype;
            }
        }
        return several ? element<float>::dtype : *common;
    }

private:
    /// A tied lm_head may be in a folder's files as well, if it is the embedding.
    void unexpected(const TensorInfo &info) const {
        const ModelConfig &config = source_.config;
        if (source_.gguf || info.name != models::lm_head_name || !config.tie_word_embeddings) {
            refuse(info.file, ": tensor ", in_quotes(info.name), " is not part of ", to_string(config.architecture),
                   source_.gguf ? " with this metadata" : " with this config.json");
        }
        const TensorInfo &embedding = find(stack_.front());
        if (info.dtype != embedding.dtype || info.shape != embedding.shape ||
            std::memcmp(info.data, embedding.data, static_cast<std::size_t>(info.bytes)) != 0) {
            refuse(info.file, ": tensor ", in_quotes(info.name), " differs from ", in_quotes(embedding.name),
                   ", and config.json says tie_word_embeddings");
        }
        let_go(info);
        let_go(embedding);
    }

    const std::filesystem::path &path_;
    const Source &source_;
    std::vector<models::StackPart> stack_;
    std::vector<std::vector<models::BlockPart>> blocks_;
    std::int64_t total_ = 0;
};

}  // namespace

struct Model::State {
    explicit State(const std::filesystem::path &path) : source(path) {}

    Source source;
    std::int64_t max_positions = 0;
    DLDataType dtype{};  // of the embedding
    DLDevice device{};
    models::Views stack_views;  // on a processor the stack reads the embeddings from them
    std::vector<Block> blocks;
    Stack stack;
};

Model::Model(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model &&) noexcept = default;
Model &Model::operator=(Model &&) noexcept = default;

Model Model::load(const std::filesystem::path &path, const LoadOptions &options) {
    const models::DefaultFloatingPoint floating_point;
    auto state = std::make_unique<State>(path);
    State &model = *state;
    ModelConfig &config = model.source.config;
    if (options.max_positions < 0 || options.max_positions > config.max_position_embeddings) {
        refuse(path, ": max_positions is ", options.max_positions, "; the model has ", config.max_position_embeddings);
    }
    const DLDataType unpacked = options.unpacked_dtype;
    if (!models::same(unpacked, element<float>::dtype) && !models::same(unpacked, element<f16>::dtype) &&
        !models::same(unpacked, element<bf16>::dtype)) {
        refuse(path, ": unpacked_dtype has ", int{unpacked.bits}, " bits and code ", int{unpacked.code},
               "; supported are f32, f16 and bf16");
    }
    const auto dtype_of = [&](const TensorInfo &info) { return models::plain_dtype(info).value_or(unpacked); };
    const Inventory inventory(path, model.source);
    const bool rotates = config.blocks.front().rope.rope_theta != 0;
    model.max_positions = options.max_positions > 0 ? options.max_positions
                          : rotates ? std::min(config.max_position_embeddings, LoadOptions::usual_positions)
                                    : config.max_position_embeddings;
    model.device = options.device;

    std::int64_t done = 0;
    const auto packed = [&](const auto &parts, const std::string &what) {
        for (const auto &part : parts) {
            const TensorInfo &info = inventory.find(part);
            let_go(info);
            done += info.bytes;
        }
        if (options.progress) {
            options.progress(done, inventory.total(), what);
        }
    };
    const std::size_t layers = config.blocks.size();
    for (std::size_t layer = 0; layer < layers; layer++) {
        if (layer + 1 < layers) {
            for (const models::BlockPart &part : inventory.block(layer + 1)) {
                const TensorInfo &info = inventory.find(part);
                models::read_ahead(info.data, static_cast<std::size_t>(info.bytes));
            }
        }
        const std::string what = models::sentence("layer ", layer, " of ", layers);
        const DLDataType matrix_dtype = inventory.matrix_dtype(layer, unpacked);
        models::Views views;
        BlockWeights weights;
        weights.layout = model.source.layout();
        weights.device = model.device;
        for (const models::BlockPart &part : inventory.block(layer)) {
            const TensorInfo &info = inventory.find(part);
            weights.*part.argument = views.of(
                options.context, info, part.shape.size() == 2 ? matrix_dtype : dtype_of(info), part.interleaved_heads);
        }
        BlockConfig &block_config = config.blocks[layer];
        block_config.max_position_embeddings = model.max_positions;
        model.blocks.push_back(made(path, what, [&] { return Block(block_config, weights, options.context); }));
        packed(inventory.block(layer), what);
    }

    const std::string what = "embedding and last layer";
    StackWeights weights;
    models::Views views;
    for (const models::StackPart &part : inventory.stack()) {
        const TensorInfo &info = inventory.find(part);
        const bool stays = part.argument == &StackWeights::embed_tokens ||
                           part.argument == &StackWeights::embed_positions ||
                           part.argument == &StackWeights::embed_types;
        weights.*part.argument = (stays ? model.stack_views : views).of(options.context, info, dtype_of(info));
    }
    model.dtype = weights.embed_tokens.get()->dtype;
    // The model multiplies in the dtype of its embedding.
    float &multiplier = config.stack.embedding_multiplier;
    multiplier = rounded_to(model.dtype, multiplier);
    model.stack = made(path, what, [&] { return Stack(config.stack, weights, model.blocks, options.context); });
    packed(inventory.stack(), what);
    return Model(std::move(state));
}

const ModelConfig &Model::config() const noexcept {
    return state_->source.config;
}

std::int64_t Model::max_positions() const noexcept {
    return state_->max_positions;
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
