// A call: arguments of Python are turned into those of C and handed to the library without the GIL.
#include "call.h"

#include <climits>
#include <cstdlib>

#include "arguments.h"
#include "array_list.h"
#include "array_view.h"
#include "context.h"
#include "handle.h"
#include "parts.h"

namespace halyard::python {
namespace {

PyObject *make_array = nullptr;

inline constexpr int most_arrays = 16;

class Call {
public:
    explicit Call(const Function &function) : function_(function) {}
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    ~Call() {
        for (int i = 0; i < results_count_; i++) {
            Py_DECREF(results_[i]);
        }
        PyMem_Free(indices_);
        for (const Ids &ids : frame_.ids) {
            PyMem_Free(ids.values);
        }
        Parts::destroy(parts_);
        Py_XDECREF(path_);
        free(frame_.failure.sentence);
    }

    PyObject *run(PyObject **values) {
        for (int i = 0; i < function_.count; i++) {
            if (!take(function_.parameters[i], values[i])) {
                return nullptr;
            }
        }
        const ContextUse context;
        PyThreadState *state = PyEval_SaveThread();
        const halyard_status status = function_.call(context.get(), frame_);
        PyEval_RestoreThread(state);
        return status == HALYARD_OK ? result() : raise(status, frame_.failure);
    }

private:
    bool take(const Parameter &parameter, PyObject *value) {
        switch (parameter.kind) {
        case Kind::named:
        case Kind::real_result:
        case Kind::integer_result:
            return true;
        case Kind::input:
        case Kind::input_or_none:
        case Kind::optional_input:
            return take_input(parameter, value);
        case Kind::input_list:
            return take_list(parameter, value);
        case Kind::handle:
        case Kind::optional_handle:
        case Kind::kept_handle:
        case Kind::changed_handle:
        case Kind::optional_changed_handle:
            return take_handle(parameter, value);
        case Kind::ids:
            return take_ids(parameter, value);
        case Kind::path:
            return take_path(value);
        case Kind::preset:
            return value == nullptr || take_preset(parameter, value);
        case Kind::block_weights:
        case Kind::stack_weights:
        case Kind::blocks:
            return take_parts(parameter, value);
        case Kind::dtype:
            dtype_ = value;
            takes_dtype_ = true;
            return true;
        case Kind::indices:
            return value == nullptr || take_indices(parameter, value);
        case Kind::changed:
        case Kind::optional_output:
            return take_written(parameter, value);
        case Kind::output:
        case Kind::half_output:
        case Kind::layer_output:
        case Kind::rows_output:
        case Kind::logits_output:
        case Kind::hidden_output:
            return take_output(parameter, value);
        default:
            return take_value(parameter, value);
        }
    }

    /** Numbers, names and bools. */
    bool take_value(const Parameter &parameter, PyObject *value) {
        double real = 0;
        int64_t integer = 0;
        int choice = 0;
        DLDataType dtype = {};
        if (value == nullptr && parameter.is_kept) {
            return true;
        }
        switch (parameter.kind) {
        case Kind::real:
            return read_real(function_, parameter, value, &real) &&
                   put(parameter, static_cast<float>(real), &frame_.reals[reals_], &reals_);
        case Kind::wide_real:
            return read_real(function_, parameter, value, &real) && set_field(parameter, real);
        case Kind::integer:
            return read_integer(function_, parameter, value, INT64_MIN, INT64_MAX, &integer) &&
                   put(parameter, integer, &frame_.integers[integers_], &integers_);
        case Kind::optional_integer:
            return value == nullptr || take_optional_integer(parameter, value);
        case Kind::small_integer:
            return read_integer(function_, parameter, value, INT_MIN, INT_MAX, &integer) &&
                   put(parameter, static_cast<int>(integer), &frame_.ints[ints_], &ints_);
        case Kind::choice:
            return read_choice(function_, parameter, value, parameter.names, &choice) &&
                   put(parameter, choice, &frame_.ints[ints_], &ints_);
        case Kind::storage:
            return read_storage(function_, parameter, value, &dtype) && set_field(parameter, dtype);
        default:
            return take_bool(parameter, value);
        }
    }

    bool take_optional_integer(const Parameter &parameter, PyObject *value) {
        int64_t integer = 0;
        if (!read_integer(function_, parameter, value, INT64_MIN, INT64_MAX, &integer)) {
            return false;
        }
        const int is_there = 1;
        memcpy(frame_.options + parameter.place + sizeof integer, &is_there, sizeof is_there);
        return set_field(parameter, integer);
    }

    bool take_bool(const Parameter &parameter, PyObject *value) {
        const bool is_default = parameter.kind == Kind::boolean && parameter.value != 0;
        const int is_set = value != nullptr ? PyObject_IsTrue(value) : is_default;
        if (is_set < 0) {
            return false;
        }
        if (parameter.kind == Kind::boolean) {
            return put(parameter, is_set, &frame_.ints[ints_], &ints_);
        }
        const unsigned bit = is_set ? static_cast<unsigned>(parameter.value) : 0;
        unsigned flags = frame_.flags;
        if (parameter.place >= 0) {
            memcpy(&flags, frame_.options + parameter.place, sizeof flags);
            return set_field(parameter, (flags & ~static_cast<unsigned>(parameter.value)) | bit);
        }
        frame_.flags = flags | bit;
        return true;
    }

