// The context of all calls, its settings, and the exceptions of calls.
#include "context.h"

#include <climits>
#include <cstring>
#include <iterator>

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
        // OSError makes an object of the class that the number has.
        PyObject *error = PyObject_CallFunction(PyExc_OSError, "is", failure.error_number, sentence);
        if (error != nullptr) {
            PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error)), error);
            Py_DECREF(error);
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

namespace {

/** What contexts of the module are made with. */
struct Settings {
    int threads = 0;
    int max_isa = none, products = none;  // values of the enumerations

    static constexpr int none = -1;  // what the library does by itself
};

Settings settings;

const char *const products_names[] = {"storage", "full", "bf16", "int8"};  // in the order of halyard_products

halyard_status apply(const Settings &wanted, halyard_context *context) {
    halyard_status status = halyard_context_set_num_threads(context, wanted.threads);
    if (status == HALYARD_OK && wanted.max_isa != Settings::none) {
        status = halyard_context_set_max_isa(context, static_cast<halyard_isa>(wanted.max_isa));
    }
    if (status == HALYARD_OK && wanted.products != Settings::none) {
        status = halyard_context_set_products(context, static_cast<halyard_products>(wanted.products));
    }
    return status;
}

/** Later calls have a context with these. False with an exception. */
bool change(const Settings &wanted) {
    auto *made = static_cast<Shared *>(PyMem_Malloc(sizeof(Shared)));
    if (made == nullptr) {
        PyErr_NoMemory();
        return false;
    }
    *made = {nullptr, 0};
    halyard_status status = halyard_context_create(&made->context);
    if (status == HALYARD_OK) {
        status = apply(wanted, made->context);
    }
    if (status != HALYARD_OK) {
        free_if_unused(made);
        raise(status);
        return false;
    }
    Shared *before = current;
    current = made;
    settings = wanted;
    free_if_unused(before);
    return true;
}

PyObject *name_or_none(const char *name) {
    return name != nullptr ? PyUnicode_FromString(name) : Py_BuildValue("");
}

/** Changes a setting to what `index_of` finds for a name, or to none for None. What it was. */
template<typename IndexOf>
PyObject *set_by_name(int Settings::*setting, const char *before, PyObject *name, const char *message,
                      const IndexOf &index_of) {
    Settings wanted = settings;
    wanted.*setting = Settings::none;
    if (name != Py_None) {
        PyObject *bytes = PyUnicode_Check(name) ? PyUnicode_AsUTF8String(name) : nullptr;
        wanted.*setting = bytes != nullptr ? index_of(PyBytes_AsString(bytes)) : Settings::none;
        Py_XDECREF(bytes);
        if (PyErr_Occurred() || wanted.*setting == Settings::none) {
            return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, message, name);
        }
    }
    return change(wanted) ? name_or_none(before) : nullptr;
}

}  // namespace

PyObject *set_num_threads(PyObject *, PyObject *number) {
    if (!PyLong_Check(number)) {
        return PyErr_Format(PyExc_TypeError, "halyard.set_num_threads: number must be an int, not %R", number);
    }
    int overflow = 0;
    const long threads = PyLong_AsLongAndOverflow(number, &overflow);
    Settings wanted = settings;
    wanted.threads = static_cast<int>(threads > INT_MAX ? INT_MAX : threads < -1 ? -1 : threads);
    if (!change(wanted)) {
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject *get_num_threads(PyObject *, PyObject *) {
    return PyLong_FromLong(halyard_context_num_threads(current->context));
}

PyObject *set_max_isa(PyObject *, PyObject *name) {
    const char *const before =
        settings.max_isa != Settings::none ? halyard_isa_name(static_cast<halyard_isa>(settings.max_isa)) : nullptr;
    return set_by_name(&Settings::max_isa, before, name, "halyard.max_isa: %R is no instruction set of this library",
                       [](const char *wanted) {
                           for (int i = 0; i < halyard_isa_count(); i++) {
                               if (strcmp(halyard_isa_name(halyard_isa_at(i)), wanted) == 0) {
                                   return static_cast<int>(halyard_isa_at(i));
                               }
                           }
                           return Settings::none;
                       });
}

PyObject *set_products(PyObject *, PyObject *name) {
    const char *const before = settings.products != Settings::none ? products_names[settings.products] : nullptr;
    return set_by_name(&Settings::products, before, name,
                       "halyard.products: %R is none of storage, full, bf16 and int8", [](const char *wanted) {
                           for (int i = 0; i < static_cast<int>(std::size(products_names)); i++) {
                               if (strcmp(products_names[i], wanted) == 0) {
                                   return i;
                               }
                           }
                           return Settings::none;
                       });
}

}  // namespace halyard::python
