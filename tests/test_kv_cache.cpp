// The cache of keys and values: what is read back, whatever the pieces in which it came, the types and the threads;
// where it lies; and every bad argument.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "halyard/attention.h"
#include "support/invocation.h"
#include "support/isas.h"
#include "support/text.h"

namespace halyard::tests {
namespace {

struct DestroyCache {
    void operator()(halyard_kv_cache *cache) const { halyard_kv_cache_destroy(cache); }
};
using Handle = std::unique_ptr<halyard_kv_cache, DestroyCache>;

halyard_kv_cache_options options_of(std::int64_t layers, std::int64_t sequences, std::int64_t heads,
                                    std::int64_t head_dim, std::int64_t max_positions, Dtype type) {
    return {layers, sequences, heads, head_dim, max_positions, dlpack_type(type)};
}

std::int64_t size_of_cache(const halyard_kv_cache_options &options) {
    std::int64_t bytes = -1;
    EXPECT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK) << halyard_last_error();
    return bytes;
}

/** A cache in guarded memory, every byte of which is 0xff at first. */
class Cache {
public:
    explicit Cache(const halyard_kv_cache_options &o)
        : options(o), bytes(size_of_cache(o)), memory(Dtype::f16, {{bytes / 2}, {}, Placement::ends_at_guard, 0, 0}) {
        halyard_kv_cache *made = nullptr;
        EXPECT_EQ(halyard_kv_cache_create(&options, memory.view.data, bytes, &made), HALYARD_OK)
            << halyard_last_error();
        handle.reset(made);
    }

    halyard_kv_cache *get() const { return handle.get(); }
    std::int64_t length(std::int64_t layer, std::int64_t sequence) const {
        return halyard_kv_cache_length(get(), layer, sequence);
    }
    std::vector<std::int64_t> lengths() const {
        std::vector<std::int64_t> all;
        for (std::int64_t layer = 0; layer < options.n_layers; layer++) {
            for (std::int64_t sequence = 0; sequence < options.n_sequences; sequence++) {
                all.push_back(length(layer, sequence));
            }
        }
        return all;
    }

    const halyard_kv_cache_options options;
    const std::int64_t bytes;
    Tensor memory;
    Handle handle;
};

// ---- Contents ----

/** What a token holds, as bits of a type: a function of seed, position, head and feature. */
using Contents = std::uint32_t (*)(Dtype type, std::uint64_t seed, std::int64_t position, std::int64_t head,
                                   std::int64_t feature);

std::uint32_t ordinary(Dtype type, std::uint64_t seed, std::int64_t position, std::int64_t head, std::int64_t feature) {
    return encode(type, bell(seed + 100 * static_cast<std::uint64_t>(head), position, feature));
}

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

constexpr std::uint64_t key_seed = 1, value_seed = 51;

/** Keys or values of tokens [first, first + T): [T, heads, head_dim], or [batch, T, ...] of as many sequences. */
struct Tokens {
    Dtype type = Dtype::f32;
    std::int64_t batch = 0, count = 1, heads = 1, head_dim = 1;
    std::int64_t gap = 0;     // elements between heads
    bool transposed = false;  // heads before tokens in memory

