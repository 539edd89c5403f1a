// What a library answers that was built with some instruction sets, dtypes and operations alone: what is left out is refused,
// and the message names the option that brings it in.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "halyard/block.h"
#include "halyard/config.h"
#include "halyard/training.h"
#include "operations/isas.h"
#include "support/tensor.h"

namespace halyard::tests {
namespace {

constexpr int operation_count = 0
#define HALYARD_OPERATION(name, built) +1
#include "kernels/operations.inc"
#undef HALYARD_OPERATION
    ;

/** A function of an operation. */
struct AnyCall {
    const char *name;
    halyard_status (*call)(DLTensor *t);  // with t for every tensor
    bool takes_tensors = true;            // or null for all arguments
};

/** A tensor like `t` elsewhere, for an output that may not overlap another. */
struct Apart {
    explicit Apart(const DLTensor *t) : view(t != nullptr ? *t : DLTensor{}), given(t != nullptr) {
        view.data = memory;
        view.byte_offset = 0;
    }
    operator DLTensor *() { return given ? &view : nullptr; }

    alignas(float) char memory[4096];
    DLTensor view;
    bool given;
};

const AnyCall calls[] = {
#define HALYARD_KERNEL(name) {#name, [](DLTensor *t) { return halyard_##name(nullptr, t, t); }},
#include "kernels/unary.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name) {#name, [](DLTensor *t) { return halyard_##name(nullptr, t, 1.0f, t); }},
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name) {#name, [](DLTensor *t) { return halyard_##name(nullptr, t, t, t); }},
#include "kernels/gated.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name) {#name, [](DLTensor *t) { return halyard_##name(nullptr, t, t, 1.0f, t); }},
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    {#name "_backward", [](DLTensor *t) { return halyard_##name##_backward(nullptr, t, t, t); }},
#include "kernels/unary_backward.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    {#name "_backward", [](DLTensor *t) { return halyard_##name##_backward(nullptr, t, t, 1.0f, t); }},
#include "kernels/unary_beta_backward.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    {#name "_backward", [](DLTensor *t) { return halyard_##name##_backward(nullptr, t, t, t, t, Apart(t)); }},
#include "kernels/gated_backward.inc"
#undef HALYARD_KERNEL
#define HALYARD_KERNEL(name)                                                                                           \
    {#name "_backward", [](DLTensor *t) { return halyard_##name##_backward(nullptr, t, t, t, 1.0f, t, Apart(t)); }},
#include "kernels/gated_beta_backward.inc"
#undef HALYARD_KERNEL
    {"add", [](DLTensor *t) { return halyard_add(nullptr, t, t, t); }},
    {"cast", [](DLTensor *t) { return halyard_cast(nullptr, t, t); }},
    {"rms_norm", [](DLTensor *t) { return halyard_rms_norm(nullptr, t, nullptr, 1e-5f, 0, t); }},
    {"layer_norm", [](DLTensor *t) { return halyard_layer_norm(nullptr, t, nullptr, nullptr, 1e-5f, t); }},
    {"rms_norm_backward",
     [](DLTensor *t) { return halyard_rms_norm_backward(nullptr, t, nullptr, 1e-5f, 0, t, nullptr, 0, t, nullptr); }},
    {"layer_norm_backward",
     [](DLTensor *t) {
         return halyard_layer_norm_backward(nullptr, t, nullptr, 1e-5f, t, nullptr, 0, t, nullptr, nullptr);
     }},
    {"softmax_backward", [](DLTensor *t) { return halyard_softmax_backward(nullptr, t, t, 1, t); }},
    {"softmax", [](DLTensor *t) { return halyard_softmax(nullptr, t, 1, t); }},
    {"cross_entropy",
     [](DLTensor *) { return halyard_cross_entropy(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); }, false},
    {"embedding_backward", [](DLTensor *) { return halyard_embedding_backward(nullptr, nullptr, nullptr, 0, nullptr); },
     false},
    {"linear", [](DLTensor *) { return halyard_linear(nullptr, nullptr, nullptr, nullptr, nullptr); }, false},
    {"linear_backward",
     [](DLTensor *) { return halyard_linear_backward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); }, false},
    {"ffn", [](DLTensor *) { return halyard_ffn(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); }, false},
    {"ffn_backward",
     [](DLTensor *) { return halyard_ffn_backward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); },
     false},
    {"rope", [](DLTensor *) { return halyard_rope_create(nullptr, nullptr); }, false},
    {"kv_cache", [](DLTensor *) { return halyard_kv_cache_size(nullptr, nullptr); }, false},
    {"attention", [](DLTensor *) { return halyard_attention(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); },
     false},
    {"attention_backward",
     [](DLTensor *) {
         return halyard_attention_backward(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                           nullptr, nullptr, nullptr);
     },
     false},
    {"gradient_norm", [](DLTensor *) { return halyard_gradient_norm(nullptr, nullptr, 1, nullptr); }, false},
    {"sgd", [](DLTensor *) { return halyard_sgd_step(nullptr, nullptr, nullptr, nullptr, nullptr); }, false},
    {"adamw", [](DLTensor *) { return halyard_adamw_step(nullptr, nullptr, nullptr, nullptr, nullptr, 1, nullptr); },
     false},
    {"block", [](DLTensor *) { return halyard_block_create(nullptr, nullptr, nullptr, nullptr); }, false},
    {"block_backward", [](DLTensor *) { return halyard_block_saved_size(nullptr, 1, 1, nullptr); }, false},
    {"stack", [](DLTensor *) { return halyard_stack_create(nullptr, nullptr, nullptr, nullptr, 0, nullptr); }, false},
    {"stack_backward", [](DLTensor *) { return halyard_stack_saved_size(nullptr, 1, 1, nullptr); }, false},
};

bool says(std::string_view text) {
    return std::string_view(halyard_last_error()).find(text) != std::string_view::npos;
}

TEST(Subset, AnOperationIsThereOrSaysWhichOptionBringsItIn) {
    EXPECT_EQ(std::size(calls), std::size_t{operation_count});
    for (const auto &[name, call, takes_tensors] : calls) {
        const halyard_status status = call(nullptr);
        if (halyard_operation_supported(name) != 0) {
            EXPECT_EQ(status, HALYARD_INVALID_ARGUMENT) << name << ": " << halyard_last_error();
        } else {
            EXPECT_EQ(status, HALYARD_UNSUPPORTED) << name;
            EXPECT_TRUE(says(std::string("without ") + name + "; configure with -DHALYARD_OPERATIONS=")) << name;
            EXPECT_TRUE(says(std::string(",") + name)) << halyard_last_error();
        }
    }
    EXPECT_EQ(halyard_operation_supported("layer"), 0);
    EXPECT_EQ(halyard_operation_supported(nullptr), 0);
}

TEST(Subset, ADtypeIsThereOrSaysWhichOptionBringsItIn) {
    for (const auto &[type, built] : {std::pair{Dtype::f32, HALYARD_HAS_F32}, std::pair{Dtype::f16, HALYARD_HAS_F16},
                                      std::pair{Dtype::bf16, HALYARD_HAS_BF16}}) {
        for (const auto &[name, call, takes_tensors] : calls) {
            if (!takes_tensors || halyard_operation_supported(name) == 0) {
                continue;
            }
            Tensor tensor(type, {{4}, {}, Placement::ends_at_guard, 0, 0});
            EXPECT_EQ(call(&tensor.view), built ? HALYARD_OK : HALYARD_UNSUPPORTED)
                << name << ": " << halyard_last_error();
            if (!built) {
                EXPECT_TRUE(says("-DHALYARD_DTYPES=") && says(std::string(",") + name_of(type)))
                    << halyard_last_error();
            }
        }
    }
}

TEST(Subset, AnInstructionSetIsThereOrRefused) {
    for (int i = 0; i < halyard_isa_count(); i++) {
        const halyard_isa isa = halyard_isa_at(i);
        const bool built = std::count(std::begin(built_isas), std::end(built_isas), isa) > 0;
        halyard_context *context = nullptr;
        ASSERT_EQ(halyard_context_create(&context), HALYARD_OK);
        EXPECT_EQ(halyard_context_set_max_isa(context, isa), built ? HALYARD_OK : HALYARD_UNSUPPORTED);
        if (!built) {
            EXPECT_TRUE(says("HALYARD_ISAS")) << halyard_last_error();
            EXPECT_EQ(halyard_isa_supported(isa), 0);
        }
        halyard_context_destroy(context);
    }
}

// What has no status: nothing happens, and lists are empty.
TEST(Subset, OtherFunctionsMayBeCalled) {
    halyard_weights_destroy(nullptr);
    halyard_stack_destroy(nullptr);
    EXPECT_EQ(halyard_weights_data(nullptr), nullptr);
    ASSERT_NE(halyard_block_presets(), nullptr);
    EXPECT_EQ(*halyard_block_presets() != nullptr, halyard_operation_supported("block") != 0);
}

}  // namespace
}  // namespace halyard::tests
