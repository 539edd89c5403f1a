// The cache of keys and values: what is read back, whatever the pieces in which it came, the types and the threads;
// where it lies, and how large it is. Bad arguments: test_kv_cache_arguments.cpp.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "operations/isas.h"
#include "support/kv_cache.h"

namespace halyard::tests {
namespace {

/** Any bits at all: NaN, Inf and denormals among them, and ties of rounding. */
std::uint32_t any_bits(Dtype type, std::uint64_t seed, std::int64_t position, std::int64_t head, std::int64_t feature) {
    const std::uint64_t random = hash(seed + 100 * static_cast<std::uint64_t>(head),
                                      static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(feature));
    const auto bits = static_cast<std::uint32_t>(random >> 16);
    if (type != Dtype::f32) {
        return bits & 0xffff;
    }
    switch (random % 4) {
    case 0:
        return bits & 0xffff8000;  // halfway between numbers of bf16, or one of them
    case 1:
        return (bits & 0x87fff000) | 0x38000000;  // about the same for f16
    default:
        return bits;
    }
}

/** What must be read: the source's bits in its type, rounded to the cache's type and to that of the result. */
std::uint32_t through(Dtype source, Dtype stored, Dtype result, std::uint32_t bits) {
    return encode(result, decode(stored, encode(stored, decode(source, bits))));
}

/** Reads tokens [first, first + tokens.count) of a layer and sequence in tokens.type, and compares them. */
testing::AssertionResult check_read(const halyard_context *context, const Cache &cache, Dtype source, Dtype stored,
                                    const Tokens &tokens, Contents contents, std::int64_t first, std::int64_t layer = 0,
                                    std::int64_t sequence = 0, std::uint64_t seed = 0) {
    Tensor k(tokens.type, tokens.form()), v(tokens.type, tokens.form());
    if (halyard_kv_cache_read(context, cache.get(), layer, sequence, first, &k.view, &v.view) != HALYARD_OK) {
        return testing::AssertionFailure() << halyard_last_error();
    }
    if (!k.surroundings_intact() || !v.surroundings_intact()) {
        return testing::AssertionFailure() << "written outside the elements";
    }
    const Tensor *const tensors[] = {&k, &v};
    for (int which = 0; which < 2; which++) {
        const std::uint64_t all = (which == 0 ? key_seed : value_seed) + seed;
        for (std::int64_t row = 0; row < k.rows(); row++) {
            for (std::int64_t i = 0; i < tokens.head_dim; i++) {
                const std::uint32_t expected =
                    through(source, stored, tokens.type,
                            contents(source, all, first + row / tokens.heads, row % tokens.heads, i));
                const std::uint32_t got = tensors[which]->bits(row, i);
                if (got != expected && !(is_nan(tokens.type, got) && is_nan(tokens.type, expected))) {
                    return testing::AssertionFailure()
                           << (which == 0 ? "key" : "value") << " of position " << first + row / tokens.heads
                           << ", head " << row % tokens.heads << ", feature " << i << " is " << show(tokens.type, got)
                           << " instead of " << show(tokens.type, expected);
                }
            }
        }
    }
    return testing::AssertionSuccess();
}

// ---- What is read back ----

class KvCache : public testing::TestWithParam<IsaTypeCase> {
protected:
    const halyard_isa isa = GetParam().isa;
    const Dtype type = GetParam().type;
};

INSTANTIATE_TEST_SUITE_P(All, KvCache, testing::ValuesIn(isa_type_cases()), name_of_isa_type_case);

#if defined(HALYARD_TESTS_REDUCED)
const std::vector<std::int64_t> head_dims = {1, 33, 80}, capacities = {1, 17, 513};
#else
const std::vector<std::int64_t> head_dims = {1, 7, 8, 15, 16, 17, 33, 64, 80, 127, 128, 256},
                                capacities = {1, 15, 16, 17, 511, 512, 513, 1500};
#endif

TEST_P(KvCache, ReadsWhatWasAppended) {
    const Context context(isa, 2);
    std::size_t turn = 0;
    for (const std::int64_t capacity : capacities) {
        for (const std::int64_t head_dim : head_dims) {
            const Dtype source = all_dtypes[turn % 3], result = all_dtypes[turn / 3 % 3];
            turn++;
            const Cache cache(options_of(1, 1, 2, head_dim, capacity, type));
            const Tokens tokens = {source, 0, capacity, 2, head_dim};
            ASSERT_EQ(append(context.get(), cache, tokens, any_bits, 0), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(cache.length(0, 0), capacity);
            ASSERT_TRUE(cache.memory.surroundings_intact());
            ASSERT_TRUE(check_read(context.get(), cache, source, type, {result, 0, capacity, 2, head_dim}, any_bits, 0))
                << "head_dim " << head_dim << ", capacity " << capacity << ", from " << name_of(source);
            // Parts of it, from odd places on.
            for (std::int64_t first = 1; first < capacity; first = 3 * first + 2) {
                const std::int64_t count = std::min<std::int64_t>(capacity - first, 1 + first % 40);
                ASSERT_TRUE(check_read(context.get(), cache, source, type, {result, 0, count, 2, head_dim, 3, true},
                                       any_bits, first))
                    << "head_dim " << head_dim << ", from " << first << " on";
            }
        }
    }
}

// The bytes of the cache do not depend on the pieces, the layout of the tensors, the threads or the instruction set.
TEST_P(KvCache, IsTheSameInPiecesAsAtOnce) {
    const std::vector<std::vector<std::int64_t>> piece_lists = {{1},      {3, 13},  {15, 1, 17}, {64},
                                                                {100, 1}, {511, 2}, {1000}};
    std::size_t turn = 0;
    for (const std::int64_t capacity : capacities) {
        for (const std::int64_t head_dim : head_dims) {
            const Dtype source = all_dtypes[turn % 3];
            const Cache whole(options_of(1, 1, 1, head_dim, capacity, type));
            const Context baseline(weakest_isa);
            ASSERT_EQ(append(baseline.get(), whole, {source, 0, capacity, 1, head_dim}, ordinary, 0), HALYARD_OK)
                << halyard_last_error();

            const std::vector<std::int64_t> &pieces = piece_lists[turn++ % piece_lists.size()];
            const Cache cache(whole.options);
            const Context context(isa, 1 + static_cast<int>(turn % 3));
            for (std::int64_t first = 0, i = 0, count; first < capacity; first += count, i++) {
                count = std::min(capacity - first, pieces[static_cast<std::size_t>(i) % pieces.size()]);
                const Tokens tokens = {source, 0, count, 1, head_dim, i % 4, i % 2 == 1};
                ASSERT_EQ(append(context.get(), cache, tokens, ordinary, first), HALYARD_OK) << halyard_last_error();
                ASSERT_EQ(cache.length(0, 0), first + count);
            }
            ASSERT_TRUE(cache.memory.snapshot() == whole.memory.snapshot())
                << "head_dim " << head_dim << ", capacity " << capacity << ", pieces of " << pieces[0];
        }
    }
}

// As runtime/layout/kv.h says: the attention kernels read it so.
TEST_P(KvCache, LiesInPanels) {
    const std::int64_t capacity = 700, head_dim = 37, heads = 2, room = 704, columns = 48;
    // In bf16 the inputs of a panel, features of keys and positions of values, go in pairs, the earlier one in the upper half.
    const std::int64_t pair = type == Dtype::bf16 ? 2 : 1, key_inputs = (head_dim + pair - 1) / pair * pair;
    const auto in_panel = [&](std::int64_t input, std::int64_t column) {
        return input / pair * 16 * pair + column * pair + (pair - 1 - input % pair);
    };
    const Cache cache(options_of(1, 1, heads, head_dim, capacity, type));
    const Context context(isa);
    ASSERT_EQ(append(context.get(), cache, {Dtype::f32, 0, capacity, heads, head_dim}, ordinary, 0), HALYARD_OK);
    const std::int64_t head_elements = (room * (key_inputs + columns) * static_cast<std::int64_t>(size_of(type)) + 63) /
                                       64 * 64 / static_cast<std::int64_t>(size_of(type));
    const auto element = [&](std::int64_t index) {
        std::uint32_t bits = 0;
        std::memcpy(&bits,
                    static_cast<const char *>(cache.memory.view.data) + static_cast<std::size_t>(index) * size_of(type),
                    size_of(type));
        return bits;
    };
    for (std::int64_t head = 0; head < heads; head++) {
        for (std::int64_t position = 0; position < capacity; position++) {
            const std::int64_t block = position / 512, p = position % 512, rows = block == 0 ? 512 : room - 512;
            const std::int64_t start = head * head_elements + block * 512 * (key_inputs + columns);
            for (std::int64_t i = 0; i < columns; i++) {
                const auto stored = [&](std::uint64_t seed) {
                    return through(Dtype::f32, type, type, ordinary(Dtype::f32, seed, position, head, i));
                };
                if (i < key_inputs) {
                    ASSERT_EQ(element(start + p / 16 * 16 * key_inputs + in_panel(i, p % 16)),
                              i < head_dim ? stored(key_seed) : 0)
                        << "key of position " << position << ", feature " << i;
                }
                ASSERT_EQ(element(start + rows * key_inputs + i / 16 * 16 * rows + in_panel(p, i % 16)),
                          i < head_dim ? stored(value_seed) : 0)
                    << "value of position " << position << ", feature " << i;
            }
        }
    }
}

TEST_P(KvCache, ForgetsWhatIsTruncated) {
    const Cache cache(options_of(2, 2, 2, 20, 600, type));
    const Context context(isa);
    const Tokens tokens = {type, 2, 600, 2, 20};
    Tensor k(type, tokens.form()), v(type, tokens.form());
    fill(k, tokens, ordinary, key_seed, 0, {0, 1});
    fill(v, tokens, ordinary, value_seed, 0, {0, 1});
    ASSERT_EQ(halyard_kv_cache_append(context.get(), cache.get(), 0, nullptr, &k.view, &v.view), HALYARD_OK);
    k.view.shape[1] = v.view.shape[1] = 30;  // the strides of compact tensors are null: make them explicit
    std::int64_t strides[] = {600 * 40, 40, 20, 1};
    k.view.strides = v.view.strides = strides;
    ASSERT_EQ(halyard_kv_cache_append(context.get(), cache.get(), 1, nullptr, &k.view, &v.view), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{600, 600, 30, 30}));

    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 600), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{600, 600, 30, 30}));
    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 77), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{77, 600, 30, 30}));
    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 1, 13), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{77, 13, 30, 13}));

    // Others in their place: those before stay, those after come.
    const Tokens others = {type, 0, 523, 2, 20};
    Tensor other_k(type, others.form()), other_v(type, others.form());
    fill(other_k, others, ordinary, key_seed + 7, 77);
    fill(other_v, others, ordinary, value_seed + 7, 77);
    ASSERT_EQ(halyard_kv_cache_append(context.get(), cache.get(), 0, nullptr, &other_k.view, &other_v.view), HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(check_read(context.get(), cache, type, type, {type, 0, 77, 2, 20}, ordinary, 0));
    EXPECT_TRUE(check_read(context.get(), cache, type, type, {type, 0, 523, 2, 20}, ordinary, 77, 0, 0, 7));
    EXPECT_TRUE(check_read(context.get(), cache, type, type, {type, 0, 13, 2, 20}, ordinary, 0, 0, 1, 1000));
    EXPECT_TRUE(check_read(context.get(), cache, type, type, {type, 0, 30, 2, 20}, ordinary, 0, 1, 0));
    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 0), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{0, 13, 0, 13}));
}