    Form form() const {
        const std::int64_t pitch = head_dim + gap;
        Shape shape = {count, heads, head_dim};
        Shape strides = transposed ? Shape{pitch, pitch * count, 1} : Shape{pitch * heads, pitch, 1};
        if (batch > 0) {
            shape.insert(shape.begin(), batch);
            strides.insert(strides.begin(), pitch * count * heads);
        }
        return {shape, gap == 0 && !transposed ? Shape() : strides, Placement::ends_at_guard, 0, 0};
    }
};

/** Sequence s holds the contents with seed + 1000 s. */
void fill(Tensor &tensor, const Tokens &tokens, Contents contents, std::uint64_t seed, std::int64_t first,
          const std::vector<std::int64_t> &sequences = {0}) {
    for (std::int64_t row = 0; row < tensor.rows(); row++) {
        const std::int64_t token = row / tokens.heads;
        const std::int64_t sequence = sequences[static_cast<std::size_t>(token / tokens.count)];
        for (std::int64_t i = 0; i < tokens.head_dim; i++) {
            tensor.set_bits(row, i,
                            contents(tokens.type, seed + 1000 * static_cast<std::uint64_t>(sequence),
                                     first + token % tokens.count, row % tokens.heads, i));
        }
    }
}

/** Appends tokens [first, first + count) of sequence 0 to layer 0. */
halyard_status append(const halyard_context *context, const Cache &cache, const Tokens &tokens, Contents contents,
                      std::int64_t first) {
    Tensor k(tokens.type, tokens.form()), v(tokens.type, tokens.form());
    fill(k, tokens, contents, key_seed, first);
    fill(v, tokens, contents, value_seed, first);
    const halyard_status status = halyard_kv_cache_append(context, cache.get(), 0, nullptr, &k.view, &v.view);
    EXPECT_TRUE(k.surroundings_intact() && v.surroundings_intact());
    return status;
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

// As runtime/kv_layout.h says: the attention kernels read it so.
TEST_P(KvCache, LiesInPanels) {
    const std::int64_t capacity = 700, head_dim = 37, heads = 2, room = 704, columns = 48;
    const Cache cache(options_of(1, 1, heads, head_dim, capacity, type));
    const Context context(isa);
    ASSERT_EQ(append(context.get(), cache, {Dtype::f32, 0, capacity, heads, head_dim}, ordinary, 0), HALYARD_OK);
    const std::int64_t head_elements = (room * (head_dim + columns) * static_cast<std::int64_t>(size_of(type)) + 63) /
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
            const std::int64_t start = head * head_elements + block * 512 * (head_dim + columns);
            for (std::int64_t i = 0; i < columns; i++) {
                const auto stored = [&](std::uint64_t seed) {
                    return through(Dtype::f32, type, type, ordinary(Dtype::f32, seed, position, head, i));
                };
                if (i < head_dim) {
                    ASSERT_EQ(element(start + p / 16 * 16 * head_dim + i * 16 + p % 16), stored(key_seed));
                }
                ASSERT_EQ(element(start + rows * head_dim + i / 16 * 16 * rows + p * 16 + i % 16),
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

#if !defined(HALYARD_TESTS_REDUCED)
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
#endif

// ---- Bad arguments ----

constexpr halyard_status invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

/** The status, and a message that names the function and holds all the words. */
testing::AssertionResult refused(halyard_status got, halyard_status expected, const std::string &function,
                                 const std::vector<std::string> &words) {
    const std::string message = halyard_last_error();
    if (got != expected) {
        return testing::AssertionFailure()
               << "status " << halyard_status_name(got) << "; the last message is: " << message;
    }
    bool named = message.rfind(function + ": ", 0) == 0;
    for (const std::string &word : words) {
        named = named && contains_word(message.substr(function.size() + 2), word);
    }
    return named ? testing::AssertionSuccess()
                 : testing::AssertionFailure()
                       << "the message does not name " << function << " and " << words[0] << ": " << message;
}

struct OptionMistake {
    const char *argument;
    halyard_status status;
    void (*make)(halyard_kv_cache_options &);
};

const OptionMistake option_mistakes[] = {
    {"n_layers", invalid, [](halyard_kv_cache_options &o) { o.n_layers = 0; }},
    {"n_layers", invalid, [](halyard_kv_cache_options &o) { o.n_layers = -1; }},
    {"n_sequences", invalid, [](halyard_kv_cache_options &o) { o.n_sequences = 0; }},
    {"n_sequences", invalid, [](halyard_kv_cache_options &o) { o.n_sequences = -huge; }},
    {"n_kv_heads", invalid, [](halyard_kv_cache_options &o) { o.n_kv_heads = 0; }},
    {"head_dim", invalid, [](halyard_kv_cache_options &o) { o.head_dim = 0; }},
    {"head_dim", invalid, [](halyard_kv_cache_options &o) { o.head_dim = 1025; }},
    {"head_dim", invalid, [](halyard_kv_cache_options &o) { o.head_dim = huge; }},
    {"max_positions", invalid, [](halyard_kv_cache_options &o) { o.max_positions = 0; }},
    {"max_positions", invalid, [](halyard_kv_cache_options &o) { o.max_positions = -5; }},
    {"dtype", unsupported,
     [](halyard_kv_cache_options &o) {
         o.dtype = {kDLFloat, 64, 1};
     }},
    {"dtype", unsupported,
     [](halyard_kv_cache_options &o) {
         o.dtype = {kDLInt, 32, 1};
     }},
    {"dtype", unsupported,
     [](halyard_kv_cache_options &o) {
         o.dtype = {kDLFloat, 32, 2};
     }},
    {"dtype", unsupported,
     [](halyard_kv_cache_options &o) {
         o.dtype = {0, 0, 0};
     }},
    // More than there are addresses.
    {"max_positions", invalid, [](halyard_kv_cache_options &o) { o.max_positions = huge; }},
    {"max_positions", invalid, [](halyard_kv_cache_options &o) { o.max_positions = huge / 256; }},
    {"n_kv_heads", invalid, [](halyard_kv_cache_options &o) { o.n_kv_heads = huge; }},
    {"n_layers", invalid, [](halyard_kv_cache_options &o) { o.n_layers = huge; }},
    {"n_sequences", invalid, [](halyard_kv_cache_options &o) { o.n_sequences = huge; }},
    {"n_layers", invalid, [](halyard_kv_cache_options &o) { o.n_layers = o.n_sequences = std::int64_t{1} << 33; }},
    {"n_layers", invalid,
     [](halyard_kv_cache_options &o) { o.n_layers = o.n_sequences = o.n_kv_heads = std::int64_t{1} << 20; }},
};

TEST(KvCacheArguments, OfTheOptionsAreNamed) {
    for (const OptionMistake &mistake : option_mistakes) {
        halyard_kv_cache_options o = options_of(2, 2, 2, 64, 100, Dtype::f32);
        mistake.make(o);
        std::int64_t bytes = 77;
        halyard_kv_cache *cache = nullptr;
        EXPECT_TRUE(
            refused(halyard_kv_cache_size(&o, &bytes), mistake.status, "halyard_kv_cache_size", {mistake.argument}));
        EXPECT_TRUE(refused(halyard_kv_cache_create(&o, nullptr, 0, &cache), mistake.status, "halyard_kv_cache_create",
                            {mistake.argument}));
        EXPECT_EQ(bytes, 77);
        EXPECT_EQ(cache, nullptr);
    }
}

TEST(KvCacheArguments, OfCreationAreNamed) {
    const halyard_kv_cache_options o = options_of(2, 2, 2, 64, 100, Dtype::f32);
    std::int64_t bytes = 0;
    halyard_kv_cache *cache = nullptr;
    EXPECT_TRUE(refused(halyard_kv_cache_size(nullptr, &bytes), invalid, "halyard_kv_cache_size", {"options"}));
    EXPECT_TRUE(refused(halyard_kv_cache_size(&o, nullptr), invalid, "halyard_kv_cache_size", {"bytes"}));
    const char *const create = "halyard_kv_cache_create";
    EXPECT_TRUE(refused(halyard_kv_cache_create(nullptr, nullptr, 0, &cache), invalid, create, {"options"}));
    EXPECT_TRUE(refused(halyard_kv_cache_create(&o, nullptr, 0, nullptr), invalid, create, {"cache"}));
    bytes = size_of_cache(o);
    const std::string needed = std::to_string(bytes);
    alignas(64) char memory[128];
    EXPECT_TRUE(refused(halyard_kv_cache_create(&o, memory, bytes - 1, &cache), invalid, create,
                        {"bytes", needed, std::to_string(bytes - 1)}));
    EXPECT_TRUE(refused(halyard_kv_cache_create(&o, memory, 0, &cache), invalid, create, {"bytes", needed}));
    EXPECT_TRUE(refused(halyard_kv_cache_create(&o, memory, -1, &cache), invalid, create, {"bytes"}));
    for (const int shift : {1, 4, 32}) {
        EXPECT_TRUE(refused(halyard_kv_cache_create(&o, memory + shift, bytes, &cache), invalid, create, {"memory"}));
    }
    EXPECT_TRUE(refused(halyard_kv_cache_create(&o, nullptr, bytes, &cache), invalid, create, {"bytes", "memory"}));
    EXPECT_EQ(cache, nullptr);

    const halyard_kv_cache_options too_much = options_of(1 << 20, 1, 1 << 10, 128, 1 << 20, Dtype::f32);
    EXPECT_TRUE(refused(halyard_kv_cache_create(&too_much, nullptr, 0, &cache), HALYARD_OUT_OF_MEMORY, create,
                        {std::to_string(size_of_cache(too_much))}));
    EXPECT_EQ(cache, nullptr);
    halyard_kv_cache_destroy(nullptr);

    halyard_kv_cache_options got{};
    const Cache good(o);
    EXPECT_TRUE(
        refused(halyard_kv_cache_get_options(nullptr, &got), invalid, "halyard_kv_cache_get_options", {"cache"}));
    EXPECT_TRUE(refused(halyard_kv_cache_get_options(good.get(), nullptr), invalid, "halyard_kv_cache_get_options",
                        {"options"}));
}

TEST(KvCacheArguments, OfLengthAndTruncateAreChecked) {
    const Cache cache(options_of(2, 3, 1, 8, 50, Dtype::f32));
    EXPECT_EQ(append(nullptr, cache, {Dtype::f32, 0, 20, 1, 8}, ordinary, 0), HALYARD_OK);
    EXPECT_EQ(halyard_kv_cache_length(nullptr, 0, 0), -1);
    for (const std::int64_t layer : {std::int64_t{-1}, std::int64_t{2}, huge, -huge}) {
        EXPECT_EQ(cache.length(layer, 0), -1);
    }
    for (const std::int64_t sequence : {std::int64_t{-1}, std::int64_t{3}, huge, -huge}) {
        EXPECT_EQ(cache.length(0, sequence), -1);
        EXPECT_TRUE(refused(halyard_kv_cache_truncate(cache.get(), sequence, 0), invalid, "halyard_kv_cache_truncate",
                            {"sequence", std::to_string(sequence)}));
    }
    for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{51}, huge}) {
        EXPECT_TRUE(refused(halyard_kv_cache_truncate(cache.get(), 0, length), invalid, "halyard_kv_cache_truncate",
                            {"length", std::to_string(length)}));
    }
    EXPECT_TRUE(refused(halyard_kv_cache_truncate(nullptr, 0, 0), invalid, "halyard_kv_cache_truncate", {"cache"}));
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{20, 0, 0, 0, 0, 0}));
}

/** An append of [2, 3, 2, 20] to sequences 2 and 0, which hold 5 and 0 positions of 8, to be spoiled; a read of what
 *  sequence 2 holds. */
struct Spoiled {
    const Cache &good;
    halyard_kv_cache *cache;
    DLTensor *k, *v;
    std::int64_t layer = 1;
    std::int64_t sequences[3] = {2, 0, 1};
    std::int64_t sequence = 2, first = 2;  // of the read
    std::int64_t shape[5] = {}, strides[4] = {};

