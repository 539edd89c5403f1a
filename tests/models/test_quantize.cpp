// Formats of GGUF, encoded: errors within what steps allow, and numbers of the format come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "block_encoders.h"
#include "gguf.h"
#include "halyard/quantize.hpp"
#include "support/gguf_model.h"
#include "support/gguf_numbers.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

const char *const formats[] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};

using Numbers = std::vector<float>;

// ---- Blocks ----

class BlockEncoders : public testing::TestWithParam<const char *> {
protected:
    const models::BlockFormat &format = *models::block_format(std::string_view(GetParam()));

    std::string encoded(const Numbers &values) const {
        std::string blocks(
            values.size() / static_cast<std::size_t>(format.elements) * static_cast<std::size_t>(format.bytes), '\x55');
        models::encode_blocks(format, values.data(), static_cast<std::int64_t>(values.size()),
                              reinterpret_cast<std::byte *>(blocks.data()));
        return blocks;
    }
    Numbers decoded(const std::string &blocks, std::size_t count) const {
        if (format.codes) {
            return numbers_of(format, blocks.data(), static_cast<std::int64_t>(count));
        }
        return floats_of({GetParam(), {static_cast<std::int64_t>(count)}, blocks});
    }
    bool is(const char *name) const { return format.name == name; }
};
INSTANTIATE_TEST_SUITE_P(All, BlockEncoders, testing::ValuesIn(formats),
                         [](const auto &each) { return std::string(each.param); });

double f16_at(const std::string &block, std::size_t at) {
    f16 half{};
    std::memcpy(&half, block.data() + at, sizeof half);
    float value = 0;
    cast(ConstTensor(&half, 1), Tensor(&value, 1));
    return std::fabs(value);
}

/** How far a value may be off where a group's scale is `step` before it is rounded to f16, and its codes go to `most`. */
double with_rounded_scale(double off, double step, double most) {
    return off * step + most * (step * 0x1p-11 + 0x1p-25);
}

/** The bound of each value of 32, from the formulas: half a step; a whole one at the far side of formats whose codes have one more
 *  on one side. */
double bound_of(const models::BlockFormat &format, const float *x) {
    const auto [low, high] = std::minmax_element(x, x + 32);
    const double span = static_cast<double>(*high) - *low,
                 largest = std::max(std::fabs(static_cast<double>(*low)), std::fabs(static_cast<double>(*high)));
    const double minimum = largest * 0x1p-11 + 0x1p-25, ulps = largest * 0x1p-21;
    const auto is = [&](const char *name) { return format.name == name; };
    return ulps + (is("F32")    ? 0
                   : is("F16")  ? largest * 0x1p-11 + 0x1p-25
                   : is("BF16") ? largest * 0x1p-8 + 0x1p-134
                   : is("Q8_0") ? with_rounded_scale(0.5, largest / 127, 127)
                   : is("Q4_0") ? with_rounded_scale(1, largest / 8, 8)
                   : is("Q5_0") ? with_rounded_scale(1, largest / 16, 16)
                   : is("Q4_1") ? with_rounded_scale(0.5, span / 15, 15) + minimum
                                : with_rounded_scale(0.5, span / 31, 31) + minimum);
}

/** The bound of the root mean square error of a group of Q4_K to Q6_K. The search starts from the line through the ends, whose
 *  errors are half a step, or a whole one at the far side, and finds no worse one; then scale and minimum go to multiples of d and
 *  dmin, at most half of these away, with what f16 rounds d by. */
double bound_of_group(const models::BlockFormat &format, const std::string &block, const float *x, std::size_t count) {
    const bool is_signed = format.name == "Q6_K";
    const double most = is_signed ? 32 : format.name == "Q4_K" ? 15 : 31, factors = is_signed ? 128 : 63;
    const auto [least, greatest] = std::minmax_element(x, x + count);
    const double low = std::min(static_cast<double>(*least), 0.0), high = std::max(static_cast<double>(*greatest), 0.0);
    const double step = is_signed ? std::max(-low, high) / most : (high - low) / most;
    const double d = f16_at(block, is_signed ? 208 : 0), dmin = is_signed ? 0 : f16_at(block, 2);
    const double rounded = factors * (0x1p-11 * d + 0x1p-24);
    const double minimum = is_signed ? 0 : dmin / 2 + factors * (0x1p-11 * dmin + 0x1p-24);
    return step * (is_signed ? 1 : 0.5) + most * (d / 2 + rounded) + minimum + (high - low) * 0x1p-20;
}

