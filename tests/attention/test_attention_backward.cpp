// halyard_attention_backward: its float64 reference against slopes of the forward reference, every gradient against it within derived
// bounds, the bits of other threads and instruction sets, values that are not finite, and what is refused.
#include <cmath>
#include <limits>

#include "operations/reference_gradients.h"
#include "support/attention.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

#if defined(HALYARD_TESTS_REDUCED)
const std::vector<std::int64_t> lengths = {1, 17, 130};
const std::vector<std::int64_t> head_dims = {8, 33};
const std::vector<std::int64_t> windows = {7, 200};
const std::vector<float> softcaps = {1e-30f, 2.0f, 1e30f};
#else
const std::vector<std::int64_t> lengths = {1, 17, 65, 130, 200};
const std::vector<std::int64_t> head_dims = {8, 33, 64, 80, 128};
const std::vector<std::int64_t> windows = {1, 7, 16, 200, 1000};
const std::vector<float> softcaps = {1e-30f, 0.5f, 2.0f, 50.0f, 1e30f};
#endif

Form like(const Tensor &tensor) {
    return {tensor.shape(), tensor.strides()};
}

/** The rows of a head, by token. */
std::vector<Row> rows_of_head(const Tensor &tensor, std::int64_t tokens, std::int64_t heads, std::int64_t batch,
                              std::int64_t head) {
    std::vector<Row> rows;
    for (std::int64_t token = 0; token < tokens; token++) {
        rows.push_back(tensor.row_values((batch * tokens + token) * heads + head));
    }
    return rows;
}

/** A forward call, and the gradients of what it wrote. */
class Backward {
public:
    explicit Backward(const AttentionForm &form)
        : forward(form), dy(Dtype::f32, like(forward.y)), dq(Dtype::f32, like(forward.q)),
          dk(Dtype::f32, like(forward.k)), dv(Dtype::f32, like(forward.v)) {
        dy.fill([&](std::int64_t row, std::int64_t i) { return bell(form.seed * 8 + 5, row, i); });
        forward.options.log_sum_exp = &forward.log_sum_exp.view;
    }

    AttentionCase forward;
    Tensor dy, dq, dk, dv;
    const DLTensor *q = &forward.q.view, *k = &forward.k.view, *v = &forward.v.view, *y = &forward.y.view,
                   *log_sum_exp = &forward.log_sum_exp.view, *of_y = &dy.view;
    DLTensor *to_q = &dq.view, *to_k = &dk.view, *to_v = &dv.view;

    halyard_status run_forward() { return forward.run(nullptr); }
    halyard_status run(const halyard_context *context) {
        return halyard_attention_backward(context, q, k, v, y, log_sum_exp, of_y, &forward.options, to_q, to_k, to_v);
    }

    std::vector<Tensor *> gradients() { return {&dq, &dk, &dv}; }
    std::vector<std::uint32_t> bits() {
        std::vector<std::uint32_t> all;
        for (const Tensor *const tensor : gradients()) {
            const std::vector<std::uint32_t> of_one = tensor->all_bits();
            all.insert(all.end(), of_one.begin(), of_one.end());
        }
        return all;
    }

