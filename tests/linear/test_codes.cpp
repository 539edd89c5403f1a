// Matrices that are quantized already: packed bytes, products and numbers of every format.
#include <array>
#include <fstream>
#include <limits>
#include <map>

#include "support/code_source.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

class Codes : public testing::TestWithParam<FormatAndBits> {
protected:
    CodeCase code_case(std::int64_t in, std::int64_t out, std::int64_t group, bool zeros, bool gated) const {
        CodeCase c;
        c.format = GetParam().format;
        c.bits = GetParam().bits;
        c.in = in;
        c.out = out;
        c.group = c.block() ? 0 : group;
        c.zeros = !c.block() && zeros;
        c.gated = gated;
        if (const BlockFormat *const f = c.block()) {
            c.in = (in + f->inputs - 1) / f->inputs * f->inputs;
        }
        return c;
    }

    static void expect_bytes(const CodeCase &c) {
        CodeSource source(c);
        const Bytes expected = source.expected.block();
        ASSERT_EQ(source.size(), static_cast<std::int64_t>(expected.size())) << c.describe();
        const PackedWeights packed = source.pack();
        ASSERT_NE(packed, nullptr) << c.describe();
        ASSERT_TRUE(same_bytes(expected, halyard_weights_data(packed.get()))) << c.describe();
        ASSERT_TRUE(source.intact()) << c.describe();
    }
};

