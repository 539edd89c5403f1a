// Argument checks and the per-thread message of the last failure.
#include "check.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "dispatch.h"
#include "place.h"

namespace halyard {
namespace {

// initial-exec would be faster but limits dlopen; messages are written on failures only.
thread_local char last_error[512] = "";

/** Whether the rows of two views lie in memory alike, whatever their widths. */
bool same_rows(const View &a, const View &b) {
    if (a.rank != b.rank) {
        return false;
    }
    for (int i = 0; i < a.rank - 1; i++) {
        if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) {
            return false;
        }
    }
    return true;
}

/** Whether two views whose rows lie alike, such as two column ranges of one matrix, interleave without
 *  touching: their distance, reduced axis by axis from the widest stride, leaves both clear of each other's rows. */
bool interleave(const View &a, const View &b, int64_t distance) {
    int64_t pitch = 0;
    for (int i = 0; i < a.rank - 1; i++) {
        if (a.shape[i] > 1 && (pitch == 0 || a.strides[i] < pitch)) {
            pitch = a.strides[i];
        }
    }
    if (pitch == 0) {
        return false;
    }
    for (int i = 0; i < a.rank - 1; i++) {
        if (a.shape[i] > 1 && a.strides[i] % pitch != 0) {
            return false;
        }
    }
    const int64_t offset = ((distance % pitch) + pitch) % pitch;
    return offset >= a.width() && pitch - offset >= b.width();
}

}  // namespace

halyard_status Checker::fail(halyard_status status, const char *format, ...) {
    if (!failed()) {
        const int prefix = snprintf(last_error, sizeof(last_error), "%s: ", function_);
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
    View view;
    view.name = name;
    if (!not_null(name, tensor) || !placed_with_others(name, tensor->device) ||
        !known_type(name, tensor->dtype, &view.dtype)) {
        return view;
    }
    view.on_cuda = tensor->device.device_type == kDLCUDA;
    view.device_id = tensor->device.device_id;
    const int rank = tensor->ndim;
    if (rank < 1 || rank > max_rank) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have rank 1 to %d", name, rank, max_rank);
        return view;
    }
    if (!tensor->shape) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has no shape: its shape pointer is null", name);
        return view;
    }

    view.rank = rank;
    int64_t nonzero_elements = 1, span = 1, signs = 0;
    bool empty = false, too_large = false;
    for (int i = rank - 1; i >= 0; i--) {
        const int64_t extent = tensor->shape[i];
        const int64_t stride = tensor->strides ? tensor->strides[i] : nonzero_elements;
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
    if (too_large || nonzero_elements > INT64_MAX / 8 || span > INT64_MAX / 8) {
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
    if (!tensor->data) {
        fail(HALYARD_INVALID_ARGUMENT, "%s has no data: its data pointer is null", name);
        return view;
    }
    char *data = static_cast<char *>(tensor->data) + tensor->byte_offset;
    if ((reinterpret_cast<uintptr_t>(data) & (size_of(view.dtype) - 1)) != 0) {
        fail(HALYARD_INVALID_ARGUMENT,
             "%s has misaligned data: the address must be a multiple of the element's %d bytes", name,
             static_cast<int>(size_of(view.dtype)));
        return view;
    }
    view.data = data;
    view.elements = nonzero_elements;
    view.span = span;
    return view;
}

bool Checker::placed_with_others(const char *name, DLDevice device) {
    if (!first_tensor_) {
        first_tensor_ = name;
        first_device_ = device;
        if (!processor_has_kernels()) {
            fail(HALYARD_UNSUPPORTED, "this processor lacks %s, the least that the kernels need",
                 halyard_isa_name(isas[0]));
            return false;
        }
    }
    const bool on_processor = device.device_type == kDLCPU && first_device_.device_type == kDLCPU;
    return on_processor || placed_off_processor(name, device);
}

bool Checker::placed_off_processor(const char *name, DLDevice device) {
    const bool cuda_too = has_cuda && devices_ == Devices::cpu_or_cuda;
    if (device.device_type != kDLCPU && !(cuda_too && device.device_type == kDLCUDA)) {
        fail(HALYARD_UNSUPPORTED, "%s is on device type %d, but must be on the CPU (kDLCPU)%s", name,
             static_cast<int>(device.device_type), cuda_too ? " or a CUDA device (kDLCUDA)" : "");
    } else if (device.device_type != first_device_.device_type ||
               (device.device_type == kDLCUDA && device.device_id != first_device_.device_id)) {
        const auto place = [](DLDevice d) { return PlaceName({d.device_type == kDLCUDA, d.device_id}); };
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
        fail(HALYARD_UNSUPPORTED, "%s has dtype code %d, %d bits, %d lanes, but must be f32, f16 or bf16 with one lane",
             name, type.code, type.bits, type.lanes);
        return false;
    }
    return true;
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
    if (view.span == view.elements) {
        return view;  // compact, in some order of axes
    }
    // Each axis, from the smallest stride up, must step over all that the axes below it cover.
    bool seen[max_rank] = {};
    int64_t covered = 1;
    for (int n = 0; n < view.rank; n++) {
        int next = -1;
        for (int i = 0; i < view.rank; i++) {
            if (!seen[i] && (next < 0 || view.strides[i] < view.strides[next] ||
                             (view.strides[i] == view.strides[next] && view.shape[i] < view.shape[next]))) {
                next = i;
            }
        }
        seen[next] = true;
        if (view.shape[next] > 1) {
            if (view.strides[next] < covered) {
                fail(HALYARD_INVALID_ARGUMENT, "%s has stride %lld on axis %d, which makes its elements share memory",
                     name, static_cast<long long>(view.strides[next]), next);
                return view;
            }
            covered += (view.shape[next] - 1) * view.strides[next];
        }
    }
    return view;
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
    same_dtype(x, view);
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
    constexpr const char *names[] = {
#define HALYARD_DTYPE(name) #name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    };
    if (!failed() && a.dtype != b.dtype) {
        fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must have the dtype of %s, which is %s", b.name,
             names[static_cast<int>(b.dtype)], a.name, names[static_cast<int>(a.dtype)]);
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
    if (size_of(output.dtype) == size_of(other.dtype) && same_rows(output, other)) {
        const int64_t distance = (other.data - output.data) / size_of(output.dtype);
        if ((in_place && distance == 0 && output.width() == other.width()) || interleave(output, other, distance)) {
            return;
        }
    }
    fail(HALYARD_INVALID_ARGUMENT,
         in_place ? "%s overlaps %s without being the same view (same data, shape and strides)"
                  : "%s overlaps %s, which this function does not allow",
         output.name, other.name);
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
