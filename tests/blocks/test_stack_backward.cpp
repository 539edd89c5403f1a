// Gradients of stacks: the forward call that saves has the bits of halyard_stack_forward and halyard_stack_hidden_states; gradients are
// slopes of the float64 reference, for every preset, tied and not; bits, updates, and what is refused.
#include "support/block_gradients.h"
#include "support/reference_hashes.h"
#include "support/stack.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

/** A stack with everything that its gradients are. */
class StackTraining {
public:
    explicit StackTraining(const StackForm &form, std::int64_t tokens = 5)
        : stack(form), sequences({some_ids(tokens, form.vocab, 3), some_ids(tokens, form.vocab, 4)}),
          ids(sequences, true, true), types(kinds_of(sequences, form.types), true, false),
          result(Dtype::f32, compact_form({2, tokens, form.headless ? width() : form.vocab})),
          dresult(Dtype::f32, compact_form(result.shape())), embed_tokens(rows(form.vocab)),
          embed_positions(rows(std::max<std::int64_t>(1, form.positions))),
          embed_types(rows(std::max<std::int64_t>(1, form.types))), lm_head(rows(form.vocab)), norm(vector()),
          norm_bias(vector()), embed_norm(vector()), embed_norm_bias(vector()) {
        dresult.fill([&](std::int64_t row, std::int64_t i) { return bell(17, row, i); });
        const auto given = [](bool has, Tensor &tensor) { return has ? &tensor.view : nullptr; };
        gradients.embed_tokens = &embed_tokens.view;
        gradients.embed_positions = given(form.positions != 0, embed_positions);
        gradients.embed_types = given(form.types != 0, embed_types);
        gradients.lm_head = given(!form.tied && !form.headless, lm_head);
        gradients.norm = given(form.norm != HALYARD_NORM_NONE, norm);
        gradients.norm_bias = given(form.norm == HALYARD_NORM_LAYER, norm_bias);
        gradients.embed_norm = given(form.embed_norm != HALYARD_NORM_NONE, embed_norm);
        gradients.embed_norm_bias = given(form.embed_norm == HALYARD_NORM_LAYER, embed_norm_bias);
        for (const auto &block : stack.blocks) {
            parameters.push_back(parameters_of(block->form, block->values));
            halyard_block_gradients of_block{};
            of_block.layout = block->form.layout;
            for (const Parameter &parameter : parameters.back()) {
                of_blocks.push_back(std::make_unique<Tensor>(Dtype::f32, compact_form(parameter.shape)));
                of_block.*parameter.field = &of_blocks.back()->view;
            }
            block_gradients.push_back(of_block);
        }
        gradients.blocks = block_gradients.data();
        std::int64_t bytes = 0;
        EXPECT_EQ(halyard_stack_saved_size(stack.get(), 2, tokens, &bytes), HALYARD_OK) << halyard_last_error();
        saved = std::make_unique<Tensor>(Dtype::f32, compact_form({bytes / 4}));
    }

    Stack stack;
    const std::vector<Ids> sequences;
    IdTensor ids, types;
    Tensor result, dresult, embed_tokens, embed_positions, embed_types, lm_head, norm, norm_bias, embed_norm,
        embed_norm_bias;
    std::vector<std::vector<Parameter>> parameters;  // of each block
    std::vector<std::unique_ptr<Tensor>> of_blocks;
    std::vector<halyard_block_gradients> block_gradients;
    halyard_stack_gradients gradients{};
    std::unique_ptr<Tensor> saved;

    std::int64_t width() const { return stack.form.block.config.hidden_size; }
    std::int64_t bytes() const { return saved->count() * 4; }
    const DLTensor *kinds() const { return stack.form.types != 0 ? &types.view : nullptr; }
    halyard_status forward(const halyard_context *context) {
        return halyard_stack_forward_saving(context, stack.get(), &ids.view, kinds(), saved->view.data, bytes(),
                                            &result.view);
    }
    halyard_status backward(const halyard_context *context) {
        return halyard_stack_backward(context, stack.get(), &ids.view, kinds(), saved->view.data, bytes(),
                                      &dresult.view, &gradients);
    }
    void run(const halyard_context *context) {
        ASSERT_EQ(forward(context), HALYARD_OK) << halyard_last_error() << "; " << stack.form.describe();
        ASSERT_EQ(backward(context), HALYARD_OK) << halyard_last_error() << "; " << stack.form.describe();
    }

    std::vector<const Tensor *> outputs() const {
        std::vector<const Tensor *> all = {&embed_tokens, &embed_positions, &embed_types, &lm_head,
                                           &norm,         &norm_bias,       &embed_norm,  &embed_norm_bias};
        for (const auto &tensor : of_blocks) {
            all.push_back(tensor.get());
        }
        return all;
    }
    std::vector<std::uint32_t> bits() const {
        std::vector<std::uint32_t> all;
        for (const Tensor *const tensor : outputs()) {
            const std::vector<std::uint32_t> of_one = tensor->all_bits();
            all.insert(all.end(), of_one.begin(), of_one.end());
        }
        return all;
    }