    /** dq, dk and dv from what the other tensors hold. */
    std::vector<Matrix> expected() const {
        const AttentionForm &form = forward.form;
        AttentionRule rule;
        rule.causal = form.causal;
        rule.window = form.window;
        rule.scale = static_cast<double>(form.scale);
        rule.softcap = static_cast<double>(form.softcap);
        std::vector<Matrix> all = {Matrix(static_cast<std::size_t>(dq.rows())),
                                   Matrix(static_cast<std::size_t>(dk.rows())),
                                   Matrix(static_cast<std::size_t>(dv.rows()))};
        const auto put = [](Matrix &into, Matrix &rows, std::int64_t tokens, std::int64_t heads, std::int64_t batch,
                            std::int64_t head) {
            for (std::int64_t token = 0; token < tokens; token++) {
                into[static_cast<std::size_t>((batch * tokens + token) * heads + head)] =
                    std::move(rows[static_cast<std::size_t>(token)]);
            }
        };
        for (std::int64_t batch = 0; batch < form.batches(); batch++) {
            for (std::int64_t head = 0; head < form.kv_heads; head++) {
                std::vector<operations::AttentionHead> heads;
                for (std::int64_t of_q = head * form.group(); of_q < (head + 1) * form.group(); of_q++) {
                    const auto rows = [&](const Tensor &tensor) {
                        return rows_of_head(tensor, form.queries, form.heads, batch, of_q);
                    };
                    Row sums;
                    for (std::int64_t token = 0; token < form.queries; token++) {
                        sums.push_back(forward.log_sum_exp.get(batch * form.queries + token, of_q));
                    }
                    heads.push_back({rows(forward.q), rows(forward.y), rows(dy), sums});
                }
                operations::AttentionGradients gradients = operations::attention_gradients(
                    heads, rows_of_head(forward.k, form.keys, form.kv_heads, batch, head),
                    rows_of_head(forward.v, form.keys, form.kv_heads, batch, head), form.keys - form.queries, rule);
                for (std::size_t i = 0; i < heads.size(); i++) {
                    put(all[0], gradients.dq[i], form.queries, form.heads, batch,
                        head * form.group() + static_cast<std::int64_t>(i));
                }
                put(all[1], gradients.dk, form.keys, form.kv_heads, batch, head);
                put(all[2], gradients.dv, form.keys, form.kv_heads, batch, head);
            }
        }
        return all;
    }

    testing::AssertionResult check(const std::vector<Matrix> &expected) {
        const char *const names[] = {"dq", "dk", "dv"};
        for (std::size_t i = 0; i < 3; i++) {
            const testing::AssertionResult right = as_expected(*gradients()[i], expected[i]);
            if (!right) {
                return testing::AssertionFailure()
                       << names[i] << ": " << right.message() << "\n  of " << forward.describe();
            }
        }
        for (const Tensor *const tensor : {&dy, &dq, &dk, &dv}) {
            if (!tensor->surroundings_intact()) {
                return testing::AssertionFailure() << "memory outside a tensor was written";
            }
        }
        return forward.surroundings_intact();
    }
};

