// halyard_attention and halyard_attention_cached against their float64 reference: sizes, masks, groups of heads, types,
// norms, rotary embedding, and how operands lie in memory.
#include "support/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "support/test_scale.h"

namespace halyard::tests {
namespace {

#if defined(HALYARD_TESTS_REDUCED)
constexpr std::int64_t length_step = 9;
const std::vector<std::int64_t> border_lengths = {513};
const std::vector<std::int64_t> windows = {17, 512, 5000};
#else
constexpr std::int64_t length_step = 1;
const std::vector<std::int64_t> border_lengths = {511, 512, 513, 514, 1030};
const std::vector<std::int64_t> windows = {1, 2, 17, 64, 100, 511, 512, 513, 700, 5000};
#endif

/** On every instruction set, with as many threads as its number says. */
void expect_right(const AttentionForm &form) {
    AttentionCase call(form);
    const Dtype products = form.k == form.v ? call.products(form.k) : Dtype::f32;
    Matrix log_sum_exp;
    const Matrix expected = call.expected(products, AttentionRule().sum_roundings, products, &log_sum_exp);
    call.options.log_sum_exp = &call.log_sum_exp.view;
    for (const halyard_isa isa : product_isas(form.q, form.k)) {
        const Context context(isa, static_cast<int>(isa) / 10 % 5);
        call.y.clear();
        call.log_sum_exp.clear();
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(as_expected(call.log_sum_exp, log_sum_exp)) << halyard_isa_name(isa) << ": " << call.describe();
        EXPECT_TRUE(call.check(expected)) << halyard_isa_name(isa) << ": " << call.describe();
    }
}

/** As expect_right(), by way of a cache that is filled in pieces of `tokens`. */
void expect_right_cached(const AttentionForm &form, Dtype type, std::int64_t tokens) {
    AttentionCase call(form);
    Matrix log_sum_exp;
    const Matrix expected = call.expected(type, AttentionRule().sum_roundings, call.products(type), &log_sum_exp);
    call.options.log_sum_exp = &call.log_sum_exp.view;
    for (const halyard_isa isa : product_isas(form.q, type)) {
        const Context context(isa, static_cast<int>(isa) / 10 % 5);
        const Cache cache = make_cache(type, form.batches(), form.kv_heads, form.head_dim, form.keys);
        call.y.clear();
        for (std::int64_t first = 0; first < form.keys; first += tokens) {
            const std::int64_t count = std::min(tokens, form.keys - first);
            ASSERT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
                << halyard_last_error();
        }
        EXPECT_TRUE(as_expected(call.log_sum_exp, log_sum_exp))
            << halyard_isa_name(isa) << ", cached in " << name_of(type) << " by " << tokens << ": " << call.describe();
        EXPECT_TRUE(call.check(expected))
            << halyard_isa_name(isa) << ", cached in " << name_of(type) << " by " << tokens << ": " << call.describe();
    }
}

TEST(Attention, SizesAndGroupsOfHeads) {
    for (const std::int64_t head_dim : {1, 2, 15, 16, 17, 32, 64, 80, 96, 127, 128, 256}) {
        for (const std::int64_t group : {1, 2, 3, 8}) {
            AttentionForm form = square(19, 2 * group, 2, head_dim);
            expect_right(form);
            form.causal = false;
            form.queries = 3;
            expect_right(form);
        }
        // Multi-query, also with more heads than rows of a block.
        expect_right(square(5, 7, 1, head_dim));
        expect_right(square(2, 71, 1, head_dim));
    }
}

TEST(Attention, EveryLengthUpTo70) {
    for (std::int64_t length = 1; length <= 70; length += length_step) {
        AttentionForm form = square(length, 2, 1, 24);
        expect_right(form);
        form.queries = (length + 2) / 3;
        form.causal = length % 2 == 0;
        expect_right(form);
        form.queries = 1;
        expect_right(form);
    }
}

TEST(Attention, LengthsAroundBlocksOfKeys) {
    for (const std::int64_t keys : border_lengths) {
        for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{9}, keys}) {
            for (const bool causal : {true, false}) {
                AttentionForm form = square(keys, 2, 2, 20);
                form.queries = queries;
                form.causal = causal;
                expect_right(form);
            }
        }
    }
}

// Without positions there may be more queries than keys.
TEST(Attention, MoreQueriesThanKeys) {
    for (const std::int64_t keys : {1, 3, 16, 70}) {
        AttentionForm form = square(200, 3, 3, 32);
        form.keys = keys;
        form.causal = false;
        expect_right(form);
    }
}

