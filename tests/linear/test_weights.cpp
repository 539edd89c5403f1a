// Packing of weights: the packed bytes, whatever the instruction set and the threads, and every way in which the
// arguments can be wrong.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/packing.h"

namespace halyard::tests {
namespace {

/** Guarded memory for `bytes` bytes of a block. */
Form block_form(std::int64_t bytes) {
    return {{bytes / 2}, {}, bytes % 64 == 0 ? Placement::ends_at_guard : Placement::starts_at_guard, 0, 0};
}

class Pack : public testing::TestWithParam<Dtype> {};

/** Plain; a folded weight; everything that can be folded; what folds without a weight. */
struct Folding {
    bool weight, bias, offset;
};
constexpr Folding foldings[] = {{false, false, false}, {true, false, false}, {true, true, true}, {false, true, true}};

#if defined(HALYARD_TESTS_REDUCED)
const std::vector<std::int64_t> outs = {1, 17, 100}, ins = {1, 15, 129, 513};
#else
const std::vector<std::int64_t> outs = {1, 15, 16, 17, 100, 1000}, ins = {1, 2, 15, 16, 127, 129, 511, 512, 513, 530};
#endif

void pack_all(const MatrixForm &form, const Contents &contents) {
    const PackSource sources(form, contents);
    const Bytes expected = sources.expected();
    ASSERT_EQ(sources.size(), static_cast<std::int64_t>(expected.size())) << form.describe();
    for (const halyard_isa isa : row_isas()) {
        const Context context(isa, 1 + isa);
        Tensor memory(Dtype::f16, block_form(sources.size()));
        halyard_weights *weights = nullptr;
        ASSERT_EQ(halyard_weights_pack(context.get(), &sources.weight.view, &sources.options, memory.view.data,
                                       sources.size(), &weights),
                  HALYARD_OK)
            << halyard_last_error();
        const PackedWeights handle(weights);
        ASSERT_EQ(halyard_weights_data(weights), memory.view.data);
        ASSERT_TRUE(same_bytes(expected, memory.view.data)) << form.describe() << " on " << halyard_isa_name(isa);
        ASSERT_TRUE(memory.surroundings_intact()) << form.describe();
        ASSERT_TRUE(sources.intact()) << form.describe();
    }
}

TEST_P(Pack, LaysPanelsOutAsSpecified) {
    for (const std::int64_t out : outs) {
        for (const std::int64_t in : ins) {
            for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
                for (const bool gated : {false, true}) {
                    if (out * in > 200000 && gated) {
                        continue;
                    }
                    // All foldings of small matrices, one of each large one.
                    const std::int64_t only = out * in > 20000 ? (out + in) % 4 : -1;
                    for (int i = 0; i < 4; i++) {
                        if (only >= 0 && i != only) {
                            continue;
                        }
                        const Folding &f = foldings[i];
                        pack_all({GetParam(), in, out, layout, gated, f.weight, f.bias, f.offset, 0,
                                  Placement::ends_at_guard},
                                 ordinary);
                        if (HasFatalFailure()) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

TEST_P(Pack, TakesAnyPitchAndPlace) {
    for (const std::int64_t gap : {1, 7, 64}) {
        for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
            for (const bool folded : {false, true}) {
                for (const auto placement : {Placement::starts_at_guard, Placement::ends_at_guard}) {
                    pack_all({GetParam(), 70, 50, layout, folded, folded, folded, folded, gap, placement}, ordinary);
                    pack_all({GetParam(), 5, 33, layout, folded, folded, folded, folded, gap, placement}, ordinary);
                    if (HasFatalFailure()) {
                        return;
                    }
                }
            }
        }
    }
}

TEST_P(Pack, MovesEveryBitPattern) {
    for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        for (const Folding &f : foldings) {
            pack_all({GetParam(), 600, 100, layout, true, f.weight, f.bias, f.offset, 3, Placement::ends_at_guard},
                     any_bits);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

TEST_P(Pack, FoldsVectorsThatAreF32) {
    for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        for (const auto &[out, in] :
             {std::pair{1, 1}, {16, 2}, {33, 15}, {17, 16}, {100, 129}, {48, 512}, {20, 1043}}) {
            for (const auto &[f32_weight, f32_bias] : {std::pair{true, false}, {false, true}, {true, true}}) {
                for (const Folding &f : foldings) {
                    MatrixForm form = {GetParam(), in,      out,      layout, out % 3 == 0,
                                       f.weight,   f.bias,  f.offset, in % 4, Placement::ends_at_guard,
                                       f32_weight, f32_bias};
                    ASSERT_NO_FATAL_FAILURE(pack_all(form, ordinary));
                    form.placement = Placement::starts_at_guard;
                    ASSERT_NO_FATAL_FAILURE(pack_all(form, any_bits));
                }
            }
        }
    }
}

// Rows that start from one address: a view with stride 0 is a matrix like any other.
TEST_P(Pack, TakesRepeatedRows) {
    PackSource one({GetParam(), 40, 1});
    PackSource repeated({GetParam(), 40, 20}, [](Dtype type, int which, std::int64_t k, std::int64_t) {
        return ordinary(type, which, k, 0);
    });
    std::int64_t shape[] = {20, 40}, strides[] = {0, 1};
    one.weight.view.shape = shape;
    one.weight.view.strides = strides;
    EXPECT_TRUE(same_bytes(repeated.expected(), halyard_weights_data(pack(one).get())));
}

TEST_P(Pack, GivesTheSameBytesForAnyThreads) {
    for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        const PackSource sources({GetParam(), 700, 1300, layout, true, true, true, true, 5, Placement::ends_at_guard});
        Bytes first;
        for (const halyard_isa isa : row_isas()) {
            for (const int threads : {1, 2, 3, 7}) {
                const Context context(isa, threads);
                const PackedWeights handle = pack(sources, context.get());
                ASSERT_NE(handle, nullptr);
                if (first.empty()) {
                    first = bytes_of(handle.get());
                }
                ASSERT_TRUE(same_bytes(first, halyard_weights_data(handle.get())))
                    << halyard_isa_name(isa) << ", " << threads;
            }
        }
    }
}

// Rows so far apart that the kernels' 32-bit indices do not reach from one to the other.
TEST_P(Pack, TakesRowsFarApart) {
    constexpr std::int64_t rows = 17, columns = 40, pitch = std::int64_t{1} << 28;
    const std::size_t bytes = static_cast<std::size_t>((rows - 1) * pitch + columns) * size_of(GetParam());
    void *const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        GTEST_SKIP() << "no address space for " << bytes << " bytes";
    }
    for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        const bool out_in = layout == HALYARD_WEIGHT_OUT_IN;
        PackSource near({GetParam(), out_in ? columns : rows, out_in ? rows : columns, layout, false, true, true, false,
                         0, Placement::ends_at_guard});
        for (std::int64_t row = 0; row < rows; row++) {
            std::memcpy(static_cast<char *>(memory) + static_cast<std::size_t>(row * pitch) * size_of(GetParam()),
                        near.weight.at(row, 0), static_cast<std::size_t>(columns) * size_of(GetParam()));
        }
        const Bytes expected = near.expected();
        std::int64_t strides[] = {pitch, 1};
        near.weight.view.data = memory;
        near.weight.view.strides = strides;
        const PackedWeights handle = pack(near);
        ASSERT_NE(handle, nullptr);
        EXPECT_TRUE(same_bytes(expected, halyard_weights_data(handle.get())));
    }
    munmap(memory, bytes);
}

TEST_P(Pack, TellsItsSizeFromShapesAlone) {
    std::int64_t shape[] = {100, 30}, strides[] = {-5, 9}, in[] = {30};
    DLTensor weight{};
    weight.device = {kDLCPU, 0};
    weight.ndim = 2;
    weight.dtype = dlpack_type(GetParam());
    weight.shape = shape;
    weight.strides = strides;
    weight.byte_offset = 3;
    DLTensor norm = weight;
    norm.ndim = 1;
    norm.shape = in;
    halyard_pack_options options{};
    options.up = &weight;
    options.norm_weight = options.norm_bias = &norm;
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_weights_size(&weight, nullptr, &bytes), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(bytes, 4096 + static_cast<std::int64_t>(7 * 16 * 30 * size_of(GetParam())));
    ASSERT_EQ(halyard_weights_size(&weight, &options, &bytes), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(bytes, 4096 + static_cast<std::int64_t>(14 * 16 * 30 * size_of(GetParam())));
}

TEST_P(Pack, TellsWhatItIs) {
    const PackSource sources(
        {GetParam(), 30, 20, HALYARD_WEIGHT_IN_OUT, true, false, true, false, 0, Placement::ends_at_guard});
    const PackedWeights handle = pack(sources);
    halyard_weights_info info{};
    ASSERT_EQ(halyard_weights_get_info(handle.get(), &info), HALYARD_OK);
    EXPECT_EQ(info.in_features, 30);
    EXPECT_EQ(info.out_features, 20);
    const DLDataType type = dlpack_type(GetParam());
    EXPECT_TRUE(info.dtype.code == type.code && info.dtype.bits == type.bits && info.dtype.lanes == 1);
    EXPECT_EQ(info.gated, 1);
    EXPECT_EQ(info.norm_folded, 1);
    EXPECT_EQ(info.bytes, sources.size());
    const PackedWeights plain = pack(PackSource({GetParam(), 30, 20}));
    ASSERT_EQ(halyard_weights_get_info(plain.get(), &info), HALYARD_OK);
    EXPECT_EQ(info.gated, 0);
    EXPECT_EQ(info.norm_folded, 0);
}

INSTANTIATE_TEST_SUITE_P(All, Pack, testing::ValuesIn(all_dtypes),
                         [](const auto &info) { return name_of(info.param); });

TEST(PackMemory, IsAlignedForCachesAndLargePages) {
    const auto address = [](const PackedWeights &handle) {
        return reinterpret_cast<std::uintptr_t>(halyard_weights_data(handle.get()));
    };
    EXPECT_EQ(address(pack(PackSource({Dtype::f32, 3, 3}))) % 64, 0u);
    EXPECT_EQ(address(pack(PackSource({Dtype::f32, 1100, 1100}))) % (2u << 20), 0u);
}

/** Leaves zeros where the next call's variables will be, and in every fourth word this value. */
[[gnu::noinline]] void fill_stack(std::uint64_t value) {
    [[maybe_unused]] alignas(32) volatile std::uint64_t words[20000];
    for (std::size_t i = 0; i < 20000; i++) {
        words[i] = i % 4 == 1 ? value : 0;
    }
}

// The state of an XXH3 hash that was never set up, but holds its seed (1 for the first panel) in the right word and 0 in
// another, passes for one that was: this is what an earlier call may leave behind.
TEST(PackMemory, DoesNotDependOnWhatTheStackHolds) {
    const Context context(supported_isas().back(), 1);
    const PackSource sources({Dtype::f32, 100, 50});
    const Bytes expected = sources.expected();
    for (std::uint64_t value = 0; value < 6; value++) {
        fill_stack(value);
        const PackedWeights packed = pack(sources, context.get());
        ASSERT_TRUE(same_bytes(expected, halyard_weights_data(packed.get()))) << value;
    }
}

TEST(PackMemory, RunsOnTheCallersThreads) {
    const Context context(supported_isas().back(), 4);
    int tasks = 0;
    ASSERT_EQ(halyard_context_set_parallel_for(
                  context.get(),
                  [](void *user, int count, void (*task)(void *, int), void *closure) {
                      for (int i = count - 1; i >= 0; i--) {
                          task(closure, i);
                          ++*static_cast<int *>(user);
                      }
                  },
                  &tasks),
              HALYARD_OK);
    const PackSource sources({Dtype::f32, 300, 300});
    EXPECT_TRUE(same_bytes(sources.expected(), halyard_weights_data(pack(sources, context.get()).get())));
    EXPECT_EQ(tasks, 4);
}

// ---- Weights into whose memory another matrix is packed ----

TEST_P(Pack, ASecondMatrixTakesThePlaceOfTheFirst) {
    for (const std::int64_t out : {1, 17, 100}) {
        for (const std::int64_t in : {1, 129, 513}) {
            for (const Folding &fold : foldings) {
                for (const bool gated : {false, true}) {
                    MatrixForm form = {GetParam(), in,          out,       HALYARD_WEIGHT_OUT_IN,
                                       gated,      fold.weight, fold.bias, fold.offset};
                    form.f32_norm_weight = gated;
                    form.f32_norm_bias = out == 17;
                    const PackSource first(form, any_bits);
                    for (const auto layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
                        MatrixForm other = form;
                        other.layout = layout;
                        other.gap = 3;
                        const PackSource second(other);
                        for (const halyard_isa isa : row_isas()) {
                            const Context context(isa, 1 + isa % 3);
                            Tensor memory(Dtype::f16, block_form(first.size()));
                            halyard_weights *made = nullptr;
                            ASSERT_EQ(halyard_weights_pack(context.get(), &first.weight.view, &first.options,
                                                           memory.view.data, first.size(), &made),
                                      HALYARD_OK)
                                << halyard_last_error();
                            const PackedWeights weights(made);
                            ASSERT_EQ(halyard_weights_update(context.get(), made, &second.weight.view, &second.options),
                                      HALYARD_OK)
                                << halyard_last_error();
                            ASSERT_EQ(halyard_weights_data(made), memory.view.data);
                            ASSERT_TRUE(same_bytes(second.expected(), memory.view.data)) << other.describe();
                            ASSERT_TRUE(memory.surroundings_intact()) << other.describe();
                            ASSERT_TRUE(second.intact()) << other.describe();
                        }
                    }
                }
            }
        }
    }
}

TEST_P(Pack, AnUpdateOfMemoryOfTheLibraryIsTheSameForAnyThreads) {
    const MatrixForm form = {GetParam(), 700, 900};
    const PackSource first(form, any_bits), second(form);
    const Bytes expected = second.expected();
    for (const int threads : {1, 2, 7}) {
        const Context context(supported_isas().back(), threads);
        const PackedWeights weights = pack(first);
        ASSERT_EQ(halyard_weights_update(context.get(), weights.get(), &second.weight.view, nullptr), HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(same_bytes(expected, halyard_weights_data(weights.get()))) << threads;
    }
}

/** The weights stay as they are, and the message is this one. */
testing::AssertionResult refuses_update(halyard_weights *weights, const DLTensor *weight,
                                        const halyard_pack_options *options, halyard_status status,
                                        const std::string &message) {
    const Bytes before = bytes_of(weights);
    const halyard_status got = halyard_weights_update(nullptr, weights, weight, options);
    if (got != status || halyard_last_error() != "halyard_weights_update: " + message) {
        return testing::AssertionFailure() << halyard_status_name(got) << ", " << halyard_last_error();
    }
    return bytes_of(weights) == before ? testing::AssertionSuccess()
                                       : testing::AssertionFailure() << "something was written";
}

class BadUpdate : public testing::Test {
protected:
    testing::AssertionResult refuses(const std::string &message, halyard_status status = HALYARD_INVALID_ARGUMENT) {
        return refuses_update(weights.get(), &source.weight.view, &source.options, status, message);
    }

    const MatrixForm form{Dtype::f32, 24, 20};
    PackSource source{form};
    const PackedWeights weights = pack(source);
};

TEST_F(BadUpdate, Null) {
    EXPECT_TRUE(refused(halyard_weights_update(nullptr, nullptr, &source.weight.view, nullptr),
                        HALYARD_INVALID_ARGUMENT, "halyard_weights_update", "weights is null"));
    EXPECT_TRUE(refuses_update(weights.get(), nullptr, nullptr, HALYARD_INVALID_ARGUMENT, "weight is null"));
}

TEST_F(BadUpdate, AnotherForm) {
    const PackSource wider({Dtype::f32, 24, 21}), deeper({Dtype::f32, 25, 20}), half({Dtype::f16, 24, 20}),
        gated({Dtype::f32, 24, 20, HALYARD_WEIGHT_OUT_IN, true}),
        folded({Dtype::f32, 24, 20, HALYARD_WEIGHT_OUT_IN, false, true});
    const auto refuses_other = [&](const PackSource &given, const std::string &message) {
        return refuses_update(weights.get(), &given.weight.view, &given.options, HALYARD_INVALID_ARGUMENT, message);
    };
    EXPECT_TRUE(refuses_other(wider, "weight has 24 inputs and 21 outputs, but must have those of weights, 24 and 20"));
    EXPECT_TRUE(
        refuses_other(deeper, "weight has 25 inputs and 20 outputs, but must have those of weights, 24 and 20"));
    EXPECT_TRUE(refuses_other(half, "weight has dtype f16, but must have that of weights, f32"));
    EXPECT_TRUE(refuses_other(gated, "up is there, but weights were packed without it"));
    EXPECT_TRUE(refuses_other(folded, "norm_weight, norm_bias and norm_unit_offset ask for a norm to be folded, but "
                                      "weights were packed without a norm"));
    const PackedWeights with_up = pack(gated), with_norm = pack(folded);
    EXPECT_TRUE(refuses_update(with_up.get(), &source.weight.view, nullptr, HALYARD_INVALID_ARGUMENT,
                               "up is null, but weights were packed with it"));
    EXPECT_TRUE(refuses_update(with_norm.get(), &source.weight.view, nullptr, HALYARD_INVALID_ARGUMENT,
                               "norm_weight, norm_bias and norm_unit_offset are not there, but weights were packed "
                               "with a norm"));
    source.options.layout = HALYARD_WEIGHT_IN_OUT;
    EXPECT_TRUE(refuses("weight has 20 inputs and 24 outputs, but must have those of weights, 24 and 20"));
}

TEST_F(BadUpdate, Quantized) {
    source.options.quantization.bits = 8;
    EXPECT_TRUE(refuses("quantization is asked for, but weights were packed without"));
    const PackedWeights quantized = pack(source);
    EXPECT_TRUE(refuses_update(quantized.get(), &source.weight.view, &source.options, HALYARD_UNSUPPORTED,
                               "weights are quantized, and cannot be updated: pack the matrix into new ones"));
}

TEST_F(BadUpdate, WeightsThatWereNotPacked) {
    halyard_weights *made = nullptr;
    ASSERT_EQ(halyard_weights_from_memory(halyard_weights_data(weights.get()), source.size(), &made), HALYARD_OK);
    const PackedWeights viewed(made);
    EXPECT_TRUE(refuses_update(made, &source.weight.view, nullptr, HALYARD_UNSUPPORTED,
                               "weights are those of a file or of the caller's bytes, and cannot be updated: only what "
                               "halyard_weights_pack made can"));
}

TEST_F(BadUpdate, AMatrixWithinTheWeights) {
    auto *const block = static_cast<char *>(const_cast<void *>(halyard_weights_data(weights.get())));
    source.weight.view.data = block + 64;
    EXPECT_TRUE(refuses("weights overlaps weight, which this function does not allow"));
}

// ---- Bad arguments of packing ----

class BadPack : public testing::Test {
protected:
    BadPack() : memory(Dtype::f16, block_form(sources.size())) {}

    struct NamedTensor {
        Tensor &tensor;
        const char *name;
    };
    std::vector<NamedTensor> all() {
        return {{sources.weight, "weight"},
                {sources.up, "up"},
                {sources.norm_weight, "norm_weight"},
                {sources.norm_bias, "norm_bias"}};
    }

    /** Neither of both functions takes the arguments, unless only the data are wrong. */
    testing::AssertionResult refuses(halyard_status status, const std::string &word, bool shape_is_wrong = true) {
        const Bytes before = memory.snapshot();
        std::int64_t bytes = -77;
        if (shape_is_wrong) {
            const auto result =
                refused(halyard_weights_size(weight, &sources.options, &bytes), status, "halyard_weights_size", word);
            if (!result || bytes != -77) {
                return result ? testing::AssertionFailure() << "bytes was written" : result;
            }
        }
        for (void *const target : {place, static_cast<void *>(nullptr)}) {
            halyard_weights *weights = untouched;
            const auto result = refused(halyard_weights_pack(nullptr, weight, &sources.options, target, room, &weights),
                                        status, "halyard_weights_pack", word);
            if (!result || weights != untouched || memory.snapshot() != before) {
                return result ? testing::AssertionFailure() << "something was written" : result;
            }
            if (only_with_memory) {
                break;
            }
        }
        return testing::AssertionSuccess();
    }

    static inline halyard_weights *const untouched = reinterpret_cast<halyard_weights *>(64);
    PackSource sources{
        {Dtype::f32, 24, 20, HALYARD_WEIGHT_OUT_IN, true, true, true, false, 0, Placement::ends_at_guard}};
    const DLTensor *weight = &sources.weight.view;
    Tensor memory;
    void *place = memory.view.data;
    std::int64_t room = sources.size();
    bool only_with_memory = false;
};

TEST_F(BadPack, Null) {
    weight = nullptr;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight is null"));
    EXPECT_TRUE(refused(halyard_weights_size(&sources.weight.view, nullptr, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_size", "bytes"));
    EXPECT_TRUE(refused(halyard_weights_pack(nullptr, &sources.weight.view, nullptr, nullptr, 0, nullptr),
                        HALYARD_INVALID_ARGUMENT, "halyard_weights_pack", "weights"));
}

TEST_F(BadPack, OnlyDataWrong) {
    for (const NamedTensor &each : all()) {
        DLTensor &view = each.tensor.view;
        const DLTensor good = view;
        view.data = nullptr;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name, false));
        view = good;
        view.byte_offset = 2;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name, false));
        view = good;
        view.device.device_type = kDLCUDA;
        EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, each.name, false));
        view = good;
        std::int64_t strides[2] = {48, 2};
        if (view.ndim == 1) {
            strides[0] = 2;
        }
        view.strides = strides;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name, false)) << "every second element";
        strides[view.ndim - 1] = 1;
        if (view.ndim == 2) {
            strides[0] = -24;
            EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name, false)) << "negative pitch";
        }
        view = good;
    }
}