TEST_P(KvCache, KeepsSequencesAndLayersApart) {
    const std::int64_t layers = 3, sequences = 5;
    const Cache cache(options_of(layers, sequences, 3, 24, 200, type));
    const Context context(isa, 2);
    const std::vector<std::vector<std::int64_t>> batches = {{3}, {4, 0, 2}, {0, 1, 2, 3, 4}, {2, 4}};
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(layers * sequences));
    for (int round = 0; round < 4; round++) {
        for (std::int64_t layer = 0; layer < layers; layer++) {
            const std::vector<std::int64_t> &batch = batches[static_cast<std::size_t>(round + layer) % batches.size()];
            const Tokens tokens = {Dtype::f32, static_cast<std::int64_t>(batch.size()), 7 + 11 * round, 3, 24, 2,
                                   round == 1};
            Tensor k(Dtype::f32, tokens.form()), v(Dtype::f32, tokens.form());
            for (std::size_t b = 0; b < batch.size(); b++) {
                const std::int64_t first = lengths[static_cast<std::size_t>(layer * sequences + batch[b])];
                for (std::int64_t t = 0; t < tokens.count * 3; t++) {
                    const std::int64_t row = static_cast<std::int64_t>(b) * tokens.count * 3 + t;
                    const auto seed = static_cast<std::uint64_t>(1000 * batch[b] + 10000 * layer);
                    for (std::int64_t i = 0; i < 24; i++) {
                        k.set_bits(row, i, ordinary(Dtype::f32, key_seed + seed, first + t / 3, t % 3, i));
                        v.set_bits(row, i, ordinary(Dtype::f32, value_seed + seed, first + t / 3, t % 3, i));
                    }
                }
                lengths[static_cast<std::size_t>(layer * sequences + batch[b])] += tokens.count;
            }
            ASSERT_EQ(halyard_kv_cache_append(context.get(), cache.get(), layer,
                                              batch.size() == 5 ? nullptr : batch.data(), &k.view, &v.view),
                      HALYARD_OK)
                << halyard_last_error();
            ASSERT_EQ(cache.lengths(), lengths);
        }
    }
    for (std::int64_t layer = 0; layer < layers; layer++) {
        for (std::int64_t sequence = 0; sequence < sequences; sequence++) {
            const Tokens all = {Dtype::f32, 0, cache.length(layer, sequence), 3, 24};
            EXPECT_TRUE(check_read(context.get(), cache, Dtype::f32, type, all, ordinary, 0, layer, sequence,
                                   static_cast<std::uint64_t>(1000 * sequence + 10000 * layer)))
                << layer << ", " << sequence;
        }
    }
    EXPECT_TRUE(cache.memory.surroundings_intact());
}

