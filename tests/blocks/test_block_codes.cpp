// Blocks and stacks of matrices that are quantized or packed already: against float64 on the numbers of the codes; the same bits as
// with packed weights, whatever the threads; with products in 8 bits the bits of their layers in turn; and every way in which the
// matrices can be wrong.
#include "support/coded_block.h"
#include "support/stack.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace halyard::tests {
namespace {

constexpr std::int64_t hidden = CodedBlock::hidden, vocabulary = 40;

struct DestroyBlock {
    void operator()(halyard_block *block) const { halyard_block_destroy(block); }
};
using BlockHandle = std::unique_ptr<halyard_block, DestroyBlock>;
struct DestroyStack {
    void operator()(halyard_stack *stack) const { halyard_stack_destroy(stack); }
};
using StackHandle = std::unique_ptr<halyard_stack, DestroyStack>;

constexpr BlockFormats all_formats[] = {
    q4_k_m,
    of_one_format("Q8_0", HALYARD_CODES_Q8_0),
    of_one_format("Q4_0", HALYARD_CODES_Q4_0),
    of_one_format("Q5_1", HALYARD_CODES_Q5_1),
    of_one_format("Q5_K", HALYARD_CODES_Q5_K),
    of_one_format("int8", HALYARD_CODES_INT8),
    {"q, k and v of three formats", HALYARD_CODES_Q6_K, HALYARD_CODES_INT8, HALYARD_CODES_Q4_1, HALYARD_CODES_Q5_0,
     HALYARD_CODES_Q4_K, HALYARD_CODES_Q8_0},
};

void set_products(const Context &context, halyard_products products) {
    ASSERT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
}

/** y of a few tokens. */
std::unique_ptr<Tensor> forward(const halyard_block *block, const halyard_context *context = nullptr,
                                Dtype type = Dtype::f32) {
    Tensor x(type, compact_form({2, 5, hidden}));
    auto y = std::make_unique<Tensor>(type, compact_form({2, 5, hidden}));
    fill_rows(x, 5);
    EXPECT_EQ(halyard_block_forward(context, block, &x.view, nullptr, 0, nullptr, &y->view), HALYARD_OK)
        << halyard_last_error();
    return y;
}

/** Packs the same matrices. */
class PackedBlock {
public:
    explicit PackedBlock(const CodedBlock &block) : weights(block.weights) {
        weights.codes = {};
        weights.packed = {add(block.q.pack()),   add(block.k.pack()),
                          add(block.v.pack()),   nullptr,
                          add(block.o.pack()),   add(block.gate.pack(&block.up)),
                          add(block.down.pack())};
    }
    halyard_block_weights weights;

private:
    const halyard_weights *add(PackedWeights packed) {
        all_.push_back(std::move(packed));
        return all_.back().get();
    }
    std::vector<PackedWeights> all_;
};

BlockHandle make(const CodedBlock &block, const halyard_block_weights &weights) {
    halyard_block *made = nullptr;
    EXPECT_EQ(halyard_block_create(nullptr, &block.tensors.form.config, &weights, &made), HALYARD_OK)
        << halyard_last_error();
    return BlockHandle(made);
}

TEST(BlockOfCodes, IsThatOfItsNumbers) {
    for (const BlockFormats &formats : all_formats) {
        const CodedBlock coded(formats);
        const BlockHandle block(coded.make());
        ASSERT_NE(block, nullptr) << formats.name;
        Tensor x(Dtype::f32, compact_form({7, hidden})), y(Dtype::f32, compact_form({7, hidden}));
        fill_rows(x, 5);
        const Matrix expected = halyard::tests::block(coded.values, rows_of(x));
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa);
            ASSERT_EQ(halyard_block_forward(context.get(), block.get(), &x.view, nullptr, 0, nullptr, &y.view),
                      HALYARD_OK)
                << halyard_last_error();
            EXPECT_TRUE(as_expected(y, expected)) << formats.name << ", " << halyard_isa_name(isa);
        }
    }
}

