/** @file
 * halyard.hpp: the C++17 interface, a header-only layer over halyard.h.
 *
 *     std::vector<float> x(16 * 4096), weight(4096), y(16 * 4096);
 *     halyard::rms_norm({x, {16, 4096}}, weight, 1e-6f, {y, {16, 4096}});
 *
 * Inputs are `ConstTensor`, outputs are `Tensor`: small views that own nothing and are made where they are passed,
 * from a pointer and a shape, a container (`std::vector`, `std::array`, `std::span`, a C array) with or without a
 * shape, or a `DLTensor`. A container without a shape is one row: `softmax(scores, scores)` makes one distribution of
 * all scores. An optional input takes `{}` or `std::nullopt`. The element type comes from the pointer's
 * type: float, `halyard::f16`, `halyard::bf16`, and `_Float16`, `std::float16_t`, `std::bfloat16_t` where the compiler
 * has them. Nothing is allocated by a call.
 *
 * A call that fails throws `halyard::Error` and leaves its outputs untouched; who cannot use exceptions calls the C
 * functions, for which `ConstTensor::get()` and `Tensor::get()` give the arguments. What each function computes, which
 * outputs may be inputs and what is refused stands in halyard.h, whose names these functions bear. Every function takes
 * a context last; without one the defaults hold.
 */
#ifndef HALYARD_HALYARD_HPP
#define HALYARD_HALYARD_HPP

#if __cplusplus < 201703L
#error halyard.hpp needs C++17: compile with -std=c++17 or newer
#include "halyard_needs_cpp17"  // There is no such file, so the compiler stops here, before hundreds of other errors.
#endif

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __has_include(<stdfloat>) && __cplusplus > 202002L
#include <stdfloat>
#endif
#endif

#include "halyard.h"

namespace halyard {

/* ---- Errors and queries --------------------------------------------------------------------------------- */

/// What a failed call throws: `status()` says the kind, `what()` is the sentence of halyard_last_error().
class Error : public std::runtime_error {
public:
    /// An error with its message.
    Error(halyard_status status, const char *message) : std::runtime_error(message), status_(status) {}
    /// The kind of failure.
    halyard_status status() const noexcept { return status_; }

private:
    halyard_status status_;
};

/// Throws `Error` unless `status` is HALYARD_OK: for use round functions of halyard.h.
inline void check(halyard_status status) {
    if (status != HALYARD_OK) {
        throw Error(status, halyard_last_error());
    }
}

/// Version of the library in use: "major.minor.patch".
inline const char *version() noexcept {
    return halyard_version();
}

/// Instruction sets, weakest first. A library holds those of one processor.
enum class Isa {
    sse41 = HALYARD_ISA_SSE41,              ///< x86-64 with SSE4.1
    avx2 = HALYARD_ISA_AVX2,                ///< AVX2, FMA, F16C
    avx512 = HALYARD_ISA_AVX512,            ///< AVX-512 F, BW, CD, DQ, VL
    avx512_bf16 = HALYARD_ISA_AVX512_BF16,  ///< products of bf16 by AVX-512 BF16
    amx = HALYARD_ISA_AMX,                  ///< products of bf16 by AMX
    neon = HALYARD_ISA_NEON,                ///< any 64-bit ARM
    neon_fp16 = HALYARD_ISA_NEON_FP16,      ///< ARMv8.2 with half-precision arithmetic
    neon_bf16 = HALYARD_ISA_NEON_BF16,      ///< products of bf16 by BFMLALT and BFMLALB
    neon_bfdot = HALYARD_ISA_NEON_BFDOT,    ///< products of bf16 by BFDOT
    neon_bfmmla = HALYARD_ISA_NEON_BFMMLA,  ///< products of bf16 by BFMMLA too
};

/// Its name, as halyard_isa_name() lists them: "avx512", "neon".
inline const char *to_string(Isa isa) noexcept {
    return halyard_isa_name(static_cast<halyard_isa>(isa));
}

/// Whether this library holds the variant and this machine can run it.
inline bool supported(Isa isa) noexcept {
    return halyard_isa_supported(static_cast<halyard_isa>(isa)) != 0;
}

/// To what the inputs of products are rounded that no caller sees.
enum class Products {
    storage = HALYARD_PRODUCTS_STORAGE,  ///< to bf16 where weights and activations are
    full = HALYARD_PRODUCTS_FULL,        ///< to nothing
    bf16 = HALYARD_PRODUCTS_BF16,        ///< to bf16 where weights are bf16 or quantized
    int8 = HALYARD_PRODUCTS_INT8,        ///< to 8 bits where weights are quantized, else as storage
};

/// Whether calls may choose it by themselves on this machine.
inline bool preferred(Isa isa) noexcept {
    return halyard_isa_preferred(static_cast<halyard_isa>(isa)) != 0;
}

/* ---- Element types ---------------------------------------------------------------------------------------- */

/// Storage of an IEEE 754 half. Only a name for the bits: `halyard::cast` converts.
struct f16 {
    std::uint16_t bits;  ///< as in memory
};

/// Storage of a bfloat16, the upper half of a float. Only a name for the bits: `halyard::cast` converts.
struct bf16 {
    std::uint16_t bits;  ///< as in memory
};

/// The DLPack type of an element type. Specialize it for a 16-bit type of your own:
/// `template <> struct halyard::element<my::Half> : halyard::element<halyard::f16> {};`
template<class T>
struct element;
/// f32
template<>
struct element<float> {
    static constexpr DLDataType dtype{kDLFloat, 32, 1};  ///< as DLPack spells it
};
/// f16
template<>
struct element<f16> {
    static constexpr DLDataType dtype{kDLFloat, 16, 1};  ///< as DLPack spells it
};
/// bf16
template<>
struct element<bf16> {
    static constexpr DLDataType dtype{kDLBfloat, 16, 1};  ///< as DLPack spells it
};
#if defined(__clang__) ? __clang_major__ >= 15 && defined(__FLT16_MAX__) : __GNUC__ >= 13 && defined(__FLT16_MAX__)
template<>
struct element<_Float16> : element<f16> {};
#endif
#if defined(__STDCPP_BFLOAT16_T__)
template<>
struct element<std::bfloat16_t> : element<bf16> {};
#endif

namespace detail {

template<class T, class = void>
inline constexpr bool is_element = false;
template<class T>
inline constexpr bool is_element<T, std::void_t<decltype(element<T>::dtype)>> = true;

/// The DLPack type of an integer type.
template<class Integer>
inline constexpr DLDataType integer_dtype{std::is_signed_v<Integer> ? std::uint8_t{kDLInt} : std::uint8_t{kDLUInt},
                                          8 * sizeof(Integer), 1};

/// Type that a container's std::data() points to; const if the elements are.
template<class Container>
using pointee = std::remove_pointer_t<decltype(std::data(std::declval<Container &>()))>;

/// Whether a pointer or a container has floating-point elements that no kernel is for: double.
template<class Elements, class = void>
inline constexpr bool is_unknown_float = false;
template<class T>
inline constexpr bool is_unknown_float<T *> = std::is_floating_point_v<T> && !is_element<std::remove_const_t<T>>;
template<class Container>
inline constexpr bool is_unknown_float<Container, std::void_t<pointee<Container>>> =
    is_unknown_float<pointee<Container> *>;

/// Stops the compiler with one sentence where a tensor is made of such elements.
template<class Elements>
constexpr void refuse_unknown_float() {
    static_assert(!is_unknown_float<Elements>,
                  "halyard has kernels for float, halyard::f16 and halyard::bf16; a tensor of double is none of these");
}

}  // namespace detail

/* ---- Views -------------------------------------------------------------------------------------------------- */

/// One to four extents or strides: `{rows, d}` in any integer type, or a container of integers.
class Extents {
public:
    static constexpr int max_rank = 4;  ///< of a tensor

