// Caches of keys and values and attention on tensors of a CUDA device, by the library's way of launching kernels and
// the stand-in driver, against the float64 references.
#include "support/attention.h"

#include <cmath>
#include <limits>

#include "stand_ins.h"
#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

void to_device(AttentionCase &call) {
    tests::to_device(call.q, call.k, call.v, call.y);
    for (const auto &weight : {&call.q_norm_weight, &call.k_norm_weight}) {
        if (*weight) {
            tests::to_device(**weight);
        }
    }
}

// ---- Caches ----

Cache make_device_cache(Dtype type, std::int64_t sequences, std::int64_t kv_heads, std::int64_t head_dim,
                        std::int64_t max_positions, std::int64_t layers = 1) {
    return make_cache(type, sequences, kv_heads, head_dim, max_positions, layers, cuda_device);
}

TEST(CudaCache, GivesBackWhatItGot) {
    for (const Dtype stored : all_dtypes) {
        for (const Dtype type : all_dtypes) {
            for (const std::int64_t head_dim : {64, 19}) {
                const Cache cache = make_device_cache(stored, 4, 2, head_dim, 12, 2);
                const std::int64_t sequences[] = {2, 3, 0};
                Tensor k(type, compact_form({3, 5, 2, head_dim})), v(type, compact_form({3, 5, 2, head_dim}));
                k.fill([](std::int64_t row, std::int64_t i) { return bell(17, row, i); });
                v.fill([](std::int64_t row, std::int64_t i) { return bell(19, row, i); });
                to_device(k, v);
                // Twice, so that positions are not those of the tensor; to the second layer.
                for (int time = 0; time < 2; time++) {
                    ASSERT_EQ(finished(halyard_kv_cache_append(nullptr, cache.get(), 1, sequences, &k.view, &v.view)),
                              HALYARD_OK)
                        << halyard_last_error();
                }
                ASSERT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 1, sequences, &k.view, &v.view),
                          HALYARD_INVALID_ARGUMENT);
                EXPECT_EQ(halyard_kv_cache_length(cache.get(), 1, 3), 10);
                EXPECT_EQ(halyard_kv_cache_length(cache.get(), 1, 1), 0);
                EXPECT_EQ(halyard_kv_cache_length(cache.get(), 0, 3), 0);
                for (std::int64_t b = 0; b < 3; b++) {
                    Tensor read_k(Dtype::f32, compact_form({7, 2, head_dim})),
                        read_v(type, compact_form({7, 2, head_dim}));
                    to_device(read_k, read_v);
                    ASSERT_EQ(finished(halyard_kv_cache_read(nullptr, cache.get(), 1, sequences[b], 3, &read_k.view,
                                                             &read_v.view)),
                              HALYARD_OK)
                        << halyard_last_error();
                    for (std::int64_t row = 0; row < 14; row++) {
                        const std::int64_t from = b * 10 + (row + 6) % 10;
                        for (std::int64_t i = 0; i < head_dim; i++) {
                            ASSERT_EQ(read_k.get(row, i), round_to(stored, k.get(from, i)));
                            ASSERT_EQ(read_v.get(row, i), round_to(type, round_to(stored, v.get(from, i))));
                        }
                    }
                    ASSERT_TRUE(read_k.surroundings_intact() && read_v.surroundings_intact());
                }
                EXPECT_EQ(halyard_kv_cache_truncate(cache.get(), 3, 4), HALYARD_OK);
                EXPECT_EQ(halyard_kv_cache_length(cache.get(), 1, 3), 4);
            }
        }
    }
}

