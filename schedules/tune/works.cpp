// See works.h.
#include "works.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <regex>
#include <set>
#include <stdexcept>

#include "attention_works.h"
#include "reference_linear.h"

namespace halyard::tune {
namespace {

using bench::Operands;
using bench::Work;

WorkKind benchmark_row(const bench::Kernel &kernel) {
    WorkKind kind;
    kind.kernel = kernel;
    return kind;
}

// ---- kernels that the benchmark suite does not reach ----

/** Swish with a beta that has no kernels of its own. */
constexpr float general_beta = 1.25f;

const bench::Kernel &catalogue_kernel(const std::string &name) {
    for (const bench::Kernel &kernel : bench::catalogue()) {
        if (kernel.name == name) {
            return kernel;
        }
    }
    throw std::logic_error("the catalogue has no " + name);
}

bench::Reference elementwise(double (*function)(double, double)) {
    return [function](const std::vector<tests::Row> &inputs, const tests::Row &, const tests::Row &) {
        tests::Row y;
        for (const double x : inputs[0]) {
            y.push_back(function(x, general_beta));
        }
        return std::vector<tests::Row>{y};
    };
}

WorkKind general_swish(const char *name,
                       halyard_status (*function)(const halyard_context *, const DLTensor *, float, DLTensor *),
                       double (*exact)(double, double)) {
    WorkKind kind = benchmark_row(catalogue_kernel(name));
    kind.kernel.name += ".general";
    kind.kernel.call = [function](Work &work, Operands &set) {
        return function(work.context.get(), &set.inputs[0].view, general_beta, &set.outputs[0].view);
    };
    kind.kernel.reference = elementwise(exact);
    return kind;
}

double exact_swiglu(double gate, double up) {
    return tests::reference::swiglu.value(gate, general_beta) * up;
}

WorkKind general_swiglu() {
    WorkKind kind = benchmark_row(catalogue_kernel("swiglu"));
    kind.kernel.name += ".general";
    kind.kernel.call = [](Work &work, Operands &set) {
        return halyard_swiglu(work.context.get(), &set.inputs[0].view, &set.inputs[1].view, general_beta,
                              &set.outputs[0].view);
    };
    kind.kernel.reference = [](const std::vector<tests::Row> &inputs, const tests::Row &, const tests::Row &) {
        tests::Row y;
        for (std::size_t i = 0; i < inputs[0].size(); i++) {
            y.push_back(exact_swiglu(inputs[0][i], inputs[1][i]));
        }
        return std::vector<tests::Row>{y};
    };
    return kind;
}

WorkKind general_swiglu_interleaved() {
    WorkKind kind = benchmark_row(catalogue_kernel("swiglu.interleaved"));
    kind.kernel.name += ".general";
    kind.kernel.call = [](Work &work, Operands &set) {
        return halyard_swiglu_packed(work.context.get(), &set.inputs[0].view, HALYARD_GLU_INTERLEAVED, general_beta,
                                     &set.outputs[0].view);
    };
    kind.kernel.reference = [](const std::vector<tests::Row> &inputs, const tests::Row &, const tests::Row &) {
        tests::Row y;
        for (std::size_t i = 0; i + 1 < inputs[0].size(); i += 2) {
            y.push_back(exact_swiglu(inputs[0][i], inputs[0][i + 1]));
        }
        return std::vector<tests::Row>{y};
    };
    return kind;
}

/** A layer with any activation; its product has the fewest inputs that leave its epilogue something to do. */
WorkKind layer_with(const tests::LayerActivation &activation, bool gated) {
    bench::LayerForm form;
    form.gated = gated;
    form.activation = activation.value;
    form.beta = general_beta;
    WorkKind kind;
    kind.kernel.name = kind.kernel.operation =
        std::string("linear_") + activation.name + (gated ? "_gated" : "") + ".epilogue";
    kind.kernel.stream = bench::stream_read;
    kind.kernel.layer = form;
    kind.kernel.call = [](Work &work, Operands &set) {
        halyard_linear_options options{};
        options.activation = work.id.kernel->layer->activation;
        options.beta = work.id.kernel->layer->beta;
        return halyard_linear(work.context.get(), &set.inputs[0].view, set.weights[0].get(), &options,
                              &set.outputs[0].view);
    };
    return kind;
}

/** Statistics of rows, which go to the first row of the output's memory. */
template<typename Call, typename Exact>
WorkKind statistics(const char *name, const Call &call, const Exact &exact) {
    WorkKind kind;
    kind.kernel.name = kind.kernel.operation = name;
    kind.kernel.stream = bench::stream_read;
    kind.kernel.cast_to = bench::Dtype::f32;
    kind.kernel.outputs = 2;
    kind.kernel.call = [call](Work &work, Operands &set) {
        std::int64_t rows = work.id.rows;
        DLTensor vectors[2];
        for (int i = 0; i < 2; i++) {
            vectors[i] = set.outputs[static_cast<std::size_t>(i)].view;
            vectors[i].ndim = 1;
            vectors[i].shape = &rows;
        }
        return call(work, &set.inputs[0].view, &vectors[0], &vectors[1]);
    };
    kind.error = [exact](const Work &work) {
        const Operands &set = work.sets[0];
        double worst = 0;
        for (std::int64_t row = 0; row < work.id.rows; row++) {
            const double expected = exact(set.inputs[0].row(row));
            float got = 0;
            std::memcpy(&got, set.outputs[0].data() + row * static_cast<std::int64_t>(sizeof(float)), sizeof(got));
            const double error = std::fabs(got - expected) / std::fabs(expected);
            worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
        }
        return worst;
    };
    return kind;
}

/** Packing of a matrix [rows, d] or, [in, out], its transpose; folded with the norm's weight. That is d long: a folded
 *  transpose has no more rows than columns. */
class Packing {
public:
    Packing(halyard_weight_layout source_layout, bool fold_norm) : layout(source_layout), folded(fold_norm) {}

