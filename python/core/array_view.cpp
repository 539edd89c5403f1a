// Arrays by the buffer protocol, NumPy's array interface and DLPack.
#include "array_view.h"

#include <cstring>

namespace halyard::python {
namespace {

static_assert(sizeof(Py_ssize_t) == sizeof(intptr_t) && sizeof(intptr_t) == sizeof(int64_t));

constexpr DLDataType bfloat16 = {kDLBfloat, 16, 1};

bool fail(PyObject *exception, const Argument &argument, const char *what) {
    PyErr_Format(exception, "halyard.%s: %s %s", argument.function, argument.name, what);
    return false;
}

/** Replaces the exception by one that names the argument and has the first line of the other. */
bool fail_with_current(PyObject *exception, const Argument &argument, const char *what) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *text = PyObject_Str(value != nullptr ? value : type);
    PyObject *lines = text != nullptr ? PyUnicode_Splitlines(text, 0) : nullptr;
    PyErr_Format(exception, "halyard.%s: %s %s: %S", argument.function, argument.name, what,
                 lines != nullptr && PyList_Size(lines) > 0 ? PyList_GetItem(lines, 0) : type);
    Py_XDECREF(text);
    Py_XDECREF(lines);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return false;
}

/** The type of a format of Python's module struct; lanes 0 if it is none of a number, or has its bytes in another order. */
DLDataType dtype_of(const char *format, Py_ssize_t bytes) {
    format = format ? format : "B";
    format += strchr("@=<", *format) != nullptr && *format != 0;
    const auto bits = static_cast<uint8_t>(8 * bytes);
    if (format[0] == 0 || format[1] != 0) {
        return {};
    }
    return strchr("efd", *format)      ? DLDataType{kDLFloat, bits, 1}
           : strchr("bhilqn", *format) ? DLDataType{kDLInt, bits, 1}
           : strchr("BHILQN", *format) ? DLDataType{kDLUInt, bits, 1}
                                       : DLDataType{};
}

PyObject *known_bfloat16 = nullptr;  // the dtype of the last array for which learn_bfloat16() was true

/** Whether its dtype is that object, which takes less long to see than to read its name. */
bool has_known_bfloat16(PyObject *array) {
    if (known_bfloat16 == nullptr) {
        return false;
    }
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyErr_Clear();
    Py_XDECREF(dtype);
    return dtype == known_bfloat16;
}

/** Whether its dtype is named bfloat16. */
bool learn_bfloat16(PyObject *array) {
    PyObject *dtype = PyObject_GetAttrString(array, "dtype");
    PyObject *name = dtype != nullptr ? PyObject_GetAttrString(dtype, "name") : nullptr;
    PyErr_Clear();
    const bool is = name != nullptr && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    if (is) {
        Py_XDECREF(known_bfloat16);
        known_bfloat16 = dtype;
    } else {
        Py_XDECREF(dtype);
    }
    return is;
}

/** DLPack's C functions of version 1 for a type, which live as long as the process; null if it has none. */
const ExchangeApi *find_exchange(PyTypeObject *type) {
    PyObject *capsule = PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__");
    auto *api =
        capsule == nullptr ? nullptr : static_cast<ExchangeApi *>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
    Py_XDECREF(capsule);
    PyErr_Clear();
    while (api != nullptr && api->version.major > 1) {
        api = api->previous;
    }
    return api != nullptr && api->version.major == 1 && api->borrow != nullptr ? api : nullptr;
}

/** Looks among the types of earlier calls, of which the first few are remembered. */
const ExchangeApi *exchange_of(PyTypeObject *type) {
    struct Known {
        PyTypeObject *type;
        const ExchangeApi *api;
    };
    static Known known[8];
    static int count = 0;
    for (int i = 0; i < count; i++) {
        if (known[i].type == type) {
            return known[i].api;
        }
    }
    const ExchangeApi *api = find_exchange(type);
    if (count < 8) {
        Py_INCREF(type);  // so that no other type comes to lie there
        known[count++] = {type, api};
    }
    return api;
}

/** Calls array.__dlpack__(), for a tensor of version 1 if that is understood. */
PyObject *export_capsule(PyObject *array) {
    PyObject *method = PyObject_GetAttrString(array, "__dlpack__");
    if (method == nullptr) {
        return nullptr;
    }
    PyObject *none = PyTuple_New(0), *version = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    PyObject *capsule = none && version ? PyObject_Call(method, none, version) : nullptr;
    if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_Call(method, none, nullptr);
    }
    Py_XDECREF(none);
    Py_XDECREF(version);
    Py_DECREF(method);
    return capsule;
}

}  // namespace

ArrayView::~ArrayView() {
    if (has_buffer_) {
        PyBuffer_Release(&buffer_);
    }
    Py_XDECREF(capsule_);
}

