// Rotary position embedding: every bad argument is named and nothing is written; and calls on nothing.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/rope.h"
#include "support/text.h"

namespace halyard::tests {
namespace {

struct OptionMistake {
    const char *argument;
    void (*make)(halyard_rope_options &);
};

const OptionMistake option_mistakes[] = {
    {"head_dim", [](halyard_rope_options &o) { o.head_dim = 0; }},
    {"head_dim", [](halyard_rope_options &o) { o.head_dim = -2; }},
    {"head_dim", [](halyard_rope_options &o) { o.head_dim = 65; }},
    {"head_dim", [](halyard_rope_options &o) { o.head_dim = 1026; }},
    {"head_dim", [](halyard_rope_options &o) { o.head_dim = std::numeric_limits<std::int64_t>::max() - 1; }},
    {"rotary_dim", [](halyard_rope_options &o) { o.rotary_dim = -2; }},
    {"rotary_dim", [](halyard_rope_options &o) { o.rotary_dim = 33; }},
    {"rotary_dim", [](halyard_rope_options &o) { o.rotary_dim = 66; }},
    {"max_positions", [](halyard_rope_options &o) { o.max_positions = 0; }},
    {"max_positions", [](halyard_rope_options &o) { o.max_positions = -1; }},
    {"max_positions", [](halyard_rope_options &o) { o.max_positions = (1 << 24) + 1; }},
    {"rope_theta", [](halyard_rope_options &o) { o.rope_theta = 0; }},
    {"rope_theta", [](halyard_rope_options &o) { o.rope_theta = 1; }},
    {"rope_theta", [](halyard_rope_options &o) { o.rope_theta = -10000; }},
    {"rope_theta", [](halyard_rope_options &o) { o.rope_theta = NAN; }},
    {"rope_theta", [](halyard_rope_options &o) { o.rope_theta = INFINITY; }},
    {"scaling", [](halyard_rope_options &o) { o.scaling = static_cast<halyard_rope_scaling>(3); }},
    {"scaling",
     [](halyard_rope_options &o) {
         const int number = -1;
         std::memcpy(&o.scaling, &number, sizeof number);
     }},
    {"factor", [](halyard_rope_options &o) { o = linear(o, 0); }},
    {"factor", [](halyard_rope_options &o) { o = linear(o, 0.5); }},
    {"factor", [](halyard_rope_options &o) { o = linear(o, NAN); }},
    {"factor", [](halyard_rope_options &o) { o = linear(o, INFINITY); }},
    {"factor", [](halyard_rope_options &o) { o.factor = 0; }},
    {"low_freq_factor", [](halyard_rope_options &o) { o.low_freq_factor = 0; }},
    {"low_freq_factor", [](halyard_rope_options &o) { o.low_freq_factor = NAN; }},
    {"low_freq_factor", [](halyard_rope_options &o) { o.low_freq_factor = INFINITY; }},
    {"high_freq_factor", [](halyard_rope_options &o) { o.high_freq_factor = 1; }},
    {"high_freq_factor", [](halyard_rope_options &o) { o.high_freq_factor = NAN; }},
    {"high_freq_factor", [](halyard_rope_options &o) { o.high_freq_factor = INFINITY; }},
    {"original_max_position_embeddings", [](halyard_rope_options &o) { o.original_max_position_embeddings = 0; }},
    {"original_max_position_embeddings", [](halyard_rope_options &o) { o.original_max_position_embeddings = -8192; }},
};

/** The status, and a message that names the function and the argument. */
testing::AssertionResult refused(halyard_status got, halyard_status expected, const std::string &function,
                                 const std::string &argument) {
    const std::string message = halyard_last_error();
    if (got != expected) {
        return testing::AssertionFailure()
               << "status " << halyard_status_name(got) << "; the last message is: " << message;
    }
    if (message.rfind(function + ": ", 0) != 0 || !contains_word(message.substr(function.size() + 2), argument)) {
        return testing::AssertionFailure()
               << "the message does not name " << function << " and " << argument << ": " << message;
    }
    return testing::AssertionSuccess();
}

TEST(RopeArguments, OfTheOptionsAreNamed) {
    for (const OptionMistake &mistake : option_mistakes) {
        halyard_rope_options o = llama3(options_of(64), 8, 8192);
        mistake.make(o);
        halyard_rope *rope = nullptr;
        EXPECT_TRUE(
            refused(halyard_rope_create(&o, &rope), HALYARD_INVALID_ARGUMENT, "halyard_rope_create", mistake.argument));
        EXPECT_EQ(rope, nullptr);
    }
    // What no scaling asks for is not looked at.
    halyard_rope_options o = options_of(64);
    o.factor = NAN;
    o.low_freq_factor = -1;
    EXPECT_NE(make_rope(o), nullptr);
}

TEST(RopeArguments, MayNotBeNull) {
    const halyard_rope_options o = options_of(64);
    halyard_rope *made = nullptr;
    halyard_rope_options got{};
    const Rope rope = make_rope(o);
    EXPECT_TRUE(
        refused(halyard_rope_create(nullptr, &made), HALYARD_INVALID_ARGUMENT, "halyard_rope_create", "options"));
    EXPECT_TRUE(refused(halyard_rope_create(&o, nullptr), HALYARD_INVALID_ARGUMENT, "halyard_rope_create", "rope"));
    EXPECT_TRUE(
        refused(halyard_rope_get_options(nullptr, &got), HALYARD_INVALID_ARGUMENT, "halyard_rope_get_options", "rope"));
    EXPECT_TRUE(refused(halyard_rope_get_options(rope.get(), nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_rope_get_options", "options"));
    halyard_rope_destroy(nullptr);
}

/** A call of [2, 3, 2, 64] to be spoiled. */
struct Spoiled {
    const halyard_rope *rope;
    DLTensor *x, *y, *positions;
    std::int64_t shape[5], strides[4];

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
    std::int64_t *values() { return static_cast<std::int64_t *>(positions->data); }
    void move_y(const void *to, std::int64_t bytes) {
        y->data = static_cast<char *>(const_cast<void *>(to)) + bytes;
        y->byte_offset = 0;
    }
};

struct CallMistake {
    const char *what, *argument;
    halyard_status status;
    void (*make)(Spoiled &);
};

constexpr halyard_status invalid = HALYARD_INVALID_ARGUMENT, unsupported = HALYARD_UNSUPPORTED;

const CallMistake call_mistakes[] = {
    {"null", "rope", invalid, [](Spoiled &s) { s.rope = nullptr; }},
    {"null", "x", invalid, [](Spoiled &s) { s.x = nullptr; }},
    {"null", "y", invalid, [](Spoiled &s) { s.y = nullptr; }},
    {"null data", "x", invalid, [](Spoiled &s) { s.x->data = nullptr; }},
    {"null data", "y", invalid, [](Spoiled &s) { s.y->data = nullptr; }},
    {"null data", "positions", invalid, [](Spoiled &s) { s.positions->data = nullptr; }},
    {"null shape", "x", invalid, [](Spoiled &s) { s.x->shape = nullptr; }},
    {"null shape", "positions", invalid, [](Spoiled &s) { s.positions->shape = nullptr; }},
    {"CUDA", "x", unsupported, [](Spoiled &s) { s.x->device.device_type = kDLCUDA; }},
    {"CUDA", "y", unsupported, [](Spoiled &s) { s.y->device.device_type = kDLCUDA; }},
    {"CUDA", "positions", unsupported, [](Spoiled &s) { s.positions->device.device_type = kDLCUDA; }},
    {"f64", "x", unsupported, [](Spoiled &s) { s.x->dtype.bits = 64; }},
    {"f16 beside f32", "y", unsupported, [](Spoiled &s) { s.y->dtype.bits = 16; }},
    {"f32", "positions", unsupported,
     [](Spoiled &s) {
         s.positions->dtype = {kDLFloat, 32, 1};
     }},
    {"uint64", "positions", unsupported, [](Spoiled &s) { s.positions->dtype.code = kDLUInt; }},
    {"int16", "positions", unsupported, [](Spoiled &s) { s.positions->dtype.bits = 16; }},
    {"two lanes", "positions", unsupported, [](Spoiled &s) { s.positions->dtype.lanes = 2; }},
    {"rank 0", "x", invalid, [](Spoiled &s) { s.x->ndim = 0; }},
    {"rank 5", "x", invalid,
     [](Spoiled &s) {
         s.reshape(*s.x, {1, 2, 3, 2, 64});
     }},
    {"rank 3 beside 4", "y", invalid,
     [](Spoiled &s) {
         s.reshape(*s.y, {6, 2, 64});
     }},
    {"rank 2", "x", invalid,
     [](Spoiled &s) {
         s.reshape(*s.x, {12, 64});
         s.y->shape = s.shape;
         s.y->ndim = 2;
     }},
    {"a head less", "y", invalid, [](Spoiled &s) { s.y->shape[2]--; }},
    {"a token less", "y", invalid, [](Spoiled &s) { s.y->shape[1]--; }},
    {"negative tokens", "x", invalid, [](Spoiled &s) { s.x->shape[1] = -1; }},
    {"a narrower head", "head_dim", invalid, [](Spoiled &s) { s.x->shape[3] = s.y->shape[3] = 62; }},
    {"a wider head", "head_dim", invalid,
     [](Spoiled &s) {
         s.x->shape[3] = s.y->shape[3] = 66;
         s.x->shape[2] = s.y->shape[2] = 1;
     }},
    {"spread features", "x", invalid,
     [](Spoiled &s) {
         s.restride(*s.x, {384, 128, 64, 2});
     }},
    {"spread features", "y", invalid,
     [](Spoiled &s) {
         s.restride(*s.y, {384, 128, 64, 2});
     }},
    {"negative stride", "x", invalid,
     [](Spoiled &s) {
         s.restride(*s.x, {384, -128, 64, 1});
     }},
    {"heads in one place", "y", invalid,
     [](Spoiled &s) {
         s.restride(*s.y, {384, 128, 0, 1});
     }},
    {"heads that overlap", "y", invalid,
     [](Spoiled &s) {
         s.restride(*s.y, {384, 128, 63, 1});
     }},
    {"off by a byte", "x", invalid, [](Spoiled &s) { s.x->byte_offset++; }},
    {"off by a byte", "positions", invalid, [](Spoiled &s) { s.positions->byte_offset++; }},
    {"off by half an element", "positions", invalid, [](Spoiled &s) { s.positions->byte_offset += 4; }},
    {"rank 0", "positions", invalid, [](Spoiled &s) { s.positions->ndim = 0; }},
    {"rank 3", "positions", invalid,
     [](Spoiled &s) {
         s.reshape(*s.positions, {2, 3, 1});
     }},
    {"a token less", "positions", invalid,
     [](Spoiled &s) {
         s.reshape(*s.positions, {2, 2});
     }},
    {"a token more", "positions", invalid, [](Spoiled &s) { s.reshape(*s.positions, {4}); }},
    {"a batch less", "positions", invalid,
     [](Spoiled &s) {
         s.reshape(*s.positions, {1, 3});
     }},
    {"tokens of all batches in a row", "positions", invalid, [](Spoiled &s) { s.reshape(*s.positions, {6}); }},
    {"no tokens", "positions", invalid, [](Spoiled &s) { s.reshape(*s.positions, {0}); }},
    {"bytes beyond 64 bits", "positions", invalid,
     [](Spoiled &s) {
         s.restride(*s.positions, {std::int64_t{1} << 59, 1});
     }},
    {"a sum of strides beyond 64 bits", "positions", invalid,
     [](Spoiled &s) {
         s.restride(*s.positions, {INT64_MAX / 8, INT64_MAX / 8});
     }},
    {"negative stride", "positions", invalid,
     [](Spoiled &s) {
         s.restride(*s.positions, {3, -1});
     }},
    {"-1 at the end", "positions", invalid, [](Spoiled &s) { s.values()[5] = -1; }},
    {"max_positions at first", "positions", invalid, [](Spoiled &s) { s.values()[0] = 1000; }},
    {"2^32", "positions", invalid, [](Spoiled &s) { s.values()[3] = std::int64_t{1} << 32; }},
    {"one element into x", "y", invalid, [](Spoiled &s) { s.move_y(s.x->data, 4); }},
    {"one head into x", "y", invalid, [](Spoiled &s) { s.move_y(s.x->data, 4 * 64); }},
    {"x with other strides", "y", invalid,
     [](Spoiled &s) {
         s.move_y(s.x->data, 0);
         s.restride(*s.y, {384, 64, 192, 1});
     }},
    {"over positions", "y", invalid, [](Spoiled &s) { s.move_y(s.positions->data, 40); }},
    {"ending in positions", "y", invalid, [](Spoiled &s) { s.move_y(s.positions->data, 4 - 4 * 2 * 3 * 2 * 64); }},
};

TEST(RopeArguments, AreNamedAndNothingIsWritten) {
    const Rope rope = make_rope(options_of(64));
    for (const CallMistake &mistake : call_mistakes) {
        const CallForm f = {2, 3, 2, Given::batch64};
        Tensor x(Dtype::f32, tensor_form(f, 64)), y(Dtype::f32, tensor_form(f, 64));
        fill(x, 1);
        y.fill([](std::int64_t, std::int64_t) { return 3; });
        PositionTensor positions(f, 1000, 1);
        positions.view.ndim = 2;
        Spoiled s = {rope.get(), &x.view, &y.view, &positions.view, {}, {}};
        mistake.make(s);
        const std::vector<std::uint8_t> x_before = x.snapshot(), y_before = y.snapshot();
        const std::vector<std::int64_t> positions_before = positions.wide;
        EXPECT_TRUE(refused(halyard_rope_apply(nullptr, s.rope, s.x, s.positions, s.y), mistake.status,
                            "halyard_rope_apply", mistake.argument))
            << mistake.what;
        const std::string argument = mistake.argument;
        EXPECT_TRUE(refused(halyard_rope_apply_backward(nullptr, s.rope, s.x, s.positions, s.y), mistake.status,
                            "halyard_rope_apply_backward",
                            argument == "x"   ? "dy"
                            : argument == "y" ? "dx"
                                              : argument))
            << mistake.what;
        EXPECT_TRUE(x.snapshot() == x_before && y.snapshot() == y_before && positions.wide == positions_before)
            << mistake.what << " " << mistake.argument;
    }
}

TEST(RopeArguments, OfRankThreeHavePositionsOfRankOne) {
    const Rope rope = make_rope(options_of(64, 0, false, 10000, 3));
    const CallForm f = {0, 3, 2, Given::tokens64};
    Tensor x(Dtype::f32, tensor_form(f, 64));
    fill(x, 1);
    PositionTensor positions(f, 3, 1);
    positions.shape[0] = 1;
    positions.view.ndim = 2;
    EXPECT_TRUE(refused(halyard_rope_apply(nullptr, rope.get(), &x.view, &positions.view, &x.view), invalid,
                        "halyard_rope_apply", "positions"));
    // Without positions there are as many as tokens.
    const CallForm long_form = {0, 4, 2};
    Tensor long_x(Dtype::f32, tensor_form(long_form, 64));
    EXPECT_TRUE(refused(halyard_rope_apply(nullptr, rope.get(), &long_x.view, nullptr, &long_x.view), invalid,
                        "halyard_rope_apply", "max_positions"));
}

TEST(RopeArguments, MayBeEmpty) {
    const Rope rope = make_rope(options_of(64, 0, false, 10000, 3));
    for (const Shape &shape :
         {Shape{0, 2, 64}, Shape{3, 0, 64}, Shape{0, 3, 2, 64}, Shape{2, 0, 2, 64}, Shape{2, 3, 0, 64}}) {
        Tensor x(Dtype::bf16, {shape, {}, Placement::ends_at_guard, 0, 0});
        EXPECT_EQ(halyard_rope_apply(nullptr, rope.get(), &x.view, nullptr, &x.view), HALYARD_OK)
            << halyard_last_error();
        DLTensor without_data = x.view;
        without_data.data = nullptr;
        EXPECT_EQ(halyard_rope_apply(nullptr, rope.get(), &without_data, nullptr, &without_data), HALYARD_OK)
            << halyard_last_error();
    }
}

}  // namespace
}  // namespace halyard::tests