    /** The sum that dresult weighs, by the reference. */
    double weighed() const {
        double sum = 0;
        for (std::size_t i = 0; i < sequences.size(); i++) {
            const std::vector<Ids> of_types = kinds_of(sequences, stack.form.types);
            const operations::StackResult all = operations::stack(
                stack.values, sequences[i], {}, stack.form.types != 0 ? of_types[i] : std::vector<std::int64_t>());
            const Matrix &y = stack.form.headless ? all.hidden.back() : all.logits;
            for (std::size_t t = 0; t < y.size(); t++) {
                for (std::size_t k = 0; k < y[t].size(); k++) {
                    sum += y[t][k].value *
                           dresult.get(static_cast<std::int64_t>(i * y.size() + t), static_cast<std::int64_t>(k));
                }
            }
        }
        return sum;
    }

    /** Some elements of each gradient beside slopes of the reference. */
    void expect_all_slopes() {
        double largest = 0;
        for (const Tensor *const tensor : outputs()) {
            largest = std::max(largest, largest_of(*tensor));
        }
        const auto f = [&] { return weighed(); };
        const auto expect_table = [&](const char *name, const DLTensor *given, const Tensor &gradient,
                                      std::vector<Row> &values, bool head) {
            if (given != nullptr) {
                expect_slopes(
                    name, gradient, largest,
                    [&](std::int64_t row, std::int64_t i) {
                        return values[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
                    },
                    [&](std::int64_t row, std::int64_t i, double to) {
                        values[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)] = to;
                        if (head) {
                            stack.values.lm_head.values[static_cast<std::size_t>(i * stack.form.vocab + row)] = to;
                        }
                    },
                    f);
            }
        };
        StackValues &values = stack.values;
        expect_table("embed_tokens", gradients.embed_tokens, embed_tokens, values.embed_tokens, stack.form.tied);
        expect_table("embed_positions", gradients.embed_positions, embed_positions, values.embed_positions, false);
        expect_table("embed_types", gradients.embed_types, embed_types, values.embed_types, false);
        std::vector<Row> head(static_cast<std::size_t>(stack.form.vocab), Row(static_cast<std::size_t>(width())));
        for (std::size_t i = 0; i < head.size() * head[0].size(); i++) {
            head[i % head.size()][i / head.size()] = values.lm_head.values[i];
        }
        expect_table("lm_head", gradients.lm_head, lm_head, head, true);
        const auto expect_vector = [&](const char *name, const DLTensor *given, const Tensor &gradient, Row &row) {
            if (given != nullptr) {
                expect_slopes(
                    name, gradient, largest,
                    [&](std::int64_t, std::int64_t i) { return row[static_cast<std::size_t>(i)]; },
                    [&](std::int64_t, std::int64_t i, double to) { row[static_cast<std::size_t>(i)] = to; }, f);
            }
        };
        expect_vector("norm", gradients.norm, norm, values.norm.weight);
        expect_vector("norm_bias", gradients.norm_bias, norm_bias, values.norm.bias);
        expect_vector("embed_norm", gradients.embed_norm, embed_norm, values.embed_norm.weight);
        expect_vector("embed_norm_bias", gradients.embed_norm_bias, embed_norm_bias, values.embed_norm.bias);
        // The blocks' parameters have tests of their own: here the first and the last are looked at.
        std::size_t next = 0;
        for (std::size_t layer = 0; layer < parameters.size(); layer++) {
            Block &block = *stack.blocks[layer];
            for (std::size_t i = 0; i < parameters[layer].size(); i++, next++) {
                if (i == 0 || i + 1 == parameters[layer].size()) {
                    const Parameter &of = parameters[layer][i];
                    expect_slopes(
                        of.name, *of_blocks[next], largest,
                        [&](std::int64_t row, std::int64_t k) {
                            return value_of(of, block.form, block.values, row, k);
                        },
                        [&](std::int64_t row, std::int64_t k, double to) {
                            value_of(of, block.form, block.values, row, k) = to;
                        },
                        f);
                }
            }
        }
    }

private:
    static std::vector<Ids> kinds_of(const std::vector<Ids> &sequences, std::int64_t types) {
        std::vector<Ids> kinds = sequences;
        for (Ids &sequence : kinds) {
            for (std::int64_t &id : sequence) {
                id = id % std::max<std::int64_t>(1, types);
            }
        }
        return kinds;
    }
    Tensor rows(std::int64_t count) const { return Tensor(Dtype::f32, compact_form({count, width()})); }
    Tensor vector() const { return Tensor(Dtype::f32, compact_form({width()})); }
};