TEST(BlockOfCodes, HasTheBitsOfPackedWeightsOnAnyThreads) {
    for (const BlockFormats &formats : all_formats) {
        const CodedBlock coded(formats);
        const PackedBlock packed(coded);
        const BlockHandle of_codes(coded.make()), of_packed = make(coded, packed.weights);
        ASSERT_TRUE(of_codes && of_packed) << formats.name;
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            for (const halyard_isa isa : product_isas(type, Dtype::bf16)) {
                const Context one(isa, 1), three(isa, 3);
                for (const halyard_products products : {HALYARD_PRODUCTS_STORAGE, HALYARD_PRODUCTS_INT8}) {
                    set_products(one, products);
                    set_products(three, products);
                    const auto expected = forward(of_packed.get(), one.get(), type);
                    EXPECT_TRUE(same_rows(*expected, *forward(of_codes.get(), one.get(), type))) << formats.name;
                    EXPECT_TRUE(same_rows(*expected, *forward(of_codes.get(), three.get(), type))) << formats.name;
                }
            }
        }
    }
}

TEST(BlockOfCodes, CountsWhatItPacked) {
    const CodedBlock coded(q4_k_m);
    const PackedBlock packed(coded);
    const BlockHandle of_codes(coded.make()), of_packed = make(coded, packed.weights);
    std::int64_t bytes = 0;
    const halyard_block_packed &p = packed.weights.packed;
    for (const halyard_weights *const weights : {p.q_proj, p.k_proj, p.v_proj, p.o_proj, p.up_proj, p.down_proj}) {
        halyard_weights_info info{};
        ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
        bytes += info.bytes;
    }
    EXPECT_EQ(halyard_block_bytes(of_codes.get()), halyard_block_bytes(of_packed.get()) + bytes);
}