TEST_F(BadPack, ShapesAndTypes) {
    for (const NamedTensor &each : all()) {
        DLTensor &view = each.tensor.view;
        const DLTensor good = view;
        view.strides = nullptr;
        std::int64_t shape[5] = {1, 1, 1, 1, 1};
        const auto with = [&](std::vector<std::int64_t> extents) {
            std::copy(extents.begin(), extents.end(), shape);
            view.shape = shape;
            view.ndim = static_cast<int>(extents.size());
            return &view;
        };
        view.shape = nullptr;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name));
        for (const DLDataType type :
             {DLDataType{kDLInt, 32, 1}, DLDataType{kDLFloat, 64, 1}, DLDataType{kDLFloat, 32, 2}}) {
            view = good;
            view.dtype = type;
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, each.name));
        }
        view = good;
        view.strides = nullptr;
        const std::vector<std::vector<std::int64_t>> shapes =
            view.ndim == 2 ? std::vector<std::vector<std::int64_t>>{{24},    {1, 20, 24}, {20, 24, 1}, {0, 24},
                                                                    {20, 0}, {-1, 24},    {20, -1}}
                           : std::vector<std::vector<std::int64_t>>{{23}, {25}, {1, 24}, {24, 1}, {0}, {-24}, {20}};
        for (const auto &wrong : shapes) {
            with(wrong);
            EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name)) << to_string(wrong);
        }
        view = good;
    }
    // Types and shapes that do not match.
    for (const auto &each : all()) {
        if (&each.tensor != &sources.weight) {
            const DLTensor good = each.tensor.view;
            each.tensor.view.dtype = dlpack_type(Dtype::bf16);
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, each.name));
            each.tensor.view = good;
        }
    }
    std::int64_t wrong[] = {20, 23};
    sources.up.view.shape = wrong;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "up"));
    wrong[0] = 19;
    wrong[1] = 24;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "up"));
    std::int64_t transposed[] = {24, 20};
    sources.up.view.shape = transposed;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "up"));
}

