// A call of an entry of the table of functions.
#ifndef HALYARD_PYTHON_CORE_CALL_H
#define HALYARD_PYTHON_CORE_CALL_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

/** Calls the function with what Python gave, `self` being a method's object; returns its outputs, None, or what it makes. Null with
 *  an exception. */
PyObject *call(const Function &function, PyObject *self, PyObject *const *given, Py_ssize_t positional,
               PyObject *names);

/** Sets what makes new arrays. It stays in use. */
void set_make_array(PyObject *make_array);

}  // namespace halyard::python

#endif