/** On every instruction set, with as many threads as its number says. */
void expect_right(const AttentionForm &form) {
    Backward call(form);
    ASSERT_EQ(call.run_forward(), HALYARD_OK) << halyard_last_error();
    const std::vector<Matrix> expected = call.expected();
    for (const halyard_isa isa : row_isas()) {
        for (Tensor *const tensor : call.gradients()) {
            tensor->clear();
        }
        ASSERT_EQ(call.run(Context(isa, static_cast<int>(isa) / 10 % 5).get()), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(call.check(expected)) << halyard_isa_name(isa);
    }
}

std::vector<AttentionForm> forms() {
    std::vector<AttentionForm> all = {square(1, 3, 1, 8), square(65, 6, 2, 33), square(200, 2, 2, 64),
                                      square(513, 3, 1, 16)};
    all.push_back(all[1]);
    all.back().causal = false;
    all.push_back(all[3]);
    all.back().queries = 140;
    for (const std::int64_t queries : {513, 140}) {
        for (const bool causal : {true, false}) {
            all.push_back(all[3]);
            all.back().queries = queries;
            all.back().causal = causal;
            all.back().window = causal ? 100 : 17;
        }
    }
    all.push_back(all[2]);
    all.back().softcap = 2;
    all.push_back(all[7]);
    all.back().softcap = 30;
    return all;
}

// ---- The reference ----

void expect_slopes_of(const AttentionRule &rule) {
    AttentionForm form = square(5, 2, 1, 3);
    form.queries = 4;
    const Backward call(form);
    std::vector<Row> keys = rows_of_head(call.forward.k, 5, 1, 0, 0), values = rows_of_head(call.forward.v, 5, 1, 0, 0);
    std::vector<operations::AttentionHead> heads(2);
    for (std::size_t i = 0; i < 2; i++) {
        heads[i].q = rows_of_head(call.forward.q, 4, 2, 0, static_cast<std::int64_t>(i));
        heads[i].dy = rows_of_head(call.dy, 4, 2, 0, static_cast<std::int64_t>(i));
    }
    const auto exact = [](const std::vector<Row> &rows) { return operations::exact_rows(rows); };
    const auto weighed = [&] {
        double sum = 0;
        for (operations::AttentionHead &head : heads) {
            ExpectedRow logs;
            const Matrix y = operations::attention(exact(head.q), exact(keys), exact(values), 1, rule, &logs);
            head.y.clear();
            head.log_sum_exp = operations::values_of(logs);
            for (std::size_t i = 0; i < 4; i++) {
                head.y.push_back(operations::values_of(y[i]));
                for (std::size_t d = 0; d < 3; d++) {
                    sum += head.dy[i][d] * y[i][d].value;
                }
            }
        }
        return sum;
    };
    weighed();
    const operations::AttentionGradients gradients = operations::attention_gradients(heads, keys, values, 1, rule);
    const auto expect_slopes = [&](std::vector<Row> &of, const Matrix &gradient) {
        for (std::size_t row = 0; row < of.size(); row++) {
            for (std::size_t i = 0; i < 3; i++) {
                const double middle = of[row][i], h = 1e-3;
                const auto f = [&](double offset) {
                    of[row][i] = middle + offset;
                    return weighed();
                };
                const double slope = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
                of[row][i] = middle;
                EXPECT_NEAR(gradient[row][i].value, slope, 1e-8) << row << " " << i;
            }
        }
    };
    expect_slopes(heads[0].q, gradients.dq[0]);
    expect_slopes(heads[1].q, gradients.dq[1]);
    expect_slopes(keys, gradients.dk);
    expect_slopes(values, gradients.dv);
}

TEST(AttentionGradientReference, IsTheSlopeOfTheSumThatDyWeighs) {
    for (const bool causal : {false, true}) {
        for (const std::int64_t window : {0, 1, 2, 4}) {
            for (const double softcap : {0.0, 1.5}) {
                AttentionRule rule;
                rule.causal = causal;
                rule.window = window;
                rule.softcap = softcap;
                SCOPED_TRACE(testing::Message() << causal << " " << window << " " << softcap);
                expect_slopes_of(rule);
            }
        }
    }
}

// ---- Results ----

TEST(AttentionBackward, SizesAndGroupsOfHeads) {
    for (const std::int64_t length : lengths) {
        for (const std::int64_t head_dim : head_dims) {
            for (const std::int64_t group : {1, 3}) {
                AttentionForm form = square(length, group, 1, head_dim);
                expect_right(form);
                form.causal = false;
                expect_right(form);
            }
        }
    }
}

TEST(AttentionBackward, SeveralBlocksOfKeys) {
    AttentionForm form = square(513, 1, 1, 33);
    expect_right(form);
    form.causal = false;
    form.queries = 70;
    expect_right(form);
    form.causal = true;
    expect_right(form);
}

TEST(AttentionBackward, BatchesGapsAndScales) {
    AttentionForm form = square(37, 6, 2, 20);
    form.batch = 3;
    form.gap = 5;
    expect_right(form);
    form.scale = 0.5f;
    form.queries = 11;
    expect_right(form);
    form.causal = false;
    form.queries = 50;  // more than keys
    expect_right(form);
}

TEST(AttentionBackward, SlidingWindows) {
    for (const std::int64_t window : windows) {
        for (const bool causal : {true, false}) {
            AttentionForm form = square(45, 4, 2, 20);
            form.causal = causal;
            form.window = window;
            expect_right(form);
            form = square(450, 2, 1, 16);
            form.causal = causal;
            form.window = window;
            expect_right(form);
            form.queries = 140;
            expect_right(form);
        }
    }
}

TEST(AttentionBackward, AWindowOfAllPositionsHidesNothing) {
    for (const bool causal : {true, false}) {
        AttentionForm form = square(250, 2, 1, 16);
        form.causal = causal;
        Backward none(form);
        ASSERT_EQ(none.run_forward(), HALYARD_OK);
        ASSERT_EQ(none.run(nullptr), HALYARD_OK) << halyard_last_error();
        for (const std::int64_t window : {std::int64_t{250}, std::int64_t{1} << 40, INT64_MAX}) {
            form.window = window;
            Backward wide(form);
            ASSERT_EQ(wide.run_forward(), HALYARD_OK);
            ASSERT_EQ(wide.run(nullptr), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_bits(Dtype::f32, none.bits(), wide.bits())) << causal << " " << window;
        }
    }
}

TEST(AttentionBackward, SoftCaps) {
    for (const float softcap : softcaps) {
        AttentionForm form = square(65, 4, 2, 33);
        form.softcap = softcap;
        expect_right(form);
        form.causal = false;
        form.scale = 0.7f;
        expect_right(form);
        form = square(250, 2, 1, 16);
        form.softcap = softcap;
        form.window = 30;
        form.queries = 200;
        expect_right(form);
    }
}

TEST(AttentionBackward, GivesEachGradientByItself) {
    Backward all(square(150, 2, 1, 24));
    ASSERT_EQ(all.run_forward(), HALYARD_OK);
    ASSERT_EQ(all.run(nullptr), HALYARD_OK) << halyard_last_error();
    for (std::size_t wanted = 0; wanted < 4; wanted++) {
        Backward one(all.forward.form), untouched(all.forward.form);
        ASSERT_EQ(one.run_forward(), HALYARD_OK);
        one.to_q = wanted == 0 ? one.to_q : nullptr;
        one.to_k = wanted == 1 ? one.to_k : nullptr;
        one.to_v = wanted == 2 ? one.to_v : nullptr;
        ASSERT_EQ(one.run(nullptr), HALYARD_OK) << halyard_last_error();
        for (std::size_t i = 0; i < 3; i++) {
            Backward &same = i == wanted ? all : untouched;
            EXPECT_TRUE(same_bits(Dtype::f32, same.gradients()[i]->all_bits(), one.gradients()[i]->all_bits()))
                << wanted << " " << i;
        }
    }
}

TEST(AttentionBackward, OfNoKeysOrNoQueriesIsZero) {
    for (const bool no_keys : {true, false}) {
        AttentionForm form = square(9, 2, 1, 8);
        form.causal = false;
        Backward call(form);
        for (Tensor *const tensor : call.gradients()) {
            tensor->fill([](std::int64_t, std::int64_t) { return 3.0; });
        }
        const auto none = [](const Tensor &tensor, std::size_t axes) {
            return std::make_unique<TokenView>(tensor, 0, 0, -1, axes);
        };
        std::vector<std::unique_ptr<TokenView>> views;
        const auto cut = [&](auto *&view, const Tensor &tensor, std::size_t axes) {
            views.push_back(none(tensor, axes));
            view = &views.back()->view;
        };
        if (no_keys) {
            cut(call.k, call.forward.k, 2), cut(call.v, call.forward.v, 2);
            cut(call.to_k, call.dk, 2), cut(call.to_v, call.dv, 2);
        } else {
            cut(call.q, call.forward.q, 2), cut(call.y, call.forward.y, 2), cut(call.of_y, call.dy, 2);
            cut(call.log_sum_exp, call.forward.log_sum_exp, 1), cut(call.to_q, call.dq, 2);
        }
        ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.dq.get(5, 7), no_keys ? 0 : 3);
        EXPECT_EQ(call.dk.get(5, 7), no_keys ? 3 : 0);
        EXPECT_EQ(call.dv.get(5, 7), no_keys ? 3 : 0);
    }
}

