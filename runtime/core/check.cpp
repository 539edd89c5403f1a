// Argument checks and the per-thread message of the last failure.
#include "core/check.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "core/device.h"
#include "core/dispatch.h"
#include "core/handles/weights.h"
#include "core/overlap.h"

namespace halyard {
namespace {

// initial-exec would be faster but limits dlopen; messages are written on failures only.
thread_local char last_error[512] = "";

bool same_view(const View &a, const View &b) {
    bool same = a.data == b.data && size_of(a.dtype) == size_of(b.dtype) && a.rank == b.rank;
    for (int i = 0; i < a.rank && same; i++) {
        same = a.shape[i] == b.shape[i] && (a.shape[i] == 1 || a.strides[i] == b.strides[i]);
    }
    return same;
}

}  // namespace

const View no_view;

TypeName::TypeName(DLDataType type) {
    constexpr int later_bool = 6;  // of versions of DLPack after the oldest that this compiles with
    const char *const kind = type.code == kDLFloat     ? "f"
                             : type.code == kDLBfloat  ? "bf"
                             : type.code == kDLInt     ? "int"
                             : type.code == kDLUInt    ? "uint"
                             : type.code == kDLComplex ? "complex"
                                                       : nullptr;
    int length;
    if (kind) {
        length = snprintf(text_, sizeof text_, "%s%d", kind, type.bits);
    } else if (type.code == later_bool && type.bits == 8) {
        length = snprintf(text_, sizeof text_, "bool");
    } else {
        length = snprintf(text_, sizeof text_, "of code %d with %d bits", type.code, type.bits);
    }
    if (type.lanes != 1) {
        snprintf(text_ + length, sizeof text_ - static_cast<size_t>(length), " in %d lanes", type.lanes);
    }
}

View memory_view(const char *name, const void *data, int64_t bytes) {
    View view;
    view.name = name;
    view.data = static_cast<char *>(const_cast<void *>(data));
    view.shape[0] = view.elements = view.span = bytes / size_of(DType::f32);
    view.strides[0] = 1;
    return view;
}

halyard_status Checker::fail(halyard_status status, const char *format, ...) {
    if (!failed()) {
        int prefix = snprintf(last_error, sizeof(last_error), "%s: ", function_);
        if (place_) {
            prefix += snprintf(last_error + prefix, sizeof(last_error) - prefix, "%s[%lld]: ", place_,
                               static_cast<long long>(place_index_));
        }
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(last_error + prefix, sizeof(last_error) - prefix, format, arguments);
        va_end(arguments);
        status_ = status;
    }
    return status_;
}

bool Checker::not_null(const char *name, const void *pointer) {
    if (!failed() && !pointer) {
        fail(HALYARD_INVALID_ARGUMENT, "%s is null", name);
    }
    return !failed();
}

View Checker::tensor(const char *name, const DLTensor *tensor) {
    DType dtype;
    if (!not_null(name, tensor) || !placed_with_others(name, *tensor) || !known_type(name, tensor->dtype, &dtype)) {
        View view;
        view.name = name;
        return view;
    }
    View view = described(name, *tensor, size_of(dtype));
    view.dtype = dtype;
    return view;
}

View Checker::tensor_of(const char *name, const DLTensor *tensor, DLDataType type) {
    View view;
    view.name = name;
    if (!not_null(name, tensor) || !placed_with_others(name, *tensor)) {
        return view;
    }
    const DLDataType got = tensor->dtype;
    if (got.code != type.code || got.bits != type.bits || got.lanes != 1) {
        fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must be %s", name, TypeName(got).get(), TypeName(type).get());
        return view;
    }
    return described(name, *tensor, type.bits / 8);
}

View Checker::tensor_in_words(const char *name, const DLTensor &tensor, const DLTensor &as_words) {
    if (failed() || !placed_with_others(name, tensor)) {
        View view;
        view.name = name;
        return view;
    }
    return described(name, as_words, size_of(DType::f32));
}

View Checker::described(const char *name, const DLTensor &tensor, int64_t element_bytes) {
    View view;
    view.name = name;
    view.on_cuda = type_of(tensor.device) == kDLCUDA;
    view.device_id = tensor.device.device_id;
    const int rank = tensor.ndim;
    if (rank < 1 || rank > max_rank) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have rank 1 to %d", name, rank, max_rank);
        return view;
    }
    if (!tensor.shape) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has no shape: its shape pointer is null", name);
        return view;
    }

    view.rank = rank;
    int64_t nonzero_elements = 1, span = 1, signs = 0;
    bool empty = false, too_large = false;
    for (int i = rank - 1; i >= 0; i--) {
        const int64_t extent = tensor.shape[i];
        const int64_t stride = tensor.strides ? tensor.strides[i] : too_large ? 0 : nonzero_elements;
        view.shape[i] = extent;
        view.strides[i] = stride;
        signs |= extent | stride;
        empty |= extent == 0;
        if (extent > 1) {
            int64_t steps = 0;
            too_large |= __builtin_mul_overflow(nonzero_elements, extent, &nonzero_elements);
            too_large |= __builtin_mul_overflow(extent - 1, stride, &steps);
            too_large |= __builtin_add_overflow(span, steps, &span);
        }
    }
    if (signs < 0) {
        refuse_negative(name, view);
        return view;
    }
    // Sums of the bytes of two tensors fit then, too.
    constexpr int64_t most = INT64_MAX / 16;
    if (too_large || nonzero_elements > most || span > most) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has a shape or strides too large for 64-bit addresses", name);
        return view;
    }
    if (view.width() > 1 && view.strides[rank - 1] != 1) {
        fail(HALYARD_INVALID_ARGUMENT,
             "%s has stride %lld on its last axis, but rows must be contiguous (stride 1): copy it to a compact tensor "
             "first",
             name, static_cast<long long>(view.strides[rank - 1]));
        return view;
    }
    if (empty) {
        return view;
    }
    if (!tensor.data) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has no data: its data pointer is null", name);
        return view;
    }
    uintptr_t begin, end;
    if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(tensor.data), tensor.byte_offset, &begin) ||
        __builtin_add_overflow(begin, span * element_bytes, &end)) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has a byte_offset, shape or strides that reach beyond all addresses", name);
        return view;
    }
    if ((static_cast<int64_t>(begin) & (element_bytes - 1)) != 0) {
        fail(HALYARD_INVALID_ARGUMENT,
             "%s has misaligned data: the address must be a multiple of the element's %d bytes", name,
             static_cast<int>(element_bytes));
        return view;
    }
    view.data = reinterpret_cast<char *>(begin);
    view.elements = nonzero_elements;
    view.span = span;
    return view;
}

