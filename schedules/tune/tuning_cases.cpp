// See tuning_cases.h.
#include "tuning_cases.h"

#include <algorithm>
#include <deque>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;
using bench::Dtype;

/** The rows of the benchmark suite, and the others. */
const std::vector<const CaseFamily *> &case_families() {
    static std::deque<CaseFamily> rows;
    static const auto all = [] {
        std::vector<const CaseFamily *> families;
        for (const auto *catalogue : {&bench::catalogue(), &bench::layer_catalogue()}) {
            for (const bench::Kernel &kernel : *catalogue) {
                families.push_back(&rows.emplace_back(CaseFamily{kernel, nullptr, std::nullopt}));
            }
        }
        for (const auto &family : unbenched_families()) {
            families.push_back(family.get());
        }
        return families;
    }();
    return all;
}

bench::Dtype dtype_named(const std::string &name) {
    for (const bench::Dtype dtype : operations::all_dtypes) {
        if (name == operations::name_of(dtype)) {
            return dtype;
        }
    }
    throw std::logic_error("no type is called " + name);
}

}  // namespace

std::vector<Shape> shapes_named(const std::string &text, bool large) {
    static const std::regex form("([1-9][0-9]{0,8})x([1-9][0-9]{0,8})(?:x([1-9][0-9]{0,8}))?(/cold)?");
    std::vector<Shape> shapes;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        std::smatch match;
        if (!std::regex_match(word, match, form)) {
            throw std::invalid_argument("'" + word +
                                        "' is no shape: give shapes like 64x4096, 8x4096x11008 (rows, inputs, "
                                        "outputs) and 1024x8192/cold with commas between them");
        }
        const std::int64_t d = std::stoll(match[2]);
        if (large || !match[4].matched) {
            shapes.push_back({std::stoll(match[1]), d, match[3].matched ? std::stoll(match[3]) : d, match[4].matched});
        }
    }
    return shapes;
}

halyard_isa isa_named(const std::string &name) {
    int i = 0;
    while (name != halyard_isa_name(halyard_isa_at(i))) {
        i++;
    }
    return halyard_isa_at(i);
}

std::unique_ptr<BenchmarkCase> CaseFinder::make(const TuningCase &tuning_case, const std::string &isa) const {
    return std::make_unique<BenchmarkCase>(tuning_case.id, cold_set, isa_named(isa));
}

CaseFinder::Reaches CaseFinder::explore(const std::string &dtype, const std::string &isa) const {
    Reaches reaches;
    const bench::Dtype type = dtype_named(dtype);
    for (const CaseFamily *family : case_families()) {
        const bench::Kernel &kernel = family->kernel;
        if (kernel.cast_to == type && kernel.operation == "cast") {
            continue;
        }
        // Of tensors a few rows, and one so wide that it does not fit a tile; of the plainest layer any number.
        std::vector<bench::CaseId> calls;
        if (family->own) {
            for (const RowsAndWidth &probe : family->own->probes) {
                calls.push_back({&kernel, type, probe.rows, probe.d, false, 1});
            }
        } else if (!kernel.layer) {
            calls = {{&kernel, type, 32, 64, false, 1}, {&kernel, type, 1, 20480, false, 1}};
        } else {
            for (std::int64_t rows = 1; rows <= (kernel.name == "linear" ? 65 : 1); rows++) {
                calls.push_back({&kernel, type, rows <= 64 ? rows : 128, 64, false, 1, 64});
            }
        }
        for (const bench::CaseId &call : calls) {
            const auto bench_case = make({family, call}, isa);
            const std::vector<int> called = variants_called_by([&bench_case] { bench_case->call(0); });
            for (const int index : called) {
                Reach &reach = reaches[index];
                if (reach.family == nullptr || called.size() < reach.kernels) {
                    reach = {family, called.size(), {}, call.d};
                }
                if (reach.family == family) {
                    reach.rows.push_back(call.rows);
                }
            }
        }
    }
    return reaches;
}

const CaseFinder::Reach *CaseFinder::reach_of(const Variant &variant) {
    const std::string key = variant.dtype + " " + variant.isa;
    const auto known = explored.find(key);
    const Reaches &reaches =
        known != explored.end() ? known->second : explored[key] = explore(variant.dtype, variant.isa);
    const auto found = reaches.find(table_index_of(variant));
    return found == reaches.end() ? nullptr : &found->second;
}