    halyard_status operator()(Work &work, Operands &set) {
        halyard_pack_options options{};
        options.layout = layout;
        std::int64_t inputs = layout == HALYARD_WEIGHT_OUT_IN ? work.id.d : work.id.rows;
        DLTensor norm_weight{};
        if (folded) {
            norm_weight = work.weight->view;
            norm_weight.shape = &inputs;
            options.norm_weight = &norm_weight;
        }
        std::int64_t bytes = 0;
        const halyard_status status = halyard_weights_size(&set.inputs[0].view, &options, &bytes);
        if (status != HALYARD_OK) {
            return status;
        }
        const auto before = memories().find(&set);
        if (before != memories().end() && before->second->size() != static_cast<std::size_t>(bytes)) {
            memories().clear();  // of another piece of work
        }
        std::unique_ptr<bench::Buffer> &memory = memories()[&set];
        if (memory == nullptr) {
            memory = std::make_unique<bench::Buffer>(static_cast<std::size_t>(bytes));
        }
        halyard_weights *weights = nullptr;
        const halyard_status packed =
            halyard_weights_pack(work.context.get(), &set.inputs[0].view, &options, memory->data(), bytes, &weights);
        halyard_weights_destroy(weights);
        return packed;
    }

    /** The panels, which come last in the packed form, as the output. */
    void finish(Work &work) const {
        Operands &set = work.sets[0];
        const bench::Buffer &memory = *memories().at(&set);
        const std::size_t bytes = set.outputs[0].bytes();
        std::memcpy(set.outputs[0].data(), memory.data() + memory.size() - bytes, bytes);
    }