TEST(BadPackOf16Bits, AVectorOfTheOtherType) {
    HALYARD_TEST_NEEDS(HALYARD_HAS_F16 && HALYARD_HAS_BF16)
    PackSource sources({Dtype::bf16, 24, 20, HALYARD_WEIGHT_OUT_IN, false, true, true});
    for (const auto &[tensor, name] :
         {std::pair{&sources.norm_bias, "norm_bias"}, {&sources.norm_weight, "norm_weight"}}) {
        tensor->view.dtype = dlpack_type(Dtype::f16);
        halyard_weights *weights = nullptr;
        EXPECT_EQ(halyard_weights_pack(nullptr, &sources.weight.view, &sources.options, nullptr, 0, &weights),
                  HALYARD_UNSUPPORTED);
        EXPECT_EQ(weights, nullptr);
        EXPECT_EQ(std::string(halyard_last_error()), std::string("halyard_weights_pack: ") + name +
                                                         " has dtype f16, but must have the dtype of weight, which is "
                                                         "bf16, or f32");
    }
}

TEST_F(BadPack, NormOfTheOtherAxis) {
    // [20, 24] as [in, out] has 20 inputs, for which a norm of 24 features is none.
    sources.options.layout = HALYARD_WEIGHT_IN_OUT;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "norm_weight"));
    sources.options.norm_weight = nullptr;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "norm_bias"));
}

