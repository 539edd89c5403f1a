// What attention promises about its bits: a query's result depends on its own keys alone. Not on the other queries of
// the call, the threads, the instruction set (with fused multiply-add), or whether keys came at once, in pieces or
// through a cache. And NaN and infinities stay with the queries that see them.
#include "support/attention.h"

#include <cmath>

#include "support/bf16_models.h"
#include "support/reference_hashes.h"
#include "support/test_scale.h"
#include "support/threads.h"

namespace halyard::tests {
namespace {

/** Calls of every kind, small and with several blocks of keys. */
std::vector<AttentionForm> forms() {
    std::vector<AttentionForm> all;
    for (const std::int64_t tokens : {1, 2, 16, 37, 70, 513, 1030}) {
        if (emulated && tokens > 600) {
            continue;
        }
        AttentionForm form;
        form.queries = form.keys = tokens;
        form.heads = tokens > 500 ? 2 : 6;
        form.kv_heads = 2;
        form.head_dim = 20;
        all.push_back(form);
        form.head_dim = 64;
        form.kv_heads = 1;
        form.window = 50;
        all.push_back(form);
        form.window = 0;
        form.norm = true;
        form.rotary_dim = 32;
        form.softcap = 4;
        all.push_back(form);
    }
    return all;
}

/** With queries, keys and values in f32 and in bf16. */
std::vector<AttentionForm> forms_of_types() {
    std::vector<AttentionForm> all = forms();
    for (AttentionForm form : forms()) {
        form.q = form.k = form.v = Dtype::bf16;
        all.push_back(form);
    }
    return all;
}

std::vector<std::uint32_t> bits_of(AttentionCase &call, const halyard_context *context) {
    call.y.clear();
    EXPECT_EQ(call.run(context), HALYARD_OK) << halyard_last_error();
    return call.y.all_bits();
}

TEST(AttentionBits, InstructionSetsAgree) {
    const std::vector<halyard_isa> isas = fused_isas();
    for (AttentionForm form : forms()) {
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            form.q = form.k = form.v = type;
            AttentionCase call(form);
            const Context first(isas.front());
            const std::vector<std::uint32_t> expected = bits_of(call, first.get());
            for (const halyard_isa isa : isas) {
                const Context context(isa, 2);
                EXPECT_TRUE(same_bits(Dtype::f32, expected, bits_of(call, context.get())))
                    << halyard_isa_name(isa) << ": " << call.describe();
            }
        }
    }
}

TEST(AttentionBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("attention", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa, 2);
        for (AttentionForm form : forms()) {
            if (form.keys > 600) {
                continue;
            }
            const std::string label = "tokens_" + std::to_string(form.keys) + (form.window != 0 ? "_window" : "") +
                                      (form.norm ? "_norm_rope_softcap" : "");
            for (const bool causal : {true, false}) {
                form.causal = causal;
                form.interleaved = causal;
                AttentionCase call(form);
                call.options.log_sum_exp = &call.log_sum_exp.view;
                BitsHash results, sums;
                results.add(bits_of(call, context.get()));
                sums.add(call.log_sum_exp.all_bits());
                hashes[label + (causal ? "_causal" : "_full")] = results.text();
                hashes[label + (causal ? "_causal" : "_full") + "_log_sum_exp"] = sums.text();
            }
            form.causal = true;
            for (const Dtype type : all_dtypes) {
                AttentionCase call(form);
                const Cache cache = make_cache(type, 1, form.kv_heads, form.head_dim, form.keys);
                const std::int64_t prompt = std::max<std::int64_t>(1, form.keys - 3);
                for (std::int64_t first = 0, count = prompt; first < form.keys; first += count, count = 1) {
                    EXPECT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
                        << halyard_last_error();
                }
                BitsHash results;
                results.add(call.y.all_bits());
                hashes[label + "_cached_" + name_of(type)] = results.text();
            }
        }
        return hashes;
    });
}

