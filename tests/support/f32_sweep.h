// Sweeps over f32 inputs of the activations: how far the library is from the reference, region by region.
#ifndef HALYARD_TESTS_SUPPORT_F32_SWEEP_H
#define HALYARD_TESTS_SUPPORT_F32_SWEEP_H

#include <cstdint>
#include <vector>

#include "support/operations.h"

namespace halyard::tests {

/** The worst input in the region of one row of the accuracy table. */
struct Worst {
    accuracy::Bound bound;
    double ulp = -1;  // counted as the row says; -1: no input fell into the region
    float x = 0, got = 0;
    double expected = 0;
};

struct SweepResult {
    std::vector<Worst> worst;  // by row of the accuracy table
    std::uint64_t inputs = 0;  // swept
    std::uint64_t wrong = 0;   // outside the bound, or NaN, Inf where another class is due
    float first_wrong_x = 0, first_wrong_got = 0;
};

/** Calls the activation with the f32 numbers whose bits are first, first + step, ... below end, once with each context;
 *  a result per context. The reference, which takes most of the time, is computed once. */
std::vector<SweepResult> sweep(const Activation &activation, const std::vector<const halyard_context *> &contexts,
                               std::uint64_t first, std::uint64_t end, std::uint64_t step);

/** Both sweeps together. */
SweepResult merge(const SweepResult &a, const SweepResult &b);

}  // namespace halyard::tests

#endif
