// See runtime_groups.h.
#include "runtime_groups.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "runtime/core/parameters.h"

namespace halyard::tune {
namespace {

using bench::Dtype;

/** A call of the tuner's list by its name; "attention" with the heads of a model of 8 billion parameters. */
const CaseFamily *kind_named(const std::string &name) {
    for (const CaseFamily *kind : case_families()) {
        if (kind->kernel.name == name) {
            return kind;
        }
    }
    if (name != "attention") {
        throw std::logic_error("no call is named " + name);
    }
    static const CaseFamily attention = [] {
        CaseFamily kind = *kind_named("attention.2x16");
        kind.kernel.name = "attention.32-8x128";
        kind.kernel.attention = bench::HeadShape{32, 8, 128};
        return kind;
    }();
    return &attention;
}

struct Call {
    std::vector<std::string> names;
    std::vector<Dtype> dtypes;
    std::int64_t rows, d, d_out = 0, cached = 0;
};

std::vector<TuningCase> cases_of(const std::vector<Call> &calls, int threads) {
    std::vector<TuningCase> tuning_cases;
    for (const Call &call : calls) {
        for (const std::string &name : call.names) {
            for (const Dtype dtype : call.dtypes) {
                const CaseFamily *kind = kind_named(name);
                tuning_cases.push_back(
                    {kind, {&kind->kernel, dtype, call.rows, call.d, false, threads, call.d_out, call.cached}});
            }
        }
    }
    return tuning_cases;
}

/** Of what is not streamed, tile and prefetch distance do not matter; and streaming is what x86 does by itself. */
bool is_worth_trying(const Choice &choice, const schedules::TargetInfo &) {
    static const Parameters defaults;
    for (const char *streams : {"elementwise_streams", "row_streams"}) {
        const auto found = choice.find(streams);
        if (found != choice.end() && found->second == 1) {
            return false;
        }
    }
    const auto streams = choice.find("elementwise_streams");
    return streams == choice.end() || streams->second != 0 ||
           (choice.at("elementwise_tile_f32") == defaults.elementwise_tile_f32 &&
            choice.at("elementwise_tile_16_bit") == defaults.elementwise_tile_16_bit &&
            choice.at("elementwise_prefetch_tiles") == defaults.elementwise_prefetch_tiles);
}

}  // namespace

const std::vector<SearchSpace> &runtime_spaces() {
    static const std::vector<SearchSpace> all = [] {
        std::vector<SearchSpace> spaces;
        const auto add = [&](const std::string &group, const char *name, int by_default, std::vector<int> values) {
            if (spaces.empty() || spaces.back().family != group) {
                spaces.push_back({group, {}, is_worth_trying});
            }
            spaces.back().parameters.push_back({name, by_default, std::move(values)});
        };
#define HALYARD_PARAMETER(group, name, by_default, ...) add(#group, #name, by_default, {__VA_ARGS__});
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
        return spaces;
    }();
    return all;
}

Choice runtime_defaults(const SearchSpace &space) {
    Choice choice;
    for (const schedules::Tunable &parameter : space.parameters) {
        choice[parameter.name] = parameter.by_default;
    }
    return choice;
}

void set_runtime(const Choice &choice) {
    static const std::map<std::string, std::int64_t Parameters::*> members = {
#define HALYARD_PARAMETER(group, name, by_default, ...) {#name, &Parameters::name},
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
    };
    for (const auto &[name, value] : choice) {
        parameters.*members.at(name) = value;
    }
}

std::vector<TuningCase> runtime_cases(const std::string &group, int threads, std::int64_t last_level) {
    const std::vector<Dtype> f32 = {Dtype::f32}, both = {Dtype::f32, Dtype::bf16};
    const std::int64_t d = 4096, model = 2048, heads = 32 * 128;
    const std::int64_t streamed =
        std::max<std::int64_t>(1024, last_level / d / 2);  // rows, of which no cache holds a tensor
    const std::map<std::string, std::vector<Call>> calls = {
        {"threads",
         {{{"silu", "rms_norm"}, f32, 8, 1024}, {{"silu", "rms_norm"}, f32, 16, 2048}, {{"swiglu"}, f32, 64, 4096}}},
        {"stream", {{{"silu", "add", "swiglu"}, both, streamed, d}}},
        {"stream_row", {{{"rms_norm", "softmax"}, both, streamed, d}, {{"softmax"}, both, 64, d}}},
        {"gemm_decode", {{{"linear"}, both, 1, d, d}, {{"linear"}, both, 4, model, model}}},
        {"gemm_256",
         {{{"linear"}, both, 16, model, d}, {{"linear"}, both, 64, model, d}, {{"linear"}, both, 256, model, d}}},
        {"gemm", {{{"linear"}, both, 512, model, d}}},
        {"attention_decode", {{{"attention"}, both, 1, heads, 0, 4096}, {{"attention"}, both, 8, heads, 0, 1024}}},
        {"attention", {{{"attention"}, both, 128, heads}, {{"attention"}, both, 512, heads}}},
        {"pack", {{{"pack_out_in"}, both, 1024, 1024}}},
    };
    return cases_of(calls.at(group), threads);
}

std::vector<TuningCase> runtime_checks(const std::string &group) {
    const std::vector<Dtype> both = {Dtype::f32, Dtype::bf16};
    const std::vector<Call> of_rows = {{{"silu", "swiglu", "rms_norm", "softmax"}, both, 23, 5003}};
    const std::vector<Call> gemm = {
        {{"linear"}, both, 1, 600, 333}, {{"linear"}, both, 37, 600, 333}, {{"linear"}, both, 300, 600, 333}};
    const std::vector<Call> attention = {{{"attention"}, both, 67, 4096}, {{"attention"}, both, 1, 4096, 0, 600}};
    return cases_of(group == "pack"                    ? std::vector<Call>{{{"pack_out_in"}, both, 272, 304}}
                    : group.rfind("gemm", 0) == 0      ? gemm
                    : group.rfind("attention", 0) == 0 ? attention
                                                       : of_rows,
                    3);
}

}  // namespace halyard::tune