std::map<std::string, Numbers> rows(std::size_t count) {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal;
    const auto filled = [&](const auto &make) {
        Numbers values(count);
        std::generate(values.begin(), values.end(), make);
        return values;
    };
    std::map<std::string, Numbers> all{
        {"normal", filled([&] { return normal(random); })},
        {"small", filled([&] { return 1e-3f * normal(random); })},
        {"above 0", filled([&] { return 3 + 0.1f * normal(random); })},
        {"below 0", filled([&] { return -std::fabs(normal(random)); })},
        {"constant", filled([] { return 0.7f; })},
        {"denormal", filled([&] { return 1e-40f * normal(random); })},
        {"near the least f16", filled([&] { return 1e-6f * normal(random); })},
        {"zeros", filled([] { return 0.0f; })},
    };
    for (const float outlier : {30000.0f, -30000.0f}) {
        Numbers &values = all[outlier > 0 ? "outlier" : "outlier below 0"] = all["normal"];
        for (std::size_t i = 77; i < count; i += 256) {
            values[i] = outlier;
        }
    }
    return all;
}

TEST_P(BlockEncoders, ErrAsLittleAsTheirStepsAllow) {
    const bool is_super = format.elements == 256;
    for (const auto &[name, values] : rows(2048)) {
        const std::string blocks = encoded(values);
        const Numbers got = decoded(blocks, values.size());
        const std::size_t group = is_super && is("Q6_K") ? 16 : 32;
        for (std::size_t i = 0; i < values.size(); i += group) {
            double squares = 0, largest = 0;
            for (std::size_t k = i; k < i + group; k++) {
                const double error = static_cast<double>(got[k]) - values[k];
                squares += error * error;
                largest = std::max(largest, std::fabs(error));
            }
            if (is_super) {
                const auto bytes = static_cast<std::size_t>(format.bytes);
                EXPECT_LE(std::sqrt(squares / static_cast<double>(group)),
                          bound_of_group(format, blocks.substr(i / 256 * bytes, bytes), values.data() + i, group))
                    << name << ", group at " << i;
            } else {
                EXPECT_LE(largest, bound_of(format, values.data() + i)) << name << ", group at " << i;
            }
        }
        if (name == "zeros") {
            EXPECT_EQ(got, values);
        }
    }
}

/** Numbers that the format has, with both ends of the codes in each group. */
Numbers numbers_on_the_grid(const models::BlockFormat &format) {
    const auto is = [&](const char *name) { return format.name == name; };
    Numbers values(512);
    std::mt19937_64 random(9);
    for (std::size_t i = 0; i < values.size(); i++) {
        const std::size_t group = i / (is("Q6_K") ? 16 : 32), first = i % (is("Q6_K") ? 16 : 32);
        const auto code = [&](int low, int high) {
            return static_cast<float>(first == 0 ? low
                                      : first == 1
                                          ? high
                                          : low + static_cast<int>(random() % static_cast<unsigned>(high - low)));
        };
        const auto factor = static_cast<float>(group % 8 == 3 ? 63 : 40 + group % 8);
        values[i] = is("Q8_0")                 ? 0x1p-7f * code(-127, 127)
                    : is("Q4_0")               ? 0x1p-3f * code(-8, 7)
                    : is("Q5_0")               ? 0x1p-3f * code(-16, 15)
                    : is("Q4_1")               ? 0.25f * code(0, 15) - 1.5f
                    : is("Q5_1")               ? 0.25f * code(0, 31) + 1.5f
                    : is("Q4_K") || is("Q5_K") ? 0x1p-6f * factor * code(0, is("Q4_K") ? 15 : 31) - 0x1p-5f * factor
                    : is("Q6_K")               ? 0x1p-9f * (group % 16 == 5 ? -128 : factor) * code(-32, 31)
                                               : 0x1p-7f * code(-128, 127);
    }
    return values;
}

