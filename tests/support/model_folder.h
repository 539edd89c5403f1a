// A model's folder that a test writes.
#ifndef HALYARD_TESTS_SUPPORT_MODEL_FOLDER_H
#define HALYARD_TESTS_SUPPORT_MODEL_FOLDER_H

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/models.h"

namespace halyard::tests {

struct StoredTensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

/** A fixture's files, to be changed and written to a folder of their own. */
class Folder {
public:
    explicit Folder(const std::string &fixture)
        : config(nlohmann::json::parse(read_text(model_fixtures / fixture / "config.json"))) {
        const SafeTensors files = SafeTensors::open(model_fixtures / fixture);
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
    std::filesystem::path operator/(const std::string &name) const { return folder / name; }
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

}  // namespace halyard::tests

#endif
