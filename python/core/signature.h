// The signatures of functions, as inspect.signature() and stubs have them.
#ifndef HALYARD_PYTHON_CORE_SIGNATURE_H
#define HALYARD_PYTHON_CORE_SIGNATURE_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

inline constexpr int signature_room = 2400;

/** Signature and summary in the form that inspect.signature() reads, in `room`, which is returned. */
const char *document(const Function &function, char (&room)[signature_room]);

/** (name, signature with types, summary), for stubs. Null with an exception. */
PyObject *stub_of(const Function &function);

}  // namespace halyard::python

#endif