TEST_P(BlockEncoders, GiveNumbersOfTheirFormatBack) {
    const Numbers values = numbers_on_the_grid(format);
    EXPECT_EQ(decoded(encoded(values), values.size()), values);
}

TEST_P(BlockEncoders, RoundAsCastsDo) {
    if (!is("F16") && !is("BF16")) {
        return;
    }
    Numbers values;
    for (std::uint64_t bits = 0; bits < 0x7f800000; bits += 0x3fd) {  // all exponents, with ties among them
        for (const std::uint32_t each :
             {std::uint32_t(bits), std::uint32_t(bits & ~0xfffu), std::uint32_t(bits | 0x80000000u)}) {
            values.push_back(0);
            std::memcpy(&values.back(), &each, sizeof each);
        }
    }
    std::vector<std::uint16_t> want(values.size());
    const auto count = static_cast<std::int64_t>(values.size());
    if (is("F16")) {
        cast(ConstTensor(values.data(), count), Tensor(reinterpret_cast<f16 *>(want.data()), count));
    } else {
        cast(ConstTensor(values.data(), count), Tensor(reinterpret_cast<bf16 *>(want.data()), count));
    }
    EXPECT_EQ(encoded(values), std::string(reinterpret_cast<const char *>(want.data()), 2 * want.size()));
}

// ---- Files ----

std::string bytes_of(const TensorInfo &info) {
    return {reinterpret_cast<const char *>(info.data), static_cast<std::size_t>(info.bytes)};
}

QuantizeOptions options_of(const std::string &format) {
    QuantizeOptions options;
    options.format = format;
    options.threads = 2;
    return options;
}

/** Leaves one layer of the model, which has all kinds of tensors. */
void keep_first_layer(Folder &folder) {
    folder.config["num_hidden_layers"] = 1;
    for (auto at = folder.tensors.begin(); at != folder.tensors.end();) {
        const bool is_later =
            at->first.find(".layers.") != at->first.npos && at->first.find(".layers.0.") == at->first.npos;
        at = is_later ? folder.tensors.erase(at) : std::next(at);
    }
}

/** A model whose rows have 256 or 512 elements, in a folder and in a GGUF file beside it. */
class Quantize : public testing::Test {
protected:
    Quantize() : folder("llama3_f32") {
        widen(folder);
        want = folder.load();
        write_text(in, gguf_of(folder).bytes());
    }
    States states(const std::filesystem::path &path) const { return run_prompt(Model::load(path), tokens); }
    /** Nothing but the model and what a test wrote is there. */
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.folder.path()), {}));
    }

    Folder folder;
    const std::vector<std::int64_t> tokens = Transformers(model_fixtures / "llama3_f32").input_ids;
    const std::filesystem::path in = folder / "in.gguf", out = folder / "out.gguf";
    std::optional<Model> want;
};

TEST_F(Quantize, CopiesWhatHasItsFormat) {
    quantize_model(in, out, options_of("F32"));
    const models::Gguf before = models::Gguf::open(in), after = models::Gguf::open(out);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (std::size_t i = 0; i < before.tensors().size(); i++) {
        EXPECT_EQ(before.tensors()[i].name, after.tensors()[i].name);
        EXPECT_EQ(before.tensors()[i].shape, after.tensors()[i].shape);
        EXPECT_EQ(bytes_of(before.tensors()[i]), bytes_of(after.tensors()[i])) << before.tensors()[i].name;
    }
    const auto old_entries = before.entries(), new_entries = after.entries();
    ASSERT_EQ(new_entries.size(), old_entries.size() + 1);
    for (std::size_t i = 0; i < old_entries.size(); i++) {
        EXPECT_EQ(new_entries[i].key, old_entries[i].key);
        EXPECT_EQ(new_entries[i].value, old_entries[i].value) << old_entries[i].key;
    }
    EXPECT_EQ(new_entries.back().key, "general.file_type");
}