    void reshape(DLTensor &view, std::initializer_list<std::int64_t> extents) {
        std::copy(extents.begin(), extents.end(), shape);
        view.shape = shape;
        view.strides = nullptr;
        view.ndim = static_cast<int>(extents.size());
    }
    void restride(DLTensor &view, std::initializer_list<std::int64_t> steps) {
        std::copy(steps.begin(), steps.end(), strides);
        view.strides = strides;
    }
    void into_the_cache(DLTensor &view, std::int64_t byte) {
        view.data = static_cast<char *>(good.memory.view.data) + byte;
        view.byte_offset = 0;
    }
};

struct CallMistake {
    const char *what;
    std::vector<std::string> words;  // in the message
    halyard_status status;
    void (*make)(Spoiled &);
};

const CallMistake mistakes_of_both[] = {
    {"null", {"cache"}, invalid, [](Spoiled &s) { s.cache = nullptr; }},
    {"null data", {"k"}, invalid, [](Spoiled &s) { s.k->data = nullptr; }},
    {"null data", {"v"}, invalid, [](Spoiled &s) { s.v->data = nullptr; }},
    {"null shape", {"k"}, invalid, [](Spoiled &s) { s.k->shape = nullptr; }},
    {"CUDA", {"k"}, unsupported, [](Spoiled &s) { s.k->device.device_type = kDLCUDA; }},
    {"CUDA", {"v"}, unsupported, [](Spoiled &s) { s.v->device.device_type = kDLCUDA; }},
    {"f64", {"k"}, unsupported, [](Spoiled &s) { s.k->dtype.bits = 64; }},
    {"int32", {"v"}, unsupported, [](Spoiled &s) { s.v->dtype.code = kDLInt; }},
    {"off by a byte", {"k"}, invalid, [](Spoiled &s) { s.k->byte_offset++; }},
    {"off by a byte", {"v"}, invalid, [](Spoiled &s) { s.v->byte_offset++; }},
    {"rank 2",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {6, 20});
     }},
    {"rank 5",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {1, 1, 3, 2, 20});
     }},
    {"layer", {"layer", "2"}, invalid, [](Spoiled &s) { s.layer = 2; }},
    {"layer", {"layer", "1"}, invalid, [](Spoiled &s) { s.layer = -1; }},
    {"all of memory", {"layer"}, invalid, [](Spoiled &s) { s.layer = huge; }},
};

