// Every bad argument of attention: the call fails with the right kind of status, the message names the function and the
// argument, nothing is written and nothing is appended.
#include "support/attention.h"

#include <cmath>
#include <limits>

namespace halyard::tests {
namespace {

constexpr std::int64_t tokens = 6, heads = 4, kv_heads = 2, head_dim = 16, room = 20, held = 3;

/** A call to be spoiled, of halyard_attention or by way of a cache of two layers and three sequences. */
struct Spoiled {
    AttentionCase call;
    Cache cache = make_cache(Dtype::f32, 3, kv_heads, head_dim, room, 2);
    Rope other_rope;
    DLTensor *q = &call.q.view, *k = &call.k.view, *v = &call.v.view, *y = &call.y.view;
    halyard_kv_cache *used = cache.get();
    std::int64_t layer = 1;
    std::int64_t sequences[2] = {2, 0};
    std::int64_t strides[4] = {};
    halyard_attention_options *options = &call.options;

    Spoiled() : call(form()) { call.options.log_sum_exp = &call.log_sum_exp.view; }

    static AttentionForm form() {
        AttentionForm form;
        form.batch = 2;
        form.queries = form.keys = tokens;
        form.heads = heads;
        form.kv_heads = kv_heads;
        form.head_dim = head_dim;
        form.norm = true;
        form.rotary_dim = head_dim;
        return form;
    }

    /** Three positions of sequence 0, so that tables of angles and room end soon. */
    void hold() {
        TokenView k0(call.k, 0, held, 0), v0(call.v, 0, held, 0);
        const std::int64_t zero = 0;
        ASSERT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 1, &zero, &k0.view, &v0.view), HALYARD_OK)
            << halyard_last_error();
        other_rope = make_rope(head_dim, head_dim, false, held + tokens);
        call.options.rope = other_rope.get();
    }

    halyard_status run(bool cached) {
        return cached ? halyard_attention_cached(nullptr, q, k, v, used, layer, sequences, options, y)
                      : halyard_attention(nullptr, q, k, v, options, y);
    }

    void set_strides(DLTensor &view, const Shape &to) {
        std::copy(to.begin(), to.end(), strides);
        view.strides = strides;
    }
    void move(DLTensor *tensor, const DLTensor &to, std::int64_t elements) {
        tensor->data = static_cast<char *>(to.data) + to.byte_offset + elements * 4;
        tensor->byte_offset = 0;
    }
    void use_rope(std::int64_t width, std::int64_t positions) {
        other_rope = make_rope(width, width, false, positions);
        call.options.rope = other_rope.get();
    }
};

enum Calls { both, plain_only, cached_only };

struct Mistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(Spoiled &);
    Calls calls = both;
};