TEST(Attention, Windows) {
    for (const std::int64_t window : windows) {
        for (const bool causal : {true, false}) {
            AttentionForm form = square(70, 3, 1, 16);
            form.window = window;
            form.causal = causal;
            expect_right(form);
            form.queries = form.keys = 1030;
            form.heads = 1;
            expect_right(form);
            form.queries = 1;
            expect_right(form);
        }
    }
    AttentionForm form = square(33, 1, 1, 16);
    form.window = std::numeric_limits<std::int64_t>::max();
    expect_right(form);
}

TEST(Attention, ScaleAndSoftcap) {
    for (const float softcap : {0.0f, 0.5f, 30.0f}) {
        for (const float scale : {0.0f, 0.01f, 1.0f}) {
            AttentionForm form = square(70, 2, 1, 40);
            form.softcap = softcap;
            form.scale = scale;
            expect_right(form);
            form.window = 20;
            expect_right(form);
        }
    }
    // The ends of their ranges.
    for (const float softcap : {0.0f, 1e-30f, 1e30f}) {
        for (const float scale : {0x1p-149f, 1e-40f, 1e-20f, 300.0f}) {
            AttentionForm form = square(70, 2, 1, 40);
            form.softcap = softcap;
            form.scale = scale;
            expect_right(form);
        }
    }
    // Large scores: one key has all the weight.
    AttentionForm form = square(600, 1, 1, 64);
    form.scale = 100;
    expect_right(form);
    // Up to a billion, a million apart.
    form = square(1000, 1, 1, 1);
    form.scale = 1e6;
    AttentionCase call(form);
    call.q.fill([](std::int64_t, std::int64_t) { return 1; });
    call.k.fill([](std::int64_t row, std::int64_t) { return static_cast<double>(row * 7 % 1000); });
    for (const halyard_isa isa : row_isas()) {
        ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.y.get(999, 0), call.v.get(857, 0)) << halyard_isa_name(isa);  // 857 * 7 = 5999
    }
}

TEST(Attention, NormAndRope) {
    for (const unsigned flags : {0u, unsigned{HALYARD_RMS_UNIT_OFFSET}, unsigned{HALYARD_RMS_EPS_OUTSIDE_ROOT}}) {
        for (const bool interleaved : {false, true}) {
            for (const std::int64_t rotary_dim : {0, 16, 48}) {
                AttentionForm form = square(67, 4, 2, 48);
                form.norm = rotary_dim != 16;
                form.norm_flags = flags;
                form.norm_type = flags == 0 ? Dtype::f32 : Dtype::bf16;
                form.rotary_dim = rotary_dim;
                form.interleaved = interleaved;
                expect_right(form);
                form.queries = 5;
                form.batch = 2;
                expect_right(form);
                form.queries = form.keys;
                expect_right_cached(form, Dtype::f32, 20);
            }
        }
    }
    AttentionForm form = square(530, 2, 1, 32);
    form.norm = true;
    form.rotary_dim = 32;
    expect_right(form);
}

TEST(Attention, TypesInAnyCombination) {
    for (const Dtype q : all_dtypes) {
        for (const Dtype k : all_dtypes) {
            for (const Dtype v : all_dtypes) {
                for (const Dtype y : all_dtypes) {
                    AttentionForm form = square(23, 4, 2, 36);
                    form.q = q;
                    form.k = k;
                    form.v = v;
                    form.y = y;
                    expect_right(form);
                }
            }
        }
    }
}

TEST(Attention, CachesOfEveryType) {
    for (const Dtype type : all_dtypes) {
        for (const Dtype operands : all_dtypes) {
            AttentionForm form = square(45, 4, 2, 36);
            form.q = form.k = form.v = form.y = operands;
            expect_right_cached(form, type, 1);
            expect_right_cached(form, type, 45);
            form.batch = 3;
            expect_right_cached(form, type, 7);
        }
        // Enough rows that blocks are widened, and several blocks.
        AttentionForm form = square(emulated ? 530 : 700, 4, 1, 24);
        expect_right_cached(form, type, 500);
        form.window = 100;
        form.softcap = 5;
        expect_right_cached(form, type, emulated ? 520 : 650);
    }
}

TEST(Attention, RanksPitchesAndPlacement) {
    for (const std::int64_t batch : {0, 1, 3}) {
        for (const std::int64_t gap : {0, 1, 5}) {
            for (const Placement placement : {Placement::ends_at_guard, Placement::starts_at_guard}) {
                for (const Dtype type : all_dtypes) {
                    AttentionForm form = square(21, 4, 2, 19);
                    form.batch = batch;
                    form.gap = gap;
                    form.placement = placement;
                    form.q = form.k = form.v = form.y = type;
                    expect_right(form);
                    form.queries = 2;
                    expect_right(form);
                }
            }
        }
    }
}