TEST(BlockOfCodes, MayMixWaysAndJoinQkv) {
    const BlockFormats q8 = of_one_format("Q8_0", HALYARD_CODES_Q8_0);
    const CodedBlock coded(q8);
    const PackedBlock packed(coded);
    const std::unique_ptr<Tensor> q = coded.q.numbers(), v = coded.v.numbers(), down = coded.down.numbers();
    const Matrix expected = [&] {
        Tensor x(Dtype::f32, compact_form({2, 5, hidden}));
        fill_rows(x, 5);
        const std::vector<Row> rows = rows_of(x);
        Matrix all;
        for (int i = 0; i < 2; i++) {
            const auto one = halyard::tests::block(coded.values, {rows.begin() + 5 * i, rows.begin() + 5 * i + 5});
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }();
    halyard_block_weights w = coded.weights;
    w.codes.q_proj = w.codes.v_proj = w.codes.o_proj = w.codes.gate_proj = w.codes.up_proj = w.codes.down_proj =
        nullptr;
    w.q_proj = &q->view;
    w.v_proj = &v->view;
    w.down_proj = &down->view;
    w.packed.o_proj = packed.weights.packed.o_proj;
    w.packed.up_proj = packed.weights.packed.up_proj;
    EXPECT_TRUE(as_expected(*forward(make(coded, w).get()), expected));

    // One matrix, as codes and packed; biases are then one too.
    const CodedTensor qkv(HALYARD_CODES_Q8_0, hidden + 2 * CodedBlock::key, hidden, 21);
    const PackedWeights packed_qkv = qkv.pack();
    w = coded.weights;
    w.codes.q_proj = w.codes.k_proj = w.codes.v_proj = nullptr;
    w.q_proj_bias = w.k_proj_bias = w.v_proj_bias = nullptr;
    halyard_block_weights of_packed = w;
    w.codes.qkv_proj = &qkv.codes;
    of_packed.packed.qkv_proj = packed_qkv.get();
    EXPECT_TRUE(same_rows(*forward(make(coded, w).get()), *forward(make(coded, of_packed).get())));
}

/** The bits of the whole sequence, of some tokens at a time, and of each sequence by itself. */
TEST(BlockOfCodes, TakesACache) {
    const CodedBlock coded(q4_k_m);
    const BlockHandle block(coded.make());
    for (const halyard_products products : {HALYARD_PRODUCTS_STORAGE, HALYARD_PRODUCTS_INT8}) {
        const Context context(supported_isas().back(), 2);
        set_products(context, products);
        const auto whole = forward(block.get(), context.get());
        const BlockCache cache(coded.tensors.form, Dtype::f32, 2, 2, 20);
        Tensor x(Dtype::f32, compact_form({2, 5, hidden})), y(Dtype::f32, compact_form({2, 5, hidden}));
        fill_rows(x, 5);
        const auto run = [&](DLTensor &from, std::int64_t layer, const std::int64_t *sequences, DLTensor &to) {
            ASSERT_EQ(halyard_block_forward(context.get(), block.get(), &from, cache.get(), layer, sequences, &to),
                      HALYARD_OK)
                << halyard_last_error();
        };
        for (const std::int64_t first : {0, 2, 4}) {
            const std::int64_t count = first == 4 ? 1 : 2;
            TokenRows from(x.view, x.strides(), first, count), to(y.view, y.strides(), first, count);
            run(from.view, 0, nullptr, to.view);
        }
        EXPECT_TRUE(same_rows(*whole, y)) << "products " << products;
        Tensor alone(Dtype::f32, compact_form({2, 5, hidden}));
        for (std::int64_t sequence = 0; sequence < 2; sequence++) {
            DLTensor from = x.view, to = alone.view;
            std::int64_t shape[] = {1, 5, hidden};
            from.shape = to.shape = shape;
            from.data = x.at(5 * sequence, 0);
            to.data = alone.at(5 * sequence, 0);
            run(from, 1, &sequence, to);
        }
        EXPECT_TRUE(same_rows(*whole, alone)) << "products " << products;
    }
}

struct DestroyRope {
    void operator()(halyard_rope *rope) const { halyard_rope_destroy(rope); }
};

/** y of two sequences of five tokens, by a call for each layer of the block. */
class LayersInTurn {
public:
    LayersInTurn(const CodedBlock &coded, const halyard_context *context)
        : coded_(coded), packed_(coded), context_(context) {
        const halyard_block_config &c = coded.tensors.form.config;
        halyard_rope_options options = c.rope;
        options.head_dim = c.head_dim;
        options.max_positions = c.max_position_embeddings;
        halyard_rope *rope = nullptr;
        EXPECT_EQ(halyard_rope_create(&options, &rope), HALYARD_OK) << halyard_last_error();
        rope_.reset(rope);
    }

    void run(const Tensor &x, Tensor &y) {
        const halyard_block_packed &p = packed_.weights.packed;
        const halyard_block_weights &w = coded_.weights;
        const halyard_block_config &c = coded_.tensors.form.config;
        Tensor normalized(Dtype::f32, compact_form({2, 5, hidden})), q(Dtype::f32, compact_form({2, 5, hidden})),
            k(Dtype::f32, compact_form({2, 5, CodedBlock::key})), v(Dtype::f32, compact_form({2, 5, CodedBlock::key})),
            attended(Dtype::f32, compact_form({2, 5, hidden})), middle(Dtype::f32, compact_form({2, 5, hidden}));
        ok(halyard_rms_norm(context_, &x.view, w.attention_norm, c.rms_norm_eps, c.norm_flags, &normalized.view));
        linear(normalized, p.q_proj, w.q_proj_bias, nullptr, q);
        linear(normalized, p.k_proj, w.k_proj_bias, nullptr, k);
        linear(normalized, p.v_proj, w.v_proj_bias, nullptr, v);
        attend(q, k, v, attended);
        linear(attended, p.o_proj, w.o_proj_bias, &x, middle);
        halyard_ffn_options network{};
        network.norm = HALYARD_NORM_RMS;
        network.norm_weight = w.ffn_norm;
        network.eps = c.rms_norm_eps;
        network.norm_flags = c.norm_flags;
        network.activation = c.hidden_act;
        network.bias = w.gate_proj_bias;
        network.bias_up = w.up_proj_bias;
        network.bias_down = w.down_proj_bias;
        network.residual = 1;
        ok(halyard_ffn(context_, &middle.view, p.up_proj, p.down_proj, &network, &y.view));
    }

private:
    static void ok(halyard_status status) { ASSERT_EQ(status, HALYARD_OK) << halyard_last_error(); }

    void linear(const Tensor &x, const halyard_weights *weights, const DLTensor *bias, const Tensor *residual,
                Tensor &y) const {
        halyard_linear_options options{};
        options.bias = bias;
        options.residual = residual != nullptr ? &residual->view : nullptr;
        ok(halyard_linear(context_, &x.view, weights, &options, &y.view));
    }

    void attend(const Tensor &q, const Tensor &k, const Tensor &v, Tensor &y) const {
        const halyard_block_config &c = coded_.tensors.form.config;
        const auto in_heads = [&](const Tensor &rows, std::int64_t(&shape)[4]) {
            DLTensor view = rows.view;
            std::copy_n(std::array<std::int64_t, 4>{2, 5, rows.width() / c.head_dim, c.head_dim}.data(), 4, shape);
            view.ndim = 4;
            view.shape = shape;
            return view;
        };
        std::int64_t of_q[4], of_k[4], of_v[4], of_y[4];
        const DLTensor q4 = in_heads(q, of_q), k4 = in_heads(k, of_k), v4 = in_heads(v, of_v);
        DLTensor y4 = in_heads(y, of_y);
        halyard_attention_options options{};
        options.causal = 1;
        options.q_norm_weight = coded_.weights.q_norm;
        options.k_norm_weight = coded_.weights.k_norm;
        options.qk_norm_eps = c.rms_norm_eps;
        options.qk_norm_flags = c.norm_flags;
        options.rope = rope_.get();
        ok(halyard_attention(context_, &q4, &k4, &v4, &options, &y4));
    }

    const CodedBlock &coded_;
    const PackedBlock packed_;
    const halyard_context *context_;
    std::unique_ptr<halyard_rope, DestroyRope> rope_;
};

TEST(BlockOfCodes, InEightBitsIsItsLayersInTurn) {
    for (const BlockFormats &formats : all_formats) {
        const CodedBlock coded(formats);
        const BlockHandle block(coded.make());
        for (const halyard_isa isa : row_isas()) {
            const Context context(isa, 2);
            const auto in_f32 = forward(block.get(), context.get());
            set_products(context, HALYARD_PRODUCTS_INT8);
            Tensor x(Dtype::f32, compact_form({2, 5, hidden})), y(Dtype::f32, compact_form({2, 5, hidden}));
            fill_rows(x, 5);
            LayersInTurn(coded, context.get()).run(x, y);
            EXPECT_TRUE(same_rows(y, *forward(block.get(), context.get())))
                << formats.name << ", " << halyard_isa_name(isa);
            EXPECT_FALSE(same_rows(*in_f32, y)) << formats.name << ", " << halyard_isa_name(isa);
        }
    }
}

// ---- Stacks ------------------------------------------------------------------------------------------------------

struct StackSources {
    const CodedBlock coded{q4_k_m};
    const BlockHandle block{coded.make()};
    const CodedTensor table{HALYARD_CODES_Q4_K, vocabulary, hidden, 31},
        head{HALYARD_CODES_Q6_K, vocabulary, hidden, 32};
    const PackedWeights packed_head = head.pack();
    const std::unique_ptr<Tensor> numbers = table.numbers();
    halyard_stack_config config = [] {
        halyard_stack_config c{};
        c.vocab_size = vocabulary;
        c.hidden_size = hidden;
        c.embedding_multiplier = 3;
        c.norm = HALYARD_NORM_RMS;
        c.rms_norm_eps = 1e-5f;
        return c;
    }();

    StackHandle make(const halyard_stack_weights &weights) const {
        const halyard_block *const blocks[] = {block.get()};
        halyard_stack *stack = nullptr;
        EXPECT_EQ(halyard_stack_create(nullptr, &config, &weights, blocks, 1, &stack), HALYARD_OK)
            << halyard_last_error();
        return StackHandle(stack);
    }
    halyard_stack_weights weights() const {
        halyard_stack_weights w{};
        w.embed_tokens_codes = &table.codes;
        w.lm_head_codes = &head.codes;
        return w;
    }
};

std::unique_ptr<Tensor> logits_of(const halyard_stack *stack, int threads = 1) {
    const IdTensor ids(some_ids(9, vocabulary, 3));
    auto logits = std::make_unique<Tensor>(Dtype::f32, compact_form({9, vocabulary}));
    const halyard_stack_options options = all_logits();
    const Context context(supported_isas().back(), threads);
    EXPECT_EQ(halyard_stack_forward(context.get(), stack, &ids.view, nullptr, nullptr, &options, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    return logits;
}

TEST(StackOfCodes, HasTheBitsOfItsTableAndOfPackedWeights) {
    const StackSources sources;
    halyard_stack_weights w = sources.weights();
    const auto expected = logits_of(sources.make(w).get());
    EXPECT_TRUE(same_rows(*expected, *logits_of(sources.make(w).get(), 3)));
    w.lm_head_codes = nullptr;
    w.lm_head_packed = sources.packed_head.get();
    EXPECT_TRUE(same_rows(*expected, *logits_of(sources.make(w).get())));
    w.embed_tokens_codes = nullptr;
    w.embed_tokens = &sources.numbers->view;
    EXPECT_TRUE(same_rows(*expected, *logits_of(sources.make(w).get())));
    // Tied: the table's codes are packed.
    w = sources.weights();
    w.lm_head_codes = &sources.table.codes;
    const auto tied = logits_of(sources.make(w).get());
    w.lm_head_codes = nullptr;
    EXPECT_TRUE(same_rows(*tied, *logits_of(sources.make(w).get())));
    EXPECT_FALSE(same_rows(*expected, *tied));
}

/** Hidden states by layer, as the calls of these layers give them, and the head's logits. */
TEST(StackOfCodes, InEightBitsIsItsLayersInTurn) {
    const StackSources sources;
    const StackHandle stack = sources.make(sources.weights());
    const IdTensor ids(some_ids(9, vocabulary, 3));
    for (const halyard_isa isa : row_isas()) {
        const Context context(isa, 2);
        set_products(context, HALYARD_PRODUCTS_INT8);
        Tensor logits(Dtype::f32, compact_form({9, vocabulary})), expected(Dtype::f32, compact_form({9, vocabulary}));
        Observed observed;
        halyard_stack_options options = all_logits();
        options.observer = &Observed::see;
        options.user = &observed;
        ASSERT_EQ(
            halyard_stack_forward(context.get(), stack.get(), &ids.view, nullptr, nullptr, &options, &logits.view),
            HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(observed.parts.size(), 3u);
        Tensor embedded(Dtype::f32, compact_form({9, hidden})), after_block(Dtype::f32, compact_form({9, hidden})),
            normalized(Dtype::f32, compact_form({9, hidden}));
        embedded.fill([&](std::int64_t row, std::int64_t i) {
            return observed.parts[0].rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
        });
        ASSERT_EQ(halyard_block_forward(context.get(), sources.block.get(), &embedded.view, nullptr, 0, nullptr,
                                        &after_block.view),
                  HALYARD_OK);
        ASSERT_EQ(halyard_rms_norm(context.get(), &after_block.view, nullptr, sources.config.rms_norm_eps, 0,
                                   &normalized.view),
                  HALYARD_OK);
        EXPECT_EQ(rows_of(after_block), observed.parts[1].rows) << halyard_isa_name(isa);
        EXPECT_EQ(rows_of(normalized), observed.parts[2].rows) << halyard_isa_name(isa);
        ASSERT_EQ(halyard_linear(context.get(), &normalized.view, sources.packed_head.get(), nullptr, &expected.view),
                  HALYARD_OK);
        EXPECT_TRUE(same_rows(expected, logits)) << halyard_isa_name(isa);
    }
}

TEST(StackOfCodes, InEightBitsGivesABatchTheBitsOfItsSequences) {
    const StackSources sources;
    const StackHandle stack = sources.make(sources.weights());
    const std::vector<Ids> sequences = {some_ids(9, vocabulary, 3), some_ids(9, vocabulary, 4)};
    const IdTensor batch(sequences, true, true);
    const halyard_stack_options options = all_logits();
    for (const halyard_isa isa : row_isas()) {
        const Context context(isa, 2);
        set_products(context, HALYARD_PRODUCTS_INT8);
        const auto forward = [&](const IdTensor &ids, Tensor &logits) {
            ASSERT_EQ(
                halyard_stack_forward(context.get(), stack.get(), &ids.view, nullptr, nullptr, &options, &logits.view),
                HALYARD_OK)
                << halyard_last_error();
        };
        Tensor together(Dtype::f32, compact_form({2, 9, vocabulary})), alone(Dtype::f32, compact_form({9, vocabulary}));
        forward(batch, together);
        std::vector<std::uint32_t> in_turn;
        for (const Ids &ids : sequences) {
            forward(IdTensor(ids), alone);
            const std::vector<std::uint32_t> bits = alone.all_bits();
            in_turn.insert(in_turn.end(), bits.begin(), bits.end());
        }
        EXPECT_EQ(together.all_bits(), in_turn) << halyard_isa_name(isa);
    }
}

TEST(StackOfCodes, EveryGgufFormatOfATableIsThatOfItsNumbers) {
    const StackSources sources;
    for (int format = HALYARD_CODES_Q8_0; format <= HALYARD_CODES_Q6_K; format++) {
        const CodedTensor table(static_cast<halyard_code_format>(format), vocabulary, hidden, 41);
        const std::unique_ptr<Tensor> numbers = table.numbers();
        halyard_stack_weights w = sources.weights();
        w.embed_tokens_codes = &table.codes;
        const auto got = logits_of(sources.make(w).get());
        w.embed_tokens_codes = nullptr;
        w.embed_tokens = &numbers->view;
        EXPECT_TRUE(same_rows(*logits_of(sources.make(w).get()), *got)) << format;
    }
}

TEST(StackOfCodes, RefusesWhatItMust) {
    const StackSources sources;
    const CodedTensor narrow(HALYARD_CODES_Q8_0, vocabulary - 1, hidden, 1),
        int8(HALYARD_CODES_INT8, vocabulary, hidden, 1);
    const PackedWeights packed_narrow = narrow.pack();
    const struct {
        const char *message;
        halyard_status status;
        std::function<void(halyard_stack_weights &, halyard_stack_config &)> spoil;
    } mistakes[] = {
        {"embed_tokens is given neither", HALYARD_INVALID_ARGUMENT,
         [](auto &w, auto &) { w.embed_tokens_codes = nullptr; }},
        {"embed_tokens is given, and so is embed_tokens_codes", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) { w.embed_tokens = &sources.numbers->view; }},
        {"embed_tokens_codes has 39 out_features", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) { w.embed_tokens_codes = &narrow.codes; }},
        {"embed_tokens_codes.format is int8", HALYARD_UNSUPPORTED,
         [&](auto &w, auto &) { w.embed_tokens_codes = &int8.codes; }},
        {"lm_head is given, and so is lm_head_codes", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) { w.lm_head = &sources.numbers->view; }},
        {"lm_head_codes is given, and so is lm_head_packed", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) { w.lm_head_packed = sources.packed_head.get(); }},
        {"lm_head_codes has 39 out_features and 256 in_features, but must have 40 and 256", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) { w.lm_head_codes = &narrow.codes; }},
        {"lm_head_packed has 39 out_features", HALYARD_INVALID_ARGUMENT,
         [&](auto &w, auto &) {
             w.lm_head_codes = nullptr;
             w.lm_head_packed = packed_narrow.get();
         }},
        {"lm_head_codes is given, but no_lm_head", HALYARD_INVALID_ARGUMENT, [](auto &, auto &c) { c.no_lm_head = 1; }},
    };
    for (const auto &mistake : mistakes) {
        halyard_stack_weights weights = sources.weights();
        halyard_stack_config config = sources.config;
        mistake.spoil(weights, config);
        const halyard_block *const blocks[] = {sources.block.get()};
        halyard_stack *stack = nullptr;
        EXPECT_TRUE(refused(halyard_stack_create(nullptr, &config, &weights, blocks, 1, &stack), mistake.status,
                            "halyard_stack_create", mistake.message));
        EXPECT_EQ(stack, nullptr);
    }
}

