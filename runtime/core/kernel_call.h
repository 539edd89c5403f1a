// Kernels with the names and types of their arguments, which the build takes from the generators.
//
//     kernel_function(kernels::rms_norm, dtype, isa)({x, eps, eps_outside_root, weight_offset, moment_width, y});
//
// A kernel that is written here reads them by name as well: arguments::MatmulPairs::of(pointers).
//
// Arguments may be named, and are where several have one type: {.weight = weight, .bias = bias}. An order, a type, a rank or a
// number of arguments that the kernel does not have does not compile.
#ifndef HALYARD_RUNTIME_CORE_KERNEL_CALL_H
#define HALYARD_RUNTIME_CORE_KERNEL_CALL_H

#include <iterator>
#include <optional>
#include <type_traits>

#include "HalideRuntime.h"
#include "core/dispatch.h"
#include "core/system/verbose.h"

namespace halyard {

/** Elements whose type follows from the kernel's dtype. */
struct Stored;

enum class Memory { process, device };

template<Memory memory, int rank, typename Element>
class BufferArgumentIn;

/** A buffer. Only what kernels read is filled in; their checks are compiled out, and what the type is called or whether
 *  there is another copy is no concern of theirs. */
template<Memory memory, int rank, typename Element>
class BufferIn {
public:
    static constexpr bool on_device = memory == Memory::device;
    using Data = std::conditional_t<on_device || std::is_same_v<Element, Stored>, const void, const Element>;

    BufferIn() {
        if constexpr (on_device) {
            buffer_ = {};
        }
        buffer_.dim = dims_;
        for (halide_dimension_t &dim : dims_) {
            dim.min = 0;
            if constexpr (on_device) {
                dim.flags = 0;
            }
        }
        dims_[0].stride = 1;
    }
    BufferIn(const BufferIn &) = delete;
    BufferIn &operator=(const BufferIn &) = delete;

    void set_data(Data *data) {
        if constexpr (on_device) {
            buffer_.device = reinterpret_cast<uintptr_t>(data);
        } else {
            buffer_.host = reinterpret_cast<uint8_t *>(reinterpret_cast<uintptr_t>(data));
        }
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

    /** As an argument of a kernel whose dtype makes its elements these. */
    template<typename Known>
    BufferArgumentIn<memory, rank, Known> of() const {
        static_assert(std::is_same_v<Element, Stored>);
        return BufferArgumentIn<memory, rank, Known>(&buffer_);
    }

private:
    friend class BufferArgumentIn<memory, rank, Element>;

    halide_buffer_t buffer_;
    halide_dimension_t dims_[rank];
};

/** A buffer as an argument. */
template<Memory memory, int rank, typename Element>
class BufferArgumentIn {
public:
    BufferArgumentIn(const BufferIn<memory, rank, Element> &buffer) : buffer_(&buffer.buffer_) {}
    explicit BufferArgumentIn(const halide_buffer_t *buffer) : buffer_(buffer) {}
    void *pointer() { return const_cast<halide_buffer_t *>(buffer_); }

    /** What a kernel that is written here reads of it: bytes from its first element on, and axes in elements. */
    template<typename T>
    T *data() const {
        return reinterpret_cast<T *>(buffer_->host);
    }
    int32_t extent(int dim) const { return buffer_->dim[dim].extent; }
    int32_t stride(int dim) const { return buffer_->dim[dim].stride; }

private:
    const halide_buffer_t *buffer_;
};

/** A buffer in memory of the process; cuda::Buffer is one of a device. */
template<int rank, typename Element = Stored>
using Buffer = BufferIn<Memory::process, rank, Element>;
template<int rank, typename Element = Stored>
using BufferArgument = BufferArgumentIn<Memory::process, rank, Element>;

/** A scalar argument, of no other type. */
template<typename Value>
class Scalar {
public:
    template<typename Given, typename = std::enable_if_t<std::is_same_v<Given, Value>>>
    Scalar(Given value) : value_(value) {}
    void *pointer() { return &value_; }
    Value value() const { return value_; }

private:
    Value value_;
};

/** An array of them. */
template<typename Value, int count>
class Scalars {
public:
    Scalars(const Value (&values)[count]) : values_(values) {}
    void *pointer(int index) { return const_cast<Value *>(values_ + index); }

private:
    const Value *values_;
};

/** The name of an argument and, of a buffer, its rank; negative: a scalar. */
struct Parameter {
    const char *name;
    int8_t rank;
};

/** As kernels take them. */
template<int count>
struct Pointers {
    void *of[count];
};

#include "kernels/calls.inc"

/** A kernel to be called. */
template<typename Arguments>
class KernelCall {
public:
    explicit KernelCall(KernelFunction function) : function_(function) {}

    /** The call of its streamed_form(), if there is one. */
    std::optional<KernelCall> streamed() const {
        const KernelFunction streamed = streamed_form(function_);
        return streamed ? std::optional(KernelCall(streamed)) : std::nullopt;
    }

    void operator()(Arguments arguments) const {
        auto pointers = arguments.pointers();
        if (__builtin_expect(verbose_level > 1, false)) {
            run_verbosely(function_, pointers.of, Arguments::parameters(), std::size(Arguments::parameters()));
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
