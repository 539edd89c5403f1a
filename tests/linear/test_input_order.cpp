// Quantized matrices whose groups are not in the order of their inputs (desc_act of GPTQ, actorder of compressed-tensors): products
// are those of the sorted matrix with x in that order, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "halyard/halyard.hpp"
#include "support/invocation.h"
#include "support/packed_block.h"
#include "support/packing.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

/** A matrix as a file has it, twice: inputs sorted by group, and in another order with g_idx. */
struct OrderedMatrix {
    CodeFormat format;
    int bits;
    std::int64_t in, out, group;
    bool has_zeros;
    std::vector<std::int32_t> order;                    // input i of the sorted matrix is input order[i] of the other
    std::vector<std::int32_t> g_idx;                    // of the other
    std::vector<std::int32_t> sorted, shuffled, zeros;  // words
    std::vector<std::int8_t> sorted_bytes, shuffled_bytes, zero_bytes;
    std::vector<float> scales;

    bool transposed() const { return format == CodeFormat::gptq || format == CodeFormat::gptq_v2; }
    bool is_bytes() const { return format == CodeFormat::int8; }
    std::int64_t groups() const { return (in + group - 1) / group; }
    std::int64_t words(std::int64_t count) const { return (count * bits + 31) / 32; }

    OrderedMatrix(CodeFormat format_, int bits_, std::int64_t in_, std::int64_t out_, std::int64_t group_, bool zeros_,
                  std::uint64_t seed = 1)
        : format(format_), bits(bits_), in(in_), out(out_), group(group_), has_zeros(zeros_),
          order(static_cast<std::size_t>(in_)), g_idx(order.size()) {
        std::mt19937_64 of_order(7), random(seed);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), of_order);
        for (auto begin = order.begin(); begin < order.end();) {  // inputs of a group keep their order
            const auto end = begin + std::min<std::ptrdiff_t>(group, order.end() - begin);
            std::sort(begin, end);
            begin = end;
        }
        for (std::int64_t i = 0; i < in; i++) {
            g_idx[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = static_cast<std::int32_t>(i / group);
        }
        sorted.resize(static_cast<std::size_t>(transposed() ? words(in) * out : out * words(in)));
        sorted_bytes.resize(static_cast<std::size_t>(in * out));
        shuffled = sorted;
        shuffled_bytes = sorted_bytes;
        for (std::int64_t n = 0; n < out; n++) {
            for (std::int64_t i = 0; i < in; i++) {
                const auto code = static_cast<std::uint32_t>(random() % (1u << bits));
                put(sorted, sorted_bytes, n, i, code);
                put(shuffled, shuffled_bytes, n, order[static_cast<std::size_t>(i)], code);
            }
        }
        for (std::int64_t i = 0; i < groups() * out; i++) {
            scales.push_back(static_cast<float>(static_cast<int>(random() % 255) - 127) / 4096);
        }
        zeros.resize(static_cast<std::size_t>(transposed() ? groups() * words(out) : words(out) * groups()));
        for (std::int32_t &word : zeros) {
            word = static_cast<std::int32_t>(random());
        }
        for (std::int64_t i = 0; i < groups() * out; i++) {
            zero_bytes.push_back(static_cast<std::int8_t>(random()));
        }
    }

    void put(std::vector<std::int32_t> &to, std::vector<std::int8_t> &bytes, std::int64_t n, std::int64_t i,
             std::uint32_t code) const {
        const std::int64_t word = i * bits / 32;
        auto &place = to[static_cast<std::size_t>(transposed() ? word * out + n : n * words(in) + word)];
        place = static_cast<std::int32_t>(static_cast<std::uint32_t>(place) | code << (i * bits % 32));
        bytes[static_cast<std::size_t>(n * in + i)] = static_cast<std::int8_t>(code);
    }

    Codes codes(bool in_order) const {
        Codes c;
        c.format = format;
        c.bits = is_bytes() ? 0 : bits;
        c.in_features = in;
        c.out_features = out;
        c.group = group;
        const Extents by_group = transposed() ? Extents{groups(), out} : Extents{out, groups()};
        if (is_bytes()) {
            c.matrix = Integers((in_order ? sorted_bytes : shuffled_bytes).data(), {out, in});
        } else {
            c.matrix = Integers((in_order ? sorted : shuffled).data(),
                                transposed() ? Extents{words(in), out} : Extents{out, words(in)});
        }
        c.scales = ConstTensor(scales.data(), by_group);
        if (has_zeros && is_bytes()) {
            c.zeros = Integers(zero_bytes.data(), by_group);
        } else if (has_zeros) {
            c.zeros =
                Integers(zeros.data(), transposed() ? Extents{groups(), words(out)} : Extents{words(out), groups()});
        }
        if (!in_order) {
            c.g_idx = Integers(g_idx.data(), {in});
        }
        return c;
    }

    /** Columns of x [rows, in] as the sorted matrix takes them. */
    template<class T>
    std::vector<T> gathered(const std::vector<T> &x) const {
        std::vector<T> result;
        for (std::size_t row = 0; row < x.size(); row += order.size()) {
            for (const std::int32_t input : order) {
                result.push_back(x[row + static_cast<std::size_t>(input)]);
            }
        }
        return result;
    }
};