    /// One to four integers.
    template<class... Integer,
             std::enable_if_t<(sizeof...(Integer) > 0 && (std::is_integral_v<Integer> && ...)), int> = 0>
    constexpr Extents(Integer... extents) noexcept
        : rank_(sizeof...(Integer)), values_{static_cast<std::int64_t>(extents)...} {
        static_assert(sizeof...(Integer) <= max_rank, "halyard takes tensors of rank 1 to 4");
    }

    /// A container of one to four integers; throws `Error` for others.
    template<class Container, class Integer = detail::pointee<const Container>,
             std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
    constexpr Extents(const Container &extents) : rank_(static_cast<int>(std::size(extents))), values_{} {
        if (std::size(extents) < 1 || std::size(extents) > max_rank) {
            throw Error(HALYARD_INVALID_ARGUMENT, "halyard::Extents: a tensor has rank 1 to 4");
        }
        for (int axis = 0; axis < rank_; ++axis) {
            values_[axis] = static_cast<std::int64_t>(std::data(extents)[axis]);
        }
    }

    /// How many there are.
    constexpr int rank() const noexcept { return rank_; }
    /// One of them.
    constexpr std::int64_t operator[](int axis) const noexcept { return values_[axis]; }

private:
    int rank_;
    std::int64_t values_[max_rank];
};

/// A tensor in CPU memory that a call reads; or no tensor, where an input is optional.
///
/// A view made from a pointer or a container holds its own shape and may be copied freely while the elements live. A
/// view made from a `DLTensor` refers to that tensor's shape and strides, which must outlive it.
class ConstTensor {
public:
    /// No tensor: `{}` for an optional weight or bias.
    ConstTensor() noexcept = default;
    /// No tensor.
    ConstTensor(std::nullopt_t) noexcept {}

    /// Row-major elements at `data`.
    template<class T, std::enable_if_t<detail::is_element<T>, int> = 0>
    ConstTensor(const T *data, const Extents &shape) noexcept {
        assign(data, element<T>::dtype, shape, nullptr);
    }

    /// Elements at `data` with strides counted in elements; the last one is 1.
    template<class T, std::enable_if_t<detail::is_element<T>, int> = 0>
    ConstTensor(const T *data, const Extents &shape, const Extents &strides) {
        assign(data, element<T>::dtype, shape, &strides);
    }

    /// All elements of a container, as *one row*: right for a weight or a bias, and for a matrix where rows do not
    /// matter, as in activations. Norms, softmax and linear layers of several rows need the shape.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<detail::is_element<std::remove_const_t<T>>, int> = 0>
    ConstTensor(const Container &elements) noexcept : ConstTensor(std::data(elements), std::size(elements)) {}

    /// Elements of a container with a shape; a call throws `Error` if the container is too small for it.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<detail::is_element<std::remove_const_t<T>>, int> = 0>
    ConstTensor(const Container &elements, const Extents &shape) : ConstTensor(std::data(elements), shape) {
        set_available(std::size(elements));
    }
    /// Elements of a container with a shape and strides.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<detail::is_element<std::remove_const_t<T>>, int> = 0>
    ConstTensor(const Container &elements, const Extents &shape, const Extents &strides)
        : ConstTensor(std::data(elements), shape, strides) {
        set_available(std::size(elements));
    }

    /// Elements of double, which no kernel is for: they do not compile.
    template<class Elements, std::enable_if_t<detail::is_unknown_float<Elements>, int> = 0>
    ConstTensor(const Elements &, const Extents & = 1, const Extents & = 1) {
        detail::refuse_unknown_float<Elements>();
    }

    /// A DLPack tensor, taken as it is and checked by the call.
    ConstTensor(const DLTensor &tensor) noexcept : tensor_(tensor), present_(true) {}

    /// A copy refers to the same elements.
    ConstTensor(const ConstTensor &other) noexcept { *this = other; }
    /// A copy refers to the same elements.
    ConstTensor &operator=(const ConstTensor &other) noexcept {
        tensor_ = other.tensor_;
        present_ = other.present_;
        ranks_differ_ = other.ranks_differ_;
        needed_ = other.needed_;
        available_ = other.available_;
        for (int axis = 0; axis < Extents::max_rank; ++axis) {
            shape_[axis] = other.shape_[axis];
            strides_[axis] = other.strides_[axis];
        }
        if (other.tensor_.shape == other.shape_) {
            tensor_.shape = shape_;
        }
        if (other.tensor_.strides == other.strides_) {
            tensor_.strides = strides_;
        }
        return *this;
    }

    /// The argument that a C function takes: null if there is no tensor, else valid as long as this view. Throws
    /// `Error`, whose message calls the tensor `name`, if shape and strides have different ranks or reach beyond the
    /// container.
    const DLTensor *get(const char *name = "the tensor") const {
        if (ranks_differ_) {
            throw Error(HALYARD_INVALID_ARGUMENT,
                        ("halyard: " + std::string(name) + " has a shape and strides of different ranks").c_str());
        }
        if (needed_ > available_) {
            throw Error(HALYARD_INVALID_ARGUMENT,
                        ("halyard: " + std::string(name) + " has a shape and strides that need " +
                         std::to_string(needed_) + " elements, but its container holds " + std::to_string(available_))
                            .c_str());
        }
        return present_ ? &tensor_ : nullptr;
    }

protected:
    /// @cond
    void assign(const void *data, DLDataType dtype, const Extents &shape, const Extents *strides) noexcept {
        ranks_differ_ = strides != nullptr && strides->rank() != shape.rank();
        for (int axis = 0; axis < shape.rank(); ++axis) {
            shape_[axis] = shape[axis];
            strides_[axis] = strides != nullptr && !ranks_differ_ ? (*strides)[axis] : 0;
        }
        // DLPack has no const; a ConstTensor only reaches parameters that are read.
        tensor_.data = const_cast<void *>(data);
        tensor_.device = DLDevice{kDLCPU, 0};
        tensor_.ndim = shape.rank();
        tensor_.dtype = dtype;
        tensor_.shape = shape_;
        tensor_.strides = strides != nullptr ? strides_ : nullptr;
        tensor_.byte_offset = 0;
        present_ = true;
    }

    /// Notes how many elements there are, and how many the view reaches over. Negative extents and strides are left to
    /// the C function.
    void set_available(std::size_t available) noexcept {
        std::int64_t stride = 1;  // of the row-major layout
        std::int64_t needed = 1;  // one more than the last element's index
        bool overflow = false;
        for (int axis = tensor_.ndim - 1; axis >= 0; --axis) {
            const std::int64_t step = tensor_.strides != nullptr ? strides_[axis] : stride;
            if (shape_[axis] <= 0 || step < 0) {
                return;
            }
            std::int64_t reach = 0;
            overflow |= __builtin_mul_overflow(shape_[axis] - 1, step, &reach) ||
                        __builtin_add_overflow(needed, reach, &needed) ||
                        __builtin_mul_overflow(stride, shape_[axis], &stride);
        }
        needed_ = overflow ? SIZE_MAX : static_cast<std::size_t>(needed);
        available_ = available;
    }

    DLTensor tensor_{};
    std::int64_t shape_[Extents::max_rank] = {};
    std::int64_t strides_[Extents::max_rank] = {};
    bool present_ = false;
    bool ranks_differ_ = false;
    std::size_t needed_ = 0, available_ = 0;  // elements of the container; 0 where there is none
    /// @endcond
};

/// A tensor in CPU memory that a call writes; also usable as an input, for calls in place. Made as `ConstTensor` is,
/// from elements that are not const.
class Tensor : public ConstTensor {
public:
    /// No tensor: `{}` for an optional output.
    Tensor() noexcept = default;

    /// Row-major elements at `data`.
    template<class T, std::enable_if_t<detail::is_element<T>, int> = 0>
    Tensor(T *data, const Extents &shape) noexcept : ConstTensor(data, shape) {}