void Checker::take_over(const Checker &other) {
    if (is_recorded_) {
        record_.add_all_of(other.record_);
    }
    if (!failed()) {
        status_ = other.status_;
    }
}

void Checker::begin_unusual() {
    if (!before_.is_default()) {
        FloatingPoint::by_default().set();
    }
    if (is_recorded_) {
        record_.begin();
    }
}

void Checker::end_unusual() {
    if (!before_.is_default()) {
        before_.set();
    }
    if (is_recorded_) {
        record_.end(function_, context_, status_);
    }
}

void Checker::record_quantized(const char *prefix, const char *name, const halyard_weights &weights) {
    if (weights.codes) {
        record_.add_quantized(prefix, name, weights.codes);
    }
}

bool Checker::placed_with_others(const char *name, const DLTensor &tensor) {
    if (!first_tensor_) {
        first_tensor_ = name;
        first_device_ = tensor.device;
        looks_at_devices_ = is_recorded_ | (type_of(tensor.device) != kDLCPU);
        if (!processor_has_kernels()) {
            fail(HALYARD_UNSUPPORTED,
                 "this processor lacks %s, the least that this library was built for; see its option HALYARD_ISAS",
                 halyard_isa_name(isas[0]));
            return false;
        }
    }
    const bool on_processor = type_of(tensor.device) == kDLCPU && !looks_at_devices_;
    return on_processor || placed_off_processor(name, tensor);
}