TEST_F(Quantize, JoinsAModelInSeveralFiles) {
    const GgufFile whole = gguf_of(folder);
    std::vector<GgufFile> parts(2);
    parts[0].entries = whole.entries;
    for (std::uint32_t number = 0; number < 2; number++) {
        parts[number].alignment = 64;
        parts[number].set("general.alignment", std::uint32_t{64});
        parts[number].set("split.no", number);
        parts[number].set("split.count", std::uint32_t{2});
        parts[number].set("split.tensors.count", static_cast<std::uint32_t>(whole.tensors.size()));
    }
    for (const GgufFile::Tensor &tensor : whole.tensors) {  // all in the second
        parts[1].add(tensor);
    }
    const auto first = folder / "x-00001-of-00002.gguf", second = folder / "x-00002-of-00002.gguf";
    write_text(first, parts[0].bytes());
    write_text(second, parts[1].bytes());
    for (const auto &part : {first, second}) {
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { quantize_model(first, part, options_of("F32")); }, part.string(),
            "is a file of the model"));
    }
    quantize_model(first, out, options_of("F32"));
    quantize_model(in, folder / "of_one.gguf", options_of("F32"));
    const models::Gguf got = models::Gguf::open(out), want_file = models::Gguf::open(folder / "of_one.gguf");
    EXPECT_EQ(got.keys(), want_file.keys());
    EXPECT_EQ(read_text(out).size(), read_text(folder / "of_one.gguf").size());
    EXPECT_EQ(states(out), run_prompt(*want, tokens));
}

TEST_F(Quantize, GivesTheSameFileOnceMore) {
    keep_first_layer(folder);
    write_text(in, gguf_of(folder).bytes());
    const std::vector<const char *> few = {"Q8_0", "Q6_K"}, some = {"F16", "Q8_0", "Q5_1", "Q6_K"},
                                    all(std::begin(formats), std::end(formats));
    for (const char *const format : emulated ? few : reduced ? some : all) {
        QuantizeOptions options = options_of(format);
        quantize_model(in, out, options);
        options.threads = 3;
        const auto results = quantize_model(out, folder / "again.gguf", options);
        EXPECT_EQ(read_text(folder / "again.gguf"), read_text(out)) << format;
        for (const QuantizedTensor &each : results) {
            EXPECT_EQ(each.relative_rms_error, 0) << each.name;
            EXPECT_EQ(each.from, each.to) << each.name;
        }
        options.threads = 1;
        quantize_model(in, folder / "again.gguf", options);
        EXPECT_EQ(read_text(folder / "again.gguf"), read_text(out)) << format;
    }
}

TEST_F(Quantize, GivesLogitsNearThoseBefore) {
    const States expected = run_prompt(*want, tokens);
    double last = 0;
    using Bounds = std::vector<std::pair<const char *, double>>;
    const Bounds some = {{"F32", 0}, {"Q4_K_M", 0.2}},
                 all = {{"F32", 0}, {"F16", 2e-3}, {"Q8_0", 0.02}, {"Q6_K", 0.06}, {"Q5_K_M", 0.12}, {"Q4_K_M", 0.2}};
    for (const auto &[format, most] : emulated ? some : all) {
        quantize_model(folder.folder.path(), out, options_of(format));
        const double off = distance(states(out).back(), expected.back());
        EXPECT_LE(off, most) << format;
        EXPECT_GE(off, last) << format;
        last = off;
    }
}