    /// Elements at `data` with strides counted in elements; the last one is 1.
    template<class T, std::enable_if_t<detail::is_element<T>, int> = 0>
    Tensor(T *data, const Extents &shape, const Extents &strides) : ConstTensor(data, shape, strides) {}

    /// All elements of a container, as one row.
    template<class Container, class T = detail::pointee<Container>, std::enable_if_t<detail::is_element<T>, int> = 0>
    Tensor(Container &&elements) noexcept : ConstTensor(elements) {}

    /// Elements of a container with a shape.
    template<class Container, class T = detail::pointee<Container>, std::enable_if_t<detail::is_element<T>, int> = 0>
    Tensor(Container &&elements, const Extents &shape) : ConstTensor(elements, shape) {}

    /// Elements of a container with a shape and strides.
    template<class Container, class T = detail::pointee<Container>, std::enable_if_t<detail::is_element<T>, int> = 0>
    Tensor(Container &&elements, const Extents &shape, const Extents &strides)
        : ConstTensor(elements, shape, strides) {}

    /// Elements of double, which no kernel is for: they do not compile.
    template<class Elements, std::enable_if_t<detail::is_unknown_float<std::remove_reference_t<Elements>>, int> = 0>
    Tensor(Elements &&, const Extents & = 1, const Extents & = 1) {
        detail::refuse_unknown_float<std::remove_reference_t<Elements>>();
    }

    /// A DLPack tensor, taken as it is and checked by the call.
    Tensor(DLTensor &tensor) noexcept : ConstTensor(tensor) {}

    /// The argument that a C function writes to; valid as long as this view. A view is as const as its elements, not as
    /// the view itself, so this is a const function.
    DLTensor *get(const char *name = "the tensor") const { return const_cast<DLTensor *>(ConstTensor::get(name)); }
};

/// A tensor of integers in CPU memory that a call reads, such as integers, ids or codes; or none.
class Integers {
public:
    /// None: `{}`.
    Integers() noexcept = default;
    /// None.
    Integers(std::nullopt_t) noexcept {}

    /// Row-major integers at `data`.
    template<class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    Integers(const T *data, const Extents &shape) noexcept : present_(true) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
            shape_[axis] = shape[axis];
        }
        tensor_.data = const_cast<T *>(data);  // DLPack has no const
        tensor_.device = DLDevice{kDLCPU, 0};
        tensor_.ndim = shape.rank();
        tensor_.dtype = detail::integer_dtype<T>;
        tensor_.shape = shape_;
    }

    /// All integers of a container, as one row.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<std::is_integral_v<std::remove_const_t<T>>, int> = 0>
    Integers(const Container &integers) noexcept : Integers(std::data(integers), std::size(integers)) {}

    /// Integers of a container with a shape; a call throws `Error` if the container is too small for it.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<std::is_integral_v<std::remove_const_t<T>>, int> = 0>
    Integers(const Container &integers, const Extents &shape) : Integers(std::data(integers), shape) {
        needed_ = 1;
        available_ = std::size(integers);
        for (int axis = 0; axis < shape.rank(); ++axis) {
            if (shape[axis] > 0 && __builtin_mul_overflow(needed_, static_cast<std::size_t>(shape[axis]), &needed_)) {
                needed_ = SIZE_MAX;
            }
        }
    }

    /// A DLPack tensor, taken as it is and checked by the call. Its shape and strides must outlive this.
    Integers(const DLTensor &tensor) noexcept : tensor_(tensor), present_(true) {}

    /// A copy refers to the same integers.
    Integers(const Integers &other) noexcept { *this = other; }
    /// A copy refers to the same integers.
    Integers &operator=(const Integers &other) noexcept {
        tensor_ = other.tensor_;
        present_ = other.present_;
        needed_ = other.needed_;
        available_ = other.available_;
        for (int axis = 0; axis < Extents::max_rank; ++axis) {
            shape_[axis] = other.shape_[axis];
        }
        if (other.tensor_.shape == other.shape_) {
            tensor_.shape = shape_;
        }
        return *this;
    }

    /// The argument that a C function takes: null if there are none, else valid as long as this. Throws `Error`, whose
    /// message calls them `name`, if their container is too small.
    const DLTensor *get(const char *name = "the tensor") const {
        if (needed_ > available_) {
            throw Error(HALYARD_INVALID_ARGUMENT,
                        ("halyard: " + std::string(name) + " has a shape that needs " + std::to_string(needed_) +
                         " integers, but its container holds " + std::to_string(available_))
                            .c_str());
        }
        return present_ ? &tensor_ : nullptr;
    }

private:
    DLTensor tensor_{};
    std::int64_t shape_[Extents::max_rank] = {};
    bool present_ = false;
    std::size_t needed_ = 0, available_ = 0;  // integers of the container; 0 where there is none
};

/* ---- Context ------------------------------------------------------------------------------------------------ */

/// What a call needs beside its tensors: number of threads, whose threads, which instruction set. Move-only. May be
/// shared by threads; its setters may not run at the same time as calls that use it.
class Context {
public:
    /// One index of a call's work, handed to the callable of `set_parallel_for`.
    class Task {
    public:
        /// Made by the library.
        Task(void (*function)(void *, int), void *closure) noexcept : function_(function), closure_(closure) {}
        /// Does the work of one index.
        void operator()(int index) const { function_(closure_, index); }

    private:
        void (*function_)(void *, int);
        void *closure_;
    };

    Context() {
        halyard_context *context = nullptr;
        check(halyard_context_create(&context));
        context_.reset(context);
    }

    /// Upper bound on the threads one call uses, the caller's included; 0 restores the default.
    void set_num_threads(int num_threads) { check(halyard_context_set_num_threads(get(), num_threads)); }
    /// The bound in force.
    int num_threads() const noexcept { return halyard_context_num_threads(get()); }

    /// To what the inputs of products are rounded that no caller sees.
    void set_products(Products products) {
        check(halyard_context_set_products(get(), static_cast<halyard_products>(products)));
    }
    /// See set_products().
    Products products() const noexcept { return static_cast<Products>(halyard_context_products(get())); }
    /// Calls use `isa` if the machine supports it, else the best preferred variant below.
    void set_max_isa(Isa isa) { check(halyard_context_set_max_isa(get(), static_cast<halyard_isa>(isa))); }
    /// The variant that calls with this context use.
    Isa isa() const noexcept { return static_cast<Isa>(halyard_context_isa(get())); }

    /// Calls that move at least this many bytes write their outputs around the caches; -1 restores the default.
    void set_streaming_min_bytes(std::int64_t min_bytes) {
        check(halyard_context_set_streaming_min_bytes(get(), min_bytes));
    }

    /// The stream in which calls on CUDA tensors put their work; null is the default stream.
    void set_cuda_stream(void *stream) { check(halyard_context_set_cuda_stream(get(), stream)); }

    /// Runs this context's work on the caller's threads: `parallel_for(count, task)` calls `task(i)` for every i in
    /// [0, count), in any order, on any threads, and returns when all are done. The callable is kept until it is
    /// replaced or the context dies; it is called from every thread that calls with this context, and may not throw.
    template<class ParallelFor,
             std::enable_if_t<std::is_invocable_v<std::decay_t<ParallelFor> &, int, const Task &>, int> = 0>
    void set_parallel_for(ParallelFor &&parallel_for) {
        using Callable = std::decay_t<ParallelFor>;
        std::unique_ptr<void, void (*)(void *)> kept(new Callable(std::forward<ParallelFor>(parallel_for)),
                                                     [](void *user) { delete static_cast<Callable *>(user); });
        check(halyard_context_set_parallel_for(
            get(),
            [](void *user, int count, void (*function)(void *, int), void *closure) noexcept {
                (*static_cast<Callable *>(user))(count, Task(function, closure));
            },
            kept.get()));
        parallel_for_ = std::move(kept);
    }
    /// Back to the library's own threads.
    void set_parallel_for(std::nullptr_t) {
        check(halyard_context_set_parallel_for(get(), nullptr, nullptr));
        parallel_for_.reset();
    }

