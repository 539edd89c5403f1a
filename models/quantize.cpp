// A model in other formats, as a GGUF file or, in quantize_folder.cpp, as a folder. Here: which tensors a GGUF file has, and one
// after another encoded and written.
#include "halyard/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <tuple>

#include "config.h"
#include "fail.h"
#include "floating_point.h"
#include "format_choice.h"
#include "gguf_config.h"
#include "gguf_metadata.h"
#include "inventory.h"
#include "quantize_folder.h"
#include "tensor_encoder.h"

namespace halyard {

namespace models {
namespace {

/// What the output holds.
class Plan {
public:
    Plan(const std::filesystem::path &path, const Source &source, const Inventory &inventory,
         const QuantizeOptions &options)
        : choice_(options, static_cast<std::int64_t>(source.config.blocks.size()), source.config.tie_word_embeddings) {
        if (source.gguf) {
            take_gguf(path, *source.gguf);
        } else {
            metadata = metadata_of(source.config, path);
            add_rope_factors(path, source.config);
            take_folder(source, inventory);
        }
        choice_.check_patterns();
        metadata.set("general.file_type", choice_.file_type());
        metadata.set("general.quantization_version", std::uint32_t{2});
    }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;

    std::vector<GgufTensor> table() const {
        std::vector<GgufTensor> tensors;
        for (const EncodingTask &task : tasks) {
            tensors.push_back(task.tensor);
        }
        return tensors;
    }

    /// Gives memory back to the system that it can read from the files again.
    void let_go(const EncodingTask &task) const {
        if (task.stored.tensor != &computed_) {
            task.stored.each_tensor([](const TensorInfo &info) { models::let_go(info); });
        }
    }

    GgufMetadata metadata;
    std::vector<EncodingTask> tasks;
    std::vector<const BlockFormat *> wanted;  // of the tasks

private:
    void add(EncodingTask task) {
        const ChosenFormat chosen = choice_.of(task.tensor.name, task.tensor.shape);
        task.tensor.format = chosen.format;
        tasks.push_back(std::move(task));
        wanted.push_back(chosen.wanted);
    }

    /// Everything in the order of the file. What says how it lay in files is left out.
    void take_gguf(const std::filesystem::path &path, const Gguf &gguf) {
        for (const Gguf::Entry &entry : gguf.entries()) {
            if (entry.key != "general.alignment" && entry.key.rfind("split.", 0) != 0) {
                metadata.set_stored(entry.key, entry.value);
            }
        }
        std::vector<const TensorInfo *> tensors;
        for (const TensorInfo &info : gguf.tensors()) {
            tensors.push_back(&info);
        }
        std::sort(tensors.begin(), tensors.end(), [](const TensorInfo *a, const TensorInfo *b) {
            return std::tie(a->file, a->data) < std::tie(b->file, b->data);
        });
        const TensorFiles files{path, gguf.tensors(), nullptr};
        for (const TensorInfo *const info : tensors) {
            EncodingTask task;
            task.stored = find_stored(files, info->name, info->shape);
            task.tensor = {info->name, info->shape, nullptr};
            add(std::move(task));
        }
    }

    /// First, because the metadata is checked when it is written.
    void add_rope_factors(const std::filesystem::path &path, const ModelConfig &config) {
        factors_ = rope_factors_of(config);
        if (factors_.empty()) {
            return;
        }
        computed_ = {std::string(rope_factors_name),
                     "F32",
                     {static_cast<std::int64_t>(factors_.size())},
                     reinterpret_cast<const std::byte *>(factors_.data()),
                     static_cast<std::int64_t>(factors_.size() * sizeof(float)),
                     path.string()};
        EncodingTask task;
        task.stored.tensor = &computed_;
        task.stored.shape = &computed_.shape;
        task.stored.format = computed_.dtype;
        task.stored.dtype = element<float>::dtype;
        task.tensor = {computed_.name, computed_.shape, nullptr};
        add(std::move(task));
    }