    /** Against the definition of the panels: 16 columns, input by input. Wants multiples of 16 outputs. */
    double error(const Work &work) const {
        constexpr std::size_t panel_width = 16;
        const Operands &set = work.sets[0];
        const bool out_in = layout == HALYARD_WEIGHT_OUT_IN;
        const auto rows = static_cast<std::size_t>(work.id.rows), d = static_cast<std::size_t>(work.id.d);
        const std::size_t inputs = out_in ? d : rows;
        const tests::Row factors = folded ? work.weight->row(0) : tests::Row();
        tests::Row panels;
        for (std::size_t row = 0; row < rows; row++) {
            const tests::Row part = set.outputs[0].row(static_cast<std::int64_t>(row));
            panels.insert(panels.end(), part.begin(), part.end());
        }
        double worst = 0;
        for (std::size_t row = 0; row < rows; row++) {
            const tests::Row source = set.inputs[0].row(static_cast<std::int64_t>(row));
            for (std::size_t column = 0; column < d; column++) {
                const std::size_t in = out_in ? column : row, out = out_in ? row : column;
                const double expected = source[column] * (folded ? factors[in] : 1.0);
                const double got = panels[(out / panel_width * inputs + in) * panel_width + out % panel_width];
                const double error = std::fabs(got - expected) / std::max(std::fabs(expected), 1e-3);
                worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
            }
        }
        return worst;
    }