const Mistake mistakes[] = {
    {"null", "q", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.q = nullptr; }},
    {"null", "k", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.k = nullptr; }},
    {"null", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v = nullptr; }},
    {"null", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y = nullptr; }},
    {"null", "cache", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.used = nullptr; }, cached_only},
    {"null data", "q", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.q->data = nullptr; }},
    {"null data", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->data = nullptr; }},
    {"null data", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->data = nullptr; }},
    {"CUDA", "k", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.k->device.device_type = kDLCUDA; }},
    {"CUDA", "y", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.y->device.device_type = kDLCUDA; }},
    {"int32", "q", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.q->dtype.code = kDLInt; }},
    {"f64", "k", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.k->dtype.bits = 64; }},
    {"CUDA", "q_norm_weight", HALYARD_UNSUPPORTED,
     [](Spoiled &s) { s.call.q_norm_weight->view.device.device_type = kDLCUDA; }},
    {"int32", "k_norm_weight", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.call.k_norm_weight->view.dtype.code = kDLInt; }},
    {"spread features", "q", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.set_strides(*s.q, {4000, 400, 40, 2});
     }},
    {"negative pitch", "v", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.set_strides(*s.v, {4000, -400, 40, 1});
     }},
    {"heads in one place", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.set_strides(*s.y, {tokens * heads * head_dim, heads * head_dim, 0, 1});
     }},
    {"off by a byte", "k", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.k->byte_offset++; }},
    {"rank 2", "q", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.q->ndim = 2; }},
    {"rank 2", "k", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.k->ndim = 2; }},
    {"rank 5", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->ndim = 5; }},
    {"rank 3 beside 4", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.k->shape++;
         s.k->ndim = 3;
     }},
    {"rank 3 beside 4", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.y->shape++;
         s.y->ndim = 3;
     }},
    {"a sequence less", "k", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.k->shape[0]--; }},
    {"a sequence less", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->shape[0]--; }},
    {"a sequence less", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[0]--; }},
    {"a token less", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->shape[1]--; }},
    {"a token less", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[1]--; }},
    {"a token less than q", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.k->shape[1]--;
         s.v->shape[1]--;
     }},
    {"a token less", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.call.options.causal = 0;
         s.call.options.rope = nullptr;
         s.k->shape[1]--;
         s.v->shape[1]--;
     },
     cached_only},
    {"a token more", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.q->shape[1]--;
         s.y->shape[1]--;
     },
     cached_only},
    {"a head less", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->shape[2]--; }},
    {"a head less", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[2]--; }},
    {"no multiple of the heads of k", "k|q", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.q->shape[2]--;
         s.y->shape[2]--;
     }},
    {"no heads", "q", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.q->shape[2] = 0;
         s.y->shape[2] = 0;
     }},
    {"no heads", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.k->shape[2] = 0;
         s.v->shape[2] = 0;
     }},
    {"other heads than the cache", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.k->shape[2] = 1;
         s.v->shape[2] = 1;
     },
     cached_only},
    {"a feature less", "k", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.k->shape[3]--; }},
    {"a feature less", "v", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.v->shape[3]--; }},
    {"a feature less", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[3]--; }},
    {"no features", "q", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         for (DLTensor *tensor : {s.q, s.k, s.v, s.y}) {
             tensor->shape[3] = 0;
         }
     }},
    {"too many features", "q", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         for (DLTensor *tensor : {s.q, s.k, s.v, s.y}) {
             tensor->shape[0] = 0;
             tensor->shape[3] = 257;
         }
     }},
    {"other features than the cache", "k", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.call.options.rope = nullptr;
         s.call.options.q_norm_weight = s.call.options.k_norm_weight = nullptr;
         for (DLTensor *tensor : {s.q, s.k, s.v, s.y}) {
             tensor->shape[3]--;
         }
     },
     cached_only},
    {"negative", "scale", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.scale = -1; }},
    {"NaN", "scale", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.scale = NAN; }},
    {"infinite", "scale", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.scale = INFINITY; }},
    {"negative", "softcap", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.softcap = -1; }},
    {"infinite", "softcap", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.softcap = INFINITY; }},
    {"denormal", "softcap", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.softcap = 1e-40f; }},
    {"too large", "softcap", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.softcap = 1e31f; }},
    {"negative", "sliding_window", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.sliding_window = -1; }},
    {"negative", "qk_norm_eps", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.qk_norm_eps = -1; }},
    {"NaN", "qk_norm_eps", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.qk_norm_eps = NAN; }},
    {"unknown bits", "qk_norm_flags", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.options.qk_norm_flags = 64; }},
    {"a feature less", "q_norm_weight", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.call.q_norm_weight->view.shape[0]--; }},
    {"a feature less", "k_norm_weight", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.call.k_norm_weight->view.shape[0]--; }},
    {"of other heads", "rope", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.use_rope(head_dim + 2, 100); }},
    {"of too few positions", "rope", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.use_rope(head_dim, tokens - 1); }},
    {"of too few positions for what is held", "rope", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.use_rope(head_dim, held + tokens - 1); }, cached_only},
    {"negative", "layer", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.layer = -1; }, cached_only},
    {"too large", "layer", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.layer = 2; }, cached_only},
    {"negative", "sequences", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.sequences[1] = -1; }, cached_only},
    {"too large", "sequences", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.sequences[0] = 3; }, cached_only},
    {"twice", "sequences", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.sequences[0] = 0; }, cached_only},
    {"no room", "k|cache", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.cache = make_cache(Dtype::f32, 3, kv_heads, head_dim, held + tokens - 1, 2);
         s.used = s.cache.get();
         s.hold();
     },
     cached_only},
    {"is k", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move(s.y, *s.k, 0); }},
    {"ends in v", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move(s.y, *s.v, 1 - 2 * tokens * heads * head_dim); }},
    {"is q one element on", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move(s.y, *s.q, 1); }},
    {"is q in another order", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.move(s.y, *s.q, 0);
         s.set_strides(*s.y, {tokens * heads * head_dim, head_dim, tokens * head_dim, 1});
     }},
    {"is at a weight", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move(s.y, s.call.q_norm_weight->view, head_dim - 1); }},
    {"in f16", "log_sum_exp", HALYARD_UNSUPPORTED,
     [](Spoiled &s) { s.call.log_sum_exp.view.dtype = dlpack_type(Dtype::f16); }},
    {"a head less", "log_sum_exp", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.call.log_sum_exp.view.shape[2] = heads - 1; }},
    {"without the batch", "log_sum_exp", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.call.log_sum_exp.view.ndim = 2;
         s.call.log_sum_exp.view.shape++;
     }},
    {"every token in one place", "log_sum_exp", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.set_strides(s.call.log_sum_exp.view, {tokens * heads, 0, 1}); }},
    {"is y", "log_sum_exp", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move(&s.call.log_sum_exp.view, *s.y, 0); }},
    {"ends in q", "log_sum_exp", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move(&s.call.log_sum_exp.view, *s.q, 1 - 2 * tokens * heads); }},
    {"is at a weight", "log_sum_exp", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move(&s.call.log_sum_exp.view, s.call.k_norm_weight->view, head_dim - 1); }},
};