// Queries, keys and values are bf16, multiplied as they are stored and in full, at once and by way of a cache of bf16.
TEST(AttentionBits, OfBfloat16AreThoseOfEveryMachine) {
    expect_reference_hashes("attention_bf16", [](halyard_isa isa) {
        Hashes hashes;
        for (AttentionForm form : forms()) {
            if (form.keys > 600) {
                continue;
            }
            form.q = form.k = form.v = Dtype::bf16;
            AttentionCase call(form);
            for (const auto &[name, products] : all_products) {
                const Context context(isa, 2);
                EXPECT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
                const std::string label = "tokens_" + std::to_string(form.keys) + (form.window != 0 ? "_window" : "") +
                                          (form.norm ? "_norm_rope_softcap" : "");
                BitsHash whole, parts;
                whole.add(bits_of(call, context.get()));
                hashes[label + "_" + name] = whole.text();
                const Cache cache = make_cache(Dtype::bf16, 1, form.kv_heads, form.head_dim, form.keys);
                const std::int64_t prompt = std::max<std::int64_t>(1, form.keys - 3);
                for (std::int64_t first = 0, count = prompt; first < form.keys; first += count, count = 1) {
                    EXPECT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
                        << halyard_last_error();
                }
                parts.add(call.y.all_bits());
                hashes[label + "_cached_" + name] = parts.text();
            }
        }
        return hashes;
    });
}

// Where a query sees one key, the logarithm of its sum is the score. Where all scores are 0, the result is the sum of the values over
// their number.
TEST(AttentionBits, OfBfloat16OnAmxAreThoseOfTheModel) {
    if (halyard_isa_supported(HALYARD_ISA_AMX) == 0) {
        GTEST_SKIP() << "this machine or this library has no AMX";
    }
    const Context context(HALYARD_ISA_AMX, 2);
    for (const std::int64_t tokens : {1, 20, 70, 300, 512}) {
        for (const std::int64_t head_dim : {8, 33, 64, 100}) {
            AttentionForm form;
            form.queries = form.keys = tokens;
            form.heads = 3;
            form.head_dim = head_dim;
            form.scale = 1;
            form.q = form.k = form.v = Dtype::bf16;
            form.window = 1;
            AttentionCase scores(form);
            scores.options.log_sum_exp = &scores.log_sum_exp.view;
            bits_of(scores, context.get());
            form.window = 50;
            AttentionCase sums(form);
            sums.q.fill([](std::int64_t, std::int64_t) { return 0; });
            bits_of(sums, context.get());
            for (std::int64_t token = 0; token < tokens; token++) {
                const std::int64_t first = std::max<std::int64_t>(0, token - 49);
                for (std::int64_t head = 0; head < 3; head++) {
                    const std::int64_t row = token * 3 + head;
                    const float score = amx_sum(
                        head_dim, [&](std::int64_t i) { return static_cast<float>(scores.q.get(row, i)); },
                        [&](std::int64_t i) { return static_cast<float>(scores.k.get(token, i)); });
                    ASSERT_EQ(scores.log_sum_exp.get(token, head), static_cast<double>(score)) << scores.describe();
                    for (std::int64_t i = 0; i < head_dim; i++) {
                        const float sum = amx_sum(
                            token + 1, [&](std::int64_t key) { return key < first ? 0.0f : 1.0f; },
                            [&](std::int64_t key) { return static_cast<float>(sums.v.get(key, i)); });
                        const float weight = 1.0f / static_cast<float>(token + 1 - first);
                        ASSERT_EQ(sums.y.get(row, i), static_cast<double>(sum * weight)) << sums.describe();
                    }
                }
            }
        }
    }
}

TEST(AttentionBits, ThreadsDoNotMatter) {
    const std::vector<int> thread_counts = {2, 3, 4, 7}, few = {3};
    for (const halyard_isa isa : attention_isas(Dtype::f32)) {
        for (AttentionForm form : forms()) {
            AttentionCase call(form);
            const Context one(isa, 1);
            const std::vector<std::uint32_t> expected = bits_of(call, one.get());
            for (const int threads : emulated ? few : thread_counts) {
                const Context context(isa, threads);
                EXPECT_TRUE(same_bits(Dtype::f32, expected, bits_of(call, context.get())))
                    << threads << " threads, " << halyard_isa_name(isa) << ": " << call.describe();
            }
            const Context context(isa, 4);
            ReverseThreads parallel_for;
            ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &parallel_for), HALYARD_OK);
            EXPECT_TRUE(same_bits(Dtype::f32, expected, bits_of(call, context.get()))) << call.describe();
        }
    }
}

