// See array_list.h.
#include "array_list.h"

#include <cstdio>
#include <new>

namespace halyard::python {

ArrayList::~ArrayList() {
    for (Py_ssize_t i = 0; i < count_; i++) {
        views_[i].~ArrayView();
    }
    PyMem_Free(views_);
    PyMem_Free(tensors_);
    Py_XDECREF(arrays_);
}

bool ArrayList::open(PyObject *list, const char *function, const char *argument) {
    if (!PyList_Check(list) && !PyTuple_Check(list)) {
        PyErr_Format(PyExc_TypeError, "halyard.%s: %s must be a list or a tuple of arrays, not %R", function, argument,
                     Py_TYPE(list));
        return false;
    }
    arrays_ = PySequence_Tuple(list);  // others may change the list while the GIL is released
    if (arrays_ == nullptr) {
        return false;
    }
    const Py_ssize_t count = PyTuple_Size(arrays_);
    const auto room = static_cast<size_t>(count) + 1;
    views_ = static_cast<ArrayView *>(PyMem_Malloc(room * sizeof(ArrayView)));
    tensors_ = static_cast<const DLTensor **>(PyMem_Malloc(room * sizeof *tensors_));
    if (views_ == nullptr || tensors_ == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    while (count_ < count) {
        char name[64];
        snprintf(name, sizeof name, "%s[%lld]", argument, static_cast<long long>(count_));
        auto *view = new (views_ + count_) ArrayView;
        if (!view->open(PyTuple_GetItem(arrays_, count_++), {function, name, false})) {
            return false;
        }
        tensors_[count_ - 1] = view->tensor();
    }
    return true;
}

}  // namespace halyard::python
