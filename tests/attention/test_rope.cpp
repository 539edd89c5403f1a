// Rotary position embedding: against a reference in long double written from the definition, with every order, width,
// scaling, kind of positions and layout; and what holds of rotations. Bad arguments: test_rope_arguments.cpp.
#include <sys/mman.h>

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/reference_hashes.h"
#include "support/rope.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

// ---- Reference ----

using Real = long double;

std::int64_t pairs_of(const halyard_rope_options &o) {
    return (o.rotary_dim == 0 ? o.head_dim : o.rotary_dim) / 2;
}

/** Radians per position. */
Real frequency(const halyard_rope_options &o, std::int64_t pair) {
    const Real plain =
        std::pow(static_cast<Real>(o.rope_theta), -static_cast<Real>(pair) / static_cast<Real>(pairs_of(o)));
    const Real slow = plain / static_cast<Real>(o.factor);
    switch (o.scaling) {
    case HALYARD_ROPE_LINEAR:
        return slow;
    case HALYARD_ROPE_LLAMA3: {
        const Real wavelength = 2 * std::acos(static_cast<Real>(-1)) / plain;
        const auto original = static_cast<Real>(o.original_max_position_embeddings);
        if (wavelength < original / static_cast<Real>(o.high_freq_factor)) {
            return plain;
        }
        if (wavelength > original / static_cast<Real>(o.low_freq_factor)) {
            return slow;
        }
        const Real smooth = (original / wavelength - static_cast<Real>(o.low_freq_factor)) /
                            static_cast<Real>(o.high_freq_factor - o.low_freq_factor);
        return (1 - smooth) * slow + smooth * plain;
    }
    default:
        return plain;
    }
}

/** By how much an angle may be wrong (runtime/core/handles/rope_table.h). */
double angle_error(std::int64_t position) {
    return 0x1p-50 + static_cast<double>(position) * 0x1p-58;
}

/** Feature `which` (0 or 1) of a pair. */
std::int64_t feature(const halyard_rope_options &o, std::int64_t pair, int which) {
    return o.interleaved ? 2 * pair + which : pair + which * pairs_of(o);
}

/** The first feature of the pair that a feature belongs to: itself where it is in none. */
std::int64_t pair_of(const halyard_rope_options &o, std::int64_t i) {
    const std::int64_t pairs = pairs_of(o);
    return i >= 2 * pairs ? i : o.interleaved ? i / 2 * 2 : i % pairs;
}

/** What turns each pair of a head at one position. */
class Turn {
public:
    Turn(const std::vector<Real> &frequencies, std::int64_t position) {
        for (const Real frequency : frequencies) {
            const Real angle = static_cast<Real>(position) * frequency;
            turns_.push_back({std::cos(angle), std::sin(angle)});
        }
    }

    struct Rotated {
        Real value[2];
        Real norm;
    };
    Rotated rotated(std::int64_t pair, Real x0, Real x1) const {
        const auto &[c, s] = turns_[static_cast<std::size_t>(pair)];
        return {{x0 * c - x1 * s, x1 * c + x0 * s}, std::hypot(x0, x1)};
    }

private:
    std::vector<std::pair<Real, Real>> turns_;  // cosine and sine
};

std::vector<Real> frequencies(const halyard_rope_options &o) {
    std::vector<Real> all;
    for (std::int64_t pair = 0; pair < pairs_of(o); pair++) {
        all.push_back(frequency(o, pair));
    }
    return all;
}

/** The bound of generators/rope.cpp, and the rounding to the type. */
double tolerance(Dtype type, std::int64_t position, const Turn::Rotated &r, int which) {
    const double of_f32 =
        (2.71 * 0x1p-24 * (1 + 0x1p-20) + angle_error(position)) * static_cast<double>(r.norm) + 0x1p-149;
    return of_f32 +
           (type == Dtype::f32 ? 0 : spacing(type, static_cast<double>(std::fabs(r.value[which])) + of_f32) / 2);
}

// ---- Calls ----

