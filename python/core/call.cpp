// A call: arguments of Python are bound to parameters, turned into those of C and handed to the library without the GIL.
#include "call.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

#include "array_view.h"
#include "context.h"
#include "functions.h"

namespace halyard::python {
namespace {

PyObject *make_array = nullptr;

bool is_output(Kind kind) {
    return kind == Kind::output || kind == Kind::half_output;
}

// ---- which argument is which ----

int positional_count(const Function &function) {
    int count = 0;
    while (count < function.count && function.parameters[count].kind < Kind::flag) {
        count++;
    }
    return count;
}

int find_parameter(const Function &function, PyObject *name) {
    for (int i = 0; i < function.count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, function.parameters[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

/** Sets values[i] to what was given for parameter i, null where nothing was; None counts as nothing. */
bool bind(const Function &function, PyObject *const *given, Py_ssize_t positional, PyObject *names, PyObject **values) {
    if (positional > positional_count(function)) {
        PyErr_Format(PyExc_TypeError, "halyard.%s: takes at most %d positional arguments, and %zd were given",
                     function.name, positional_count(function), positional);
        return false;
    }
    for (Py_ssize_t i = 0; i < positional; i++) {
        values[i] = given[i];
    }
    const Py_ssize_t named = names != nullptr ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int index = find_parameter(function, name);
        if (index < 0 || values[index] != nullptr) {
            PyErr_Format(PyExc_TypeError,
                         index < 0 ? "halyard.%s: has no argument '%U'" : "halyard.%s: '%U' was given twice",
                         function.name, name);
            return false;
        }
        values[index] = given[positional + i];
    }
    for (int i = 0; i < function.count; i++) {
        values[i] = values[i] == Py_None ? nullptr : values[i];
        if (values[i] == nullptr && function.parameters[i].kind == Kind::input) {
            PyErr_Format(PyExc_TypeError, "halyard.%s: %s is missing", function.name, function.parameters[i].name);
            return false;
        }
    }
    return true;
}

// ---- arguments that are no arrays ----

bool read_real(const Function &function, const Parameter &parameter, PyObject *value, float *real) {
    const double number = value != nullptr ? PyFloat_AsDouble(value) : parameter.value;
    if (number == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "halyard.%s: %s must be a real number, not %R", function.name, parameter.name,
                     value);
        return false;
    }
    *real = static_cast<float>(number);
    return true;
}

bool read_layout(const Function &function, PyObject *value, halyard_glu_layout *layout) {
    for (int i = 0; value != nullptr && i < 3; i++) {
        if (PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, layout_names[i]) == 0) {
            *layout = static_cast<halyard_glu_layout>(i);
            return true;
        }
    }
    if (value != nullptr) {
        PyErr_Format(PyExc_ValueError, "halyard.%s: layout must be 'gate_up', 'up_gate' or 'interleaved', not %R",
                     function.name, value);
    }
    return value == nullptr;
}

// ---- arrays, and the call ----

class Call {
public:
    explicit Call(const Function &function) : function_(function) {}
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call() {
        for (int i = 0; i < outputs_; i++) {
            Py_DECREF(results_[i]);
        }
    }

    PyObject *run(PyObject **values) {
        for (int i = 0; i < function_.count; i++) {
            if (!take(function_.parameters[i], values[i], values[0])) {
                return nullptr;
            }
        }
        const ContextUse context;
        PyThreadState *state = PyEval_SaveThread();
        const halyard_status status = function_.call(context.get(), frame_);
        PyEval_RestoreThread(state);
        return status == HALYARD_OK ? result() : raise(status);
    }

private:
    bool take(const Parameter &parameter, PyObject *value, PyObject *first) {
        switch (parameter.kind) {
        case Kind::input:
        case Kind::optional_input:
            return value != nullptr ? open(parameter, value, &frame_.inputs[inputs_++]) : ++inputs_;
        case Kind::real:
            return read_real(function_, parameter, value, &frame_.reals[reals_++]);
        case Kind::layout:
            return read_layout(function_, value, &frame_.layout);
        case Kind::dtype:
            dtype_ = value;
            takes_dtype_ = true;
            return true;
        case Kind::flag: {
            const int is_set = value != nullptr ? PyObject_IsTrue(value) : 0;
            frame_.flags |= is_set > 0 ? static_cast<unsigned>(parameter.value) : 0;
            return is_set >= 0;
        }
        default:
            return take_output(parameter, value, first);
        }
    }