// One query that many threads share: its blocks of keys are attended to apart.
TEST(AttentionBits, OneQueryOverManyKeys) {
    for (const halyard_isa isa : attention_isas(Dtype::f32)) {
        for (const std::int64_t heads : {1, 5}) {
            AttentionForm form;
            form.keys = 5000;
            form.heads = heads;
            form.head_dim = 64;
            AttentionCase call(form);
            const Context one(isa, 1);
            const std::vector<std::uint32_t> expected = bits_of(call, one.get());
            for (const int threads : {2, 3, 8}) {
                const Context context(isa, threads);
                EXPECT_TRUE(same_bits(Dtype::f32, expected, bits_of(call, context.get()))) << threads << " threads";
            }
        }
    }
}

TEST(AttentionBits, QueriesAloneAndAmongOthers) {
    for (AttentionForm form : forms_of_types()) {
        AttentionCase call(form);
        for (const halyard_isa isa : attention_isas(form.k)) {
            const Context context(isa, 2);
            bits_of(call, context.get());
            for (const std::int64_t count : {std::int64_t{1}, std::int64_t{3}, form.queries - 1}) {
                if (count < 1 || count > form.queries) {
                    continue;
                }
                Tensor alone(Dtype::f32, compact_form({count, form.heads, form.head_dim}));
                const TokenView q(call.q, form.queries - count, count);
                ASSERT_EQ(
                    halyard_attention(context.get(), &q.view, &call.k.view, &call.v.view, &call.options, &alone.view),
                    HALYARD_OK)
                    << halyard_last_error();
                for (std::int64_t row = 0; row < alone.rows(); row++) {
                    for (std::int64_t i = 0; i < form.head_dim; i++) {
                        ASSERT_EQ(alone.bits(row, i), call.y.bits((form.queries - count) * form.heads + row, i))
                            << count << " queries, " << halyard_isa_name(isa) << ": " << call.describe();
                    }
                }
            }
        }
    }
}

// Step by step, in pieces, or at once: the same as without a cache.
TEST(AttentionBits, CachedInPieces) {
    for (AttentionForm form : forms_of_types()) {
        AttentionCase call(form);
        const std::vector<halyard_isa> isas = attention_isas(form.k);
        for (const halyard_isa isa : isas) {
            const Context context(isa, 2);
            const std::vector<std::uint32_t> expected = bits_of(call, context.get());
            for (const std::int64_t tokens : {1, 7, 64, 500, 2000}) {
                if (tokens <= (emulated ? 7 : 1) && form.keys > 600 && isa != isas.back()) {
                    continue;
                }
                const Cache cache = make_cache(form.k, 1, form.kv_heads, form.head_dim, form.keys + 9);
                call.y.clear();
                for (std::int64_t first = 0; first < form.keys; first += tokens) {
                    const std::int64_t count = std::min(tokens, form.keys - first);
                    ASSERT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(halyard_kv_cache_length(cache.get(), 0, 0), first + count);
                }
                EXPECT_TRUE(same_bits(Dtype::f32, expected, call.y.all_bits()))
                    << "by " << tokens << ", " << halyard_isa_name(isa) << ": " << call.describe();
            }
        }
    }
}

