// Packed weights in bytes that are damaged: every bit, every length, fields that do not fit each other whatever the checksums say.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "support/coded_matrix.h"

namespace halyard::tests {
namespace {

class Damage : public testing::Test {
protected:
    testing::AssertionResult refuses(const Bytes &block, const std::string &word = "") {
        halyard_weights *weights = nullptr;
        const AlignedBytes aligned(block);
        const halyard_status status = from_memory(aligned, &weights);
        if (status == HALYARD_OK) {
            halyard_weights_destroy(weights);
            return testing::AssertionFailure() << "accepted";
        }
        return refused(status, status, "halyard_weights_from_memory", word);
    }

    const Bytes good =
        PackSource({Dtype::bf16, 21, 40, HALYARD_WEIGHT_OUT_IN, true, true, true, true, 0, Placement::ends_at_guard})
            .expected();
};

TEST_F(Damage, OfAnyBitOfTheHeaderIsNoticed) {
    for (std::size_t bit = 0; bit < 8 * packed::header_size; bit++) {
        Bytes block = good;
        block[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        const std::size_t byte = bit / 8;
        // Versions 2 and 3 are a bit apart.
        EXPECT_TRUE(refuses(block, byte < packed::version                                ? "other than packed weights"
                                   : byte < packed::dtype && block[packed::version] != 3 ? "version"
                                                                                         : "altered"))
            << "bit " << bit;
    }
}

TEST_F(Damage, OfAnyByteBehindItIsNoticed) {
    for (std::size_t byte = packed::header_size; byte < good.size(); byte++) {
        Bytes block = good;
        block[byte] ^= static_cast<std::uint8_t>(1u << byte % 8);
        ASSERT_TRUE(refuses(block, "altered")) << "byte " << byte;
    }
    // Panels and columns that change places.
    Bytes block = good;
    const std::size_t begin = panels_begin(16 * 6), panel = 22 * 16 * 2;
    std::swap_ranges(block.begin() + static_cast<std::ptrdiff_t>(begin),
                     block.begin() + static_cast<std::ptrdiff_t>(begin + panel),
                     block.begin() + static_cast<std::ptrdiff_t>(begin + panel));
    EXPECT_TRUE(refuses(block, "altered"));
}

TEST_F(Damage, ByTruncationIsNoticedAtEveryLength) {
    for (std::size_t size = 0; size < good.size(); size++) {
        ASSERT_TRUE(refuses(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)),
                            size == 0 ? "empty" : "truncated"))
            << size;
    }
    for (const std::size_t more : {1, 16, 64, 5000}) {
        Bytes block = good;
        block.resize(good.size() + more);
        EXPECT_TRUE(refuses(block, "altered")) << more;
    }
}

// With checksums that fit: only the meaning of the fields is wrong.
TEST_F(Damage, OfFieldsIsNoticedWhateverTheChecksumSays) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const struct {
        std::size_t field;
        std::vector<std::int64_t> values;
        bool wide;
    } all[] = {
        {packed::dtype, {3, 4, 255, 1 << 16, 0xffffffff}, false},
        {packed::gated, {2, 3, 0xffffffff}, false},
        {packed::norm_folded, {2, 0x80000000, 0xffffffff}, false},
        {packed::in_features, {0, -1, 20, 23, most, std::int64_t{1} << 31, std::int64_t{1} << 58, -most - 1}, true},
        {packed::out_features, {0, -1, 32, 49, most, most - 15, std::int64_t{1} << 31, -most - 1}, true},
        {packed::bytes, {0, -1, 128, 4096, most, -most - 1}, true},
        {packed::reserved, {1, -1}, true},
        {packed::reserved + 40, {1, std::int64_t{1} << 63}, true},
    };
    for (const auto &each : all) {
        for (const std::int64_t value : each.values) {
            Bytes block = good;
            if (each.wide) {
                store_to(block.data(), each.field, value);
            } else {
                store_to(block.data(), each.field, static_cast<std::uint32_t>(value));
            }
            sign(block.data(), block.size());
            EXPECT_TRUE(refuses(block)) << "field at " << each.field << ": " << value;
        }
    }
    // Consistent in itself, and larger than the block.
    Bytes block = good;
    store_to<std::int64_t>(block.data(), packed::in_features, 1000000);
    store_to<std::int64_t>(block.data(), packed::bytes,
                           static_cast<std::int64_t>(panels_begin(16 * 6)) + 6 * 16 * 2 * std::int64_t{1000000});
    sign(block.data(), block.size());
    EXPECT_TRUE(refuses(block, "truncated"));
}

