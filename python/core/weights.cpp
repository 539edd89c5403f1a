// What Weights have beside packing: what they are, their bytes, files, and the numbers of quantized ones.
#include <cstdlib>

#include "array_view.h"
#include "context.h"
#include "handle.h"

namespace halyard::python {
namespace {

halyard_weights_info info_of(PyObject *self) {
    halyard_weights_info info;
    halyard_weights_get_info(handle_of<halyard_weights>(self), &info);
    return info;
}

// ---- attributes ----

PyObject *get_inputs(PyObject *self, void *) {
    return PyLong_FromLongLong(info_of(self).in_features);
}

PyObject *get_outputs(PyObject *self, void *) {
    return PyLong_FromLongLong(info_of(self).out_features);
}

PyObject *get_dtype(PyObject *self, void *) {
    return PyUnicode_FromString(dtype_name(info_of(self).dtype));
}

PyObject *get_gated(PyObject *self, void *) {
    return PyBool_FromLong(info_of(self).gated);
}

PyObject *get_norm_folded(PyObject *self, void *) {
    return PyBool_FromLong(info_of(self).norm_folded);
}

PyObject *get_nbytes(PyObject *self, void *) {
    return PyLong_FromLongLong(info_of(self).bytes);
}

PyObject *get_quantization(PyObject *self, void *) {
    static const char *const kinds[] = {"plain", "zero", "min", "two_levels", "two_levels_signed"};
    const halyard_weights_info info = info_of(self);
    if (info.code_bits == 0) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("{s:i,s:i,s:s,s:s,s:N}", "bits", info.code_bits, "group", info.code_group, "scale_kind",
                         kinds[info.scale_kind], "scale_dtype", dtype_name(info.scale_dtype), "ordered",
                         PyBool_FromLong(info.ordered));
}

PyObject *represent(PyObject *self) {
    const halyard_weights_info info = info_of(self);
    const char *gated = info.gated ? ", gated" : "";
    if (info.code_bits == 0) {
        return PyUnicode_FromFormat("<halyard.Weights [%lld, %lld] %s%s>", static_cast<long long>(info.out_features),
                                    static_cast<long long>(info.in_features), dtype_name(info.dtype), gated);
    }
    return PyUnicode_FromFormat("<halyard.Weights [%lld, %lld] %d bits, groups of %d%s>",
                                static_cast<long long>(info.out_features), static_cast<long long>(info.in_features),
                                info.code_bits, info.code_group, gated);
}

// ---- files and bytes ----

/** The path as bytes of the file system; null with an exception. */
PyObject *path_bytes(PyObject *path) {
    PyObject *bytes = nullptr;
    return PyUnicode_FSConverter(path, &bytes) ? bytes : nullptr;
}

PyObject *save(PyObject *self, PyObject *path) {
    PyObject *bytes = path_bytes(path);
    HandleUse use;
    if (bytes == nullptr || !use.begin(self, false, "Weights.save", "self")) {
        Py_XDECREF(bytes);
        return nullptr;
    }
    PyThreadState *state = PyEval_SaveThread();
    const halyard_status status = halyard_weights_save(handle_of<halyard_weights>(self), PyBytes_AsString(bytes));
    PyEval_RestoreThread(state);
    Py_DECREF(bytes);
    if (status != HALYARD_OK) {
        return raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *load(PyObject *, PyObject *path) {
    PyObject *bytes = path_bytes(path);
    if (bytes == nullptr) {
        return nullptr;
    }
    halyard_weights *weights = nullptr;
    PyThreadState *state = PyEval_SaveThread();
    const halyard_status status = halyard_weights_load(PyBytes_AsString(bytes), &weights);
    PyEval_RestoreThread(state);
    Py_DECREF(bytes);
    return status == HALYARD_OK ? new_handle(Type::weights, weights) : raise(status);
}

PyObject *to_bytes(PyObject *self, PyObject *) {
    HandleUse use;
    if (!use.begin(self, false, "Weights.to_bytes", "self")) {
        return nullptr;
    }
    return PyBytes_FromStringAndSize(static_cast<const char *>(halyard_weights_data(handle_of<halyard_weights>(self))),
                                     info_of(self).bytes);
}

/** The bytes are copied, to where they are aligned. */
PyObject *from_bytes(PyObject *, PyObject *given) {
    BufferView buffer;
    if (PyObject_GetBuffer(given, &buffer, 0) != 0) {
        PyErr_Clear();
        return PyErr_Format(PyExc_TypeError, "halyard.Weights.from_bytes: data must be bytes, not %R", Py_TYPE(given));
    }
    const Py_ssize_t bytes = buffer.len;
    void *memory = aligned_alloc(64, (static_cast<size_t>(bytes) + 64) / 64 * 64);
    if (memory == nullptr) {
        PyBuffer_Release(&buffer);
        return PyErr_NoMemory();
    }
    halyard_weights *weights = nullptr;
    PyThreadState *state = PyEval_SaveThread();
    memcpy(memory, buffer.buf, static_cast<size_t>(bytes));
    const halyard_status status = halyard_weights_from_memory(memory, bytes, &weights);
    PyEval_RestoreThread(state);
    PyBuffer_Release(&buffer);
    if (status != HALYARD_OK) {
        free(memory);
        return raise(status);
    }
    return new_handle(Type::weights, weights, memory);
}

/** For pickle and copy. */
PyObject *reduce(PyObject *self, PyObject *) {
    PyObject *from = PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(self)), "from_bytes");
    PyObject *bytes = from != nullptr ? to_bytes(self, nullptr) : nullptr;
    if (bytes == nullptr) {
        Py_XDECREF(from);
        return nullptr;
    }
    return Py_BuildValue("(N(N))", from, bytes);
}

// ---- the numbers of quantized weights ----

/** Columns of a quantized matrix as products have them: rows of ones and zeros times it. */
class Columns {
public:
    Columns(const halyard_weights *weights, const halyard_weights_info &info, bool is_gate)
        : weights_(weights), inputs_(info.in_features), outputs_(info.out_features), is_gate_(is_gate),
          is_gated_(info.gated != 0),
          memory_(static_cast<float *>(calloc(static_cast<size_t>(inputs_ + 3 * outputs_), at_once * sizeof(float)))) {}
    Columns(const Columns &) = delete;
    Columns &operator=(const Columns &) = delete;
    ~Columns() { free(memory_); }

