// Transformer blocks: against float64 with derived bounds, for every family and every option; with a cache; the same
// bits whatever the threads, the parts of a sequence and its neighbours.
//
// The bounds are those of reference_block.cpp: every f32 operation may err by half an ULP, elementary functions by what
// docs/numerics.md says, and what has been made of errors so far is carried through the rest of the block. For a type
// of 16 bits the result may besides be rounded once.
#include "support/block.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

namespace halyard::tests {
namespace {

#ifdef HALYARD_TESTS_REDUCED
constexpr int every = 7;  // one in so many of the combinations
constexpr std::int64_t long_sequence = 515;
#else
constexpr int every = 1;
constexpr std::int64_t long_sequence = 1040;
#endif

/** With every instruction set within the bounds of float64. */
void expect_right(const Block &block, BlockCall &call) {
    const Matrix expected = call.expected();
    for (const halyard_isa isa : product_isas(call.x.dtype(), Dtype::bf16)) {
        const Context context(isa);
        call.y.clear();
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << block.form.describe();
        ASSERT_TRUE(as_expected(call.y, expected))
            << halyard_isa_name(isa) << ", x " << name_of(call.x.dtype()) << "; " << block.form.describe();
        ASSERT_TRUE(call.surroundings_intact()) << block.form.describe();
    }
}

// ---- Configurations ----------------------------------------------------------------------------------------------

TEST(BlockConfig, PresetsAreThoseOfTheirFamilies) {
    EXPECT_EQ(block_presets(),
              (std::vector<std::string>{"original_2017", "bert", "gpt2", "llama", "qwen", "gemma", "mistral"}));
    struct Known {
        const char *name;
        halyard_norm norm;
        halyard_norm_placement placement;
        float eps;
        halyard_activation act;
        int gated, causal;
        double theta;
    };
    const Known known[] = {
        {"original_2017", HALYARD_NORM_LAYER, HALYARD_POST_NORM, 1e-5f, HALYARD_RELU, 0, 0, 0},
        {"bert", HALYARD_NORM_LAYER, HALYARD_POST_NORM, 1e-12f, HALYARD_GELU, 0, 0, 0},
        {"gpt2", HALYARD_NORM_LAYER, HALYARD_PRE_NORM, 1e-5f, HALYARD_GELU_TANH, 0, 1, 0},
        {"llama", HALYARD_NORM_RMS, HALYARD_PRE_NORM, 1e-5f, HALYARD_SILU, 1, 1, 10000},
        {"qwen", HALYARD_NORM_RMS, HALYARD_PRE_NORM, 1e-6f, HALYARD_SILU, 1, 1, 1e6},
        {"gemma", HALYARD_NORM_RMS, HALYARD_SANDWICH_NORM, 1e-6f, HALYARD_GELU_TANH, 1, 1, 10000},
        {"mistral", HALYARD_NORM_RMS, HALYARD_PRE_NORM, 1e-5f, HALYARD_SILU, 1, 1, 10000},
    };
    for (const Known &k : known) {
        halyard_block_config c;
        std::memset(&c, 0x55, sizeof c);
        ASSERT_EQ(halyard_block_config_preset(k.name, &c), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(c.norm, k.norm) << k.name;
        EXPECT_EQ(c.norm_placement, k.placement) << k.name;
        EXPECT_EQ(c.rms_norm_eps, k.eps) << k.name;
        EXPECT_EQ(c.hidden_act, k.act) << k.name;
        EXPECT_EQ(c.gated_mlp, k.gated) << k.name;
        EXPECT_EQ(c.causal, k.causal) << k.name;
        EXPECT_EQ(c.rope.rope_theta, k.theta) << k.name;
        const bool gemma = std::string(k.name) == "gemma";
        EXPECT_EQ(c.norm_flags, gemma ? unsigned{HALYARD_RMS_UNIT_OFFSET} : 0U) << k.name;
        EXPECT_EQ(c.attn_logit_softcapping, gemma ? 50.0f : 0.0f) << k.name;
        EXPECT_EQ(c.query_pre_attn_scalar, gemma ? 256.0f : 0.0f) << k.name;
        EXPECT_EQ(c.sliding_window, std::string(k.name) == "mistral" ? 4096 : 0) << k.name;
        for (const std::int64_t size : {c.hidden_size, c.intermediate_size, c.num_attention_heads,
                                        c.num_key_value_heads, c.head_dim, c.max_position_embeddings}) {
            EXPECT_EQ(size, 0) << k.name;
        }
    }
    halyard_block_config c{};
    EXPECT_TRUE(refused(halyard_block_config_preset("t5", &c), HALYARD_INVALID_ARGUMENT, "halyard_block_config_preset",
                        "preset"));
    for (const std::string &name : block_presets()) {
        EXPECT_NE(std::strstr(halyard_last_error(), name.c_str()), nullptr) << name;
    }
    EXPECT_TRUE(refused(halyard_block_config_preset(nullptr, &c), HALYARD_INVALID_ARGUMENT,
                        "halyard_block_config_preset", "preset"));
    EXPECT_TRUE(refused(halyard_block_config_preset("gpt2", nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_block_config_preset", "config"));
}

TEST(BlockConfig, ComesBackComplete) {
    BlockForm form = preset_block("llama");
    form.config.head_dim = 0;
    form.config.hidden_size = 48;
    const Block block(form);
    halyard_block_config c{};
    ASSERT_EQ(halyard_block_get_config(block.get(), &c), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(c.hidden_size, 48);
    EXPECT_EQ(c.num_key_value_heads, 3);
    EXPECT_EQ(c.head_dim, 16);
    EXPECT_EQ(c.query_pre_attn_scalar, 16.0f);
    EXPECT_EQ(c.rope.head_dim, 16);
    EXPECT_EQ(c.rope.rotary_dim, 16);
    EXPECT_EQ(c.rope.max_positions, 700);
    // As it is it makes the same block again.
    form.config = c;
    const Block again(form);
    BlockCall call(block, Dtype::f32, {5}), other(again, Dtype::f32, {5});
    ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(other.run(nullptr), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(same_rows(call.y, other.y));
    EXPECT_EQ(halyard_block_bytes(block.get()), halyard_block_bytes(again.get()));
    // Weights of q, k, v, o, gate, up and down, and the table of angles.
    EXPECT_GE(halyard_block_bytes(block.get()), 4 * (48 * 48 * 4 + 48 * 51 * 3 + 700 * 16));
    halyard_block_destroy(nullptr);
    EXPECT_EQ(halyard_block_bytes(nullptr), 0);
}

// ---- Results -----------------------------------------------------------------------------------------------------

TEST(Block, EveryPresetInAnyTypes) {
    int number = 0;
    for (const std::string &preset : block_presets()) {
        for (const Dtype matrices : all_dtypes) {
            for (const Dtype vectors : all_dtypes) {
                BlockForm form = preset_block(preset);
                form.matrices = matrices;
                form.vectors = vectors;
                form.head_norms = preset == "qwen" && number % 2 == 0;
                form.config.sliding_window = form.config.sliding_window != 0 ? 4 : 0;
                const Block block(form);
                for (const Dtype x : all_dtypes) {
                    number++;
                    BlockCall call(block, x, {2, 1 + number % 7});
                    ASSERT_NO_FATAL_FAILURE(expect_right(block, call));
                }
            }
        }
    }
}

TEST(Block, AnyCombinationOfOptions) {
    int number = 0;
    for (const LayerActivation &activation : layer_activations()) {
        for (const halyard_norm norm : {HALYARD_NORM_NONE, HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
            for (const halyard_norm_placement placement : norm_placements) {
                for (const bool gated : {false, true}) {
                    if (++number % every != 0) {
                        continue;
                    }
                    const Block block(mixed_block(number, norm, placement, activation.value, gated));
                    const Shape leading = number % 2 == 0 ? Shape{3, 5} : Shape{1 + number % 17};
                    BlockCall call(block, all_dtypes[number % 3], leading, number % 3, number % 4,
                                   static_cast<std::uint64_t>(number));
                    ASSERT_NO_FATAL_FAILURE(expect_right(block, call));
                }
            }
        }
    }
}

TEST(Block, TakesSomeOfTheBiases) {
    for (int missing = 0; missing < 8; missing++) {
        BlockForm form = preset_block("gpt2");
        BlockTensors tensors(form);
        struct {
            const DLTensor *&given;
            Row &values;
        } biases[] = {{tensors.weights.q_proj_bias, tensors.values.q_bias},
                      {tensors.weights.k_proj_bias, tensors.values.k_bias},
                      {tensors.weights.v_proj_bias, tensors.values.v_bias}};
        for (int i = 0; i < 3; i++) {
            if ((missing >> i & 1) != 0) {
                biases[i].given = nullptr;
                biases[i].values.clear();
            }
        }
        halyard_block *block = nullptr;
        ASSERT_EQ(halyard_block_create(nullptr, &form.config, &tensors.weights, &block), HALYARD_OK)
            << halyard_last_error();
        Tensor x(Dtype::f32, compact_form({4, 33})), y(Dtype::f32, compact_form({4, 33}));
        fill_rows(x, 5);
        EXPECT_EQ(halyard_block_forward(nullptr, block, &x.view, nullptr, 0, nullptr, &y.view), HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(as_expected(y, halyard::tests::block(tensors.values, rows_of(x)))) << missing;
        halyard_block_destroy(block);
    }
}

TEST(Block, SeveralKeyBlocksAndRows) {
    // More keys than attention takes at a time, and more rows than a product does.
    for (const char *const preset : {"llama", "gemma"}) {
        BlockForm form = preset_block(preset);
        form.config.num_attention_heads = 2;
        form.config.num_key_value_heads = 1;
        form.config.max_position_embeddings = 1100;
        const Block block(form);
        BlockCall call(block, Dtype::f32, {std::min<std::int64_t>(long_sequence, 530)});
        const Matrix expected = call.expected();
        ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(as_expected(call.y, expected)) << preset;
    }
}

/** The values of a quantized matrix [out, in] in f32: its products with the rows of the unit matrix. */
std::unique_ptr<Tensor> quantized_values(const DLTensor &matrix, const halyard_quantization &quantization) {
    const std::int64_t out = matrix.shape[0], in = matrix.shape[1];
    halyard_pack_options options{};
    options.quantization = quantization;
    halyard_weights *weights = nullptr;
    EXPECT_EQ(halyard_weights_pack(nullptr, &matrix, &options, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    Tensor unit(Dtype::f32, compact_form({in, in})), columns(Dtype::f32, compact_form({in, out}));
    unit.fill([](std::int64_t row, std::int64_t i) { return row == i ? 1.0 : 0.0; });
    EXPECT_EQ(halyard_linear(nullptr, &unit.view, weights, nullptr, &columns.view), HALYARD_OK);
    halyard_weights_destroy(weights);
    auto values = std::make_unique<Tensor>(Dtype::f32, compact_form({out, in}));
    values->fill([&](std::int64_t n, std::int64_t k) { return columns.get(k, n); });
    return values;
}

/** Whether two tensors differ by a few roundings of their largest element at most. */
testing::AssertionResult nearly_same(const Tensor &expected, const Tensor &got) {
    double largest = 0, furthest = 0;
    for (std::int64_t row = 0; row < got.rows(); row++) {
        for (std::int64_t i = 0; i < got.width(); i++) {
            largest = std::max(largest, std::abs(expected.get(row, i)));
            furthest = std::max(furthest, std::abs(expected.get(row, i) - got.get(row, i)));
        }
    }
    return furthest <= largest * std::exp2(-18)
               ? testing::AssertionSuccess()
               : testing::AssertionFailure() << "they differ by " << furthest << " of " << largest;
}

TEST(Block, OfQuantizedMatricesIsThatOfTheirValues) {
    const halyard_quantization quantization = {4, 32, 0, {}};
    for (const std::string preset : {"llama", "gpt2"}) {
        BlockForm form = preset_block(preset);
        form.matrices = Dtype::bf16;
        BlockTensors tensors(form);
        halyard_block_weights in_codes = tensors.weights, in_f32 = tensors.weights;
        in_codes.quantization = quantization;
        std::vector<std::unique_ptr<Tensor>> values;
        for (const auto matrix :
             {&halyard_block_weights::q_proj, &halyard_block_weights::k_proj, &halyard_block_weights::v_proj,
              &halyard_block_weights::qkv_proj, &halyard_block_weights::o_proj, &halyard_block_weights::gate_proj,
              &halyard_block_weights::up_proj, &halyard_block_weights::down_proj}) {
            if (in_f32.*matrix != nullptr) {
                values.push_back(quantized_values(*(in_f32.*matrix), quantization));
                in_f32.*matrix = &values.back()->view;
            }
        }
        halyard_block *codes = nullptr, *plain = nullptr;
        ASSERT_EQ(halyard_block_create(nullptr, &form.config, &in_codes, &codes), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(halyard_block_create(nullptr, &form.config, &in_f32, &plain), HALYARD_OK) << halyard_last_error();
        const std::int64_t width = form.config.hidden_size;
        Tensor x(Dtype::f32, compact_form({7, width})), y(Dtype::f32, compact_form({7, width})),
            expected(Dtype::f32, compact_form({7, width}));
        fill_rows(x, 5);
        ASSERT_EQ(halyard_block_forward(nullptr, codes, &x.view, nullptr, 0, nullptr, &y.view), HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_block_forward(nullptr, plain, &x.view, nullptr, 0, nullptr, &expected.view), HALYARD_OK);
        EXPECT_TRUE(nearly_same(expected, y)) << preset;

        // And a stack whose output projection is quantized.
        constexpr std::int64_t vocabulary = 50;
        Tensor table(Dtype::bf16, compact_form({vocabulary, width}));
        table.fill([](std::int64_t row, std::int64_t i) { return bell(17, row, i) / 4; });
        const std::unique_ptr<Tensor> head = quantized_values(table.view, quantization);
        halyard_stack_config config{};
        config.vocab_size = vocabulary;
        config.hidden_size = width;
        halyard_stack_weights with_codes{}, with_values{};
        with_codes.embed_tokens = with_values.embed_tokens = &table.view;
        with_codes.quantization = quantization;
        with_values.lm_head = &head->view;
        halyard_stack *first = nullptr, *second = nullptr;
        const halyard_block *const blocks[] = {codes};
        ASSERT_EQ(halyard_stack_create(nullptr, &config, &with_codes, blocks, 1, &first), HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_stack_create(nullptr, &config, &with_values, blocks, 1, &second), HALYARD_OK);
        std::int32_t ids[] = {3, 1, 4, 1, 5};
        std::int64_t shape[] = {5};
        DLTensor input{};
        input.data = ids;
        input.device = {kDLCPU, 0};
        input.ndim = 1;
        input.dtype = {kDLInt, 32, 1};
        input.shape = shape;
        Tensor logits(Dtype::f32, compact_form({vocabulary})), same(Dtype::f32, compact_form({vocabulary}));
        ASSERT_EQ(halyard_stack_forward(nullptr, first, &input, nullptr, nullptr, nullptr, &logits.view), HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_stack_forward(nullptr, second, &input, nullptr, nullptr, nullptr, &same.view), HALYARD_OK);
        EXPECT_TRUE(nearly_same(same, logits)) << preset;
        halyard_stack_destroy(first);
        halyard_stack_destroy(second);
        halyard_block_destroy(codes);
        halyard_block_destroy(plain);

        const auto names_of_nan = [&](const DLTensor *matrix, const std::string &names) {
            auto *const element = static_cast<std::uint16_t *>(matrix->data);
            const std::uint16_t before = std::exchange(*element, std::uint16_t{0x7fc0});
            EXPECT_TRUE(refused(halyard_block_create(nullptr, &form.config, &in_codes, &codes),
                                HALYARD_INVALID_ARGUMENT, "halyard_block_create", names + " holds NaN or Inf"));
            *element = before;
        };
        if (in_codes.qkv_proj != nullptr) {
            names_of_nan(in_codes.qkv_proj, "qkv_proj");
        } else {
            names_of_nan(in_codes.k_proj, "q_proj, k_proj or v_proj");
        }
        names_of_nan(in_codes.up_proj, form.config.gated_mlp != 0 ? "gate_proj or up_proj" : "up_proj");

        in_codes.quantization.bits = 5;
        EXPECT_TRUE(refused(halyard_block_create(nullptr, &form.config, &in_codes, &codes), HALYARD_INVALID_ARGUMENT,
                            "halyard_block_create", "quantization.bits"));
    }
}

TEST(Block, InPlace) {
    int number = 0;
    for (const halyard_norm_placement placement : norm_placements) {
        for (const Dtype type : all_dtypes) {
            const Block block(mixed_block(++number, HALYARD_NORM_RMS, placement, HALYARD_SILU, true));
            BlockCall call(block, type, {2, 6}, 3, 3);
            for (const halyard_isa isa : supported_isas()) {
                const Context context(isa);
                fill_rows(call.x, 3);
                ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(
                    halyard_block_forward(context.get(), block.get(), &call.x.view, nullptr, 0, nullptr, &call.x.view),
                    HALYARD_OK)
                    << halyard_last_error();
                EXPECT_TRUE(same_rows(call.y, call.x)) << block.form.describe();
                EXPECT_TRUE(call.surroundings_intact());
            }
        }
    }
}

TEST(Block, NothingToDo) {
    const Block block(preset_block("llama"));
    const BlockCache cache(block.form, Dtype::f32, 1, 2, 20);
    for (const Shape &leading : {Shape{0}, Shape{0, 3}, Shape{2, 0}}) {
        BlockCall call(block, Dtype::f32, leading);
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.run(nullptr, cache), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(cache.length(0, 0), 0);
        EXPECT_TRUE(call.surroundings_intact());
    }
}

// ---- With a cache ------------------------------------------------------------------------------------------------

TEST(BlockCached, GivesTheBitsOfTheWholeSequence) {
    for (const std::string &preset : block_presets()) {
        for (const std::int64_t window : {0, 5}) {
            BlockForm form = preset_block(preset);
            form.config.causal = 1;
            form.config.sliding_window = window;
            form.head_norms = preset == "qwen";
            const Block block(form);
            BlockCall whole(block, Dtype::f32, {23}), parts(block, Dtype::f32, {23});
            const Matrix expected = whole.expected();
            for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
                const Context context(isa);
                ASSERT_EQ(whole.run(context.get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(as_expected(whole.y, expected)) << form.describe();
                for (const std::vector<std::int64_t> &sizes :
                     {std::vector<std::int64_t>{1}, {5, 1, 10}, {22, 1}, {23}}) {
                    const BlockCache cache(form, Dtype::f32, 1, 1, 23);
                    parts.y.clear();
                    ASSERT_NO_FATAL_FAILURE(parts.run_in_parts(context.get(), cache, sizes));
                    ASSERT_TRUE(same_rows(whole.y, parts.y)) << halyard_isa_name(isa) << "; " << form.describe();
                    EXPECT_EQ(cache.length(0, 0), 23);
                }
            }
        }
    }
}

TEST(BlockCached, GivesTheBitsOfALongSequence) {
    BlockForm form = preset_block("llama");
    form.config.max_position_embeddings = 1100;
    const Block block(form);
    BlockCall whole(block, Dtype::f32, {long_sequence}), parts(block, Dtype::f32, {long_sequence});
    for (const halyard_isa isa : fused_isas()) {
        const Context context(isa, 2);
        ASSERT_EQ(whole.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (const std::vector<std::int64_t> &sizes : {std::vector<std::int64_t>{510, 1, 1, 1, 1}, {512}, {300, 7}}) {
            const BlockCache cache(form, Dtype::f32, 1, 1, 1100);
            ASSERT_NO_FATAL_FAILURE(parts.run_in_parts(context.get(), cache, sizes));
            ASSERT_TRUE(same_rows(whole.y, parts.y));
        }
    }
}

TEST(BlockCached, OfSixteenBits) {
    for (const Dtype stored : {Dtype::f16, Dtype::bf16}) {
        for (const Dtype type : {Dtype::f32, stored}) {
            BlockForm form = preset_block("qwen");
            form.head_norms = true;
            form.matrices = stored;
            const Block block(form);
            BlockCall at_once(block, type, {2, 19}), single(block, type, {2, 19});
            const Matrix expected = at_once.expected(stored);
            for (const halyard_isa isa : supported_isas()) {
                const Context context(isa);
                const BlockCache first(form, stored, 1, 2, 20), second(form, stored, 1, 2, 20);
                ASSERT_EQ(at_once.run(context.get(), first), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(as_expected(at_once.y, expected)) << name_of(stored);
                ASSERT_NO_FATAL_FAILURE(single.run_in_parts(context.get(), second, {1}));
                ASSERT_TRUE(same_rows(at_once.y, single.y)) << name_of(stored);
            }
        }
    }
}

TEST(BlockCached, SequencesAndLayersAreIndependent) {
    const Block block(preset_block("llama"));
    const Context context;
    const BlockCache cache(block.form, Dtype::f32, 3, 5, 40);
    // Sequences of layer 1 with 4, 0 and 7 tokens so far, then 6 more for all three at once, in an order of their own.
    const std::int64_t order[] = {4, 0, 2}, lengths[] = {4, 0, 7};
    BlockCall together(block, Dtype::f32, {3, 6}, 0, 0, 77);
    for (int i = 0; i < 3; i++) {
        const std::int64_t tokens = lengths[i] + 6;
        BlockCall alone(block, Dtype::f32, {tokens}, 0, 0, static_cast<std::uint64_t>(i + 1));
        ASSERT_NO_FATAL_FAILURE(alone.begin_sequence(context.get(), cache, 1, order[i], lengths[i], together, i));
    }
    ASSERT_EQ(together.run(context.get(), cache, 1, order), HALYARD_OK) << halyard_last_error();
    for (int i = 0; i < 3; i++) {
        BlockCall alone(block, Dtype::f32, {lengths[i] + 6}, 0, 0, static_cast<std::uint64_t>(i + 1));
        ASSERT_EQ(alone.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (std::int64_t t = 0; t < 6; t++) {
            EXPECT_EQ(together.y.row_values(6 * i + t), alone.y.row_values(lengths[i] + t)) << i << ", token " << t;
        }
        EXPECT_EQ(cache.length(1, order[i]), lengths[i] + 6);
    }
    for (const std::int64_t sequence : {0, 1, 2, 3, 4}) {
        EXPECT_EQ(cache.length(0, sequence), 0);
        EXPECT_EQ(cache.length(2, sequence), 0);
    }
    EXPECT_EQ(cache.length(1, 1), 0);
    EXPECT_EQ(cache.length(1, 3), 0);
}

// ---- Bits --------------------------------------------------------------------------------------------------------

/** Large enough for several threads. */
BlockForm large_form(Dtype type) {
    BlockForm form = preset_block("gemma");
    form.config.hidden_size = 260;
    form.config.intermediate_size = 600;
    form.config.num_attention_heads = 6;
    form.config.num_key_value_heads = 2;
    form.config.head_dim = 40;
    form.matrices = type;
    return form;
}

TEST(BlockBits, DoNotDependOnThreads) {
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        const Block block(large_form(type));
        for (const std::int64_t tokens : {1, 60}) {
            BlockCall serial(block, type, {2, tokens}), threaded(block, type, {2, tokens});
            const halyard_isa isa = supported_isas().back();
            ASSERT_EQ(serial.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
            for (const int threads : {2, 3, 4}) {
                threaded.y.clear();
                ASSERT_EQ(threaded.run(Context(isa, threads).get()), HALYARD_OK) << halyard_last_error();
                EXPECT_TRUE(same_rows(serial.y, threaded.y)) << threads << " threads";
            }
            ReverseThreads own;
            const Context context(isa, 3);
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &own), HALYARD_OK);
            threaded.y.clear();
            ASSERT_EQ(threaded.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_rows(serial.y, threaded.y)) << "own threads";
            EXPECT_GT(own.tasks, own.calls);
        }
    }
}

TEST(BlockBits, OfDecodingDoNotDependOnThreads) {
    const Block block(large_form(Dtype::f32));
    BlockCall serial(block, Dtype::f32, {70}), threaded(block, Dtype::f32, {70});
    const halyard_isa isa = supported_isas().back();
    ASSERT_EQ(serial.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
    for (const int threads : {1, 2, 3, 4}) {
        const BlockCache cache(block.form, Dtype::f32, 1, 1, 80);
        threaded.y.clear();
        ASSERT_NO_FATAL_FAILURE(threaded.run_in_parts(Context(isa, threads).get(), cache, {40, 1, 1}));
        EXPECT_TRUE(same_rows(serial.y, threaded.y)) << threads << " threads";
    }
}

TEST(BlockBits, DoNotDependOnTheBatch) {
    const Block block(large_form(Dtype::f32));
    BlockCall batch(block, Dtype::f32, {5, 7});
    ASSERT_EQ(batch.run(nullptr), HALYARD_OK) << halyard_last_error();
    for (std::int64_t i = 0; i < 5; i++) {
        BlockCall alone(block, Dtype::f32, {7});
        for (std::int64_t t = 0; t < 7; t++) {
            std::memcpy(alone.x.at(t, 0), batch.x.at(7 * i + t, 0), 260 * sizeof(float));
        }
        ASSERT_EQ(alone.run(nullptr), HALYARD_OK) << halyard_last_error();
        for (std::int64_t t = 0; t < 7; t++) {
            EXPECT_EQ(alone.y.row_values(t), batch.y.row_values(7 * i + t));
        }
    }
}

TEST(BlockBits, AreTheSameWithEveryFusedInstructionSet) {
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.size() < 2) {
        GTEST_SKIP() << "this machine runs fewer than two instruction sets with fused multiply-add";
    }
    int number = 0;
    for (const std::string &preset : block_presets()) {
        for (const Dtype matrices : all_dtypes) {
            BlockForm form = preset_block(preset);
            form.matrices = matrices;
            form.head_norms = number % 2 == 0;
            const Block block(form);
            BlockCall first(block, Dtype::f32, {2, 1 + number % 9}), second(block, Dtype::f32, {2, 1 + number % 9});
            number++;
            ASSERT_EQ(first.run(Context(isas.front()).get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(second.run(Context(isas.back()).get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_rows(first.y, second.y)) << form.describe();
        }
    }
}

TEST(BlockBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("block", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const std::string &preset : block_presets()) {
            for (const Dtype matrices : all_dtypes) {
                BlockForm form = preset_block(preset);
                form.matrices = matrices;
                form.head_norms = matrices == Dtype::f32;
                const Block block(form);
                BitsHash results;
                for (const std::int64_t tokens : {1, 7, 70}) {
                    BlockCall call(block, Dtype::f32, {2, tokens});
                    EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                    results.add(call.y.all_bits());
                }
                hashes[preset + "_" + name_of(matrices)] = results.text();
            }
        }
        return hashes;
    });
}

// Both sides of every product are bf16: as they are stored and in full, at once and by way of a cache of bf16, a prompt and
// then token by token. No sum is so small that avx512_bf16 would flush it.
TEST(BlockBits, OfBfloat16AreThoseOfEveryMachine) {
    expect_reference_hashes("block_bf16", [](halyard_isa isa) {
        Hashes hashes;
        for (const std::string &preset : block_presets()) {
            BlockForm form = preset_block(preset);
            form.matrices = Dtype::bf16;
            const Block block(form);
            for (const auto &[name, products] : all_products) {
                const Context context(isa);
                EXPECT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
                BlockCall call(block, Dtype::bf16, {2, 70});
                EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                BitsHash whole;
                whole.add(call.y.all_bits());
                hashes[preset + "_" + name] = whole.text();
                if (form.config.causal != 0) {
                    const BlockCache cache(form, Dtype::bf16, 1, 2, 70);
                    call.y.clear();
                    call.run_in_parts(context.get(), cache, {64, 1, 1, 1, 1, 1, 1});
                    BitsHash parts;
                    parts.add(call.y.all_bits());
                    hashes[preset + "_cached_" + name] = parts.text();
                }
            }
        }
        return hashes;
    });
}

TEST(BlockBits, DoNotDependOnWhatACallBeforeLeft) {
    const Block poison_block(large_form(Dtype::bf16));
    BlockCall poison(poison_block, Dtype::f32, {emulated ? std::int64_t{20} : 70});
    poison.x.fill([](std::int64_t, std::int64_t) { return NAN; });
    for (const std::string &preset : block_presets()) {
        const Block block(preset_block(preset));
        for (const halyard_isa isa : supported_isas()) {  // the other block rounds to bf16 between products
            const Context fresh(isa), used(isa);
            BlockCall expected(block, Dtype::f32, {9}), call(block, Dtype::f32, {9});
            ASSERT_EQ(poison.run(used.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(expected.run(fresh.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(call.run(used.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_rows(expected.y, call.y)) << preset;
        }
    }
}

// ---- Many threads ------------------------------------------------------------------------------------------------

TEST(BlockThreads, MakeAndUseBlocksAtOnce) {
    // Blocks with equal tables of angles and with others, made, used and destroyed at the same time.
    const Block shared(large_form(Dtype::f32));
    BlockCall reference(shared, Dtype::f32, {12});
    ASSERT_EQ(reference.run(Context(supported_isas().back(), 1).get()), HALYARD_OK) << halyard_last_error();
    std::atomic<int> wrong{0};
    run_at_once(6, [&](int thread) {
        for (int round = 0; round < 4; round++) {
            BlockForm form = large_form(Dtype::f32);
            form.config.max_position_embeddings = 700 + (thread + round) % 2;
            const Block own(form);
            const BlockCache cache(form, Dtype::f32, 1, 1, 12);
            BlockCall with_shared(shared, Dtype::f32, {12}), with_own(own, Dtype::f32, {12});
            if (with_shared.run(nullptr) != HALYARD_OK || with_own.run(nullptr, cache) != HALYARD_OK ||
                !same_rows(reference.y, with_shared.y) || !same_rows(reference.y, with_own.y)) {
                wrong++;
            }
        }
    });
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halyard::tests
