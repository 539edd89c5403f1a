// The fields of a struct as a dict, by the parameters that set them.
#ifndef HALYARD_PYTHON_CORE_FIELDS_H
#define HALYARD_PYTHON_CORE_FIELDS_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

/** What a constructor's arguments would be, of those that are fields of the struct with which its options begin. Null with an
 *  exception. */
PyObject *fields_of(const Function &constructor, const void *fields, size_t bytes);

}  // namespace halyard::python

#endif
