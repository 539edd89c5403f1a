// Files in the GGUF format: what is read from them, every way in which they can be damaged, and the numbers that blocks of
// quantized tensors stand for.
#include "gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "support/files.h"
#include "support/gguf.h"
#include "support/gguf_numbers.h"
#include "support/guarded_file.h"

namespace halyard::tests {
namespace {

using models::BlockFormat;
using models::Gguf;
using models::Json;

constexpr std::uint32_t f32_type = 0, q8_0_type = 8, q4_k_type = 12;
constexpr std::uint32_t bool_value = 7, string_value = 8, array_value = 9;

/** Read from memory that ends where the file ends. */
class Guarded : public GuardedFile {
public:
    using GuardedFile::GuardedFile;
    Gguf open() const { return Gguf::from_memory(data(), size(), "the file"); }
};

GgufFile good_file() {
    GgufFile file;
    file.set("general.architecture", "llama");
    file.set("a.u32", std::uint32_t{7});
    file.set("a.f32", 2.5f);
    file.set("a.bool", true);
    file.entries.push_back({"a.s8", 1, bytes_of(std::int8_t{-3})});
    file.entries.push_back({"a.u64", 10, bytes_of(~std::uint64_t{0})});
    file.entries.push_back({"a.f64", 12, bytes_of(0.1)});
    file.entries.push_back({"a.strings", array_value, gguf_array(string_value, 2, gguf_string("x") + gguf_string(""))});
    file.entries.push_back({"a.numbers", array_value, gguf_array(3, 3, "123456")});
    file.add({"b", {2, 3}, f32_type, std::string("012345678901234567890123")});
    file.add({"a", {3, 32}, q8_0_type, std::string(102, 'q')});
    return file;
}

TEST(Gguf, HoldsWhatItSays) {
    for (const std::uint32_t version : {2u, 3u}) {
        GgufFile written = good_file();
        written.version = version;
        const Guarded guarded(written.bytes());
        const Gguf file = guarded.open();
        EXPECT_EQ(file.file(), "the file");
        EXPECT_EQ(file.keys().size(), 9u);
        EXPECT_TRUE(file.has("a.u32"));
        EXPECT_FALSE(file.has("a.u3"));
        EXPECT_EQ(*file.metadata("general.architecture").as<std::string>(), "llama");
        EXPECT_EQ(*file.metadata("a.u32").as<std::uint64_t>(), 7u);
        EXPECT_EQ(file.metadata("a.f32").as<Json::Real>()->value, 2.5);
        EXPECT_EQ(*file.metadata("a.bool").as<bool>(), true);
        EXPECT_EQ(*file.metadata("a.s8").as<std::int64_t>(), -3);
        EXPECT_EQ(*file.metadata("a.u64").as<std::uint64_t>(), ~std::uint64_t{0});
        EXPECT_EQ(file.metadata("a.f64").as<Json::Real>()->value, 0.1);
        EXPECT_TRUE(file.metadata("a.strings").as<Json::Array>()->empty());
        EXPECT_NE(file.metadata("a.numbers").as<Json::Array>(), nullptr);
        EXPECT_NE(file.metadata("missing").as<std::monostate>(), nullptr);

        ASSERT_EQ(file.tensors().size(), 2u);
        EXPECT_EQ(file.find("c"), nullptr);
        const TensorInfo *const a = file.find("a"), *const b = file.find("b");
        ASSERT_TRUE(a == &file.tensors()[0] && b == &file.tensors()[1]);
        EXPECT_EQ(a->dtype, "Q8_0");
        EXPECT_EQ(a->shape, (std::vector<std::int64_t>{3, 32}));
        EXPECT_EQ(a->bytes, 102);
        EXPECT_EQ(static_cast<char>(a->data[101]), 'q');
        EXPECT_EQ(a->file, "the file");
        EXPECT_EQ(b->dtype, "F32");
        EXPECT_EQ(b->bytes, 24);
        EXPECT_EQ(static_cast<char>(b->data[23]), '3');
    }
}

TEST(Gguf, MayHoldNothing) {
    EXPECT_TRUE(Guarded(GgufFile().bytes()).open().tensors().empty());
}

TEST(Gguf, MayBeAlignedOtherwise) {
    for (const std::uint32_t alignment : {1u, 8u, 256u, 1u << 20}) {
        GgufFile file;
        file.alignment = alignment;
        file.set("general.alignment", alignment);
        file.add({"x", {1}, f32_type, "0123"});
        file.add({"y", {2}, f32_type, "89abcdef"});
        const Guarded guarded(file.bytes());
        const Gguf read = guarded.open();
        EXPECT_EQ((reinterpret_cast<const char *>(read.find("y")->data) - guarded.data()) % alignment, 0);
        EXPECT_EQ(static_cast<char>(read.find("y")->data[7]), 'f');
    }
}

TEST(Gguf, IsMapped) {
    const TemporaryFolder folder;
    write_text(folder / "x.gguf", good_file().bytes());
    Gguf file = Gguf::open(folder / "x.gguf");
    const Gguf moved = std::move(file);
    EXPECT_EQ(static_cast<char>(moved.find("b")->data[23]), '3');
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { Gguf::open(folder / "y.gguf"); }, (folder / "y.gguf").string(),
        "No such file"));
}

