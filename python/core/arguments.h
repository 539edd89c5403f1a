// Arguments of Python: which parameter each one is for, and those that are no arrays as values of C.
#ifndef HALYARD_PYTHON_CORE_ARGUMENTS_H
#define HALYARD_PYTHON_CORE_ARGUMENTS_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

/** Sets values[i] to what was given for parameter i, null where nothing was; None counts as nothing. A method has its object in
 *  values[0] before. False with an exception. */
bool bind(const Function &function, PyObject *const *given, Py_ssize_t positional, PyObject *names, PyObject **values);

/** The value, or the parameter's default where there is none. False with an exception, as the others. */
bool read_real(const Function &function, const Parameter &parameter, PyObject *value, double *real);
/** The value, within [low, high]. */
bool read_integer(const Function &function, const Parameter &parameter, PyObject *value, int64_t low, int64_t high,
                  int64_t *integer);
/** The place of the value among names. */
bool read_choice(const Function &function, const Parameter &parameter, PyObject *value, const Names &names,
                 int *choice);
/** The dtype that the value names. */
bool read_storage(const Function &function, const Parameter &parameter, PyObject *value, DLDataType *dtype);
/** Allocates the ints of a sequence by PyMem_Malloc. */
bool read_indices(const Function &function, const Parameter &parameter, PyObject *value, int64_t **indices,
                  Py_ssize_t *count);

/** The names of halyard_block_presets(). */
Names presets();

/** The names of dtypes, as storage has them. */
inline constexpr const char *dtype_names[] = {"f32", "f16", "bf16"};
inline constexpr Names dtypes = {dtype_names, 3};

}  // namespace halyard::python

#endif
