// Attention of prompts on a CUDA device: positions that many queries see go by way of products of matrices where
// cuBLASLt is there, in 16 bits. Against the float64 reference, with queries and weights rounded to these.
#include <cmath>
#include <limits>

#include "stand_ins.h"
#include "support/attention.h"

namespace halyard::tests {
namespace {

AttentionForm prompt(Dtype type, std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads,
                     std::int64_t head_dim) {
    AttentionForm form = square(tokens, heads, kv_heads, head_dim);
    form.q = form.k = form.v = form.y = type;
    form.placement = Placement::starts_at_guard;
    return form;
}

/** A thread adds up to 32 of 1024 weights, and 8 partial sums are joined; then the splits follow each other. */
double sum_roundings(const AttentionForm &form) {
    return 32 + 16 + static_cast<double>((form.keys + 127) / 128 + 1);
}

void to_device(AttentionCase &call) {
    tests::to_device(call.q, call.k, call.v, call.y);
    for (const auto &weight : {&call.q_norm_weight, &call.k_norm_weight}) {
        if (*weight) {
            tests::to_device(**weight);
        }
    }
}

class CudaPrompts : public testing::TestWithParam<Dtype> {
protected:
    /** Expects the right results of tensors, and by way of a cache that has `held` positions already. */
    void expect_right(const AttentionForm &form, std::int64_t held = 0) const {
        AttentionCase call(form);
        to_device(call);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << ": " << call.describe();
        ASSERT_TRUE(call.check(expected(call, form.k == form.v ? form.k : Dtype::f32))) << call.describe();
        if (form.queries < form.keys) {
            return;
        }
        const Cache cache = make_cache(type, form.batches(), form.kv_heads, form.head_dim, form.keys, 1, cuda_device);
        call.y.clear();
        if (held > 0) {
            ASSERT_EQ(call.run_cached(context.get(), cache.get(), 0, held, call.y), HALYARD_OK) << halyard_last_error();
        }
        ASSERT_EQ(call.run_cached(context.get(), cache.get(), held, form.keys - held, call.y), HALYARD_OK)
            << halyard_last_error();
        ASSERT_TRUE(call.check(expected(call, type))) << "cached, " << call.describe();
    }

    /** With keys and values of this type. */
    static Matrix expected(const AttentionCase &call, Dtype in) {
        return call.expected(in, sum_roundings(call.form), in);
    }

    const Dtype type = GetParam();
    const Context context;
};

TEST_P(CudaPrompts, AreRightForEveryLength) {
    for (const std::int64_t tokens : {255, 256, 385, 520}) {
        for (const bool causal : {true, false}) {
            AttentionForm form = prompt(type, tokens, 2, 1, 16);
            form.causal = causal;
            ASSERT_NO_FATAL_FAILURE(expect_right(form, causal ? 1 : 0));
        }
    }
    // More positions than one product has.
    AttentionForm form = prompt(type, 1300, 1, 1, 16);
    form.queries = 40;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
}

TEST_P(CudaPrompts, AreRightForEveryFormOfHeads) {
    for (const std::int64_t head_dim : {8, 40, 128}) {
        for (const std::int64_t group : {1, 3}) {
            AttentionForm form = prompt(type, 400, 2 * group, 2, head_dim);
            form.queries = 100;
            ASSERT_NO_FATAL_FAILURE(expect_right(form));
        }
    }
    // Heads that are no multiple of 16 bytes.
    ASSERT_NO_FATAL_FAILURE(expect_right(prompt(type, 300, 2, 1, 12)));
}

TEST_P(CudaPrompts, DoWhatTheirOptionsSay) {
    AttentionForm form = prompt(type, 450, 4, 2, 32);
    form.batch = 2;
    ASSERT_NO_FATAL_FAILURE(expect_right(form, 100));
    for (const bool causal : {true, false}) {
        form.batch = 0;
        form.window = 420;
        form.causal = causal;
        ASSERT_NO_FATAL_FAILURE(expect_right(form));
    }
    form.window = 0;
    form.causal = true;
    form.softcap = 2;
    form.scale = 0.3f;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
    form.softcap = 0;
    form.norm = true;
    form.rotary_dim = 32;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
    form.batch = 2;
    ASSERT_NO_FATAL_FAILURE(expect_right(form, 17));
    // Heads that begin at no multiple of 16 bytes, where their copies do.
    form = prompt(type, 300, 2, 1, 32);
    form.gap = 1;
    form.batch = 2;
    ASSERT_NO_FATAL_FAILURE(expect_right(form, 17));
    // Queries in f32 are rounded for the products.
    form = prompt(type, 300, 2, 1, 32);
    form.q = form.k = form.v = form.y = Dtype::f32;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
    // Keys and values of two types are both copied in f32.
    form.k = type;
    form.v = type == Dtype::f16 ? Dtype::bf16 : Dtype::f16;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
    form.rotary_dim = 32;
    ASSERT_NO_FATAL_FAILURE(expect_right(form));
}

TEST_P(CudaPrompts, AreMultiplied) {
    AttentionForm form = prompt(type, 400, 2, 1, 16), rotated = form, misaligned = form;
    rotated.rotary_dim = 16;
    misaligned.gap = 1;
    for (const AttentionForm &each : {form, rotated, misaligned}) {
        AttentionCase call(each);
        to_device(call);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        const long before = products_by_blaslt();
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        // Two of each of the blocks of queries that begin at 256 and 384.
        EXPECT_EQ(products_by_blaslt() - before, before < 0 ? 0 : 4) << call.describe();
    }
}

// Neither do these get what a query does not see.
TEST_P(CudaPrompts, GetNoNaNFromWhatTheyDoNotSee) {
    AttentionCase call(prompt(type, 400, 2, 1, 16));
    to_device(call);
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    const std::vector<std::uint32_t> before = call.y.all_bits();
    for (Tensor *tensor : {&call.k, &call.v}) {
        const std::uint32_t bits = tensor->bits(200, 3);
        tensor->set(200, 3, std::numeric_limits<double>::quiet_NaN());
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (std::int64_t row = 0; row < call.y.rows(); row++) {
            for (std::int64_t i = 0; i < 16; i++) {
                if (row / 2 < 200 || (tensor == &call.v && i != 3)) {
                    ASSERT_EQ(call.y.bits(row, i), before[static_cast<std::size_t>(row * 16 + i)]) << row / 2;
                } else {
                    ASSERT_TRUE(std::isnan(call.y.get(row, i))) << row / 2;
                }
            }
        }
        tensor->set_bits(200, 3, bits);
    }
}

TEST_P(CudaPrompts, OfNothingButMinusInfinityGiveZeros) {
    AttentionCase call(prompt(type, 400, 2, 1, 16));
    to_device(call);
    call.q.fill([](std::int64_t, std::int64_t i) { return i == 0 ? 1.0 : 0.0; });
    call.k.fill([](std::int64_t, std::int64_t i) { return i == 0 ? -INFINITY : 0.0; });
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    for (const std::uint32_t bits : call.y.all_bits()) {
        ASSERT_EQ(bits, 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaPrompts, testing::Values(Dtype::f16, Dtype::bf16),
                         [](const auto &info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace halyard::tests
