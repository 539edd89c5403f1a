// The module halyard._core: functions, types, threads, and what the library has.
#include "call.h"
#include "context.h"
#include "halyard/config.h"
#include "methods.h"

namespace halyard::python {
namespace {

/** The parts of a text with commas between them. */
PyObject *split(const char *text) {
    PyObject *whole = PyUnicode_FromString(text), *comma = PyUnicode_FromString(",");
    PyObject *parts = whole && comma ? PyUnicode_Split(whole, comma, -1) : nullptr;
    Py_XDECREF(whole);
    Py_XDECREF(comma);
    return parts;
}

/** The names of the instruction sets that this processor runs, weakest first. */
PyObject *supported_isas() {
    PyObject *names = PyList_New(0);
    for (int i = 0; names != nullptr && i < halyard_isa_count(); i++) {
        if (halyard_isa_supported(halyard_isa_at(i))) {
            PyObject *name = PyUnicode_FromString(halyard_isa_name(halyard_isa_at(i)));
            if (name == nullptr || PyList_Append(names, name) != 0) {
                Py_CLEAR(names);
            }
            Py_XDECREF(name);
        }
    }
    return names;
}

PyObject *info(PyObject *, PyObject *) {
    const ContextUse context;
    return Py_BuildValue("{s:s,s:s,s:N,s:N,s:N,s:i}", "version", halyard_version(), "isa",
                         halyard_isa_name(halyard_context_isa(context.get())), "isas", supported_isas(), "dtypes",
                         split(HALYARD_DTYPES), "operations", split(HALYARD_PYTHON_OPERATIONS), "num_threads",
                         halyard_context_num_threads(context.get()));
}

PyMethodDef methods[] = {
    {"set_num_threads", set_num_threads, METH_O,
     "set_num_threads(number, /)\n--\n\nBounds the threads of later calls; 0 restores the default."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "get_num_threads()\n--\n\nThe bound in force."},
    {"info", info, METH_NOARGS,
     "info()\n--\n\nVersion, instruction set in use and those supported, dtypes and operations that are built in, "
     "threads."},
    {"_set_max_isa", set_max_isa, METH_O, nullptr},
    {"_set_products", set_products, METH_O, nullptr},
    {"_stubs", stubs, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "halyard._core", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

bool fill(PyObject *module) {
    PyObject *arrays = PyImport_ImportModule("halyard._arrays");
    PyObject *make = arrays != nullptr ? PyObject_GetAttrString(arrays, "make_array") : nullptr;
    const bool is_filled = make != nullptr && add_functions(module, make) &&
                           PyModule_AddStringConstant(module, "__version__", halyard_version()) == 0;
    Py_XDECREF(arrays);
    Py_XDECREF(make);
    return is_filled;
}

}  // namespace
}  // namespace halyard::python

PyMODINIT_FUNC PyInit__core() {
    PyObject *module = PyModule_Create(&halyard::python::definition);
    if (module != nullptr && !halyard::python::fill(module)) {
        Py_CLEAR(module);
    }
    return module;
}