    bool has_memory() const { return memory_ != nullptr; }

    /** Writes [outputs, inputs]. */
    halyard_status write(const halyard_context *context, float *numbers) {
        halyard_status status = HALYARD_OK;
        for (int64_t first = 0; first < inputs_ && status == HALYARD_OK; first += at_once) {
            const int64_t count = inputs_ - first < at_once ? inputs_ - first : at_once;
            status = multiply(context, first, count);
            for (int64_t i = 0; i < outputs_; i++) {
                for (int64_t j = 0; j < count; j++) {
                    numbers[i * inputs_ + first + j] = result()[j * outputs_ + i];
                }
            }
        }
        return status;
    }

private:
    static constexpr int64_t at_once = 64;

    float *y() { return memory_ + at_once * inputs_; }
    float *result() { return y() + at_once * outputs_ * (!is_gated_ ? 0 : is_gate_ ? 1 : 2); }

    halyard_status multiply(const halyard_context *context, int64_t first, int64_t count) {
        int64_t x_shape[] = {count, inputs_}, y_shape[] = {count, outputs_};
        DLTensor x = f32(memory_, x_shape), product = f32(y(), y_shape);
        DLTensor gate = f32(y() + at_once * outputs_, y_shape), up = f32(y() + 2 * at_once * outputs_, y_shape);
        halyard_linear_options options{};
        options.sums = is_gated_ ? &gate : nullptr;
        options.sums_up = is_gated_ ? &up : nullptr;
        set_ones(first, count, 1);
        const halyard_status status = halyard_linear(context, &x, weights_, &options, &product);
        set_ones(first, count, 0);
        return status;
    }

