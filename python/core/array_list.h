// Several arrays as one argument of a function of the library.
#ifndef HALYARD_PYTHON_CORE_ARRAY_LIST_H
#define HALYARD_PYTHON_CORE_ARRAY_LIST_H

#include "array_view.h"

namespace halyard::python {

/** Views of the arrays of a list or a tuple, which stay where they are as long as this lives, whatever becomes of the list. */
class ArrayList {
public:
    ArrayList() = default;
    ArrayList(const ArrayList &) = delete;
    ArrayList &operator=(const ArrayList &) = delete;
    ~ArrayList();

    /** Once. False with an exception if it is neither list nor tuple, or something in it is no array. */
    bool open(PyObject *list, const char *function, const char *argument);

    const DLTensor *const *tensors() const { return tensors_; }
    int64_t count() const { return count_; }

private:
    PyObject *arrays_ = nullptr;
    ArrayView *views_ = nullptr;
    const DLTensor **tensors_ = nullptr;
    Py_ssize_t count_ = 0;  // of views that were made
};

}  // namespace halyard::python

#endif
