// What Python calls: a method for every entry of the table of functions.
#ifndef HALYARD_PYTHON_CORE_CALL_H
#define HALYARD_PYTHON_CORE_CALL_H

#include "python_api.h"

namespace halyard::python {

/** Adds the functions to the module, which makes new arrays by `make_array(like, half, dtype)`. False with an exception. */
bool add_functions(PyObject *module, PyObject *make_array);

}  // namespace halyard::python

#endif