// ---- Damage ----

TEST(GgufDamage, IsRefusedByName) {
    constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
    const auto entry = [](std::uint32_t type, const std::string &value) {
        return [=](GgufFile &file) { file.entries.push_back({"the.key", type, value}); };
    };
    const auto tensor = [](const GgufFile::Tensor &added) { return [=](GgufFile &file) { file.add(added); }; };
    const auto at = [](std::uint64_t offset) {
        return [=](GgufFile &file) {
            file.add({"x", {1}, f32_type, "0123"});
            file.offsets.back() = offset;
        };
    };
    const struct {
        std::function<void(GgufFile &)> damage;
        std::string words[2];
        halyard_status status = HALYARD_INVALID_ARGUMENT;
    } all[] = {
        // The header.
        {[](GgufFile &file) { file.magic = "GGML"; }, {"does not begin with 'GGUF'"}},
        {[](GgufFile &file) { file.version = 1; }, {"version 1"}, HALYARD_UNSUPPORTED},
        {[](GgufFile &file) { file.version = 4; }, {"version 4"}, HALYARD_UNSUPPORTED},
        {[](GgufFile &file) { file.version = 3u << 24; }, {"big-endian"}, HALYARD_UNSUPPORTED},
        // Metadata: types before values, lengths against what is left, arrays, names.
        {entry(13, bytes_of(std::uint32_t{0})), {"'the.key'", "unknown type 13"}},
        {entry(~0u, bytes_of(std::uint32_t{0})), {"'the.key'", "unknown type 4294967295"}},
        {entry(string_value, bytes_of(huge)), {"'the.key'", "18446744073709551615 bytes"}},
        {entry(string_value, bytes_of(huge >> 1)), {"'the.key'", "9223372036854775807 bytes"}},
        {entry(string_value, bytes_of(std::uint64_t{1} << 20)), {"'the.key'", "1048576 bytes"}},
        {entry(bool_value, "\2"), {"'the.key'", "neither 0 nor 1"}},
        {entry(array_value, gguf_array(bool_value, 3, std::string("\1\0\3", 3))), {"'the.key'", "neither 0 nor 1"}},
        {entry(array_value, gguf_array(13, 1, "0")), {"'the.key'", "elements of the unknown type 13"}},
        {entry(array_value, gguf_array(array_value, 1, gguf_array(4, 0, ""))),
         {"'the.key'", "array of arrays"},
         HALYARD_UNSUPPORTED},
        {entry(array_value, gguf_array(0, huge, "0")), {"18446744073709551615 elements of an array", "'the.key'"}},
        {entry(array_value, gguf_array(10, huge / 8 + 2, "0")), {"elements of an array", "'the.key'"}},
        {entry(array_value, gguf_array(string_value, huge / 8, "0")), {"elements of an array", "'the.key'"}},
        {entry(array_value, gguf_array(string_value, 2, gguf_string("x") + bytes_of(huge))), {"'the.key'", "takes"}},
        {[](GgufFile &file) { file.set("a.u32", 1u); }, {"two entries of metadata named 'a.u32'"}},
        {[](GgufFile &file) { file.set("", 1u); }, {"name of 0 bytes"}},
        {[](GgufFile &file) { file.set(std::string(65536, 'k'), 1u); }, {"name of 65536 bytes"}},
        {[](GgufFile &file) { file.set("general.alignment", 0u); }, {"general.alignment", "is 0"}},
        {[](GgufFile &file) { file.set("general.alignment", 48u); }, {"general.alignment", "is 48"}},
        {[](GgufFile &file) { file.set("general.alignment", 1u << 21); }, {"general.alignment", "is 2097152"}},
        {[](GgufFile &file) { file.set("general.alignment", 32.0f); }, {"general.alignment", "not of type u32"}},
        // Tensors: ranks, shapes, types, names, offsets.
        {tensor({"x", {}, f32_type, "0123"}), {"'x'", "rank 0"}},
        {tensor({"x", {1, 1, 1, 1, 1}, f32_type, "0123"}), {"'x'", "rank 5"}},
        {tensor({"x", {2, 0}, f32_type, ""}), {"'x'", "extent 0"}},
        {tensor({"x", {huge}, f32_type, ""}), {"'x'", "too large"}},
        {tensor({"x", {std::uint64_t{1} << 62}, f32_type, ""}), {"'x'", "too large"}},
        {tensor({"x", {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, f32_type, ""}), {"'x'", "too large"}},
        {tensor({"x", {std::uint64_t{1} << 42, 1 << 10, 1 << 10}, q8_0_type, ""}),
         {"'x'", "of 4899916394579099648 bytes"}},
        {tensor({"x", {2, 16}, q8_0_type, std::string(34, '0')}), {"'x'", "whole blocks of 32"}},
        {tensor({"x", {3, 224}, q4_k_type, std::string(378, '0')}), {"'x'", "whole blocks of 256"}},
        {tensor({"x", {1}, 4, "0123"}), {"'x'", "unknown type 4"}},
        {tensor({"x", {1}, ~0u, "0123"}), {"'x'", "unknown type 4294967295"}},
        {tensor({"x", {256}, 22, "0123"}), {"'x' is IQ2_S", "F32, F16, BF16, Q8_0, Q4_0"}, HALYARD_UNSUPPORTED},
        {tensor({"x", {1}, 26, "0123"}), {"'x' is I32"}, HALYARD_UNSUPPORTED},
        {tensor({"a", {1}, f32_type, "0123"}), {"two tensors named 'a'"}},
        {tensor({"", {1}, f32_type, "0123"}), {"a tensor with a name of 0 bytes"}},
        {tensor({std::string(65, 'n'), {1}, f32_type, "0123"}), {"name of 65 bytes"}},
        {tensor({"x", {1}, f32_type, "012"}), {"'x'", "cut short"}},
        {at(4), {"'x' has offset 4", "alignment 32"}},
        {at(0), {"'b'", "overlap"}},
        {at(32), {"'a'", "overlap"}},
        {at(64), {"'a'", "overlap"}},
        {at(1 << 20), {"'x' of 4 bytes begins at byte 1048576", "cut short"}},
        {at(huge - 31), {"'x'", "cut short"}},
        {at(std::uint64_t{1} << 63), {"'x'", "cut short"}},
    };
    for (const auto &each : all) {
        GgufFile file = good_file();
        each.damage(file);
        const Guarded guarded(file.bytes());
        EXPECT_TRUE(throws(
            each.status, [&] { guarded.open(); }, "the file", each.words[0], each.words[1]))
            << each.words[0];
    }
}

TEST(GgufDamage, OfCountsIsRefused) {
    const std::string good = good_file().bytes();
    for (const std::size_t place : {8, 16}) {
        for (const std::uint64_t count : {std::uint64_t{1000}, std::uint64_t{1} << 32, std::uint64_t{1} << 63,
                                          std::numeric_limits<std::uint64_t>::max()}) {
            std::string file = good;
            std::memcpy(&file[place], &count, sizeof(count));
            const Guarded guarded(file);
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT, [&] { guarded.open(); }, "the file", std::to_string(count),
                place == 8 ? "tensors" : "entries of metadata"));
        }
    }
}

