// A libFuzzer target for config.json: text that is accepted must give blocks and a stack that fit together.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "halyard/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string text(reinterpret_cast<const char *>(data), size);
    try {
        const auto config = halyard::ModelConfig::parse(text, "the file");
        bool right = !config.blocks.empty() && config.stack.vocab_size >= 1;
        for (const halyard::BlockConfig &block : config.blocks) {
            right = right && block.hidden_size == config.stack.hidden_size && block.head_dim >= 1 &&
                    block.num_key_value_heads >= 1 && block.num_attention_heads % block.num_key_value_heads == 0 &&
                    block.intermediate_size >= 1 && block.sliding_window >= 0 && block.query_pre_attn_scalar > 0;
        }
        if (!right) {
            std::abort();
        }
    } catch (const halyard::Error &error) {
        if (std::string(error.what()).rfind("the file", 0) != 0) {
            std::abort();
        }
    }
    return 0;
}
