// The cache of keys and values: every bad argument is named and nothing is written; and calls on nothing.
#include <limits>
#include <string>
#include <vector>

#include "support/kv_cache.h"
#include "support/text.h"

namespace halyard::tests {
namespace {

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