/** Checks every element of y = rope(x); `back`: by the negative angles. */
testing::AssertionResult check_call(const halyard_rope_options &o, const CallForm &f, const PositionTensor &positions,
                                    const Tensor &x, const Tensor &y, bool back = false) {
    const std::vector<Real> of_pairs = frequencies(o);
    std::optional<Turn> turn;  // of the token whose heads these are
    for (std::int64_t row = 0; row < x.rows(); row++) {
        const std::int64_t token = row / f.heads, b = token / f.tokens, position = positions.at(b, token % f.tokens);
        if (row % f.heads == 0) {
            turn.emplace(of_pairs, back ? -position : position);
        }
        for (std::int64_t pair = 0; pair < pairs_of(o); pair++) {
            const Turn::Rotated r =
                turn->rotated(pair, x.get(row, feature(o, pair, 0)), x.get(row, feature(o, pair, 1)));
            for (int which = 0; which < 2; which++) {
                const double got = y.get(row, feature(o, pair, which));
                if (!(static_cast<double>(std::fabs(got - r.value[which])) <=
                      tolerance(x.dtype(), position, r, which))) {
                    return testing::AssertionFailure()
                           << "row " << row << ", position " << position << ", pair " << pair << ", part " << which
                           << ": " << got << " instead of " << static_cast<double>(r.value[which]);
                }
            }
        }
        for (std::int64_t i = 2 * pairs_of(o); i < o.head_dim; i++) {
            if (x.bits(row, i) != y.bits(row, i)) {
                return testing::AssertionFailure()
                       << "row " << row << ", feature " << i << " is not rotated, but changed";
            }
        }
    }
    return y.surroundings_intact() ? testing::AssertionSuccess()
                                   : testing::AssertionFailure() << "written outside the elements";
}

std::string describe(const halyard_rope_options &o, const CallForm &f) {
    return "head_dim " + std::to_string(o.head_dim) + ", rotary_dim " + std::to_string(o.rotary_dim) +
           (o.interleaved ? ", interleaved" : "") + ", theta " + std::to_string(o.rope_theta) + ", scaling " +
           std::to_string(o.scaling) + ", batch " + std::to_string(f.batch) + ", tokens " + std::to_string(f.tokens) +
           ", heads " + std::to_string(f.heads) + ", positions " + std::to_string(static_cast<int>(f.positions)) +
           ", gap " + std::to_string(f.gap) + (f.transposed ? ", transposed" : "");
}

class RopeApply : public testing::TestWithParam<IsaTypeCase> {
protected:
    const halyard_isa isa = GetParam().isa;
    const Dtype type = GetParam().type;
};

INSTANTIATE_TEST_SUITE_P(All, RopeApply, testing::ValuesIn(isa_type_cases()), name_of_isa_type_case);

const CallForm call_forms[] = {
    {0, 1, 1, Given::none},
    {0, 7, 3, Given::none},
    {0, 5, 2, Given::tokens32, 0, false, Placement::starts_at_guard},
    {0, 4, 3, Given::tokens64, 5},
    {2, 3, 2, Given::none, 0, true},
    {3, 4, 1, Given::tokens32, 3, true},
    {1, 6, 2, Given::tokens64},
    {3, 2, 5, Given::batch32, 1, false, Placement::starts_at_guard},
    {2, 5, 3, Given::batch64, 16, true},
};

std::vector<halyard_rope_options> rope_forms() {
    std::vector<halyard_rope_options> forms;
    for (const bool interleaved : {false, true}) {
        for (const std::int64_t head_dim : {2, 4, 6, 16, 22, 30, 64, 80, 128, 130, 256, 1024}) {
            forms.push_back(options_of(head_dim, 0, interleaved));
        }
        for (const std::int64_t rotary_dim : {2, 10, 16, 24, 32, 34, 62, 64, 66, 98}) {
            forms.push_back(options_of(100, rotary_dim, interleaved, 500000));
        }
        forms.push_back(options_of(64, 0, interleaved, 1.5));
        forms.push_back(options_of(64, 0, interleaved, 1e12));
        forms.push_back(linear(options_of(64, 0, interleaved), 8));
        forms.push_back(linear(options_of(96, 48, interleaved, 1e6), 2.5));
        forms.push_back(llama3(options_of(128, 0, interleaved, 500000, 131072), 8, 8192));
        forms.push_back(llama3(options_of(64, 0, interleaved, 500000, 131072), 32, 8192));
        forms.push_back(llama3(options_of(64, 32, interleaved, 10000, 5000), 4, 300));
    }
    return forms;
}

// One in so many of the forms. The reference's long double is slow, above all that of 128 bits in an emulator.
constexpr std::size_t every = emulated || for_races ? 13 : reduced ? 7 : 1;

