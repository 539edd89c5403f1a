// Gradients of blocks: the forward call that saves has the bits of halyard_block_forward; every gradient is the slope of the float64
// reference, for the presets, the placements of norms and the options; the bits of other threads, instruction sets and cuts of a batch;
// what is refused.
#include "support/block_gradients.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"

#include <cmath>
#include <limits>

namespace halyard::tests {
namespace {

/** A block, its tensors, and all gradients. */
class Training {
public:
    explicit Training(const BlockForm &form, const Shape &leading = {6}, std::uint64_t seed = 1)
        : block(form), values(block.values), parameters(parameters_of(form, values)),
          call(block, Dtype::f32, leading, 3, 1, seed), dy(Dtype::f32, like(call.y)), dx(Dtype::f32, like(call.y)) {
        fill_rows(dy, seed + 9);
        std::int64_t bytes = 0;
        EXPECT_EQ(halyard_block_saved_size(block.get(), call.batch(), call.tokens(), &bytes), HALYARD_OK)
            << halyard_last_error();
        saved = std::make_unique<Tensor>(Dtype::f32, compact_form({bytes / 4}));
        gradients.layout = form.layout;
        for (const Parameter &parameter : parameters) {
            tensors.push_back(std::make_unique<Tensor>(Dtype::f32, compact_form(parameter.shape)));
            gradients.*parameter.field = &tensors.back()->view;
        }
    }

    const Block block;
    BlockValues values;  // the reference's, to be changed
    const std::vector<Parameter> parameters;
    BlockCall call;
    Tensor dy, dx;
    std::unique_ptr<Tensor> saved;
    std::vector<std::unique_ptr<Tensor>> tensors;
    halyard_block_gradients gradients{};

    halyard_status forward(const halyard_context *context) {
        return halyard_block_forward_saving(context, block.get(), &call.x.view, saved->view.data, bytes(),
                                            &call.y.view);
    }
    halyard_status backward(const halyard_context *context) {
        return halyard_block_backward(context, block.get(), &call.x.view, saved->view.data, bytes(), &dy.view,
                                      &gradients, &dx.view);
    }
    void run(const halyard_context *context) {
        ASSERT_EQ(forward(context), HALYARD_OK) << halyard_last_error() << "; " << block.form.describe();
        ASSERT_EQ(backward(context), HALYARD_OK) << halyard_last_error() << "; " << block.form.describe();
    }

    std::int64_t bytes() const { return saved->count() * 4; }
    std::vector<std::uint32_t> bits() const {
        std::vector<std::uint32_t> all = dx.all_bits();
        for (const auto &tensor : tensors) {
            const std::vector<std::uint32_t> of_one = tensor->all_bits();
            all.insert(all.end(), of_one.begin(), of_one.end());
        }
        return all;
    }

    /** The sum that dy weighs, by the reference. */
    double weighed(const std::vector<Row> &x) const {
        double sum = 0;
        const auto tokens = static_cast<std::size_t>(call.tokens());
        for (std::size_t first = 0; first < x.size(); first += tokens) {
            const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
            const Matrix y = halyard::tests::block(values, {begin, begin + static_cast<std::ptrdiff_t>(tokens)});
            for (std::size_t token = 0; token < tokens; token++) {
                for (std::size_t i = 0; i < y[token].size(); i++) {
                    sum += y[token][i].value *
                           dy.get(static_cast<std::int64_t>(first + token), static_cast<std::int64_t>(i));
                }
            }
        }
        return sum;
    }