const CallMistake append_mistakes[] = {
    {"null", {"k"}, invalid, [](Spoiled &s) { s.k = nullptr; }},
    {"null", {"v"}, invalid, [](Spoiled &s) { s.v = nullptr; }},
    {"another rank",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.v, {6, 2, 20});
     }},
    {"a token less",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.v, {2, 2, 2, 20});
     }},
    {"a batch less",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.v, {1, 3, 2, 20});
     }},
    {"a head less",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {2, 3, 1, 20});
     }},
    {"a feature less",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {2, 3, 2, 19});
     }},
    {"negative tokens",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {2, -3, 2, 20});
     }},
    {"spread features",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.restride(*s.k, {120, 40, 20, 2});
     }},
    {"negative stride",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.restride(*s.v, {120, -40, 20, 1});
     }},
    {"twice the same", {"sequences", "2"}, invalid, [](Spoiled &s) { s.sequences[1] = 2; }},
    {"one too many", {"sequences", "3"}, invalid, [](Spoiled &s) { s.sequences[1] = 3; }},
    {"negative", {"sequences"}, invalid, [](Spoiled &s) { s.sequences[1] = -1; }},
    {"beyond all", {"sequences"}, invalid, [](Spoiled &s) { s.sequences[0] = huge; }},
    {"more than there are",
     {"k", "n_sequences"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {4, 1, 2, 20});
         s.v->shape = s.shape;
     }},
    // The second sequence has room, the first holds 5 of 8.
    {"no room",
     {"k", "4", "2", "5", "8", "max_positions"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {2, 4, 2, 20});
         s.restride(*s.k, {0, 0, 20, 1});
         s.v->shape = s.shape;
         s.v->strides = s.strides;
         std::swap(s.sequences[0], s.sequences[1]);
     }},
    {"no room at all",
     {"k", "max_positions"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {2, std::int64_t{1} << 50, 2, 20});
         s.restride(*s.k, {0, 0, 20, 1});
         s.v->shape = s.shape;
         s.v->strides = s.strides;
     }},
    {"the cache itself", {"k"}, invalid, [](Spoiled &s) { s.into_the_cache(*s.k, 0); }},
    {"the end of the cache", {"v"}, invalid, [](Spoiled &s) { s.into_the_cache(*s.v, s.good.bytes - 4 * 240); }},
};

