// Kernels with the names and types of their arguments, which the build takes from the generators.
//
//     kernel_function(kernels::rms_norm, dtype, isa)({x, eps, eps_outside_root, weight_offset, moment_width, y});
//
// Arguments may be named, and are where several have one type: {.weight = weight, .bias = bias}. An order, a type, a rank
// or a number of arguments that the kernel does not have does not compile.
#ifndef HALYARD_RUNTIME_CORE_KERNEL_CALL_H
#define HALYARD_RUNTIME_CORE_KERNEL_CALL_H

#include <type_traits>

#include "HalideRuntime.h"
#include "core/dispatch.h"

namespace halyard {

/** Elements whose type follows from the kernel's dtype. */
struct Stored;

/** A buffer for kernels. Only what they read is filled in; their checks are compiled out, and what the type is called or
 *  whether there is a device copy is no concern of theirs. */
template<int rank, typename Element = Stored>
class BufferOf {
public:
    using Data = std::conditional_t<std::is_same_v<Element, Stored>, const void, const Element>;

    BufferOf() {
        buffer_.dim = dims_;
        for (halide_dimension_t &dim : dims_) {
            dim.min = 0;
        }
        dims_[0].stride = 1;
    }
    BufferOf(const BufferOf &) = delete;
    BufferOf &operator=(const BufferOf &) = delete;

    void set_data(Data *data) {
        buffer_.host = static_cast<uint8_t *>(const_cast<void *>(static_cast<const void *>(data)));
    }
    void set_dim(int dim, int64_t extent, int64_t stride) {
        dims_[dim].extent = static_cast<int32_t>(extent);
        dims_[dim].stride = static_cast<int32_t>(stride);
    }

    void set(Data *data, int64_t extent) {
        static_assert(rank == 1);
        set_data(data);
        dims_[0].extent = static_cast<int32_t>(extent);
    }
    void set(Data *data, int64_t columns, int64_t rows, int64_t pitch) {
        static_assert(rank == 2);
        set_data(data);
        dims_[0].extent = static_cast<int32_t>(columns);
        set_dim(1, rows, rows > 1 ? pitch : 0);
    }

    void *argument() { return &buffer_; }
    const halide_buffer_t *get() const { return &buffer_; }

private:
    halide_buffer_t buffer_;
    halide_dimension_t dims_[rank];
};

/** What the arguments of a kernel are made of. */
template<int rank, typename Element = Stored>
class BufferArgument {
public:
    BufferArgument(const BufferOf<rank, Element> &buffer) : buffer_(buffer.get()) {}
    void *pointer() { return const_cast<halide_buffer_t *>(buffer_); }

private:
    const halide_buffer_t *buffer_;
};

template<typename Value>
class Scalar {
public:
    template<typename Given, typename = std::enable_if_t<std::is_same_v<Given, Value>>>
    Scalar(Given value) : value_(value) {}
    void *pointer() { return &value_; }

private:
    Value value_;
};

template<typename Value, int count>
class Scalars {
public:
    Scalars(const Value (&values)[count]) : values_(values) {}
    void *pointer(int index) { return const_cast<Value *>(values_ + index); }

private:
    const Value *values_;
};

/** An argument's name and, of a buffer, its rank; negative: a scalar. */
struct Parameter {
    const char *name;
    int8_t rank;
};

template<int count>
struct Pointers {
    void *of[count];
};

/** The name of a kernel that takes such arguments. */
template<typename Arguments>
struct KernelOf {
    Kernel kernel;
};

#include "kernels/calls.inc"

/** A kernel to be called. */
template<typename Arguments>
class KernelCall {
public:
    explicit KernelCall(KernelFunction function) : function_(function) {}
    void operator()(Arguments arguments) const { function_(arguments.pointers().of); }

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
