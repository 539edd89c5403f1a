// A libFuzzer target for folders of a model: config.json, a zero byte, model.safetensors. What is accepted is loaded whole, and what
// is not is refused with the folder's name.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "halyard/model.hpp"
#include "safetensors_header.h"

namespace {

namespace fs = std::filesystem;

/** One for each process; fuzz.py removes it. */
const fs::path &folder() {
    static const fs::path made = [] {
        fs::path path = fs::temp_directory_path() / ("model" + std::to_string(getpid()));
        fs::create_directories(path);
        return path;
    }();
    return made;
}

void write(const char *name, const std::uint8_t *begin, const std::uint8_t *end) {
    std::ofstream(folder() / name, std::ios::binary).write(reinterpret_cast<const char *>(begin), end - begin);
}

}  // namespace

extern "C" {

// libFuzzer defines it.
std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t max_size);

/** Changes one of the two files; half of the time the header of the second fits again. */
std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t max_size, unsigned int seed) {
    const std::size_t config = static_cast<std::size_t>(std::find(data, data + size, 0) - data);
    if (seed % 4 == 0 && config > 0 && config < size) {
        const std::string tensors(data + config, data + size);
        const std::size_t length = LLVMFuzzerMutate(data, config, std::max(config, max_size - tensors.size()));
        std::copy(tensors.begin(), tensors.end(), data + length);
        return length + tensors.size();
    }
    if (config + 1 < size) {
        const std::size_t length = LLVMFuzzerMutate(data + config + 1, size - config - 1, max_size - config - 1);
        if (seed % 2 == 0) {
            fit_header_length(data + config + 1, length);
        }
        return config + 1 + length;
    }
    return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::uint8_t *const end = data + size, *const config = std::find(data, end, 0);
    write("config.json", data, config);
    write("model.safetensors", std::min(config + 1, end), end);
    halyard::LoadOptions options;
    options.max_positions = 1;
    try {
        halyard::Model::load(folder(), options);
    } catch (const halyard::Error &error) {
        if (std::string(error.what()).rfind(folder().string(), 0) != 0) {
            std::abort();
        }
    }
    return 0;
}

}  // extern "C"