TEST_P(RopeApply, RotatesAsDefined) {
    const Context context(isa, 2);
    std::size_t form = 0;
    for (const halyard_rope_options &o : rope_forms()) {
        if (form % every != 0 ||
            ((emulated || for_races) && o.max_positions > 10000)) {  // a long table takes seconds there
            form++;
            continue;
        }
        const Rope rope = make_rope(o);
        ASSERT_NE(rope, nullptr);
        // Every form of a call meets every third form of the options.
        for (std::size_t i = form++ % 3; i < std::size(call_forms); i += 3) {
            const CallForm &f = call_forms[i];
            Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
            fill(x, form);
            const PositionTensor positions(f, o.max_positions, form);
            ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(check_call(o, f, positions, x, y)) << describe(o, f);
            ASSERT_TRUE(x.surroundings_intact());

            ASSERT_EQ(halyard_rope_apply_backward(context.get(), rope.get(), &x.view, positions.get(), &y.view),
                      HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(check_call(o, f, positions, x, y, true)) << "back, " << describe(o, f);

            ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK);
            const std::vector<std::uint32_t> expected = y.all_bits();
            ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &x.view), HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(same_bits(type, expected, x.all_bits())) << "in place, " << describe(o, f);
            ASSERT_TRUE(x.surroundings_intact());
        }
    }
}

TEST_P(RopeApply, TakesPositionsWithAnyStrides) {
    const halyard_rope_options o = options_of(64);
    const Rope rope = make_rope(o);
    const Context context(isa);
    for (const Given given : {Given::batch32, Given::batch64}) {
        const CallForm f = {2, 3, 2, given};
        Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
        fill(x, 5);
        PositionTensor positions(f, o.max_positions, 5);
        // Tokens before sequences in memory, and a number that is none of them behind each.
        std::vector<std::int64_t> wide(12, -1);
        std::vector<std::int32_t> narrow(12, -1);
        for (std::int64_t i = 0; i < 6; i++) {
            wide[i % 3 * 4 + i / 3 * 2] = positions.at(i / 3, i % 3);
            narrow[i % 3 * 4 + i / 3 * 2] = static_cast<std::int32_t>(positions.at(i / 3, i % 3));
        }
        std::int64_t strides[] = {2, 4};
        positions.view.strides = strides;
        positions.view.data = given == Given::batch32 ? static_cast<void *>(narrow.data()) : wide.data();
        ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(check_call(o, f, positions, x, y));
    }
}

TEST_P(RopeApply, KeepsNaNAndInfinityInTheirPair) {
    for (const bool interleaved : {false, true}) {
        const halyard_rope_options o = options_of(100, 62, interleaved);
        const Rope rope = make_rope(o);
        const CallForm f = {0, 3, 4};
        const Context context(isa);
        Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim)),
            clean(type, tensor_form(f, o.head_dim));
        fill(x, 3);
        ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, nullptr, &clean.view), HALYARD_OK);
        for (std::int64_t i = 0; i < o.head_dim; i++) {
            const std::int64_t row = i % x.rows();
            const std::uint32_t before = x.bits(row, i);
            for (const double value : {NAN, INFINITY}) {
                x.set(row, i, value);
                ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, nullptr, &y.view), HALYARD_OK);
                for (std::int64_t other_row = 0; other_row < x.rows(); other_row++) {
                    for (std::int64_t j = 0; j < o.head_dim; j++) {
                        if (row == other_row && pair_of(o, i) == pair_of(o, j)) {
                            // Positions 1 and 2 turn every pair of this width by an angle whose cosine and sine are not
                            // 0.
                            if (std::isnan(value) || row >= f.heads) {
                                ASSERT_FALSE(std::isfinite(y.get(row, j))) << i << " to " << j;
                            }
                        } else {
                            ASSERT_EQ(y.bits(other_row, j), clean.bits(other_row, j)) << i << " to " << j;
                        }
                    }
                }
            }
            x.set_bits(row, i, before);
        }
    }
}

// What is not rotated is not computed with either: signalling NaN, denormals and all.
TEST_P(RopeApply, MovesWhatItDoesNotRotateBitByBit) {
    const halyard_rope_options o = options_of(70, 4);
    const Rope rope = make_rope(o);
    const CallForm f = {0, 50, 10};
    Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
    for (std::int64_t row = 0; row < x.rows(); row++) {
        for (std::int64_t i = 0; i < o.head_dim; i++) {
            const std::uint64_t random = hash(9, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
            x.set_bits(row, i, static_cast<std::uint32_t>(type == Dtype::f32 ? random : random & 0xffff));
        }
    }
    const Context context(isa);
    ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, nullptr, &y.view), HALYARD_OK);
    for (std::int64_t row = 0; row < x.rows(); row++) {
        for (std::int64_t i = 4; i < o.head_dim; i++) {
            ASSERT_EQ(x.bits(row, i), y.bits(row, i)) << row << ", " << i;
        }
    }
}