// What a query does not see leaves no trace in the gradients, whatever it is.
TEST(AttentionBackward, NonFiniteValuesReachThoseWhoSeeThem) {
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<AttentionForm> all = {square(20, 2, 1, 24),
                                      square(reduced ? 200 : 260, 2, 1, 24)};  // blocks of 128 and 192
    for (const bool causal : {true, false}) {
        for (const float softcap : {0.0f, 2.0f}) {
            all.push_back(all[1]);
            all.back().causal = causal;
            all.back().window = 40;
            all.back().softcap = softcap;
        }
    }
    const double specials[] = {nan, infinity, -infinity};
    for (std::size_t number = 0; number < std::size(specials); number++) {
        const double special = specials[number];
        for (std::size_t which = 0; which < 4; which++) {
            for (std::size_t i = 0; i < all.size(); i++) {
                if (reduced && (4 * number + which) % all.size() != i) {
                    continue;  // each value in each tensor, and each form twice
                }
                Backward call(all[i]);
                ASSERT_EQ(call.run_forward(), HALYARD_OK);
                Tensor *const tensors[] = {&call.forward.q, &call.forward.k, &call.forward.v, &call.dy};
                Tensor &tensor = *tensors[which];
                tensor.set(tensor.rows() / 2, 5, special);
                const std::vector<Matrix> expected = call.expected();
                for (const halyard_isa isa : row_isas()) {
                    ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK);
                    EXPECT_TRUE(call.check(expected))
                        << special << " in tensor " << which << ", " << halyard_isa_name(isa);
                }
            }
        }
    }
}