const OrderedMatrix matrices[] = {
    {CodeFormat::gptq, 4, 96, 40, 32, true},
    {CodeFormat::gptq, 4, 333, 17, 128, false},
    {CodeFormat::gptq, 8, 100, 33, 16, true},
    {CodeFormat::gptq_v2, 4, 1030, 64, 64, true},
    {CodeFormat::compressed_tensors, 4, 333, 47, 48, false},
    {CodeFormat::compressed_tensors, 8, 70, 24, 32, true},
    {CodeFormat::int8, 8, 259, 31, 32, false},
    {CodeFormat::int8, 8, 64, 16, 16, true},
};

template<class T>
std::vector<T> random_rows(std::int64_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; i++) {
        values.push_back(static_cast<float>(static_cast<std::int64_t>(random() >> 40) - (1 << 23)) * 0x1p-23f);
    }
    std::vector<T> result(values.size());
    cast(values, result);
    return result;
}

template<class T>
void expect_products_of_the_sorted_matrix(const OrderedMatrix &m, const halyard::Weights &ordered,
                                          const halyard::Weights &plain, const halyard::Context &context) {
    const std::vector<std::int64_t> few = {1, 7, 70}, all = {1, 2, 7, 40, 130};
    for (const std::int64_t rows : reduced ? few : all) {
        const auto x = random_rows<T>(rows * m.in, 3), in_their_order = m.gathered(x);
        std::vector<float> got(static_cast<std::size_t>(rows * m.out)), expected(got.size());
        linear({x.data(), {rows, m.in}}, ordered, {got.data(), {rows, m.out}}, context);
        linear({in_their_order.data(), {rows, m.in}}, plain, {expected.data(), {rows, m.out}}, context);
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), 4 * got.size()), 0) << rows << " rows";
    }
}

TEST(InputOrder, GivesTheProductsOfTheSortedMatrix) {
    for (const OrderedMatrix &m : matrices) {
        const halyard::Weights ordered = halyard::Weights::pack_codes(m.codes(false)),
                               plain = halyard::Weights::pack_codes(m.codes(true));
        EXPECT_EQ(ordered.info().ordered, 1);
        EXPECT_EQ(plain.info().ordered, 0);
        for (const halyard_isa isa : supported_isas()) {
            SCOPED_TRACE(std::to_string(m.in) + " x " + std::to_string(m.out) + " " + halyard_isa_name(isa));
            for (const Products products : {Products::storage, Products::bf16, Products::int8}) {
                for (const int threads : {1, 3}) {
                    halyard::Context context;
                    context.set_max_isa(static_cast<Isa>(isa));
                    context.set_num_threads(threads);
                    context.set_products(products);
                    expect_products_of_the_sorted_matrix<float>(m, ordered, plain, context);
                    expect_products_of_the_sorted_matrix<bf16>(m, ordered, plain, context);
                    expect_products_of_the_sorted_matrix<f16>(m, ordered, plain, context);
                }
            }
        }
    }
}

// Rows of x that are not side by side.
TEST(InputOrder, TakesAnyPitch) {
    const OrderedMatrix &m = matrices[0];
    const halyard::Weights ordered = halyard::Weights::pack_codes(m.codes(false));
    const auto x = random_rows<float>(3 * m.in, 5);
    std::vector<float> spread(static_cast<std::size_t>(3 * (m.in + 5)), NAN),
        expected(static_cast<std::size_t>(3 * m.out)), got = expected;
    for (std::size_t row = 0; row < 3; row++) {
        std::copy_n(&x[row * 96], 96, &spread[row * 101]);
    }
    linear({x.data(), {3, m.in}}, ordered, {expected.data(), {3, m.out}});
    linear({spread.data(), {3, m.in}, {m.in + 5, 1}}, ordered, {got.data(), {3, m.out}});
    EXPECT_EQ(got, expected);
}