    /// Frees the memory kept for the intermediates of linear layers and feed-forward networks.
    void release_scratch() const noexcept { halyard_context_release_scratch(get()); }

    /// The argument that a C function takes.
    halyard_context *get() noexcept { return context_.get(); }
    /// The argument that a C function takes.
    const halyard_context *get() const noexcept { return context_.get(); }
    /// What calls take last.
    operator const halyard_context *() const noexcept { return get(); }

private:
    struct Destroy {
        void operator()(halyard_context *context) const noexcept { halyard_context_destroy(context); }
    };
    std::unique_ptr<void, void (*)(void *)> parallel_for_{nullptr, [](void *) {}};
    std::unique_ptr<halyard_context, Destroy> context_;
};

/* ---- Normalization ------------------------------------------------------------------------------------------
 * x, y, residual, residual_out: [..., d]; weight, bias: [d] or {}, each of the dtype of x or f32. */

/// y = weight * (x - mean) / sqrt(var + eps) + bias
inline void layer_norm(const ConstTensor &x, const ConstTensor &weight, const ConstTensor &bias, float eps,
                       const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_layer_norm(context, x.get("x"), weight.get("weight"), bias.get("bias"), eps, y.get("y")));
}

/// y = weight * x / sqrt(mean(x^2) + eps)
inline void rms_norm(const ConstTensor &x, const ConstTensor &weight, float eps, const Tensor &y,
                     const halyard_context *context = nullptr) {
    check(halyard_rms_norm(context, x.get("x"), weight.get("weight"), eps, 0, y.get("y")));
}
/// As rms_norm above, with HALYARD_RMS_... flags.
inline void rms_norm(const ConstTensor &x, const ConstTensor &weight, float eps, unsigned flags, const Tensor &y,
                     const halyard_context *context = nullptr) {
    check(halyard_rms_norm(context, x.get("x"), weight.get("weight"), eps, flags, y.get("y")));
}

/// pRMSNorm: the mean square over the first ceil(p * d) features.
inline void partial_rms_norm(const ConstTensor &x, const ConstTensor &weight, float eps, unsigned flags, float p,
                             const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_partial_rms_norm(context, x.get("x"), weight.get("weight"), eps, flags, p, y.get("y")));
}

/// residual_out = x + residual; y = layer_norm(residual_out)
inline void add_layer_norm(const ConstTensor &x, const ConstTensor &residual, const ConstTensor &weight,
                           const ConstTensor &bias, float eps, const Tensor &residual_out, const Tensor &y,
                           const halyard_context *context = nullptr) {
    check(halyard_add_layer_norm(context, x.get("x"), residual.get("residual"), weight.get("weight"), bias.get("bias"),
                                 eps, residual_out.get("residual_out"), y.get("y")));
}

/// residual_out = x + residual; y = rms_norm(residual_out)
inline void add_rms_norm(const ConstTensor &x, const ConstTensor &residual, const ConstTensor &weight, float eps,
                         const Tensor &residual_out, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_add_rms_norm(context, x.get("x"), residual.get("residual"), weight.get("weight"), eps, 0,
                               residual_out.get("residual_out"), y.get("y")));
}
/// As add_rms_norm above, with HALYARD_RMS_... flags.
inline void add_rms_norm(const ConstTensor &x, const ConstTensor &residual, const ConstTensor &weight, float eps,
                         unsigned flags, const Tensor &residual_out, const Tensor &y,
                         const halyard_context *context = nullptr) {
    check(halyard_add_rms_norm(context, x.get("x"), residual.get("residual"), weight.get("weight"), eps, flags,
                               residual_out.get("residual_out"), y.get("y")));
}

/// The gradients of layer_norm: sums over rows are added to dweight and dbias, f32 [d], if they accumulate. weight, dresidual_out,
/// dweight and dbias may be {}.
inline void layer_norm_backward(const ConstTensor &x, const ConstTensor &weight, float eps, const ConstTensor &dy,
                                const ConstTensor &dresidual_out, bool accumulate, const Tensor &dx,
                                const Tensor &dweight, const Tensor &dbias, const halyard_context *context = nullptr) {
    check(halyard_layer_norm_backward(context, x.get("x"), weight.get("weight"), eps, dy.get("dy"),
                                      dresidual_out.get("dresidual_out"), accumulate ? 1 : 0, dx.get("dx"),
                                      dweight.get("dweight"), dbias.get("dbias")));
}

/// The gradients of rms_norm.
inline void rms_norm_backward(const ConstTensor &x, const ConstTensor &weight, float eps, unsigned flags,
                              const ConstTensor &dy, const ConstTensor &dresidual_out, bool accumulate,
                              const Tensor &dx, const Tensor &dweight, const halyard_context *context = nullptr) {
    check(halyard_rms_norm_backward(context, x.get("x"), weight.get("weight"), eps, flags, dy.get("dy"),
                                    dresidual_out.get("dresidual_out"), accumulate ? 1 : 0, dx.get("dx"),
                                    dweight.get("dweight")));
}

/// The gradients of partial_rms_norm.
inline void partial_rms_norm_backward(const ConstTensor &x, const ConstTensor &weight, float eps, unsigned flags,
                                      float p, const ConstTensor &dy, const ConstTensor &dresidual_out, bool accumulate,
                                      const Tensor &dx, const Tensor &dweight,
                                      const halyard_context *context = nullptr) {
    check(halyard_partial_rms_norm_backward(context, x.get("x"), weight.get("weight"), eps, flags, p, dy.get("dy"),
                                            dresidual_out.get("dresidual_out"), accumulate ? 1 : 0, dx.get("dx"),
                                            dweight.get("dweight")));
}

/// y = softmax(x) over each row
inline void softmax(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_softmax(context, x.get("x"), 1.0f, y.get("y")));
}
/// dx = scale * y * (dy - sum(y * dy)) over each row: the gradient of y = softmax(scale * x)
inline void softmax_backward(const ConstTensor &y, const ConstTensor &dy, float scale, const Tensor &dx,
                             const halyard_context *context = nullptr) {
    check(halyard_softmax_backward(context, y.get("y"), dy.get("dy"), scale, dx.get("dx")));
}

/// y = softmax(scale * x) over each row
inline void softmax(const ConstTensor &x, float scale, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_softmax(context, x.get("x"), scale, y.get("y")));
}

/* ---- Activations --------------------------------------------------------------------------------------------
 * x, y: [...], one shape; y may be x. `..._derivative` gives the function's derivative at x, and
 * `..._backward` takes dy to dx, which may be x or dy. */