    /** Every gradient beside slopes of the reference, some elements of each. */
    void expect_slopes() {
        std::vector<Row> x = rows_of(call.x);
        const auto f = [&] { return weighed(x); };
        double largest = largest_of(dx);
        for (const auto &tensor : tensors) {
            largest = std::max(largest, largest_of(*tensor));
        }
        const auto expect = [&](const char *name, const Tensor &gradient, const auto &value) {
            halyard::tests::expect_slopes(
                name, gradient, largest, [&](std::int64_t row, std::int64_t i) { return value(row, i); },
                [&](std::int64_t row, std::int64_t i, double to) { value(row, i) = to; }, f);
        };
        expect("dx", dx, [&](std::int64_t row, std::int64_t i) -> double & {
            return x[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
        });
        for (std::size_t i = 0; i < parameters.size(); i++) {
            expect(parameters[i].name, *tensors[i], [&](std::int64_t row, std::int64_t column) -> double & {
                return value_of(parameters[i], block.form, values, row, column);
            });
        }
    }

private:
    static Form like(const Tensor &tensor) { return {tensor.shape(), tensor.strides()}; }
};

BlockForm trainable(BlockForm form) {
    form.matrices = form.vectors = Dtype::f32;
    form.config.sliding_window = form.config.sliding_window > 100 ? 7 : form.config.sliding_window;
    return form;
}

/** The presets, and mixed options with every placement of every norm. */
std::vector<BlockForm> forms() {
    std::vector<BlockForm> all;
    for (const std::string &preset : block_presets()) {
        all.push_back(trainable(preset_block(preset)));
    }
    int number = 0;
    for (const halyard_norm norm : {HALYARD_NORM_RMS, HALYARD_NORM_LAYER, HALYARD_NORM_NONE}) {
        for (const halyard_norm_placement placement : norm_placements) {
            for (const bool gated : {false, true}) {
                const halyard_activation activations[] = {HALYARD_GELU, HALYARD_SILU, HALYARD_SWISH, HALYARD_GELU_TANH,
                                                          HALYARD_IDENTITY};
                all.push_back(trainable(mixed_block(number, norm, placement, activations[number % 5], gated)));
                number++;
            }
        }
    }
    return all;
}

TEST(BlockForwardSaving, HasTheBitsOfTheForwardCall) {
    for (const BlockForm &form : forms()) {
        for (const halyard_isa isa : supported_isas()) {
            const Context context(isa);
            Training training(form, {2, 9});
            ASSERT_EQ(training.forward(context.get()), HALYARD_OK) << halyard_last_error();
            BlockCall plain(training.block, Dtype::f32, {2, 9}, 3, 1, 1);
            ASSERT_EQ(plain.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(same_rows(plain.y, training.call.y)) << halyard_isa_name(isa) << "; " << form.describe();
            ASSERT_TRUE(training.call.surroundings_intact() && training.saved->surroundings_intact());
        }
    }
}

TEST(BlockBackward, GivesTheSlopesOfTheReference) {
    int number = 0;
    for (const BlockForm &form : forms()) {
        // A slope of ReLU may jump within the step.
        if (form.config.hidden_act == HALYARD_RELU || (reduced && number++ % (emulated ? 9 : 5) != 0)) {
            continue;
        }
        Training training(form, {2, 5});
        ASSERT_NO_FATAL_FAILURE(training.run(nullptr));
        training.expect_slopes();
        for (const auto &tensor : training.tensors) {
            EXPECT_TRUE(tensor->surroundings_intact()) << form.describe();
        }
        EXPECT_TRUE(training.dx.surroundings_intact()) << form.describe();
        ASSERT_FALSE(HasFailure()) << form.describe();
    }
}

TEST(BlockBackward, HasTheSameBitsWithAnyThreadsAndFusedInstructionSet) {
    for (const BlockForm &form : {trainable(preset_block("qwen")), trainable(preset_block("bert"))}) {
        std::vector<std::uint32_t> fused;
        for (const halyard_isa isa : supported_isas()) {
            std::vector<std::uint32_t> first;
            for (const int threads : {1, 2, 5}) {
                Training training(form, {3, 70});
                ASSERT_NO_FATAL_FAILURE(training.run(Context(isa, threads).get()));
                first = first.empty() ? training.bits() : first;
                EXPECT_TRUE(same_bits(Dtype::f32, first, training.bits())) << threads << form.describe();
            }
            if (isa != HALYARD_ISA_SSE41) {  // which rounds products
                fused = fused.empty() ? first : fused;
                EXPECT_TRUE(same_bits(Dtype::f32, fused, first)) << halyard_isa_name(isa) << form.describe();
            }
        }
    }
}

TEST(BlockBackward, OfPartsThatAccumulateHasTheBitsOfTheWhole) {
    BlockForm form = trainable(preset_block("gpt2"));
    form.config.hidden_size = 12;
    form.config.head_dim = 4;
    form.config.intermediate_size = 20;
    Training whole(form, {4, 256}), parts(form, {4, 256});
    ASSERT_NO_FATAL_FAILURE(whole.run(nullptr));
    for (const std::int64_t first : {0, 2}) {
        Shape shape = {2, 256, 12};
        DLTensor x = parts.call.x.view, y = parts.call.y.view, dy = parts.dy.view, dx = parts.dx.view;
        const auto cut = [&](DLTensor &view, const Tensor &tensor) {
            view.data = tensor.at(first * 256, 0);
            view.shape = shape.data();
        };
        cut(x, parts.call.x);
        cut(y, parts.call.y);
        cut(dy, parts.dy);
        cut(dx, parts.dx);
        parts.gradients.accumulate = first > 0;
        ASSERT_EQ(
            halyard_block_forward_saving(nullptr, parts.block.get(), &x, parts.saved->view.data, parts.bytes(), &y),
            HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_block_backward(nullptr, parts.block.get(), &x, parts.saved->view.data, parts.bytes(), &dy,
                                         &parts.gradients, &dx),
                  HALYARD_OK)
            << halyard_last_error();
    }
    EXPECT_TRUE(same_bits(Dtype::f32, whole.bits(), parts.bits()));
}

// q, k and v as one have the bits of the three; each gradient is what it is without the others; dx may be dy.
TEST(BlockBackward, GivesEachGradientByItselfAndJoined) {
    BlockForm form = trainable(preset_block("gpt2"));
    for (const halyard_weight_layout layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        form.layout = layout;
        Training all(form);
        ASSERT_NO_FATAL_FAILURE(all.run(nullptr));
        for (std::size_t i = 0; i < all.parameters.size(); i++) {
            Training one(form);
            one.gradients = {};
            one.gradients.layout = layout;
            one.gradients.*all.parameters[i].field = &one.tensors[i]->view;
            ASSERT_NO_FATAL_FAILURE(one.run(nullptr));
            EXPECT_TRUE(same_rows(*all.tensors[i], *one.tensors[i])) << all.parameters[i].name;
        }
        Training joined(form);
        const std::int64_t out = 3 * 3 * 10, in = 33;
        Tensor matrix(Dtype::f32, compact_form(layout == HALYARD_WEIGHT_OUT_IN ? Shape{out, in} : Shape{in, out})),
            bias(Dtype::f32, compact_form({out}));
        joined.gradients.q_proj = joined.gradients.k_proj = joined.gradients.v_proj = nullptr;
        joined.gradients.q_proj_bias = joined.gradients.k_proj_bias = joined.gradients.v_proj_bias = nullptr;
        joined.gradients.qkv_proj = &matrix.view;
        joined.gradients.qkv_proj_bias = &bias.view;
        ASSERT_NO_FATAL_FAILURE(joined.run(nullptr));
        for (std::int64_t i = 0; i < out; i++) {
            const std::size_t part = static_cast<std::size_t>(i / 30);
            for (std::int64_t k = 0; k < in; k++) {
                const bool rows = layout == HALYARD_WEIGHT_OUT_IN;
                ASSERT_EQ(rows ? matrix.bits(i, k) : matrix.bits(k, i),
                          rows ? all.tensors[part]->bits(i % 30, k) : all.tensors[part]->bits(k, i % 30));
            }
            ASSERT_EQ(bias.bits(0, i), all.tensors[6 + part]->bits(0, i % 30));
        }
    }
    Training apart(form), in_place(form);
    ASSERT_NO_FATAL_FAILURE(apart.run(nullptr));
    ASSERT_EQ(in_place.forward(nullptr), HALYARD_OK);
    ASSERT_EQ(halyard_block_backward(nullptr, in_place.block.get(), &in_place.call.x.view, in_place.saved->view.data,
                                     in_place.bytes(), &in_place.dy.view, &in_place.gradients, &in_place.dy.view),
              HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(same_rows(apart.dx, in_place.dy));
}

TEST(BlockBackward, OfNoTokensIsZero) {
    Training training(trainable(preset_block("gpt2")), {0, 4});
    ASSERT_NO_FATAL_FAILURE(training.run(nullptr));
    for (std::size_t i = 0; i < training.tensors.size(); i++) {
        for (std::int64_t column = 0; column < training.tensors[i]->width(); column++) {
            EXPECT_EQ(training.tensors[i]->get(0, column), 0) << training.parameters[i].name;
        }
    }
}

TEST(BlockBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("block_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const std::string &preset : block_presets()) {
            Training training(trainable(preset_block(preset)), {2, 40});
            EXPECT_EQ(training.forward(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(training.backward(context.get()), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(training.bits());
            hashes[preset] = results.text();
        }
        return hashes;
    });
}

// ---- Refusals ----

template<typename Change>
void expect_refused(const BlockForm &form, halyard_status status, const char *argument, const Change &change) {
    Training training(form);
    ASSERT_EQ(training.forward(nullptr), HALYARD_OK);
    change(training);
    const std::vector<std::uint32_t> before = training.bits();
    EXPECT_TRUE(refused(training.backward(nullptr), status, "halyard_block_backward", argument)) << argument;
    EXPECT_TRUE(same_bits(Dtype::f32, before, training.bits())) << argument;
}

TEST(BlockBackward, RefusesWhatDoesNotFit) {
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    const BlockForm gpt2 = trainable(preset_block("gpt2")), llama = trainable(preset_block("llama"));
    Tensor wrong(Dtype::f32, compact_form({7, 33})), half(Dtype::f16, compact_form({6, 33}));
    expect_refused(gpt2, invalid, "gradients.q_proj", [&](Training &t) { t.gradients.q_proj = &wrong.view; });
    expect_refused(gpt2, invalid, "gradients.down_proj", [&](Training &t) { t.gradients.down_proj = &wrong.view; });
    expect_refused(gpt2, invalid, "gradients.ffn_norm", [&](Training &t) { t.gradients.ffn_norm = &wrong.view; });
    expect_refused(gpt2, invalid, "gradients.gate_proj",
                   [](Training &t) { t.gradients.gate_proj = t.gradients.up_proj; });
    expect_refused(gpt2, invalid, "gradients.qkv_proj", [](Training &t) { t.gradients.qkv_proj = t.gradients.q_proj; });
    expect_refused(gpt2, invalid, "gradients.q_norm", [](Training &t) { t.gradients.q_norm = t.gradients.ffn_norm; });
    expect_refused(llama, invalid, "gradients.q_proj_bias",
                   [](Training &t) { t.gradients.q_proj_bias = t.gradients.ffn_norm; });
    expect_refused(llama, invalid, "gradients.ffn_norm_bias",
                   [](Training &t) { t.gradients.ffn_norm_bias = t.gradients.ffn_norm; });
    expect_refused(gpt2, invalid, "gradients.o_proj_bias|gradients.ffn_norm",
                   [](Training &t) { t.gradients.o_proj_bias = t.gradients.ffn_norm; });
    expect_refused(gpt2, invalid, "gradients.up_proj|saved",
                   [](Training &t) { t.gradients.up_proj->data = t.saved->view.data; });
    expect_refused(gpt2, invalid, "gradients.layout",
                   [](Training &t) { t.gradients.layout = static_cast<halyard_weight_layout>(2); });
    expect_refused(gpt2, invalid, "dx", [](Training &t) { t.dx.view.data = t.call.x.view.data; });
    expect_refused(gpt2, invalid, "dx|saved", [](Training &t) { t.dx.view.data = t.saved->view.data; });
    expect_refused(gpt2, unsupported, "dy", [&](Training &t) { t.dy.view = half.view; });
    expect_refused(gpt2, invalid, "dy", [&](Training &t) { t.dy.view = wrong.view; });

    Training training(gpt2);
    const char *const function = "halyard_block_backward";
    const auto status = [&](const halyard_block *block, const DLTensor *x, const void *saved, std::int64_t bytes,
                            const halyard_block_gradients *gradients, DLTensor *dx) {
        return halyard_block_backward(nullptr, block, x, saved, bytes, &training.dy.view, gradients, dx);
    };
    const DLTensor *const x = &training.call.x.view;
    void *const saved = training.saved->view.data;
    const std::int64_t bytes = training.bytes();
    DLTensor *const dx = &training.dx.view;
    const halyard_block *const block = training.block.get();
    EXPECT_TRUE(refused(status(nullptr, x, saved, bytes, &training.gradients, dx), invalid, function, "block"));
    EXPECT_TRUE(refused(status(block, nullptr, saved, bytes, &training.gradients, dx), invalid, function, "x"));
    EXPECT_TRUE(refused(status(block, x, nullptr, bytes, &training.gradients, dx), invalid, function, "saved"));
    EXPECT_TRUE(refused(status(block, x, saved, bytes - 1, &training.gradients, dx), invalid, function, "bytes"));
    EXPECT_TRUE(refused(status(block, x, static_cast<char *>(saved) + 4, bytes, &training.gradients, dx), invalid,
                        function, "saved"));
    EXPECT_TRUE(refused(status(block, x, saved, bytes, nullptr, dx), invalid, function, "gradients"));
    EXPECT_TRUE(refused(status(block, x, saved, bytes, &training.gradients, nullptr), invalid, function, "dx"));
    EXPECT_TRUE(refused(halyard_block_forward_saving(nullptr, block, x, saved, bytes, &training.call.x.view), invalid,
                        "halyard_block_forward_saving", "y"));
    EXPECT_TRUE(refused(halyard_block_forward_saving(nullptr, block, &half.view, saved, bytes, &training.call.y.view),
                        unsupported, "halyard_block_forward_saving", "x"));
    EXPECT_TRUE(refused(halyard_block_forward_saving(nullptr, block, x, saved, bytes - 1, &training.call.y.view),
                        invalid, "halyard_block_forward_saving", "bytes"));
}

TEST(BlockSavedSize, GrowsWithTheTokensAndRefusesWhatHasNoGradient) {
    const Block block(trainable(preset_block("gpt2")));
    std::int64_t bytes = 0, twice = 0;
    const char *const function = "halyard_block_saved_size";
    ASSERT_EQ(halyard_block_saved_size(block.get(), 1, 128, &bytes), HALYARD_OK);
    ASSERT_EQ(halyard_block_saved_size(block.get(), 2, 128, &twice), HALYARD_OK);
    // q, k, v and the result of attention, a log for each head, what the network gets, its sums.
    EXPECT_EQ(bytes, 4 * 128 * (4 * 30 + 3 + 33 + 51));
    EXPECT_EQ(twice, 2 * bytes);
    ASSERT_EQ(halyard_block_saved_size(block.get(), 0, 128, &bytes), HALYARD_OK);
    EXPECT_EQ(bytes, 0);
    const auto size_of_form = [&](const BlockForm &form) {
        return halyard_block_saved_size(Block(form).get(), 1, 1, &bytes);
    };
    BlockForm narrow = trainable(preset_block("gpt2")), unit = trainable(preset_block("llama"));
    narrow.matrices = Dtype::bf16;
    unit.config.hidden_act = HALYARD_RELU2;
    EXPECT_TRUE(refused(size_of_form(narrow), HALYARD_UNSUPPORTED, function, "block.qkv"));
    EXPECT_TRUE(refused(size_of_form(unit), HALYARD_UNSUPPORTED, function, "hidden_act"));
    EXPECT_TRUE(refused(halyard_block_saved_size(nullptr, 1, 1, &bytes), HALYARD_INVALID_ARGUMENT, function, "block"));
    EXPECT_TRUE(
        refused(halyard_block_saved_size(block.get(), -1, 1, &bytes), HALYARD_INVALID_ARGUMENT, function, "batch"));
    EXPECT_TRUE(
        refused(halyard_block_saved_size(block.get(), 1, -1, &bytes), HALYARD_INVALID_ARGUMENT, function, "tokens"));
    EXPECT_TRUE(refused(halyard_block_saved_size(block.get(), INT32_MAX, INT32_MAX, &bytes), HALYARD_INVALID_ARGUMENT,
                        function, "batch"));
    EXPECT_TRUE(
        refused(halyard_block_saved_size(block.get(), 1, 1, nullptr), HALYARD_INVALID_ARGUMENT, function, "bytes"));
}

}  // namespace
}  // namespace halyard::tests