    void set_ones(int64_t first, int64_t count, float one) {
        for (int64_t j = 0; j < count; j++) {
            memory_[j * inputs_ + first + j] = one;
        }
    }

    static DLTensor f32(float *data, int64_t *shape) {
        return {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    }

    const halyard_weights *weights_;
    int64_t inputs_, outputs_;
    bool is_gate_, is_gated_;
    float *memory_;
};

/** A new array of NumPy with one of the matrices. */
PyObject *matrix(PyObject *self, const halyard_weights_info &info, bool is_gate) {
    PyObject *arrays = PyImport_ImportModule("halyard._arrays");
    PyObject *array = arrays == nullptr
                          ? nullptr
                          : PyObject_CallMethod(arrays, "make_matrix", "LL", static_cast<long long>(info.out_features),
                                                static_cast<long long>(info.in_features));
    Py_XDECREF(arrays);
    ArrayView view;
    Columns columns(handle_of<halyard_weights>(self), info, is_gate);
    if (array == nullptr || !view.open(array, {"Weights.dequantize", "out", true})) {
        Py_XDECREF(array);
        return nullptr;
    }
    if (!columns.has_memory()) {
        Py_DECREF(array);
        return PyErr_NoMemory();
    }
    const ContextUse context;
    PyThreadState *state = PyEval_SaveThread();
    const halyard_status status = columns.write(context.get(), static_cast<float *>(view.tensor()->data));
    PyEval_RestoreThread(state);
    if (status != HALYARD_OK) {
        Py_DECREF(array);
        return raise(status);
    }
    return array;
}

PyObject *dequantize(PyObject *self, PyObject *) {
    const halyard_weights_info info = info_of(self);
    if (info.code_bits == 0) {
        PyErr_SetString(PyExc_ValueError, "halyard.Weights.dequantize: these weights are not quantized");
        return nullptr;
    }
    HandleUse use;
    PyObject *array = use.begin(self, false, "Weights.dequantize", "self") ? matrix(self, info, false) : nullptr;
    if (array == nullptr || !info.gated) {
        return array;
    }
    PyObject *gate = matrix(self, info, true);
    if (gate == nullptr) {
        Py_DECREF(array);
        return nullptr;
    }
    return Py_BuildValue("(NN)", array, gate);
}

PyMethodDef methods[] = {
    {"save", save, METH_O, "save($self, path, /)\n--\n\nWrites the packed form to a file, which it replaces at once."},
    {"load", load, METH_O | METH_CLASS,
     "load(path, /)\n--\n\nMaps a file that save() wrote, which must not be changed meanwhile."},
    {"to_bytes", to_bytes, METH_NOARGS, "to_bytes($self)\n--\n\nThe packed form."},
    {"from_bytes", from_bytes, METH_O | METH_CLASS,
     "from_bytes(data, /)\n--\n\nWeights of what to_bytes() gave, which is copied."},
    {"dequantize", dequantize, METH_NOARGS,
     "dequantize($self)\n--\n\nThe numbers of quantized weights, an f32 array of NumPy; a pair with the gate's of "
     "gated "
     "ones."},
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"inputs", get_inputs, nullptr, "The width of what they are multiplied with.", nullptr},
    {"outputs", get_outputs, nullptr, "The width of the product.", nullptr},
    {"dtype", get_dtype, nullptr, "Type of the matrix: 'f32', 'f16' or 'bf16'; f32 of quantized weights.", nullptr},
    {"gated", get_gated, nullptr, "Whether there is a gate beside the matrix.", nullptr},
    {"norm_folded", get_norm_folded, nullptr, "Whether a norm's weight or bias is folded.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of the packed form.", nullptr},
    {"quantization", get_quantization, nullptr, "None, or bits, group and scales of codes.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const Members weights_members = {methods, attributes, represent, nullptr, nullptr};

}  // namespace halyard::python