/// max(0, x)
inline void relu(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_relu(context, x.get("x"), y.get("y")));
}
/// The derivative of `relu`.
inline void relu_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_relu_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `relu`: dx = dy times its derivative at x.
inline void relu_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                          const halyard_context *context = nullptr) {
    check(halyard_relu_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// max(0, x)^2
inline void relu2(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_relu2(context, x.get("x"), y.get("y")));
}
/// The derivative of `relu2`.
inline void relu2_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_relu2_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `relu2`: dx = dy times its derivative at x.
inline void relu2_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                           const halyard_context *context = nullptr) {
    check(halyard_relu2_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// x * Phi(x), the exact GELU
inline void gelu(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu(context, x.get("x"), y.get("y")));
}
/// The derivative of `gelu`.
inline void gelu_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `gelu`: dx = dy times its derivative at x.
inline void gelu_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                          const halyard_context *context = nullptr) {
    check(halyard_gelu_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// GELU by its tanh form, "gelu_new" or "gelu_pytorch_tanh"
inline void gelu_tanh(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu_tanh(context, x.get("x"), y.get("y")));
}
/// The derivative of `gelu_tanh`.
inline void gelu_tanh_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu_tanh_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `gelu_tanh`: dx = dy times its derivative at x.
inline void gelu_tanh_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                               const halyard_context *context = nullptr) {
    check(halyard_gelu_tanh_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// x * sigmoid(1.702 x), "quick_gelu"
inline void gelu_sigmoid(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu_sigmoid(context, x.get("x"), y.get("y")));
}
/// The derivative of `gelu_sigmoid`.
inline void gelu_sigmoid_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_gelu_sigmoid_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `gelu_sigmoid`: dx = dy times its derivative at x.
inline void gelu_sigmoid_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                                  const halyard_context *context = nullptr) {
    check(halyard_gelu_sigmoid_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// x * sigmoid(x), also called Swish-1
inline void silu(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_silu(context, x.get("x"), y.get("y")));
}
/// The derivative of `silu`.
inline void silu_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_silu_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `silu`: dx = dy times its derivative at x.
inline void silu_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                          const halyard_context *context = nullptr) {
    check(halyard_silu_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// x * sigmoid(beta * x)
inline void swish(const ConstTensor &x, float beta, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_swish(context, x.get("x"), beta, y.get("y")));
}
/// The derivative of `swish`.
inline void swish_derivative(const ConstTensor &x, float beta, const Tensor &y,
                             const halyard_context *context = nullptr) {
    check(halyard_swish_derivative(context, x.get("x"), beta, y.get("y")));
}
/// The gradient of `swish`: dx = dy times its derivative at x.
inline void swish_backward(const ConstTensor &x, const ConstTensor &dy, float beta, const Tensor &dx,
                           const halyard_context *context = nullptr) {
    check(halyard_swish_backward(context, x.get("x"), dy.get("dy"), beta, dx.get("dx")));
}
/// 1 / (1 + exp(-x))
inline void sigmoid(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_sigmoid(context, x.get("x"), y.get("y")));
}
/// The derivative of `sigmoid`.
inline void sigmoid_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_sigmoid_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `sigmoid`: dx = dy times its derivative at x.
inline void sigmoid_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                             const halyard_context *context = nullptr) {
    check(halyard_sigmoid_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// tanh(x)
inline void tanh(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_tanh(context, x.get("x"), y.get("y")));
}
/// The derivative of `tanh`.
inline void tanh_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_tanh_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `tanh`: dx = dy times its derivative at x.
inline void tanh_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                          const halyard_context *context = nullptr) {
    check(halyard_tanh_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}
/// exp(x)
inline void exp(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_exp(context, x.get("x"), y.get("y")));
}
/// The derivative of `exp`.
inline void exp_derivative(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_exp_derivative(context, x.get("x"), y.get("y")));
}
/// The gradient of `exp`: dx = dy times its derivative at x.
inline void exp_backward(const ConstTensor &x, const ConstTensor &dy, const Tensor &dx,
                         const halyard_context *context = nullptr) {
    check(halyard_exp_backward(context, x.get("x"), dy.get("dy"), dx.get("dx")));
}

/* ---- Gated linear units --------------------------------------------------------------------------------------
 * On two tensors: gate, up, y: [..., h]. On one: x: [..., 2h], y: [..., h]. */

/// Where gate and up lie in the rows of one tensor.
enum class GluLayout {
    gate_up = HALYARD_GLU_GATE_UP,          ///< two halves, gate first: Hugging Face's gate_up_proj
    up_gate = HALYARD_GLU_UP_GATE,          ///< two halves, gate second: torch.nn.functional.glu
    interleaved = HALYARD_GLU_INTERLEAVED,  ///< g0 u0 g1 u1 ...
};

/// sigmoid(gate) * up
inline void glu(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                const halyard_context *context = nullptr) {
    check(halyard_glu(context, gate.get("gate"), up.get("up"), y.get("y")));
}
/// As glu above, on one tensor.
inline void glu(const ConstTensor &x, GluLayout layout, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_glu_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), y.get("y")));
}
/// gate * up
inline void bilinear(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                     const halyard_context *context = nullptr) {
    check(halyard_bilinear(context, gate.get("gate"), up.get("up"), y.get("y")));
}
/// As bilinear above, on one tensor.
inline void bilinear(const ConstTensor &x, GluLayout layout, const Tensor &y,
                     const halyard_context *context = nullptr) {
    check(halyard_bilinear_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), y.get("y")));
}
/// max(0, gate) * up
inline void reglu(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                  const halyard_context *context = nullptr) {
    check(halyard_reglu(context, gate.get("gate"), up.get("up"), y.get("y")));
}
/// As reglu above, on one tensor.
inline void reglu(const ConstTensor &x, GluLayout layout, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_reglu_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), y.get("y")));
}
/// gelu(gate) * up
inline void geglu(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                  const halyard_context *context = nullptr) {
    check(halyard_geglu(context, gate.get("gate"), up.get("up"), y.get("y")));
}
/// As geglu above, on one tensor.
inline void geglu(const ConstTensor &x, GluLayout layout, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_geglu_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), y.get("y")));
}
/// gelu_tanh(gate) * up
inline void geglu_tanh(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                       const halyard_context *context = nullptr) {
    check(halyard_geglu_tanh(context, gate.get("gate"), up.get("up"), y.get("y")));
}
/// As geglu_tanh above, on one tensor.
inline void geglu_tanh(const ConstTensor &x, GluLayout layout, const Tensor &y,
                       const halyard_context *context = nullptr) {
    check(halyard_geglu_tanh_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), y.get("y")));
}
/// silu(gate) * up, or swish(gate, beta) * up
inline void swiglu(const ConstTensor &gate, const ConstTensor &up, const Tensor &y,
                   const halyard_context *context = nullptr) {
    check(halyard_swiglu(context, gate.get("gate"), up.get("up"), 1.0f, y.get("y")));
}
/// As swiglu above, on one tensor.
inline void swiglu(const ConstTensor &x, GluLayout layout, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_swiglu_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), 1.0f, y.get("y")));
}
/// swish(gate, beta) * up
inline void swiglu(const ConstTensor &gate, const ConstTensor &up, float beta, const Tensor &y,
                   const halyard_context *context = nullptr) {
    check(halyard_swiglu(context, gate.get("gate"), up.get("up"), beta, y.get("y")));
}
/// As swiglu above, on one tensor.
inline void swiglu(const ConstTensor &x, GluLayout layout, float beta, const Tensor &y,
                   const halyard_context *context = nullptr) {
    check(halyard_swiglu_packed(context, x.get("x"), static_cast<halyard_glu_layout>(layout), beta, y.get("y")));
}

/* Their gradients, on two tensors or on one: each output may be an input. */

