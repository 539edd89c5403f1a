// Every way in which matrices that are quantized already can be wrong: what is refused, with which message, and that nothing is written.
#include <algorithm>
#include <limits>

#include "support/code_source.h"

namespace halyard::tests {
namespace {

// ---- Bad arguments ----

class BadCodes : public testing::Test {
protected:
    static CodeCase gptq() {
        CodeCase c;
        c.format = HALYARD_CODES_GPTQ;
        c.bits = 4;
        c.in = 64;
        c.out = 24;
        c.group = 32;
        c.zeros = c.gated = true;
        return c;
    }

    /** All functions that see what is wrong refuse it; nothing is written. */
    testing::AssertionResult refuses(halyard_status status, const std::string &word, bool shape_is_wrong = true) {
        std::int64_t bytes = -77;
        if (shape_is_wrong) {
            const auto result =
                refused(halyard_weights_codes_size(codes, up, &bytes), status, "halyard_weights_codes_size", word);
            if (!result || bytes != -77) {
                return result ? testing::AssertionFailure() << "bytes was written" : result;
            }
        }
        if (word.rfind("codes", 0) == 0) {
            const auto result = refuses_to_dequantize(status, word);
            if (!result) {
                return result;
            }
        }
        for (char *const target : {place, static_cast<char *>(nullptr)}) {
            halyard_weights *weights = untouched;
            const auto result = refused(halyard_weights_pack_codes(nullptr, codes, up, target, room, &weights), status,
                                        "halyard_weights_pack_codes", word);
            if (!result || weights != untouched) {
                return result ? testing::AssertionFailure() << "weights was written" : result;
            }
        }
        return testing::AssertionSuccess();
    }
    testing::AssertionResult invalid(const std::string &word, bool shape_is_wrong = true) {
        return refuses(HALYARD_INVALID_ARGUMENT, word, shape_is_wrong);
    }

    testing::AssertionResult refuses_to_dequantize(halyard_status status, const std::string &word) {
        const std::vector<std::uint8_t> before = y.snapshot();
        const auto result = refused(halyard_dequantize(nullptr, codes, &y.view), status, "halyard_dequantize", word);
        return result && y.snapshot() != before ? testing::AssertionFailure() << "y was written" : result;
    }