// q, k and v as slices of one product, and y in the place of q.
TEST(Attention, SlicesOfOneProduct) {
    for (const Dtype type : all_dtypes) {
        for (const std::int64_t keys : {1, 9, 70}) {
            for (const std::int64_t queries : {std::int64_t{1}, keys}) {
                AttentionForm form = square(keys, 4, 2, 24);
                form.queries = queries;
                form.q = form.k = form.v = form.y = type;
                const AttentionCase separate(form);
                const std::int64_t heads = form.heads + 2 * form.kv_heads;
                for (const halyard_isa isa : product_isas(type, type)) {
                    Tensor product(type, compact_form({keys, heads, form.head_dim}));
                    product.fill([](std::int64_t, std::int64_t) { return 0.0; });
                    const auto copy = [&](const Tensor &from, std::int64_t first_token, std::int64_t first_head) {
                        const std::int64_t own = from.shape()[1];
                        for (std::int64_t row = 0; row < from.rows(); row++) {
                            for (std::int64_t i = 0; i < form.head_dim; i++) {
                                product.set_bits((first_token + row / own) * heads + first_head + row % own, i,
                                                 from.bits(row, i));
                            }
                        }
                    };
                    copy(separate.q, keys - queries, 0);
                    copy(separate.k, 0, form.heads);
                    copy(separate.v, 0, form.heads + form.kv_heads);
                    std::int64_t shapes[3][3], strides[3] = {heads * form.head_dim, form.head_dim, 1};
                    DLTensor views[3] = {product.view, product.view, product.view};
                    const std::int64_t first_heads[] = {0, form.heads, form.heads + form.kv_heads};
                    for (int i = 0; i < 3; i++) {
                        const std::int64_t first = i == 0 ? keys - queries : 0;
                        shapes[i][0] = keys - first;
                        shapes[i][1] = i == 0 ? form.heads : form.kv_heads;
                        shapes[i][2] = form.head_dim;
                        views[i].shape = shapes[i];
                        views[i].strides = strides;
                        views[i].byte_offset +=
                            static_cast<std::uint64_t>((first * heads + first_heads[i]) * form.head_dim) *
                            size_of(type);
                    }
                    Tensor expected(type, compact_form({queries, form.heads, form.head_dim}));
                    const Context context(isa, 2);
                    ASSERT_EQ(halyard_attention(context.get(), &separate.q.view, &separate.k.view, &separate.v.view,
                                                &separate.options, &expected.view),
                              HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(
                        halyard_attention(context.get(), &views[0], &views[1], &views[2], &separate.options, &views[0]),
                        HALYARD_OK)
                        << halyard_last_error();
                    for (std::int64_t row = 0; row < expected.rows(); row++) {
                        for (std::int64_t i = 0; i < form.head_dim; i++) {
                            ASSERT_EQ(product.bits((keys - queries + row / form.heads) * heads + row % form.heads, i),
                                      expected.bits(row, i));
                        }
                    }
                    ASSERT_TRUE(product.surroundings_intact());
                }
            }
        }
    }
}

TEST(Attention, NothingToDo) {
    for (const bool cached : {false, true}) {
        AttentionForm form = square(4, 2, 1, 8);
        AttentionCase call(form);
        const Cache cache = make_cache(Dtype::f32, 1, 1, 8, 4);
        const TokenView q(call.q, 0, 0), k(call.k, 0, 0), v(call.v, 0, 0);
        TokenView y(call.y, 0, 0);
        const halyard_status status =
            cached ? halyard_attention_cached(nullptr, &q.view, &k.view, &v.view, cache.get(), 0, nullptr,
                                              &call.options, &y.view)
                   : halyard_attention(nullptr, &q.view, &call.k.view, &call.v.view, &call.options, &y.view);
        EXPECT_EQ(status, HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(halyard_kv_cache_length(cache.get(), 0, 0), 0);
        EXPECT_EQ(call.y.all_bits(), Tensor(Dtype::f32, compact_form({4, 2, 8})).all_bits());
    }
}

// Finite scores of any size: a weight is 1 or 0 where they are so large that unequal ones are far apart. Every key is there
// several times, so that the values of equal ones are averaged.
TEST(Attention, HugeScoresChooseTheLargest) {
    for (const std::int64_t tokens : {12, 600}) {
        for (const double size : {1e3, 1e5, 1e9, 1e18}) {
            for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
                AttentionForm form = square(tokens, 2, 1, 8);
                form.causal = false;
                form.q = form.k = type;
                AttentionCase call(form);
                const std::int64_t keys = tokens / 4;
                call.q.fill([&](std::int64_t row, std::int64_t i) { return size * bell(1, row, i); });
                call.k.fill([&](std::int64_t row, std::int64_t i) { return size * bell(2, row % keys, i); });
                // The key of each row, and whether others count for nothing, being far below, beyond what sums are rounded by.
                std::vector<std::pair<std::int64_t, bool>> largest;
                for (std::int64_t row = 0; row < call.q.rows(); row++) {
                    std::vector<std::pair<double, std::int64_t>> scores;
                    for (std::int64_t key = 0; key < keys; key++) {
                        double score = 0;
                        for (std::int64_t i = 0; i < 8; i++) {
                            score += call.q.get(row, i) * call.k.get(key, i);
                        }
                        scores.emplace_back(score, key);
                    }
                    std::partial_sort(scores.begin(), scores.begin() + 2, scores.end(), std::greater<>());
                    const auto [first, key] = scores[0];
                    largest.emplace_back(key, first - scores[1].first > 100 + 1e-5 * std::fabs(first));
                }
                for (const halyard_isa isa : attention_isas(type)) {
                    const Context context(isa, 2);
                    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                    for (std::int64_t row = 0; row < call.q.rows(); row++) {
                        const auto [key, alone] = largest[static_cast<std::size_t>(row)];
                        for (std::int64_t i = 0; i < 8; i++) {
                            double mean = 0;
                            for (std::int64_t j = 0; j < 4; j++) {
                                mean += call.v.get(key + j * keys, i) / 4;
                            }
                            ASSERT_TRUE(std::isfinite(call.y.get(row, i))) << size << " " << halyard_isa_name(isa);
                            if (alone) {
                                ASSERT_NEAR(call.y.get(row, i), mean, 1e-5) << size << " " << halyard_isa_name(isa);
                            }
                        }
                    }
                }
            }
        }
    }
}

// Scores that are finite before they are scaled and overflow then: no result is taken for that of a query that sees nothing.
TEST(Attention, ScaledScoresThatOverflowGiveNan) {
    for (const std::int64_t tokens : {1, 12, 600}) {
        for (const float scale : {1e30f, 3e38f}) {
            AttentionForm form = square(tokens, 2, 1, 8);
            form.scale = scale;
            AttentionCase call(form);
            call.options.log_sum_exp = &call.log_sum_exp.view;
            call.q.fill([](std::int64_t, std::int64_t) { return 1e5; });
            call.k.fill([](std::int64_t row, std::int64_t) { return 1e5 + static_cast<double>(row); });
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa, 2);
                ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (std::int64_t row = 0; row < call.y.rows(); row++) {
                    for (std::int64_t i = 0; i < 8; i++) {
                        ASSERT_TRUE(std::isnan(call.y.get(row, i)))
                            << call.y.get(row, i) << " in row " << row << ", " << halyard_isa_name(isa);
                    }
                }
                ASSERT_EQ(call.log_sum_exp.get(0, 0), static_cast<double>(INFINITY)) << halyard_isa_name(isa);
            }
        }
    }
}