TEST(CudaCache, LiesInTheCallersMemory) {
    const halyard_kv_cache_options options = {1, 1, 2, 20, 30, dlpack_type(Dtype::bf16)};
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK);
    Tensor memory(Dtype::f16, {{bytes / 2}, {}, Placement::ends_at_guard, 0, 0});
    halyard_kv_cache *made = nullptr;
    ASSERT_EQ(halyard_kv_cache_create_on_device(&options, cuda_device, memory.view.data, bytes - 1, &made),
              HALYARD_INVALID_ARGUMENT);
    const long before = allocations();
    ASSERT_EQ(halyard_kv_cache_create_on_device(&options, cuda_device, memory.view.data, bytes, &made), HALYARD_OK)
        << halyard_last_error();
    const Cache cache(made);
    EXPECT_EQ(allocations(), before);
    Tensor k(Dtype::bf16, compact_form({30, 2, 20})), read(Dtype::bf16, compact_form({30, 2, 20}));
    k.fill([](std::int64_t row, std::int64_t i) { return bell(23, row, i); });
    to_device(k, read);
    ASSERT_EQ(finished(halyard_kv_cache_append(nullptr, cache.get(), 0, nullptr, &k.view, &k.view)), HALYARD_OK)
        << halyard_last_error();
    ASSERT_EQ(finished(halyard_kv_cache_read(nullptr, cache.get(), 0, 0, 0, nullptr, &read.view)), HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(k.all_bits(), read.all_bits());
    // A tensor in it.
    DLTensor inside = k.view;
    inside.data = memory.view.data;
    EXPECT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, nullptr, &inside, &inside), HALYARD_INVALID_ARGUMENT);
}

TEST(CudaCache, IsOfItsDevice) {
    const Cache here = make_cache(Dtype::f32, 1, 1, 16, 8), there = make_device_cache(Dtype::f32, 1, 1, 16, 8);
    Tensor k(Dtype::f32, compact_form({1, 1, 16})), y(Dtype::f32, compact_form({1, 1, 16}));
    k.fill([](std::int64_t, std::int64_t) { return 1.0; });
    const auto refused = [&](halyard_kv_cache *cache) {
        EXPECT_EQ(halyard_kv_cache_append(nullptr, cache, 0, nullptr, &k.view, &k.view), HALYARD_UNSUPPORTED);
        EXPECT_NE(std::string(halyard_last_error()).find("both must be on one device"), std::string::npos)
            << halyard_last_error();
        EXPECT_EQ(halyard_kv_cache_read(nullptr, cache, 0, 0, 0, &k.view, nullptr), HALYARD_UNSUPPORTED);
        EXPECT_EQ(halyard_attention_cached(nullptr, &k.view, &k.view, &k.view, cache, 0, nullptr, nullptr, &y.view),
                  HALYARD_UNSUPPORTED);
        EXPECT_EQ(halyard_kv_cache_length(cache, 0, 0), 0);
    };
    refused(there.get());
    to_device(k, y);
    refused(here.get());
    k.view.device.device_id = y.view.device.device_id = 1;
    refused(there.get());
    halyard_kv_cache_options options = {1, 1, 1, 16, 8, dlpack_type(Dtype::f32)};
    halyard_kv_cache *cache = nullptr;
    EXPECT_EQ(halyard_kv_cache_create_on_device(&options, no_such_device, nullptr, 0, &cache), HALYARD_NO_DEVICE);
    EXPECT_EQ(halyard_kv_cache_create_on_device(&options, {kDLCUDAHost, 0}, nullptr, 0, &cache), HALYARD_UNSUPPORTED);
    options.max_positions = 0;
    EXPECT_EQ(halyard_kv_cache_create_on_device(&options, cuda_device, nullptr, 0, &cache), HALYARD_INVALID_ARGUMENT);
}

// ---- Attention ----

/** The form with tensors that may be read by words. */
AttentionForm aligned(AttentionForm form) {
    form.placement = Placement::starts_at_guard;
    return form;
}

/** A split adds 8 in each of 16 lanes and these in turn; then the splits follow each other. */
double sum_roundings(const AttentionForm &form) {
    return 8 + 16 + static_cast<double>((form.keys + 127) / 128 + 1);
}

void expect_right(const AttentionForm &form) {
    AttentionCase call(form);
    const Context context;
    to_device(call);
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << ": " << call.describe();
    ASSERT_TRUE(call.check(call.expected(Dtype::f32, sum_roundings(form)))) << call.describe();
}

/** By way of a cache that is filled in pieces of `tokens`. */
void expect_right_cached(const AttentionForm &form, Dtype type, std::int64_t tokens) {
    AttentionCase call(form);
    const Context context;
    to_device(call);
    const Cache cache = make_device_cache(type, form.batches(), form.kv_heads, form.head_dim, form.keys);
    for (std::int64_t first = 0; first < form.keys; first += tokens) {
        const std::int64_t count = std::min(tokens, form.keys - first);
        ASSERT_EQ(call.run_cached(context.get(), cache.get(), first, count, call.y), HALYARD_OK)
            << halyard_last_error();
    }
    ASSERT_TRUE(call.check(call.expected(type, sum_roundings(form))))
        << "cached in " << name_of(type) << " by " << tokens << ": " << call.describe();
}