    bool take_output(const Parameter &parameter, PyObject *value, PyObject *first) {
        if (takes_dtype_ && (value != nullptr) == (dtype_ != nullptr)) {
            PyErr_Format(PyExc_TypeError, "halyard.%s: takes either dtype or out", function_.name);
            return false;
        }
        if (value != nullptr) {
            Py_INCREF(value);
        } else {
            value = PyObject_CallFunction(make_array, "OOsO", first,
                                          parameter.kind == Kind::half_output ? Py_True : Py_False, function_.name,
                                          dtype_ != nullptr ? dtype_ : Py_None);
        }
        const DLTensor *tensor = nullptr;
        results_[outputs_] = value;
        if (value == nullptr || !open(parameter, value, &tensor)) {
            outputs_ += value != nullptr;
            return false;
        }
        frame_.outputs[outputs_++] = views_[opened_ - 1].tensor();
        return true;
    }

    bool open(const Parameter &parameter, PyObject *value, const DLTensor **tensor) {
        ArrayView &view = views_[opened_++];
        *tensor = view.tensor();
        return view.open(value, {function_.name, parameter.name, is_output(parameter.kind)});
    }

    PyObject *result() const {
        if (outputs_ == 1) {
            Py_INCREF(results_[0]);
            return results_[0];
        }
        PyObject *tuple = PyTuple_New(outputs_);
        for (int i = 0; tuple != nullptr && i < outputs_; i++) {
            Py_INCREF(results_[i]);
            PyTuple_SetItem(tuple, i, results_[i]);
        }
        return tuple;
    }

    const Function &function_;
    Frame frame_;
    ArrayView views_[most_parameters];
    PyObject *results_[most_of_a_kind];
    PyObject *dtype_ = nullptr;
    bool takes_dtype_ = false;
    int inputs_ = 0, reals_ = 0, outputs_ = 0, opened_ = 0;
};

template<int Index>
PyObject *entry(PyObject *, PyObject *const *given, Py_ssize_t positional, PyObject *names) {
    constexpr const Function &function = functions[Index];
    PyObject *values[most_parameters] = {};
    return bind(function, given, positional, names, values) ? Call(function).run(values) : nullptr;
}

// ---- the methods ----

char documentation[function_count][320];

class Text {
public:
    explicit Text(char (&text)[320]) : text_(text) {}

    __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        length_ += vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
        va_end(arguments);
    }

private:
    char (&text_)[320];
    int length_ = 0;
};

void add_parameter(Text &text, const Parameter &parameter) {
    text.add("%s", parameter.name);
    if (parameter.kind == Kind::real) {
        text.add(parameter.value == static_cast<int>(parameter.value) ? "=%.1f" : "=%g", parameter.value);
    } else if (parameter.kind == Kind::layout) {
        text.add("='%s'", layout_names[0]);
    } else if (parameter.kind != Kind::input) {
        text.add(parameter.kind == Kind::flag ? "=False" : "=None");
    }
}

/** Signature and summary in the form that inspect.signature() reads. */
const char *document(const Function &function, char (&room)[320]) {
    Text text(room);
    text.add("%s(", function.name);
    for (int i = 0; i < function.count; i++) {
        text.add(i == 0 ? "" : i == positional_count(function) ? ", *, " : ", ");
        add_parameter(text, function.parameters[i]);
    }
    text.add(")\n--\n\n%s", function.summary);
    return room;
}

using Entry = PyObject *(*)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

template<int... Index>
bool add_methods(PyObject *module, std::integer_sequence<int, Index...>) {
    constexpr Entry entries[] = {entry<Index>...};
    static PyMethodDef methods[function_count + 1];
    for (int i = 0; i < function_count; i++) {
        methods[i] = {functions[i].name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entries[i])),
                      METH_FASTCALL | METH_KEYWORDS, document(functions[i], documentation[i])};
    }
    return PyModule_AddFunctions(module, methods) == 0;
}

}  // namespace

bool add_functions(PyObject *module, PyObject *make) {
    Py_INCREF(make);
    make_array = make;
    return add_methods(module, std::make_integer_sequence<int, function_count>());
}

}  // namespace halyard::python