// Sequences of different lengths in one call, in any order, beside a layer and sequences that others use.
TEST(AttentionBits, SequencesOfDifferentLengths) {
    for (const halyard_isa isa : attention_isas(Dtype::f32)) {
        const Context context(isa, 3);
        AttentionForm form;
        form.batch = 3;
        form.queries = form.keys = 540;
        form.heads = 4;
        form.kv_heads = 2;
        form.head_dim = 24;
        form.rotary_dim = 24;
        AttentionCase call(form);
        bits_of(call, context.get());
        const Cache cache = make_cache(Dtype::f32, 5, 2, 24, 540, 2);
        const std::int64_t lengths[] = {30, 0, 535}, sequences[] = {4, 0, 2};
        Tensor unused(Dtype::f32, compact_form({540, 4, 24}));
        for (std::int64_t index = 0; index < 3; index++) {
            if (lengths[index] > 0) {
                TokenView y(unused, 0, lengths[index]);
                const TokenView q(call.q, 0, lengths[index], index), k(call.k, 0, lengths[index], index),
                    v(call.v, 0, lengths[index], index);
                ASSERT_EQ(halyard_attention_cached(context.get(), &q.view, &k.view, &v.view, cache.get(), 1,
                                                   &sequences[index], &call.options, &y.view),
                          HALYARD_OK)
                    << halyard_last_error();
            }
        }
        // Five tokens more of each.
        const Shape shape = {3, 5, 4, 24}, kv_shape = {3, 5, 2, 24};
        Tensor q(Dtype::f32, compact_form(shape)), y(Dtype::f32, compact_form(shape));
        Tensor k(Dtype::f32, compact_form(kv_shape)), v(Dtype::f32, compact_form(kv_shape));
        const auto copy = [&](const Tensor &from, std::int64_t heads, Tensor &to) {
            to.fill([&](std::int64_t row, std::int64_t i) {
                const std::int64_t index = row / (5 * heads), token = lengths[index] + row / heads % 5;
                return from.get((index * 540 + token) * heads + row % heads, i);
            });
        };
        copy(call.q, 4, q);
        copy(call.k, 2, k);
        copy(call.v, 2, v);
        ASSERT_EQ(halyard_attention_cached(context.get(), &q.view, &k.view, &v.view, cache.get(), 1, sequences,
                                           &call.options, &y.view),
                  HALYARD_OK)
            << halyard_last_error();
        for (std::int64_t row = 0; row < y.rows(); row++) {
            const std::int64_t index = row / 20, token = lengths[index] + row / 4 % 5;
            for (std::int64_t i = 0; i < 24; i++) {
                ASSERT_EQ(y.bits(row, i), call.y.bits((index * 540 + token) * 4 + row % 4, i))
                    << "sequence " << index << ", token " << token;
            }
        }
        for (std::int64_t sequence = 0; sequence < 5; sequence++) {
            EXPECT_EQ(halyard_kv_cache_length(cache.get(), 0, sequence), 0);
            EXPECT_EQ(halyard_kv_cache_length(cache.get(), 1, sequence), sequence == 4   ? 35
                                                                         : sequence == 0 ? 5
                                                                         : sequence == 2 ? 540
                                                                                         : 0);
        }
    }
}

// A 16-bit cache holds what was rounded: the same as keys and values that were before.
TEST(AttentionBits, CachesOf16BitsRoundOnce) {
    for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
        for (const std::int64_t tokens : {1, 40, 530}) {
            AttentionForm form;
            form.queries = form.keys = 530;
            form.heads = emulated ? 2 : 4;
            form.kv_heads = form.heads / 2;
            form.head_dim = 40;
            AttentionCase call(form);
            AttentionForm rounded_form = form;
            rounded_form.k = rounded_form.v = type;
            AttentionCase rounded(rounded_form);
            rounded.k.fill([&](std::int64_t row, std::int64_t i) { return call.k.get(row, i); });
            rounded.v.fill([&](std::int64_t row, std::int64_t i) { return call.v.get(row, i); });
            const std::vector<halyard_isa> isas = attention_isas(type);
            for (const halyard_isa isa : isas) {
                if (emulated && tokens == 1 && isa != isas.back()) {
                    continue;
                }
                const Context context(isa, 2);
                const std::vector<std::uint32_t> expected = bits_of(rounded, context.get());
                const Cache cache = make_cache(type, 1, form.kv_heads, 40, 530);
                for (std::int64_t first = 0; first < form.keys; first += tokens) {
                    ASSERT_EQ(
                        call.run_cached(context.get(), cache.get(), first, std::min(tokens, form.keys - first), call.y),
                        HALYARD_OK)
                        << halyard_last_error();
                }
                EXPECT_TRUE(same_bits(Dtype::f32, expected, call.y.all_bits())) << name_of(type) << " by " << tokens;
            }
        }
    }
}