/// The gradients of `glu`.
inline void glu_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy, const Tensor &dgate,
                         const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_glu_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), dgate.get("dgate"),
                               dup.get("dup")));
}
/// As glu_backward above, on one tensor.
inline void glu_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                         const halyard_context *context = nullptr) {
    check(halyard_glu_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                      dx.get("dx")));
}
/// The gradients of `bilinear`.
inline void bilinear_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy,
                              const Tensor &dgate, const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_bilinear_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), dgate.get("dgate"),
                                    dup.get("dup")));
}
/// As bilinear_backward above, on one tensor.
inline void bilinear_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                              const halyard_context *context = nullptr) {
    check(halyard_bilinear_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                           dx.get("dx")));
}
/// The gradients of `reglu`.
inline void reglu_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy, const Tensor &dgate,
                           const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_reglu_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), dgate.get("dgate"),
                                 dup.get("dup")));
}
/// As reglu_backward above, on one tensor.
inline void reglu_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                           const halyard_context *context = nullptr) {
    check(halyard_reglu_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                        dx.get("dx")));
}
/// The gradients of `geglu`.
inline void geglu_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy, const Tensor &dgate,
                           const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_geglu_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), dgate.get("dgate"),
                                 dup.get("dup")));
}
/// As geglu_backward above, on one tensor.
inline void geglu_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                           const halyard_context *context = nullptr) {
    check(halyard_geglu_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                        dx.get("dx")));
}
/// The gradients of `geglu_tanh`.
inline void geglu_tanh_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy,
                                const Tensor &dgate, const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_geglu_tanh_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), dgate.get("dgate"),
                                      dup.get("dup")));
}
/// As geglu_tanh_backward above, on one tensor.
inline void geglu_tanh_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                                const halyard_context *context = nullptr) {
    check(halyard_geglu_tanh_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                             dx.get("dx")));
}
/// The gradients of `swiglu`.
inline void swiglu_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy, const Tensor &dgate,
                            const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_swiglu_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), 1.0f, dgate.get("dgate"),
                                  dup.get("dup")));
}
/// As swiglu_backward above, on one tensor.
inline void swiglu_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, const Tensor &dx,
                            const halyard_context *context = nullptr) {
    check(halyard_swiglu_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                         1.0f, dx.get("dx")));
}
/// The gradients of `swiglu` with beta.
inline void swiglu_backward(const ConstTensor &gate, const ConstTensor &up, const ConstTensor &dy, float beta,
                            const Tensor &dgate, const Tensor &dup, const halyard_context *context = nullptr) {
    check(halyard_swiglu_backward(context, gate.get("gate"), up.get("up"), dy.get("dy"), beta, dgate.get("dgate"),
                                  dup.get("dup")));
}
/// As swiglu_backward above, on one tensor.
inline void swiglu_backward(const ConstTensor &x, GluLayout layout, const ConstTensor &dy, float beta, const Tensor &dx,
                            const halyard_context *context = nullptr) {
    check(halyard_swiglu_packed_backward(context, x.get("x"), static_cast<halyard_glu_layout>(layout), dy.get("dy"),
                                         beta, dx.get("dx")));
}

/* ---- Elementwise ------------------------------------------------------------------------------------------------ */

/// y = a + b, one shape; y may be a or b.
inline void add(const ConstTensor &a, const ConstTensor &b, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_add(context, a.get("a"), b.get("b"), y.get("y")));
}

/// y = x, rounded to y's element type.
inline void cast(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) {
    check(halyard_cast(context, x.get("x"), y.get("y")));
}

/* ---- Weights of linear layers ------------------------------------------------------------------------------------ */

/// How a weight matrix lies in memory.
enum class WeightLayout {
    out_in = HALYARD_WEIGHT_OUT_IN,  ///< [out_features, in_features]: torch.nn.Linear, safetensors
    in_out = HALYARD_WEIGHT_IN_OUT,  ///< [in_features, out_features]: GPT-2's Conv1D
};

/// What packing does besides. Tensors are optional; `up` is like the weight, and the norm's vectors are [in_features], of its dtype or f32.
struct PackOptions {
    WeightLayout layout = WeightLayout::out_in;  ///< of the weight and `up`
    ConstTensor up;                              ///< a second matrix like the weight, which is then the gate
    ConstTensor norm_weight;                     ///< of the norm before the layer, multiplied into the matrix
    ConstTensor norm_bias;                       ///< of the LayerNorm before the layer
    bool norm_unit_offset = false;               ///< fold 1 + norm_weight
    DLDevice device{};                           ///< where the packed matrix is to be, if not where the weight is
    halyard_quantization quantization{};         ///< codes of 8 or 4 bits in place of the matrix
};

/// Where the codes of a matrix come from: halyard_code_format has their formulas.
enum class CodeFormat {
    q8_0 = HALYARD_CODES_Q8_0,                              ///< of GGUF, as those that follow
    q4_0 = HALYARD_CODES_Q4_0,                              ///< 18 bytes for 32 weights
    q4_1 = HALYARD_CODES_Q4_1,                              ///< 20 bytes for 32 weights
    q5_0 = HALYARD_CODES_Q5_0,                              ///< 22 bytes for 32 weights
    q5_1 = HALYARD_CODES_Q5_1,                              ///< 24 bytes for 32 weights
    q4_k = HALYARD_CODES_Q4_K,                              ///< 144 bytes for 256 weights
    q5_k = HALYARD_CODES_Q5_K,                              ///< 176 bytes for 256 weights
    q6_k = HALYARD_CODES_Q6_K,                              ///< 210 bytes for 256 weights
    int8 = HALYARD_CODES_INT8,                              ///< a scale for an output or a group of its inputs
    compressed_tensors = HALYARD_CODES_COMPRESSED_TENSORS,  ///< pack-quantized
    gptq = HALYARD_CODES_GPTQ,                              ///< with zeros less 1
    gptq_v2 = HALYARD_CODES_GPTQ_V2,                        ///< with zeros as they are
    awq = HALYARD_CODES_AWQ,                                ///< version "gemm"
};

/// A matrix that is quantized already. Shapes and types of its tensors: halyard_codes.
struct Codes {
    CodeFormat format = CodeFormat::q8_0;  ///< of the tensors
    int bits = 0;                          ///< 4 or 8 of compressed_tensors, gptq and gptq_v2, else 0
    std::int64_t in_features = 0;          ///< inputs
    std::int64_t out_features = 0;         ///< outputs
    std::int64_t group = 0;                ///< inputs that share a scale; 0: all, or blocks of GGUF
    Integers matrix;                       ///< the codes
    ConstTensor scales;                    ///< of all formats but GGUF's
    Integers zeros;                        ///< {}: symmetric
    Integers g_idx;                        ///< {}, or the group of each input
};

namespace detail {
/// @cond
inline halyard_codes c_codes(const Codes &codes) {
    halyard_codes c{};
    c.format = static_cast<halyard_code_format>(codes.format);
    c.bits = codes.bits;
    c.in_features = codes.in_features;
    c.out_features = codes.out_features;
    c.group = codes.group;
    c.matrix = codes.matrix.get("matrix");
    c.scales = codes.scales.get("scales");
    c.zeros = codes.zeros.get("zeros");
    c.g_idx = codes.g_idx.get("g_idx");
    return c;
}
/// @endcond
}  // namespace detail

/// Writes the numbers of a matrix that is quantized already to y [out_features, in_features]: halyard_dequantize.
inline void dequantize(const Codes &codes, const Tensor &y, const halyard_context *context = nullptr) {
    const halyard_codes c = detail::c_codes(codes);
    check(halyard_dequantize(context, &c, y.get("y")));
}

/// A packed weight matrix: what `linear` and `ffn` multiply by. Move-only; may be used by any number of threads.
///
///     const auto weights = halyard::Weights::pack({w, {out, in}});
///     weights.save("layer.weights");
class Weights {
public:
    /// None; calls refuse it.
    Weights() noexcept = default;

    /// Bytes that `pack` needs.
    static std::int64_t packed_bytes(const ConstTensor &weight, const PackOptions &options = {}) {
        std::int64_t bytes = 0;
        const halyard_pack_options c = c_options(options);
        check(halyard_weights_size(weight.get("weight"), &c, &bytes));
        return bytes;
    }