TEST(CudaAttention, SizesAndGroupsOfHeads) {
    for (const std::int64_t head_dim : {1, 16, 17, 64, 80, 128, 256}) {
        for (const std::int64_t group : {1, 3, 8}) {
            AttentionForm form = aligned(square(9, 2 * group, 2, head_dim));
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
            form.causal = false;
            form.queries = 1;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
}

TEST(CudaAttention, LengthsAroundSplits) {
    for (const std::int64_t keys : {127, 128, 129, 300}) {
        for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{3}, keys}) {
            for (const bool causal : {true, false}) {
                AttentionForm form = aligned(square(keys, 2, 1, 24));
                form.queries = queries;
                form.causal = causal;
                ASSERT_NO_FATAL_FAILURE(expect_right(form));
            }
        }
    }
    AttentionForm form = aligned(square(200, 3, 3, 32));
    form.keys = 5;
    form.causal = false;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
}

TEST(CudaAttention, Windows) {
    for (const std::int64_t window : {1, 17, 128, 200, 5000}) {
        for (const bool causal : {true, false}) {
            AttentionForm form = aligned(square(270, 2, 1, 16));
            form.window = window;
            form.causal = causal;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
            form.queries = 1;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
}

TEST(CudaAttention, ScaleAndSoftcap) {
    for (const float softcap : {0.0f, 0.5f, 30.0f}) {
        for (const float scale : {0.0f, 1.0f}) {
            AttentionForm form = aligned(square(40, 2, 1, 40));
            form.softcap = softcap;
            form.scale = scale;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
    AttentionForm form = aligned(square(300, 1, 1, 64));
    form.scale = 100;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
}

TEST(CudaAttention, NormAndRope) {
    for (const bool interleaved : {false, true}) {
        for (const std::int64_t rotary_dim : {0, 16, 48}) {
            AttentionForm form = aligned(square(37, 4, 2, 48));
            form.norm = rotary_dim != 16;
            form.norm_flags = rotary_dim == 0 ? 0u : unsigned{HALYARD_RMS_UNIT_OFFSET};
            form.norm_type = rotary_dim == 0 ? Dtype::f32 : Dtype::bf16;
            form.rotary_dim = rotary_dim;
            form.interleaved = interleaved;
            form.batch = 2;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
            ASSERT_NO_FATAL_FAILURE(expect_right_cached(form, Dtype::f32, 20));
            form.queries = 5;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
}

TEST(CudaAttention, TypesInAnyCombination) {
    for (const Dtype q : all_dtypes) {
        for (const Dtype k : all_dtypes) {
            for (const Dtype v : all_dtypes) {
                for (const Dtype y : all_dtypes) {
                    AttentionForm form = aligned(square(11, 4, 2, 40));
                    form.q = q;
                    form.k = k;
                    form.v = v;
                    form.y = y;
                    ASSERT_NO_FATAL_FAILURE(expect_right(form));
                }
            }
        }
    }
}

TEST(CudaAttention, CachesOfEveryType) {
    for (const Dtype type : all_dtypes) {
        for (const Dtype operands : all_dtypes) {
            AttentionForm form = aligned(square(15, 4, 2, 32));
            form.q = form.k = form.v = form.y = operands;
            ASSERT_NO_FATAL_FAILURE(expect_right_cached(form, type, 1));
            form.batch = 3;
            ASSERT_NO_FATAL_FAILURE(expect_right_cached(form, type, 7));
        }
        AttentionForm form = aligned(square(290, 4, 1, 24));
        form.window = 100;
        form.softcap = 5;
        ASSERT_NO_FATAL_FAILURE(expect_right_cached(form, type, 200));
    }
}

TEST(CudaAttention, RanksPitchesAndPlacement) {
    for (const std::int64_t batch : {0, 3}) {
        for (const std::int64_t gap : {0, 1, 8}) {
            for (const Dtype type : all_dtypes) {
                for (const std::int64_t head_dim : {19, 32}) {
                    AttentionForm form = aligned(square(12, 4, 2, head_dim));
                    form.batch = batch;
                    form.gap = gap;
                    form.placement = gap == 1 ? Placement::ends_at_guard : Placement::starts_at_guard;
                    form.q = form.k = form.v = form.y = type;
                    ASSERT_NO_FATAL_FAILURE(expect_right(form));
                    form.queries = 2;
                    ASSERT_NO_FATAL_FAILURE(expect_right(form));
                }
            }
        }
    }
}

// A query's bits depend on its own keys alone: not on the other queries and sequences, the pieces in which keys came,
// or whether they are cached in f32.
TEST(CudaAttention, BitsDoNotDependOnTheRestOfTheCall) {
    AttentionForm form = aligned(square(260, 4, 2, 32));
    form.batch = 2;
    form.rotary_dim = 32;
    form.norm = true;
    AttentionCase call(form);
    to_device(call);
    const Context context;
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    const std::vector<std::uint32_t> together = call.y.all_bits();
    const std::int64_t pieces[] = {1, 130, 259, 260};
    const Cache cache = make_device_cache(Dtype::f32, 2, 2, 32, 260);
    call.y.clear();
    std::int64_t first = 0;
    for (const std::int64_t end : pieces) {
        ASSERT_EQ(call.run_cached(context.get(), cache.get(), first, end - first, call.y), HALYARD_OK)
            << halyard_last_error();
        first = end;
    }
    EXPECT_TRUE(same_bits(Dtype::f32, together, call.y.all_bits()));
    // One sequence, of which the cache has a place by itself and another number.
    const Cache other = make_device_cache(Dtype::f32, 3, 2, 32, 260);
    const std::int64_t sequences[] = {2};
    call.y.clear();
    TokenView q(call.q, 0, 260, 1), k(call.k, 0, 260, 1), v(call.v, 0, 260, 1), y(call.y, 0, 260, 1);
    ASSERT_EQ(finished(halyard_attention_cached(context.get(), &q.view, &k.view, &v.view, other.get(), 0, sequences,
                                                &call.options, &y.view)),
              HALYARD_OK)
        << halyard_last_error();
    const std::vector<std::uint32_t> alone = call.y.all_bits();
    EXPECT_TRUE(std::equal(alone.begin() + static_cast<std::ptrdiff_t>(alone.size() / 2), alone.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(together.size() / 2)));
}

TEST(CudaAttention, SequencesOfTheirOwnLengths) {
    AttentionForm form = aligned(square(20, 2, 1, 16));
    form.batch = 3;
    AttentionCase call(form);
    to_device(call);
    const Matrix expected = call.expected(Dtype::f32, sum_roundings(form));
    const Cache cache = make_device_cache(Dtype::f32, 5, 1, 16, 20);
    // The sequences are ahead of each other until the last call.
    const std::int64_t sequences[] = {4, 0, 1}, lengths[] = {11, 19, 19};
    for (std::int64_t b = 0; b < 3; b++) {
        TokenView q(call.q, 0, lengths[b], b), k(call.k, 0, lengths[b], b), v(call.v, 0, lengths[b], b),
            y(call.y, 0, lengths[b], b);
        ASSERT_EQ(halyard_attention_cached(nullptr, &q.view, &k.view, &v.view, cache.get(), 0, &sequences[b],
                                           &call.options, &y.view),
                  HALYARD_OK)
            << halyard_last_error();
    }
    for (std::int64_t token = 11; token < 19; token++) {
        TokenView q(call.q, token, 1, 0), k(call.k, token, 1, 0), v(call.v, token, 1, 0), y(call.y, token, 1, 0);
        ASSERT_EQ(halyard_attention_cached(nullptr, &q.view, &k.view, &v.view, cache.get(), 0, sequences, &call.options,
                                           &y.view),
                  HALYARD_OK)
            << halyard_last_error();
    }
    TokenView q(call.q, 19, 1), k(call.k, 19, 1), v(call.v, 19, 1), y(call.y, 19, 1);
    ASSERT_EQ(finished(halyard_attention_cached(nullptr, &q.view, &k.view, &v.view, cache.get(), 0, sequences,
                                                &call.options, &y.view)),
              HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(call.check(expected));
}

// What a query does not see, whatever it is, does not reach it; what it sees does.
TEST(CudaAttention, NaNAndInfinityReachWhoSeesThem) {
    for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        for (const bool in_keys : {true, false}) {
            AttentionCase call(aligned(square(140, 2, 2, 16)));
            to_device(call);
            ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
            const std::vector<std::uint32_t> before = call.y.all_bits();
            Tensor &tensor = in_keys ? call.k : call.v;
            tensor.set(2 * 100 + 1, 3, special);  // position 100, the second head
            ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
            for (std::int64_t token = 0; token < 140; token++) {
                for (std::int64_t head = 0; head < 2; head++) {
                    for (std::int64_t i = 0; i < 16; i++) {
                        const std::int64_t row = 2 * token + head;
                        const double got = call.y.get(row, i);
                        if (head == 0 || token < 100 || (!in_keys && i != 3)) {
                            ASSERT_EQ(call.y.bits(row, i), before[static_cast<std::size_t>(row * 16 + i)]) << token;
                        } else if (std::isnan(special)) {
                            ASSERT_TRUE(std::isnan(got)) << token;
                        } else if (!in_keys) {
                            ASSERT_FALSE(std::isfinite(got)) << token;
                        }
                    }
                }
            }
        }
    }
}

TEST(CudaAttention, QueriesThatSeeNothingGiveZeros) {
    AttentionForm form = aligned(square(40, 2, 1, 20));
    form.causal = false;
    AttentionCase call(form);
    to_device(call);
    const TokenView k(call.k, 0, 0), v(call.v, 0, 0);
    ASSERT_EQ(finished(halyard_attention(nullptr, &call.q.view, &k.view, &v.view, &call.options, &call.y.view)),
              HALYARD_OK)
        << halyard_last_error();
    for (const std::uint32_t bits : call.y.all_bits()) {
        ASSERT_EQ(bits, 0u);
    }
    call.q.fill([](std::int64_t, std::int64_t i) { return i == 0 ? 1.0 : 0.0; });
    call.k.fill([](std::int64_t, std::int64_t i) { return i == 0 ? -INFINITY : 0.0; });
    ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    for (const std::uint32_t bits : call.y.all_bits()) {
        ASSERT_EQ(bits, 0u);
    }
}

TEST(CudaAttention, MayWriteWhereTheQueriesAre) {
    AttentionForm form = aligned(square(33, 4, 2, 24));
    AttentionCase call(form);
    to_device(call);
    ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    const std::vector<std::uint32_t> apart = call.y.all_bits();
    ASSERT_EQ(call.run(nullptr, call.q), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(same_bits(Dtype::f32, apart, call.q.all_bits()));
}

using CudaAttentionMemory = OnStandIn;

TEST_F(CudaAttentionMemory, IsNotAllocatedInSteadyState) {
    AttentionForm form = aligned(square(12, 4, 2, 32));
    form.rotary_dim = 32;
    form.norm = true;
    AttentionCase call(form);
    to_device(call);
    const Context context;
    const Cache cache = make_device_cache(Dtype::f32, 1, 2, 32, 12);
    ASSERT_EQ(call.run_cached(context.get(), cache.get(), 0, 10, call.y), HALYARD_OK) << halyard_last_error();
    const long before = allocations();
    {
        const Capture capture;
        EXPECT_EQ(call.run_cached(context.get(), cache.get(), 10, 1, call.y), HALYARD_OK) << halyard_last_error();
    }
    EXPECT_EQ(call.run_cached(context.get(), cache.get(), 11, 1, call.y), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(allocations(), before);
    EXPECT_TRUE(call.check(call.expected(Dtype::f32, sum_roundings(form))));
}

TEST(CudaAttention, IsOnOneDevice) {
    AttentionCase call(aligned(square(4, 2, 1, 16)));
    to_device(call.q, call.k, call.y);
    EXPECT_EQ(call.run(nullptr), HALYARD_UNSUPPORTED);
    EXPECT_NE(std::string(halyard_last_error()).find("v is on the CPU, but q is on CUDA device 0"), std::string::npos)
        << halyard_last_error();
}

}  // namespace
}  // namespace halyard::tests
