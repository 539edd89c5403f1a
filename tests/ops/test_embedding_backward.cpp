// halyard_embedding_backward: every row against its sum in the order that is promised, bit by bit, and in float64 within the bound of
// that order; the same as the product with one-hot rows, for any strides and threads; and what is refused.
//
// Bound: a sum of n terms takes n roundings, each by at most 2^-24 of what is there, so by at most n 2^-24 of the sum of magnitudes, but
// for terms of second order.
#include <cmath>
#include <limits>
#include <map>

#include "halyard/training.h"
#include "support/integers.h"
#include "support/linear.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

struct EmbeddingForm {
    Shape leading = {1};
    std::int64_t vocabulary = 1, width = 1;
    std::int64_t gap = 0, shift = 0, step = 1;  // of rows, of all tensors, of ids
    bool is_64_bit = true, accumulate = false;

    std::int64_t rows() const {
        std::int64_t count = 1;
        for (const std::int64_t extent : leading) {
            count *= extent;
        }
        return count;
    }
    Form rows_of(Shape shape) const {
        shape.push_back(width);
        return {shape, padded_strides(shape, gap), Placement::ends_at_guard, shift, 0};
    }
};

/** Some ids come often, some never. */
std::vector<std::int64_t> some_ids(const EmbeddingForm &form) {
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < form.rows(); row++) {
        const double u = uniform(9, row, 0);
        ids.push_back(static_cast<std::int64_t>(u * u * static_cast<double>(form.vocabulary)));
    }
    return ids;
}

class Embedding {
public:
    explicit Embedding(const EmbeddingForm &given) : Embedding(given, some_ids(given)) {}
    Embedding(const EmbeddingForm &given, const std::vector<std::int64_t> &of_rows)
        : form(given), id_of(of_rows), ids(of_rows, given.leading, given.is_64_bit, given.step),
          dy(Dtype::f32, given.rows_of(given.leading)), table(Dtype::f32, given.rows_of({given.vocabulary})) {
        dy.fill([](std::int64_t row, std::int64_t i) { return bell(11, row, i) + 0.25; });
        fill_table();
    }

    void fill_table() {
        table.fill([](std::int64_t row, std::int64_t i) { return bell(12, row, i); });
    }

    const EmbeddingForm form;
    const std::vector<std::int64_t> id_of;
    IntegerTensor ids;
    Tensor dy, table;
    const DLTensor *of = &ids.view, *from = &dy.view;
    DLTensor *to = &table.view;

    halyard_status run(const halyard_context *context) {
        return halyard_embedding_backward(context, of, from, form.accumulate ? 1 : 0, to);
    }

    /** In the order that is promised; the magnitudes besides, and how many terms each sum has. */
    std::vector<std::uint32_t> modelled() {
        fill_table();
        std::vector<std::uint32_t> bits;
        for (std::int64_t id = 0; id < form.vocabulary; id++) {
            for (std::int64_t i = 0; i < form.width; i++) {
                float sum = form.accumulate ? static_cast<float>(table.get(id, i)) : 0.0f;
                double exact = static_cast<double>(sum), magnitude = std::fabs(exact), terms = 0;
                for (std::int64_t row = 0; row < form.rows(); row++) {
                    if (id_of[static_cast<std::size_t>(row)] == id) {
                        sum += static_cast<float>(dy.get(row, i));
                        exact += dy.get(row, i);
                        magnitude += std::fabs(dy.get(row, i));
                        terms++;
                    }
                }
                EXPECT_LE(std::fabs(static_cast<double>(sum) - exact), terms * 0x1p-24 * magnitude * (1 + 0x1p-10));
                bits.push_back(bits_of(sum));
            }
        }
        return bits;
    }
};

std::vector<EmbeddingForm> forms() {
    std::vector<EmbeddingForm> all = {{{1}, 1, 1}, {{40}, 7, 67}, {{3, 50}, 23, 128}, {{2, 3, 4}, 5, 200}};
    all.push_back({{300}, 11, 33, 3, 1, 2, false});
    all.push_back({{7}, 300, 65, 1, 1, 3, true});
    return all;
}