bool Checker::placed_off_processor(const char *name, const DLTensor &tensor) {
    const DLDevice device = tensor.device;
    if (is_recorded_) {
        record_.add(name, tensor);
    }
    const bool cuda_too = has_cuda && devices_ == Devices::cpu_or_cuda;
    if (type_of(device) != kDLCPU && !(cuda_too && type_of(device) == kDLCUDA)) {
        fail(HALYARD_UNSUPPORTED, "%s is on device type %d, but must be on the CPU (kDLCPU)%s", name, type_of(device),
             cuda_too ? " or a CUDA device (kDLCUDA)" : "");
    } else if (type_of(device) != type_of(first_device_) ||
               (type_of(device) == kDLCUDA && device.device_id != first_device_.device_id)) {
        const auto place = [](DLDevice d) { return DeviceName({type_of(d) == kDLCUDA, d.device_id}); };
        fail(HALYARD_UNSUPPORTED, "%s is on %s, but %s is on %s: all tensors of a call must be on one device", name,
             place(device).get(), first_tensor_, place(first_device_).get());
    }
    return !failed();
}

bool Checker::known_type(const char *name, DLDataType type, DType *dtype) {
    if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32) {
        *dtype = DType::f32;
    } else if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16) {
        *dtype = DType::f16;
    } else if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16) {
        *dtype = DType::bf16;
    } else {
        fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must be f32, f16 or bf16", name, TypeName(type).get());
        return false;
    }
    return built_type(name, *dtype);
}

bool Checker::built_type(const char *name, DType dtype) {
    if (!is_built(dtype)) {
        fail(HALYARD_UNSUPPORTED,
             "%s has dtype %s, which this library was built without; configure with -DHALYARD_DTYPES=" HALYARD_DTYPES
             ",%s",
             name, dtype_name(dtype), dtype_name(dtype));
    }
    return is_built(dtype);
}

void Checker::refuse_negative(const char *name, const View &view) {
    for (int i = view.rank - 1; i >= 0; i--) {
        const bool extent = view.shape[i] < 0;
        if (extent || view.strides[i] < 0) {
            fail(HALYARD_INVALID_ARGUMENT, "%s has %s %lld on axis %d, which must not be negative", name,
                 extent ? "extent" : "stride", static_cast<long long>(extent ? view.shape[i] : view.strides[i]), i);
        }
    }
}

View Checker::output(const char *name, const DLTensor *tensor) {
    const View view = this->tensor(name, tensor);
    if (failed() || view.empty()) {
        return view;
    }
    // Mostly each axis steps over all that the axes behind it cover.
    int64_t covered = 1;
    for (int i = view.rank - 1; i >= 0; i--) {
        if (view.shape[i] > 1) {
            if (view.strides[i] < covered) {
                refuse_self_overlap(view);
                break;
            }
            covered += (view.shape[i] - 1) * view.strides[i];
        }
    }
    return view;
}

void Checker::refuse_self_overlap(const View &view) {
    const Overlap answer = self_overlap(view);
    if (answer == Overlap::some) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has strides with which some of its elements share memory", view.name);
    } else if (answer == Overlap::undecided) {
        fail(HALYARD_INVALID_ARGUMENT,
             "%s has strides so intricate that its elements could not be shown not to share memory: use a compact "
             "tensor",
             view.name);
    }
}

View Checker::row_parameter(const char *name, const DLTensor *tensor, const View &x) {
    if (failed() || !tensor) {
        return View();
    }
    const View view = this->tensor(name, tensor);
    if (!failed() && (view.rank != 1 || view.width() != x.width())) {
        fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld], the width of %s, but has rank %d and width %lld",
             name, static_cast<long long>(x.width()), x.name, view.rank, static_cast<long long>(view.width()));
    }
    same_dtype_or_f32(x, view);
    return view;
}