TEST_P(RopeApply, KeepsPositionZeroAndNorms) {
    for (const bool interleaved : {false, true}) {
        const halyard_rope_options o = options_of(128, 0, interleaved, 500000, 4096);
        const Rope rope = make_rope(o);
        const CallForm f = {0, emulated ? 300 : 4096, 1};
        const Context context(isa);
        Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
        fill(x, 4);
        ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, nullptr, &y.view), HALYARD_OK);
        for (std::int64_t i = 0; i < o.head_dim; i++) {
            ASSERT_EQ(x.get(0, i), y.get(0, i));
        }
        const double unit = type == Dtype::f32 ? 0 : type == Dtype::f16 ? 0x1p-11 : 0x1p-8;
        for (std::int64_t row = 0; row < x.rows(); row++) {
            for (std::int64_t pair = 0; pair < pairs_of(o); pair++) {
                const std::int64_t a = feature(o, pair, 0), b = feature(o, pair, 1);
                const double before = std::hypot(x.get(row, a), x.get(row, b));
                // Two components off by the bound each move the norm by at most sqrt(2) of it.
                ASSERT_NEAR(std::hypot(y.get(row, a), y.get(row, b)), before,
                            before * (std::sqrt(2.0) * 2.72 * 0x1p-24 + unit * 1.01) + 0x1p-24);
            }
        }
    }
}

TEST_P(RopeApply, IsTheSameForAnyThreadsAndBatches) {
    const halyard_rope_options o = options_of(80, 60, false, 10000, 300);
    const Rope rope = make_rope(o);
    const CallForm whole_form = {3, 300, 7, Given::batch64};
    const PositionTensor positions(whole_form, o.max_positions, 8);
    Tensor x(type, tensor_form(whole_form, o.head_dim)), y(type, tensor_form(whole_form, o.head_dim));
    fill(x, 5);
    const Context one(isa, 1);
    ASSERT_EQ(halyard_rope_apply(one.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK);
    const std::vector<std::uint32_t> expected = y.all_bits();
    for (const int threads : {2, 3, 8}) {
        y.clear();
        const Context context(isa, threads);
        ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK);
        ASSERT_TRUE(same_bits(type, expected, y.all_bits())) << threads;
    }
    // Token by token.
    const CallForm token_form = {0, 1, 7, Given::tokens64};
    for (std::int64_t token = 0; token < 900; token += 13) {
        Tensor one_x(type, tensor_form(token_form, o.head_dim)), one_y(type, tensor_form(token_form, o.head_dim));
        for (std::int64_t row = 0; row < 7; row++) {
            for (std::int64_t i = 0; i < o.head_dim; i++) {
                one_x.set_bits(row, i, x.bits(token * 7 + row, i));
            }
        }
        PositionTensor position(token_form, 1, 1);
        position.wide[0] = positions.at(token / 300, token % 300);
        ASSERT_EQ(halyard_rope_apply(one.get(), rope.get(), &one_x.view, position.get(), &one_y.view), HALYARD_OK);
        const std::vector<std::uint32_t> bits = one_y.all_bits();
        ASSERT_TRUE(std::equal(bits.begin(), bits.end(), expected.begin() + token * 7 * o.head_dim)) << token;
    }
}

// A score depends on how far apart query and key are, not on where they stand.
TEST_P(RopeApply, MakesScoresOfDistances) {
    const halyard_rope_options o = options_of(64, 0, false, 10000, 2048);
    const Rope rope = make_rope(o);
    const Context context(isa);
    const CallForm f = {0, 2, 1, Given::tokens64};
    Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
    fill(x, 6);
    const double unit = type == Dtype::f32 ? 0x1p-22 : type == Dtype::f16 ? 0x1p-11 : 0x1p-8;
    for (const std::int64_t distance : {0, 1, 5, 100, 1000}) {
        double first = 0;
        for (const std::int64_t at : {1000, 1001, 1500, 2047}) {
            PositionTensor positions(f, 1, 1);
            positions.wide = {at, at - distance};
            positions.view.data = positions.wide.data();
            ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK);
            double score = 0, size = 0;
            for (std::int64_t i = 0; i < o.head_dim; i++) {
                score += y.get(0, i) * y.get(1, i);
                size += std::fabs(y.get(0, i)) * std::fabs(y.get(1, i)) + std::fabs(x.get(0, i) * x.get(1, i));
            }
            if (at == 1000) {
                first = score;
            } else {
                EXPECT_NEAR(score, first, 8 * unit * size) << distance << " from " << at;
            }
        }
    }
}