TEST_P(Codes, BecomePanelsAsSpecified) {
    // Half a panel, a panel and more; a block of inputs and more.
    const std::vector<std::int64_t> outs = {1, 7, 8, 9, 16, 17, 50}, few_outs = {1, 9, 16, 17},
                                    ins = {1, 3, 16, 33, 512, 513, 700, 1300}, few_ins = {1, 33, 512, 513};
    for (const std::int64_t out : reduced ? few_outs : outs) {
        for (const std::int64_t in : reduced ? few_ins : ins) {
            for (const bool gated : {false, true}) {
                expect_bytes(code_case(in, out, in % 3 == 0 ? 32 : 0, (in + out) % 2 != 0, gated));
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, HaveTheirScalesInGroupsOfAnyMultipleOf16) {
    if (GetParam().format <= HALYARD_CODES_Q6_K) {
        return;  // which have their own
    }
    const std::vector<std::int64_t> groups = {0, 16, 32, 48, 64, 96, 128, 256, 272, 512, 1024, 1536, 2048},
                                    few = {0, 16, 96, 256, 272, 512, 1536};
    for (const std::int64_t group : reduced ? few : groups) {
        for (const Dtype scales : all_dtypes) {
            for (const bool zeros : {false, true}) {
                CodeCase c = code_case(reduced ? 600 : 1100, 20, group, zeros, false);
                c.scales = scales;
                expect_bytes(c);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, MayHaveAnyPitchAndPlace) {
    for (const std::int64_t gap : {1, 3, 64}) {
        for (const auto placement : {Placement::starts_at_guard, Placement::ends_at_guard}) {
            for (const std::int64_t in : {30, 530}) {
                CodeCase c = code_case(in, 33, 16, true, true);
                c.gap = gap;
                c.placement = placement;
                expect_bytes(c);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, GiveTheSameBytesForAnyThreads) {
    const CodeSource source(code_case(1030, reduced ? 300 : 700, 128, true, true));
    Bytes first;
    for (const halyard_isa isa : row_isas()) {
        for (const int threads : {1, 2, 3, 7}) {
            const Context context(isa, threads);
            const PackedWeights packed = source.pack(context.get());
            ASSERT_NE(packed, nullptr);
            if (first.empty()) {
                first = bytes_of(packed.get());
            }
            ASSERT_TRUE(same_bytes(first, halyard_weights_data(packed.get())))
                << halyard_isa_name(isa) << ", " << threads;
        }
    }
}

// A row of x that is 1 at one input and 0 elsewhere has the weights of that input as its product.
TEST_P(Codes, HaveTheValuesOfTheFormat) {
    for (const bool gated : {false, true}) {
        for (const bool zeros : {false, true}) {
            const CodeCase c = code_case(reduced ? 290 : 560, 19, 48, zeros, gated);
            CodeSource source(c);
            const PackedWeights packed = source.pack();
            ASSERT_NE(packed, nullptr);
            const std::vector<float> gates = source.values(0), ups = gated ? source.values(1) : gates;
            for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, c.in}) {
                Tensor x(Dtype::f32, compact_form({rows, c.in})), y(Dtype::f32, compact_form({rows, c.out}));
                for (std::int64_t first = 0; first + rows <= c.in; first += std::max<std::int64_t>(rows, 37)) {
                    x.fill([&](std::int64_t row, std::int64_t k) { return k == first + row ? 1.0 : 0.0; });
                    for (const halyard_isa isa : row_isas()) {
                        const Context context(isa);
                        ASSERT_EQ(halyard_linear(context.get(), &x.view, packed.get(), nullptr, &y.view), HALYARD_OK)
                            << halyard_last_error();
                        for (std::int64_t row = 0; row < rows; row++) {
                            for (std::int64_t n = 0; n < c.out; n++) {
                                const auto at = static_cast<std::size_t>(n * c.in + first + row);
                                const float gate = gates[at] + 0.0f;  // a sum, which has no -0
                                const float w = gated ? gate * (ups[at] + 0.0f) : gate;
                                ASSERT_EQ(y.bits(row, n), bits_of(w))
                                    << c.describe() << ", input " << first + row << ", output " << n;
                            }
                        }
                    }
                }
            }
        }
    }
}

/** Every number is the reference's, `values`, rounded once to the dtype of y; NaN is any NaN. */
void expect_numbers(const CodeSource &source, const std::vector<float> &values, Dtype dtype, std::int64_t gap,
                    const halyard_context *context = nullptr) {
    const CodeCase &c = source.form;
    const Shape shape = {c.out, c.in};
    Tensor y(dtype, {shape, padded_strides(shape, gap), c.placement, 0, 0});
    ASSERT_EQ(halyard_dequantize(context, &source.codes[0], &y.view), HALYARD_OK) << halyard_last_error();
    for (std::int64_t n = 0; n < c.out; n++) {
        for (std::int64_t k = 0; k < c.in; k++) {
            const float number = values[static_cast<std::size_t>(n * c.in + k)];
            if (std::isnan(number)) {
                ASSERT_TRUE(std::isnan(y.get(n, k))) << c.describe() << ", input " << k << ", output " << n;
                continue;
            }
            ASSERT_EQ(y.bits(n, k), encode(dtype, static_cast<double>(number)))
                << c.describe() << " to " << name_of(dtype) << ", input " << k << ", output " << n;
        }
    }
    ASSERT_TRUE(y.surroundings_intact() && source.intact()) << c.describe();
}

TEST_P(Codes, AreDequantized) {
    const std::vector<std::int64_t> outs = {1, 9, 16, 17, 50}, ins = {1, 3, 33, 512, 513, 1300};
    for (const std::int64_t out : outs) {
        for (const std::int64_t in : ins) {
            CodeCase c = code_case(in, out, in % 3 == 0 ? 48 : 0, (in + out) % 2 != 0, false);
            c.scales = c.block() ? Dtype::f16 : all_dtypes[static_cast<std::size_t>(out) % std::size(all_dtypes)];
            c.gap = in % 4;
            c.placement = out % 3 == 0 ? Placement::starts_at_guard : Placement::ends_at_guard;
            CodeSource source(c);
            const std::vector<float> values = source.values(0);
            for (const Dtype dtype : all_dtypes) {
                expect_numbers(source, values, dtype, out % 4);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, AreDequantizedByAnyThreads) {
    CodeSource source(code_case(600, 300, 128, true, false));
    const std::vector<float> values = source.values(0);
    for (const halyard_isa isa : row_isas()) {
        for (const int threads : {1, 3}) {
            for (const Dtype dtype : all_dtypes) {
                expect_numbers(source, values, dtype, 0, Context(isa, threads).get());
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, AreDequantizedWithAnyScales) {
    for (const Dtype type : all_dtypes) {
        CodeCase c = code_case(768, 20, 32, true, false);
        if (c.block() && type != Dtype::f16) {
            continue;
        }
        c.scales = type;
        CodeSource source(c);
        const std::uint32_t infinity = encode(type, std::numeric_limits<double>::infinity()),
                            sign = type == Dtype::f32 ? 0x80000000 : 0x8000;
        const std::uint32_t special[] = {0, sign, 1, sign | 3, infinity - 1, infinity, sign | infinity, infinity + 1};
        std::size_t next = 0;
        for (std::int64_t n = 0; n < c.out; n++) {
            if (const BlockFormat *const f = c.block()) {
                for (std::int64_t block = 0; block < c.in / f->inputs; block++) {
                    std::uint8_t *const at = source.matrix[0]->at(n, block * f->bytes);
                    std::memcpy(at + f->scale, &special[next++ % 8], 2);
                    if (f->minimum >= 0) {
                        std::memcpy(at + f->minimum, &special[next++ % 7], 2);
                    }
                }
            } else {
                Tensor &scales = *source.scales[0];
                const bool transposed = c.format >= HALYARD_CODES_GPTQ;
                for (std::int64_t g = 0; g < c.in / c.group; g++) {
                    scales.set_bits(transposed ? g : n, transposed ? n : g, special[next++ % 8]);
                }
            }
        }
        const std::vector<float> values = source.values(0);
        for (const Dtype dtype : all_dtypes) {
            expect_numbers(source, values, dtype, 1);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Codes, testing::ValuesIn(all_formats()), name_of_format);

TEST(CodesWeights, TellWhatTheyAre) {
    CodeCase c;
    c.format = HALYARD_CODES_GPTQ_V2;
    c.bits = 4;
    c.in = 96;
    c.out = 20;
    c.group = 48;
    c.zeros = c.gated = true;
    c.scales = Dtype::bf16;
    const PackedWeights packed = CodeSource(c).pack();
    ASSERT_NE(packed, nullptr);
    halyard_weights_info info{};
    ASSERT_EQ(halyard_weights_get_info(packed.get(), &info), HALYARD_OK);
    EXPECT_EQ(info.in_features, 96);
    EXPECT_EQ(info.out_features, 20);
    EXPECT_EQ(info.dtype.bits, 32);
    EXPECT_EQ(info.gated, 1);
    EXPECT_EQ(info.code_bits, 4);
    EXPECT_EQ(info.code_group, 16);
    EXPECT_EQ(info.scale_kind, HALYARD_SCALE_ZERO);
    EXPECT_EQ(info.scale_dtype.code, kDLBfloat);
}

TEST(CodesWeights, TakeVectorsWhereThereIsOneGroup) {
    for (const halyard_code_format format : {HALYARD_CODES_INT8, HALYARD_CODES_AWQ}) {
        CodeCase c;
        c.format = format;
        c.in = 70;
        c.out = 24;
        CodeSource source(c);
        DLTensor &scales = source.scales[0]->view;
        const Bytes expected = source.expected.block();
        std::int64_t shape[] = {24};
        scales.ndim = 1;
        scales.shape = shape;
        scales.strides = nullptr;
        const PackedWeights packed = source.pack();
        ASSERT_NE(packed, nullptr);
        EXPECT_TRUE(same_bytes(expected, halyard_weights_data(packed.get())));
    }
}

TEST(CodesWeights, TellTheirSizeFromShapesAlone) {
    CodeCase c;
    c.format = HALYARD_CODES_AWQ;
    c.in = 64;
    c.out = 24;
    c.group = 32;
    c.zeros = true;
    CodeSource source(c);
    std::int64_t strides[] = {-5, 9};
    for (DLTensor *const view : {&source.matrix[0]->view, &source.scales[0]->view, &source.zeros[0]->view}) {
        view->data = nullptr;
        view->strides = strides;
        view->byte_offset = 3;
    }
    // Two panels of 64 inputs: two groups with s and z, and codes.
    EXPECT_EQ(source.size(), 4096 + 2 * (2 * 16 * 3 + 32 + 64 * 16 / 2));
}

// ---- What other programs have made: tests/data/codes ----

class Fixture : public testing::TestWithParam<std::string> {};

/** Text of a file of fixtures: names, each with its numbers in hexadecimal. */
class FixtureFile {
public:
    explicit FixtureFile(const std::string &name) {
        std::ifstream file(HALYARD_TEST_DATA "/codes/" + name + ".txt");
        std::string line;
        while (std::getline(file, line)) {
            if (!line.empty() && line[0] != '#') {
                const std::size_t space = line.find(' ');
                fields[line.substr(0, space)] += line.substr(space + 1);
            }
        }
    }
    std::int64_t number(const std::string &field) { return std::stoll(fields.at(field)); }
    /** Bytes, first to last. */
    Bytes bytes(const std::string &field) {
        const std::string &text = fields.at(field);
        Bytes result;
        for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
            result.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
        }
        return result;
    }
    bool has(const std::string &field) const { return fields.count(field) != 0; }

private:
    std::map<std::string, std::string> fields;
};

TEST_P(Fixture, HasTheSameWeights) {
    FixtureFile file(GetParam());
    ASSERT_TRUE(file.has("values")) << GetParam();
    halyard_codes codes{};
    codes.format = static_cast<halyard_code_format>(file.number("format"));
    codes.bits = static_cast<int>(file.number("bits"));
    codes.in_features = file.number("in");
    codes.out_features = file.number("out");
    codes.group = file.number("group");
    const std::int64_t in = codes.in_features, out = codes.out_features;
    std::map<std::string, Bytes> bytes;
    std::map<std::string, std::array<std::int64_t, 2>> shapes;
    std::map<std::string, DLTensor> tensors;
    const auto tensor = [&](const std::string &name, DLDataType type) -> const DLTensor * {
        if (!file.has(name)) {
            return nullptr;
        }
        bytes[name] = file.bytes(name);
        shapes[name] = {file.number(name + "_rows"), 0};
        shapes[name][1] = static_cast<std::int64_t>(bytes[name].size()) / shapes[name][0] / (type.bits / 8);
        DLTensor &view = tensors[name];
        view.data = bytes[name].data();
        view.device = {kDLCPU, 0};
        view.ndim = 2;
        view.dtype = type;
        view.shape = shapes[name].data();
        return &view;
    };
    const DLDataType element = codes.format <= HALYARD_CODES_Q6_K ? u8 : codes.format == HALYARD_CODES_INT8 ? i8 : i32;
    codes.matrix = tensor("matrix", element);
    codes.scales = tensor("scales", dlpack_type(Dtype::f32));
    codes.zeros = tensor("zeros", element);
    halyard_weights *weights = nullptr;
    ASSERT_EQ(halyard_weights_pack_codes(nullptr, &codes, nullptr, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    const PackedWeights packed(weights);
    const Bytes values = file.bytes("values");
    ASSERT_EQ(values.size(), static_cast<std::size_t>(4 * in * out));
    Tensor numbers(Dtype::f32, compact_form({out, in}));
    ASSERT_EQ(halyard_dequantize(nullptr, &codes, &numbers.view), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(std::memcmp(numbers.at(0, 0), values.data(), values.size()), 0);
    Tensor x(Dtype::f32, compact_form({in, in})), y(Dtype::f32, compact_form({in, out}));
    x.fill([](std::int64_t row, std::int64_t k) { return row == k ? 1.0 : 0.0; });
    ASSERT_EQ(halyard_linear(nullptr, &x.view, packed.get(), nullptr, &y.view), HALYARD_OK) << halyard_last_error();
    for (std::int64_t k = 0; k < in; k++) {
        for (std::int64_t n = 0; n < out; n++) {
            const auto expected = load_from<float>(values.data(), static_cast<std::size_t>(4 * (n * in + k)));
            if (codes.scales == nullptr) {
                ASSERT_EQ(y.bits(k, n), bits_of(expected + 0.0f)) << "input " << k << ", output " << n;
                continue;
            }
            // s c and the offset are rounded, which is exact with scales of 16 bits.
            const std::int64_t groups = shapes["scales"][1];
            const auto s =
                load_from<float>(bytes["scales"].data(), static_cast<std::size_t>(4 * (n * groups + k / codes.group)));
            ASSERT_LE(std::abs(y.get(k, n) - static_cast<double>(expected)),
                      std::abs(static_cast<double>(s)) * std::exp2(codes.bits - 23))
                << "input " << k << ", output " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fixture,
                         testing::Values("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k",
                                         "compressed_tensors_4", "compressed_tensors_8"),
                         [](const auto &info) { return info.param; });

}  // namespace
}  // namespace halyard::tests
