// What Python calls: a function, a method or a type for every entry of the table of functions.
#ifndef HALYARD_PYTHON_CORE_METHODS_H
#define HALYARD_PYTHON_CORE_METHODS_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

/** Adds functions and types to the module, which makes new arrays by `make_array(like, dropped, last, function, dtype)`. False with an exception. */
bool add_functions(PyObject *module, PyObject *make_array);

/** The constructor of a type that has one. */
const Function &constructor_of(Type type);

/** A list of what stub_of() says of each entry. */
PyObject *stubs(PyObject *module, PyObject *none);

}  // namespace halyard::python

#endif
