// How a function, a method or a constructor is described, and how its arguments get from there to a C function.
#ifndef HALYARD_PYTHON_CORE_FUNCTION_H
#define HALYARD_PYTHON_CORE_FUNCTION_H

#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "halyard/attention.h"
#include "halyard/block.h"
#include "halyard/halyard.h"
#include "halyard/training.h"
#include "model.h"

namespace halyard::python {

enum class Kind : unsigned char {
    input,             // an array
    input_or_none,     // an array or None, which must be given
    optional_input,    // an array or None
    input_list,        // a list or a tuple of arrays
    changed,           // an array that is written; it is not returned
    real,              // a float
    wide_real,         // the same as a double in C
    integer,           // an int64_t
    optional_integer,  // the same or None; the int that is the next field says whether there is one
    small_integer,     // an int
    boolean,           // a bool, an int in C
    choice,            // the name of a value of an enumeration
    storage,           // the name of a dtype
    dtype,             // what a new output is made of; no argument of the C function
    indices,  // ints, one for each sequence of the first array, or None; the value is the rank of one with a batch
    ids,      // any number of ints, or None
    path,     // of a file or folder
    preset,   // the name of a preset of blocks, which fills the options, or None, which must be given
    block_weights,            // arrays and Weights by the names of halyard_block_weights
    stack_weights,            // the same of halyard_stack_weights; what is made keeps them
    blocks,                   // a sequence of Blocks, which what is made keeps
    handle,                   // an object of a type of the module
    optional_handle,          // the same or None
    kept_handle,              // one that what is made keeps
    changed_handle,           // one that no other call may use meanwhile
    optional_changed_handle,  // the same or None
    named,                    // no parameter: those after it are given by name
    flag,                     // a bool that is a bit of the C function's flags
    output,                   // an array like the first one, or None for a new one
    half_output,              // the same with half its last axis
    layer_output,             // the same with the outputs of the last Weights as its last axis
    rows_output,              // the same without its last axis: a number for each row
    logits_output,            // an f32 array with a row of logits for each id of the first one, or for each sequence
    hidden_output,            // an f32 array with hidden states for each id of the first one
    real_result,              // no parameter: a double that the C function writes
    integer_result,           // the same of an int64_t
    optional_output,          // an array that is written, or None; it is not returned
};

/** The types of objects that have a handle of C, and none. */
enum class Type : unsigned char { weights, rope, kv_cache, block, stack, model, token_stream, none };
inline constexpr int type_count = static_cast<int>(Type::none);
inline constexpr const char *type_names[] = {"Weights", "Rope", "KVCache", "Block", "Stack", "Model", "TokenStream"};

/** The type of a C handle; none of other types of C. */
template<typename T>
inline constexpr Type type_of_handle = std::is_same_v<T, halyard_weights>    ? Type::weights
                                       : std::is_same_v<T, halyard_rope>     ? Type::rope
                                       : std::is_same_v<T, halyard_kv_cache> ? Type::kv_cache
                                       : std::is_same_v<T, halyard_block>    ? Type::block
                                       : std::is_same_v<T, halyard_stack>    ? Type::stack
                                       : std::is_same_v<T, LoadedModel>      ? Type::model
                                                                             : Type::none;

/** The names of an enumeration's values, which count from 0. */
struct Names {
    const char *const *names;
    int count;
};

/** The default of a number that must be given. */
inline constexpr double required = __builtin_nan("");

/** Arguments before the first flag or output, or what is named, may be given by position. */
struct Parameter {
    const char *name;
    Kind kind;
    double value = 0;            // the default, of a flag the bit
    int place = -1;              // the offset of the field in the options of the C function; -1: an argument of its own
    Names names = {nullptr, 0};  // of a choice
    Type type = Type::none;      // of a handle
    bool is_kept = false;        // where nothing is given the field stays as it is, and the signature has None
};

inline constexpr int most_parameters = 40, most_of_a_kind = 6, most_option_bytes = 256;

/** The arguments of a call by what they are in C, each kind in the order of its parameters. */
struct Frame {
    const DLTensor *inputs[most_of_a_kind] = {};
    DLTensor *outputs[most_of_a_kind] = {};
    float reals[most_of_a_kind] = {};
    int64_t integers[most_of_a_kind] = {};
    int ints[most_of_a_kind] = {};  // choices and bools
    void *handles[most_of_a_kind] = {};
    const int64_t *indices = nullptr;
    const DLTensor *const *list = nullptr;  // its length is the next of the integers
    Ids ids[2] = {};
    const char *path = nullptr;
    Failure failure = {};
    unsigned flags = 0;
    void *made = nullptr;  // a new handle
    double real_result = 0;
    int64_t integer_result = 0;
    alignas(8) unsigned char options[most_option_bytes] = {};
};

enum class Role : unsigned char { function, method, constructor, maker };

struct Function {
    const char *name;  // of a method with its type and a dot before it
    const char *summary;
    halyard_status (*call)(const halyard_context *context, Frame &frame);
    const Parameter *parameters;
    int count;
    int positional;  // how many may be given by position
    Role role;
    Type owner;  // of what is made by constructors and makers, and of methods
    Type makes;  // what is made; none of a function or method that has outputs
};

inline constexpr bool is_returned(Kind kind) {
    return kind >= Kind::output && kind != Kind::optional_output;
}

/** Whether a call writes the array. */
inline constexpr bool is_written(Kind kind) {
    return kind >= Kind::output || kind == Kind::changed;
}

/** Whether Python gives a value for it. */
inline constexpr bool is_given(Kind kind) {
    return kind != Kind::named && kind != Kind::real_result && kind != Kind::integer_result;
}

inline constexpr bool is_required(const Parameter &parameter) {
    return parameter.kind == Kind::input || parameter.kind == Kind::input_or_none ||
           parameter.kind == Kind::input_list || parameter.kind == Kind::changed || parameter.kind == Kind::handle ||
           parameter.kind == Kind::kept_handle || parameter.kind == Kind::changed_handle ||
           (parameter.kind >= Kind::path && parameter.kind <= Kind::blocks) || parameter.value != parameter.value;
}

/** Whether None is something that was given. */
inline constexpr bool takes_none(Kind kind) {
    return kind == Kind::input_or_none || kind == Kind::preset;
}

/** What is behind a method's type and dot. */
inline const char *short_name(const Function &function) {
    const char *dot = strrchr(function.name, '.');
    return dot != nullptr ? dot + 1 : function.name;
}

// ---- from a frame to a C function ----

/** What a struct of options takes in a frame. */
template<typename Options>
inline constexpr size_t option_room = (sizeof(Options) + 7) / 8 * 8;

/** Takes the next argument of a C function by its type. Structs of options lie one after another in frame.options. */
class FrameReader {
public:
    FrameReader(const halyard_context *context, Frame &frame) : context_(context), frame_(frame) {}