TEST_F(Quantize, SaysTheErrors) {
    const auto results = quantize_model(in, out, options_of("Q4_0"));
    const models::Gguf before = models::Gguf::open(in), after = models::Gguf::open(out);
    for (const QuantizedTensor &each : results) {
        const TensorInfo &old = *before.find(each.name), &now = *after.find(each.name);
        EXPECT_EQ(each.bytes_before, old.bytes);
        EXPECT_EQ(each.bytes_after, now.bytes);
        EXPECT_EQ(each.to, now.dtype);
        EXPECT_EQ(each.shape, now.shape);
        if (each.to != "Q4_0") {
            EXPECT_EQ(each.shape.size(), 1u);
            continue;
        }
        const Numbers values = floats_of({"F32", old.shape, bytes_of(old)}),
                      got = numbers_of(*models::block_format(each.to), now.data,
                                       static_cast<std::int64_t>(values.size()));
        double squares = 0, errors = 0, largest = 0;
        for (std::size_t i = 0; i < values.size(); i++) {
            const double error = static_cast<double>(got[i]) - values[i];
            squares += static_cast<double>(values[i]) * values[i];
            errors += error * error;
            largest = std::max(largest, std::fabs(error));
        }
        EXPECT_NEAR(each.relative_rms_error, std::sqrt(errors / squares), 1e-12);
        EXPECT_EQ(each.largest_error, largest);
        EXPECT_GT(each.relative_rms_error, 0.01);
    }
}

std::map<std::string, std::string> formats_of(const std::filesystem::path &path) {
    std::map<std::string, std::string> result;
    const models::Gguf file = models::Gguf::open(path);
    for (const TensorInfo &info : file.tensors()) {
        result[info.name] = info.dtype;
    }
    return result;
}

TEST_F(Quantize, ChoosesFormatsByNames) {
    QuantizeOptions options = options_of("Q8_0");
    options.tensors = {{"blk.1.*", "Q5_1"}, {"*.ffn_*.weight", "Q6_K"}};
    options.embedding = "BF16";
    options.output = "F16";
    std::int64_t last = 0;
    options.progress = [&](std::int64_t done, std::int64_t total, const std::string &) {
        EXPECT_GT(done, last);
        EXPECT_LE(done, total);
        last = done;
    };
    quantize_model(in, out, options);
    auto chosen = formats_of(out);
    EXPECT_EQ(chosen["token_embd.weight"], "BF16");
    EXPECT_EQ(chosen["output.weight"], "F16");
    EXPECT_EQ(chosen["blk.1.ffn_up.weight"], "Q5_1");
    EXPECT_EQ(chosen["blk.2.ffn_up.weight"], "Q6_K");
    EXPECT_EQ(chosen["blk.2.attn_q.weight"], "Q8_0");
    EXPECT_EQ(chosen["blk.1.attn_norm.weight"], "F32");

    quantize_model(in, out, options_of("Q4_K_M"));
    chosen = formats_of(out);
    EXPECT_EQ(chosen["output.weight"], "Q6_K");
    EXPECT_EQ(chosen["token_embd.weight"], "Q4_K");
    EXPECT_EQ(chosen["blk.2.attn_v.weight"], "Q6_K");
    EXPECT_EQ(chosen["blk.2.ffn_down.weight"], "Q6_K");
    EXPECT_EQ(chosen["blk.0.ffn_down.weight"], "Q4_K");
    EXPECT_EQ(chosen["blk.2.attn_k.weight"], "Q4_K");
}

TEST_F(Quantize, TakesAnotherFormatForOddRows) {
    for (const auto &[width, format] : {std::pair(33, "F16"), {96, "Q8_0"}}) {
        Folder odd("llama3_f32");
        if (width != 33) {
            widen(odd, width);
        }
        odd.load();
        for (const QuantizedTensor &each : quantize_model(odd.folder.path(), odd / "x.gguf", options_of("Q5_K"))) {
            const bool is_vector = each.shape.size() == 1;
            EXPECT_EQ(each.wanted, is_vector ? "F32" : "Q5_K") << each.name;
            EXPECT_EQ(each.to, is_vector ? "F32" : each.shape.back() % 32 != 0 ? "F16" : format) << each.name;
        }
        Model::load(odd / "x.gguf");
    }
}

TEST_F(Quantize, TriesWithoutWriting) {
    keep_first_layer(folder);
    write_text(in, gguf_of(folder).bytes());
    QuantizeOptions options = options_of("Q4_K");
    const auto results = quantize_model(in, out, options);
    std::filesystem::remove(out);
    options.dry_run = true;
    const std::size_t before = files();
    const auto tried = quantize_model(in, out, options);
    EXPECT_EQ(files(), before);
    ASSERT_EQ(tried.size(), results.size());
    for (std::size_t i = 0; i < tried.size(); i++) {
        EXPECT_EQ(tried[i].relative_rms_error, results[i].relative_rms_error);
    }
}