TEST_F(BadPack, Layout) {
    for (const int layout : {-1, 2, 1000}) {
        sources.options.layout = static_cast<halyard_weight_layout>(layout);
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "layout")) << layout;
    }
}

TEST_F(BadPack, TooLarge) {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
    sources.options.norm_weight = sources.options.norm_bias = nullptr;
    std::int64_t shape[] = {most + 1, 1}, strides[] = {0, 1};
    for (Tensor *tensor : {&sources.weight, &sources.up}) {
        tensor->view.shape = shape;
        tensor->view.strides = strides;
    }
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight"));
    std::swap(shape[0], shape[1]);
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight"));
    shape[0] = shape[1] = std::numeric_limits<std::int64_t>::max();
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight"));
    shape[0] = shape[1] = most;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight"));
    // Few enough elements, but twice 4 bytes of each, padded to whole panels, are 2^63 or more.
    shape[0] = std::int64_t{1} << 29;
    shape[1] = most;
    EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "weight"));
    // The largest number of features is no mistake, the memory for it is not there.
    sources.options.up = nullptr;
    shape[0] = 1;
    std::int64_t bytes = 0;
    EXPECT_EQ(halyard_weights_size(weight, &sources.options, &bytes), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(bytes, 4096 + most * 64);
    shape[0] = std::int64_t{1} << 28;
    halyard_weights *weights = untouched;
    EXPECT_TRUE(refused(halyard_weights_pack(nullptr, weight, &sources.options, nullptr, 0, &weights),
                        HALYARD_OUT_OF_MEMORY, "halyard_weights_pack", "memory"));
    EXPECT_EQ(weights, untouched);
}