TEST(EmbeddingBackward, AddsTheRowsOfEachIdInOrder) {
    for (EmbeddingForm form : forms()) {
        for (const bool accumulate : {false, true}) {
            form.accumulate = accumulate;
            Embedding call(form);
            const std::vector<std::uint32_t> expected = call.modelled();
            for (const halyard_isa isa : row_isas()) {
                call.fill_table();
                ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                EXPECT_TRUE(same_bits(Dtype::f32, expected, call.table.all_bits())) << halyard_isa_name(isa);
                EXPECT_TRUE(call.table.surroundings_intact() && call.dy.surroundings_intact());
            }
        }
    }
}

// <dtable, v> is <dy, embedding of v>: the gradient is the adjoint of looking rows up.
TEST(EmbeddingBackward, IsTheAdjointOfLookingUp) {
    Embedding call({{40}, 7, 67});
    ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    double of_table = 0, of_rows = 0, magnitude = 0;
    const auto v = [](std::int64_t id, std::int64_t i) { return bell(13, id, i); };
    for (std::int64_t i = 0; i < 67; i++) {
        for (std::int64_t id = 0; id < 7; id++) {
            of_table += call.table.get(id, i) * v(id, i);
        }
        for (std::int64_t row = 0; row < 40; row++) {
            const double term = call.dy.get(row, i) * v(call.id_of[static_cast<std::size_t>(row)], i);
            of_rows += term;
            magnitude += std::fabs(term);
        }
    }
    EXPECT_NEAR(of_table, of_rows, 40 * 0x1p-24 * magnitude);
}

TEST(EmbeddingBackward, ThreadsDoNotMatter) {
    std::vector<EmbeddingForm> wide = forms();
    wide.push_back({{500}, 1000, 771, 5});
    wide.push_back({{2000}, 3, 8193});
    for (EmbeddingForm form : wide) {
        form.accumulate = form.width % 2 == 1;
        Embedding call(form);
        ASSERT_EQ(call.run(Context().get()), HALYARD_OK);
        const std::vector<std::uint32_t> expected = call.table.all_bits();
        for (const int threads : {1, 2, 3, 8}) {
            call.fill_table();
            ASSERT_EQ(call.run(Context(supported_isas().back(), threads).get()), HALYARD_OK);
            EXPECT_TRUE(same_bits(Dtype::f32, expected, call.table.all_bits())) << threads << " threads";
        }
        const Context context(supported_isas().back(), 4);
        ReverseThreads parallel_for;
        ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &parallel_for), HALYARD_OK);
        call.fill_table();
        ASSERT_EQ(call.run(context.get()), HALYARD_OK);
        EXPECT_TRUE(same_bits(Dtype::f32, expected, call.table.all_bits()));
    }
}

TEST(EmbeddingBackward, PartsThatAccumulateHaveTheBitsOfTheWhole) {
    Embedding whole({{40}, 7, 67});
    ASSERT_EQ(whole.run(nullptr), HALYARD_OK);
    Tensor table(Dtype::f32, {{7, 67}, {}});
    for (const std::int64_t first : {0, 13}) {
        const std::int64_t end = first == 0 ? 13 : 40;
        const IntegerTensor ids({whole.id_of.begin() + first, whole.id_of.begin() + end}, {end - first});
        Tensor dy(Dtype::f32, {{end - first, 67}, {}});
        dy.fill([&](std::int64_t row, std::int64_t i) { return whole.dy.get(first + row, i); });
        ASSERT_EQ(halyard_embedding_backward(nullptr, &ids.view, &dy.view, first > 0 ? 1 : 0, &table.view), HALYARD_OK);
    }
    EXPECT_TRUE(same_bits(Dtype::f32, whole.table.all_bits(), table.all_bits()));
}

