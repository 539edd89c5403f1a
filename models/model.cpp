// Models: the tensors of a folder packed into blocks and a stack, one layer after another.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fail.h"
#include "halyard/model.hpp"
#include "names.h"

namespace halyard {

using models::in_quotes;
using models::refuse;
using models::shape_text;

namespace {

struct Free {
    void operator()(void *memory) const noexcept { std::free(memory); }
};

/// Tensors of files as the library takes them: at addresses that are multiples of their elements. Old files have
/// headers of any length; what lies askew in them is copied. Views last as long as this and the files.
class Views {
public:
    ConstTensor of(const SafeTensors::Info &info) {
        DLTensor view = SafeTensors::view(info);
        const std::size_t element_bytes = view.dtype.bits / 8, bytes = static_cast<std::size_t>(info.bytes);
        if (reinterpret_cast<std::uintptr_t>(view.data) % element_bytes != 0) {
            std::unique_ptr<void, Free> copy(std::malloc(bytes));
            if (copy == nullptr) {
                models::fail(HALYARD_OUT_OF_MEMORY, info.file, ": no memory for a copy of tensor ",
                             in_quotes(info.name));
            }
            std::memcpy(copy.get(), info.data, bytes);
            view.data = copy.get();
            copies_.push_back(std::move(copy));
        }
        return view;
    }

private:
    std::vector<std::unique_ptr<void, Free>> copies_;
};

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
auto made(const std::filesystem::path &folder, const std::string &what, const Make &make) {
    try {
        return make();
    } catch (const Error &error) {
        models::fail(error.status(), folder, ": ", what, ": ", error.what());
    }
}

/// The tensors of a model, all found and of the right shape.
class Inventory {
public:
    Inventory(const std::filesystem::path &folder, const ModelConfig &config, const SafeTensors &files)
        : folder_(folder), files_(files) {
        const std::string prefix = models::prefix_of(config, files);
        stack_ = models::stack_parts(config, prefix);
        for (std::size_t layer = 0; layer < config.blocks.size(); layer++) {
            blocks_.push_back(models::block_parts(config, prefix, layer));
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
        for (const SafeTensors::Info &info : files.tensors()) {
            if (!std::binary_search(wanted.begin(), wanted.end(), std::string_view(info.name)) &&
                !models::is_ignorable(config.architecture, info.name)) {
                unexpected(config, info);
            }
        }
    }

    const std::vector<models::StackPart> &stack() const { return stack_; }
    const std::vector<models::BlockPart> &block(std::size_t layer) const { return blocks_[layer]; }
    std::int64_t total() const { return total_; }

    template<class Weights>
    const SafeTensors::Info &find(const models::Part<Weights> &part) const {
        const SafeTensors::Info *const info = files_.find(part.name);
        if (info == nullptr) {
            refuse(folder_, ": tensor ", in_quotes(part.name), " is missing");
        }
        if (info->shape != part.shape) {
            refuse(info->file, ": tensor ", in_quotes(part.name), " has shape ", shape_text(info->shape),
                   " instead of ", shape_text(part.shape));
        }
        SafeTensors::view(*info);  // of a dtype that is supported
        return *info;
    }

private:
    /// A tied lm_head may be in the files as well, if it is the embedding.
    void unexpected(const ModelConfig &config, const SafeTensors::Info &info) const {
        if (info.name != models::lm_head_name || !config.tie_word_embeddings) {
            refuse(info.file, ": tensor ", in_quotes(info.name), " is not part of ", to_string(config.architecture),
                   " with this config.json");
        }
        const SafeTensors::Info &embedding = find(stack_.front());
        if (info.dtype != embedding.dtype || info.shape != embedding.shape ||
            std::memcmp(info.data, embedding.data, static_cast<std::size_t>(info.bytes)) != 0) {
            refuse(info.file, ": tensor ", in_quotes(info.name), " differs from ", in_quotes(embedding.name),
                   ", and config.json says tie_word_embeddings");
        }
        files_.let_go(info);
        files_.let_go(embedding);
    }

    const std::filesystem::path &folder_;
    const SafeTensors &files_;
    std::vector<models::StackPart> stack_;
    std::vector<std::vector<models::BlockPart>> blocks_;
    std::int64_t total_ = 0;
};

}  // namespace

struct Model::State {
    State(ModelConfig model_config, SafeTensors tensors) : config(std::move(model_config)), files(std::move(tensors)) {}

    ModelConfig config;
    std::int64_t max_positions = 0;
    DLDataType dtype{};  // of the embedding
    DLDevice device{};
    SafeTensors files;
    Views stack_views;  // on a processor the stack reads the embedding from them
    std::vector<Block> blocks;
    Stack stack;
};

Model::Model(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model &&) noexcept = default;
Model &Model::operator=(Model &&) noexcept = default;

Model Model::load(const std::filesystem::path &folder, const LoadOptions &options) {
    ModelConfig config = ModelConfig::load(folder / "config.json");
    if (options.max_positions < 0 || options.max_positions > config.max_position_embeddings) {
        refuse(folder, ": max_positions is ", options.max_positions, "; the model has ",
               config.max_position_embeddings);
    }
    auto state = std::make_unique<State>(std::move(config), SafeTensors::open(folder));
    State &model = *state;
    const Inventory inventory(folder, model.config, model.files);
    model.max_positions = options.max_positions > 0 ? options.max_positions : model.config.max_position_embeddings;
    model.device = options.device;

    std::int64_t done = 0;
    const auto packed = [&](const auto &parts, const std::string &what) {
        for (const auto &part : parts) {
            const SafeTensors::Info &info = inventory.find(part);
            model.files.let_go(info);
            done += info.bytes;
        }
        if (options.progress) {
            options.progress(done, inventory.total(), what);
        }
    };
    const std::size_t layers = model.config.blocks.size();
    for (std::size_t layer = 0; layer < layers; layer++) {
        if (layer + 1 < layers) {
            for (const models::BlockPart &part : inventory.block(layer + 1)) {
                model.files.read_ahead(inventory.find(part));
            }
        }
        const std::string what = models::sentence("layer ", layer, " of ", layers);
        Views views;
        BlockWeights weights;
        weights.layout = models::layout_of(model.config.architecture);
        weights.device = model.device;
        for (const models::BlockPart &part : inventory.block(layer)) {
            weights.*part.argument = views.of(inventory.find(part));
        }
        BlockConfig &block_config = model.config.blocks[layer];
        block_config.max_position_embeddings = model.max_positions;
        model.blocks.push_back(made(folder, what, [&] { return Block(block_config, weights, options.context); }));
        packed(inventory.block(layer), what);
    }

    const std::string what = "embedding and last layer";
    StackWeights weights;
    for (const models::StackPart &part : inventory.stack()) {
        weights.*part.argument = model.stack_views.of(inventory.find(part));
    }
    model.dtype = weights.embed_tokens.get()->dtype;
    // The model multiplies in the dtype of its embedding.
    float &multiplier = model.config.stack.embedding_multiplier;
    multiplier = rounded_to(model.dtype, multiplier);
    model.stack = made(folder, what, [&] { return Stack(model.config.stack, weights, model.blocks, options.context); });
    packed(inventory.stack(), what);
    return Model(std::move(state));
}

const ModelConfig &Model::config() const noexcept {
    return state_->config;
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
    const BlockConfig &block = state_->config.blocks.front();
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