TEST(AttentionArguments, MistakesAreRefused) {
    for (const Mistake &mistake : mistakes) {
        for (const bool cached : {false, true}) {
            if (mistake.calls == (cached ? plain_only : cached_only)) {
                continue;
            }
            Spoiled s;
            s.hold();
            mistake.make(s);
            std::vector<std::vector<std::uint8_t>> before, after;
            const auto snapshot = [&](std::vector<std::vector<std::uint8_t>> &all) {
                for (const Tensor *tensor : {&s.call.q, &s.call.k, &s.call.v, &s.call.y, &s.call.log_sum_exp}) {
                    all.push_back(tensor->snapshot());
                }
            };
            snapshot(before);
            const std::string function = cached ? "halyard_attention_cached" : "halyard_attention";
            EXPECT_TRUE(refused(s.run(cached), mistake.status, function, mistake.arguments))
                << mistake.arguments << ": " << mistake.what;
            snapshot(after);
            EXPECT_EQ(before, after) << mistake.arguments << ": " << mistake.what;
            for (std::int64_t sequence = 0; sequence < 3; sequence++) {
                EXPECT_EQ(halyard_kv_cache_length(s.cache.get(), 1, sequence), sequence == 0 ? held : 0)
                    << mistake.arguments << ": " << mistake.what;
            }
        }
    }
}

TEST(AttentionArguments, KeysAreNotBlamedForQueriesWithoutHeads) {
    for (const bool cached : {false, true}) {
        Spoiled s;
        s.q->shape[2] = s.y->shape[2] = 0;
        ASSERT_EQ(s.run(cached), HALYARD_INVALID_ARGUMENT);
        EXPECT_NE(std::string(halyard_last_error()).find(": q has no heads"), std::string::npos)
            << halyard_last_error();
    }
}

