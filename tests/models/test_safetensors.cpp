// Files in the safetensors format: what is read from them, and every way in which they can be damaged.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>
#include <random>

#include "halyard/model.hpp"
#include "support/files.h"
#include "support/guarded_file.h"

namespace halyard::tests {
namespace {

/** A file: the header's length, the header, `data_bytes` bytes 0, 1, 2, ... */
std::string file_of(const std::string &header, std::size_t data_bytes) {
    std::string file(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    file += header;
    for (std::size_t i = 0; i < data_bytes; i++) {
        file += static_cast<char>(i);
    }
    return file;
}

/** Read from memory that ends where the file ends. */
class Guarded : public GuardedFile {
public:
    using GuardedFile::GuardedFile;
    SafeTensors open() const { return SafeTensors::from_memory(data(), size(), "the file"); }
};

const std::string good_header = R"({"__metadata__":{"format":"pt"},)"
                                R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                R"("a":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]},)"
                                R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[34,34]},)"
                                R"("one":{"dtype":"I64","shape":[],"data_offsets":[34,42]}}   )";
constexpr std::size_t good_bytes = 42;

TEST(SafeTensors, HoldsWhatTheHeaderSays) {
    const Guarded file(file_of(good_header, good_bytes));
    const SafeTensors tensors = file.open();
    ASSERT_EQ(tensors.tensors().size(), 4u);
    EXPECT_EQ(tensors.tensors()[0].name, "a");
    EXPECT_EQ(tensors.tensors()[3].name, "one");
    EXPECT_EQ(tensors.find("c"), nullptr);
    EXPECT_EQ(tensors.find(""), nullptr);

    const SafeTensors::Info *const b = tensors.find("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->dtype, "F32");
    EXPECT_EQ(b->shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(b->bytes, 24);
    EXPECT_EQ(b->file, "the file");
    EXPECT_EQ(static_cast<int>(*b->data), 0);
    const DLTensor view = SafeTensors::view(*b);
    EXPECT_EQ(view.data, b->data);
    EXPECT_EQ(view.ndim, 2);
    EXPECT_EQ(view.shape[0], 2);
    EXPECT_EQ(view.shape[1], 3);
    EXPECT_EQ(view.strides, nullptr);
    EXPECT_EQ(view.dtype.code, kDLFloat);
    EXPECT_EQ(view.dtype.bits, 32);

    const DLTensor bf16 = SafeTensors::view(*tensors.find("a"));
    EXPECT_EQ(bf16.dtype.code, kDLBfloat);
    EXPECT_EQ(bf16.dtype.bits, 16);
    const DLTensor none = SafeTensors::view(*tensors.find("none"));
    EXPECT_EQ(none.dtype.code, kDLFloat);
    EXPECT_EQ(none.dtype.bits, 16);
    EXPECT_EQ(static_cast<int>(*tensors.find("one")->data), 34);
    EXPECT_TRUE(throws(
        HALYARD_UNSUPPORTED, [&] { SafeTensors::view(*tensors.find("one")); }, "the file", "'one'", "I64",
        "F32, F16 and BF16"));
}

TEST(SafeTensors, KnowsEveryDtype) {
    const std::pair<const char *, std::int64_t> bytes_of_eight[] = {
        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8},   {"I8", 8},
        {"F8_E4M3", 8},     {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"U16", 16}, {"I16", 16}, {"F16", 16},
        {"BF16", 16},       {"U32", 32},    {"I32", 32},    {"F32", 32}, {"U64", 64}, {"F8_E4M3FNUZ", 8},
        {"F8_E5M2FNUZ", 8}, {"I64", 64},    {"F64", 64},    {"C64", 64}};
    for (const auto &[dtype, bytes] : bytes_of_eight) {
        const std::string header = std::string(R"({"x":{"dtype":")") + dtype + R"(","shape":[8],"data_offsets":[0,)" +
                                   std::to_string(bytes) + "]}}";
        const Guarded file(file_of(header, static_cast<std::size_t>(bytes)));
        const SafeTensors tensors = file.open();
        EXPECT_EQ(tensors.find("x")->bytes, bytes) << dtype;
        EXPECT_EQ(tensors.find("x")->dtype, dtype);
    }
}

TEST(SafeTensors, MayHoldNothing) {
    EXPECT_TRUE(Guarded(file_of("{}", 0)).open().tensors().empty());
    EXPECT_TRUE(Guarded(file_of(R"({"__metadata__":{}} )", 0)).open().tensors().empty());
}

TEST(SafeTensors, RefusesViewsOfHighRank) {
    const Guarded file(file_of(R"({"x":{"dtype":"F32","shape":[1,1,1,1,1],"data_offsets":[0,4]}})", 4));
    const SafeTensors tensors = file.open();
    EXPECT_TRUE(throws(
        HALYARD_UNSUPPORTED, [&] { SafeTensors::view(*tensors.find("x")); }, "'x'", "rank 5"));
}

/** A header with one tensor 'x' of 8 bytes, in which one thing is wrong. */
std::string x(const std::string &dtype, const std::string &shape, const std::string &offsets) {
    return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(SafeTensorsDamage, OfTheHeaderIsRefused) {
    const std::string f32 = R"("F32")";
    const auto two = [](const std::string &first, const std::string &second) {
        return R"({"x":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
               R"(},"y":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
    };
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    std::string deep_objects;
    for (int i = 0; i < 100000; i++) {
        deep_objects += R"({"a":)";
    }
    const struct {
        std::string header;
        std::string words[3];
    } all[] = {
        // JSON.
        {"", {"does not begin with '{'"}},
        {"[]", {"does not begin with '{'"}},
        {" {}", {"does not begin with '{'"}},
        {"\xef\xbb\xbf{}", {"does not begin with '{'"}},
        {"{", {"not valid JSON"}},
        {"{}}", {"not valid JSON"}},
        {"{} x", {"not valid JSON"}},
        {std::string("{}\0", 3), {"zero byte"}},
        {std::string("{\"\0\":{}}", 8), {"zero byte"}},
        {"{\"\xff\":{}}", {"not valid JSON"}},
        {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},})", {"not valid JSON"}},
        {"{'x':{}}", {"not valid JSON"}},
        {R"({"x":)" + deep + "}", {"'x'", "an array", "instead of an object"}},
        {deep_objects, {"'a'", "unknown field"}},
        {R"({"x":1})", {"'x'", "a number"}},
        {R"({"x":-1})", {"'x'", "a negative number"}},
        {R"({"x":null})", {"'x'", "null"}},
        {R"({"x":true})", {"'x'", "a truth value"}},
        {R"({"x":"y"})", {"'x'", "a string"}},
        // Metadata.
        {R"({"__metadata__":[]})", {"metadata", "an array"}},
        {R"({"__metadata__":{"a":1}})", {"metadata", "a number"}},
        {R"({"__metadata__":{"a":{}}})", {"metadata", "an object"}},
        {R"({"__metadata__":{"a":"1","a":"1"}})", {"two metadata entries", "'a'"}},
        {R"({"__metadata__":{},"__metadata__":{}})", {"two entries", "'__metadata__'"}},
        // Fields.
        {R"({"x":{}})", {"'x'", "no dtype"}},
        {R"({"x":{"dtype":"F32"}})", {"'x'", "no shape"}},
        {R"({"x":{"dtype":"F32","shape":[2]}})", {"'x'", "no data_offsets"}},
        {R"({"x":{"dtype":"F32","dtype":"F32"}})", {"'x'", "dtype twice"}},
        {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]}})", {"'x'", "'strides'"}},
        {x("1", "[2]", "[0,8]"), {"'x'", "a number as dtype"}},
        {x("[]", "[2]", "[0,8]"), {"'x'", "an array as dtype"}},
        {x(R"("F31")", "[2]", "[0,8]"), {"'x'", "unknown dtype 'F31'"}},
        {x(R"("f32")", "[2]", "[0,8]"), {"'x'", "unknown dtype 'f32'"}},
        {x(R"("F4")", "[15]", "[0,8]"), {"'x'", "[15]", "whole bytes"}},
        {x(f32, "2", "[0,8]"), {"'x'", "a number in its shape"}},
        {x(f32, "{}", "[0,8]"), {"'x'", "an object in its shape"}},
        {x(f32, "[[2]]", "[0,8]"), {"'x'", "an array in its shape"}},
        {x(f32, "[\"2\"]", "[0,8]"), {"'x'", "a string in its shape"}},
        {x(f32, "[2.0]", "[0,8]"), {"'x'", "no 64-bit integer in its shape"}},
        {x(f32, "[-2]", "[0,8]"), {"'x'", "a negative number in its shape"}},
        {x(f32, "[9223372036854775808]", "[0,8]"), {"'x'", "9223372036854775808", "too large"}},
        {x(f32, "[18446744073709551616]", "[0,8]"), {"'x'", "no 64-bit integer"}},
        {x(f32, "[1e400]", "[0,8]"), {"not valid JSON"}},
        {x(f32, "[4294967296,4294967296]", "[0,8]"), {"'x'", "[4294967296, 4294967296]", "too large"}},
        {x(f32, "[4611686018427387904]", "[0,8]"), {"'x'", "too large"}},
        {x(f32, "[0,4294967296,4294967296]", "[0,0]"), {"'x'", "too large"}},
        {x(f32, "[3]", "[0,8]"), {"'x'", "8 bytes", "takes 12"}},
        {x(f32, "[1]", "[0,8]"), {"'x'", "8 bytes", "takes 4"}},
        {x(f32, "[0]", "[0,8]"), {"'x'", "8 bytes", "takes 0"}},
        // Offsets.
        {x(f32, "[2]", "8"), {"'x'", "a number in its data_offsets"}},
        {x(f32, "[2]", "[]"), {"'x'", "data_offsets []"}},
        {x(f32, "[2]", "[8]"), {"'x'", "data_offsets [8]"}},
        {x(f32, "[2]", "[0,4,8]"), {"'x'", "data_offsets with more than a begin and an end"}},
        {x(f32, "[2]", "[8,0]"), {"'x'", "data_offsets [8, 0]"}},
        {x(f32, "[2]", "[-8,0]"), {"'x'", "a negative number in its data_offsets"}},
        {x(f32, "[2]", "[1,9]"), {"'x'", "byte 9", "has 8"}},
        {x(f32, "[2]", "[9223372036854775800,9223372036854775807]"), {"'x'", "cut short"}},
        {x(f32, "[1]", "[0,4]"), {"4 bytes that belong to no tensor at its end"}},
        {x(f32, "[1]", "[4,8]"), {"4 bytes that belong to no tensor before 'x'"}},
        {"{}", {"8 bytes that belong to no tensor"}},
        {two("[0,4]", "[0,4]"), {"overlap", "'x'", "'y'"}},
        {two("[0,4]", "[3,7]"), {"overlap", "'x'", "'y'"}},
        {two("[4,8]", "[2,6]"), {"before 'y'"}},
        {two("[0,4]", "[4,8]").replace(2, 1, "y"), {"two entries", "'y'"}},
        {R"({"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
         {"overlap", "'x'", "'y'"}},
    };
    for (const auto &each : all) {
        const Guarded file(file_of(each.header, 8));
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { file.open(); }, "the file", each.words[0], each.words[1], each.words[2]))
            << each.header.substr(0, 200);
    }
    EXPECT_EQ(Guarded(file_of(two("[4,8]", "[0,4]"), 8)).open().tensors().size(), 2u);
}