TEST_P(KvCache, IsTheSameForAnyThreads) {
    const std::int64_t count = 900;
    const Tokens tokens = {Dtype::bf16, 0, count, 4, 64};
    std::vector<std::uint8_t> first;
    for (const int threads : {1, 2, 3, 8}) {
        const Context context(isa, threads);
        const Cache cache(options_of(1, 1, 4, 64, 1000, type));
        ASSERT_EQ(append(context.get(), cache, {Dtype::bf16, 0, 5, 4, 64}, ordinary, 0), HALYARD_OK);
        ASSERT_EQ(append(context.get(), cache, tokens, ordinary, 5), HALYARD_OK);
        if (first.empty()) {
            first = cache.memory.snapshot();
        }
        ASSERT_TRUE(first == cache.memory.snapshot()) << threads;
        ASSERT_TRUE(check_read(context.get(), cache, Dtype::bf16, type, {Dtype::f32, 0, 905, 4, 64}, ordinary, 0));
    }
}

// Tokens so far apart that the kernels' 32-bit indices do not reach from one to the other.
TEST_P(KvCache, TakesTokensFarApart) {
    constexpr std::int64_t pitch = std::int64_t{1} << 28, count = 20, head_dim = 20;
    const std::size_t bytes = static_cast<std::size_t>((count - 1) * pitch + head_dim) * size_of(type);
    void *const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        GTEST_SKIP() << "no address space for " << bytes << " bytes";
    }
    const Tokens tokens = {type, 0, count, 1, head_dim};
    Tensor near(type, tokens.form());
    fill(near, tokens, ordinary, key_seed, 0);
    const auto far_row = [&](std::int64_t row) {
        return static_cast<char *>(memory) + static_cast<std::size_t>(row * pitch) * size_of(type);
    };
    const std::size_t row_bytes = head_dim * size_of(type);
    for (std::int64_t row = 0; row < count; row++) {
        std::memcpy(far_row(row), near.at(row, 0), row_bytes);
    }
    std::int64_t strides[] = {pitch, head_dim, 1};
    DLTensor far = near.view;
    far.data = memory;
    far.byte_offset = 0;
    far.strides = strides;
    const Cache cache(options_of(1, 1, 1, head_dim, 100, type));
    const Context context(isa);
    EXPECT_EQ(append(context.get(), cache, {type, 0, 3, 1, head_dim}, ordinary, 0), HALYARD_OK);
    EXPECT_EQ(halyard_kv_cache_append(context.get(), cache.get(), 0, nullptr, &far, &far), HALYARD_OK)
        << halyard_last_error();
    for (std::int64_t row = 0; row < count; row++) {
        std::memset(far_row(row), 0, row_bytes);
    }
    for (DLTensor *const which : {&near.view, &far}) {
        EXPECT_EQ(halyard_kv_cache_read(context.get(), cache.get(), 0, 0, 3, which, nullptr), HALYARD_OK);
    }
    for (std::int64_t row = 0; row < count; row++) {
        EXPECT_EQ(std::memcmp(far_row(row), near.at(row, 0), row_bytes), 0) << row;
        EXPECT_EQ(near.bits(row, 5), ordinary(type, key_seed, row, 0, 5));
    }
    EXPECT_EQ(halyard_kv_cache_read(context.get(), cache.get(), 0, 0, 3, nullptr, &far), HALYARD_OK);
    for (std::int64_t row = 0; row < count; row++) {
        EXPECT_EQ(std::memcmp(far_row(row), near.at(row, 0), row_bytes), 0) << row;
    }
    munmap(memory, bytes);
}