    template<typename T>
    T next() {
        using Pointed = std::remove_const_t<std::remove_pointer_t<T>>;
        if constexpr (std::is_same_v<T, const halyard_context *>) {
            return context_;
        } else if constexpr (std::is_same_v<T, const DLTensor *>) {
            return frame_.inputs[input_++];
        } else if constexpr (std::is_same_v<T, DLTensor *>) {
            return frame_.outputs[output_++];
        } else if constexpr (std::is_same_v<T, float>) {
            return frame_.reals[real_++];
        } else if constexpr (std::is_same_v<T, int64_t>) {
            return frame_.integers[integer_++];
        } else if constexpr (std::is_same_v<T, unsigned>) {
            return frame_.flags;
        } else if constexpr (std::is_same_v<T, int> || std::is_enum_v<T>) {
            return static_cast<T>(frame_.ints[int_++]);
        } else if constexpr (std::is_same_v<T, const int64_t *>) {
            return frame_.indices;
        } else if constexpr (std::is_same_v<T, const DLTensor *const *>) {
            return frame_.list;
        } else if constexpr (std::is_same_v<T, double *>) {
            return &frame_.real_result;
        } else if constexpr (std::is_same_v<T, int64_t *>) {
            return &frame_.integer_result;
        } else if constexpr (std::is_same_v<T, Ids>) {
            return frame_.ids[ids_++];
        } else if constexpr (std::is_same_v<T, const char *>) {
            return frame_.path;
        } else if constexpr (std::is_same_v<T, Failure *>) {
            return &frame_.failure;
        } else if constexpr (std::is_pointer_v<Pointed>) {
            return reinterpret_cast<T>(&frame_.made);
        } else if constexpr (type_of_handle<Pointed> != Type::none) {
            return static_cast<T>(frame_.handles[handle_++]);
        } else {
            auto *options = reinterpret_cast<T>(frame_.options + option_bytes_);
            option_bytes_ += option_room<Pointed>;
            return options;
        }
    }

private:
    const halyard_context *context_;
    Frame &frame_;
    int input_ = 0, output_ = 0, real_ = 0, integer_ = 0, int_ = 0, handle_ = 0, ids_ = 0;
    size_t option_bytes_ = 0;
};

template<typename... Arguments>
halyard_status apply(halyard_status (*function)(Arguments...), const halyard_context *context, Frame &frame) {
    FrameReader reader(context, frame);
    const std::tuple<Arguments...> arguments{reader.next<Arguments>()...};  // braces: from left to right
    return std::apply(function, arguments);
}

template<auto C>
halyard_status call_with(const halyard_context *context, Frame &frame) {
    return apply(C, context, frame);
}

template<int Count>
constexpr Function describe(const char *name, halyard_status (*call)(const halyard_context *, Frame &),
                            const Parameter (&parameters)[Count], const char *summary, Role role = Role::function,
                            Type owner = Type::none, Type makes = Type::none) {
    static_assert(Count <= most_parameters);
    int positional = 0;
    while (positional < Count && parameters[positional].kind < Kind::named) {
        positional++;
    }
    return {name, summary, call, parameters, Count, positional, role, owner, makes};
}

// ---- parameters that are fields of options ----

/** What a field is, by its type in C: an int counts as a bool. */
template<typename T>
constexpr Kind kind_of_field() {
    return std::is_same_v<T, const DLTensor *> ? Kind::optional_input
           : std::is_same_v<T, DLTensor *>     ? Kind::optional_output
           : std::is_same_v<T, float>          ? Kind::real
           : std::is_same_v<T, double>         ? Kind::wide_real
           : std::is_same_v<T, int64_t>        ? Kind::integer
           : std::is_same_v<T, int>            ? Kind::boolean
           : std::is_same_v<T, unsigned>       ? Kind::flag
           : std::is_same_v<T, DLDataType>     ? Kind::storage
           : std::is_enum_v<T>                 ? Kind::choice
                                               : Kind::optional_handle;
}

/** The names of an enumeration's values, for each that is a parameter. */
template<typename T>
inline constexpr Names names_of = {nullptr, 0};

template<typename T>
constexpr Parameter field(const char *name, size_t place, double value, Kind kind = kind_of_field<T>()) {
    static_assert(std::is_pointer_v<T> || sizeof(T) <= 8);
    return {name,        kind,
            value,       static_cast<int>(place),
            names_of<T>, type_of_handle<std::remove_const_t<std::remove_pointer_t<T>>>};
}

/** The field of a struct with another name, default and kind than those of the field. */
#define HALYARD_FIELD_AS(name, options, member, ...)                                                                   \
    field<decltype(std::declval<options &>().member)>(name, offsetof(options, member), __VA_ARGS__)
/** The field of a struct, with its name, and 0 for its default. */
#define HALYARD_FIELD(options, member) HALYARD_FIELD_AS(#member, options, member, 0)

/** A field that a preset has filled: without an argument it stays as it is. */
#define HALYARD_KEPT_FIELD(name, options, member, ...) kept(HALYARD_FIELD_AS(name, options, member, __VA_ARGS__))
constexpr Parameter kept(Parameter parameter) {
    parameter.is_kept = true;
    return parameter;
}

/** A field of the struct of options that comes after another one. */
template<typename Before>
constexpr Parameter after(Parameter parameter) {
    parameter.place += static_cast<int>(option_room<Before>);
    return parameter;
}

/** A parameter of an enumeration that is an argument of its own. */
template<typename T>
constexpr Parameter choice(const char *name) {
    return {name, Kind::choice, 0, -1, names_of<T>};
}

constexpr Parameter object(const char *name, Type type, Kind kind = Kind::handle) {
    return {name, kind, 0, -1, {nullptr, 0}, type};
}

}  // namespace halyard::python

#endif
