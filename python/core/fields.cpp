// The fields of a struct as a dict.
#include "fields.h"

namespace halyard::python {
namespace {

template<typename T>
T read(const void *field) {
    T value;
    memcpy(&value, field, sizeof value);
    return value;
}

PyObject *value_of(const Parameter &parameter, const void *field) {
    switch (parameter.kind) {
    case Kind::real:
        return PyFloat_FromDouble(static_cast<double>(read<float>(field)));
    case Kind::wide_real:
        return PyFloat_FromDouble(read<double>(field));
    case Kind::integer:
        return PyLong_FromLongLong(read<int64_t>(field));
    case Kind::boolean:
        return PyBool_FromLong(read<int>(field));
    case Kind::flag:
        return PyBool_FromLong((read<unsigned>(field) & static_cast<unsigned>(parameter.value)) != 0);
    case Kind::choice:
        return PyUnicode_FromString(parameter.names.names[read<int>(field)]);
    default:
        return nullptr;  // configurations have no others
    }
}

bool is_field(const Parameter &parameter, size_t bytes) {
    return parameter.place >= 0 && static_cast<size_t>(parameter.place) < bytes && parameter.kind != Kind::preset;
}

}  // namespace

PyObject *fields_of(const Function &constructor, const void *fields, size_t bytes) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict != nullptr && i < constructor.count; i++) {
        const Parameter &parameter = constructor.parameters[i];
        if (!is_field(parameter, bytes)) {
            continue;
        }
        PyObject *value = value_of(parameter, static_cast<const char *>(fields) + parameter.place);
        if (value == nullptr || PyDict_SetItemString(dict, parameter.name, value) != 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(value);
    }
    return dict;
}

}  // namespace halyard::python