TEST(KvCacheTypes, MayDifferBetweenKeysAndValues) {
    const Cache cache(options_of(1, 1, 2, 24, 40, Dtype::bf16));
    const Tokens keys = {Dtype::f16, 0, 40, 2, 24, 5, true}, values = {Dtype::f32, 0, 40, 2, 24};
    Tensor k(keys.type, keys.form()), v(values.type, values.form());
    fill(k, keys, ordinary, key_seed, 0);
    fill(v, values, ordinary, value_seed, 0);
    ASSERT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, nullptr, &k.view, &v.view), HALYARD_OK);
    Tensor read_k(values.type, values.form()), read_v(keys.type, keys.form());
    ASSERT_EQ(halyard_kv_cache_read(nullptr, cache.get(), 0, 0, 0, &read_k.view, &read_v.view), HALYARD_OK);
    for (std::int64_t row = 0; row < k.rows(); row++) {
        for (std::int64_t i = 0; i < 24; i++) {
            ASSERT_EQ(read_k.bits(row, i), through(Dtype::f16, Dtype::bf16, Dtype::f32, k.bits(row, i)));
            ASSERT_EQ(read_v.bits(row, i), through(Dtype::f32, Dtype::bf16, Dtype::f16, v.bits(row, i)));
        }
    }
}

