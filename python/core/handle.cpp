// The types whose objects have a handle of C: how they are made, freed and used by calls.
#include "handle.h"

#include <cstdlib>

namespace halyard::python {
namespace {

PyTypeObject *types[type_count] = {};

void destroy(Type type, void *c) {
    switch (type) {
    case Type::weights:
        return halyard_weights_destroy(static_cast<halyard_weights *>(c));
    case Type::rope:
        return halyard_rope_destroy(static_cast<halyard_rope *>(c));
    case Type::kv_cache:
        return halyard_kv_cache_destroy(static_cast<halyard_kv_cache *>(c));
    case Type::none:
        break;
    }
}

template<Type Of>
void deallocate(PyObject *object) {
    auto *handle = reinterpret_cast<Handle *>(object);
    PyTypeObject *type = Py_TYPE(object);
    destroy(Of, handle->c);
    free(handle->memory);
    PyObject_Free(object);
    Py_DECREF(type);  // objects of types that are made at run time hold them
}

constexpr destructor deallocators[] = {deallocate<Type::weights>, deallocate<Type::rope>, deallocate<Type::kv_cache>};
constexpr const char *full_names[] = {"halyard.Weights", "halyard.Rope", "halyard.KVCache"};

const Members &members_of(Type type) {
    return type == Type::weights ? weights_members : type == Type::rope ? rope_members : kv_cache_members;
}

}  // namespace

bool add_type(PyObject *module, Type type, const char *documentation, PyMethodDef *methods, newfunc construct) {
    const int index = static_cast<int>(type);
    const Members &members = members_of(type);
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char *>(documentation)},
                           {Py_tp_methods, methods},
                           {Py_tp_new, reinterpret_cast<void *>(construct)},
                           {Py_tp_dealloc, reinterpret_cast<void *>(deallocators[index])},
                           {Py_tp_getset, members.attributes},
                           {Py_tp_repr, reinterpret_cast<void *>(members.represent)},
                           {members.length != nullptr ? Py_sq_length : 0, reinterpret_cast<void *>(members.length)},
                           {0, nullptr}};
    PyType_Spec spec = {full_names[index], sizeof(Handle), 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *made = PyType_FromSpec(&spec);
    types[index] = reinterpret_cast<PyTypeObject *>(made);
    Py_XINCREF(made);
    if (made != nullptr && PyModule_AddObject(module, type_names[index], made) == 0) {
        return true;
    }
    Py_XDECREF(made);
    return false;
}

bool is_handle(PyObject *object, Type type) {
    return Py_TYPE(object) == types[static_cast<int>(type)];
}

PyObject *new_handle(Type type, void *c, void *memory) {
    PyTypeObject *of = types[static_cast<int>(type)];
    auto *handle = PyObject_New(Handle, of);
    if (handle == nullptr) {
        destroy(type, c);
        free(memory);
        return nullptr;
    }
    handle->c = c;
    handle->memory = memory;
    handle->uses = 0;
    return reinterpret_cast<PyObject *>(handle);
}

HandleUse::~HandleUse() {
    if (handle_ != nullptr) {
        handle_->uses = handle_->uses < 0 ? 0 : handle_->uses - 1;
        Py_DECREF(reinterpret_cast<PyObject *>(handle_));
    }
}

bool HandleUse::begin(PyObject *object, bool changes, const char *function, const char *argument) {
    auto *handle = reinterpret_cast<Handle *>(object);
    if (handle->uses < 0 || (changes && handle->uses > 0)) {
        PyErr_Format(PyExc_RuntimeError, "halyard.%s: %s is %s by another call", function, argument,
                     handle->uses < 0 ? "being changed" : "in use");
        return false;
    }
    Py_INCREF(object);
    handle_ = handle;
    handle->uses = changes ? -1 : handle->uses + 1;
    return true;
}

const char *dtype_name(DLDataType dtype) {
    return dtype.code == kDLBfloat ? "bf16" : dtype.bits == 16 ? "f16" : "f32";
}

}  // namespace halyard::python