bool ArrayView::open(PyObject *array, const Argument &argument) {
    if (PyObject_CheckBuffer(array)) {
        const bool is_known = has_known_bfloat16(array);
        has_buffer_ = !is_known && PyObject_GetBuffer(array, &buffer_, strides_and_format) == 0;
        if (has_buffer_) {
            return from_buffer(array, argument);
        }
        PyErr_Clear();  // NumPy has no format for the types of ml_dtypes
        capsule_ = is_known || learn_bfloat16(array) ? PyObject_GetAttrString(array, "__array_struct__") : nullptr;
        if (capsule_ != nullptr) {
            return from_array_interface(argument);
        }
        PyErr_Clear();
    }
    const ExchangeApi *api = exchange_of(Py_TYPE(array));
    return api != nullptr ? from_exchange(*api, array, argument) : from_capsule(array, argument);
}

bool ArrayView::from_buffer(PyObject *array, const Argument &argument) {
    if (argument.is_output && buffer_.readonly) {
        return fail(PyExc_ValueError, argument, "is read-only");
    }
    const DLDataType dtype = dtype_of(buffer_.format, buffer_.itemsize);
    if (dtype.lanes == 0) {
        PyObject *named = PyObject_GetAttrString(array, "dtype");  // NumPy's names are better known than the buffer's
        PyErr_Clear();
        PyObject *shown = named != nullptr ? named : PyUnicode_FromString(buffer_.format);
        PyErr_Format(PyExc_TypeError, "halyard.%s: %s has elements of dtype %S, not f32, f16 or bf16",
                     argument.function, argument.name, shown);
        Py_XDECREF(shown);
        return false;
    }
    return set(buffer_.buf, buffer_.ndim, buffer_.shape, buffer_.strides, dtype, argument);
}

bool ArrayView::from_array_interface(const Argument &argument) {
    const auto *array_struct = static_cast<ArrayInterface *>(PyCapsule_GetPointer(capsule_, nullptr));
    if (array_struct == nullptr) {
        return fail_with_current(PyExc_TypeError, argument, "has no memory that can be read");
    }
    if (argument.is_output && !(array_struct->flags & array_writeable)) {
        return fail(PyExc_ValueError, argument, "is read-only");
    }
    if (!(array_struct->flags & array_not_swapped)) {
        return fail(PyExc_TypeError, argument, "has its bytes in another order than the processor's");
    }
    return set(array_struct->data, array_struct->rank, array_struct->shape, array_struct->strides, bfloat16, argument);
}

bool ArrayView::from_exchange(const ExchangeApi &api, PyObject *array, const Argument &argument) {
    // The C functions do not ask, as __dlpack__() does.
    PyObject *gradient = PyObject_GetAttrString(array, "requires_grad");
    const bool needs_gradient = gradient == Py_True;
    Py_XDECREF(gradient);
    PyErr_Clear();
    if (needs_gradient) {
        return fail(PyExc_ValueError, argument, "requires a gradient, which calls do not record: pass its detach()");
    }
    return api.borrow(array, &tensor_) == 0 || fail_with_current(PyExc_TypeError, argument, "has no memory to be read");
}

bool ArrayView::from_capsule(PyObject *array, const Argument &argument) {
    capsule_ = export_capsule(array);
    if (capsule_ == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Format(PyExc_TypeError, "halyard.%s: %s is no array: %R has neither a buffer nor __dlpack__()",
                     argument.function, argument.name, Py_TYPE(array));
        return false;
    }
    if (capsule_ == nullptr) {
        return fail_with_current(PyExc_TypeError, argument, "is not given by its __dlpack__()");
    }
    if (PyCapsule_IsValid(capsule_, "dltensor")) {
        tensor_ = static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule_, "dltensor"))->dl_tensor;
        return true;
    }
    const auto *versioned = static_cast<VersionedTensor *>(PyCapsule_GetPointer(capsule_, "dltensor_versioned"));
    if (versioned == nullptr || versioned->version.major != 1) {
        PyErr_Clear();
        return fail(PyExc_TypeError, argument, "gives a DLPack capsule of a version that is not known here");
    }
    if (argument.is_output && (versioned->flags & 1)) {
        return fail(PyExc_ValueError, argument, "is read-only");
    }
    tensor_ = versioned->tensor;
    return true;
}

bool ArrayView::set(void *data, int rank, const intptr_t *shape, const intptr_t *byte_strides, DLDataType dtype,
                    const Argument &argument) {
    tensor_ = {data, {kDLCPU, 0}, rank, dtype, shape_, strides_, 0};
    const intptr_t bytes = dtype.bits / 8;
    for (int axis = 0; axis < rank && axis < most_axes; axis++) {
        if (byte_strides[axis] % bytes != 0) {
            return fail(PyExc_ValueError, argument, "has strides that are no whole numbers of elements");
        }
        shape_[axis] = shape[axis];
        strides_[axis] = byte_strides[axis] / bytes;
    }
    return true;
}

}  // namespace halyard::python
