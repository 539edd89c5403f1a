#include "quantize_folder.h"

#include <algorithm>
#include <optional>

#include "code_encoder.h"
#include "config.h"
#include "config_json.h"
#include "fail.h"
#include "new_folder.h"
#include "tensor_encoder.h"

namespace halyard::models {

namespace {

/// A tensor of the model on its way into the folder: copied, encoded in floats, or encoded in codes.
struct FolderTask {
    std::string name;
    std::vector<std::int64_t> shape;
    StoredTensor stored;
    bool is_copied = false;
    std::optional<EncodingTask> floats;
    std::optional<CodingTask> codes;

    std::vector<TensorEntry> entries() const {
        if (codes) {
            return codes->entries();
        }
        if (!is_copied) {
            return {{name, std::string(floats->tensor.format->name), shape, floats->tensor.bytes()}};
        }
        std::vector<TensorEntry> all;
        stored.each_tensor([&](const TensorInfo &info) {
            all.push_back({stored.codes != nullptr ? info.name : name, info.dtype, info.shape, info.bytes});
        });
        return all;
    }
};

/// What model.safetensors and config.json hold.
class FolderPlan {
public:
    FolderPlan(const Source &source, const Inventory &inventory, const FolderFormat &format)
        : source_(source), inventory_(inventory), format_(format), config_(format.codes) {
        if (config_ && source.quantization && is_same_method(*config_, *source.quantization)) {
            config_->has_order = source.quantization->has_order;  // of what is copied
        }
        const std::string prefix = prefix_of(source.config.architecture);
        add_parts(inventory.stack(), source.gguf ? models::stack_parts(source.config, prefix) : inventory.stack());
        for (std::size_t layer = 0; layer < source.config.blocks.size(); layer++) {
            const std::vector<BlockPart> &parts = inventory.block(layer);
            add_parts(parts, source.gguf ? models::block_parts(source.config, prefix, layer) : parts);
        }
        add_ignorable();
    }
    FolderPlan(const FolderPlan &) = delete;
    FolderPlan &operator=(const FolderPlan &) = delete;

    std::vector<TensorEntry> table() const {
        std::vector<TensorEntry> all;
        for (const FolderTask &task : tasks) {
            for (TensorEntry &entry : task.entries()) {
                all.push_back(std::move(entry));
            }
        }
        return all;
    }

    std::string config_text(const std::filesystem::path &in) const {
        Json::Object root;
        if (source_.gguf) {
            root = config_json(source_.config, in);
            root["torch_dtype"] = {torch_name(format_.floats != nullptr ? *format_.floats : *format_.scales)};
        } else {
            const std::filesystem::path file = config_file(in);
            const MappedFile mapped(file);
            root = parse_json(mapped.text(), file, mapped.size());
        }
        for (const char *const name : {"torch_dtype", "dtype"}) {
            if (format_.floats != nullptr && root.count(name) > 0) {
                root[name] = {torch_name(*format_.floats)};
            }
        }
        root.erase("quantization_config");
        if (config_) {
            root["quantization_config"] = quantization_json(*config_, has_coded_head_);
        }
        return json_text(root);
    }

    std::vector<FolderTask> tasks;

private:
    /// `stored`: as the input has them; `named`: the same, as a folder has them.
    template<class Parts>
    void add_parts(const Parts &stored, const Parts &named) {
        for (std::size_t i = 0; i < stored.size(); i++) {
            FolderTask task;
            task.name = named[i].name;
            task.shape = named[i].shape;
            task.stored = inventory_.find(stored[i]);
            if (gets_codes(stored[i], task.stored)) {
                take_codes(stored[i].interleaved_heads, task);
            } else {
                take_floats(stored[i], task);
            }
            tasks.push_back(std::move(task));
        }
    }

    bool gets_codes(const BlockPart &part, const StoredTensor &) const { return config_ && part.shape.size() == 2; }
    bool gets_codes(const StackPart &part, const StoredTensor &stored) {
        const bool is_kept = format_.output == nullptr && has_method(stored);
        const bool gets = part.argument == &StackWeights::lm_head && (format_.is_output_coded || is_kept);
        has_coded_head_ = has_coded_head_ || gets;
        return gets;
    }
    bool has_method(const StoredTensor &stored) const {
        return config_ && stored.codes != nullptr && is_same_method(*stored.codes, *config_);
    }

    void take_codes(std::int64_t heads, FolderTask &task) const {
        if (has_method(task.stored)) {
            task.is_copied = true;
            return;
        }
        const std::string module = task.name.substr(0, task.name.size() - std::string_view("weight").size());
        task.codes = CodingTask{task.stored, heads, module, task.shape, &*config_, format_.scales};
    }

    template<class Part>
    void take_floats(const Part &part, FolderTask &task) const {
        EncodingTask floats;
        floats.stored = task.stored;
        floats.stored_heads = part.interleaved_heads;
        floats.tensor = {task.name, task.shape, floats_of(part, task.stored)};
        floats.is_transposed = is_transposed(part);
        floats.added = source_.gguf && is_gemma_norm(task) ? -1 : 0;  // 1 is added in the file
        task.is_copied = floats.is_copied();
        task.floats = std::move(floats);
    }

    const BlockFormat *floats_of(const BlockPart &, const StoredTensor &stored) const {
        return format_.floats != nullptr ? format_.floats : as_before(stored);
    }
    const BlockFormat *floats_of(const StackPart &part, const StoredTensor &stored) const {
        const BlockFormat *const asked = part.argument == &StackWeights::lm_head        ? format_.output
                                         : part.argument == &StackWeights::embed_tokens ? format_.embedding
                                                                                        : format_.floats;
        return asked != nullptr ? asked : as_before(stored);
    }
    const BlockFormat *as_before(const StoredTensor &stored) const {
        return stored.dtype ? block_format(std::string_view(stored.format)) : format_.scales;
    }