    bool take_input(const Parameter &parameter, PyObject *value) {
        const DLTensor *tensor = nullptr;
        if (value != nullptr && (tensor = open(parameter, value)) == nullptr) {
            return false;
        }
        return put(parameter, tensor, &frame_.inputs[inputs_], &inputs_);
    }

    bool take_list(const Parameter &parameter, PyObject *value) {
        const bool is_open = list_.open(value, function_.name, parameter.name);
        frame_.list = list_.tensors();
        frame_.integers[integers_++] = list_.count();
        return is_open;
    }

    bool take_handle(const Parameter &parameter, PyObject *value) {
        void *handle = nullptr;
        if (value != nullptr) {
            if (!is_handle(value, parameter.type)) {
                PyErr_Format(PyExc_TypeError, "halyard.%s: %s must be a halyard.%s, not %R", function_.name,
                             parameter.name, type_names[static_cast<int>(parameter.type)], Py_TYPE(value));
                return false;
            }
            const bool changes =
                parameter.kind == Kind::changed_handle || parameter.kind == Kind::optional_changed_handle;
            if (!uses_[used_++].begin(value, changes, function_.name, parameter.name)) {
                return false;
            }
            if (parameter.kind == Kind::kept_handle && !keep(parameter, value)) {
                return false;
            }
            handle = handle_of<void>(value);
            weights_ = parameter.type == Type::weights ? handle : weights_;
            stack_ = stack_of(parameter.type, handle, stack_);
        }
        return put(parameter, handle, &frame_.handles[handles_], &handles_);
    }

    static const halyard_stack *stack_of(Type type, const void *handle, const halyard_stack *other) {
#ifdef HALYARD_PYTHON_MODELS
        if (type == Type::model) {
            return stack_of_model(static_cast<const LoadedModel *>(handle));
        }
#endif
        return type == Type::stack ? static_cast<const halyard_stack *>(handle) : other;
    }

    bool keep(const Parameter &parameter, PyObject *value) {
        parts_ = parts_ != nullptr ? parts_ : Parts::make();
        return parts_ != nullptr && parts_->keep(function_.name, parameter.name, value);
    }

    bool take_ids(const Parameter &parameter, PyObject *value) {
        int64_t *values = nullptr;
        Py_ssize_t count = 0;
        const bool is_read = value == nullptr || read_indices(function_, parameter, value, &values, &count);
        frame_.ids[ids_++] = {values, count};
        return is_read;
    }

    bool take_path(PyObject *value) {
        if (!PyUnicode_FSConverter(value, &path_)) {
            return false;
        }
        frame_.path = PyBytes_AsString(path_);
        return true;
    }

    bool take_preset(const Parameter &parameter, PyObject *value) {
        const Names names = presets();
        auto *config = reinterpret_cast<halyard_block_config *>(frame_.options + parameter.place);
        int choice = 0;
        if (names.count > 0 && !read_choice(function_, parameter, value, names, &choice)) {
            return false;
        }
        // A library without blocks says so.
        const halyard_status status = halyard_block_config_preset(names.count > 0 ? names.names[choice] : "", config);
        return status == HALYARD_OK || raise(status) != nullptr;
    }

    bool take_parts(const Parameter &parameter, PyObject *value) {
        parts_ = parts_ != nullptr ? parts_ : Parts::make();
        if (parts_ == nullptr) {
            return false;
        }
        const bool is_taken = parameter.kind == Kind::blocks
                                  ? parts_->take_blocks(function_.name, value)
                                  : parts_->take_weights(function_.name, parameter.kind, value);
        return is_taken && set_field(parameter, parts_);
    }

    bool take_indices(const Parameter &parameter, PyObject *value) {
        Py_ssize_t count = 0;
        if (!read_indices(function_, parameter, value, &indices_, &count)) {
            return false;
        }
        const DLTensor &first = *views_[0].tensor();
        const int64_t batch = first.ndim == parameter.value ? first.shape[0] : 1;
        if (count != batch) {
            PyErr_Format(PyExc_ValueError, "halyard.%s: %s has %zd entries, but the batch is %lld", function_.name,
                         parameter.name, count, static_cast<long long>(batch));
            return false;
        }
        frame_.indices = indices_;
        return true;
    }

    bool take_written(const Parameter &parameter, PyObject *value) {
        DLTensor *tensor = nullptr;
        if (value != nullptr && (tensor = open(parameter, value)) == nullptr) {
            return false;
        }
        return put(parameter, tensor, &frame_.outputs[outputs_], &outputs_);
    }

    bool take_output(const Parameter &parameter, PyObject *value) {
        if (takes_dtype_ && (value != nullptr) == (dtype_ != nullptr)) {
            PyErr_Format(PyExc_TypeError, "halyard.%s: takes either dtype or out", function_.name);
            return false;
        }
        if (value != nullptr) {
            Py_INCREF(value);
        } else if ((value = new_output(parameter.kind)) == nullptr) {
            return false;
        }
        results_[results_count_++] = value;
        DLTensor *tensor = open(parameter, value);
        frame_.outputs[outputs_++] = tensor;
        return tensor != nullptr;
    }