TEST(GgufDamage, ByTruncationIsNoticedAtEveryLength) {
    const std::string good = good_file().bytes();
    for (std::size_t size = 0; size < good.size(); size++) {
        const Guarded file(good.substr(0, size));
        ASSERT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { file.open(); }, "the file", size < 4 ? "is no GGUF file" : "is cut short"))
            << size;
    }
}

// Thousands of small changes of a file. What is accepted must be consistent.
TEST(GgufMutations, NeverCrashAndAreAcceptedOnlyIfConsistent) {
    const std::string good = good_file().bytes();
    const std::size_t header = good.find("0123456789");
    std::mt19937_64 random(2026);
    int accepted = 0;
    constexpr int count = 30000;
    for (int i = 0; i < count; i++) {
        std::string file = good;
        for (std::uint64_t changes = 1 + random() % 2; changes > 0; changes--) {
            const std::size_t at = random() % header;
            switch (random() % 4) {
            case 0:
                file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
                break;
            case 1:
                file[at] = static_cast<char>(random() % 2 == 0 ? 0xff : random() % 16);
                break;
            case 2:
                file.insert(at, std::string(1 + random() % 8, '\0'));
                break;
            default:
                file.erase(at, 1 + random() % 8);
            }
        }
        const Guarded guarded(file);
        try {
            const Gguf read = guarded.open();
            accepted++;
            const auto *const begin = reinterpret_cast<const std::byte *>(guarded.data());
            for (const TensorInfo &info : read.tensors()) {
                ASSERT_GE(info.data, begin + 24);
                ASSERT_LE(info.data + info.bytes, begin + file.size());
                ASSERT_EQ(read.find(info.name), &info);
            }
            for (const std::string &key : read.keys()) {
                read.metadata(key);
            }
        } catch (const Error &error) {
            ASSERT_EQ(std::string(error.what()).rfind("the file", 0), 0u) << error.what();
        }
    }
    // Changes of names and values make a file that is as good as any.
    EXPECT_GT(accepted, count / 50);
    EXPECT_LT(accepted, count / 2);
}