TEST(SafeTensorsDamage, MessagesCanBePrinted) {
    const std::string name = "line\\nbreak\\u0007\\u0000" + std::string(1000, 'n');
    const Guarded file(file_of(R"({")" + name + R"(":1})", 0));
    try {
        file.open();
        FAIL() << "accepted";
    } catch (const Error &error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("'line?break??n"), std::string::npos) << message;
        EXPECT_LT(message.size(), 400u);
    }
}

TEST(SafeTensorsDamage, OfVeryManyAxesHasAShortMessage) {
    std::string shape = "[3";
    for (int axis = 1; axis < 100000; axis++) {
        shape += ",1";
    }
    const Guarded file(file_of(x(R"("F32")", shape + "]", "[0,8]"), 8));
    try {
        file.open();
        ADD_FAILURE() << "opened";
    } catch (const Error &error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("'x' has 8 bytes, and its shape [3, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...] in F32 takes 12"),
                  std::string::npos)
            << message.substr(0, 300);
        EXPECT_LT(message.size(), 300u);
    }
}

TEST(SafeTensorsDamage, OfTheLengthIsRefused) {
    const std::string good = file_of(good_header, good_bytes);
    const std::uint64_t lengths[] = {0,
                                     1,
                                     good_header.size() - 4,
                                     good.size() - 7,
                                     100'000'000,
                                     100'000'001,
                                     std::uint64_t{1} << 63,
                                     std::numeric_limits<std::uint64_t>::max() - 7,
                                     std::numeric_limits<std::uint64_t>::max()};
    for (const std::uint64_t length : lengths) {
        std::string file = good;
        std::memcpy(file.data(), &length, 8);
        const Guarded guarded(file);
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { guarded.open(); }, "the file"))
            << length;
    }
}

