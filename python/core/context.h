// The context of all calls of the module, which another one replaces when a setting is changed.
#ifndef HALYARD_PYTHON_CORE_CONTEXT_H
#define HALYARD_PYTHON_CORE_CONTEXT_H

#include "halyard/halyard.h"
#include "model.h"
#include "python_api.h"

namespace halyard::python {

/** For one call: the context stays until the object goes. Made and destroyed with the GIL held. */
class ContextUse {
public:
    ContextUse();
    ContextUse(const ContextUse &) = delete;
    ContextUse &operator=(const ContextUse &) = delete;
    ~ContextUse();

    const halyard_context *get() const;

private:
    struct Shared *shared_;
};

/** Sets the exception of a status, with the sentence of halyard_last_error() or the failure's own, and returns null. */
PyObject *raise(halyard_status status, const Failure &failure = {});

PyObject *set_num_threads(PyObject *module, PyObject *number);
PyObject *get_num_threads(PyObject *module, PyObject *none);
/** Both take a name, or None for what the library does by itself, and return what was set before. */
PyObject *set_max_isa(PyObject *module, PyObject *name);
PyObject *set_products(PyObject *module, PyObject *name);

}  // namespace halyard::python

#endif