// ---- Blocks ----

int byte_at(const std::byte *block, int index) {
    return std::to_integer<int>(block[index]);
}

/** Bits [first, first + count) of the block, the lowest of each byte first. */
int bits(const std::byte *block, int first, int count) {
    int value = 0;
    for (int i = 0; i < count; i++) {
        value |= (byte_at(block, (first + i) / 8) >> (first + i) % 8 & 1) << i;
    }
    return value;
}

double f16_number(const std::byte *bytes) {
    const int half = byte_at(bytes, 0) | byte_at(bytes, 1) << 8, exponent = half >> 10 & 31;
    const double magnitude =
        exponent == 0 ? std::ldexp(half & 1023, -24) : std::ldexp(1024 + (half & 1023), exponent - 25);
    return half >> 15 != 0 ? -magnitude : magnitude;
}

/** Number j of a block as scale * code + minimum in float64, from the formats' definitions. */
struct Expected {
    double scale = 0, code = 0, minimum = 0;
};

Expected expected_number(const std::string &format, const std::byte *block, int j) {
    const double d = f16_number(block);
    const auto nibble = [&](int codes, int index) {  // low ones of 16 bytes, then their high ones
        return bits(block, 8 * (codes + index % 16) + 4 * (index / 16), 4);
    };
    if (format == "Q8_0") {
        return {d, static_cast<double>(static_cast<std::int8_t>(byte_at(block, 2 + j)))};
    }
    if (format == "Q4_0") {
        return {d, nibble(2, j) - 8.0};
    }
    if (format == "Q4_1") {
        return {d, static_cast<double>(nibble(4, j)), f16_number(block + 2)};
    }
    if (format == "Q5_0") {
        return {d, nibble(6, j) + 16.0 * bits(block, 16 + j, 1) - 16};
    }
    if (format == "Q5_1") {
        return {d, nibble(8, j) + 16.0 * bits(block, 32 + j, 1), f16_number(block + 2)};
    }
    if (format == "Q6_K") {
        const int half = j / 128, quarter = j % 128 / 32, column = j % 32;
        const int low = bits(block, 8 * (64 * half + 32 * (quarter % 2) + column) + 4 * (quarter / 2), 4);
        const int high = bits(block, 8 * (128 + 32 * half + column) + 2 * quarter, 2);
        return {f16_number(block + 208) * static_cast<std::int8_t>(byte_at(block, 192 + j / 16)),
                low + 16.0 * high - 32};
    }
    // Q4_K and Q5_K: six bits of scale and of minimum for each sub-block, those of the last four in two parts.
    const int sub = j / 32, column = j % 32;
    const int scale = sub < 4 ? bits(block, 32 + 8 * sub, 6)
                              : bits(block, 96 + 8 * (sub - 4), 4) + 16 * bits(block, 32 + 8 * (sub - 4) + 6, 2);
    const int least = sub < 4 ? bits(block, 64 + 8 * sub, 6)
                              : bits(block, 96 + 8 * (sub - 4) + 4, 4) + 16 * bits(block, 64 + 8 * (sub - 4) + 6, 2);
    const int codes = format == "Q4_K" ? 16 : 48;
    const int fifth = format == "Q4_K" ? 0 : bits(block, 8 * (16 + column) + sub, 1);
    return {d * scale, bits(block, 8 * (codes + 32 * (sub / 2) + column) + 4 * (sub % 2), 4) + 16.0 * fifth,
            -f16_number(block + 2) * least};
}