// Blocks with codes are damaged likewise.
class DamagedCodes : public Damage {
protected:
    static Bytes block_of(halyard_scale_kind kind, int bits, int group) {
        return CodedMatrix::random({250, 20, bits, kind, Dtype::f16, group, true}, 3).block();
    }
    const Bytes codes = block_of(HALYARD_SCALE_ZERO, 4, 32);
};

TEST_F(DamagedCodes, AreNoticedInAnyBit) {
    for (std::size_t bit = 0; bit < 8 * packed::header_size; bit++) {
        Bytes block = codes;
        block[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        EXPECT_TRUE(refuses(block)) << "bit " << bit;
    }
    for (std::size_t byte = packed::header_size; byte < codes.size(); byte++) {
        Bytes block = codes;
        block[byte] ^= static_cast<std::uint8_t>(1u << byte % 8);
        ASSERT_TRUE(refuses(block, "altered")) << "byte " << byte;
    }
    for (std::size_t size = 1; size < codes.size(); size += 7) {
        ASSERT_TRUE(refuses(Bytes(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(size)), "truncated"))
            << size;
    }
}

TEST_F(DamagedCodes, AreNoticedInFieldsWhateverTheChecksumSays) {
    const struct {
        std::size_t field;
        std::vector<std::uint32_t> values;
    } all[] = {
        {packed::version, {1, 2}},
        {packed::dtype, {1, 2, 3}},
        {packed::norm_folded, {1, 2}},
        {packed::code_bits, {0, 1, 2, 3, 5, 7, 8, 9, 16, 32, 1 << 16, 0x80000004, 0xffffffff}},
        {packed::scale_kind, {0, 2, 3, 4, 5, 256, 0x80000001, 0xffffffff}},
        {packed::scale_dtype, {0, 3, 255, 257, 0xffffffff}},
        {packed::code_group, {0, 1, 8, 16, 33, 48, 64, 128, 256, 288, 512, 1 << 16, 0x80000020, 0xffffffff}},
        {packed::in_features, {0, 60, 260}},
        {packed::out_features, {0, 33}},
        {packed::reserved, {1, 0x80000000}},
        {packed::reserved + 44, {1}},
    };
    for (const auto &each : all) {
        for (const std::uint32_t value : each.values) {
            Bytes block = codes;
            store_to(block.data(), each.field, value);
            sign(block.data(), block.size());
            EXPECT_TRUE(refuses(block)) << "field at " << each.field << ": " << value;
        }
    }
    // Fields that only blocks with codes have.
    for (const std::size_t field : {packed::code_bits, packed::scale_kind, packed::scale_dtype, packed::code_group}) {
        Bytes block = good;
        store_to<std::uint32_t>(block.data(), field, 4);
        sign(block.data(), block.size());
        EXPECT_TRUE(refuses(block)) << "field at " << field;
    }
    // Combinations that no kind has, with the size that they would have.
    const struct {
        halyard_scale_kind kind;
        int bits, group;
        Dtype scales;
    } none[] = {{HALYARD_SCALE_MIN, 4, 32, Dtype::f32},
                {HALYARD_SCALE_TWO_LEVELS, 4, 64, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS, 8, 16, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS, 4, 32, Dtype::bf16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 4, 16, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 8, 32, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 8, 16, Dtype::f32}};
    for (const auto &each : none) {
        EXPECT_TRUE(refuses(CodedMatrix({250, 20, each.bits, each.kind, each.scales, each.group, true}).block()))
            << each.kind << " in groups of " << each.group;
    }
}

/** Reads everything that the library would read of accepted weights. */
double sum_of_everything(const halyard_weights *weights) {
    double sum = 0;
    for (const std::uint8_t byte : bytes_of(weights)) {
        sum += byte;
    }
    return sum;
}

// Thousands of small changes, some with checksums made to fit, so that the checks behind them have to hold. An accepted
// block is one whose fields are consistent, and can be used.
TEST(WeightsMutations, NeverCrashAndAreAcceptedOnlyIfConsistent) {
    std::vector<Bytes> seeds;
    for (const Dtype type : all_dtypes) {
        seeds.push_back(PackSource({type, 3, 5}).expected());
        seeds.push_back(
            PackSource({type, 9, 17, HALYARD_WEIGHT_OUT_IN, true, true, true, true, 0, Placement::ends_at_guard})
                .expected());
    }
    for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_MIN, HALYARD_SCALE_TWO_LEVELS}) {
        seeds.push_back(CodedMatrix::random({9, 17, 4, kind, Dtype::f16, 32, kind == HALYARD_SCALE_MIN}, 5).block());
    }
    int accepted = 0;
    for (std::uint64_t i = 0; i < 24000; i++) {
        const auto random = [&](std::uint64_t which, std::uint64_t below) { return hash(i + 1000, which, 9) % below; };
        Bytes block = seeds[random(0, seeds.size())];
        const std::uint64_t changes = 1 + random(1, 4);
        for (std::uint64_t change = 0; change < changes; change++) {
            // Most in the fields that say how large things are.
            const std::size_t at =
                random(10 + change, 4) == 0 ? random(20 + change, block.size()) : 8 + random(20 + change, 64);
            switch (random(30 + change, 4)) {
            case 0:
                block[at] ^= static_cast<std::uint8_t>(1u << random(40 + change, 8));
                break;
            case 1:
                block[at] = static_cast<std::uint8_t>(random(40 + change, 256));
                break;
            case 2:
                block[at] = static_cast<std::uint8_t>(block[at] + 1);
                break;
            default:
                block[at] = random(40 + change, 2) != 0 ? 0xff : 0;
            }
        }
        if (random(2, 8) == 0) {
            block.resize(random(3, 2 * block.size()));
        }
        if (block.size() >= packed::header_size && random(4, 4) != 0) {
            if (random(5, 2) != 0) {
                store_to(block.data(), packed::bytes, static_cast<std::int64_t>(block.size()));
            }
            store_to(block.data(), packed::version, static_cast<std::uint32_t>(1 + random(6, 4)));
            sign(block.data(), block.size());
        }
        const AlignedBytes aligned(block);
        halyard_weights *weights = nullptr;
        if (from_memory(aligned, &weights) == HALYARD_OK) {
            accepted++;
            halyard_weights_info info{};
            ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
            const auto dtype = load_from<std::uint32_t>(block.data(), packed::dtype),
                       version = load_from<std::uint32_t>(block.data(), packed::version);
            const auto panels = static_cast<std::size_t>((info.out_features + 15) / 16 * (info.gated + 1)),
                       in = static_cast<std::size_t>(info.in_features);
            if (version >= 3) {
                const std::size_t panel_bytes = code_panel_size(
                    static_cast<std::uint32_t>(info.code_bits), static_cast<std::uint32_t>(info.scale_kind),
                    load_from<std::uint32_t>(block.data(), packed::scale_dtype),
                    static_cast<std::size_t>(info.code_group), in);
                ASSERT_EQ(block.size(), panels_begin(16 * panels, version == 4 ? in : 0) + panels * panel_bytes);
                ASSERT_EQ(static_cast<std::size_t>(info.bytes), block.size());
            } else {
                ASSERT_EQ(block.size(), panels_begin(16 * panels) + panels * panel_size(version, dtype, in));
                ASSERT_EQ(static_cast<std::size_t>(info.bytes),
                          panels_begin(16 * panels) + panels * panel_size(version_of(dtype), dtype, in));
            }
            ASSERT_GE(sum_of_everything(weights), 0);
            halyard_weights_destroy(weights);
        } else {
            ASSERT_EQ(weights, nullptr);
            ASSERT_NE(*halyard_last_error(), '\0');
        }
    }
    // Changes of values alone, such as of an element, make a block that is as good as any.
    EXPECT_GT(accepted, 100);
    EXPECT_LT(accepted, 20000);
}

}  // namespace
}  // namespace halyard::tests