    void take_folder(const Source &source, const Inventory &inventory) {
        const auto add_all = [&](const auto &parts, const auto &in_file, unsigned norm_flags) {
            for (std::size_t i = 0; i < parts.size(); i++) {
                const bool is_norm =
                    parts[i].shape.size() == 1 && in_file[i].name.find("norm.weight") != std::string::npos;
                EncodingTask task;
                task.stored = inventory.find(parts[i]);
                task.tensor = {in_file[i].name, in_file[i].shape, nullptr};
                task.interleaved_heads = in_file[i].interleaved_heads;
                task.is_transposed = source.layout() == WeightLayout::in_out && is_matrix_of_block(parts[i]);
                task.added = is_norm && (norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0 ? 1 : 0;
                add(std::move(task));
            }
        };
        add_all(inventory.stack(), in_gguf(inventory.stack()), source.config.stack.norm_flags);
        for (std::size_t layer = 0; layer < source.config.blocks.size(); layer++) {
            const std::vector<BlockPart> &parts = inventory.block(layer);
            add_all(parts, in_gguf(source.config, parts, layer), source.config.blocks[layer].norm_flags);
        }
    }
    static bool is_matrix_of_block(const BlockPart &part) { return part.shape.size() == 2; }
    static bool is_matrix_of_block(const StackPart &) { return false; }

    FormatChoice choice_;
    std::vector<float> factors_;
    TensorInfo computed_{};
};

/// Refuses to write over what is read.
void check_output(const std::filesystem::path &in, const std::filesystem::path &out, const Source &source) {
    const auto refuse_if_same = [&](const std::filesystem::path &file) {
        std::error_code ignored;
        if (std::filesystem::equivalent(file, out, ignored)) {
            refuse(out, "is a file of the model that is read: name another one");
        }
    };
    refuse_if_same(config_file(in));
    for (const TensorInfo &info : source.tensors()) {
        refuse_if_same(info.file);
    }
}

int threads_of(const QuantizeOptions &options) {
    if (options.threads < 0 || options.threads > 256) {
        refuse("threads", "is ", options.threads, "; supported are 1 to 256, and 0 for the default of contexts");
    }
    return options.threads != 0 ? options.threads : halyard_context_num_threads(nullptr);
}

/// Encodes a task and writes it where there is a writer.
QuantizedTensor encode_and_write(const EncodingTask &task, const BlockFormat &wanted, int threads,
                                 std::vector<std::byte> &blocks, GgufWriter *writer) {
    const StoredTensor &stored = task.stored;
    QuantizedTensor result;
    result.name = task.tensor.name;
    result.shape = task.tensor.shape;
    result.from = stored.format;
    result.wanted = wanted.name;
    result.to = task.tensor.format->name;
    result.bytes_before = stored.bytes();
    result.bytes_after = task.tensor.bytes();
    const void *data = stored.tensor->data;
    if (!task.is_copied()) {
        const EncodingErrors errors = encode_tensor(task, threads, blocks);
        result.relative_rms_error = errors.relative();
        result.largest_error = errors.largest;
        data = blocks.data();
    }
    if (writer != nullptr) {
        writer->write(data, result.bytes_after);
    }
    return result;
}

/// Whether a reader of the header finds the configuration.
void check_header(const std::filesystem::path &path, const Source &source, const GgufWriter &writer) {
    std::optional<ModelConfig> read;
    try {
        read = config_of(Gguf::open(writer.temporary()));
    } catch (const Error &error) {
        // Behind the name of the file, which is temporary.
        const std::string why = std::string(error.what()).substr(writer.temporary().string().size());
        fail(error.status(), path, "cannot be written as GGUF", why);
    }
    check_expressed(source.config, *read, path, "the metadata of GGUF");
}

std::vector<QuantizedTensor> quantize_to_gguf(const std::filesystem::path &in, const std::filesystem::path &out,
                                              const Source &source, const Inventory &inventory,
                                              const QuantizeOptions &options, int threads) {
    const Plan plan(in, source, inventory, options);
    std::optional<GgufWriter> writer;
    if (!options.dry_run) {
        check_output(in, out, source);
        writer.emplace(out, plan.metadata, plan.table());
    }
    std::int64_t total = 0, done = 0;
    for (const EncodingTask &task : plan.tasks) {
        total += task.stored.bytes();
    }
    std::vector<QuantizedTensor> results;
    std::vector<std::byte> blocks;
    for (std::size_t i = 0; i < plan.tasks.size(); i++) {
        const EncodingTask &task = plan.tasks[i];
        results.push_back(encode_and_write(task, *plan.wanted[i], threads, blocks, writer ? &*writer : nullptr));
        if (i == 0 && writer && !source.gguf) {
            check_header(in, source, *writer);
        }
        done += task.stored.bytes();
        plan.let_go(task);
        if (options.progress) {
            options.progress(done, total, task.tensor.name);
        }
    }
    if (writer) {
        writer->finish();
    }
    return results;
}

}  // namespace
}  // namespace models

std::vector<QuantizedTensor> quantize_model(const std::filesystem::path &in, const std::filesystem::path &out,
                                            const QuantizeOptions &options) {
    using namespace models;
    const DefaultFloatingPoint floating_point;
    const int threads = threads_of(options);
    const std::filesystem::path output = out.has_filename() ? out : out.parent_path();  // without a slash behind
    std::optional<FolderFormat> folder;
    if (output.extension() == ".gguf") {
        check_no_folder_options(options);
    } else {
        folder.emplace(options, output);
    }
    const Source source(in);
    const Inventory inventory(in, source);
    return folder ? quantize_to_folder(in, output, source, inventory, *folder, options, threads)
                  : quantize_to_gguf(in, output, source, inventory, options, threads);
}

}  // namespace halyard