// Heads, tokens and batches so far apart that the kernels' 32-bit indices do not reach from one to the other.
TEST_P(RopeApply, TakesHeadsFarApart) {
    const halyard_rope_options o = options_of(40, 20);
    const Rope rope = make_rope(o);
    const CallForm f = {0, 2, 3};
    Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
    fill(x, 7);
    const Context context(isa);
    ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, nullptr, &y.view), HALYARD_OK);
    constexpr std::int64_t head_pitch = std::int64_t{1} << 31;
    const std::size_t bytes = static_cast<std::size_t>(3 * head_pitch) * size_of(type);
    void *const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        GTEST_SKIP() << "no address space for " << bytes << " bytes";
    }
    const auto at = [&](std::int64_t row) {
        return static_cast<char *>(memory) +
               static_cast<std::size_t>(row % 3 * head_pitch + row / 3 * 1000) * size_of(type);
    };
    const std::size_t row_bytes = static_cast<std::size_t>(o.head_dim) * size_of(type);
    for (std::int64_t row = 0; row < 6; row++) {
        std::memcpy(at(row), x.at(row, 0), row_bytes);
    }
    std::int64_t strides[] = {1000, head_pitch, 1};
    DLTensor far = x.view;
    far.data = memory;
    far.byte_offset = 0;
    far.strides = strides;
    EXPECT_EQ(halyard_rope_apply(context.get(), rope.get(), &far, nullptr, &far), HALYARD_OK) << halyard_last_error();
    for (std::int64_t row = 0; row < 6; row++) {
        EXPECT_EQ(std::memcmp(at(row), y.at(row, 0), row_bytes), 0) << row;
    }
    munmap(memory, bytes);
}

TEST(RopeBits, AreTheSameOnEveryInstructionSetWithFusedMultiplyAdd) {
    const std::vector<halyard_isa> isas = fused_isas();
    for (const halyard_rope_options &o : rope_forms()) {
        if ((emulated || for_races) && o.max_positions > 10000) {
            continue;  // the hashes below have these
        }
        const Rope rope = make_rope(o);
        for (const Dtype type : all_dtypes) {
            const CallForm f = {0, 20, 3, Given::tokens32};
            const PositionTensor positions(f, o.max_positions, 2);
            Tensor x(type, tensor_form(f, o.head_dim)), y(type, tensor_form(f, o.head_dim));
            fill(x, 11);
            std::vector<std::uint32_t> first;
            for (const halyard_isa isa : isas) {
                y.clear();
                const Context context(isa);
                ASSERT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK);
                if (first.empty()) {
                    first = y.all_bits();
                }
                ASSERT_TRUE(same_bits(type, first, y.all_bits())) << halyard_isa_name(isa) << ", " << describe(o, f);
            }
        }
    }
}