// A query that sees no key, because there are none or because no score is above -Inf, gives zeros.
TEST(Attention, QueriesThatSeeNothingGiveZeros) {
    for (const halyard_isa isa : row_isas()) {
        const Context context(isa, 2);
        AttentionForm form = square(40, 2, 1, 20);
        form.causal = false;
        AttentionCase call(form);
        call.options.log_sum_exp = &call.log_sum_exp.view;
        const auto expect_no_sums = [&] {
            for (const std::uint32_t bits : call.log_sum_exp.all_bits()) {
                ASSERT_EQ(bits, 0xff800000u);
            }
            call.log_sum_exp.clear();
        };
        const TokenView k(call.k, 0, 0), v(call.v, 0, 0);
        ASSERT_EQ(halyard_attention(context.get(), &call.q.view, &k.view, &v.view, &call.options, &call.y.view),
                  HALYARD_OK)
            << halyard_last_error();
        for (const std::uint32_t bits : call.y.all_bits()) {
            ASSERT_EQ(bits, 0u);
        }
        expect_no_sums();
        call.q.fill([](std::int64_t, std::int64_t i) { return i == 0 ? 1.0 : 0.0; });
        call.k.fill([](std::int64_t, std::int64_t i) { return i == 0 ? -INFINITY : 0.0; });
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (const std::uint32_t bits : call.y.all_bits()) {
            ASSERT_EQ(bits, 0u);
        }
        expect_no_sums();
    }
}

}  // namespace
}  // namespace halyard::tests
