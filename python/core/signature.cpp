// Signatures, with types or without, from the descriptions of functions.
#include "signature.h"

#include <cstdarg>
#include <cstdio>

#include "arguments.h"

namespace halyard::python {
namespace {

class Text {
public:
    explicit Text(char (&text)[signature_room]) : text_(text) {}

    __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        length_ += vsnprintf(text_ + length_, sizeof text_ - length_, format, arguments);
        va_end(arguments);
        length_ = length_ < signature_room ? length_ : signature_room - 1;
    }

private:
    char (&text_)[signature_room];
    int length_ = 0;
};

/** What is returned: how many arrays, and numbers. */
struct Returned {
    int arrays, numbers;
};

Returned returned_by(const Function &function) {
    Returned returned = {0, 0};
    for (int i = 0; i < function.count; i++) {
        const Kind kind = function.parameters[i].kind;
        if (is_returned(kind)) {
            ++(is_given(kind) ? returned.arrays : returned.numbers);
        }
    }
    return returned;
}

void add_names(Text &text, const Names &names) {
    text.add("Literal[");
    for (int i = 0; i < names.count; i++) {
        text.add("%s\"%s\"", i == 0 ? "" : ", ", names.names[i]);
    }
    text.add("]");
}

/** `array` is what stands for an array: a variable where one is returned. */
void add_plain_type(Text &text, const Parameter &parameter, const char *array) {
    switch (parameter.kind) {
    case Kind::input:
    case Kind::changed:
        return text.add("%s", array);
    case Kind::input_list:
        return text.add("Union[List[%s], Tuple[%s, ...]]", array, array);
    case Kind::real:
    case Kind::wide_real:
        return text.add("float");
    case Kind::integer:
    case Kind::small_integer:
        return text.add("int");
    case Kind::optional_integer:
        return text.add("Optional[int]");
    case Kind::boolean:
    case Kind::flag:
        return text.add("bool");
    case Kind::choice:
        return add_names(text, parameter.names);
    case Kind::storage:
        return add_names(text, dtypes);
    case Kind::dtype:
        return text.add("Any");
    case Kind::indices:
        return text.add("Optional[Sequence[int]]");
    case Kind::ids:
        return text.add(is_required(parameter) ? "Sequence[int]" : "Optional[Sequence[int]]");
    case Kind::path:
        return text.add("Any");
    case Kind::preset:
        text.add("Optional[");
        add_names(text, presets());
        return text.add("]");
    case Kind::block_weights:
    case Kind::stack_weights:
        return text.add("Mapping[str, Any]");
    case Kind::blocks:
        return text.add("Sequence[Block]");
    case Kind::handle:
    case Kind::kept_handle:
    case Kind::changed_handle:
        return text.add("%s", type_names[static_cast<int>(parameter.type)]);
    case Kind::optional_handle:
    case Kind::optional_changed_handle:
        return text.add("Optional[%s]", type_names[static_cast<int>(parameter.type)]);
    default:
        return text.add("Optional[%s]", array);
    }
}

void add_type(Text &text, const Parameter &parameter, const char *array) {
    if (!parameter.is_kept) {
        return add_plain_type(text, parameter, array);
    }
    text.add("Optional[");
    add_plain_type(text, parameter, array);
    text.add("]");
}

void add_number(Text &text, const char *equals, double value) {
    text.add(value == static_cast<int>(value) ? "%s%.1f" : "%s%g", equals, value);
}

void add_default(Text &text, const Parameter &parameter, const char *equals) {
    if (is_required(parameter)) {
        return;
    }
    if (parameter.is_kept) {
        return text.add("%sNone", equals);
    }
    const auto index = static_cast<int>(parameter.value);
    switch (parameter.kind) {
    case Kind::real:
    case Kind::wide_real:
        return add_number(text, equals, parameter.value);
    case Kind::integer:
    case Kind::small_integer:
        return text.add("%s%d", equals, index);
    case Kind::boolean:
        return text.add(parameter.value != 0 ? "%sTrue" : "%sFalse", equals);
    case Kind::flag:
        return text.add("%sFalse", equals);
    case Kind::choice:
        return text.add("%s'%s'", equals, parameter.names.names[index]);
    case Kind::storage:
        return text.add("%s'%s'", equals, dtype_names[index]);
    default:
        return text.add("%sNone", equals);
    }
}

void add_parameters(Text &text, const Function &function, const char *array) {
    bool is_first = true;
    for (int i = 0; i < function.count; i++) {
        const Parameter &parameter = function.parameters[i];
        const bool is_self = i == 0 && function.role == Role::method;
        if (i == function.positional && (parameter.kind == Kind::named || is_given(parameter.kind))) {
            text.add(is_first ? "*" : ", *");
            is_first = false;
        }
        if (is_given(parameter.kind)) {
            text.add("%s%s%s", is_first ? "" : ", ", is_self && array == nullptr ? "$" : "", parameter.name);
            is_first = false;
            if (array != nullptr && !is_self) {
                text.add(": ");
                add_type(text, parameter, array);
            }
            if (!is_self) {
                add_default(text, parameter, array != nullptr ? " = " : "=");
            }
        }
    }
}

void add_returned(Text &text, const Function &function, const Returned &returned) {
    const int count = returned.arrays + returned.numbers;
    const char *before = count > 1 ? "Tuple[" : "";
    for (int i = 0; i < function.count; i++) {
        const Kind kind = function.parameters[i].kind;
        if (is_returned(kind)) {
            text.add("%s%s", before,
                     kind == Kind::real_result      ? "float"
                     : kind == Kind::integer_result ? "int"
                                                    : "_Array");
            before = ", ";
        }
    }
    text.add(count == 0 ? "None" : count > 1 ? "]" : "");
}

}  // namespace

const char *document(const Function &function, char (&room)[signature_room]) {
    Text text(room);
    text.add("%s(", short_name(function));
    add_parameters(text, function, nullptr);
    text.add(")\n--\n\n%s", function.summary);
    return room;
}

PyObject *stub_of(const Function &function) {
    char room[signature_room];
    Text text(room);
    const Returned returned = returned_by(function);
    text.add(function.role == Role::constructor ? "(self, " : function.role == Role::maker ? "(cls, " : "(");
    add_parameters(text, function, returned.arrays > 0 ? "_Array" : "Any");
    text.add(") -> ");
    if (function.makes != Type::none && function.role != Role::constructor) {
        text.add("%s", type_names[static_cast<int>(function.makes)]);
    } else {
        add_returned(text, function, returned);
    }
    return Py_BuildValue("(sss)", function.name, room, function.summary);
}

}  // namespace halyard::python