TEST(EmbeddingBackward, OfNoIdsIsZeroOrWhatWasThere) {
    EmbeddingForm form = {{0}, 3, 5};
    Embedding zeros(form, {});
    ASSERT_EQ(zeros.run(nullptr), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(same_bits(Dtype::f32, std::vector<std::uint32_t>(15), zeros.table.all_bits()));
    form.accumulate = true;
    Embedding kept(form, {});
    const std::vector<std::uint32_t> before = kept.table.all_bits();
    ASSERT_EQ(kept.run(nullptr), HALYARD_OK);
    EXPECT_TRUE(same_bits(Dtype::f32, before, kept.table.all_bits()));
}

TEST(EmbeddingBackward, KeepsSpecialValuesInTheirRowAndColumn) {
    Embedding call({{4}, 3, 67}, {2, 0, 2, 0});
    call.dy.set(0, 5, std::nan(""));
    call.dy.set(1, 6, std::numeric_limits<double>::infinity());
    call.dy.set(2, 66, -std::numeric_limits<double>::infinity());
    call.dy.set(1, 9, -0.0);
    call.dy.set(3, 9, -0.0);
    EXPECT_EQ(call.run(nullptr), HALYARD_OK);
    for (std::int64_t id = 0; id < 3; id++) {
        for (std::int64_t i = 0; i < 67; i++) {
            const bool special = (id == 2 && (i == 5 || i == 66)) || (id == 0 && i == 6);
            EXPECT_EQ(std::isfinite(call.table.get(id, i)), !special) << id << ", " << i;
        }
    }
    EXPECT_EQ(call.table.bits(0, 9), 0U);
    EXPECT_EQ(call.table.bits(1, 9), 0U);
}

TEST(EmbeddingBackward, HasTheBitsOfEveryMachine) {
    expect_reference_hashes("embedding_backward", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const EmbeddingForm &form : forms()) {
            Embedding call(form);
            EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            BitsHash results;
            results.add(call.table.all_bits());
            hashes[std::to_string(form.rows()) + "_to_" + std::to_string(form.vocabulary) + "x" +
                   std::to_string(form.width)] = results.text();
        }
        return hashes;
    });
}

// ---- Refusals ----

template<typename Change>
void expect_refused(halyard_status status, const std::string &message, const Change &change) {
    Embedding call({{2, 3}, 7, 5}, {0, 1, 2, 3, 4, 5});
    change(call);
    const std::vector<std::uint32_t> before = call.table.all_bits();
    EXPECT_EQ(call.run(nullptr), status);
    EXPECT_EQ(std::string(halyard_last_error()), "halyard_embedding_backward: " + message);
    EXPECT_TRUE(same_bits(Dtype::f32, before, call.table.all_bits())) << message;
}

TEST(EmbeddingBackward, RefusesWhatDoesNotFit) {
    const auto invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
    Tensor half(Dtype::f16, {{7, 5}, {}}), other(Dtype::f32, {{7, 6}, {}}), deep(Dtype::f32, {{1, 7, 5}, {}});
    half.fill([](std::int64_t, std::int64_t) { return 0.0; });
    const IntegerTensor flat({0, 1, 2, 3, 4, 5}, {6}), out({0, 1, 2, 3, -1, 5}, {2, 3}),
        above({0, 1, 7, 3, 1, 5}, {2, 3});
    expect_refused(invalid, "dy is null", [](Embedding &c) { c.from = nullptr; });
    expect_refused(invalid, "dtable is null", [](Embedding &c) { c.to = nullptr; });
    expect_refused(invalid, "input_ids is null", [](Embedding &c) { c.of = nullptr; });
    expect_refused(unsupported, "dy must have dtype f32", [&](Embedding &c) { c.from = &half.view; });
    expect_refused(unsupported, "dtable must have dtype f32", [&](Embedding &c) { c.to = &half.view; });
    expect_refused(invalid, "dtable has rank 3, but must be [vocabulary, d]", [&](Embedding &c) { c.to = &deep.view; });
    expect_refused(invalid, "dtable has rows of 6 features, but must have 5, as dy has",
                   [&](Embedding &c) { c.to = &other.view; });
    expect_refused(invalid, "input_ids must have the leading shape of dy, or [1] where that has one axis",
                   [&](Embedding &c) { c.of = &flat.view; });
    expect_refused(invalid, "input_ids[1, 1] is -1, but the number of rows of dtable is 7",
                   [&](Embedding &c) { c.of = &out.view; });
    expect_refused(invalid, "input_ids[0, 2] is 7, but the number of rows of dtable is 7",
                   [&](Embedding &c) { c.of = &above.view; });
    expect_refused(invalid, "dtable overlaps dy, which this function does not allow",
                   [](Embedding &c) { c.table.view.data = c.dy.view.data; });
    expect_refused(invalid, "dtable overlaps input_ids, which this function does not allow",
                   [](Embedding &c) { c.ids.view.data = static_cast<float *>(c.table.view.data) + 1; });
}

}  // namespace
}  // namespace halyard::tests