constexpr const char *quantized[] = {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};

TEST(GgufBlocks, StandForWhatTheirDefinitionsSay) {
    std::mt19937_64 random(7);
    for (const std::string name : quantized) {
        const BlockFormat &format = *models::block_format(name);
        ASSERT_EQ(models::block_format(format.type), &format);
        constexpr int blocks = 200;
        std::vector<std::byte> bytes(static_cast<std::size_t>(blocks * format.bytes));
        for (std::byte &each : bytes) {
            each = static_cast<std::byte>(random());
        }
        for (int i = 0; i < blocks; i++) {  // numbers, not infinities
            for (const std::int64_t place : {name == "Q6_K" ? 209 : 1, name == "Q6_K" ? 209 : 3}) {
                std::byte &high = bytes[static_cast<std::size_t>(i * format.bytes + place)];
                high = (high & std::byte{0x7c}) == std::byte{0x7c} ? high & std::byte{0xbf} : high;
            }
        }
        const std::vector<float> values = numbers_of(format, bytes.data(), blocks * format.elements);
        for (std::size_t i = 0; i < values.size(); i++) {
            const auto elements = static_cast<std::size_t>(format.elements);
            const Expected number = expected_number(name, &bytes[i / elements * static_cast<std::size_t>(format.bytes)],
                                                    static_cast<int>(i % elements));
            const double product = number.scale * number.code, want = product + number.minimum;
            // At most four roundings: of both scales, the product and the sum.
            const double bound =
                0x1p-24 * (2.01 * std::abs(product) + 1.01 * std::abs(number.minimum) + std::abs(want));
            ASSERT_LE(std::abs(values[i] - want), bound) << name << " " << i;
        }
    }
}

// As ggml has them, to the bit (data/gguf/make_blocks.py).
TEST(GgufBlocks, StandForWhatGgmlMakesOfThem) {
    const Gguf file = Gguf::open(HALYARD_TEST_DATA "/gguf/blocks.gguf");
    ASSERT_EQ(file.tensors().size(), 2 * std::size(quantized));
    for (const std::string name : quantized) {
        const TensorInfo *const blocks = file.find(name), *const numbers = file.find(name + ".f32");
        ASSERT_TRUE(blocks != nullptr && numbers != nullptr) << name;
        EXPECT_EQ(blocks->dtype, name);
        ASSERT_EQ(blocks->shape, (std::vector<std::int64_t>{2, 512}));
        ASSERT_EQ(numbers->shape, blocks->shape);
        const std::vector<float> values = numbers_of(*models::block_format(name), blocks->data, 1024);
        EXPECT_EQ(std::memcmp(values.data(), numbers->data, 4096), 0) << name;
    }
}

}  // namespace
}  // namespace halyard::tests