    /// Packs a matrix into memory of the library. The matrix is not needed afterwards.
    static Weights pack(const ConstTensor &weight, const PackOptions &options = {},
                        const halyard_context *context = nullptr) {
        return pack(weight, options, nullptr, 0, context);
    }
    /// Packs a matrix into `bytes` bytes at `memory`, 64-byte aligned, which must outlive the weights. A call that throws
    /// may have overwritten it.
    static Weights pack(const ConstTensor &weight, const PackOptions &options, void *memory, std::int64_t bytes,
                        const halyard_context *context = nullptr) {
        halyard_weights *weights = nullptr;
        const halyard_pack_options c = c_options(options);
        check(halyard_weights_pack(context, weight.get("weight"), &c, memory, bytes, &weights));
        return Weights(weights);
    }
    /// Packs another matrix into the memory of weights that `pack` made, with what options were used there. No call may use
    /// the weights meanwhile.
    void update(const ConstTensor &weight, const PackOptions &options = {}, const halyard_context *context = nullptr) {
        const halyard_pack_options c = c_options(options);
        check(halyard_weights_update(context, weights_.get(), weight.get("weight"), &c));
    }

    /// Bytes that `pack_codes` needs.
    static std::int64_t packed_bytes(const Codes &codes, const Codes *up = nullptr) {
        std::int64_t bytes = 0;
        const halyard_codes c = detail::c_codes(codes), c_up = up != nullptr ? detail::c_codes(*up) : halyard_codes{};
        check(halyard_weights_codes_size(&c, up != nullptr ? &c_up : nullptr, &bytes));
        return bytes;
    }
    /// Packs a matrix that is quantized already, without a loss; with `up` beside it, of which it is the gate.
    static Weights pack_codes(const Codes &codes, const Codes *up = nullptr, const halyard_context *context = nullptr) {
        return pack_codes(codes, up, nullptr, 0, context);
    }
    /// Packs codes into `bytes` bytes at `memory`, 64-byte aligned, which must outlive the weights. A call that throws may
    /// have overwritten it.
    static Weights pack_codes(const Codes &codes, const Codes *up, void *memory, std::int64_t bytes,
                              const halyard_context *context = nullptr) {
        halyard_weights *weights = nullptr;
        const halyard_codes c = detail::c_codes(codes), c_up = up != nullptr ? detail::c_codes(*up) : halyard_codes{};
        check(halyard_weights_pack_codes(context, &c, up != nullptr ? &c_up : nullptr, memory, bytes, &weights));
        return Weights(weights);
    }

    /// Maps a file that `save` wrote, which must not be changed while the weights are in use.
    static Weights load(const char *path) {
        halyard_weights *weights = nullptr;
        check(halyard_weights_load(path, &weights));
        return Weights(weights);
    }
    /// The packed bytes of other weights, 64-byte aligned; they must outlive these.
    static Weights from_memory(const void *memory, std::int64_t bytes) {
        halyard_weights *weights = nullptr;
        check(halyard_weights_from_memory(memory, bytes, &weights));
        return Weights(weights);
    }

    /// Writes the packed bytes to a file, replacing it when they are complete.
    void save(const char *path) const { check(halyard_weights_save(get(), path)); }

    /// Maps a file with a path as std::string or std::filesystem::path.
    template<class Path, class = decltype(std::declval<const Path &>().c_str())>
    static Weights load(const Path &path) {
        return load(path.c_str());
    }
    /// Writes a file with a path as std::string or std::filesystem::path.
    template<class Path, class = decltype(std::declval<const Path &>().c_str())>
    void save(const Path &path) const {
        save(path.c_str());
    }

    /// All that is known of them.
    halyard_weights_info info() const {
        halyard_weights_info info{};
        check(halyard_weights_get_info(get(), &info));
        return info;
    }
    /// Inputs.
    std::int64_t in_features() const { return info().in_features; }
    /// Outputs; those of one matrix where gate and up are interleaved.
    std::int64_t out_features() const { return info().out_features; }
    /// Whether gate and up are interleaved.
    bool gated() const { return info().gated != 0; }
    /// Whether a norm is folded.
    bool norm_folded() const { return info().norm_folded != 0; }
    /// The type of the source; f32 of quantized weights.
    DLDataType dtype() const { return info().dtype; }

    /// The packed bytes; null if there are none.
    const void *data() const noexcept { return halyard_weights_data(get()); }
    /// Bytes of the packed form.
    std::int64_t bytes() const { return info().bytes; }

    /// Whether there is one.
    explicit operator bool() const noexcept { return weights_ != nullptr; }
    /// The argument that a C function takes.
    const halyard_weights *get() const noexcept { return weights_.get(); }

private:
    explicit Weights(halyard_weights *weights) noexcept : weights_(weights) {}

    static halyard_pack_options c_options(const PackOptions &options) {
        halyard_pack_options c{};
        c.layout = static_cast<halyard_weight_layout>(options.layout);
        c.up = options.up.get("up");
        c.norm_weight = options.norm_weight.get("norm_weight");
        c.norm_bias = options.norm_bias.get("norm_bias");
        c.norm_unit_offset = options.norm_unit_offset ? 1 : 0;
        c.device = options.device;
        c.quantization = options.quantization;
        return c;
    }

    struct Destroy {
        void operator()(halyard_weights *weights) const noexcept { halyard_weights_destroy(weights); }
    };
    std::unique_ptr<halyard_weights, Destroy> weights_;
};

/* ---- Linear layers -------------------------------------------------------------------------------------------- */

/// The activations that a linear layer can apply.
enum class Activation {
    identity = HALYARD_IDENTITY,          ///< x
    relu = HALYARD_RELU,                  ///< `relu`
    gelu = HALYARD_GELU,                  ///< `gelu`
    gelu_tanh = HALYARD_GELU_TANH,        ///< `gelu_tanh`
    gelu_sigmoid = HALYARD_GELU_SIGMOID,  ///< `gelu_sigmoid`
    silu = HALYARD_SILU,                  ///< `silu`
    swish = HALYARD_SWISH,                ///< `swish`, with beta
    sigmoid = HALYARD_SIGMOID,            ///< `sigmoid`
    tanh = HALYARD_TANH,                  ///< `tanh`
    exp = HALYARD_EXP,                    ///< `exp`
    relu2 = HALYARD_RELU2,                ///< `relu2`
};

/// What happens to the sums of a GEMM before they are stored, in this order. Tensors are optional.
struct LinearOptions {
    ConstTensor row_scale;                         ///< f32, the leading shape of x
    ConstTensor row_mean;                          ///< f32, the leading shape of x
    ConstTensor bias;                              ///< [out_features]; of the gate where weights are gated
    ConstTensor bias_up;                           ///< [out_features], of gated weights
    Activation activation = Activation::identity;  ///< of the sums; of the gate where weights are gated
    float beta = 1.0f;                             ///< of Activation::swish
    ConstTensor residual;                          ///< shape and dtype of y; may be y
    Tensor sums;     ///< f32, shape of y: written by `linear`, before the activation; read by `linear_backward`
    Tensor sums_up;  ///< the same of `up` of gated weights

    /// As the C functions take them, which keep nothing of them. Valid as long as the options.
    halyard_linear_options get() const {
        halyard_linear_options c{};
        c.row_scale = row_scale.get("row_scale");
        c.row_mean = row_mean.get("row_mean");
        c.bias = bias.get("bias");
        c.bias_up = bias_up.get("bias_up");
        c.activation = static_cast<halyard_activation>(activation);
        c.beta = beta;
        c.residual = residual.get("residual");
        c.sums = sums.get("sums");
        c.sums_up = sums_up.get("sums_up");
        return c;
    }
};

/// y = residual + activation(row_scale (x W - row_mean column_sums) + bias); for gated weights
/// residual + activation(gate) * up.
inline void linear(const ConstTensor &x, const Weights &weights, const LinearOptions &options, const Tensor &y,
                   const halyard_context *context = nullptr) {
    const halyard_linear_options c = options.get();
    check(halyard_linear(context, x.get("x"), weights.get(), &c, y.get("y")));
}
/// y = x W
inline void linear(const ConstTensor &x, const Weights &weights, const Tensor &y,
                   const halyard_context *context = nullptr) {
    check(halyard_linear(context, x.get("x"), weights.get(), nullptr, y.get("y")));
}

