// A row as calls of kernels of the table (kernels.cmake), with the arguments that their generators have: for versions
// of the kernels that are not in the library.
#ifndef HALYARD_BENCH_KERNEL_CALLS_H
#define HALYARD_BENCH_KERNEL_CALLS_H

#include <string>
#include <variant>
#include <vector>

#include "work.h"

namespace halyard::bench {

/** Of a matrix of the row's operands `width` columns from `column` on; or one of its vectors. */
struct KernelTensor {
    enum Which { input, output, weight, bias };
    Which which;
    int index = 0;  // among inputs or outputs
    std::int64_t column = 0, width = 0;
};

struct KernelArgument {
    std::string name;  // the generator's
    std::variant<KernelTensor, float, int, bool> value;
};

struct KernelCall {
    std::string kernel;
    Dtype dtype;
    std::int64_t rows, d;  // of the output
    int threads;
    std::vector<KernelArgument> arguments;  // in the generator's order

    /** "silu_f32_64x4096_2t": enough to tell it from others. */
    std::string name() const;
};

/** The calls that make up a row, one after the other; none if that is not said in kernels of whole tensors. */
std::vector<KernelCall> kernel_calls(const WorkId &row);

}  // namespace halyard::bench

#endif