// ---- Size and memory ----

TEST(KvCacheSize, IsAsDocumented) {
    for (const Dtype type : all_dtypes) {
        for (const std::int64_t head_dim : {1, 16, 33, 128, 1024}) {
            for (const std::int64_t capacity : {1, 16, 17, 512, 100000}) {
                const std::int64_t heads = 2 * 3 * 5, element = static_cast<std::int64_t>(size_of(type));
                const auto rounded = [](std::int64_t n) { return (n + 15) / 16 * 16; };
                const std::int64_t bytes = size_of_cache(options_of(2, 3, 5, head_dim, capacity, type));
                EXPECT_GE(bytes, 2 * heads * capacity * head_dim * element);
                EXPECT_LT(bytes, heads * (2 * rounded(capacity) * rounded(head_dim) * element + 256));
                EXPECT_EQ(bytes % 64, 0);
            }
        }
    }
}

TEST(KvCacheSize, IsTakenFromTheSystemWhenTheCallerHasNone) {
    const halyard_kv_cache_options o = options_of(2, 2, 2, 64, 300, Dtype::f16);
    halyard_kv_cache *made = nullptr;
    ASSERT_EQ(halyard_kv_cache_create(&o, nullptr, 0, &made), HALYARD_OK) << halyard_last_error();
    const Handle handle(made);
    const Tokens tokens = {Dtype::f16, 0, 300, 2, 64};
    Tensor k(Dtype::f16, tokens.form()), v(Dtype::f16, tokens.form()), read(Dtype::f16, tokens.form());
    fill(k, tokens, ordinary, key_seed, 0);
    fill(v, tokens, ordinary, value_seed, 0);
    const std::int64_t last = 1;
    ASSERT_EQ(halyard_kv_cache_append(nullptr, made, 1, &last, &k.view, &v.view), HALYARD_OK);
    ASSERT_EQ(halyard_kv_cache_read(nullptr, made, 1, 1, 0, &read.view, nullptr), HALYARD_OK);
    EXPECT_TRUE(same_bits(Dtype::f16, k.all_bits(), read.all_bits()));
    ASSERT_EQ(halyard_kv_cache_read(nullptr, made, 1, 1, 0, nullptr, &read.view), HALYARD_OK);
    EXPECT_TRUE(same_bits(Dtype::f16, v.all_bits(), read.all_bits()));

    halyard_kv_cache_options got{};
    ASSERT_EQ(halyard_kv_cache_get_options(made, &got), HALYARD_OK);
    EXPECT_EQ(got.n_layers, 2);
    EXPECT_EQ(got.n_sequences, 2);
    EXPECT_EQ(got.n_kv_heads, 2);
    EXPECT_EQ(got.head_dim, 64);
    EXPECT_EQ(got.max_positions, 300);
    EXPECT_EQ(got.dtype.code, kDLFloat);
    EXPECT_EQ(got.dtype.bits, 16);
    EXPECT_EQ(got.dtype.lanes, 1);
}