/// What `linear_backward` writes, f32. All tensors are optional.
struct LinearGradients {
    Tensor dx;                                   ///< shape of x
    Tensor dweight;                              ///< as `layout` says; of the gate where weights are gated
    Tensor dweight_up;                           ///< that of `up`
    Tensor dbias;                                ///< [out_features]; of the gate where weights are gated
    Tensor dbias_up;                             ///< that of `up`
    WeightLayout layout = WeightLayout::out_in;  ///< of dweight and dweight_up
    bool accumulate = false;                     ///< all but dx are added to what is there
};

/// The gradients of `linear` with these options, whose sums the forward call has written where there is an activation or a gate.
inline void linear_backward(const ConstTensor &x, const Weights &weights, const ConstTensor &dy,
                            const LinearOptions &options, const LinearGradients &gradients,
                            const halyard_context *context = nullptr) {
    const halyard_linear_options c = options.get();
    halyard_linear_gradients g{};
    g.dx = gradients.dx.get("dx");
    g.dweight = gradients.dweight.get("dweight");
    g.dweight_up = gradients.dweight_up.get("dweight_up");
    g.dbias = gradients.dbias.get("dbias");
    g.dbias_up = gradients.dbias_up.get("dbias_up");
    g.layout = static_cast<halyard_weight_layout>(gradients.layout);
    g.accumulate = gradients.accumulate ? 1 : 0;
    check(halyard_linear_backward(context, x.get("x"), weights.get(), dy.get("dy"), &c, &g));
}

/// scale = 1/sqrt(mean(x^2) + eps) of each row
inline void rms_norm_scale(const ConstTensor &x, float eps, const Tensor &scale,
                           const halyard_context *context = nullptr) {
    check(halyard_rms_norm_scale(context, x.get("x"), eps, 0, scale.get("scale")));
}
/// As rms_norm_scale above, with HALYARD_RMS_EPS_OUTSIDE_ROOT.
inline void rms_norm_scale(const ConstTensor &x, float eps, unsigned flags, const Tensor &scale,
                           const halyard_context *context = nullptr) {
    check(halyard_rms_norm_scale(context, x.get("x"), eps, flags, scale.get("scale")));
}
/// mean and scale = 1/sqrt(var + eps) of each row
inline void layer_norm_scale(const ConstTensor &x, float eps, const Tensor &mean, const Tensor &scale,
                             const halyard_context *context = nullptr) {
    check(halyard_layer_norm_scale(context, x.get("x"), eps, mean.get("mean"), scale.get("scale")));
}

/* ---- Feed-forward networks ---------------------------------------------------------------------------------------- */

/// The norm before a feed-forward network, and those of a block.
enum class Norm {
    none = HALYARD_NORM_NONE,    ///< none
    rms = HALYARD_NORM_RMS,      ///< `rms_norm`
    layer = HALYARD_NORM_LAYER,  ///< `layer_norm`
};

/// What a feed-forward network does around its two GEMMs. Tensors are optional.
struct FfnOptions {
    Norm norm = Norm::none;                        ///< of x, before the first GEMM
    ConstTensor norm_weight;                       ///< [d_model], dtype of x or f32
    ConstTensor norm_bias;                         ///< [d_model], dtype of x or f32; of Norm::layer
    float eps = 0.0f;                              ///< of the norm
    unsigned norm_flags = 0;                       ///< HALYARD_RMS_..., of Norm::rms
    bool deferred_norm = false;                    ///< `up` was packed with the norm's weight (and bias) folded
    Activation activation = Activation::identity;  ///< of the first GEMM; of the gate if it is gated
    float beta = 1.0f;                             ///< of Activation::swish
    ConstTensor bias;                              ///< [d_ff], of the first GEMM; of the gate if it is gated
    ConstTensor bias_up;                           ///< [d_ff], of `up` where the first GEMM is gated
    ConstTensor bias_down;                         ///< [d_model]
    bool residual = false;                         ///< y = x + FFN(Norm(x))
    Tensor sums;     ///< f32 [..., d_ff]: written by `ffn`, before the activation; read by `ffn_backward`
    Tensor sums_up;  ///< the same of `up` where the first GEMM is gated

    /// As the C functions take them, which keep nothing of them. Valid as long as the options.
    halyard_ffn_options get() const {
        halyard_ffn_options c{};
        c.norm = static_cast<halyard_norm>(norm);
        c.norm_weight = norm_weight.get("norm_weight");
        c.norm_bias = norm_bias.get("norm_bias");
        c.eps = eps;
        c.norm_flags = norm_flags;
        c.deferred_norm = deferred_norm ? 1 : 0;
        c.activation = static_cast<halyard_activation>(activation);
        c.beta = beta;
        c.bias = bias.get("bias");
        c.bias_up = bias_up.get("bias_up");
        c.bias_down = bias_down.get("bias_down");
        c.residual = residual ? 1 : 0;
        c.sums = sums.get("sums");
        c.sums_up = sums_up.get("sums_up");
        return c;
    }
};

/// y = [x +] (activation(N(x) Up + bias) [* (N(x) V + bias_up)]) Down + bias_down
inline void ffn(const ConstTensor &x, const Weights &up, const Weights &down, const FfnOptions &options,
                const Tensor &y, const halyard_context *context = nullptr) {
    const halyard_ffn_options c = options.get();
    check(halyard_ffn(context, x.get("x"), up.get(), down.get(), &c, y.get("y")));
}

/// What `ffn_backward` writes, f32. All tensors are optional.
struct FfnGradients {
    Tensor dx;            ///< shape of x
    Tensor dweight;       ///< of the first matrix, as `layout` says; of the gate where it is gated
    Tensor dweight_up;    ///< that of `up` where the first GEMM is gated
    Tensor dweight_down;  ///< of the second matrix
    Tensor dbias;         ///< [d_ff]; of the gate where the first GEMM is gated
    Tensor dbias_up;      ///< [d_ff]
    Tensor dbias_down;    ///< [d_model]
    Tensor dnorm_weight;  ///< [d_model]
    Tensor dnorm_bias;    ///< [d_model], of Norm::layer
    WeightLayout layout = WeightLayout::out_in;  ///< of the matrices' gradients
    bool accumulate = false;                     ///< all but dx are added to what is there
};

/// The gradients of `ffn` with these options, whose sums the forward call has written.
inline void ffn_backward(const ConstTensor &x, const Weights &up, const Weights &down, const ConstTensor &dy,
                         const FfnOptions &options, const FfnGradients &gradients,
                         const halyard_context *context = nullptr) {
    const halyard_ffn_options c = options.get();
    halyard_ffn_gradients g{};
    g.dx = gradients.dx.get("dx");
    g.dweight = gradients.dweight.get("dweight");
    g.dweight_up = gradients.dweight_up.get("dweight_up");
    g.dweight_down = gradients.dweight_down.get("dweight_down");
    g.dbias = gradients.dbias.get("dbias");
    g.dbias_up = gradients.dbias_up.get("dbias_up");
    g.dbias_down = gradients.dbias_down.get("dbias_down");
    g.dnorm_weight = gradients.dnorm_weight.get("dnorm_weight");
    g.dnorm_bias = gradients.dnorm_bias.get("dnorm_bias");
    g.layout = static_cast<halyard_weight_layout>(gradients.layout);
    g.accumulate = gradients.accumulate ? 1 : 0;
    check(halyard_ffn_backward(context, x.get("x"), up.get(), down.get(), dy.get("dy"), &c, &g));
}

/// The width of a gated FFN with the parameters of a standard one of width 4 d_model: 8/3 d_model, rounded up to a
/// multiple.
inline std::int64_t ffn_hidden_size(std::int64_t d_model, std::int64_t multiple_of) noexcept {
    return halyard_ffn_hidden_size(d_model, multiple_of);
}

}  // namespace halyard

#endif