const CallMistake read_mistakes[] = {
    {"rank 4",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {1, 3, 2, 20});
     }},
    {"a token less",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.v, {2, 2, 20});
     }},
    {"a head less",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.k, {3, 1, 20});
     }},
    {"a feature less",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.reshape(*s.v, {3, 2, 19});
     }},
    {"heads in one place",
     {"k"},
     invalid,
     [](Spoiled &s) {
         s.restride(*s.k, {20, 0, 1});
     }},
    {"tokens that overlap",
     {"v"},
     invalid,
     [](Spoiled &s) {
         s.restride(*s.v, {39, 20, 1});
     }},
    {"one too many", {"sequence", "3"}, invalid, [](Spoiled &s) { s.sequence = 3; }},
    {"negative", {"sequence"}, invalid, [](Spoiled &s) { s.sequence = -1; }},
    {"beyond the end", {"first", "3", "5"}, invalid, [](Spoiled &s) { s.first = 3; }},
    {"an empty sequence", {"first", "2", "0"}, invalid, [](Spoiled &s) { s.sequence = 1; }},
    {"negative", {"first"}, invalid, [](Spoiled &s) { s.first = -1; }},
    {"beyond all", {"first"}, invalid, [](Spoiled &s) { s.first = huge; }},
    {"is v", {"k", "v"}, invalid, [](Spoiled &s) { s.k->data = s.v->data; }},
    {"the cache itself", {"k"}, invalid, [](Spoiled &s) { s.into_the_cache(*s.k, 64); }},
    {"the end of the cache", {"v"}, invalid, [](Spoiled &s) { s.into_the_cache(*s.v, s.good.bytes - 4); }},
};