TEST_F(Quantize, RefusesWhatItCannotDoAndLeavesNothing) {
    write_text(out, "old");
    std::filesystem::create_symlink(in, folder / "link.gguf");
    std::filesystem::create_directory(folder / "directory");
    const std::size_t before = files();
    const auto refused = [&](const std::filesystem::path &from, const std::filesystem::path &to,
                             const QuantizeOptions &options, const auto &...words) {
        return throws(
            HALYARD_INVALID_ARGUMENT, [&] { quantize_model(from, to, options); }, words...);
    };
    const QuantizeOptions plain = options_of("Q8_0");
    std::filesystem::create_directory(folder / "directory.gguf");
    EXPECT_TRUE(refused(in, folder / "directory.gguf", plain, "directory.gguf", "is a folder"));
    std::filesystem::remove(folder / "directory.gguf");
    EXPECT_TRUE(refused(in, in, plain, "in.gguf", "is a file of the model"));
    EXPECT_TRUE(refused(in, folder / "link.gguf", plain, "link.gguf"));
    EXPECT_TRUE(refused(in, folder / "none" / "x.gguf", plain, "x.gguf", "No such file"));
    EXPECT_TRUE(refused(in, out, options_of("Q3_K"), "format is 'Q3_K'", "Q4_K_M"));
    EXPECT_TRUE(refused(folder / "none", out, plain, "none"));
    QuantizeOptions options = plain;
    options.tensors = {{"*.ffn_dwon.*", "Q4_0"}};
    EXPECT_TRUE(refused(in, out, options, "'*.ffn_dwon.*'", "matches no matrix"));
    options.tensors = {{"*", "Q2_K"}};
    EXPECT_TRUE(refused(in, out, options, "'*'", "'Q2_K'"));
    options = plain;
    options.embedding = "int8";
    EXPECT_TRUE(refused(in, out, options, "embedding is 'int8'"));
    options = plain;
    options.threads = 257;
    EXPECT_TRUE(refused(in, out, options, "threads is 257"));
    const std::string file = read_text(in);
    for (const std::size_t size : {std::size_t{3}, std::size_t{100}, file.size() / 2, file.size() - 1}) {
        write_text(folder / "directory" / "cut.gguf", file.substr(0, size));
        EXPECT_TRUE(refused(folder / "directory" / "cut.gguf", out, plain, "cut.gguf")) << size;
    }
    EXPECT_EQ(read_text(out), "old");
    EXPECT_EQ(files(), before);
}

TEST_F(Quantize, RefusesNumbersThatAFormatLacks) {
    keep_first_layer(folder);
    write_text(out, "old");
    const std::size_t before = files();
    const GgufFile good = gguf_of(folder);
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
        GgufFile file = good;
        for (GgufFile::Tensor tensor : file.take_tensors()) {
            if (tensor.name == "blk.0.attn_q.weight") {
                std::memcpy(tensor.data.data() + 4000, &value, sizeof value);
            }
            file.add(tensor);
        }
        write_text(in, file.bytes());
        for (std::size_t i = 0; i < std::size(formats); i++) {
            const std::string format = formats[i];
            if (format == "F32" || (format == "BF16" && value == 3e38f) ||
                (reduced && i % 3 != (std::isnan(value) ? 0 : 1))) {
                continue;
            }
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT, [&] { quantize_model(in, out, options_of(format)); }, "in.gguf",
                "'blk.0.attn_q.weight'", format, value == 3e38f ? "too large" : "NaN or Inf"))
                << format << " of " << value;
        }
    }
    EXPECT_EQ(read_text(out), "old");
    EXPECT_EQ(files(), before);
}

// ---- Folders ----

class QuantizeFolders : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, QuantizeFolders, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