// With queries, keys and values in bf16, a cache of bf16 gives the bits of a call without one where products round, and a cache
// of f32 those of a call without one where they do not.
TEST(AttentionBits, CachesOfBfloat16AndFloat32) {
    for (const bool norm_and_rope : {false, true}) {
        AttentionForm form;
        form.q = form.k = form.v = Dtype::bf16;
        form.queries = form.keys = 530;
        form.heads = emulated ? 2 : 4;
        form.kv_heads = form.heads / 2;
        form.head_dim = 40;
        form.norm = norm_and_rope;
        form.rotary_dim = norm_and_rope ? 32 : 0;
        AttentionCase call(form);
        for (const halyard_isa isa : attention_isas(Dtype::bf16)) {
            const Context full(isa, 2), storage(isa, 2);
            ASSERT_EQ(halyard_context_set_products(full.get(), HALYARD_PRODUCTS_FULL), HALYARD_OK);
            ASSERT_EQ(halyard_context_set_products(storage.get(), HALYARD_PRODUCTS_STORAGE), HALYARD_OK);
            const auto cached = [&](Dtype type, const Context &context) {
                const Cache cache = make_cache(type, 1, form.kv_heads, 40, 530);
                call.y.clear();
                for (std::int64_t first = 0, count = 528; first < form.keys; first += count, count = 1) {
                    EXPECT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
                        << halyard_last_error();
                }
                return call.y.all_bits();
            };
            const std::vector<std::uint32_t> in_full = bits_of(call, full.get()),
                                             rounded = bits_of(call, storage.get());
            EXPECT_TRUE(same_bits(Dtype::f32, in_full, cached(Dtype::f32, full))) << halyard_isa_name(isa);
            EXPECT_TRUE(same_bits(Dtype::f32, in_full, cached(Dtype::f32, storage))) << halyard_isa_name(isa);
            EXPECT_TRUE(same_bits(Dtype::f32, rounded, cached(Dtype::bf16, storage))) << halyard_isa_name(isa);
            // A cache of bf16 rounds keys after norm and rotation, and changes nothing without these.
            EXPECT_EQ(in_full == cached(Dtype::bf16, full), !norm_and_rope) << halyard_isa_name(isa);
            EXPECT_NE(in_full, rounded) << halyard_isa_name(isa);
        }
    }
}

TEST(AttentionBits, WhatACacheForgetsIsGone) {
    const Context context(supported_isas().back(), 2);
    AttentionForm form;
    form.queries = form.keys = 600;
    form.head_dim = 32;
    AttentionCase call(form), other(form);
    other.k.fill([](std::int64_t row, std::int64_t i) { return row > 100 ? std::nan("") : bell(9, row, i); });
    other.v.fill([](std::int64_t, std::int64_t) { return INFINITY; });
    const std::vector<std::uint32_t> expected = bits_of(call, context.get());
    const Cache cache = make_cache(Dtype::f32, 1, 1, 32, 600);
    ASSERT_EQ(other.run_cached(context.get(), cache.get(), 0, 600, other.y), HALYARD_OK);
    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 0), HALYARD_OK);
    for (std::int64_t first = 0; first < 600; first += 24) {
        ASSERT_EQ(call.run_cached(context.get(), cache.get(), first, 24, call.y), HALYARD_OK) << halyard_last_error();
    }
    EXPECT_TRUE(same_bits(Dtype::f32, expected, call.y.all_bits()));
}