TEST_F(BadPack, Memory) {
    only_with_memory = true;
    const std::int64_t needed = room;
    for (const std::int64_t bytes : {needed - 1, std::int64_t{0}, std::int64_t{-1}}) {
        room = bytes;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "bytes", false)) << bytes;
    }
    room = needed;
    for (const int offset : {1, 4, 32}) {
        place = static_cast<char *>(memory.view.data) + offset;
        EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, "memory", false)) << offset;
    }
}

TEST_F(BadPack, MemoryThatOverlapsASource) {
    only_with_memory = true;
    for (const NamedTensor &each : all()) {
        const auto bytes = static_cast<std::int64_t>(each.tensor.count() * 4);
        for (const std::int64_t at : {std::int64_t{0}, room / 2, room - bytes, room - 4, 4 - bytes}) {
            DLTensor &view = each.tensor.view;
            const DLTensor good = view;
            if (at >= 0 && at <= room - bytes) {
                view.data = static_cast<char *>(memory.view.data) + at / 4 * 4;
            } else {
                continue;
            }
            EXPECT_TRUE(refuses(HALYARD_INVALID_ARGUMENT, each.name, false)) << at;
            EXPECT_NE(std::string(halyard_last_error()).find("memory"), std::string::npos) << halyard_last_error();
            view = good;
        }
    }
    // Memory right behind a source, or before one, is fine.
    Tensor both(Dtype::f32, {{1, 64 * 64 + room / 4 + 24 * 20}, {}, Placement::starts_at_guard, 0, 0});
    PackSource plain({Dtype::f32, 24, 20});
    both.clear();
    plain.weight.view.data = both.view.data;
    char *const behind = static_cast<char *>(both.view.data) + 24 * 20 * 4;
    halyard_weights *weights = nullptr;
    ASSERT_EQ(24 * 20 * 4 % 64, 0);
    EXPECT_EQ(halyard_weights_pack(nullptr, &plain.weight.view, nullptr, behind, plain.size(), &weights), HALYARD_OK)
        << halyard_last_error();
    halyard_weights_destroy(weights);
    plain.weight.view.data = behind + plain.size();
    EXPECT_EQ(halyard_weights_pack(nullptr, &plain.weight.view, nullptr, behind, plain.size(), &weights), HALYARD_OK)
        << halyard_last_error();
    halyard_weights_destroy(weights);
}

}  // namespace
}  // namespace halyard::tests