TEST(SafeTensorsDamage, ByTruncationIsNoticedAtEveryLength) {
    const std::string good = file_of(good_header, good_bytes);
    for (std::size_t size = 0; size < good.size(); size++) {
        const Guarded file(good.substr(0, size));
        ASSERT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { file.open(); }, "the file", "cut short"))
            << size;
    }
    const Guarded longer(good + "x");
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { longer.open(); }, "1 bytes that belong to no tensor at its end"));
}

TEST(SafeTensorsFile, IsMapped) {
    const TemporaryFolder folder;
    write_text(folder / "model.safetensors", file_of(good_header, good_bytes));
    for (const std::filesystem::path &path : {folder.path(), folder / "model.safetensors"}) {
        SafeTensors tensors = SafeTensors::open(path);
        SafeTensors moved = std::move(tensors);
        tensors = std::move(moved);
        const SafeTensors::Info *const b = tensors.find("b");
        ASSERT_NE(b, nullptr);
        EXPECT_EQ(b->file, (folder / "model.safetensors").string());
        // What was given back is there again.
        for (const SafeTensors::Info &info : tensors.tensors()) {
            tensors.read_ahead(info);
            tensors.let_go(info);
        }
        for (int i = 0; i < 24; i++) {
            EXPECT_EQ(static_cast<int>(b->data[i]), i);
        }
    }
}

