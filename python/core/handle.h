// Objects of Python that have a handle of C: Weights, Rope, KVCache, Block, Stack, and a handle of the models library.
#ifndef HALYARD_PYTHON_CORE_HANDLE_H
#define HALYARD_PYTHON_CORE_HANDLE_H

#include "function.h"
#include "python_api.h"

namespace halyard::python {

struct Handle {
    PyObject_HEAD;
    void *c;
    void *memory;        // what the handle is made of, if that is the object's own
    class Parts *parts;  // what the handle uses as long as it lives, or null
    int uses;            // calls that use it; -1: one that changes it. The GIL guards it, and the next.
    int keepers;         // objects that have it for a part, so that no call may change it
};

/** What a type has beside the entries of the table of functions. */
struct Members {
    PyMethodDef *methods;  // each up to one without a name
    PyGetSetDef *attributes;
    reprfunc represent;
    lenfunc length;     // null if it has none, as the next
    iternextfunc next;  // of an iterator
};
extern const Members weights_members, rope_members, kv_cache_members, block_members, stack_members, model_members,
    token_stream_members;

/** Makes a type and adds it to the module. `methods` ends with one without a name; like the documentation it stays in use. `call` is null
 *  where objects are not called. */
bool add_type(PyObject *module, Type type, const char *documentation, PyMethodDef *methods, newfunc construct,
              ternaryfunc call);

/** Whether the object is of the type. */
bool is_handle(PyObject *object, Type type);

/** A new object, which owns the handle, the memory and the parts from now on, also where it fails and returns null. */
PyObject *new_handle(Type type, void *c, void *memory = nullptr, Parts *parts = nullptr);

/** Holds an object with a handle that another one has for a part. False with an exception if a call changes it. */
bool begin_keeping(PyObject *object, const char *function, const char *argument);
void end_keeping(PyObject *object);

/** The handle of an object of the type. */
template<typename T>
T *handle_of(PyObject *object) {
    return static_cast<T *>(reinterpret_cast<Handle *>(object)->c);
}

/** A call's use of a handle. Begun and ended with the GIL held. */
class HandleUse {
public:
    HandleUse() = default;
    HandleUse(const HandleUse &) = delete;
    HandleUse &operator=(const HandleUse &) = delete;
    ~HandleUse();

    /** False with an exception if another call changes the handle, or this one would and another uses it. */
    bool begin(PyObject *object, bool changes, const char *function, const char *argument);

private:
    Handle *handle_ = nullptr;
};

/** "f32", "f16" or "bf16". */
const char *dtype_name(DLDataType dtype);

}  // namespace halyard::python

#endif
