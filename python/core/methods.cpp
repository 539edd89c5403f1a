// Functions of the module, and types with their methods, from the table of functions.
#include "methods.h"

#include <string_view>
#include <utility>

#include "call.h"
#include "functions.h"
#include "handle.h"
#include "signature.h"

namespace halyard::python {
namespace {

char documentation[function_count][signature_room];

using Entry = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

template<int Index>
PyObject *entry(PyObject *self, PyObject *const *given, Py_ssize_t positional, PyObject *names) {
    return call(functions[Index], self, given, positional, names);
}

template<int... Index>
constexpr Entry entry_at(int index, std::integer_sequence<int, Index...>) {
    constexpr Entry entries[] = {entry<Index>...};
    return entries[index];
}

constexpr bool ends_with_call(const char *name) {
    const std::string_view text = name, end = ".__call__";
    return text.size() > end.size() && text.substr(text.size() - end.size()) == end;
}

/** Where the entry of calls of a type's objects is; -1 if there is none. */
constexpr int find_call(Type type) {
    int index = function_count - 1;
    while (index >= 0 && (functions[index].owner != type || !ends_with_call(functions[index].name))) {
        index--;
    }
    return index;
}

/** A call with a tuple and a dictionary of arguments. */
PyObject *call_with_tuple(const Function &function, PyObject *self, PyObject *positional, PyObject *named) {
    PyObject *given[most_parameters];
    const Py_ssize_t count = PyTuple_Size(positional), names_count = named != nullptr ? PyDict_Size(named) : 0;
    if (count + names_count > most_parameters) {
        return PyErr_Format(PyExc_TypeError, "halyard.%s: has no %zd arguments", function.name, count + names_count);
    }
    PyObject *names = PyTuple_New(names_count), *name, *value;
    if (names == nullptr) {
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        given[i] = PyTuple_GetItem(positional, i);
    }
    for (Py_ssize_t place = 0, i = 0; named != nullptr && PyDict_Next(named, &place, &name, &value); i++) {
        Py_INCREF(name);
        PyTuple_SetItem(names, i, name);
        given[count + i] = value;
    }
    PyObject *result = call(function, self, given, count, names);
    Py_DECREF(names);
    return result;
}

template<Type Of>
PyObject *construct(PyTypeObject *, PyObject *positional, PyObject *named) {
    return call_with_tuple(constructor_of(Of), nullptr, positional, named);
}

template<Type Of>
PyObject *refuse_to_construct(PyTypeObject *, PyObject *, PyObject *) {
    return PyErr_Format(PyExc_TypeError, "halyard.%s: has no constructor", type_names[static_cast<int>(Of)]);
}

template<int Index>
PyObject *call_object(PyObject *self, PyObject *positional, PyObject *named) {
    return call_with_tuple(functions[Index], self, positional, named);
}

PyMethodDef method(int index) {
    const Entry entry = entry_at(index, std::make_integer_sequence<int, function_count>());
    const int kind = functions[index].role == Role::maker ? METH_CLASS : 0;
    return {short_name(functions[index]), reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry)),
            METH_FASTCALL | METH_KEYWORDS | kind, document(functions[index], documentation[index])};
}

/** The entries of a type, or those of none; then come the others. */
void fill(PyMethodDef *methods, Type type, const PyMethodDef *others) {
    for (int i = 0; i < function_count; i++) {
        const bool is_slot = functions[i].role == Role::constructor || short_name(functions[i])[0] == '_';
        if (functions[i].owner == type && !is_slot) {
            *methods++ = method(i);
        }
    }
    while (others != nullptr && others->ml_name != nullptr) {
        *methods++ = *others++;
    }
    *methods = {nullptr, nullptr, 0, nullptr};
}

template<Type Of>
bool add(PyObject *module, const Members &members) {
    static PyMethodDef methods[16];
    static char text[signature_room];
    fill(methods, Of, members.methods);
    constexpr int called = find_call(Of);
    ternaryfunc call = nullptr;
    if constexpr (called >= 0) {
        call = call_object<called>;
    }
    return add_type(module, Of, document(constructor_of(Of), text), methods, construct<Of>, call);
}

/** A type whose objects are made by methods. `summary` stays in use. */
template<Type Of>
bool add_made(PyObject *module, const Members &members, const char *summary) {
    static PyMethodDef methods[16];
    fill(methods, Of, members.methods);
    return add_type(module, Of, summary, methods, refuse_to_construct<Of>, nullptr);
}

bool add_models([[maybe_unused]] PyObject *module) {
#ifdef HALYARD_PYTHON_MODELS
    return add_made<Type::model>(module, model_members, "A model, which load() makes.") &&
           add_made<Type::token_stream>(module, token_stream_members, "What Model.stream() makes: yields ids.");
#else
    return true;
#endif
}

}  // namespace

bool add_functions(PyObject *module, PyObject *make_array) {
    set_make_array(make_array);
    static PyMethodDef methods[function_count + 1];
    fill(methods, Type::none, nullptr);
    return PyModule_AddFunctions(module, methods) == 0 && add<Type::weights>(module, weights_members) &&
           add<Type::rope>(module, rope_members) && add<Type::kv_cache>(module, kv_cache_members) &&
           add<Type::block>(module, block_members) && add<Type::stack>(module, stack_members) && add_models(module);
}

const Function &constructor_of(Type type) {
    int index = 0;
    while (functions[index].role != Role::constructor || functions[index].owner != type) {
        index++;
    }
    return functions[index];
}

PyObject *stubs(PyObject *, PyObject *) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list != nullptr && i < function_count; i++) {
        PyObject *stub = stub_of(functions[i]);
        if (stub == nullptr || PyList_Append(list, stub) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(stub);
    }
    return list;
}

}  // namespace halyard::python
