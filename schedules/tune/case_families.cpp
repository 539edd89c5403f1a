// See case_families.h.
#include "case_families.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>

#include "attention_cases.h"
#include "operations/reference_linear.h"

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;
using bench::OperandSet;

using Kinds = std::vector<std::unique_ptr<CaseFamily>>;

/** Swish with a beta that has no kernels of its own. */
constexpr float general_beta = 1.25f;

CaseFamily with_general_beta(const std::string &label) {
    const operations::Operation &operation = operations::operation(label);
    std::vector<double> scalars = operation.scalar_values();
    scalars.back() = general_beta;
    CaseFamily kind;
    kind.kernel = bench::tensor_kernel(operation, std::move(scalars));
    kind.kernel.name += ".general";
    return kind;
}

/** A layer with any activation; its product has the fewest inputs that leave its epilogue something to do. */
CaseFamily layer_with(const operations::LayerActivation &activation, bool gated) {
    bench::LayerForm form;
    form.gated = gated;
    form.activation = activation.value;
    form.beta = general_beta;
    CaseFamily kind;
    kind.kernel =
        bench::layer_kernel(std::string("linear_") + activation.name + (gated ? "_gated" : "") + ".epilogue", form);
    return kind;
}

/** Statistics of rows, which go to the first row of the output's memory. */
template<typename Call, typename Exact>
CaseFamily statistics(const char *name, const Call &call, const Exact &exact) {
    CaseFamily kind;
    kind.kernel.name = kind.kernel.operation = name;
    kind.kernel.cast_to = bench::Dtype::f32;
    kind.kernel.outputs = 2;
    kind.kernel.call = [call](BenchmarkCase &bench_case, OperandSet &set) {
        std::int64_t rows = bench_case.id.rows;
        DLTensor vectors[2];
        for (int i = 0; i < 2; i++) {
            vectors[i] = set.outputs[static_cast<std::size_t>(i)].view;
            vectors[i].ndim = 1;
            vectors[i].shape = &rows;
        }
        return call(bench_case, &set.inputs[0].view, &vectors[0], &vectors[1]);
    };
    kind.error = [exact](const BenchmarkCase &bench_case) {
        const OperandSet &set = bench_case.sets[0];
        double worst = 0;
        for (std::int64_t row = 0; row < bench_case.id.rows; row++) {
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

    halyard_status operator()(BenchmarkCase &bench_case, OperandSet &set) {
        halyard_pack_options options{};
        options.layout = layout;
        std::int64_t inputs = layout == HALYARD_WEIGHT_OUT_IN ? bench_case.id.d : bench_case.id.rows;
        DLTensor norm_weight{};
        if (folded) {
            norm_weight = bench_case.weight->view;
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
            memories().clear();  // of another case
        }
        std::unique_ptr<bench::Buffer> &memory = memories()[&set];
        if (memory == nullptr) {
            memory = std::make_unique<bench::Buffer>(static_cast<std::size_t>(bytes));
        }
        halyard_weights *weights = nullptr;
        const halyard_status packed = halyard_weights_pack(bench_case.context.get(), &set.inputs[0].view, &options,
                                                           memory->data(), bytes, &weights);
        halyard_weights_destroy(weights);
        return packed;
    }

    /** The panels, which come last in the packed form, as the output. */
    void finish(BenchmarkCase &bench_case) const {
        OperandSet &set = bench_case.sets[0];
        const bench::Buffer &memory = *memories().at(&set);
        const std::size_t bytes = set.outputs[0].bytes();
        std::memcpy(set.outputs[0].data(), memory.data() + memory.size() - bytes, bytes);
    }

    /** Against the definition of the panels: 16 columns, input by input. Wants multiples of 16 outputs. */
    double error(const BenchmarkCase &bench_case) const {
        constexpr std::size_t panel_width = 16;
        const OperandSet &set = bench_case.sets[0];
        const bool out_in = layout == HALYARD_WEIGHT_OUT_IN;
        const auto rows = static_cast<std::size_t>(bench_case.id.rows), d = static_cast<std::size_t>(bench_case.id.d);
        const std::size_t inputs = out_in ? d : rows;
        const operations::Row factors = folded ? bench_case.weight->row(0) : operations::Row();
        operations::Row panels;
        for (std::size_t row = 0; row < rows; row++) {
            const operations::Row part = set.outputs[0].row(static_cast<std::int64_t>(row));
            panels.insert(panels.end(), part.begin(), part.end());
        }
        double worst = 0;
        for (std::size_t row = 0; row < rows; row++) {
            const operations::Row source = set.inputs[0].row(static_cast<std::int64_t>(row));
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

    static CaseFamily kind(const char *name, halyard_weight_layout layout, bool folded) {
        auto packing = std::make_shared<Packing>(layout, folded);
        CaseFamily kind;
        kind.kernel.name = kind.kernel.operation = name;
        kind.kernel.has_weight = folded;
        kind.kernel.call = [packing](BenchmarkCase &bench_case, OperandSet &set) {
            return (*packing)(bench_case, set);
        };
        kind.finish = [packing](BenchmarkCase &bench_case) { packing->finish(bench_case); };
        kind.error = [packing](const BenchmarkCase &bench_case) { return packing->error(bench_case); };
        return kind;
    }

private:
    halyard_weight_layout layout;
    bool folded;
    /** Where the packed forms of a case go, of each operand set. One case packs at a time. */
    static std::map<const OperandSet *, std::unique_ptr<bench::Buffer>> &memories() {
        static std::map<const OperandSet *, std::unique_ptr<bench::Buffer>> all;
        return all;
    }
};

Kinds make_kinds() {
    Kinds kinds;
    const auto add = [&kinds](CaseFamily kind) { kinds.push_back(std::make_unique<CaseFamily>(std::move(kind))); };
    for (const char *label : {"swish", "swish_derivative", "swiglu", "swiglu.interleaved"}) {
        add(with_general_beta(label));
    }
    for (const operations::LayerActivation &activation : operations::layer_activations()) {
        add(layer_with(activation, false));
        add(layer_with(activation, true));
    }
    add(statistics(
        "rms_norm_scale",
        [](BenchmarkCase &bench_case, const DLTensor *x, DLTensor *scale, DLTensor *) {
            return halyard_rms_norm_scale(bench_case.context.get(), x, operations::rms_norm_eps, 0, scale);
        },
        [](const operations::Row &x) {
            return operations::rms_scale(x, {nullptr, nullptr, operations::rms_norm_eps, false, false, 1}).value;
        }));
    add(statistics(
        "layer_norm_scale",
        [](BenchmarkCase &bench_case, const DLTensor *x, DLTensor *scale, DLTensor *mean) {
            return halyard_layer_norm_scale(bench_case.context.get(), x, operations::layer_norm_eps, mean, scale);
        },
        [](const operations::Row &x) { return operations::layer_moments(x, operations::layer_norm_eps).scale.value; }));
    add(Packing::kind("pack_out_in", HALYARD_WEIGHT_OUT_IN, false));
    add(Packing::kind("pack_out_in_folded", HALYARD_WEIGHT_OUT_IN, true));
    add(Packing::kind("pack_in_out", HALYARD_WEIGHT_IN_OUT, false));
    add(Packing::kind("pack_in_out_folded", HALYARD_WEIGHT_IN_OUT, true));
    for (CaseFamily &kind : attention_case_families()) {
        add(std::move(kind));
    }
    return kinds;
}

}  // namespace

const Kinds &unbenched_families() {
    static const Kinds kinds = make_kinds();
    return kinds;
}

}  // namespace halyard::tune
