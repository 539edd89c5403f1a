// The memory that attention takes beside its operands: nothing in steady state, not more with longer prompts than
// copies of one head's keys and values for each thread, and a call that finds none leaves everything as it was.
#include "support/allocations.h"
#include "support/attention.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

AttentionForm form_of(std::int64_t queries, std::int64_t keys, Dtype type) {
    AttentionForm form;
    form.queries = queries;
    form.keys = keys;
    form.heads = 6;
    form.kv_heads = 2;
    form.head_dim = 64;
    form.q = form.k = form.v = form.y = type;
    form.norm = true;
    form.norm_type = Dtype::bf16;
    form.rotary_dim = 64;
    return form;
}

TEST(AttentionMemory, SteadyStateAllocatesNothing) {
    constexpr std::int64_t keys = emulated ? 520 : 600;  // more than a block
    const std::vector<std::int64_t> query_counts = {1, 7, 100, 600}, few = {1, 70};
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        for (const std::int64_t queries : emulated ? few : query_counts) {
            for (const int threads : {1, 2}) {
                AttentionCase call(form_of(queries, keys, type)), whole(form_of(keys, keys, type));
                const Cache cache = make_cache(type, 1, 2, 64, 700);
                const Context context(supported_isas().back(), threads);
                ASSERT_EQ(whole.run_cached(context.get(), cache.get(), 0, keys - queries, whole.y), HALYARD_OK);
                const auto call_both = [&] {
                    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_EQ(call.run_cached(context.get(), cache.get(), 0, queries, call.y), HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, keys - queries), HALYARD_OK);
                };
                call_both();
                call_both();
                count_allocations();
                for (int i = 0; i < (emulated ? 2 : 5); i++) {
                    call_both();
                }
                EXPECT_EQ(allocations().calls, 0) << call.describe() << " on " << threads << " threads";
            }
        }
    }
}

/** Bytes that a first call asks for. */
long asked_by(AttentionCase &call, int threads, halyard_kv_cache *cache) {
    const Context context(supported_isas().back(), threads);
    AttentionCase first(form_of(1, 1, Dtype::f32));
    EXPECT_EQ(first.run(context.get()), HALYARD_OK);  // starts nothing else
    halyard_context_release_scratch(context.get());
    count_allocations();
    if (cache != nullptr) {
        EXPECT_EQ(call.run_cached(context.get(), cache, 0, call.form.queries, call.y), HALYARD_OK)
            << halyard_last_error();
    } else {
        EXPECT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    }
    return allocations().bytes;
}

TEST(AttentionMemory, IsBounded) {
    // What a thread needs for 64 rows of 64 features, and a copy of its head's keys and values in f32.
    const long of_thread = 1 << 20, of_position = 2 * 64 * 4;
    const std::vector<std::int64_t> lengths = {100, 1000, 3000}, few = {100, 530};
    for (const int threads : {1, 2}) {
        for (const std::int64_t tokens : emulated ? few : lengths) {
            AttentionCase call(form_of(tokens, tokens, Dtype::bf16));
            EXPECT_LE(asked_by(call, threads, nullptr), threads * (of_thread + of_position * (tokens + 16)))
                << tokens << " tokens on " << threads << " threads";
            // In a cache no copies are made.
            const Cache cache = make_cache(Dtype::bf16, 1, 2, 64, tokens);
            EXPECT_LE(asked_by(call, threads, cache.get()), threads * of_thread)
                << tokens << " tokens on " << threads << " threads";
        }
    }
}

TEST(AttentionMemory, WithoutMemoryNothingIsAppended) {
    AttentionCase call(form_of(70, 70, Dtype::f32));
    const Cache cache = make_cache(Dtype::f32, 1, 2, 64, 70);
    for (const bool cached : {false, true}) {
        const Context context(supported_isas().back(), 2);
        call.y.clear();
        const std::vector<std::uint32_t> before = call.y.all_bits();
        halyard_status status = HALYARD_OK;
        EXPECT_TRUE(without_memory([&] {
            status = cached ? call.run_cached(context.get(), cache.get(), 0, 70, call.y) : call.run(context.get());
        }));
        EXPECT_EQ(status, HALYARD_OUT_OF_MEMORY) << halyard_last_error();
        EXPECT_EQ(call.y.all_bits(), before);
        EXPECT_EQ(halyard_kv_cache_length(cache.get(), 0, 0), 0);
        ASSERT_EQ(call.run_cached(context.get(), cache.get(), 0, 70, call.y), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 0), HALYARD_OK);
    }
}

}  // namespace
}  // namespace halyard::tests
