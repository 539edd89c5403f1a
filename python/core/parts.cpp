// What blocks and stacks are made of, from mappings and sequences of Python.
#include "parts.h"

#include <new>

#include "handle.h"

namespace halyard::python {
namespace {

/** Where an array goes, and where Weights do, in bytes from the struct's beginning; -1: nowhere. */
struct Field {
    const char *name;
    int array, packed;
};

#define HALYARD_ARRAY(type, member)                                                                                    \
    { #member, offsetof(type, member), -1 }
#define HALYARD_MATRIX(member)                                                                                         \
    { #member, offsetof(halyard_block_weights, member), offsetof(halyard_block_weights, packed.member) }
#define HALYARD_VECTOR(member) HALYARD_ARRAY(halyard_block_weights, member)
constexpr Field block_fields[] = {HALYARD_MATRIX(q_proj),
                                  HALYARD_MATRIX(k_proj),
                                  HALYARD_MATRIX(v_proj),
                                  HALYARD_MATRIX(qkv_proj),
                                  HALYARD_MATRIX(o_proj),
                                  HALYARD_VECTOR(gate_proj),
                                  HALYARD_MATRIX(up_proj),
                                  HALYARD_MATRIX(down_proj),
                                  HALYARD_VECTOR(q_proj_bias),
                                  HALYARD_VECTOR(k_proj_bias),
                                  HALYARD_VECTOR(v_proj_bias),
                                  HALYARD_VECTOR(qkv_proj_bias),
                                  HALYARD_VECTOR(o_proj_bias),
                                  HALYARD_VECTOR(gate_proj_bias),
                                  HALYARD_VECTOR(up_proj_bias),
                                  HALYARD_VECTOR(down_proj_bias),
                                  HALYARD_VECTOR(q_norm),
                                  HALYARD_VECTOR(k_norm),
                                  HALYARD_VECTOR(attention_norm),
                                  HALYARD_VECTOR(attention_norm_bias),
                                  HALYARD_VECTOR(ffn_norm),
                                  HALYARD_VECTOR(ffn_norm_bias),
                                  HALYARD_VECTOR(attention_post_norm),
                                  HALYARD_VECTOR(attention_post_norm_bias),
                                  HALYARD_VECTOR(ffn_post_norm),
                                  HALYARD_VECTOR(ffn_post_norm_bias),
                                  {nullptr, 0, 0}};
#undef HALYARD_VECTOR
#undef HALYARD_MATRIX

#define HALYARD_TABLE(member) HALYARD_ARRAY(halyard_stack_weights, member)
constexpr Field stack_fields[] = {
    HALYARD_TABLE(embed_tokens),
    HALYARD_TABLE(embed_positions),
    HALYARD_TABLE(embed_types),
    HALYARD_TABLE(embed_norm),
    HALYARD_TABLE(embed_norm_bias),
    HALYARD_TABLE(norm),
    HALYARD_TABLE(norm_bias),
    {"lm_head", offsetof(halyard_stack_weights, lm_head), offsetof(halyard_stack_weights, lm_head_packed)},
    {nullptr, 0, 0}};
#undef HALYARD_TABLE
#undef HALYARD_ARRAY

template<typename T>
void set_pointer(void *fields, int place, T *pointer) {
    memcpy(static_cast<char *>(fields) + place, &pointer, sizeof pointer);
}

/** Sets an exception that lists the names of the fields. */
bool fail_with_fields(const char *function, const Field *field, PyObject *name) {
    PyObject *list = PyUnicode_FromString(field->name);
    while (list != nullptr && (++field)->name != nullptr) {
        PyObject *longer = PyUnicode_FromFormat("%U, %s", list, field->name);
        Py_DECREF(list);
        list = longer;
    }
    if (list != nullptr) {
        PyErr_Format(PyExc_ValueError, "halyard.%s: weights has %R, which is none of %U", function, name, list);
    }
    Py_XDECREF(list);
    return false;
}

}  // namespace

Parts *Parts::make() {
    void *memory = PyMem_Malloc(sizeof(Parts));
    if (memory == nullptr) {
        PyErr_NoMemory();
        return nullptr;
    }
    return new (memory) Parts;
}

void Parts::destroy(Parts *parts) {
    if (parts != nullptr) {
        parts->~Parts();
        PyMem_Free(parts);
    }
}

Parts::~Parts() {
    close_arrays();
    for (Py_ssize_t i = kept_ != nullptr ? PyList_Size(kept_) : 0; i-- > 0;) {
        end_keeping(PyList_GetItem(kept_, i));
    }
    Py_XDECREF(kept_);
    PyMem_Free(blocks);
}

void Parts::close_arrays() {
    while (array_count_ > 0) {
        ArrayView &view = views_[--array_count_];
        view.~ArrayView();
        new (&view) ArrayView;
        Py_DECREF(arrays_[array_count_]);
    }
}

bool Parts::take_weights(const char *function, Kind kind, PyObject *mapping) {
    PyObject *items = PyMapping_Check(mapping) ? PyMapping_Items(mapping) : nullptr;
    if (items == nullptr) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "halyard.%s: weights must be a mapping of names to arrays, not %R", function,
                     Py_TYPE(mapping));
        return false;
    }
    bool is_taken = true;
    for (Py_ssize_t i = 0; is_taken && i < PyList_Size(items); i++) {
        PyObject *item = PyList_GetItem(items, i);
        PyObject *value = PyTuple_GetItem(item, 1);
        is_taken = value == Py_None || (value != nullptr && take(function, kind, PyTuple_GetItem(item, 0), value));
    }
    Py_DECREF(items);
    return is_taken;
}

bool Parts::take(const char *function, Kind kind, PyObject *name, PyObject *value) {
    const bool is_block = kind == Kind::block_weights;
    void *into = is_block ? static_cast<void *>(&block) : &stack;
    const Field *field = is_block ? block_fields : stack_fields;
    while (field->name != nullptr &&
           !(PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, field->name) == 0)) {
        field++;
    }
    if (field->name == nullptr) {
        return fail_with_fields(function, is_block ? block_fields : stack_fields, name);
    }
    if (field->packed >= 0 && is_handle(value, Type::weights)) {
        set_pointer(into, field->packed, handle_of<halyard_weights>(value));
        return keep(function, field->name, value);
    }
    if (array_count_ == most_arrays) {  // a mapping that is no dict may have a name twice
        PyErr_Format(PyExc_ValueError, "halyard.%s: weights has too many items", function);
        return false;
    }
    Py_INCREF(value);
    arrays_[array_count_] = value;
    ArrayView &view = views_[array_count_++];
    if (!view.open(value, {function, field->name, false})) {
        return false;
    }
    set_pointer(into, field->array, view.tensor());
    return true;
}