TEST(RopeBits, AreThoseOfEveryMachine) {
    const std::vector<halyard_rope_options> forms = rope_forms();
    std::vector<Rope> ropes;  // whose tables take longer than the calls
    for (const halyard_rope_options &o : forms) {
        ropes.push_back(make_rope(o));
    }
    expect_reference_hashes("rope", [&](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (std::size_t form = 0; form < forms.size(); form++) {
            const halyard_rope_options &o = forms[form];
            const Rope &rope = ropes[form];
            const CallForm f = {0, 20, 3, Given::tokens32};
            const PositionTensor positions(f, o.max_positions, 2);
            Tensor x(Dtype::f32, tensor_form(f, o.head_dim)), y(Dtype::f32, tensor_form(f, o.head_dim));
            fill(x, 11);
            EXPECT_EQ(halyard_rope_apply(context.get(), rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK)
                << halyard_last_error();
            BitsHash results;
            results.add(y.all_bits());
            std::string label = std::to_string(o.rotary_dim) + "_of_" + std::to_string(o.head_dim) + "_theta_" +
                                std::to_string(static_cast<std::int64_t>(10 * o.rope_theta)) + "_scaling_" +
                                std::to_string(o.scaling) + "_" +
                                std::to_string(static_cast<std::int64_t>(10 * o.factor));
            hashes[label + (o.interleaved != 0 ? "_interleaved" : "")] = results.text();
        }
        return hashes;
    });
}

// ---- The table ----

/** Cosine and sine of every pair at some positions: what (1, 0) turns into. */
void check_table(const halyard_rope_options &o, const std::vector<std::int64_t> &at) {
    const Rope rope = make_rope(o);
    ASSERT_NE(rope, nullptr);
    const CallForm f = {0, static_cast<std::int64_t>(at.size()), 1, Given::tokens64};
    PositionTensor positions(f, 1, 1);
    positions.wide = at;
    positions.view.data = positions.wide.data();
    Tensor x(Dtype::f32, tensor_form(f, o.head_dim)), y(Dtype::f32, tensor_form(f, o.head_dim));
    x.fill([&](std::int64_t, std::int64_t i) {
        return i == feature(o, o.interleaved ? i / 2 : i % pairs_of(o), 0) ? 1 : 0;
    });
    ASSERT_EQ(halyard_rope_apply(nullptr, rope.get(), &x.view, positions.get(), &y.view), HALYARD_OK)
        << halyard_last_error();
    const std::vector<Real> of_pairs = frequencies(o);
    for (std::size_t token = 0; token < at.size(); token++) {
        const Turn turn(of_pairs, at[token]);
        for (std::int64_t pair = 0; pair < pairs_of(o); pair++) {
            const Turn::Rotated r = turn.rotated(pair, 1, 0);
            for (int which = 0; which < 2; which++) {
                const double got = y.get(static_cast<std::int64_t>(token), feature(o, pair, which));
                const auto exact = static_cast<double>(r.value[which]);
                ASSERT_LE(static_cast<double>(std::fabs(got - r.value[which])),
                          spacing(Dtype::f32, exact) / 2 + angle_error(at[token]))
                    << "position " << at[token] << ", pair " << pair << ", part " << which << ", " << describe(o, f);
            }
        }
    }
}

std::vector<std::int64_t> sample(std::int64_t max_positions) {
    std::vector<std::int64_t> at;
    constexpr auto thinner = static_cast<std::int64_t>(every);
    for (std::int64_t position = 0; position < max_positions; position += 1 + thinner * position / 30) {
        at.push_back(position);
    }
    at.push_back(max_positions - 1);
    return at;
}

TEST(RopeTable, HoldsTheNearestFloats) {
    const std::vector<halyard_rope_options> forms = rope_forms();
    for (std::size_t i = 0; i < forms.size(); i += every) {
        check_table(forms[i], sample(forms[i].max_positions));
        if (HasFatalFailure()) {
            return;
        }
    }
    for (const double theta :
         {1 + 0x1p-52, 1.0000001, 2.0, 10000.0, 500000.0, 5e6, 1e8, 1e30, 1e300, std::numeric_limits<double>::max()}) {
        check_table(options_of(128, 0, false, theta, 3000), sample(3000));
        check_table(options_of(1024, 1022, true, theta, 50), sample(50));
        if (HasFatalFailure()) {
            return;
        }
    }
}

TEST(RopeTable, TakesEveryFactor) {
    const double most = std::numeric_limits<double>::max(), least = std::numeric_limits<double>::denorm_min();
    const halyard_rope_options plain = options_of(128, 0, false, 500000, 3000);
    check_table(linear(plain, most), sample(3000));
    for (const auto &[low, high] : {std::pair(least, 2 * least), std::pair(least, most), std::pair(1.0, 1 + 0x1p-52),
                                    std::pair(most / 2, most)}) {
        for (const double factor : {1 + 0x1p-52, 8.0, most}) {
            halyard_rope_options o = llama3(plain, factor, 8192);
            o.low_freq_factor = low;
            o.high_freq_factor = high;
            check_table(o, sample(3000));
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

TEST(RopeTable, ReachesFar) {
#ifdef HALYARD_TESTS_REDUCED
    GTEST_SKIP() << "sixteen million positions take too long here";
#endif
    check_table(options_of(4, 0, false, 10000, 1 << 24), sample(1 << 24));
    check_table(llama3(options_of(8, 0, true, 500000, 1 << 22), 8, 8192), sample(1 << 22));
}

/** What a rope makes of (1, 0) at every position. */
std::vector<std::uint32_t> table_of(const halyard_rope *rope, const halyard_rope_options &o) {
    const CallForm f = {0, o.max_positions, 1};
    Tensor x(Dtype::f32, tensor_form(f, o.head_dim)), y(Dtype::f32, tensor_form(f, o.head_dim));
    x.fill([&](std::int64_t, std::int64_t i) { return i < pairs_of(o) ? 1 : 0; });
    EXPECT_EQ(halyard_rope_apply(nullptr, rope, &x.view, nullptr, &y.view), HALYARD_OK) << halyard_last_error();
    return y.all_bits();
}

// On x86 there are two environments, of SSE and of the x87.
TEST(RopeTable, IsTheSameInEveryEnvironmentOfTheCaller) {
    const struct {
        const char *name;
        void (*enter)();
    } environments[] = {
        {"upward", [] { std::fesetround(FE_UPWARD); }},
        {"downward", [] { std::fesetround(FE_DOWNWARD); }},
        {"toward zero", [] { std::fesetround(FE_TOWARDZERO); }},
#if defined(__GLIBC__)
        {"traps", [] { feenableexcept(FE_ALL_EXCEPT); }},
#endif
#if defined(__x86_64__)
        {"x87 in 24 bits",
         [] {
             const std::uint16_t control = 0x007f;
             asm volatile("fldcw %0" : : "m"(control));
         }},
#endif
    };
    for (const halyard_rope_options &o :
         {options_of(64, 0, false, 10000, 3000), linear(options_of(64, 0, false, 10000, 3000), 3),
          llama3(options_of(64, 0, false, 500000, 3000), 8, 8192)}) {
        const std::vector<std::uint32_t> expected = table_of(make_rope(o).get(), o);
        for (const auto &environment : environments) {
            std::fenv_t before;
            std::fegetenv(&before);
            environment.enter();
            halyard_rope *rope = nullptr;
            const halyard_status status = halyard_rope_create(&o, &rope);
            std::fesetenv(&before);
            ASSERT_EQ(status, HALYARD_OK) << environment.name;
            EXPECT_TRUE(same_bits(Dtype::f32, expected, table_of(Rope(rope).get(), o))) << environment.name;
        }
    }
}

TEST(RopeTable, IsUnscaledByAFactorOfOne) {
    const CallForm f = {0, 500, 2};
    Tensor x(Dtype::f32, tensor_form(f, 64)), y(Dtype::f32, tensor_form(f, 64));
    fill(x, 12);
    std::vector<std::uint32_t> plain;
    const halyard_rope_options unscaled = options_of(64);
    for (const halyard_rope_options &o :
         {unscaled, linear(unscaled, 1), llama3(unscaled, 1, 8192), llama3(unscaled, 1, 100)}) {
        ASSERT_EQ(halyard_rope_apply(nullptr, make_rope(o).get(), &x.view, nullptr, &y.view), HALYARD_OK);
        if (plain.empty()) {
            plain = y.all_bits();
        }
        EXPECT_TRUE(same_bits(Dtype::f32, plain, y.all_bits())) << o.scaling;
    }
}

TEST(RopeTable, TellsItsOptions) {
    halyard_rope_options given = llama3(options_of(128, 0, true, 500000, 77), 8, 8192), got{};
    ASSERT_EQ(halyard_rope_get_options(make_rope(given).get(), &got), HALYARD_OK);
    EXPECT_EQ(got.head_dim, 128);
    EXPECT_EQ(got.rotary_dim, 128);
    EXPECT_EQ(got.max_positions, 77);
    EXPECT_EQ(got.rope_theta, 500000);
    EXPECT_NE(got.interleaved, 0);
    EXPECT_EQ(got.scaling, HALYARD_ROPE_LLAMA3);
    EXPECT_EQ(got.factor, 8);
    EXPECT_EQ(got.low_freq_factor, 1);
    EXPECT_EQ(got.high_freq_factor, 4);
    EXPECT_EQ(got.original_max_position_embeddings, 8192);
    given.rotary_dim = 32;
    ASSERT_EQ(halyard_rope_get_options(make_rope(given).get(), &got), HALYARD_OK);
    EXPECT_EQ(got.rotary_dim, 32);
}

}  // namespace
}  // namespace halyard::tests
