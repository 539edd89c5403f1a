// Binding of arguments to parameters, and numbers, names and sequences of ints as values of C.
#include "arguments.h"

namespace halyard::python {
namespace {

int find_parameter(const Function &function, PyObject *name) {
    for (int i = 0; i < function.count; i++) {
        if (is_given(function.parameters[i].kind) &&
            PyUnicode_CompareWithASCIIString(name, function.parameters[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

bool bind_names(const Function &function, PyObject *const *given, PyObject *names, PyObject **values) {
    const Py_ssize_t count = names != nullptr ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int index = find_parameter(function, name);
        if (index < 0 || values[index] != nullptr) {
            PyErr_Format(PyExc_TypeError,
                         index < 0 ? "halyard.%s: has no argument '%U'" : "halyard.%s: '%U' was given twice",
                         function.name, name);
            return false;
        }
        values[index] = given[i];
    }
    return true;
}

bool fail_with_type(const Function &function, const Parameter &parameter, const char *what, PyObject *value) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "halyard.%s: %s must be %s, not %R", function.name, parameter.name, what, value);
    return false;
}

/** Sets an exception that lists the names. */
bool fail_with_names(const Function &function, const Parameter &parameter, const Names &names, PyObject *value) {
    PyObject *list = PyUnicode_FromFormat("'%s'", names.names[0]);
    for (int i = 1; list != nullptr && i < names.count; i++) {
        PyObject *longer = PyUnicode_FromFormat(i + 1 < names.count ? "%U, '%s'" : "%U or '%s'", list, names.names[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list != nullptr) {
        PyErr_Format(PyExc_ValueError, "halyard.%s: %s must be %U, not %R", function.name, parameter.name, list, value);
    }
    Py_XDECREF(list);
    return false;
}

}  // namespace

Names presets() {
    const Names all = {halyard_block_presets(), 0};
    int count = 0;
    while (all.names != nullptr && all.names[count] != nullptr) {
        count++;
    }
    return {all.names, count};
}

bool bind(const Function &function, PyObject *const *given, Py_ssize_t positional, PyObject *names, PyObject **values) {
    const int first = function.role == Role::method ? 1 : 0;
    if (positional > function.positional - first) {
        PyErr_Format(PyExc_TypeError, "halyard.%s: takes at most %d positional arguments, and %zd were given",
                     function.name, function.positional - first, positional);
        return false;
    }
    for (Py_ssize_t i = 0; i < positional; i++) {
        values[first + i] = given[i];
    }
    if (!bind_names(function, given + positional, names, values)) {
        return false;
    }
    for (int i = 0; i < function.count; i++) {
        const Parameter &parameter = function.parameters[i];
        const bool is_missing = values[i] == nullptr || (values[i] == Py_None && !takes_none(parameter.kind));
        if (is_missing && is_required(parameter)) {
            PyErr_Format(PyExc_TypeError, "halyard.%s: %s is missing", function.name, parameter.name);
            return false;
        }
        values[i] = values[i] == Py_None ? nullptr : values[i];
    }
    return true;
}

bool read_real(const Function &function, const Parameter &parameter, PyObject *value, double *real) {
    *real = value != nullptr ? PyFloat_AsDouble(value) : parameter.value;
    return *real != -1 || !PyErr_Occurred() || fail_with_type(function, parameter, "a real number", value);
}

bool read_integer(const Function &function, const Parameter &parameter, PyObject *value, int64_t low, int64_t high,
                  int64_t *integer) {
    if (value == nullptr) {
        *integer = static_cast<int64_t>(parameter.value);
        return true;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == nullptr) {
        return fail_with_type(function, parameter, "an int", value);
    }
    int overflow = 0;
    *integer = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0 || *integer < low || *integer > high) {
        PyErr_Format(PyExc_ValueError, "halyard.%s: %s is %R, which is out of range", function.name, parameter.name,
                     value);
        return false;
    }
    return true;
}

bool read_choice(const Function &function, const Parameter &parameter, PyObject *value, const Names &names,
                 int *choice) {
    if (value == nullptr) {
        *choice = static_cast<int>(parameter.value);
        return true;
    }
    for (int i = 0; PyUnicode_Check(value) && i < names.count; i++) {
        if (PyUnicode_CompareWithASCIIString(value, names.names[i]) == 0) {
            *choice = i;
            return true;
        }
    }
    return fail_with_names(function, parameter, names, value);
}

bool read_storage(const Function &function, const Parameter &parameter, PyObject *value, DLDataType *dtype) {
    constexpr DLDataType all[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    int index = 0;
    if (!read_choice(function, parameter, value, dtypes, &index)) {
        return false;
    }
    *dtype = all[index];
    return true;
}

bool read_indices(const Function &function, const Parameter &parameter, PyObject *value, int64_t **indices,
                  Py_ssize_t *count) {
    // A tensor of PyTorch has a length and items, but is no sequence to PySequence_Check().
    *count = PyDict_Check(value) ? -1 : PyObject_Size(value);
    if (*count < 0) {
        return fail_with_type(function, parameter, "a sequence of ints", value);
    }
    *indices = static_cast<int64_t *>(PyMem_Malloc(sizeof(int64_t) * static_cast<size_t>(*count + 1)));
    if (*indices == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *index = PyLong_FromSsize_t(i);
        PyObject *item = index != nullptr ? PyObject_GetItem(value, index) : nullptr;
        Py_XDECREF(index);
        const bool is_read =
            item != nullptr && read_integer(function, parameter, item, INT64_MIN, INT64_MAX, &(*indices)[i]);
        Py_XDECREF(item);
        if (!is_read) {
            return false;
        }
    }
    return true;
}

}  // namespace halyard::python