// ---- What is refused of blocks -----------------------------------------------------------------------------------

/** What a mistake is made of. */
struct Spoiled {
    halyard_block_weights &w;
    halyard_block_config &c;
    const CodedBlock &coded;
    const PackedBlock &packed;
    halyard_codes &other;  // to be changed, and used in place of another
};

struct BlockMistake {
    const char *message;
    halyard_status status;
    void (*make)(Spoiled &);
};

constexpr halyard_status invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;

const BlockMistake block_mistakes[] = {
    // In no way, and in two.
    {"q_proj is given neither as a tensor nor as codes nor packed, and neither is qkv_proj", invalid,
     [](Spoiled &s) { s.w.codes.q_proj = nullptr; }},
    {"v_proj is given neither", invalid, [](Spoiled &s) { s.w.codes.v_proj = nullptr; }},
    {"o_proj is given neither as a tensor nor as codes nor packed", invalid,
     [](Spoiled &s) { s.w.codes.o_proj = nullptr; }},
    {"gate_proj is given neither as a tensor nor as codes, but gated_mlp is set", invalid,
     [](Spoiled &s) { s.w.codes.gate_proj = nullptr; }},
    {"up_proj is given neither", invalid, [](Spoiled &s) { s.w.codes.up_proj = nullptr; }},
    {"down_proj is given neither", invalid, [](Spoiled &s) { s.w.codes.down_proj = nullptr; }},
    {"k_proj is given, and so is codes.k_proj", invalid,
     [](Spoiled &s) { s.w.k_proj = s.coded.tensors.weights.k_proj; }},
    {"codes.o_proj is given, and so is packed.o_proj", invalid,
     [](Spoiled &s) { s.w.packed.o_proj = s.packed.weights.packed.o_proj; }},
    {"down_proj is given, and so is packed.down_proj", invalid,
     [](Spoiled &s) {
         s.w.codes.down_proj = nullptr;
         s.w.down_proj = s.coded.tensors.weights.down_proj;
         s.w.packed.down_proj = s.packed.weights.packed.down_proj;
     }},
    {"codes.q_proj is given, but so is qkv_proj", invalid, [](Spoiled &s) { s.w.codes.qkv_proj = s.w.codes.q_proj; }},
    {"packed.v_proj is given, but so is qkv_proj", invalid,
     [](Spoiled &s) {
         s.w.packed.v_proj = s.packed.weights.packed.v_proj;
         s.w.packed.qkv_proj = s.packed.weights.packed.q_proj;
         s.w.codes.q_proj = s.w.codes.k_proj = s.w.codes.v_proj = nullptr;
         s.w.q_proj_bias = s.w.k_proj_bias = s.w.v_proj_bias = nullptr;
     }},
    {"codes.gate_proj is given, but so is packed.up_proj", invalid,
     [](Spoiled &s) {
         s.w.codes.up_proj = nullptr;
         s.w.packed.up_proj = s.packed.weights.packed.up_proj;
     }},
    {"codes.gate_proj is given, but gated_mlp is 0", invalid, [](Spoiled &s) { s.c.gated_mlp = 0; }},
    {"codes.gate_proj is given with up_proj, but both must be tensors or both codes", invalid,
     [](Spoiled &s) {
         s.w.codes.up_proj = nullptr;
         s.w.up_proj = s.coded.tensors.weights.up_proj;
     }},
    // Codes may have another shape.
    {"codes.k_proj has 127 out_features and 256 in_features, but must have 128 and 256", invalid,
     [](Spoiled &s) {
         s.other = s.coded.k.codes;
         s.other.out_features--;
         s.w.codes.k_proj = &s.other;
     }},
    {"codes.down_proj has 256 out_features and 512 in_features", invalid,
     [](Spoiled &s) {
         s.other = s.coded.down.codes;
         s.other.in_features = 512;
         s.w.codes.down_proj = &s.other;
     }},
    {"packed.q_proj has 128 out_features and 256 in_features, but must have 256 and 256", invalid,
     [](Spoiled &s) {
         s.w.codes.q_proj = nullptr;
         s.w.packed.q_proj = s.packed.weights.packed.k_proj;
     }},
    {"packed.up_proj holds one matrix, but must hold gate and up: gated_mlp is set", invalid,
     [](Spoiled &s) {
         s.w.codes.gate_proj = s.w.codes.up_proj = nullptr;
         s.w.packed.up_proj = s.packed.weights.packed.o_proj;
     }},
    {"packed.o_proj holds gate and up, but must hold one matrix", invalid,
     [](Spoiled &s) {
         s.w.codes.o_proj = nullptr;
         s.w.packed.o_proj = s.packed.weights.packed.up_proj;
     }},
    // What packing refuses.
    {"codes.up_proj.format is 0, but must be that of codes.gate_proj, 5", invalid,
     [](Spoiled &s) {
         s.other = s.coded.up.codes;
         s.other.format = HALYARD_CODES_Q8_0;
         s.w.codes.up_proj = &s.other;
     }},
    {"codes.o_proj.format is 77", invalid,
     [](Spoiled &s) {
         const int unknown = 77;
         s.other = s.coded.o.codes;
         std::memcpy(&s.other.format, &unknown, sizeof unknown);
         s.w.codes.o_proj = &s.other;
     }},
    {"codes.v_proj.bits is 4, but must be 0", invalid,
     [](Spoiled &s) {
         s.other = s.coded.v.codes;
         s.other.bits = 4;
         s.w.codes.v_proj = &s.other;
     }},
    {"codes.q_proj.matrix is null", invalid,
     [](Spoiled &s) {
         s.other = s.coded.q.codes;
         s.other.matrix = nullptr;
         s.w.codes.q_proj = &s.other;
     }},
    {"codes.k_proj.matrix has dtype", unsupported,
     [](Spoiled &s) {
         s.other = s.coded.k.codes;
         s.other.matrix = s.coded.tensors.weights.attention_norm;
         s.w.codes.k_proj = &s.other;
     }},
    {"codes.down_proj.scales is there", invalid,
     [](Spoiled &s) {
         s.other = s.coded.down.codes;
         s.other.scales = s.coded.tensors.weights.attention_norm;
         s.w.codes.down_proj = &s.other;
     }},
};