// What none of the mistakes above changes is right.
TEST(AttentionArguments, WithoutMistakesTheyAreNot) {
    for (const bool cached : {false, true}) {
        Spoiled s;
        s.hold();
        EXPECT_EQ(s.run(cached), HALYARD_OK) << halyard_last_error();
        s.call.options = {};
        EXPECT_EQ(s.run(cached), HALYARD_OK) << halyard_last_error();
    }
}

TEST(AttentionArguments, NoOptions) {
    AttentionForm form;
    form.queries = form.keys = 9;
    form.causal = false;
    AttentionCase call(form);
    ASSERT_EQ(halyard_attention(nullptr, &call.q.view, &call.k.view, &call.v.view, nullptr, &call.y.view), HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(call.check(call.expected()));
}

TEST(AttentionArguments, MoreKeysThanAnyMemoryHolds) {
    // One key, repeated by a stride of 0.
    AttentionForm form;
    form.batch = form.queries = form.keys = 1;
    form.heads = form.kv_heads = 1;
    form.head_dim = 1;
    AttentionCase call(form);
    std::int64_t shape[] = {1, 0, 1, 1}, strides[] = {0, 0, 1, 1};
    // A key takes 68 bytes: the second number of them 2^64 + 832 in all.
    const Context one_thread(halyard_context_isa(nullptr), 1);
    for (const std::int64_t keys : {std::int64_t{1} << 41, std::int64_t{271275648142787536}}) {
        shape[1] = keys;
        for (DLTensor *tensor : {&call.k.view, &call.v.view}) {
            tensor->ndim = 4;
            tensor->shape = shape;
            tensor->strides = strides;
        }
        const std::vector<std::uint8_t> before = call.y.snapshot();
        EXPECT_EQ(halyard_attention(one_thread.get(), &call.q.view, &call.k.view, &call.v.view, nullptr, &call.y.view),
                  HALYARD_OUT_OF_MEMORY)
            << keys << ": " << halyard_last_error();
        EXPECT_TRUE(call.y.snapshot() == before) << keys;
    }
}

TEST(AttentionArguments, AnOutputInTheCachesMemory) {
    const halyard_kv_cache_options options = {1, 1, kv_heads, head_dim, room, dlpack_type(Dtype::f32)};
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK);
    std::vector<char> memory(static_cast<std::size_t>(bytes) + 64);
    char *const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    halyard_kv_cache *made = nullptr;
    ASSERT_EQ(halyard_kv_cache_create(&options, aligned, bytes, &made), HALYARD_OK) << halyard_last_error();
    const Cache cache(made);
    AttentionForm form;
    form.queries = form.keys = 4;
    form.heads = heads;
    form.kv_heads = kv_heads;
    form.head_dim = head_dim;
    AttentionCase call(form);
    call.options.log_sum_exp = &call.log_sum_exp.view;
    for (DLTensor *tensor : {&call.q.view, &call.k.view, &call.v.view, &call.y.view, &call.log_sum_exp.view}) {
        const DLTensor before = *tensor;
        tensor->data = aligned + 64;
        tensor->byte_offset = 0;
        const char *const name = tensor == &call.q.view   ? "q"
                                 : tensor == &call.k.view ? "k"
                                 : tensor == &call.v.view ? "v"
                                 : tensor == &call.y.view ? "y"
                                                          : "log_sum_exp";
        EXPECT_TRUE(refused(halyard_attention_cached(nullptr, &call.q.view, &call.k.view, &call.v.view, cache.get(), 0,
                                                     nullptr, &call.options, &call.y.view),
                            HALYARD_INVALID_ARGUMENT, "halyard_attention_cached", name));
        *tensor = before;
    }
    EXPECT_EQ(halyard_kv_cache_length(cache.get(), 0, 0), 0);
}

}  // namespace
}  // namespace halyard::tests