TEST(AttentionBackward, ThreadsDoNotMatter) {
    for (const halyard_isa isa : row_isas()) {
        for (const AttentionForm &form : forms()) {
            Backward call(form);
            ASSERT_EQ(call.run_forward(), HALYARD_OK);
            ASSERT_EQ(call.run(Context(isa, 1).get()), HALYARD_OK) << halyard_last_error();
            const std::vector<std::uint32_t> expected = call.bits();
            for (const int threads : {2, 3, 8}) {
                ASSERT_EQ(call.run(Context(isa, threads).get()), HALYARD_OK);
                EXPECT_TRUE(same_bits(Dtype::f32, expected, call.bits())) << threads << ", " << call.forward.describe();
            }
            const Context context(isa, 4);
            ReverseThreads parallel_for;
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &parallel_for), HALYARD_OK);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK);
            EXPECT_TRUE(same_bits(Dtype::f32, expected, call.bits())) << call.forward.describe();
        }
    }
}

TEST(AttentionBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("attention_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const AttentionForm &form : forms()) {
            Backward call(form);
            EXPECT_EQ(call.forward.run(context.get()), HALYARD_OK);
            EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(call.bits());
            hashes[std::to_string(form.queries) + "_of_" + std::to_string(form.keys) + "_heads_" +
                   std::to_string(form.heads) + "_" + std::to_string(form.kv_heads) + "_of_" +
                   std::to_string(form.head_dim) + (form.causal ? "_causal" : "_full") +
                   (form.window > 0 ? "_window_" + std::to_string(form.window) : "") +
                   (form.softcap > 0 ? "_softcap_" + std::to_string(static_cast<int>(form.softcap)) : "")] =
                results.text();
        }
        return hashes;
    });
}

// ---- Refusals ----

/** Expects a call that `change` has spoiled to be refused, and to write nothing. */
template<typename Change>
void expect_refused(halyard_status status, const char *argument, const Change &change) {
    Backward call(square(6, 4, 2, 16));
    ASSERT_EQ(call.run_forward(), HALYARD_OK);
    change(call);
    const std::vector<std::uint32_t> before = call.bits();
    EXPECT_TRUE(refused(call.run(nullptr), status, "halyard_attention_backward", argument)) << argument;
    EXPECT_TRUE(same_bits(Dtype::f32, before, call.bits())) << argument;
}

