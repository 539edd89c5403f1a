// See tuning_cases.h.
#include "tuning_cases.h"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

#include "mutable_dispatch_table.h"

namespace halyard::tune {
namespace {

using bench::Dtype;

constexpr std::int64_t few_inputs = 64, wide_inputs = 20480;  // do and do not fit a tile

/** The rows of the benchmark suite, and the others. */
const std::deque<CaseFamily> &case_families() {
    static const std::deque<CaseFamily> all = [] {
        std::deque<CaseFamily> families;
        for (const auto *catalogue : {&bench::catalogue(), &bench::layer_catalogue()}) {
            for (const bench::Kernel &kernel : *catalogue) {
                // The shapes below have inputs of every number. A layer's gradient is made of the layer's kernels.
                if (!kernel.layer || (kernel.layer->d_step() == 1 && !kernel.is_gradient)) {
                    families.push_back({kernel});
                }
            }
        }
        families.insert(families.end(), unbenched_families().begin(), unbenched_families().end());
        return families;
    }();
    return all;
}

Dtype dtype_named(const std::string &name) {
    return *std::find_if(std::begin(operations::all_dtypes), std::end(operations::all_dtypes),
                         [&](Dtype dtype) { return name == operations::name_of(dtype); });
}

/** A family and the rows and inputs, of what was tried, of its calls that reach a kernel. */
struct Reach {
    const CaseFamily *family = nullptr;
    std::size_t kernels = 0;  // that these calls are made of
    std::vector<std::int64_t> rows;
    std::int64_t least_d = 0;
};

/** By the kernels' places in the dispatch table, of each the family whose calls are made of the fewest kernels. */
std::map<int, Reach> explore(Dtype dtype, halyard_isa isa) {
    std::map<int, Reach> reaches;
    for (const CaseFamily &family : case_families()) {
        const bench::Kernel &kernel = family.kernel;
        if (kernel.cast_to == dtype && kernel.operation == "cast") {
            continue;
        }
        std::vector<Shape> shapes = {{32, few_inputs}, {1, wide_inputs}};
        if (kernel.layer) {
            shapes.clear();  // of the plainest with any number of rows
            const bool plain = kernel.name == "linear" || kernel.layer->quantization.bits != 0;
            for (std::int64_t rows = 1; rows <= (plain ? 65 : 1); rows++) {
                shapes.push_back({rows <= 64 ? rows : 128, few_inputs, few_inputs});
            }
        } else if (!family.checks.empty()) {
            shapes = {family.checks.back()};
        }
        for (const Shape &shape : shapes) {
            bench::BenchmarkCase bench_case({&kernel, dtype, shape.rows, shape.d, false, 1, shape.d_out}, 0, isa);
            const std::set<int> called = kernels_called_by([&] { bench_case.call(0); });
            for (const int index : called) {
                Reach &reach = reaches[index];
                if (reach.family == nullptr || called.size() < reach.kernels) {
                    reach = {&family, called.size(), {}, shape.d};
                }
                if (reach.family == &family) {
                    reach.rows.push_back(shape.rows);
                }
            }
        }
    }
    return reaches;
}

/** Null if no call reaches it. */
const Reach *reach_of(const Variant &variant) {
    static std::map<std::string, std::map<int, Reach>> explored;
    const auto [known, is_new] = explored.insert({variant.dtype + " " + variant.isa, {}});
    if (is_new) {
        known->second = explore(dtype_named(variant.dtype), isa_named(variant.isa));
    }
    const auto found = known->second.find(variant.index);
    return found == known->second.end() ? nullptr : &found->second;
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

std::vector<CaseId> tuning_cases(const Variant &variant, const std::vector<Shape> &shapes, int threads) {
    std::vector<CaseId> cases;
    const Reach *reach = reach_of(variant);
    std::set<std::string> names;
    const auto add = [&](std::int64_t rows, std::int64_t d, bool cold, std::int64_t d_out = 0) {
        const CaseId id = {&reach->family->kernel, dtype_named(variant.dtype), rows, d, cold, threads, d_out};
        if (names.insert(id.name()).second) {
            cases.push_back(id);
        }
    };
    // The epilogue of a product of 4096 inputs is a hundredth of it.
    constexpr std::int64_t epilogue_inputs = 64, epilogue_rows = 64;
    for (const Shape &shape : reach == nullptr ? std::vector<Shape>() : shapes) {
        const CaseFamily &family = *reach->family;
        if (family.timed) {
            if (!shape.cold) {
                add(family.timed->rows, family.timed->d, false);
            }
        } else if (!family.checks.empty()) {
            add(shape.rows, (shape.d + usual_head_dim - 1) / usual_head_dim * usual_head_dim, shape.cold);
        } else if (!family.kernel.layer) {
            const std::int64_t d = reach->least_d == wide_inputs ? std::max(shape.d, wide_inputs) : shape.d;
            add(std::max<std::int64_t>(1, shape.rows * shape.d / d), d, shape.cold);
        } else if (variant.kernel->is_matmul()) {
            // The fewest rows that reach it, whatever the shape says; of those that prefetch at every fourth input many, too.
            add(reach->rows.front(), shape.d, shape.cold, shape.d_out);
            if (!shape.cold && variant.kernel->name.find("prefetch4") != std::string::npos) {
                add(reach->rows.back(), shape.d, false, shape.d_out);
            }
        } else if (!shape.cold) {
            add(std::min(shape.rows, epilogue_rows), epilogue_inputs, false, std::max(shape.d, shape.d_out));
        }
    }
    return cases;
}

std::vector<CaseId> checks_of(const Variant &variant) {
    const Reach *reach = reach_of(variant);
    if (reach == nullptr) {
        return {};
    }
    const CaseFamily &family = *reach->family;
    std::vector<Shape> shapes = {{5, 1}, {7, 1003}, {12, 4096}, {272, 304}, {1, wide_inputs}, {5, wide_inputs + 1003}};
    if (family.kernel.layer) {
        // More than one block of inputs, and a part of a panel.
        shapes = {{reach->rows.front(), 600, 333}, {reach->rows.back(), 64, 64}};
    } else if (!family.checks.empty()) {
        shapes = family.checks;
    }
    std::vector<CaseId> checks;
    for (const Shape &shape : shapes) {
        checks.push_back({&family.kernel, dtype_named(variant.dtype), shape.rows, shape.d, false, 1, shape.d_out});
    }
    return checks;
}

// ---- the runtime's parameters ----

namespace {

struct Call {
    std::vector<const char *> names;
    std::int64_t rows, d, d_out = 0, cached = 0;
};

/** The kernel of that name; "attention" with the heads of a model of 8 billion parameters. */
const bench::Kernel &kernel_named(const std::string &name) {
    const auto found = std::find_if(case_families().begin(), case_families().end(),
                                    [&](const CaseFamily &family) { return family.kernel.name == name; });
    return found != case_families().end() ? found->kernel : bench::attention_kernel(bench::HeadShape{32, 8, 128});
}

std::vector<CaseId> cases_of(const std::vector<Call> &calls, const std::vector<Dtype> &dtypes, int threads) {
    std::vector<CaseId> cases;
    for (const Call &call : calls) {
        for (const char *name : call.names) {
            for (const Dtype dtype : dtypes) {
                cases.push_back(
                    {&kernel_named(name), dtype, call.rows, call.d, false, threads, call.d_out, call.cached});
            }
        }
    }
    return cases;
}

const std::vector<Dtype> f32 = {Dtype::f32}, f32_and_bf16 = {Dtype::f32, Dtype::bf16};

}  // namespace

std::vector<CaseId> runtime_cases(const std::string &group, int threads, std::int64_t last_level) {
    const std::int64_t d = 4096, model = 2048, heads = 32 * 128;
    const std::int64_t streamed =
        std::max<std::int64_t>(1024, last_level / d / 2);  // rows, of which no cache holds a tensor
    const std::map<std::string, std::vector<Call>> calls = {
        {"threads", {{{"silu", "rms_norm"}, 8, 1024}, {{"silu", "rms_norm"}, 16, 2048}, {{"swiglu"}, 64, 4096}}},
        {"stream_row", {{{"rms_norm", "softmax"}, streamed, d}, {{"softmax"}, 64, d}}},
        {"gemm_decode", {{{"linear"}, 1, d, d}, {{"linear"}, 4, model, model}}},
        {"gemm_256", {{{"linear"}, 16, model, d}, {{"linear"}, 64, model, d}, {{"linear"}, 256, model, d}}},
        {"gemm", {{{"linear"}, 512, model, d}}},
        {"attention_decode", {{{"attention"}, 1, heads, 0, 4096}, {{"attention"}, 8, heads, 0, 1024}}},
        {"attention", {{{"attention"}, 128, heads}, {{"attention"}, 512, heads}}},
        {"pack", {{{"pack_out_in"}, 1024, 1024}}},
    };
    return cases_of(calls.at(group), group == "threads" ? f32 : f32_and_bf16, threads);
}

std::vector<CaseId> runtime_checks(const std::string &group) {
    const auto starts_with = [&](const char *word) { return group.rfind(word, 0) == 0; };
    std::vector<Call> calls = {{{"silu", "swiglu", "rms_norm", "softmax"}, 23, 5003}};
    if (group == "pack") {
        calls = {{{"pack_out_in"}, 272, 304}};
    } else if (starts_with("gemm")) {
        calls = {{{"linear"}, 1, 600, 333}, {{"linear"}, 37, 600, 333}, {{"linear"}, 300, 600, 333}};
    } else if (starts_with("attention")) {
        calls = {{{"attention"}, 67, 4096}, {{"attention"}, 1, 4096, 0, 600}};
    }
    return cases_of(calls, f32_and_bf16, 3);
}

}  // namespace halyard::tune