    static inline halyard_weights *const untouched = reinterpret_cast<halyard_weights *>(64);
    CodeSource source{gptq()};
    halyard_codes *codes = &source.codes[0], *up = &source.codes[1];
    std::vector<char> memory = std::vector<char>(static_cast<std::size_t>(source.size()) + 64);
    char *const place = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    std::int64_t room = source.size();
    Tensor y{Dtype::f32, compact_form({24, 64})};
};

TEST_F(BadCodes, Dequantized) {
    const auto invalid_y = [&](const std::string &word) {
        return refuses_to_dequantize(HALYARD_INVALID_ARGUMENT, word);
    };
    EXPECT_TRUE(refused(halyard_dequantize(nullptr, codes, nullptr), HALYARD_INVALID_ARGUMENT, "halyard_dequantize",
                        "y is null"));
    const DLTensor good = y.view;
    std::int64_t shape[] = {24, 64, 1};
    y.view.shape = shape;
    for (const std::int64_t extent : {0, 1, 23, 25}) {
        shape[0] = extent;
        EXPECT_TRUE(invalid_y("but must have shape [24, 64]"));
    }
    shape[0] = 64;
    shape[1] = 24;
    EXPECT_TRUE(invalid_y("y has rank 2 and width 24"));
    shape[0] = 24;
    shape[1] = 64;
    for (const int rank : {1, 3}) {
        y.view.ndim = rank;
        EXPECT_TRUE(invalid_y("y has rank " + std::to_string(rank)));
    }
    y.view = good;
    y.view.dtype.bits = 64;
    EXPECT_TRUE(refuses_to_dequantize(HALYARD_UNSUPPORTED, "y has dtype"));
    y.view = good;
    for (DLTensor *const tensor : {&source.matrix[0]->view, &source.scales[0]->view, &source.zeros[0]->view}) {
        void *const data = tensor->data;
        tensor->data = y.view.data;
        EXPECT_TRUE(invalid_y("overlaps"));
        tensor->data = data;
    }
    EXPECT_EQ(halyard_dequantize(nullptr, codes, &y.view), HALYARD_OK) << halyard_last_error();
}

// Memory of y may end where codes begin, at any byte.
TEST(CodesNumbers, MayLieBesideTheirCodes) {
    alignas(8) std::uint8_t memory[128 + 34 + 128] = {};
    std::int64_t shape[] = {1, 32}, bytes[] = {1, 34};
    halyard_codes codes{};
    codes.in_features = 32;
    codes.out_features = 1;
    for (const std::int64_t begin : {66, 67}) {
        DLTensor matrix{memory + begin, {kDLCPU, 0}, 2, u8, bytes, nullptr, 0};
        codes.matrix = &matrix;
        for (const std::int64_t at : {begin / 2 * 2 - 64, (begin + 35) / 2 * 2}) {
            DLTensor y{memory + at, {kDLCPU, 0}, 2, dlpack_type(Dtype::bf16), shape, nullptr, 0};
            EXPECT_EQ(halyard_dequantize(nullptr, &codes, &y), HALYARD_OK) << halyard_last_error();
        }
    }
}

TEST_F(BadCodes, Null) {
    EXPECT_TRUE(refused(halyard_weights_codes_size(codes, up, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_codes_size", "bytes is null"));
    EXPECT_TRUE(refused(halyard_weights_pack_codes(nullptr, codes, up, nullptr, 0, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_pack_codes", "weights is null"));
    codes = nullptr;
    EXPECT_TRUE(invalid("codes is null"));
}

TEST_F(BadCodes, Numbers) {
    const auto with = [&](auto halyard_codes::*field, auto value, const char *word) {
        for (halyard_codes *const each : {codes, up}) {
            const auto good = each->*field;
            each->*field = value;
            // The message about `up` may be that it is not as `codes` is.
            EXPECT_TRUE(invalid((each == codes ? "codes." : "up.") + std::string(word))) << word;
            each->*field = good;
        }
    };
    with(&halyard_codes::format, static_cast<halyard_code_format>(13), "format is 13");
    with(&halyard_codes::format, static_cast<halyard_code_format>(-1), "format is -1");
    for (const int bits : {0, 1, 3, 5, 16, -4}) {
        with(&halyard_codes::bits, bits, "bits");
    }
    for (const std::int64_t features : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
        with(&halyard_codes::in_features, features, "in_features");
        with(&halyard_codes::out_features, features, "out_features");
    }
    for (const std::int64_t group : {-32, 1, 8, 17, 100}) {
        with(&halyard_codes::group, group, "group");
    }
    codes->format = HALYARD_CODES_AWQ;
    EXPECT_TRUE(invalid("codes.bits is 4, but must be 0 for AWQ"));
    codes->format = HALYARD_CODES_Q4_K;
    codes->bits = 0;
    EXPECT_TRUE(invalid("codes.group is 32, but must be 0 for Q4_K"));
    codes->group = 0;
    EXPECT_TRUE(invalid("codes.in_features is 64, but must be a multiple of 256 for Q4_K"));
    codes->in_features = 256;
    EXPECT_TRUE(invalid("codes.scales is there, but must be null: Q4_K"));
    codes->scales = nullptr;
    EXPECT_TRUE(invalid("codes.zeros is there, but must be null: Q4_K"));
    codes->zeros = nullptr;
    EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, "codes.matrix has dtype int32, but must be uint8"));
}

TEST_F(BadCodes, MissingTensors) {
    for (halyard_codes *const each : {codes, up}) {
        const std::string name = each == codes ? "codes" : "up";
        for (const DLTensor *halyard_codes::*const field : {&halyard_codes::matrix, &halyard_codes::scales}) {
            const DLTensor *const good = each->*field;
            each->*field = nullptr;
            EXPECT_TRUE(invalid(name + (field == &halyard_codes::matrix ? ".matrix is null" : ".scales is null")));
            each->*field = good;
        }
        const DLTensor *const good = each->zeros;
        each->zeros = nullptr;
        EXPECT_TRUE(invalid("both matrices or none must have zeros"));
        each->zeros = good;
    }
}

TEST_F(BadCodes, Tensors) {
    for (int m = 0; m < 2; m++) {
        const struct {
            DLTensor &view;
            const char *name, *shape;
            DLDataType other;
        } tensors[] = {{source.matrix[m]->view, "matrix", "[8, 24]", {kDLUInt, 32, 1}},
                       {source.scales[m]->view, "scales", "[2, 24]", {kDLFloat, 64, 1}},
                       {source.zeros[m]->view, "zeros", "[2, 3]", {kDLInt, 8, 1}}};
        for (const auto &t : tensors) {
            const std::string name = (m == 0 ? "codes." : "up.") + std::string(t.name);
            const DLTensor good = t.view;
            std::int64_t shape[3] = {good.shape[0], good.shape[1], 1}, strides[2] = {good.strides[0], 2};
            t.view.shape = shape;
            t.view.strides = nullptr;
            for (const int axis : {0, 1}) {
                for (const std::int64_t extent : {0, -1, 1, 200}) {
                    shape[axis] = extent;
                    EXPECT_TRUE(invalid(name)) << extent;
                    if (extent == 200) {
                        EXPECT_TRUE(invalid("but must have " + std::string(t.shape)));
                    }
                }
                shape[axis] = good.shape[axis];
            }
            for (const int rank : {0, 1, 3, 5}) {
                t.view.ndim = rank;
                EXPECT_TRUE(invalid(name)) << rank;
            }
            t.view.ndim = 2;
            t.view.shape = nullptr;
            EXPECT_TRUE(invalid(name));
            t.view = good;
            t.view.dtype = t.other;
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
            t.view.dtype = good.dtype;
            t.view.dtype.lanes = 2;
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
            t.view = good;
            // What only concerns the data.
            t.view.strides = strides;
            EXPECT_TRUE(invalid(name + " has stride 2", false));
            strides[0] = -1;
            strides[1] = 1;
            EXPECT_TRUE(invalid(name + " has stride -1", false));
            t.view = good;
            t.view.data = nullptr;
            EXPECT_TRUE(invalid(name + " has no data", false));
            t.view = good;
            t.view.byte_offset = 1;
            EXPECT_TRUE(invalid(name + " has misaligned data", false));
            t.view = good;
            t.view.device = {kDLVulkan, 0};
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " is on device type", false));
            t.view = good;
        }
    }
    EXPECT_NE(source.pack(), nullptr);
}

TEST_F(BadCodes, Order) {
    IntegerTensor g_idx(i32, {64}, 0, Placement::ends_at_guard);
    for (std::int64_t k = 0; k < 64; k++) {
        *g_idx.at(k, 0) = static_cast<std::uint8_t>(k / 32);
    }
    IntegerTensor of_other(i32, {64}, 0, Placement::ends_at_guard);
    std::copy_n(g_idx.at(0, 0), 4 * 64, of_other.at(0, 0));
    for (halyard_codes *const each : {codes, up}) {
        const std::string name = each == codes ? "codes.g_idx" : "up.g_idx";
        (each == codes ? up : codes)->g_idx = &of_other.view;
        each->g_idx = &g_idx.view;
        EXPECT_NE(source.pack(), nullptr);
        *g_idx.at(33, 0) = 2;
        EXPECT_TRUE(invalid(name + " has group 2 for input 33, but must have 0 to 1", false));
        *g_idx.at(33, 0) = 1;
        g_idx.view.dtype.bits = 64;
        EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
        g_idx.view.dtype = i32;
        std::int64_t shape[] = {63};
        const std::int64_t *const good = g_idx.view.shape;
        g_idx.view.shape = shape;
        EXPECT_TRUE(invalid(name + " has rank 1 and width 63, but must have shape [64]"));
        g_idx.view.shape = const_cast<std::int64_t *>(good);
    }
    up->g_idx = nullptr;
    EXPECT_TRUE(invalid("up.g_idx is null, but codes.g_idx is there: both matrices or none"));
    CodeCase c = gptq();
    c.format = HALYARD_CODES_AWQ;
    c.bits = 0;
    CodeSource awq(c);
    codes = &awq.codes[0];
    up = &awq.codes[1];
    codes->g_idx = &g_idx.view;
    EXPECT_TRUE(invalid("codes.g_idx is there, but must be null: AWQ"));
}

TEST_F(BadCodes, DifferingScales) {
    CodeCase c = gptq();
    c.scales = Dtype::f32;
    CodeSource other(c);
    up = &other.codes[1];
    EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, "up.scales has dtype f32, but must have the dtype of codes.scales"));
}

TEST_F(BadCodes, Memory) {
    halyard_weights *weights = untouched;
    const auto pack_at = [&](void *target, std::int64_t bytes) {
        return halyard_weights_pack_codes(nullptr, codes, up, target, bytes, &weights);
    };
    const std::string function = "halyard_weights_pack_codes";
    EXPECT_TRUE(refused(pack_at(place + 4, room), HALYARD_INVALID_ARGUMENT, function, "memory is misaligned"));
    EXPECT_TRUE(refused(pack_at(place, room - 1), HALYARD_INVALID_ARGUMENT, function, "bytes is"));
    EXPECT_EQ(weights, untouched);
    // Sources within the memory.
    for (int m = 0; m < 2; m++) {
        for (DLTensor *const view : {&source.matrix[m]->view, &source.scales[m]->view, &source.zeros[m]->view}) {
            const DLTensor good = *view;
            for (const std::int64_t offset : {std::int64_t{0}, room - 4}) {
                view->data = place + offset;
                EXPECT_TRUE(refused(pack_at(place, room), HALYARD_INVALID_ARGUMENT, function, "memory overlaps"));
            }
            *view = good;
        }
    }
    EXPECT_EQ(weights, untouched);
    ASSERT_EQ(pack_at(place, room), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(halyard_weights_data(weights), place);
    EXPECT_TRUE(same_bytes(source.expected.block(), place));
    halyard_weights_destroy(weights);
}

// ---- Scales that no weight can have ----

class BadScales : public testing::TestWithParam<FormatAndBits> {};

/** Packing fails, and what it has left in memory of the caller is no block. */
testing::AssertionResult leaves_nothing_to_load(const CodeSource &source) {
    const AlignedMemory memory(source.size());
    halyard_weights *weights = nullptr;
    const halyard_status packed =
        halyard_weights_pack_codes(nullptr, &source.codes[0], source.up(), memory.data(), memory.size(), &weights);
    if (packed != HALYARD_INVALID_ARGUMENT || weights != nullptr) {
        return testing::AssertionFailure() << "packed";
    }
    return memory.holds_no_weights();
}

TEST_P(BadScales, AreRefused) {
    CodeCase c;
    c.format = GetParam().format;
    c.bits = GetParam().bits;
    c.in = 768;
    c.out = 20;
    c.group = c.block() ? 0 : 32;
    c.gated = true;
    for (const Dtype type : c.block() ? std::vector<Dtype>{Dtype::f16}
                                      : std::vector<Dtype>(std::begin(all_dtypes), std::end(all_dtypes))) {
        c.scales = type;
        CodeSource source(c);
        const std::uint32_t infinity = encode(type, std::numeric_limits<double>::infinity()), nan = infinity + 1,
                            sign = type == Dtype::f32 ? 0x80000000 : 0x8000,
                            largest = encode(type, type == Dtype::f16 ? 65504 : 0x1p100);
        for (int m = 0; m < 2; m++) {
            // The first and the last, and minima too.
            std::vector<void *> places;
            if (const BlockFormat *const f = c.block()) {
                std::uint8_t *const last = source.matrix[m]->at(19, (768 / f->inputs - 1) * f->bytes);
                places = {source.matrix[m]->at(0, 0) + f->scale, last + f->scale};
                if (f->minimum >= 0) {
                    places.push_back(last + f->minimum);
                }
            } else {
                places = {source.scales[m]->at(0, 0),
                          source.scales[m]->at(source.scales[m]->rows() - 1, source.scales[m]->width() - 1)};
            }
            const std::size_t size = size_of(type);
            for (void *const place : places) {
                std::uint32_t good = 0;
                std::memcpy(&good, place, size);
                std::vector<std::uint32_t> bad = {infinity, infinity | sign, nan, nan | sign};
                if (type != Dtype::f16) {
                    bad.push_back(largest + 1);
                    bad.push_back((largest + 1) | sign);
                }
                halyard_weights *weights = nullptr;
                for (const std::uint32_t bits : bad) {
                    std::memcpy(place, &bits, size);
                    EXPECT_TRUE(leaves_nothing_to_load(source));
                    EXPECT_TRUE(refused(
                        halyard_weights_pack_codes(nullptr, &source.codes[0], source.up(), nullptr, 0, &weights),
                        HALYARD_INVALID_ARGUMENT, "halyard_weights_pack_codes",
                        (m == 0 ? "codes." : "up.") + std::string(c.block() ? "matrix" : "scales") +
                            " holds scales that are NaN or Inf"));
                    EXPECT_EQ(weights, nullptr);
                }
                for (const std::uint32_t bits : {largest, largest | sign, 0u, sign, 1u}) {
                    std::memcpy(place, &bits, size);
                    EXPECT_NE(source.pack(), nullptr);
                }
                std::memcpy(place, &good, size);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, BadScales, testing::ValuesIn(all_formats()), name_of_format);

}  // namespace
}  // namespace halyard::tests
