// See plan.h.
#include "plan.h"

#include <algorithm>
#include <iterator>

#include "operations/built.h"

namespace halyard::bench {
namespace {

/** Empty if what a contender holds is at most a `share`-th of the memory. */
std::string memory_error(std::size_t bytes, std::size_t share, const Machine &machine) {
    if (bytes <= machine.memory / share) {
        return {};
    }
    return "it takes " + readable_bytes(static_cast<double>(bytes)) + " for each contender, more than 1/" +
           std::to_string(share) + " of this machine's memory";
}

}  // namespace

bool is_built(const CaseId &row) {
    const auto has = [](Dtype dtype) {
        return std::count(std::begin(operations::all_dtypes), std::end(operations::all_dtypes), dtype) > 0;
    };
    const bool function = row.is_training_step()
                              ? operations::is_built("stack_backward") && operations::is_built("cross_entropy") &&
                                    operations::is_built("gradient_norm") && operations::is_built("adamw_step")
                          : row.kernel->is_gradient ? operations::is_built(row.kernel->operation)
                          : row.is_model()          ? operations::is_built("stack_forward")
                          : row.kernel->block       ? operations::is_built("block_forward")
                          : row.kernel->layer       ? operations::is_built(row.kernel->layer->is_ffn ? "ffn" : "linear")
                                                    : operations::is_built(row.kernel->operation);
    return function && has(row.dtype) && has(row.kernel->cast_to.value_or(row.dtype));
}

std::string too_large(const CaseId &row, const Machine &machine) {
    if (!row.has_roofline()) {
        return {};
    }
    if (row.kernel->layer) {
        // Up to eleven contenders hold matrices of their own, one of them in f32 whatever the row's type, some twice
        // while they pack them.
        CaseId in_f32 = row;
        in_f32.dtype = Dtype::f32;
        return memory_error(in_f32.weight_bytes() * in_f32.set_count(0), 14, machine);
    }
    if (row.is_training_step()) {
        // Ours and one peer's come at a time, and what they hold is about half of what a step moves.
        return memory_error(row.bytes_moved(), 2, machine);
    }
    // Models come two at a time. Of blocks there are three, and while a cache is filled its keys and values twice.
    return memory_error(row.bytes_moved() * row.set_count(machine.cold_set()), row.is_model() ? 4 : 6, machine);
}

}  // namespace halyard::bench