bool Parts::take_blocks(const char *function, PyObject *sequence) {
    const Py_ssize_t count = PySequence_Check(sequence) ? PySequence_Size(sequence) : -1;
    if (count < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "halyard.%s: blocks must be a sequence of halyard.Block, not %R", function,
                     Py_TYPE(sequence));
        return false;
    }
    blocks =
        static_cast<const halyard_block **>(PyMem_Malloc(sizeof(halyard_block *) * static_cast<size_t>(count + 1)));
    if (blocks == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    for (; block_count < count; block_count++) {
        PyObject *each = PySequence_GetItem(sequence, block_count);
        const bool is_block = each != nullptr && is_handle(each, Type::block);
        if (each != nullptr && !is_block) {
            PyErr_Format(PyExc_TypeError, "halyard.%s: blocks must be a sequence of halyard.Block, and has %R",
                         function, Py_TYPE(each));
        }
        const bool is_kept = is_block && keep(function, "blocks", each);
        blocks[block_count] = is_kept ? handle_of<halyard_block>(each) : nullptr;
        Py_XDECREF(each);
        if (!is_kept) {
            return false;
        }
    }
    return true;
}

bool Parts::keep(const char *function, const char *name, PyObject *object) {
    kept_ = kept_ != nullptr ? kept_ : PyList_New(0);
    if (kept_ == nullptr || !begin_keeping(object, function, name)) {
        return false;
    }
    const bool is_kept = PyList_Append(kept_, object) == 0;
    if (!is_kept) {
        end_keeping(object);
    }
    return is_kept;
}

}  // namespace halyard::python