TEST(AttentionBackward, RefusesTensorsThatDoNotFit) {
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    const std::pair<const char *, const DLTensor * Backward::*> inputs[] = {{"q", &Backward::q},
                                                                            {"k", &Backward::k},
                                                                            {"v", &Backward::v},
                                                                            {"y", &Backward::y},
                                                                            {"log_sum_exp", &Backward::log_sum_exp},
                                                                            {"dy", &Backward::of_y}};
    Tensor half(Dtype::f16, {{6, 4, 16}, {}}), flat(Dtype::f32, {{6, 64}, {}}), other(Dtype::f32, {{5, 4, 17}, {}});
    for (const auto &[name, input] : inputs) {
        const auto set = [input = input](const DLTensor *to) { return [input, to](Backward &c) { c.*input = to; }; };
        expect_refused(invalid, name, set(nullptr));
        expect_refused(unsupported, name, set(&half.view));
    }
    Tensor three_heads(Dtype::f32, {{6, 3, 16}, {}}), sums(Dtype::f32, {{4, 6}, {}});
    expect_refused(invalid, "k", [&](Backward &c) { c.k = &three_heads.view; });
    expect_refused(invalid, "v", [&](Backward &c) { c.v = &other.view; });
    expect_refused(invalid, "y", [&](Backward &c) { c.y = &other.view; });
    expect_refused(invalid, "dy", [&](Backward &c) { c.of_y = &other.view; });
    expect_refused(invalid, "q", [&](Backward &c) { c.q = &flat.view; });
    expect_refused(invalid, "log_sum_exp", [&](Backward &c) { c.log_sum_exp = &sums.view; });
    const std::pair<const char *, DLTensor * Backward::*> outputs[] = {
        {"dq", &Backward::to_q}, {"dk", &Backward::to_k}, {"dv", &Backward::to_v}};
    Tensor half_keys(Dtype::f16, {{6, 2, 16}, {}});
    for (const auto &[name, output] : outputs) {
        const auto set = [output = output](DLTensor *to) { return [output, to](Backward &c) { c.*output = to; }; };
        expect_refused(invalid, name, set(&other.view));
        expect_refused(unsupported, name, set(output == &Backward::to_q ? &half.view : &half_keys.view));
    }
    expect_refused(invalid, "dq", [](Backward &c) { c.to_q = &c.dy.view; });
    expect_refused(invalid, "dk", [](Backward &c) { c.to_k = &c.forward.v.view; });
    expect_refused(invalid, "dv", [](Backward &c) { c.to_v = c.to_k; });
}

TEST(AttentionBackward, RefusesOptionsThatItCannotFollow) {
    const auto unsupported = HALYARD_UNSUPPORTED, invalid = HALYARD_INVALID_ARGUMENT;
    const auto spoil = [](auto member, auto value) { return [=](Backward &c) { c.forward.options.*member = value; }; };
    Tensor weight(Dtype::f32, {{16}, {}});
    const Rope rope = make_rope(16, 16, false, 6);
    const DLTensor *const given = &weight.view;
    expect_refused(unsupported, "options.q_norm_weight", spoil(&halyard_attention_options::q_norm_weight, given));
    expect_refused(unsupported, "options.k_norm_weight", spoil(&halyard_attention_options::k_norm_weight, given));
    expect_refused(unsupported, "options.rope",
                   spoil(&halyard_attention_options::rope, static_cast<const halyard_rope *>(rope.get())));
    expect_refused(invalid, "options.scale", spoil(&halyard_attention_options::scale, -1.0f));
    for (const float cap : {-1.0f, 1e-40f, 1e31f, HUGE_VALF, std::nanf("")}) {
        expect_refused(invalid, "options.softcap", spoil(&halyard_attention_options::softcap, cap));
    }
    for (const std::int64_t window : {std::int64_t{-1}, INT64_MIN}) {
        expect_refused(invalid, "options.sliding_window is", spoil(&halyard_attention_options::sliding_window, window));
    }
    Tensor few_keys(Dtype::f32, {{5, 2, 16}, {}});
    for (const std::int64_t window : {0, 3}) {
        expect_refused(invalid, "q", [&](Backward &c) {
            c.k = c.v = &few_keys.view;
            c.forward.options.causal = window == 0;
            c.forward.options.sliding_window = window;
        });
    }
}

}  // namespace
}  // namespace halyard::tests