std::int64_t resident_bytes() {
    long long all = 0, resident = 0;
    std::FILE *const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lld %lld", &all, &resident) != 2) {
        ADD_FAILURE() << "/proc/self/statm cannot be read";
    }
    if (file != nullptr) {
        std::fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE);
}

TEST(KvCacheSize, IsThereOnlyAsTheCacheFills) {
#ifdef HALYARD_TESTS_REDUCED
    GTEST_SKIP() << "sanitizers and emulators have memory of their own in the process";
#endif
    // 32 GiB, of which 4 MiB will be filled.
    const halyard_kv_cache_options o = options_of(32, 16, 8, 128, 16384, Dtype::bf16);
    halyard_kv_cache *made = nullptr;
    const std::int64_t before = resident_bytes();
    ASSERT_EQ(halyard_kv_cache_create(&o, nullptr, 0, &made), HALYARD_OK) << halyard_last_error();
    const Handle handle(made);
    const Tokens tokens = {Dtype::bf16, 0, 32, 8, 128};
    Tensor k(Dtype::bf16, tokens.form()), v(Dtype::bf16, tokens.form());
    for (std::int64_t layer = 0; layer < 32; layer++) {
        ASSERT_EQ(halyard_kv_cache_append(nullptr, made, layer, nullptr, &k.view, &v.view), HALYARD_OK);
    }
    // On pages of 4 KiB, two panels of keys and 8 of values touch 11 of them for each of 256 heads.
    EXPECT_LT(resident_bytes() - before, std::int64_t{48} << 20);
}

}  // namespace
}  // namespace halyard::tests