    bool is_transposed(const BlockPart &part) const {
        return source_.gguf && part.shape.size() == 2 && layout_of(source_.config.architecture) == WeightLayout::in_out;
    }
    bool is_transposed(const StackPart &) const { return false; }
    bool is_gemma_norm(const FolderTask &task) const {
        const Architecture a = source_.config.architecture;
        const bool is_gemma = a == Architecture::gemma || a == Architecture::gemma2 || a == Architecture::gemma3;
        return is_gemma && task.shape.size() == 1 && task.name.find("norm.weight") != std::string::npos;
    }

    /// What is no part of the model here and may be one of transformers': a pooler, a causal mask.
    void add_ignorable() {
        for (const TensorInfo &info : source_.tensors()) {
            if (!source_.gguf && source_.is_ignorable(info.name)) {
                FolderTask task;
                task.name = info.name;
                task.shape = info.shape;
                task.stored.tensor = &info;
                task.stored.shape = &info.shape;
                task.stored.format = info.dtype;
                task.is_copied = true;
                tasks.push_back(std::move(task));
            }
        }
    }

    static std::string torch_name(const BlockFormat &format) {
        return format.name == "F32" ? "float32" : format.name == "F16" ? "float16" : "bfloat16";
    }

    const Source &source_;
    const Inventory &inventory_;
    const FolderFormat &format_;
    std::optional<QuantizationConfig> config_;
    bool has_coded_head_ = false;
};

/// Memory that one tensor after another uses.
struct Buffers {
    std::vector<std::byte> floats;
    std::vector<std::vector<std::byte>> codes;
};

/// Writes a task where there is a writer.
QuantizedTensor write_task(const FolderTask &task, int threads, Buffers &buffers, SafeTensorsWriter *writer) {
    QuantizedTensor result;
    result.name = task.name;
    result.shape = task.shape;
    result.from = task.stored.format;
    result.bytes_before = task.stored.bytes();
    EncodingErrors errors;
    const auto write = [&](const void *data, std::int64_t bytes) {
        result.bytes_after += bytes;
        if (writer != nullptr) {
            writer->write(data, bytes);
        }
    };
    if (task.is_copied) {
        result.to = task.stored.format;
        task.stored.each_tensor([&](const TensorInfo &info) { write(info.data, info.bytes); });
    } else if (task.codes) {
        result.to = task.codes->config->name;
        errors = encode_matrix(*task.codes, threads, buffers.codes);
        for (const std::vector<std::byte> &tensor : buffers.codes) {
            write(tensor.data(), static_cast<std::int64_t>(tensor.size()));
        }
    } else {
        result.to = task.floats->tensor.format->name;
        errors = encode_tensor(*task.floats, threads, buffers.floats);
        write(buffers.floats.data(), task.floats->tensor.bytes());
    }
    result.wanted = result.to;
    result.relative_rms_error = errors.relative();
    result.largest_error = errors.largest;
    return result;
}

/// Files of the tokenizer, and what generation needs.
bool is_copied_file(const std::string &name) {
    const auto begins = [&](std::string_view with) { return name.compare(0, with.size(), with) == 0; };
    const auto ends = [&](std::string_view with) {
        return name.size() >= with.size() && name.compare(name.size() - with.size(), with.size(), with) == 0;
    };
    return begins("tokenizer") || begins("vocab.") || begins("merges") || begins("chat_template") || ends(".txt") ||
           name == "generation_config.json" || name == "special_tokens_map.json" || name == "added_tokens.json";
}

void copy_files(const std::filesystem::path &in, const NewFolder &folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(in, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        std::error_code ignored;
        if (is_copied_file(name) && std::filesystem::is_regular_file(at->path(), ignored)) {
            folder.write(name.c_str(), MappedFile(at->path()).text());
        }
    }
    if (error) {
        refuse(in, "cannot be read: ", error.message());
    }
}

}  // namespace

std::vector<QuantizedTensor> quantize_to_folder(const std::filesystem::path &in, const std::filesystem::path &out,
                                                const Source &source, const Inventory &inventory,
                                                const FolderFormat &format, const QuantizeOptions &options,
                                                int threads) {
    if (format.codes && layout_of(source.config.architecture) == WeightLayout::in_out) {
        unsupported(in, "is ", to_string(source.config.architecture), " with matrices [in, out], which ", format.name,
                    " does not have; supported are F32, F16, BF16 and formats of GGUF");
    }
    const FolderPlan plan(source, inventory, format);
    std::optional<NewFolder> folder;
    std::optional<SafeTensorsWriter> writer;
    if (!options.dry_run) {
        folder.emplace(out);
        folder->write("config.json", plan.config_text(in));
        if (!source.gguf) {
            copy_files(in, *folder);
        }
        writer.emplace(folder->temporary() / "model.safetensors", plan.table());
    }
    std::int64_t total = 0, done = 0;
    for (const FolderTask &task : plan.tasks) {
        total += task.stored.bytes();
    }
    std::vector<QuantizedTensor> results;
    Buffers buffers;
    for (const FolderTask &task : plan.tasks) {
        results.push_back(write_task(task, threads, buffers, writer ? &*writer : nullptr));
        done += task.stored.bytes();
        task.stored.each_tensor([](const TensorInfo &info) { let_go(info); });
        if (options.progress) {
            options.progress(done, total, task.name);
        }
    }
    if (writer) {
        writer->finish();
        folder->finish();
    }
    return results;
}

}  // namespace halyard::models
