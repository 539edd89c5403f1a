// The parameters of the runtime (runtime/core/parameters.inc) change no bit of a result, whatever their values. The runtime
// is linked into this program, so that they can be written to.
#include "core/parameters.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/attention.h"
#include "support/ffn.h"
#include "support/packing.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

using Bits = std::vector<std::uint32_t>;

constexpr bool few = emulated || for_races;  // smaller operands, which go the same ways

struct Parameter {
    const char *name;
    std::int64_t Parameters::*member;
    std::vector<std::int64_t> values;  // those of tuned files, and such as nobody would choose
};

std::vector<Parameter> all_parameters() {
    std::vector<Parameter> all = {
#define HALYARD_PARAMETER(group, name, by_default, ...) {#name, &Parameters::name, {__VA_ARGS__}},
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
    };
    for (Parameter &parameter : all) {
        const auto [least, most] = std::minmax_element(parameter.values.begin(), parameter.values.end());
        const std::int64_t odd = *most > 2 ? std::max<std::int64_t>(1, *most / 2 - 3) : *most, smallest = *least;
        if (reduced) {  // Every value runs all calls again, and natively every value is tried.
            parameter.values = {};
        }
        parameter.values.push_back(odd);
        parameter.values.push_back(smallest > 1 ? smallest / 2 + 1 : smallest);
    }
    return all;
}

/** Calls that come through all that reads a parameter. Each gives the bits of its outputs. */
class Calls {
public:
    Calls() {
        for (const Dtype type : all_dtypes) {
            for (const char *label : {"silu", "add", "cast_to_f16", "cast_to_f32"}) {
                add(label, type, {5, 6007});
            }
            for (const Operation &each : all_operations()) {
                if (each.label == "swiglu" || each.label.rfind("rms_norm", 0) == 0 || each.label == "softmax" ||
                    each.label.rfind("add_layer_norm", 0) == 0) {
                    add(each.label, type, {few ? 7 : 23, 1003});
                }
            }
        }
        for (const Dtype type : all_dtypes) {
            for (const std::int64_t rows :
                 reduced ? std::vector<std::int64_t>{1, 37} : std::vector<std::int64_t>{1, 5, 37, 150, 300}) {
                FfnForm form;
                form.x = form.y = form.up = form.down = type;
                form.leading = {rows};
                form.d_model = few ? 530 : 600;
                form.d_ff = few ? 97 : 333;
                form.gated = true;
                form.activation = HALYARD_SILU;
                form.norm = HALYARD_NORM_RMS;
                form.residual = form.bias = true;
                networks.push_back(std::make_unique<Ffn>(form));
            }
        }
        for (const Dtype type : all_dtypes) {
            for (const std::int64_t queries : {1, 67}) {
                AttentionForm form = square(few ? 540 : 1100, few ? 4 : 8, 2, 64);
                form.q = form.k = form.v = form.y = type;
                form.queries = queries;
                attentions.push_back(std::make_unique<AttentionCase>(form));
            }
        }
        for (const Dtype type : all_dtypes) {
            MatrixForm form;
            form.type = type;
            form.in = 300;
            form.out = few ? 177 : 777;
            form.gated = true;
            matrices.push_back(std::make_unique<PackSource>(form));
        }
    }

    /** The bits of all outputs. Three threads; streamed from the first byte on. */
    std::vector<Bits> run() {
        std::vector<Bits> results;
        const Context plain(supported_isas().back(), 3), streaming(supported_isas().back(), 3);
        EXPECT_EQ(halyard_context_set_streaming_min_bytes(streaming.get(), 0), HALYARD_OK);
        for (const auto &call : invocations) {
            for (const Context *context : {&plain, &streaming}) {
                call->clear_outputs();
                EXPECT_EQ(call->run(context->get()), HALYARD_OK) << halyard_last_error();
                EXPECT_TRUE(call->surroundings_intact()) << call->describe();
                results.push_back(call->output_bits());
            }
        }
        for (const auto &network : networks) {
            network->y.clear();
            EXPECT_EQ(network->run(plain.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(network->surroundings_intact()) << network->describe();
            results.push_back(network->y.all_bits());
        }
        for (const auto &attention : attentions) {
            attention->y.clear();
            EXPECT_EQ(attention->run(plain.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(attention->surroundings_intact()) << attention->describe();
            results.push_back(attention->y.all_bits());
        }
        for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
            const auto &form = cached.form;
            const Cache cache = make_cache(type, 1, form.kv_heads, form.head_dim, form.keys);
            cached.y.clear();
            for (const auto &[first, count] : {std::pair<std::int64_t, std::int64_t>{0, 619}, {619, 1}}) {
                EXPECT_EQ(cached.run_cached(plain.get(), cache.get(), first, count, cached.y), HALYARD_OK)
                    << halyard_last_error();
            }
            results.push_back(cached.y.all_bits());
        }
        for (const auto &matrix : matrices) {
            const PackedWeights weights = pack(*matrix, plain.get());
            Bits &bits = results.emplace_back(static_cast<std::size_t>(matrix->size()) / sizeof(Bits::value_type));
            std::memcpy(bits.data(), halyard_weights_data(weights.get()), bits.size() * sizeof(Bits::value_type));
        }
        return results;
    }

private:
    void add(const std::string &label, Dtype type, const Shape &shape) {
        if (label == std::string("cast_to_") + name_of(type)) {
            return;
        }
        invocations.push_back(std::make_unique<Invocation>(operation(label), type, shape));
        invocations.back()->fill(7);
    }

    std::vector<std::unique_ptr<Invocation>> invocations;
    std::vector<std::unique_ptr<Ffn>> networks;
    std::vector<std::unique_ptr<AttentionCase>> attentions;
    std::vector<std::unique_ptr<PackSource>> matrices;
    AttentionCase cached{square(620, few ? 2 : 8, few ? 1 : 2, 64)};
};

/** Puts the parameters back. */
class ParametersTest : public testing::Test {
protected:
    ~ParametersTest() override { parameters = before; }
    const Parameters before = parameters;
};

TEST_F(ParametersTest, ChangeNoBitOneByOne) {
    if (emulated) {
        GTEST_SKIP() << "together they say the same in less time, and natively each is named";
    }
    Calls calls;
    const std::vector<Bits> right = calls.run();
    for (const Parameter &parameter : all_parameters()) {
        for (const std::int64_t value : parameter.values) {
            parameters = before;
            if (parameters.*parameter.member != value) {
                parameters.*parameter.member = value;
                EXPECT_TRUE(calls.run() == right) << parameter.name << " = " << value;
            }
        }
    }
}

TEST_F(ParametersTest, ChangeNoBitTogether) {
    Calls calls;
    const std::vector<Bits> right = calls.run();
    const std::vector<Parameter> all = all_parameters();
    for (std::uint64_t seed = 1; seed <= (emulated ? 6 : reduced ? 3 : 20); seed++) {
        std::string text;
        for (std::size_t i = 0; i < all.size(); i++) {
            const auto &values = all[i].values;
            parameters.*all[i].member = values[hash(seed, i, 0) % values.size()];
            text += std::string(" ") + all[i].name + "=" + std::to_string(parameters.*all[i].member);
        }
        EXPECT_TRUE(calls.run() == right) << text;
    }
}

}  // namespace
}  // namespace halyard::tests