/** Every preset, tied and not, and without an output projection. */
std::vector<StackForm> forms() {
    std::vector<StackForm> all;
    for (const std::string &preset : block_presets()) {
        StackForm form = preset_stack(preset);
        form.block.config.hidden_act =
            form.block.config.hidden_act == HALYARD_RELU ? HALYARD_GELU : form.block.config.hidden_act;
        form.block.config.sliding_window = form.block.config.sliding_window != 0 ? 3 : 0;
        all.push_back(form);
        form.tied = !form.tied;
        all.push_back(form);
    }
    all.back().headless = true;
    StackForm headless = all.front();
    headless.headless = true;
    headless.block.config.causal = 0;
    all.push_back(headless);
    return all;
}

TEST(StackForwardSaving, HasTheBitsOfTheForwardCall) {
    for (const StackForm &form : forms()) {
        StackTraining training(form);
        ASSERT_EQ(training.forward(nullptr), HALYARD_OK) << halyard_last_error() << form.describe();
        Tensor plain(Dtype::f32, compact_form(training.result.shape()));
        halyard_stack_options options = all_logits();
        options.token_types = training.kinds();
        const auto call = form.headless ? halyard_stack_hidden_states : halyard_stack_forward;
        ASSERT_EQ(call(nullptr, training.stack.get(), &training.ids.view, nullptr, nullptr, &options, &plain.view),
                  HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(same_rows(plain, training.result)) << form.describe();
        EXPECT_TRUE(training.result.surroundings_intact() && training.saved->surroundings_intact());
    }
}

TEST(StackBackward, GivesTheSlopesOfTheReference) {
    int number = 0;
    for (const StackForm &form : forms()) {
        if (reduced && number++ % 4 != 0) {
            continue;
        }
        StackTraining training(form);
        ASSERT_NO_FATAL_FAILURE(training.run(nullptr));
        training.expect_all_slopes();
        for (const Tensor *const tensor : training.outputs()) {
            EXPECT_TRUE(tensor->surroundings_intact());
        }
        ASSERT_FALSE(HasFailure()) << form.describe();
    }
}

TEST(StackBackward, AccumulatesAndDoesNotDependOnThreads) {
    for (const char *const preset : {"gpt2", "gemma"}) {
        StackForm form = preset_stack(preset);
        std::vector<std::uint32_t> first;
        for (const int threads : {1, 2, 5}) {
            StackTraining training(form, 33);
            ASSERT_NO_FATAL_FAILURE(training.run(Context(supported_isas().back(), threads).get()));
            first = first.empty() ? training.bits() : first;
            EXPECT_TRUE(same_bits(Dtype::f32, first, training.bits())) << threads << form.describe();
        }
        // To zeros is added what is written.
        StackTraining training(form, 33);
        training.gradients.accumulate = 1;
        for (halyard_block_gradients &block : training.block_gradients) {
            block.accumulate = 1;
        }
        StackTraining written(form, 33);
        for (std::size_t i = 0; i < training.outputs().size(); i++) {
            for (StackTraining *const each : {&training, &written}) {
                const_cast<Tensor *>(each->outputs()[i])->fill([](std::int64_t, std::int64_t) { return 0; });
            }
        }
        ASSERT_NO_FATAL_FAILURE(training.run(nullptr));
        ASSERT_NO_FATAL_FAILURE(written.run(nullptr));
        for (std::size_t i = 0; i < training.outputs().size(); i++) {
            const Tensor &added = *training.outputs()[i], &alone = *written.outputs()[i];
            for (std::int64_t k = 0; k < added.count(); k++) {
                ASSERT_EQ(added.get(k / added.width(), k % added.width()),
                          alone.get(k / added.width(), k % added.width()))
                    << i;
            }
        }
    }
}

TEST(StackBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("stack_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const std::string &preset : block_presets()) {
            StackTraining training(preset_stack(preset), 30);
            EXPECT_EQ(training.forward(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(training.backward(context.get()), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(training.bits());
            hashes[preset] = results.text();
        }
        return hashes;
    });
}

TEST(StackBackward, OfNoTokensIsZero) {
    StackTraining training(preset_stack("gpt2"), 0);
    ASSERT_NO_FATAL_FAILURE(training.run(nullptr));
    EXPECT_EQ(largest_of(training.embed_tokens), 0);
    EXPECT_EQ(largest_of(training.norm), 0);
    EXPECT_EQ(largest_of(*training.of_blocks.front()), 0);
}

template<typename Change>
void expect_refused(const StackForm &form, halyard_status status, const char *argument, const Change &change) {
    StackTraining training(form);
    ASSERT_EQ(training.forward(nullptr), HALYARD_OK);
    change(training);
    const std::vector<std::uint32_t> before = training.bits();
    EXPECT_TRUE(refused(training.backward(nullptr), status, "halyard_stack_backward", argument)) << argument;
    EXPECT_TRUE(same_bits(Dtype::f32, before, training.bits())) << argument;
}

TEST(StackBackward, RefusesWhatDoesNotFit) {
    const auto invalid = HALYARD_INVALID_ARGUMENT;
    const StackForm gpt2 = preset_stack("gpt2"), llama = preset_stack("llama");
    Tensor wrong(Dtype::f32, compact_form({7, 33}));
    using T = StackTraining;
    expect_refused(gpt2, invalid, "gradients.embed_tokens", [&](T &t) { t.gradients.embed_tokens = &wrong.view; });
    expect_refused(gpt2, invalid, "gradients.lm_head", [](T &t) { t.gradients.lm_head = &t.lm_head.view; });
    expect_refused(llama, invalid, "gradients.embed_positions",
                   [](T &t) { t.gradients.embed_positions = &t.embed_positions.view; });
    expect_refused(llama, invalid, "gradients.norm_bias", [](T &t) { t.gradients.norm_bias = &t.norm_bias.view; });
    expect_refused(llama, invalid, "gradients.embed_norm", [](T &t) { t.gradients.embed_norm = &t.embed_norm.view; });
    expect_refused(llama, invalid, "gradients.lm_head|gradients.embed_tokens",
                   [](T &t) { t.gradients.lm_head = t.gradients.embed_tokens; });
    expect_refused(llama, invalid, "blocks[1]: gradients.o_proj",
                   [&](T &t) { t.block_gradients[1].o_proj = &wrong.view; });
    expect_refused(llama, invalid, "blocks[1]: gradients.up_proj",
                   [](T &t) { t.block_gradients[1].up_proj = t.block_gradients[0].up_proj; });
    expect_refused(gpt2, invalid, "saved|gradients.norm", [](T &t) { t.norm.view.data = t.saved->view.data; });
    StackTraining training(gpt2);
    const char *const function = "halyard_stack_backward";
    const auto status = [&](const halyard_stack *stack, const DLTensor *ids, const void *saved, std::int64_t bytes,
                            const DLTensor *dresult, const halyard_stack_gradients *gradients) {
        return halyard_stack_backward(nullptr, stack, ids, nullptr, saved, bytes, dresult, gradients);
    };
    const halyard_stack *const stack = training.stack.get();
    const DLTensor *const ids = &training.ids.view, *const dresult = &training.dresult.view;
    const halyard_stack_gradients *const g = &training.gradients;
    char *const saved = static_cast<char *>(training.saved->view.data);
    const std::int64_t bytes = training.bytes();
    EXPECT_TRUE(refused(status(nullptr, ids, saved, bytes, dresult, g), invalid, function, "stack"));
    EXPECT_TRUE(refused(status(stack, nullptr, saved, bytes, dresult, g), invalid, function, "input_ids"));
    EXPECT_TRUE(refused(status(stack, ids, nullptr, bytes, dresult, g), invalid, function, "saved"));
    EXPECT_TRUE(refused(status(stack, ids, saved + 32, bytes, dresult, g), invalid, function, "saved"));
    EXPECT_TRUE(refused(status(stack, ids, saved, bytes - 4, dresult, g), invalid, function, "bytes"));
    EXPECT_TRUE(refused(status(stack, ids, saved, bytes, &wrong.view, g), invalid, function, "dresult"));
    EXPECT_TRUE(refused(status(stack, ids, saved, bytes, dresult, nullptr), invalid, function, "gradients"));
    const IdTensor beyond({{1, 2, 3, 4, 29}, {1, 2, 3, 4, 5}}, true, true);
    EXPECT_TRUE(refused(status(stack, &beyond.view, saved, bytes, dresult, g), invalid, function, "input_ids"));
    EXPECT_TRUE(refused(
        halyard_stack_forward_saving(nullptr, stack, &beyond.view, nullptr, saved, bytes, &training.result.view),
        invalid, "halyard_stack_forward_saving", "input_ids"));
    EXPECT_TRUE(refused(halyard_stack_forward_saving(nullptr, stack, ids, nullptr, saved, bytes, &wrong.view), invalid,
                        "halyard_stack_forward_saving", "result"));
    StackForm narrow = llama;
    narrow.block.matrices = Dtype::f16;
    std::int64_t size = 0;
    EXPECT_TRUE(refused(halyard_stack_saved_size(Stack(narrow).get(), 1, 1, &size), HALYARD_UNSUPPORTED,
                        "halyard_stack_saved_size", "blocks[0].qkv"));
    EXPECT_TRUE(refused(halyard_stack_saved_size(nullptr, 1, 1, &size), invalid, "halyard_stack_saved_size", "stack"));
}

}  // namespace
}  // namespace halyard::tests