void spoil(bool reads, const CallMistake &mistake) {
    const Cache cache(options_of(2, 3, 2, 20, 8, Dtype::f32));
    const Tokens five = {Dtype::f32, 0, 5, 2, 20}, three = {Dtype::f32, reads ? 0 : 2, 3, 2, 20};
    Tensor k5(Dtype::f32, five.form()), v5(Dtype::f32, five.form()), k(Dtype::f32, three.form()),
        v(Dtype::f32, three.form());
    fill(k5, five, ordinary, key_seed, 0);
    fill(v5, five, ordinary, value_seed, 0);
    fill(k, three, ordinary, key_seed, 0, {0, 1});
    fill(v, three, ordinary, value_seed, 0, {0, 1});
    Spoiled s = {cache, cache.get(), &k.view, &v.view};
    ASSERT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 1, s.sequences, &k5.view, &v5.view), HALYARD_OK)
        << halyard_last_error();
    const auto state = [&] { return std::vector{cache.memory.snapshot(), k.snapshot(), v.snapshot()}; };
    const auto before = state();
    const std::vector<std::int64_t> lengths = cache.lengths();
    mistake.make(s);
    if (reads) {
        EXPECT_TRUE(refused(halyard_kv_cache_read(nullptr, s.cache, s.layer, s.sequence, s.first, s.k, s.v),
                            mistake.status, "halyard_kv_cache_read", mistake.words))
            << mistake.what;
    } else {
        EXPECT_TRUE(refused(halyard_kv_cache_append(nullptr, s.cache, s.layer, s.sequences, s.k, s.v), mistake.status,
                            "halyard_kv_cache_append", mistake.words))
            << mistake.what;
    }
    EXPECT_TRUE(state() == before) << mistake.what << " " << mistake.words[0];
    EXPECT_EQ(cache.lengths(), lengths) << mistake.what << " " << mistake.words[0];
}

TEST(KvCacheArguments, OfAppendAreNamedAndNothingIsWritten) {
    for (const CallMistake &mistake : mistakes_of_both) {
        spoil(false, mistake);
    }
    for (const CallMistake &mistake : append_mistakes) {
        spoil(false, mistake);
    }
}

TEST(KvCacheArguments, OfReadAreNamedAndNothingIsWritten) {
    for (const CallMistake &mistake : mistakes_of_both) {
        spoil(true, mistake);
    }
    for (const CallMistake &mistake : read_mistakes) {
        spoil(true, mistake);
    }
}

// A call that failed because of one of its sequences does not spoil the next.
TEST(KvCacheArguments, OfAFailedAppendMayBeUsedAgain) {
    const Cache cache(options_of(1, 3, 1, 8, 4, Dtype::f32));
    const Tokens tokens = {Dtype::f32, 2, 3, 1, 8};
    Tensor k(Dtype::f32, tokens.form());
    fill(k, tokens, ordinary, key_seed, 0, {0, 1});
    const std::int64_t twice[] = {1, 1}, bad[] = {1, 3}, good[] = {1, 2};
    EXPECT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, twice, &k.view, &k.view), invalid);
    EXPECT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, bad, &k.view, &k.view), invalid);
    EXPECT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, good, &k.view, &k.view), HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{0, 3, 3}));
}

TEST(KvCacheArguments, MayBeEmpty) {
    const Cache cache(options_of(1, 2, 2, 16, 4, Dtype::f16));
    EXPECT_EQ(append(nullptr, cache, {Dtype::f32, 0, 4, 2, 16}, ordinary, 0), HALYARD_OK);
    for (const Shape &shape : {Shape{0, 2, 16}, Shape{2, 0, 2, 16}, Shape{0, 1, 2, 16}}) {
        Tensor k(Dtype::f32, {shape, {}, Placement::ends_at_guard, 0, 0});
        k.view.data = nullptr;
        EXPECT_EQ(halyard_kv_cache_append(nullptr, cache.get(), 0, nullptr, &k.view, &k.view), HALYARD_OK)
            << halyard_last_error();
    }
    Tensor k(Dtype::f32, {{0, 2, 16}, {}, Placement::ends_at_guard, 0, 0});
    for (const std::int64_t first : {0, 4}) {
        EXPECT_EQ(halyard_kv_cache_read(nullptr, cache.get(), 0, 0, first, &k.view, nullptr), HALYARD_OK);
    }
    EXPECT_EQ(halyard_kv_cache_read(nullptr, cache.get(), 0, 0, 0, nullptr, nullptr), HALYARD_OK);
    EXPECT_EQ(cache.lengths(), (std::vector<std::int64_t>{4, 0}));
}

}  // namespace
}  // namespace halyard::tests
