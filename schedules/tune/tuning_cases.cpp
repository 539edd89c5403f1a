// See tuning_cases.h.
#include "tuning_cases.h"

#include <algorithm>
#include <deque>
#include <regex>
#include <set>
#include <stdexcept>

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;

std::deque<CaseFamily> benchmark_rows() {
    std::deque<CaseFamily> rows;
    for (const auto *catalogue : {&bench::catalogue(), &bench::layer_catalogue()}) {
        for (const bench::Kernel &kernel : *catalogue) {
            rows.emplace_back().kernel = kernel;
        }
    }
    return rows;
}

// ---- shapes ----

struct ShapeSet {
    const char *name;
    std::vector<Shape> shapes;
};

constexpr bool hot = false, cold = true;

// What a model of these widths calls with one token, with a few, and with many.
const std::vector<ShapeSet> &shape_sets() {
    static const std::vector<ShapeSet> sets = {
        {"usual", {{64, 4096, 4096, hot}, {1024, 8192, 4096, cold}}},
        {"gpt2", {{1, 768, 3072, hot}, {64, 768, 3072, hot}, {2048, 3072, 768, cold}}},
        {"llama2-7b", {{1, 4096, 11008, hot}, {16, 4096, 11008, hot}, {1024, 4096, 11008, cold}}},
        {"llama3-8b", {{1, 4096, 14336, hot}, {16, 4096, 14336, hot}, {1024, 4096, 14336, cold}}},
        {"qwen2.5-7b", {{1, 3584, 18944, hot}, {16, 3584, 18944, hot}, {1024, 3584, 18944, cold}}},
        {"gemma2-2b", {{1, 2304, 9216, hot}, {64, 2304, 9216, hot}, {1024, 2304, 9216, cold}}},
    };
    return sets;
}

// Rows of layers that are tried to find the kernels they call.
std::vector<std::int64_t> tried_rows() {
    std::vector<std::int64_t> rows;
    for (std::int64_t count = 1; count <= 64; count++) {
        rows.push_back(count);
    }
    rows.push_back(128);
    return rows;
}

}  // namespace

const std::vector<const CaseFamily *> &case_families() {
    static const std::deque<CaseFamily> rows = benchmark_rows();
    static const std::vector<const CaseFamily *> all = [] {
        std::vector<const CaseFamily *> kinds;
        for (const CaseFamily &row : rows) {
            kinds.push_back(&row);
        }
        for (const auto &kind : unbenched_families()) {
            kinds.push_back(kind.get());
        }
        return kinds;
    }();
    return all;
}

std::string shape_set_names() {
    std::string names;
    for (const ShapeSet &set : shape_sets()) {
        names += (names.empty() ? "" : ", ") + std::string(set.name);
    }
    return names;
}

std::vector<Shape> shapes_named(const std::string &text, bool large) {
    std::vector<Shape> shapes;
    for (const ShapeSet &set : shape_sets()) {
        if (text == set.name) {
            for (const Shape &shape : set.shapes) {
                if (large || !shape.cold) {
                    shapes.push_back(shape);
                }
            }
            return shapes;
        }
    }
    static const std::regex form("([1-9][0-9]{0,8})x([1-9][0-9]{0,8})(?:x([1-9][0-9]{0,8}))?(/cold)?");
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        std::smatch match;
        if (!std::regex_match(word, match, form)) {
            throw std::invalid_argument("'" + word + "' is no shape: give one of the sets " + shape_set_names() +
                                        ", or shapes like 64x4096, 8x4096x11008 (rows, inputs, outputs) and "
                                        "1024x8192/cold with commas between them");
        }
        const std::int64_t d = std::stoll(match[2]);
        shapes.push_back({std::stoll(match[1]), d, match[3].matched ? std::stoll(match[3]) : d, match[4].matched});
        begin = end + 1;
    }
    return shapes;
}

halyard_isa isa_named(const std::string &name) {
    int isa = 0;
    while (name != halyard_isa_name(static_cast<halyard_isa>(isa))) {
        isa++;
    }
    return static_cast<halyard_isa>(isa);
}

bench::Dtype dtype_named(const std::string &name) {
    for (const bench::Dtype dtype : operations::all_dtypes) {
        if (name == operations::name_of(dtype)) {
            return dtype;
        }
    }
    throw std::logic_error("no type is called " + name);
}

std::unique_ptr<BenchmarkCase> CaseFinder::make(const TuningCase &tuning_case, const std::string &isa) const {
    return std::make_unique<BenchmarkCase>(tuning_case.id, cold_set, isa_named(isa));
}

CaseFinder::Reaches CaseFinder::explore(const std::string &dtype, const std::string &isa) const {
    Reaches reaches;
    for (const CaseFamily *kind : case_families()) {
        const bench::Kernel &kernel = kind->kernel;
        const bench::Dtype type = dtype_named(dtype);
        if (kernel.cast_to == type && kernel.operation == "cast") {
            continue;
        }
        // Of tensors a few rows, and one so wide that it does not fit a tile; of the plainest layer any number.
        std::vector<bench::CaseId> calls;
        if (kind->own) {
            for (const RowsAndWidth &probe : kind->own->probes) {
                calls.push_back({&kernel, type, probe.rows, probe.d, false, 1});
            }
        } else if (!kernel.layer) {
            calls = {{&kernel, type, 32, 64, false, 1}, {&kernel, type, 1, 20480, false, 1}};
        } else {
            for (const std::int64_t rows : tried_rows()) {
                if (rows == 1 || kernel.name == "linear") {
                    calls.push_back({&kernel, type, rows, 64, false, 1, 64});
                }
            }
        }
        for (const bench::CaseId &call : calls) {
            const auto bench_case = make({kind, call}, isa);
            const std::vector<int> called = variants_called_by([&bench_case] { bench_case->call(0); });
            for (const int index : called) {
                Reach &reach = reaches[index];
                if (reach.kind == nullptr || called.size() < reach.kernels) {
                    reach = {kind, called.size(), {}, call.d};
                }
                if (reach.kind == kind) {
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
    const bench::Kernel &kernel = reach->kind->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<TuningCase> tuning_cases;
    std::set<std::string> names;
    const auto add = [&](const bench::CaseId &id) {
        if (names.insert(id.name()).second) {
            tuning_cases.push_back({reach->kind, id});
        }
    };
    // The epilogue of a product of 4096 inputs is a hundredth of it.
    constexpr std::int64_t epilogue_inputs = 64;
    for (const Shape &shape : shapes) {
        if (reach->kind->own) {
            if (const auto timed = reach->kind->own->timed(shape)) {
                add({&kernel, type, timed->rows, timed->d, shape.cold, threads});
            }
        } else if (!kernel.layer) {
            const std::int64_t d = std::max(shape.d, reach->least_d > 64 ? reach->least_d : shape.d);
            add({&kernel, type, std::max<std::int64_t>(1, shape.rows * shape.d / d), d, shape.cold, threads});
        } else if (variant.kernel->family == "matmul") {
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
    const bench::Kernel &kernel = reach->kind->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<TuningCase> checks;
    const auto add = [&](std::int64_t rows, std::int64_t d, std::int64_t d_out) {
        checks.push_back({reach->kind, {&kernel, type, rows, d, false, 1, d_out}});
    };
    if (reach->kind->own) {
        for (const RowsAndWidth &check : reach->kind->own->checks) {
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

}  // namespace halyard::tune
