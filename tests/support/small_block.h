// A small block that nothing is wrong with, for tests of what may be wrong.
#ifndef HALYARD_TESTS_SMALL_BLOCK_H
#define HALYARD_TESTS_SMALL_BLOCK_H

#include "support/block.h"

namespace halyard::tests {

inline constexpr std::int64_t width = 32, ff = 48, heads = 4, kv_heads = 2, head_dim = 8;

inline halyard_block_config good_config() {
    halyard_block_config c{};
    EXPECT_EQ(halyard_block_config_preset("llama", &c), HALYARD_OK);
    c.hidden_size = width;
    c.intermediate_size = ff;
    c.num_attention_heads = heads;
    c.num_key_value_heads = kv_heads;
    c.max_position_embeddings = 20;
    return c;
}

inline BlockForm good_form() {
    BlockForm form;
    form.config = good_config();
    form.head_norms = true;
    return form;
}

inline constexpr halyard_status invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;

}  // namespace halyard::tests

#endif
