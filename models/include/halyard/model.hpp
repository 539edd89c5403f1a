/** @file
 * model.hpp: models in the files of Hugging Face transformers or of GGUF, loaded into blocks and stacks of halyard.
 *
 *     const auto model = halyard::Model::load("some/folder");
 *     auto cache = model.make_cache();
 *     std::vector<float> logits(model.config().stack.vocab_size);
 *     model.forward({1, 2, 3}, cache, logits);
 *     const std::int64_t next = halyard::Sampler()(logits);
 *
 * Needs C++17 and the library halyard::models, which is apart from the core because the core does without the C++
 * standard library. Failures throw `halyard::Error` with one sentence that names the file, and the tensor or field in
 * it; a lack of memory may throw `std::bad_alloc` as well. docs/models.md says which models there are.
 */
#ifndef HALYARD_MODEL_HPP
#define HALYARD_MODEL_HPP

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "halyard/attention.hpp"
#include "halyard/block.hpp"
#include "halyard/halyard.hpp"

namespace halyard {

/* ---- Files of tensors ---------------------------------------------------------------------------------------- */

/// One tensor of a file.
struct TensorInfo {
    std::string name;                 ///< as in the file
    std::string dtype;                ///< as the format spells it: "F32", "F16", "BF16", "I64", "Q4_K", ...
    std::vector<std::int64_t> shape;  ///< outermost axis first
    const std::byte *data;            ///< little-endian and row-major; aligned to nothing
    std::int64_t bytes;               ///< at `data`
    std::string file;                 ///< that it is in
};

/// Tensors in the safetensors format, mapped into memory as long as this lives. Headers are checked whole when a file
/// is opened: every byte of it belongs to exactly one tensor, whose shape and dtype say how many it has. A file must
/// not be changed or shortened meanwhile. Move-only; may be read by any number of threads.
class SafeTensors {
public:
    /// One tensor of a file.
    using Info = TensorInfo;

    /// One file; or a folder with model.safetensors, or with model.safetensors.index.json and the files that it names.
    static SafeTensors open(const std::filesystem::path &path);
    /// The bytes of one file, which must outlive this; `name` is what messages call it.
    static SafeTensors from_memory(const void *data, std::size_t bytes, const std::string &name);

    /// All tensors, by name.
    const std::vector<Info> &tensors() const noexcept { return tensors_; }
    /// Null if there is none of that name.
    const Info *find(std::string_view name) const noexcept;

    /// The tensor as calls take it, valid as long as the `SafeTensors`. Refuses dtypes other than F32, F16 and BF16,
    /// and ranks above 4.
    static DLTensor view(const Info &info);

    /// Asks the system to read a tensor's part of the file ahead.
    void read_ahead(const Info &info) const noexcept;
    /// Gives a tensor's memory back to the system, which reads it again from the file where it is used again.
    void let_go(const Info &info) const noexcept;

    /// Moves the mappings.
    SafeTensors(SafeTensors &&) noexcept;
    /// Moves the mappings.
    SafeTensors &operator=(SafeTensors &&) noexcept;
    ~SafeTensors();

private:
    struct Files;
    SafeTensors() noexcept;
    static SafeTensors open_index(const std::filesystem::path &index);
    void map(const std::filesystem::path &file);
    void add(std::vector<Info> tensors);

    std::vector<Info> tensors_;
    std::unique_ptr<Files> files_;
};

/* ---- config.json ----------------------------------------------------------------------------------------------- */

/// The models that can be loaded.
enum class Architecture {
    gpt2,     ///< GPT2LMHeadModel
    llama,    ///< LlamaForCausalLM
    mistral,  ///< MistralForCausalLM
    qwen2,    ///< Qwen2ForCausalLM
    qwen3,    ///< Qwen3ForCausalLM
    gemma,    ///< GemmaForCausalLM
    gemma2,   ///< Gemma2ForCausalLM
    gemma3,   ///< Gemma3ForCausalLM
    bert,     ///< BertModel; and the encoder of files for a task, such as BertForMaskedLM
};

/// The name in config.json: "LlamaForCausalLM", ...
const char *to_string(Architecture architecture) noexcept;

/// What config.json or the metadata of a GGUF file says, in the library's terms.
struct ModelConfig {
    Architecture architecture = Architecture::llama;  ///< of the model
    std::vector<BlockConfig> blocks;                  ///< one for each layer
    /// The embedding's multiplier is that of f32; a model rounds it to the dtype of its embedding.
    StackConfig stack;
    std::int64_t max_position_embeddings = 0;  ///< bound of positions
    std::int64_t type_vocab_size = 0;          ///< kinds of tokens that an encoder tells apart
    bool tie_word_embeddings = false;          ///< the embedding is the output projection too
    bool qkv_bias = false;                     ///< q, k and v have biases
    bool output_bias = false;                  ///< the output projection of attention has one
    bool mlp_bias = false;                     ///< the feed-forward network has biases
    bool qk_norm = false;                      ///< heads of q and k are normalized
    std::vector<std::int64_t> eos_token_ids;   ///< tokens that end a text