std::vector<TuningCase> CaseFinder::tuning_cases(const Variant &variant, const std::vector<Shape> &shapes) {
    const Reach *reach = reach_of(variant);
    if (reach == nullptr) {
        return {};
    }
    const bench::Kernel &kernel = reach->family->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<TuningCase> tuning_cases;
    std::set<std::string> names;
    const auto add = [&](const bench::CaseId &id) {
        if (names.insert(id.name()).second) {
            tuning_cases.push_back({reach->family, id});
        }
    };
    // The epilogue of a product of 4096 inputs is a hundredth of it.
    constexpr std::int64_t epilogue_inputs = 64;
    for (const Shape &shape : shapes) {
        if (reach->family->own) {
            if (const auto timed = reach->family->own->timed(shape)) {
                add({&kernel, type, timed->rows, timed->d, shape.cold, threads});
            }
        } else if (!kernel.layer) {
            const std::int64_t d = std::max(shape.d, reach->least_d > 64 ? reach->least_d : shape.d);
            add({&kernel, type, std::max<std::int64_t>(1, shape.rows * shape.d / d), d, shape.cold, threads});
        } else if (variant.kernel->family.rfind("matmul", 0) == 0) {
            // The fewest rows that reach it, whatever the shape says; of those that prefetch at every fourth input many, too.
            add({&kernel, type, reach->rows.front(), shape.d, shape.cold, threads, shape.d_out});
            if (!shape.cold && variant.kernel->name.find("prefetch4") != std::string::npos) {
                add({&kernel, type, reach->rows.back(), shape.d, shape.cold, threads, shape.d_out});
            }
        } else if (!shape.cold) {
            const std::int64_t rows = std::min<std::int64_t>(shape.rows, 64);
            add({&kernel, type, rows, epilogue_inputs, false, threads, std::max(shape.d, shape.d_out)});
        }
    }
    return tuning_cases;
}

std::vector<TuningCase> CaseFinder::checks(const Variant &variant) {
    const Reach *reach = reach_of(variant);
    if (reach == nullptr) {
        return {};
    }
    const bench::Kernel &kernel = reach->family->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<TuningCase> checks;
    const auto add = [&](std::int64_t rows, std::int64_t d, std::int64_t d_out) {
        checks.push_back({reach->family, {&kernel, type, rows, d, false, 1, d_out}});
    };
    if (reach->family->own) {
        for (const RowsAndWidth &check : reach->family->own->checks) {
            add(check.rows, check.d, 0);
        }
    } else if (kernel.layer) {
        // More than one block of inputs, and a part of a panel.
        add(reach->rows.front(), 600, 333);
        add(reach->rows.back(), 64, 64);
    } else if (variant.kernel->family == "pack") {
        add(48, 80, 0);
        add(272, 304, 0);
    } else if (reach->least_d > 64) {
        add(1, reach->least_d, 0);
        add(5, reach->least_d + 1003, 0);
    } else {
        add(5, 1, 0);
        add(7, 1003, 0);
        add(12, 4096, 0);
    }
    return checks;
}

// ---- the runtime's parameters ----

namespace {

struct Call {
    std::vector<std::string> names;
    std::vector<Dtype> dtypes;
    std::int64_t rows, d, d_out = 0, cached = 0;
};

/** By its name; "attention" with the heads of a model of 8 billion parameters. */
const CaseFamily *family_named(const std::string &name) {
    static const CaseFamily attention{bench::attention_kernel(bench::HeadShape{32, 8, 128}), nullptr, std::nullopt};
    for (const CaseFamily *family : case_families()) {
        if (family->kernel.name == name) {
            return family;
        }
    }
    return name == "attention" ? &attention : throw std::logic_error("no call is named " + name);
}

std::vector<TuningCase> cases_of(const std::vector<Call> &calls, int threads) {
    std::vector<TuningCase> tuning_cases;
    for (const Call &call : calls) {
        for (const std::string &name : call.names) {
            const CaseFamily *family = family_named(name);
            for (const Dtype dtype : call.dtypes) {
                tuning_cases.push_back(
                    {family, {&family->kernel, dtype, call.rows, call.d, false, threads, call.d_out, call.cached}});
            }
        }
    }
    return tuning_cases;
}

}  // namespace

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
