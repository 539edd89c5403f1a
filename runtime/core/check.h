// Argument checks: everything that comes from outside is checked here, once, before a kernel runs.
#ifndef HALYARD_RUNTIME_CORE_CHECK_H
#define HALYARD_RUNTIME_CORE_CHECK_H

#include <cstdint>
#include <cstring>

#include "core/system/floating_point.h"
#include "core/system/verbose.h"
#include "halyard/halyard.h"
#include "layout/dtype.h"

namespace halyard {

constexpr int max_rank = 4;

/** A checked tensor. Strides count elements. The first `rank` entries of shape and strides are set. */
struct View {
    View() { shape[0] = strides[0] = 0; }

    const char *name = "";
    char *data = nullptr;
    DType dtype = DType::f32;
    bool on_cuda = false;
    int device_id = 0;  // of the CUDA device
    int rank = 1;
    int64_t shape[max_rank];
    int64_t strides[max_rank];
    int64_t elements = 0;
    int64_t span = 0;  // elements of memory from the first to one past the last

    /** Extent of the last axis. */
    int64_t width() const { return shape[rank - 1]; }
    bool empty() const { return elements == 0; }
    const char *end() const { return data + span * size_of(dtype); }
};

/** A tensor that is not there. */
extern const View no_view;

/** Memory of so many bytes, a multiple of 4, as f32 in one row. */
View memory_view(const char *name, const void *data, int64_t bytes);

/** The number of a device's type. A caller may have set it to any, which not every version of DLPack lets the
 *  enumeration hold. */
inline int type_of(const DLDevice &device) {
    int type;
    static_assert(sizeof(type) == sizeof(device.device_type), "an enumeration of C is an int");
    memcpy(&type, &device.device_type, sizeof(type));
    return type;
}

/** A type of elements in words, as f64 or int32. */
class TypeName {
public:
    explicit TypeName(DLDataType type);
    const char *get() const { return text_; }

private:
    char text_[48];
};

/** Whether this library has kernels for CUDA devices. */
#ifdef HALYARD_CUDA_VERSION
constexpr bool has_cuda = true;
#else
constexpr bool has_cuda = false;
#endif

/** Where the tensors of a function may be, all in one place. */
enum class Devices { cpu, cpu_or_cuda };

/** Collects the first thing that is wrong with a call. After a failure the other checks do nothing and return
 *  harmless values, so a function checks all its arguments in a row and asks once:
 *
 *      Checker check("halyard_relu");
 *      const View xs = check.tensor("x", x), ys = check.output("y", y);
 *      check.same_shape(xs, ys);
 *      if (check.failed()) return check.status();
 *
 *  It lives as long as the call, and so does the environment in which that computes.
 */
class Checker {
public:
    explicit Checker(const char *function, Devices devices = Devices::cpu) : function_(function), devices_(devices) {
        if (is_unusual()) {
            begin_unusual();
        }
    }
    ~Checker() {
        if (is_unusual()) {
            end_unusual();
        }
    }
    Checker(const Checker &) = delete;
    Checker &operator=(const Checker &) = delete;

    /** The context of the call, for its line (verbose.h); null: the defaults. */
    void set_context(const halyard_context *context) { context_ = context; }

    /** Says in the call's line how weights are quantized, if they are. `prefix` is put before their name. */
    void record(const char *prefix, const char *name, const halyard_weights &weights) {
        if (is_recorded_) {
            record_quantized(prefix, name, weights);
        }
    }

    /** Where the fields are that are checked from here on, which messages say: array[index]. Null: nowhere in particular. */
    void set_place(const char *array, int64_t index) {
        place_ = array;
        place_index_ = index;
    }

    /** Takes over the failure of another check of this call, whose message stays, and for the line the tensors that it saw. */
    void take_over(const Checker &other);

    const char *function() const { return function_; }
    /** The first tensor that was seen, on whose device the others are; null if there was none. */
    const char *first_tensor() const { return first_tensor_; }
    const DLDevice &device_of_tensors() const { return first_device_; }
    bool failed() const { return status_ != HALYARD_OK; }
    halyard_status status() const { return status_; }

