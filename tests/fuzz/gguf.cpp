// A libFuzzer target for GGUF files. A file that is accepted must be what it says: tensors that lie in it and overlap
// nowhere, all of them readable, and metadata that either gives blocks and a stack that fit together or is refused. What
// passes that is loaded as a model.
#include "gguf.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "gguf_config.h"
#include "support/gguf_numbers.h"

namespace {

using halyard::models::Gguf;

void require(bool right) {
    if (!right) {
        std::abort();
    }
}

void read(const Gguf &file) {
    volatile unsigned sum = 0;
    for (const halyard::TensorInfo &info : file.tensors()) {
        for (std::int64_t i = 0; i < info.bytes; i++) {
            sum = sum + static_cast<unsigned>(info.data[i]);
        }
        require(file.find(info.name) == &info);
        const halyard::models::BlockFormat &format = *halyard::models::block_format(info.dtype);
        if (format.codes) {
            halyard::tests::numbers_of(format, info.data, info.shape.back());
        }
    }
    for (const std::string &key : file.keys()) {
        require(file.has(key));
        file.metadata(key);
    }
    const halyard::ModelConfig config = halyard::models::config_of(file);
    require(!config.blocks.empty() && config.stack.vocab_size >= 1);
    for (const halyard::BlockConfig &block : config.blocks) {
        require(block.hidden_size == config.stack.hidden_size && block.head_dim >= 1 &&
                block.num_key_value_heads >= 1 && block.num_attention_heads % block.num_key_value_heads == 0 &&
                block.intermediate_size >= 1 && block.sliding_window >= 0 && block.query_pre_attn_scalar > 0);
    }
}

/// Models come from files: this one has no other name than that of its descriptor.
void load(const std::uint8_t *data, std::size_t size) {
    const int file = memfd_create("model", MFD_CLOEXEC);
    require(file >= 0 && write(file, data, size) == static_cast<ssize_t>(size));
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    halyard::LoadOptions options;
    options.max_positions = 1;
    try {
        halyard::Model::load(path, options);
    } catch (const halyard::Error &error) {
        require(std::string(error.what()).rfind(path, 0) == 0);
    }
    close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    // Exactly as long as the input, so that AddressSanitizer sees the first byte too many.
    const std::unique_ptr<std::uint8_t[]> file(new std::uint8_t[size]);
    std::copy_n(data, size, file.get());
    try {
        read(Gguf::from_memory(file.get(), size, "the file"));
        load(data, size);
    } catch (const halyard::Error &error) {
        require(std::string(error.what()).rfind("the file", 0) == 0);
    }
    return 0;
}