    /// Reads config.json or the metadata of a GGUF file; of a folder that which `Model::load` would take.
    static ModelConfig load(const std::filesystem::path &path);
    /// Reads config.json from text; `file` is what messages call it.
    static ModelConfig parse(std::string_view text, const std::string &file = "config.json");
};

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/// How a model is loaded.
struct LoadOptions {
    const halyard_context *context = nullptr;  ///< for packing and conversions
    /// Bound of positions, which tables of rotations and caches are made for: 1 to max_position_embeddings. 0: that, but
    /// not more than `usual_positions` where there is a rotary embedding.
    std::int64_t max_positions = 0;
    /// A table of rotations takes 4 bytes times the heads' features for each position, and a small file may claim 2^24.
    static constexpr std::int64_t usual_positions = 131072;
    /// Where the model is to be: the CPU or, in a library with CUDA kernels, a CUDA device.
    DLDevice device{kDLCPU, 0};
    /// What quantized weights become: f32, which is what they stand for, or f16 or bf16, to which that is rounded. None: on
    /// processors they stay quantized as they are, on a CUDA device they become f32.
    std::optional<DLDataType> unpacked_dtype;
    /// How matrices are quantized when they are packed, if the files have them in floats or `unpacked_dtype` makes floats of them.
    halyard_quantization quantization{};
    /// Called from time to time with the bytes of weights that are packed, of those there are, and what was packed
    /// last.
    std::function<void(std::int64_t done, std::int64_t total, const std::string &what)> progress;
};

/// A model whose weights are packed and constant. Move-only; may be used by any number of threads, each with a cache of
/// its own.
class Model {
public:
    /// Loads a folder with config.json and the weights beside it, a GGUF file, the first of several with the others beside
    /// it, or a folder with model.gguf and no config.json. The files must not be changed while the model is in use: on a processor the embedding is read from
    /// them. Missing tensors, unexpected ones and those of another shape are refused by name. Matrices keep the precision of
    /// their file, but that a layer's matrices that are not quantized become f32 where they have several dtypes, and so do
    /// the gate and up matrices where they are quantized in two formats.
    static Model load(const std::filesystem::path &path, const LoadOptions &options = {});

    /// What config.json or the metadata says.
    const ModelConfig &config() const noexcept;
    /// Bound of positions.
    std::int64_t max_positions() const noexcept;
    /// The formats of the matrices, the embedding among them: the file's name for each, "Q4_0", or the method of a folder,
    /// "GPTQ 4 bits", with what it became where that is another, "Q4_0 as f32", or "F32 in 8 bits" if it was
    /// quantized when it was packed; and how many there are of each, most first.
    const std::vector<std::pair<std::string, std::int64_t>> &matrix_formats() const noexcept;
    /// Bytes of packed weights and tables, without the embedding and lm_head.
    std::int64_t block_bytes() const noexcept;
    /// For batches, hidden states and logits of every token. An encoder has hidden states alone:
    /// `model.stack().hidden_states(input_ids, token_types, hidden)`.
    const Stack &stack() const noexcept;

    /// A cache where the model is, for `n_sequences` sequences of at most `max_positions` tokens (0: the model's). Keys and
    /// values are stored in `dtype`, which is f32, f16 or bf16; by default that of the model's embedding.
    KvCache make_cache(std::int64_t max_positions = 0, std::optional<DLDataType> dtype = std::nullopt,
                       std::int64_t n_sequences = 1) const;

    /// Appends tokens to sequence 0 of `cache`. logits: [vocab_size], those of the last token, in any element type, in the
    /// memory of the process or where the model is.
    void forward(const std::vector<std::int64_t> &tokens, KvCache &cache, const Tensor &logits,
                 const halyard_context *context = nullptr) const;

    /// Moves the weights.
    Model(Model &&) noexcept;
    /// Moves the weights.
    Model &operator=(Model &&) noexcept;
    ~Model();

private:
    struct State;
    explicit Model(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

/* ---- The next token ---------------------------------------------------------------------------------------------- */

/// How the next token is chosen.
struct SamplingOptions {
    double temperature = 0;  ///< 0: the most likely token, the first of them if there are several
    std::int64_t top_k = 0;  ///< not 0: only the k most likely tokens
    double top_p = 1;        ///< below 1: only the most likely tokens that have this probability together
    std::uint64_t seed = 0;  ///< of the random numbers
};

/// Chooses tokens by softmax(logits / temperature). The same seed and logits give the same tokens.
class Sampler {
public:
    /// The most likely token unless told otherwise.
    explicit Sampler(const SamplingOptions &options = {});

    /// Refuses NaN and +Inf, and logits that are all -Inf.
    std::int64_t operator()(const float *logits, std::int64_t count);
    /// Chooses by logits in a vector.
    std::int64_t operator()(const std::vector<float> &logits) {
        return (*this)(logits.data(), static_cast<std::int64_t>(logits.size()));
    }

private:
    SamplingOptions options_;
    std::mt19937_64 generator_;
};

}  // namespace halyard

#endif