void Checker::same_shape(const View &a, const View &b) {
    if (failed()) {
        return;
    }
    if (a.rank != b.rank) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have the shape of %s, which has rank %d", b.name,
             b.rank, a.name, a.rank);
        return;
    }
    for (int i = 0; i < a.rank; i++) {
        if (a.shape[i] != b.shape[i]) {
            fail(HALYARD_INVALID_ARGUMENT,
                 "%s has extent %lld on axis %d, but must have the shape of %s, which has %lld", b.name,
                 static_cast<long long>(b.shape[i]), i, a.name, static_cast<long long>(a.shape[i]));
            return;
        }
    }
}

void Checker::same_dtype(const View &a, const View &b) {
    if (!failed() && a.dtype != b.dtype) {
        fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must have the dtype of %s, which is %s", b.name,
             dtype_name(b.dtype), a.name, dtype_name(a.dtype));
    }
}

void Checker::same_dtype_or_f32(const View &a, const View &b) {
    if (!failed() && b.dtype != DType::f32 && a.dtype != DType::f32 && a.dtype != b.dtype) {
        fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must have the dtype of %s, which is %s, or f32", b.name,
             dtype_name(b.dtype), a.name, dtype_name(a.dtype));
    } else if (b.dtype != DType::f32) {
        same_dtype(a, b);
    }
}

void Checker::rows_not_empty(const View &x) {
    if (!failed() && x.width() == 0) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has an empty last axis: its rows need at least one feature", x.name);
    }
}

void Checker::overlapping(const View &output, const View &other, bool in_place) {
    if (failed()) {
        return;
    }
    if (in_place && same_view(output, other)) {
        return;
    }
    switch (overlap(output, other)) {
    case Overlap::none:
        return;
    case Overlap::undecided:
        fail(HALYARD_INVALID_ARGUMENT,
             "%s and %s have strides so intricate that they could not be shown not to overlap: copy one of them to a "
             "compact tensor first",
             output.name, other.name);
        return;
    case Overlap::some:
        fail(HALYARD_INVALID_ARGUMENT,
             in_place ? "%s overlaps %s without being the same view (same data, shape and strides)"
                      : "%s overlaps %s, which this function does not allow",
             output.name, other.name);
    }
}

void Checker::finite(const char *name, float value) {
    if (!failed() && !std::isfinite(value)) {
        fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be finite", name, static_cast<double>(value));
    }
}

void Checker::finite_not_negative(const char *name, float value) {
    if (!failed() && !(std::isfinite(value) && value >= 0.0f)) {
        fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be finite and not negative", name,
             static_cast<double>(value));
    }
}

void Checker::swish_beta(const char *name, float value) {
    const float magnitude = std::fabs(value);
    if (!failed() && !(value == 0.0f || (magnitude >= 1e-28f && magnitude <= 1e28f))) {
        fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be 0 or from 1e-28 to 1e28 in magnitude", name,
             static_cast<double>(value));
    }
}

void Checker::softcap(const char *name, float value) {
    if (!failed() && !(value == 0.0f || (value >= 1e-30f && value <= 1e30f))) {
        fail(HALYARD_INVALID_ARGUMENT, "%s is %g, but must be 0 or from 1e-30 to 1e30", name,
             static_cast<double>(value));
    }
}

}  // namespace halyard

const char *halyard_last_error(void) {
    return halyard::last_error;
}

const char *halyard_status_name(halyard_status status) {
    switch (status) {
    case HALYARD_OK:
        return "ok";
    case HALYARD_INVALID_ARGUMENT:
        return "invalid argument";
    case HALYARD_UNSUPPORTED:
        return "unsupported";
    case HALYARD_OUT_OF_MEMORY:
        return "out of memory";
    case HALYARD_NO_DEVICE:
        return "no device";
    case HALYARD_DEVICE_ERROR:
        return "device error";
    }
    return "unknown status";
}

const char *halyard_version(void) {
    return HALYARD_VERSION;
}