// What is not finite in one query, key or value reaches the rows that see it, and no others.
TEST(AttentionBits, NanAndInfinitiesStayWithThoseThatSeeThem) {
    enum Where { in_query, in_key, in_value };
    const std::vector<halyard_isa> isas = attention_isas(Dtype::bf16);
    for (const halyard_isa isa : isas) {
        const Context context(isa, 2);
        for (const std::int64_t tokens : {5, 70, 600}) {
            for (const std::int64_t window : {0, 9}) {
                for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
                    if (emulated && tokens > 512 && (window == 0 || type == Dtype::f32 || isa != isas.back())) {
                        continue;
                    }
                    AttentionForm form;
                    form.queries = form.keys = tokens;
                    form.heads = 6;
                    form.kv_heads = 2;
                    form.head_dim = 24;
                    form.window = window;
                    form.k = form.v = type;
                    AttentionCase call(form);
                    const std::vector<std::uint32_t> expected = bits_of(call, context.get());
                    AttentionRule rule;
                    rule.causal = true;
                    rule.window = window;
                    for (const Where where : {in_query, in_key, in_value}) {
                        for (const double value :
                             {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
                            for (const std::int64_t token : {std::int64_t{0}, tokens / 2, tokens - 1}) {
                                AttentionCase spoiled(form);
                                const std::int64_t heads = where == in_query ? 6 : 2;
                                (where == in_query ? spoiled.q
                                 : where == in_key ? spoiled.k
                                                   : spoiled.v)
                                    .set(token * heads + 1, 3, value);
                                const std::vector<std::uint32_t> got = bits_of(spoiled, context.get());
                                for (std::int64_t row = 0; row < tokens * 6; row++) {
                                    const std::int64_t query = row / 6, head = row % 6;
                                    const bool reached = where == in_query ? query == token && head == 1
                                                                           : head / 3 == 1 && rule.sees(query, token);
                                    for (std::int64_t i = 0; i < 24 && !reached; i++) {
                                        ASSERT_EQ(got[static_cast<std::size_t>(row * 24 + i)],
                                                  expected[static_cast<std::size_t>(row * 24 + i)])
                                            << value << " at token " << token << ", query " << query << ", head "
                                            << head << ", " << halyard_isa_name(isa) << ": " << call.describe();
                                    }
                                    // A value that has weight shows; it is alone in its feature.
                                    if (reached && where == in_value) {
                                        const double shown = spoiled.y.get(row, 3);
                                        ASSERT_TRUE(std::isnan(value) ? std::isnan(shown) : shown == value) << shown;
                                        ASSERT_EQ(got[static_cast<std::size_t>(row * 24 + 2)],
                                                  expected[static_cast<std::size_t>(row * 24 + 2)]);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

// Where products flush denormals, so does what is computed again because of others' NaN.
TEST(AttentionBits, OfDenormalValuesStandNanThatARowDoesNotSee) {
    for (const halyard_isa isa : attention_isas(Dtype::bf16)) {
        const Context context(isa, 2);
        for (const std::int64_t tokens : {5, 70, 600}) {
            for (const std::int64_t window : {0, 9}) {
                if (emulated && tokens > 512 && window == 0) {
                    continue;
                }
                AttentionForm form;
                form.queries = form.keys = tokens;
                form.heads = 3;
                form.head_dim = 24;
                form.window = window;
                form.q = form.k = form.v = Dtype::bf16;
                AttentionCase call(form);
                // Denormals, values whose products are denormal or become it in sums, and ordinary ones.
                const auto value = [](std::int64_t row, std::int64_t i) {
                    return std::ldexp(bell(263, row, i), i % 3 == 0 ? -128 : i % 3 == 1 ? -124 : 0);
                };
                call.v.fill(value);
                const std::vector<std::uint32_t> expected = bits_of(call, context.get());
                AttentionRule rule;
                rule.causal = true;
                rule.window = window;
                for (const std::int64_t token : {std::int64_t{0}, tokens / 2, tokens / 2 + 1, tokens - 1}) {
                    AttentionCase spoiled(form);
                    spoiled.v.fill([&](std::int64_t row, std::int64_t i) {
                        return row == token ? (i % 2 == 0 ? std::nan("") : -INFINITY) : value(row, i);
                    });
                    const std::vector<std::uint32_t> got = bits_of(spoiled, context.get());
                    for (std::int64_t row = 0; row < tokens * 3; row++) {
                        for (std::int64_t i = 0; i < 24 && !rule.sees(row / 3, token); i++) {
                            ASSERT_EQ(got[static_cast<std::size_t>(row * 24 + i)],
                                      expected[static_cast<std::size_t>(row * 24 + i)])
                                << "NaN at token " << token << ", query " << row / 3 << ", feature " << i << ", "
                                << halyard_isa_name(isa) << ": " << call.describe();
                        }
                    }
                }
            }
        }
    }
}

// Queries of a prompt in a cache, too, meet keys of that prompt that they do not see.
TEST(AttentionBits, InfinityInACachedValue) {
    for (const halyard_isa isa : attention_isas(Dtype::f32)) {
        const Context context(isa, 2);
        AttentionForm form;
        form.queries = form.keys = 530;
        form.head_dim = 16;
        form.heads = 3;
        AttentionCase call(form);
        call.v.set(525, 2, INFINITY);
        const Cache step = make_cache(Dtype::bf16, 1, 1, 16, 530), whole = make_cache(Dtype::bf16, 1, 1, 16, 530);
        Tensor y(Dtype::f32, compact_form({530, 3, 16}));
        for (std::int64_t first = 0; first < 530; first += 5) {
            ASSERT_EQ(call.run_cached(context.get(), step.get(), first, 5, y), HALYARD_OK) << halyard_last_error();
        }
        ASSERT_EQ(call.run_cached(context.get(), whole.get(), 0, 530, call.y), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(same_bits(Dtype::f32, y.all_bits(), call.y.all_bits()));
        EXPECT_EQ(call.y.get(524 * 3, 2), call.y.get(524 * 3, 2));
        EXPECT_EQ(call.y.get(525 * 3, 2), static_cast<double>(INFINITY));
    }
}

}  // namespace
}  // namespace halyard::tests
