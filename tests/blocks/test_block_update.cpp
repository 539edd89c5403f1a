// Blocks and stacks that take other numbers: the bits of those made anew, nothing allocated, and what is refused.
#include "support/allocations.h"
#include "support/block.h"

namespace halyard::tests {
namespace {

/** A block that may be changed. */
class ChangingBlock {
public:
    explicit ChangingBlock(const BlockForm &form) : tensors(form) {
        EXPECT_EQ(halyard_block_create(nullptr, &form.config, &tensors.weights, &block), HALYARD_OK)
            << halyard_last_error();
    }
    ~ChangingBlock() { halyard_block_destroy(block); }
    ChangingBlock(const ChangingBlock &) = delete;
    ChangingBlock &operator=(const ChangingBlock &) = delete;

    std::vector<std::uint32_t> output() const {
        Tensor x(Dtype::f32, compact_form({7, tensors.form.config.hidden_size})),
            y(Dtype::f32, compact_form(x.shape()));
        fill_rows(x, 5);
        EXPECT_EQ(halyard_block_forward(nullptr, block, &x.view, nullptr, 0, nullptr, &y.view), HALYARD_OK)
            << halyard_last_error();
        return y.all_bits();
    }

    BlockTensors tensors;
    halyard_block *block = nullptr;
};

/** Presets, and mixed options. */
std::vector<BlockForm> forms() {
    std::vector<BlockForm> all;
    for (const std::string &preset : block_presets()) {
        all.push_back(preset_block(preset));
    }
    int number = 0;
    for (const halyard_norm_placement placement : norm_placements) {
        for (const halyard_norm norm : {HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
            all.push_back(mixed_block(number, norm, placement, HALYARD_SILU, number % 2 == 0));
            number++;
        }
    }
    return all;
}

TEST(BlockUpdate, HasTheBitsOfABlockMadeAnew) {
    for (BlockForm form : forms()) {
        ChangingBlock changed(form);
        const std::vector<std::uint32_t> before = changed.output();
        form.seed += 77;
        form.layout = form.layout == HALYARD_WEIGHT_OUT_IN ? HALYARD_WEIGHT_IN_OUT : HALYARD_WEIGHT_OUT_IN;
        const ChangingBlock anew(form);
        ASSERT_EQ(halyard_block_update(nullptr, changed.block, &anew.tensors.weights), HALYARD_OK)
            << halyard_last_error() << "; " << form.describe();
        EXPECT_TRUE(same_bits(Dtype::f32, anew.output(), changed.output())) << form.describe();
        EXPECT_FALSE(same_bits(Dtype::f32, before, changed.output())) << form.describe();
        EXPECT_EQ(halyard_block_bytes(changed.block), halyard_block_bytes(anew.block));
        // And back, by q, k and v the other way.
        form.joined = !form.joined;
        const ChangingBlock other_way(form);
        ASSERT_EQ(halyard_block_update(nullptr, changed.block, &other_way.tensors.weights), HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(same_bits(Dtype::f32, other_way.output(), changed.output())) << form.describe();
    }
}

/** A stack of one block, whose tables and vectors a test may change. */
class ChangingStack {
public:
    explicit ChangingStack(bool tied) : block(preset_block("gpt2")), tied(tied) {
        config.vocab_size = 19;
        config.hidden_size = width;
        config.norm = HALYARD_NORM_LAYER;
        config.rms_norm_eps = 1e-5f;
        fill(1);
        weights.embed_tokens = &table.view;
        weights.lm_head = tied ? nullptr : &head.view;
        weights.norm = &norm.view;
        weights.norm_bias = &norm_bias.view;
        stack = make();
    }
    ~ChangingStack() { halyard_stack_destroy(stack); }
    ChangingStack(const ChangingStack &) = delete;
    ChangingStack &operator=(const ChangingStack &) = delete;

    void fill(std::uint64_t seed) {
        for (Tensor *const tensor : {&table, &head, &norm, &norm_bias}) {
            fill_rows(*tensor, seed++);
        }
    }
    halyard_stack *make() const {
        halyard_stack *made = nullptr;
        const halyard_block *const blocks[] = {block.block};
        EXPECT_EQ(halyard_stack_create(nullptr, &config, &weights, blocks, 1, &made), HALYARD_OK)
            << halyard_last_error();
        return made;
    }
    static std::vector<std::uint32_t> logits(const halyard_stack *of) {
        Tensor y(Dtype::f32, compact_form({4, 19}));
        std::int64_t numbers[] = {3, 18, 0, 7}, shape[] = {4};
        const DLTensor ids = {numbers, {kDLCPU, 0}, 1, {kDLInt, 64, 1}, shape, nullptr, 0};
        halyard_stack_options options{};
        options.all_logits = 1;
        EXPECT_EQ(halyard_stack_forward(nullptr, of, &ids, nullptr, nullptr, &options, &y.view), HALYARD_OK)
            << halyard_last_error();
        return y.all_bits();
    }

    static constexpr std::int64_t width = 33;
    ChangingBlock block;
    const bool tied;
    Tensor table{Dtype::f32, compact_form({19, width})}, head{Dtype::f32, compact_form({19, width})},
        norm{Dtype::f32, compact_form({width})}, norm_bias{Dtype::f32, compact_form({width})};
    halyard_stack_config config{};
    halyard_stack_weights weights{};
    halyard_stack *stack = nullptr;
};

TEST(StackUpdate, HasTheBitsOfAStackMadeAnew) {
    for (const bool tied : {false, true}) {
        ChangingStack changed(tied);
        const std::vector<std::uint32_t> before = ChangingStack::logits(changed.stack);
        changed.fill(50);
        ASSERT_EQ(halyard_stack_update(nullptr, changed.stack, &changed.weights), HALYARD_OK) << halyard_last_error();
        halyard_stack *const anew = changed.make();
        EXPECT_TRUE(same_bits(Dtype::f32, ChangingStack::logits(anew), ChangingStack::logits(changed.stack)));
        EXPECT_FALSE(same_bits(Dtype::f32, before, ChangingStack::logits(changed.stack)));
        halyard_stack_destroy(anew);
        count_allocations();
        ASSERT_EQ(halyard_stack_update(nullptr, changed.stack, &changed.weights), HALYARD_OK);
        EXPECT_EQ(allocations().calls, 0);
    }
}

TEST(StackUpdate, RefusesAnotherFormAndChangesNothing) {
    const char *const function = "halyard_stack_update";
    const auto invalid = HALYARD_INVALID_ARGUMENT;
    ChangingStack own(false), tied(true);
    const std::vector<std::uint32_t> before = ChangingStack::logits(own.stack);
    const auto expect = [&](ChangingStack &of, const char *argument, const halyard_stack_weights &weights) {
        EXPECT_TRUE(refused(halyard_stack_update(nullptr, of.stack, &weights), invalid, function, argument))
            << argument;
    };
    halyard_stack_weights weights = own.weights;
    weights.lm_head = nullptr;
    expect(own, "lm_head", weights);
    weights = own.weights;
    weights.norm_bias = nullptr;
    expect(own, "norm_bias", weights);
    weights = own.weights;
    weights.embed_tokens = &own.head.view;
    expect(own, "embed_tokens", weights);
    weights = tied.weights;
    weights.lm_head = &tied.head.view;
    expect(tied, "lm_head", weights);
    EXPECT_TRUE(refused(halyard_stack_update(nullptr, nullptr, &weights), invalid, function, "stack"));
    EXPECT_TRUE(refused(halyard_stack_update(nullptr, own.stack, nullptr), invalid, function, "weights"));
    EXPECT_TRUE(same_bits(Dtype::f32, before, ChangingStack::logits(own.stack)));
}

TEST(BlockUpdate, AllocatesNothingAgain) {
    for (const bool joined : {false, true}) {
        BlockForm form = preset_block("gpt2");
        form.joined = joined;
        ChangingBlock block(form);
        const Context context(supported_isas().back(), 2);
        ASSERT_EQ(halyard_block_update(context.get(), block.block, &block.tensors.weights), HALYARD_OK);
        count_allocations();
        ASSERT_EQ(halyard_block_update(context.get(), block.block, &block.tensors.weights), HALYARD_OK);
        EXPECT_EQ(allocations().calls, 0);
    }
}

TEST(BlockUpdate, RefusesAnotherFormAndChangesNothing) {
    const char *const function = "halyard_block_update";
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    const BlockForm form = preset_block("gpt2");
    ChangingBlock block(form);
    const std::vector<std::uint32_t> before = block.output();
    const auto expect = [&](halyard_status status, const char *argument, const halyard_block_weights &weights) {
        EXPECT_TRUE(refused(halyard_block_update(nullptr, block.block, &weights), status, function, argument))
            << argument;
        EXPECT_TRUE(same_bits(Dtype::f32, before, block.output())) << argument;
    };
    halyard_block_weights weights = block.tensors.weights;
    weights.o_proj_bias = nullptr;
    expect(invalid, "o_proj_bias", weights);
    weights = block.tensors.weights;
    weights.q_proj_bias = weights.k_proj_bias = weights.v_proj_bias = nullptr;
    expect(invalid, "the biases of q, k and v", weights);
    weights = block.tensors.weights;
    weights.q_norm = block.tensors.weights.ffn_norm;
    expect(invalid, "q_norm", weights);
    weights = block.tensors.weights;
    weights.up_proj = nullptr;
    expect(invalid, "up_proj", weights);
    weights = block.tensors.weights;
    weights.layout = static_cast<halyard_weight_layout>(3);
    expect(invalid, "layout", weights);
    BlockForm narrow = form;
    narrow.matrices = Dtype::bf16;
    const ChangingBlock in_bf16(narrow);
    expect(invalid, "matrices", in_bf16.tensors.weights);
    EXPECT_TRUE(refused(halyard_block_update(nullptr, nullptr, &weights), invalid, function, "block"));
    EXPECT_TRUE(refused(halyard_block_update(nullptr, block.block, nullptr), invalid, function, "weights"));

    // Quantized matrices cannot be written in place; borrowed ones are the caller's.
    BlockTensors tensors(form);
    tensors.weights.quantization = {8, 0, 0, {}};
    halyard_block *quantized = nullptr;
    ASSERT_EQ(halyard_block_create(nullptr, &form.config, &tensors.weights, &quantized), HALYARD_OK);
    EXPECT_TRUE(
        refused(halyard_block_update(nullptr, quantized, &block.tensors.weights), unsupported, function, "block"));
    halyard_block_destroy(quantized);
    halyard_weights *packed = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, tensors.weights.o_proj, nullptr, nullptr, 0, &packed), HALYARD_OK);
    halyard_block_weights with_packed = block.tensors.weights;
    with_packed.o_proj = nullptr;
    with_packed.packed.o_proj = packed;
    expect(unsupported, "packed.o_proj", with_packed);
    halyard_block *borrows = nullptr;
    ASSERT_EQ(halyard_block_create(nullptr, &form.config, &with_packed, &borrows), HALYARD_OK);
    EXPECT_TRUE(
        refused(halyard_block_update(nullptr, borrows, &block.tensors.weights), unsupported, function, "block"));
    halyard_block_destroy(borrows);
    halyard_weights_destroy(packed);
}

}  // namespace
}  // namespace halyard::tests