TEST(InputOrder, IsThatOfDequantizedNumbers) {
    for (const OrderedMatrix &m : matrices) {
        std::vector<float> shuffled(static_cast<std::size_t>(m.out * m.in)), sorted(shuffled.size());
        dequantize(m.codes(false), {shuffled.data(), {m.out, m.in}});
        dequantize(m.codes(true), {sorted.data(), {m.out, m.in}});
        EXPECT_EQ(m.gathered(shuffled), sorted);
        std::vector<bf16> narrow(shuffled.size()), expected(shuffled.size());
        dequantize(m.codes(false), {narrow.data(), {m.out, m.in}});
        cast(shuffled, expected);
        EXPECT_EQ(std::memcmp(narrow.data(), expected.data(), 2 * narrow.size()), 0);
    }
}

// Both matrices of a feed-forward network, with and without a norm, beside the same in single calls.
TEST(InputOrder, HoldsInFeedForwardNetworks) {
    const OrderedMatrix gate(CodeFormat::gptq, 4, 96, 333, 32, true, 1), up(CodeFormat::gptq, 4, 96, 333, 32, true, 2),
        down(CodeFormat::gptq, 4, 333, 96, 128, false, 3);
    const Codes gate_codes = gate.codes(false), up_codes = up.codes(false);
    const halyard::Weights both = halyard::Weights::pack_codes(gate_codes, &up_codes),
                           last = halyard::Weights::pack_codes(down.codes(false));
    const auto norm_weight = random_rows<float>(96, 8);
    for (const halyard_isa isa : supported_isas()) {
        for (const Products products : {Products::storage, Products::bf16, Products::int8}) {
            halyard::Context context;
            context.set_max_isa(static_cast<Isa>(isa));
            context.set_products(products);
            for (const std::int64_t rows : {1, 5, 70}) {
                const auto x = random_rows<float>(rows * 96, 4);
                std::vector<float> normalized = x, hidden(static_cast<std::size_t>(rows * 333)), got(x.size()),
                                   expected(x.size());
                for (const bool has_norm : {false, true}) {
                    FfnOptions options;
                    options.activation = halyard::Activation::silu;
                    options.residual = true;
                    if (has_norm) {
                        options.norm = Norm::rms;
                        options.eps = 1e-5f;
                        options.norm_weight = ConstTensor(norm_weight.data(), {96});
                        rms_norm({x.data(), {rows, 96}}, {norm_weight.data(), {96}}, 1e-5f,
                                 {normalized.data(), {rows, 96}}, context);
                    }
                    ffn({x.data(), {rows, 96}}, both, last, options, {got.data(), {rows, 96}}, context);
                    LinearOptions first, second;
                    first.activation = halyard::Activation::silu;
                    second.residual = ConstTensor(x.data(), {rows, 96});
                    if (products == Products::bf16) {  // what is multiplied is rounded
                        std::vector<bf16> input(normalized.size()), between(hidden.size());
                        cast(normalized, input);
                        linear({input.data(), {rows, 96}}, both, first, {between.data(), {rows, 333}}, context);
                        linear({between.data(), {rows, 333}}, last, second, {expected.data(), {rows, 96}}, context);
                    } else {
                        linear({normalized.data(), {rows, 96}}, both, first, {hidden.data(), {rows, 333}}, context);
                        linear({hidden.data(), {rows, 333}}, last, second, {expected.data(), {rows, 96}}, context);
                    }
                    EXPECT_EQ(got, expected) << rows << " rows, " << halyard_isa_name(isa);
                }
            }
        }
    }
}

// Files of GPTQ have g_idx where inputs are in order too.
TEST(InputOrder, IsNoneWhereInputsAreInOrder) {
    OrderedMatrix m = matrices[0];
    for (std::size_t i = 0; i < m.g_idx.size(); i++) {
        m.g_idx[i] = static_cast<std::int32_t>(i) / 32;
    }
    const halyard::Weights packed = halyard::Weights::pack_codes(m.codes(false));
    EXPECT_EQ(packed.info().ordered, 0);
}