    /** Fails with a message; the function's name is put in front. */
    [[gnu::format(printf, 3, 4), gnu::cold]] halyard_status fail(halyard_status status, const char *format, ...);

    bool not_null(const char *name, const void *pointer);

    /** The tensor as a view, if it is one that this library can read. */
    View tensor(const char *name, const DLTensor *tensor);
    /** A tensor of another type, which the view's dtype does not name: nothing may be asked of that, nor of end(). */
    View tensor_of(const char *name, const DLTensor *tensor, DLDataType type);
    /** A tensor of integers of 4 or 8 bytes, which `as_words` describes as one of f32. */
    View tensor_in_words(const char *name, const DLTensor &tensor, const DLTensor &as_words);
    /** Whether a type is one that this library can read, and which. */
    bool known_type(const char *name, DLDataType type, DType *dtype);
    /** Whether the library has kernels for the dtype of `name`. */
    bool built_type(const char *name, DType dtype);
    /** A tensor that is written: no two of its elements may share memory. */
    View output(const char *name, const DLTensor *tensor);
    /** [d] of the dtype of x or f32, or nothing if `tensor` is null: a weight or bias for rows of x. */
    View row_parameter(const char *name, const DLTensor *tensor, const View &x);

    void same_shape(const View &a, const View &b);
    void same_dtype(const View &a, const View &b);
    /** Refuses a `b` that has neither the dtype of `a` nor f32. */
    void same_dtype_or_f32(const View &a, const View &b);
    /** For operations that need at least one feature in a row. */
    void rows_not_empty(const View &x);

    /** Refuses an output that shares memory with `other`, unless it is the same view and `in_place` allows it. Mostly
     *  the ranges of addresses do not even meet. */
    void no_overlap(const View &output, const View &other, bool in_place) {
        if (output.data < other.end() && other.data < output.end()) {
            overlapping(output, other, in_place);
        }
    }

    void finite(const char *name, float value);
    void finite_not_negative(const char *name, float value);
    /** 0, or a magnitude from 1e-28 to 1e28: for these Swish keeps its bounds. */
    void swish_beta(const char *name, float value);
    /** 0, or from 1e-30 to 1e30: its reciprocal and what it is divided by stay far from the ends of f32. */
    void softcap(const char *name, float value);

private:
    /** Whether there is more to do than the call: one look for all that mostly there is not. */
    bool is_unusual() const { return is_recorded_ | !before_.is_default(); }
    [[gnu::cold]] void begin_unusual();
    [[gnu::cold]] void end_unusual();
    [[gnu::cold]] void record_quantized(const char *prefix, const char *name, const halyard_weights &weights);

    const FloatingPoint before_ = FloatingPoint::now();
    const bool is_recorded_ = verbose_level > 0;
    bool looks_at_devices_ = false;  // of tensors; if not, they are on the processor and not recorded

    /** Shape, strides and data of a tensor with elements of so many bytes. */
    View described(const char *name, const DLTensor &tensor, int64_t element_bytes);
    void overlapping(const View &output, const View &other, bool in_place);
    /** Whether a kernel runs where this tensor and those before it are. */
    bool placed_with_others(const char *name, const DLTensor &tensor);
    [[gnu::cold]] bool placed_off_processor(const char *name, const DLTensor &tensor);
    void refuse_self_overlap(const View &view);
    [[gnu::cold]] void refuse_negative(const char *name, const View &view);

    const char *function_;
    Devices devices_;
    const char *first_tensor_ = nullptr;  // on whose device the others must be
    DLDevice first_device_{};
    halyard_status status_ = HALYARD_OK;
    const char *place_ = nullptr;
    int64_t place_index_ = 0;
    const halyard_context *context_ = nullptr;
    CallRecord record_;  // if is_recorded_
};

/** Refuses a number outside [least, most]. */
inline void check_range(Checker &check, const char *name, int64_t value, int64_t least, int64_t most) {
    if (check.failed() || (value >= least && value <= most)) {
        return;
    }
    if (most == INT64_MAX) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be at least %lld", name,
                   static_cast<long long>(value), static_cast<long long>(least));
    } else {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be %lld to %lld", name,
                   static_cast<long long>(value), static_cast<long long>(least), static_cast<long long>(most));
    }
}

}  // namespace halyard

#endif
