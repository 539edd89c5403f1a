// A libFuzzer target for the C API: a sequence of calls of all its functions, with right and wrong arguments. What is
// refused must have a message and leave every output as it was; what is accepted must stay within its tensors.
#include "fuzz/c_api_session.h"

namespace halyard::tests {

TensorMemory &tensor_memory() {
    static TensorMemory memory;
    return memory;
}

HandleMemory &handle_memory() {
    static HandleMemory memory;
    return memory;
}

const Folder &folder() {
    static const Folder folder;
    return folder;
}

void Session::destroy(halyard_block *&block) {
    for (int i = 0; i < places; i++) {
        for (const halyard_block *used : stack_blocks_[i]) {
            if (block && used == block) {
                halyard_stack_destroy(stacks_[i]);
                stacks_[i] = nullptr;
                std::memset(stack_blocks_[i], 0, sizeof stack_blocks_[i]);
                break;
            }
        }
    }
    halyard_block_destroy(block);
    block = nullptr;
    halyard_weights *&borrowed = block_weights_[&block - blocks_];
    halyard_weights_destroy(borrowed);
    borrowed = nullptr;
}

Session::~Session() {
    const bool backwards = in_.one_in(2);
    for (int n = 0; n < places; n++) {
        const int i = backwards ? places - 1 - n : n;
        if (backwards) {
            halyard_context_destroy(contexts_[i]);
        }
        halyard_stack_destroy(stacks_[i]);
        halyard_kv_cache_destroy(caches_[i]);
        halyard_rope_destroy(ropes_[i]);
        halyard_weights_destroy(weights_[i]);
        if (!backwards) {
            halyard_context_destroy(contexts_[i]);
        }
    }
    for (int i = 0; i < places; i++) {
        halyard_block_destroy(blocks_[i]);
        halyard_weights_destroy(block_weights_[i]);
    }
}

void Session::step(unsigned which, const Input &in) {
    using Step = void (Session::*)();
    constexpr Step steps[] = {
        &Session::elementwise,
        &Session::elementwise,
        &Session::norms,
        &Session::norm_gradients,
        &Session::contexts,
        &Session::questions,
        &Session::weights_create,
        &Session::weights_of_codes,
        &Session::weights_other,
        &Session::linear,
        &Session::linear,
        &Session::norm_scales,
        &Session::ffn,
        &Session::ropes,
        &Session::caches,
        &Session::caches,
        &Session::cache_create,
        &Session::attention,
        &Session::attention,
        &Session::block_create,
        &Session::block_other,
        &Session::block_training,
        &Session::block_other,
        &Session::block_training,
        &Session::stack_create,
        &Session::stack_other,
        &Session::stack_training,
        &Session::stack_other,
        &Session::dequantize,
        &Session::linear_gradients,
        &Session::ffn_gradients,
        &Session::attention_gradients,
        &Session::weights_update,
        &Session::optimizers,
        &Session::gradient_norm,
        &Session::losses,
        &Session::embedding_gradients,
    };
    in_ = in;
    (this->*steps[which % (sizeof steps / sizeof steps[0])])();
}

}  // namespace halyard::tests

extern "C" {

// A library that has no memory says so.
const char *__asan_default_options() {
    return "allocator_may_return_null=1";
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    halyard::tests::Input in(data, size);
    halyard::tests::Session session;
    while (!in.done()) {
        const unsigned step = in.byte();
        session.step(step, in.part());
    }
    return 0;
}

}  // extern "C"