TEST(InputOrder, IsKeptInFiles) {
    const OrderedMatrix &m = matrices[1];
    const halyard::Weights packed = halyard::Weights::pack_codes(m.codes(false));
    AlignedMemory copy(packed.info().bytes);
    std::memcpy(copy.data(), packed.data(), static_cast<std::size_t>(copy.size()));
    const halyard::Weights read = halyard::Weights::from_memory(copy.data(), copy.size());
    EXPECT_EQ(read.info().ordered, 1);
    const auto x = random_rows<float>(m.in, 3);
    std::vector<float> got(static_cast<std::size_t>(m.out)), expected(got.size());
    linear({x.data(), {m.in}}, packed, {expected.data(), {m.out}});
    linear({x.data(), {m.in}}, read, {got.data(), {m.out}});
    EXPECT_EQ(got, expected);
}

// With checksums that fit.
TEST(InputOrder, ThatIsNoneIsRefusedInFiles) {
    const OrderedMatrix &m = matrices[1];
    const halyard::Weights packed = halyard::Weights::pack_codes(m.codes(false));
    AlignedMemory block(packed.info().bytes);
    const auto bytes = static_cast<std::size_t>(block.size());
    const std::size_t order = order_begin(16 * 2);
    for (const std::int32_t wrong : {-1, 333, INT32_MIN, INT32_MAX, m.order[1]}) {
        std::memcpy(block.data(), packed.data(), bytes);
        ASSERT_EQ(load_from<std::int32_t>(block.data(), order), m.order[0]);
        store_to(block.data(), order, wrong);
        sign(block.data(), bytes);
        halyard_weights *weights = nullptr;
        EXPECT_EQ(halyard_weights_from_memory(block.data(), block.size(), &weights), HALYARD_INVALID_ARGUMENT);
        EXPECT_STREQ(halyard_last_error(),
                     "halyard_weights_from_memory: memory holds an order of inputs that no version "
                     "of this library writes");
        EXPECT_EQ(weights, nullptr);
    }
}

void expect_refused(const std::string &message, const Codes &codes, const Codes *up = nullptr) {
    try {
        halyard::Weights::pack_codes(codes, up);
        ADD_FAILURE() << "not refused: " << message;
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(error.what(), "halyard_weights_pack_codes: " + message);
    }
}

TEST(InputOrder, IsRefusedWhereItIsNone) {
    OrderedMatrix m = matrices[0], other = matrices[0];
    const std::int32_t first = m.g_idx[0];
    m.g_idx[0] = 3;
    expect_refused("codes.g_idx has group 3 for input 0, but must have 0 to 2", m.codes(false));
    m.g_idx[0] = -1;
    expect_refused("codes.g_idx has group -1 for input 0, but must have 0 to 2", m.codes(false));
    m.g_idx[0] = first == 0 ? 1 : 0;
    expect_refused(first == 0 ? "codes.g_idx has 31 inputs of group 0, but must have 32"
                              : "codes.g_idx has 33 inputs of group 0, but must have 32",
                   m.codes(false));
    std::fill(m.g_idx.begin(), m.g_idx.end(), 2);
    expect_refused("codes.g_idx has 0 inputs of group 0, but must have 32", m.codes(false));
    m.g_idx = other.g_idx;
    Codes gate = m.codes(false), up = other.codes(true);
    expect_refused("up.g_idx is null, but codes.g_idx is there: both matrices or none must have an order of inputs",
                   gate, &up);
    const auto differing = std::find_if(other.g_idx.begin() + 1, other.g_idx.end(),
                                        [&](std::int32_t group) { return group != other.g_idx[0]; });
    std::swap(other.g_idx[0], *differing);
    up = other.codes(false);
    expect_refused("up.g_idx has group " + std::to_string(other.g_idx[0]) + " for input 0, but codes.g_idx has " +
                       std::to_string(m.g_idx[0]) + ": gate and up take x in one order",
                   gate, &up);
    std::vector<float> y(static_cast<std::size_t>(m.in * m.out));
    m.g_idx[5] = m.g_idx[5] == 0 ? 1 : 0;
    EXPECT_THROW(dequantize(m.codes(false), {y.data(), {m.out, m.in}}), Error);
    EXPECT_EQ(std::count(y.begin(), y.end(), 0.0f), m.in * m.out);  // nothing is written
}

}  // namespace
}  // namespace halyard::tests