// Against the tests' own conversion, which follows llama.cpp's.
TEST_P(QuantizeFolders, BecomeFilesOfTheSameNumbers) {
    Folder folder(GetParam() + std::string("_f32"));
    make_expressible(folder);
    const Model want = folder.load();
    const auto call = [&] { quantize_model(folder.folder.path(), folder / "x.gguf", options_of("F32")); };
    if (GetParam() == std::string("bert")) {
        EXPECT_TRUE(throws(HALYARD_UNSUPPORTED, call, "BertModel", "llama"));
        EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
        return;
    }
    call();
    const models::Gguf file = models::Gguf::open(folder / "x.gguf");
    const GgufFile expected = gguf_of(folder);
    EXPECT_EQ(file.tensors().size(), expected.tensors.size());
    for (const GgufFile::Tensor &tensor : expected.tensors) {
        const TensorInfo *const info = file.find(tensor.name);
        ASSERT_NE(info, nullptr) << tensor.name;
        EXPECT_EQ(std::vector<std::uint64_t>(info->shape.begin(), info->shape.end()), tensor.shape) << tensor.name;
        if (tensor.name != "rope_freqs.weight") {  // computed in another order
            EXPECT_EQ(bytes_of(*info), tensor.data) << tensor.name;
        }
    }
    const Model got = Model::load(folder / "x.gguf");
    const auto tokens = Transformers(model_fixtures / (GetParam() + std::string("_f32"))).input_ids;
    EXPECT_EQ(run_prompt(got, tokens), run_prompt(want, tokens));
    EXPECT_EQ(got.config().eos_token_ids, want.config().eos_token_ids);
    EXPECT_EQ(got.config().architecture, want.config().architecture);
    EXPECT_EQ(got.max_positions(), want.max_positions());
}

TEST(QuantizeFolder, KeepsBf16) {
    Folder folder("qwen3_bf16");
    const Model want = folder.load();
    for (const QuantizedTensor &each : quantize_model(folder.folder.path(), folder / "x.gguf", options_of("BF16"))) {
        EXPECT_EQ(each.relative_rms_error, 0) << each.name;
    }
    const auto tokens = Transformers(model_fixtures / "qwen3_bf16").input_ids;
    EXPECT_EQ(run_prompt(Model::load(folder / "x.gguf"), tokens), run_prompt(want, tokens));
}

TEST(QuantizeFolder, MayBeQuantizedAlready) {
    for (const char *const fixture : {"quantized_int_8", "quantized_pack_4"}) {
        const TemporaryFolder folder;
        LoadOptions options;
        options.unpacked_dtype = element<float>::dtype;
        const Model want = Model::load(model_fixtures / fixture, options);
        quantize_model(model_fixtures / fixture, folder / "x.gguf", options_of("F32"));
        const std::vector<std::int64_t> tokens = {5, 3, 8, 1};
        EXPECT_EQ(run_prompt(Model::load(folder / "x.gguf"), tokens), run_prompt(want, tokens)) << fixture;
    }
}

TEST(QuantizeFolder, IsRefusedWhereMetadataCannotExpressIt) {
    const auto refused = [](Folder &folder, const auto &...words) {
        folder.load();
        EXPECT_TRUE(throws(
            HALYARD_UNSUPPORTED, [&] { quantize_model(folder.folder.path(), folder / "x.gguf"); },
            folder.folder.path().string(), words...));
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.folder.path()), {}), 2);
    };
    Folder scores("gemma2_f32");
    scores.config["query_pre_attn_scalar"] = 77;
    refused(scores, "scale of the scores", "Gemma2ForCausalLM");
    Folder windows("qwen2_f32");
    refused(windows, "sliding window", "Qwen2ForCausalLM");
    Folder activation("llama3_f32");
    activation.config["hidden_act"] = "relu";
    refused(activation, "activation");
    Folder rotation("llama3_f32");
    rotation.config["rope_parameters"]["high_freq_factor"] = 5;
    refused(rotation, "cannot be written as GGUF: tensor 'rope_freqs.weight'");
}

}  // namespace
}  // namespace halyard::tests