    static WorkKind kind(const char *name, halyard_weight_layout layout, bool folded) {
        auto packing = std::make_shared<Packing>(layout, folded);
        WorkKind kind;
        kind.kernel.name = kind.kernel.operation = name;
        kind.kernel.stream = bench::stream_copy;
        kind.kernel.has_weight = folded;
        kind.kernel.call = [packing](Work &work, Operands &set) { return (*packing)(work, set); };
        kind.finish = [packing](Work &work) { packing->finish(work); };
        kind.error = [packing](const Work &work) { return packing->error(work); };
        return kind;
    }

private:
    halyard_weight_layout layout;
    bool folded;
    /** Where the packed forms of a piece of work go, of each operand set. One piece of work packs at a time. */
    static std::map<const Operands *, std::unique_ptr<bench::Buffer>> &memories() {
        static std::map<const Operands *, std::unique_ptr<bench::Buffer>> all;
        return all;
    }
};

std::vector<std::unique_ptr<WorkKind>> make_kinds() {
    std::vector<std::unique_ptr<WorkKind>> kinds;
    const auto add = [&kinds](WorkKind kind) { kinds.push_back(std::make_unique<WorkKind>(std::move(kind))); };
    for (const auto *catalogue : {&bench::catalogue(), &bench::layer_catalogue()}) {
        for (const bench::Kernel &kernel : *catalogue) {
            add(benchmark_row(kernel));
        }
    }
    add(general_swish("swish", halyard_swish, tests::reference::swish));
    add(general_swish("swish_derivative", halyard_swish_derivative, tests::reference::swish_derivative));
    add(general_swiglu());
    add(general_swiglu_interleaved());
    for (const tests::LayerActivation &activation : tests::layer_activations()) {
        add(layer_with(activation, false));
        add(layer_with(activation, true));
    }
    add(statistics(
        "rms_norm_scale",
        [](Work &work, const DLTensor *x, DLTensor *scale, DLTensor *) {
            return halyard_rms_norm_scale(work.context.get(), x, bench::rms_norm_eps, 0, scale);
        },
        [](const tests::Row &x) {
            return tests::rms_scale(x, {nullptr, nullptr, bench::rms_norm_eps, false, false, 1}).value;
        }));
    add(statistics(
        "layer_norm_scale",
        [](Work &work, const DLTensor *x, DLTensor *scale, DLTensor *mean) {
            return halyard_layer_norm_scale(work.context.get(), x, bench::layer_norm_eps, mean, scale);
        },
        [](const tests::Row &x) { return tests::layer_moments(x, bench::layer_norm_eps).scale.value; }));
    add(Packing::kind("pack_out_in", HALYARD_WEIGHT_OUT_IN, false));
    add(Packing::kind("pack_out_in_folded", HALYARD_WEIGHT_OUT_IN, true));
    add(Packing::kind("pack_in_out", HALYARD_WEIGHT_IN_OUT, false));
    add(Packing::kind("pack_in_out_folded", HALYARD_WEIGHT_IN_OUT, true));
    for (WorkKind &kind : attention_work_kinds()) {
        add(std::move(kind));
    }
    return kinds;
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

const std::vector<std::unique_ptr<WorkKind>> &work_kinds() {
    static const std::vector<std::unique_ptr<WorkKind>> kinds = make_kinds();
    return kinds;
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
    for (const bench::Dtype dtype : tests::all_dtypes) {
        if (name == tests::name_of(dtype)) {
            return dtype;
        }
    }
    throw std::logic_error("no type is called " + name);
}

std::unique_ptr<Work> WorkFinder::make(const Workload &workload, const std::string &isa) const {
    return std::make_unique<Work>(workload.id, cold_set, isa_named(isa));
}

WorkFinder::Reaches WorkFinder::explore(const std::string &dtype, const std::string &isa) const {
    Reaches reaches;
    for (const auto &kind : work_kinds()) {
        const bench::Kernel &kernel = kind->kernel;
        const bench::Dtype type = dtype_named(dtype);
        if (kernel.cast_to == type && kernel.operation == "cast") {
            continue;
        }
        // Of tensors a few rows, and one so wide that it does not fit a tile; of the plainest layer any number.
        std::vector<bench::WorkId> calls;
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
        for (const bench::WorkId &call : calls) {
            const auto work = make({kind.get(), call}, isa);
            const std::vector<int> called = slots_called_by([&work] { work->call(0); });
            for (const int slot : called) {
                Reach &reach = reaches[slot];
                if (reach.kind == nullptr || called.size() < reach.kernels) {
                    reach = {kind.get(), called.size(), {}, call.d};
                }
                if (reach.kind == kind.get()) {
                    reach.rows.push_back(call.rows);
                }
            }
        }
    }
    return reaches;
}

const WorkFinder::Reach *WorkFinder::reach_of(const Variant &variant) {
    const std::string key = variant.dtype + " " + variant.isa;
    const auto known = explored.find(key);
    const Reaches &reaches =
        known != explored.end() ? known->second : explored[key] = explore(variant.dtype, variant.isa);
    const auto found = reaches.find(slot_of(variant));
    return found == reaches.end() ? nullptr : &found->second;
}

std::vector<Workload> WorkFinder::workloads(const Variant &variant, const std::vector<Shape> &shapes) {
    const Reach *reach = reach_of(variant);
    if (reach == nullptr) {
        return {};
    }
    const bench::Kernel &kernel = reach->kind->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<Workload> workloads;
    std::set<std::string> names;
    const auto add = [&](const bench::WorkId &id) {
        if (names.insert(id.name()).second) {
            workloads.push_back({reach->kind, id});
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
            // The fewest rows that reach it, whatever the shape says; of tall tiles many, too.
            add({&kernel, type, reach->rows.front(), shape.d, shape.cold, threads, shape.d_out});
            if (!shape.cold && variant.kernel->name.find("tall") != std::string::npos) {
                add({&kernel, type, reach->rows.back(), shape.d, shape.cold, threads, shape.d_out});
            }
        } else if (!shape.cold) {
            const std::int64_t rows = std::min<std::int64_t>(shape.rows, 64);
            add({&kernel, type, rows, epilogue_inputs, false, threads, std::max(shape.d, shape.d_out)});
        }
    }
    return workloads;
}

std::vector<Workload> WorkFinder::checks(const Variant &variant) {
    const Reach *reach = reach_of(variant);
    if (reach == nullptr) {
        return {};
    }
    const bench::Kernel &kernel = reach->kind->kernel;
    const bench::Dtype type = dtype_named(variant.dtype);
    std::vector<Workload> checks;
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
