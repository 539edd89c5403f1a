// Kernels with the names and types of their arguments, which the build takes from the generators.
//
//     kernel_function(kernels::rms_norm, dtype, isa)({x, eps, eps_outside_root, weight_offset, moment_width, y});
//
// Arguments may be named, and are where several have one type: {.weight = weight, .bias = bias}. An order, a type, a rank
// or a number of arguments that the kernel does not have does not compile.
#ifndef HALYARD_RUNTIME_CORE_KERNEL_CALL_H
#define HALYARD_RUNTIME_CORE_KERNEL_CALL_H

#include <iterator>

#include "core/dispatch.h"
#include "core/kernel_buffer.h"
#include "core/verbose.h"

namespace halyard {

#include "kernels/calls.inc"

/** A kernel to be called. */
template<typename Arguments>
class KernelCall {
public:
    explicit KernelCall(KernelFunction function) : function_(function) {}
    void operator()(Arguments arguments) const {
        auto pointers = arguments.pointers();
        if (__builtin_expect(verbose_level > 1, false)) {
            run_verbosely(function_, pointers.of, Arguments::parameters, std::size(Arguments::parameters));
        } else {
            function_(pointers.of);
        }
    }

private:
    KernelFunction function_;
};

/** The variant of `kernel` for `dtype`, its input's unless the table of kernels says otherwise, that `isa` has. */
template<typename Arguments>
KernelCall<Arguments> kernel_function(KernelOf<Arguments> kernel, DType dtype, halyard_isa isa) {
    return KernelCall<Arguments>(kernel_function(kernel.kernel, dtype, isa));
}

}  // namespace halyard

#endif
