// An array of Python as the DLTensor that a function of the library takes.
#ifndef HALYARD_PYTHON_CORE_ARRAY_VIEW_H
#define HALYARD_PYTHON_CORE_ARRAY_VIEW_H

#include "exchange.h"
#include "python_api.h"

namespace halyard::python {

/** For messages: what is called, and which of its arguments is meant. */
struct Argument {
    const char *function;
    const char *name;
    bool is_output;
};

/** A view of the memory of an array, which stays where it is as long as the view lives. Nothing is copied. */
class ArrayView {
public:
    ArrayView() = default;
    ArrayView(const ArrayView &) = delete;
    ArrayView &operator=(const ArrayView &) = delete;
    ~ArrayView();

    /** Takes what the array offers first of: the buffer protocol, NumPy's array interface if its dtype is named bfloat16,
     *  DLPack's C functions, __dlpack__(). False with an exception if it offers none, or is read-only and an output. */
    bool open(PyObject *array, const Argument &argument);

    /** Valid after open(). */
    DLTensor *tensor() { return &tensor_; }

private:
    bool from_buffer(PyObject *array, const Argument &argument);
    bool from_array_interface(const Argument &argument);
    bool from_exchange(const ExchangeApi &api, PyObject *array, const Argument &argument);
    bool from_capsule(PyObject *array, const Argument &argument);
    bool set(void *data, int rank, const intptr_t *shape, const intptr_t *byte_strides, DLDataType dtype,
             const Argument &argument);

    static constexpr int most_axes = 4;  // the library refuses more, and does not look at their extents

    DLTensor tensor_;
    int64_t shape_[most_axes], strides_[most_axes];
    BufferView buffer_;
    bool has_buffer_ = false;
    PyObject *capsule_ = nullptr;
};

}  // namespace halyard::python

#endif
