// Sweeps over f32 inputs, in blocks that fit the first-level cache.
#include "support/f32_sweep.h"

#include <algorithm>
#include <cmath>

namespace halyard::tests {
namespace {

constexpr std::uint64_t block = 4096;

DLTensor row_view(std::vector<float> &values, std::int64_t &width) {
    DLTensor view{};
    view.data = values.data();
    view.device = {kDLCPU, 0};
    view.ndim = 1;
    view.dtype = dlpack_type(Dtype::f32);
    view.shape = &width;
    return view;
}

}  // namespace

std::vector<SweepResult> sweep(const Activation &activation, const std::vector<const halyard_context *> &contexts,
                               std::uint64_t first, std::uint64_t end, std::uint64_t step) {
    const ErrorModel errors(activation.function);
    SweepResult nothing;
    for (const accuracy::Bound &bound : errors.bounds()) {
        nothing.worst.push_back({bound});
    }
    std::vector<SweepResult> results(contexts.size(), nothing);

    std::vector<float> x(block), y(block);
    std::vector<double> expected(block);
    for (std::uint64_t bits = first; bits < end;) {
        std::int64_t width = 0;
        for (; bits < end && width < static_cast<std::int64_t>(block); bits += step) {
            x[static_cast<std::size_t>(width++)] = float_from_bits(static_cast<std::uint32_t>(bits));
        }
        const auto count = static_cast<std::size_t>(width);
        for (std::size_t i = 0; i < count; i++) {
            expected[i] = activation.reference(x[i]);
        }
        const DLTensor xs = row_view(x, width);
        DLTensor ys = row_view(y, width);
        for (std::size_t k = 0; k < contexts.size(); k++) {
            SweepResult &result = results[k];
            const bool called = activation.call(contexts[k], &xs, activation.beta, &ys) == HALYARD_OK;
            for (std::size_t i = 0; i < count; i++) {
                const double argument = static_cast<double>(activation.beta) * x[i];
                const accuracy::Bound *bound = errors.bound_at(argument);
                if (bound != nullptr && std::isfinite(expected[i]) && std::isfinite(y[i])) {
                    const double ulp =
                        std::fabs(y[i] - expected[i]) / ulp_f32(std::max(std::fabs(expected[i]), bound->floor));
                    Worst &worst = result.worst[static_cast<std::size_t>(bound - errors.bounds().data())];
                    if (ulp > worst.ulp) {
                        worst = {*bound, ulp, x[i], y[i], expected[i]};
                    }
                    if (called && ulp <= bound->max_ulp) {
                        continue;
                    }
                }
                // Overflow, infinities and NaN; and what is beyond its bound.
                const double allowed = bound != nullptr && std::isfinite(expected[i])
                                           ? bound->max_ulp * ulp_f32(std::max(std::fabs(expected[i]), bound->floor))
                                           : 0.0;
                const bool right = called && acceptable(Dtype::f32, {expected[i], allowed}, y[i]);
                if (!right && result.wrong++ == 0) {
                    result.first_wrong_x = x[i];
                    result.first_wrong_got = y[i];
                }
            }
            result.inputs += count;
        }
    }
    return results;
}

SweepResult merge(const SweepResult &a, const SweepResult &b) {
    SweepResult both = a.wrong != 0 || b.wrong == 0 ? a : b;
    both.inputs = a.inputs + b.inputs;
    both.wrong = a.wrong + b.wrong;
    for (std::size_t row = 0; row < both.worst.size(); row++) {
        both.worst[row] = a.worst[row].ulp >= b.worst[row].ulp ? a.worst[row] : b.worst[row];
    }
    return both;
}

}  // namespace halyard::tests