TEST(SafeTensorsFile, ThatIsNoneIsRefused) {
    const TemporaryFolder folder;
    const auto refused = [](const std::filesystem::path &path, const std::string &word) {
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { SafeTensors::open(path); }, path.string(), word);
    };
    EXPECT_TRUE(refused(folder / "missing", "No such file"));
    EXPECT_TRUE(refused(folder.path(), "neither model.safetensors nor model.safetensors.index.json"));
    EXPECT_TRUE(refused("/dev/zero", "not a regular file"));
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_TRUE(refused(folder / "pipe", "not a regular file"));
    write_text(folder / "empty", "");
    EXPECT_TRUE(refused(folder / "empty", "cut short"));
    EXPECT_TRUE(refused("", "'' cannot be opened"));
    std::filesystem::create_directory(folder / "model.safetensors");
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { SafeTensors::open(folder.path()); }, "model.safetensors"));
}

class Shards : public testing::Test {
protected:
    Shards() {
        write_text(folder / "1.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2));
        write_text(folder / "2.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
    }
    testing::AssertionResult refused(const std::string &index, const std::string &first,
                                     const std::string &second = "") {
        write_text(folder / "model.safetensors.index.json", index);
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { SafeTensors::open(folder.path()); }, first, second);
    }

    TemporaryFolder folder;
};

TEST_F(Shards, AreOne) {
    write_text(folder / "model.safetensors.index.json",
               R"({"metadata":{"total_size":5},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
    const SafeTensors tensors = SafeTensors::open(folder.path());
    ASSERT_EQ(tensors.tensors().size(), 2u);
    EXPECT_EQ(tensors.find("a")->file, (folder / "1.safetensors").string());
    EXPECT_EQ(tensors.find("b")->file, (folder / "2.safetensors").string());
    EXPECT_EQ(static_cast<int>(tensors.find("b")->data[2]), 2);
}

TEST_F(Shards, ThatDisagreeWithTheIndexAreRefused) {
    const std::string index = "model.safetensors.index.json";
    EXPECT_TRUE(refused("", index, "not valid JSON"));
    EXPECT_TRUE(refused("[]", index, "array"));
    EXPECT_TRUE(refused("{}", index, "weight_map"));
    EXPECT_TRUE(refused(R"({"weight_map":1})", index, "weight_map"));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":1}})", "'a'", "1 instead of"));
    EXPECT_TRUE(
        refused(R"({"weight_map":{"a":"\u001b[2J"}})", "/?[2J cannot be opened"));  // not what clears a terminal
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})", "two fields named 'a'"));
    EXPECT_TRUE(
        refused(R"({"weight_map":{"a":"1.safetensors","b":"3.safetensors"}})", "3.safetensors", "No such file"));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"1.safetensors","c":"2.safetensors"}})", "does not list", "'b'"));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})", "'b'", "is not in"));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})", "is not in", "but in"));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}})", "'c'"));
    for (const char *const name :
         {"", ".", "..", "../1.safetensors", "/etc/passwd", "x\\\\y", "1.safetensors\\u0000"}) {
        EXPECT_TRUE(refused(std::string(R"({"weight_map":{"a":")") + name + R"("}})", "'a'", "not the name of a file"))
            << name;
    }
    EXPECT_TRUE(refused(R"({"weight_map":)" + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"));
    EXPECT_TRUE(refused(R"({"x":)" + std::string(5'000'000, '['), "nested deeper"));
    EXPECT_TRUE(refused(R"({"x":1e999})", "not valid JSON"));
    EXPECT_TRUE(refused(std::string("{}\0", 3), "zero byte"));

    write_text(folder / "2.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
    EXPECT_TRUE(refused(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})", "'a'", "as well"));
}

// Thousands of small changes of a file. What is accepted must be consistent: every byte of the data in one tensor.
TEST(SafeTensorsMutations, NeverCrashAndAreAcceptedOnlyIfConsistent) {
    const std::string good = file_of(good_header, good_bytes);
    const std::string tokens[] = {"[", "]", "{", "}", ",",    ":", "\"", "0",
                                  "9", "-", ".", "e", "null", "1", " ",  "\\u0000"};
    std::mt19937_64 random(2026);
    int accepted = 0;
    constexpr int count = 30000;
    for (int i = 0; i < count; i++) {
        std::string file = good;
        for (std::uint64_t changes = 1 + random() % 3; changes > 0; changes--) {
            // Mostly in the header.
            const std::size_t at = random() % 8 == 0 ? random() % file.size() : 8 + random() % good_header.size();
            if (at >= file.size()) {
                continue;
            }
            switch (random() % 5) {
            case 0:
                file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
                break;
            case 1:
                file[at] = static_cast<char>('0' + random() % 10);
                break;
            case 2:
                file.insert(at, tokens[random() % std::size(tokens)]);
                break;
            case 3:
                file.erase(at, 1 + random() % 4);
                break;
            default:
                file.replace(at, 1, tokens[random() % std::size(tokens)]);
            }
        }
        if (file.size() >= 8 + good_bytes && random() % 4 != 0) {
            const std::uint64_t length = file.size() - 8 - good_bytes;
            std::memcpy(file.data(), &length, 8);
        }
        const Guarded guarded(file);
        try {
            const SafeTensors tensors = guarded.open();
            accepted++;
            std::int64_t bytes = 0;
            const auto *const begin = reinterpret_cast<const std::byte *>(guarded.data());
            for (const SafeTensors::Info &info : tensors.tensors()) {
                ASSERT_GE(info.data, begin + 8);
                ASSERT_LE(info.data + info.bytes, begin + file.size());
                ASSERT_EQ(tensors.find(info.name), &info);
                bytes += info.bytes;
            }
            std::uint64_t length = 0;
            std::memcpy(&length, file.data(), 8);
            ASSERT_EQ(static_cast<std::uint64_t>(bytes) + length + 8, file.size());
        } catch (const Error &error) {
            ASSERT_EQ(std::string(error.what()).rfind("the file", 0), 0u) << error.what();
        }
    }
    // Changes of data, names and spaces make a file that is as good as any.
    EXPECT_GT(accepted, count / 50);
    EXPECT_LT(accepted, count / 2);
}

}  // namespace
}  // namespace halyard::tests