    PyObject *new_output(Kind kind) {
        if (kind == Kind::logits_output || kind == Kind::hidden_output) {
            return new_output_of_ids(kind);
        }
        const DLTensor &like = *views_[0].tensor();
        int64_t last = -1;
        if (kind == Kind::rows_output) {
            last = like.ndim > 1 ? -1 : 1;  // C has an axis there always
        } else if (kind == Kind::half_output && like.ndim >= 1 && like.ndim <= 4) {
            last = like.shape[like.ndim - 1] / 2;
        } else if (kind == Kind::layer_output) {
            halyard_weights_info info;
            halyard_weights_get_info(static_cast<const halyard_weights *>(weights_), &info);
            last = info.out_features;
        }
        return PyObject_CallFunction(make_array, "OiLsO", first_, last < 0 && kind != Kind::rows_output ? 0 : 1,
                                     static_cast<long long>(last), function_.name,
                                     dtype_ != nullptr ? dtype_ : Py_None);
    }

    /** In f32. Logits of the last ids alone have no axis of them. */
    PyObject *new_output_of_ids(Kind kind) {
        halyard_stack_config config;
        halyard_stack_get_config(stack_, &config);
        halyard_stack_options options;
        memcpy(&options, frame_.options, sizeof options);
        const bool is_logits = kind == Kind::logits_output;
        return PyObject_CallFunction(make_array, "OiLss", first_, is_logits && !options.all_logits ? 1 : 0,
                                     static_cast<long long>(is_logits ? config.vocab_size : config.hidden_size),
                                     function_.name, "float32");
    }

    /** Null with an exception if it is no array. */
    DLTensor *open(const Parameter &parameter, PyObject *value) {
        first_ = opened_ == 0 ? value : first_;
        ArrayView &view = views_[opened_++];
        const bool is_open = view.open(value, {function_.name, parameter.name, is_written(parameter.kind)});
        return is_open ? view.tensor() : nullptr;
    }

    template<typename T>
    bool set_field(const Parameter &parameter, T value) {
        memcpy(frame_.options + parameter.place, &value, sizeof value);
        return true;
    }

    /** Into the options, or as the next argument of its kind. */
    template<typename T>
    bool put(const Parameter &parameter, T value, T *argument, int *count) {
        if (parameter.place >= 0) {
            return set_field(parameter, value);
        }
        *argument = value;
        ++*count;
        return true;
    }

    PyObject *result() {
        if (function_.makes != Type::none) {
            if (function_.makes == Type::block) {
                parts_->close_arrays();
            }
            Parts *parts = parts_;
            parts_ = nullptr;
            return new_handle(function_.makes, frame_.made, nullptr, parts);
        }
        if (!add_numbers()) {
            return nullptr;
        }
        if (results_count_ == 0) {
            Py_RETURN_NONE;
        }
        if (results_count_ == 1) {
            Py_INCREF(results_[0]);
            return results_[0];
        }
        PyObject *tuple = PyTuple_New(results_count_);
        for (int i = 0; tuple != nullptr && i < results_count_; i++) {
            Py_INCREF(results_[i]);
            PyTuple_SetItem(tuple, i, results_[i]);
        }
        return tuple;
    }

    /** What the C function wrote of numbers becomes results. */
    bool add_numbers() {
        for (int i = 0; i < function_.count; i++) {
            const Kind kind = function_.parameters[i].kind;
            if (kind == Kind::real_result || kind == Kind::integer_result) {
                PyObject *number = kind == Kind::real_result ? PyFloat_FromDouble(frame_.real_result)
                                                             : PyLong_FromLongLong(frame_.integer_result);
                if (number == nullptr) {
                    return false;
                }
                results_[results_count_++] = number;
            }
        }
        return true;
    }

    const Function &function_;
    Frame frame_;
    ArrayView views_[most_arrays];
    ArrayList list_;
    HandleUse uses_[most_of_a_kind];
    PyObject *results_[most_of_a_kind];
    PyObject *dtype_ = nullptr, *first_ = nullptr;
    PyObject *path_ = nullptr;
    Parts *parts_ = nullptr;
    void *weights_ = nullptr;
    const halyard_stack *stack_ = nullptr;
    int64_t *indices_ = nullptr;
    bool takes_dtype_ = false;
    int inputs_ = 0, reals_ = 0, integers_ = 0, ints_ = 0, ids_ = 0, handles_ = 0, used_ = 0, outputs_ = 0,
        results_count_ = 0, opened_ = 0;
};

}  // namespace

PyObject *call(const Function &function, PyObject *self, PyObject *const *given, Py_ssize_t positional,
               PyObject *names) {
    PyObject *values[most_parameters] = {function.role == Role::method ? self : nullptr};
    return bind(function, given, positional, names, values) ? Call(function).run(values) : nullptr;
}

void set_make_array(PyObject *make) {
    Py_INCREF(make);
    make_array = make;
}

}  // namespace halyard::python