TEST(BlockOfCodes, RefusesWhatItMust) {
    const CodedBlock coded(q4_k_m);
    const PackedBlock packed(coded);
    for (const BlockMistake &mistake : block_mistakes) {
        halyard_block_weights weights = coded.weights;
        halyard_block_config config = coded.tensors.form.config;
        halyard_codes other{};
        Spoiled spoiled = {weights, config, coded, packed, other};
        mistake.make(spoiled);
        auto *const untouched = reinterpret_cast<halyard_block *>(&spoiled);
        halyard_block *block = untouched;
        EXPECT_TRUE(refused(halyard_block_create(nullptr, &config, &weights, &block), mistake.status,
                            "halyard_block_create", mistake.message));
        EXPECT_EQ(block, untouched) << mistake.message;
    }
}

TEST(BlockOfCodes, RefusesAResultInPackedWeights) {
    const CodedBlock coded(q4_k_m);
    halyard_block_weights weights = coded.weights;
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_weights_codes_size(&coded.o.codes, nullptr, &bytes), HALYARD_OK);
    const AlignedMemory memory(bytes);
    halyard_weights *packed = nullptr;
    ASSERT_EQ(halyard_weights_pack_codes(nullptr, &coded.o.codes, nullptr, memory.data(), bytes, &packed), HALYARD_OK);
    const PackedWeights owner(packed);
    weights.codes.o_proj = nullptr;
    weights.packed.o_proj = packed;
    const BlockHandle block = make(coded, weights);
    Tensor x(Dtype::f32, compact_form({2, hidden}));
    DLTensor y = x.view;
    y.data = memory.data() + 8192;
    EXPECT_TRUE(refused(halyard_block_forward(nullptr, block.get(), &x.view, nullptr, 0, nullptr, &y), invalid,
                        "halyard_block_forward", "a matrix that came packed"));
}

TEST(BlockOfCodes, RefusesScalesThatAreInfinite) {
    const CodedBlock coded(of_one_format("Q8_0", HALYARD_CODES_Q8_0));
    halyard_block *block = nullptr;
    const auto refuses = [&](const CodedTensor &matrix, const char *message) {
        auto *const scale = static_cast<std::uint8_t *>(matrix.codes.matrix->data) + 1;
        const std::uint8_t before = std::exchange(*scale, std::uint8_t{0x7c});
        EXPECT_TRUE(refused(halyard_block_create(nullptr, &coded.tensors.form.config, &coded.weights, &block), invalid,
                            "halyard_block_create", message));
        *scale = before;
    };
    refuses(coded.v, "codes.q_proj, codes.k_proj or codes.v_proj holds scales");
    refuses(coded.o, "codes.o_proj.matrix holds scales");
    refuses(coded.up, "codes.up_proj.matrix holds scales");
}

}  // namespace
}  // namespace halyard::tests
