// What blocks and stacks are made of: arrays and Weights by name, and Blocks.
#ifndef HALYARD_PYTHON_CORE_PARTS_H
#define HALYARD_PYTHON_CORE_PARTS_H

#include "array_view.h"
#include "function.h"
#include "python_api.h"

namespace halyard::python {

/** Arrays are open and objects kept as long as this lives. Weights and Blocks that are kept can be used, and not be changed. */
class Parts {
public:
    /** Null with an exception if there is no memory. */
    static Parts *make();
    /** Null is allowed. */
    static void destroy(Parts *parts);
    Parts(const Parts &) = delete;
    Parts &operator=(const Parts &) = delete;

    /** Takes arrays and Weights from a mapping by the names of the fields that Kind::block_weights or Kind::stack_weights has. None
     *  is what is not there. False with an exception, as the other. */
    bool take_weights(const char *function, Kind kind, PyObject *mapping);
    /** Takes a sequence of Blocks. */
    bool take_blocks(const char *function, PyObject *sequence);
    /** Keeps any object with a handle; names are for messages. */
    bool keep(const char *function, const char *name, PyObject *object);
    /** Lets go of arrays, which a block does not need after it is made. */
    void close_arrays();

    halyard_block_weights block = {};
    halyard_stack_weights stack = {};
    const halyard_block **blocks = nullptr;
    Py_ssize_t block_count = 0;

private:
    Parts() = default;
    ~Parts();
    bool take(const char *function, Kind kind, PyObject *name, PyObject *value);

    static constexpr int most_arrays = 32;

    ArrayView views_[most_arrays];
    PyObject *arrays_[most_arrays];
    int array_count_ = 0;
    PyObject *kept_ = nullptr;  // a list of objects with handles
};

}  // namespace halyard::python

#endif
