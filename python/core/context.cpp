// The context of all calls, the number of its threads, and the exceptions of calls.
#include "context.h"

#include <climits>

namespace halyard::python {

/** A context and how many calls are using it. The GIL guards it. */
struct Shared {
    halyard_context *context;  // null: the library's default
    int uses;
};

namespace {

Shared default_context = {nullptr, 0};
Shared *current = &default_context;

void free_if_unused(Shared *shared) {
    if (shared != &default_context && shared != current && shared->uses == 0) {
        halyard_context_destroy(shared->context);
        PyMem_Free(shared);
    }
}

}  // namespace

ContextUse::ContextUse() : shared_(current) {
    shared_->uses++;
}

ContextUse::~ContextUse() {
    shared_->uses--;
    free_if_unused(shared_);
}

const halyard_context *ContextUse::get() const {
    return shared_->context;
}

PyObject *raise(halyard_status status, const Failure &failure) {
    const char *sentence = failure.sentence != nullptr ? failure.sentence : halyard_last_error();
    if (failure.error_number != 0) {
        PyObject *arguments = Py_BuildValue("(is)", failure.error_number, sentence);
        if (arguments != nullptr) {
            PyErr_SetObject(PyExc_OSError, arguments);
            Py_DECREF(arguments);
        }
        return nullptr;
    }
    PyObject *exception = status == HALYARD_INVALID_ARGUMENT ? PyExc_ValueError
                          : status == HALYARD_UNSUPPORTED    ? PyExc_TypeError
                          : status == HALYARD_OUT_OF_MEMORY  ? PyExc_MemoryError
                                                             : PyExc_RuntimeError;
    PyErr_SetString(exception, sentence);
    return nullptr;
}

PyObject *set_num_threads(PyObject *, PyObject *number) {
    if (!PyLong_Check(number)) {
        return PyErr_Format(PyExc_TypeError, "halyard.set_num_threads: number must be an int, not %R", number);
    }
    int overflow = 0;
    const long threads = PyLong_AsLongAndOverflow(number, &overflow);
    auto *made = static_cast<Shared *>(PyMem_Malloc(sizeof(Shared)));
    if (made == nullptr) {
        return PyErr_NoMemory();
    }
    *made = {nullptr, 0};
    halyard_status status = halyard_context_create(&made->context);
    if (status == HALYARD_OK) {
        status = halyard_context_set_num_threads(made->context, static_cast<int>(threads > INT_MAX ? INT_MAX
                                                                                 : threads < -1    ? -1
                                                                                                   : threads));
    }
    if (status != HALYARD_OK) {
        free_if_unused(made);
        return raise(status);
    }
    Shared *before = current;
    current = made;
    free_if_unused(before);
    Py_RETURN_NONE;
}

PyObject *get_num_threads(PyObject *, PyObject *) {
    return PyLong_FromLong(halyard_context_num_threads(current->context));
}

}  // namespace halyard::python
