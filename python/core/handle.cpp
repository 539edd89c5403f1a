// The types whose objects have a handle of C: how they are made, freed and used by calls.
#include "handle.h"

#include <cstdlib>

#include "model.h"
#include "parts.h"

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
    case Type::block:
        return halyard_block_destroy(static_cast<halyard_block *>(c));
    case Type::stack:
        return halyard_stack_destroy(static_cast<halyard_stack *>(c));
#ifdef HALYARD_PYTHON_MODELS
    case Type::model:
        return destroy_model(c);
    case Type::token_stream:
        return destroy_token_stream(c);
#else
    case Type::model:
    case Type::token_stream:
#endif
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
    Parts::destroy(handle->parts);
    PyObject_Free(object);
    Py_DECREF(type);  // objects of types that are made at run time hold them
}

constexpr destructor deallocators[] = {
    deallocate<Type::weights>, deallocate<Type::rope>,  deallocate<Type::kv_cache>,    deallocate<Type::block>,
    deallocate<Type::stack>,   deallocate<Type::model>, deallocate<Type::token_stream>};
constexpr const char *full_names[] = {"halyard.Weights", "halyard.Rope",  "halyard.KVCache",    "halyard.Block",
                                      "halyard.Stack",   "halyard.Model", "halyard.TokenStream"};
constexpr const Members *members_of[] = {
    &weights_members, &rope_members,         &kv_cache_members, &block_members, &stack_members,
#ifdef HALYARD_PYTHON_MODELS
    &model_members,   &token_stream_members,
#endif
};

/** Slots of a type, of which null ones are left out. */
class Slots {
public:
    void add(int slot, void *function) {
        if (function != nullptr) {
            slots_[count_++] = {slot, function};
        }
    }
    template<typename Function>
    void add(int slot, Function *function) {
        add(slot, reinterpret_cast<void *>(function));
    }
    PyType_Slot *get() { return slots_; }

private:
    PyType_Slot slots_[12] = {};
    int count_ = 0;
};

}  // namespace

bool add_type(PyObject *module, Type type, const char *documentation, PyMethodDef *methods, newfunc construct,
              ternaryfunc call) {
    const int index = static_cast<int>(type);
    const Members &members = *members_of[index];
    Slots slots;
    slots.add(Py_tp_doc, const_cast<char *>(documentation));
    slots.add(Py_tp_methods, methods);
    slots.add(Py_tp_new, construct);
    slots.add(Py_tp_dealloc, deallocators[index]);
    slots.add(Py_tp_getset, members.attributes);
    slots.add(Py_tp_repr, members.represent);
    slots.add(Py_sq_length, members.length);
    slots.add(Py_tp_iter, members.next != nullptr ? PyObject_SelfIter : nullptr);
    slots.add(Py_tp_iternext, members.next);
    slots.add(Py_tp_call, call);
    PyType_Spec spec = {full_names[index], sizeof(Handle), 0, Py_TPFLAGS_DEFAULT, slots.get()};
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

PyObject *new_handle(Type type, void *c, void *memory, Parts *parts) {
    PyTypeObject *of = types[static_cast<int>(type)];
    auto *handle = PyObject_New(Handle, of);
    if (handle == nullptr) {
        destroy(type, c);
        free(memory);
        Parts::destroy(parts);
        return nullptr;
    }
    handle->c = c;
    handle->memory = memory;
    handle->parts = parts;
    handle->uses = 0;
    handle->keepers = 0;
    return reinterpret_cast<PyObject *>(handle);
}

bool begin_keeping(PyObject *object, const char *function, const char *argument) {
    auto *handle = reinterpret_cast<Handle *>(object);
    if (handle->uses < 0) {
        PyErr_Format(PyExc_RuntimeError, "halyard.%s: %s is being changed by another call", function, argument);
        return false;
    }
    Py_INCREF(object);
    handle->keepers++;
    return true;
}

void end_keeping(PyObject *object) {
    reinterpret_cast<Handle *>(object)->keepers--;
    Py_DECREF(object);
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
    if (changes && handle->keepers > 0) {
        PyErr_Format(PyExc_RuntimeError, "halyard.%s: %s is part of a block or a stack", function, argument);
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
