// What a KVCache was made with, and how much of it is filled.
#include "handle.h"

namespace halyard::python {
namespace {

halyard_kv_cache_options options_of(PyObject *self) {
    halyard_kv_cache_options options;
    halyard_kv_cache_get_options(handle_of<halyard_kv_cache>(self), &options);
    return options;
}

PyObject *get_n_layers(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).n_layers);
}

PyObject *get_n_sequences(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).n_sequences);
}

PyObject *get_n_kv_heads(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).n_kv_heads);
}

PyObject *get_head_dim(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).head_dim);
}

PyObject *get_max_positions(PyObject *self, void *) {
    return PyLong_FromLongLong(options_of(self).max_positions);
}

PyObject *get_dtype(PyObject *self, void *) {
    return PyUnicode_FromString(dtype_name(options_of(self).dtype));
}

PyObject *get_nbytes(PyObject *self, void *) {
    const halyard_kv_cache_options options = options_of(self);
    int64_t bytes = 0;
    halyard_kv_cache_size(&options, &bytes);
    return PyLong_FromLongLong(bytes);
}

/** Counts the first layer and sequence. */
Py_ssize_t first_length(PyObject *self) {
    return halyard_kv_cache_length(handle_of<halyard_kv_cache>(self), 0, 0);
}

PyObject *length(PyObject *self, PyObject *positional, PyObject *named) {
    static char layer_name[] = "layer", sequence_name[] = "sequence";
    static char *names[] = {layer_name, sequence_name, nullptr};
    long long layer = 0, sequence = 0;
    if (!PyArg_ParseTupleAndKeywords(positional, named, "|LL:halyard.KVCache.length", names, &layer, &sequence)) {
        return nullptr;
    }
    const int64_t filled = halyard_kv_cache_length(handle_of<halyard_kv_cache>(self), layer, sequence);
    if (filled < 0) {
        return PyErr_Format(PyExc_ValueError, "halyard.KVCache.length: there is no layer %lld with a sequence %lld",
                            layer, sequence);
    }
    return PyLong_FromLongLong(filled);
}

PyObject *represent(PyObject *self) {
    const halyard_kv_cache_options options = options_of(self);
    return PyUnicode_FromFormat("<halyard.KVCache of %lld layers, %lld sequences, %lld positions, %s>",
                                static_cast<long long>(options.n_layers), static_cast<long long>(options.n_sequences),
                                static_cast<long long>(options.max_positions), dtype_name(options.dtype));
}

PyMethodDef methods[] = {
    {"length", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(length)), METH_VARARGS | METH_KEYWORDS,
     "length($self, layer=0, sequence=0)\n--\n\nThe positions of a sequence that are filled in a layer."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"n_layers", get_n_layers, nullptr, "Layers.", nullptr},
    {"n_sequences", get_n_sequences, nullptr, "Sequences, which are independent of each other.", nullptr},
    {"n_kv_heads", get_n_kv_heads, nullptr, "Heads of keys and values.", nullptr},
    {"head_dim", get_head_dim, nullptr, "Features of a head.", nullptr},
    {"max_positions", get_max_positions, nullptr, "Positions that there is room for in each sequence.", nullptr},
    {"dtype", get_dtype, nullptr, "What is stored: 'f32', 'f16' or 'bf16'.", nullptr},
    {"nbytes", get_nbytes, nullptr, "The memory that it takes when it is full.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

const Members kv_cache_members = {methods, attributes, represent, first_length, nullptr};

}  // namespace halyard::python
