// JSON files, read with limits, and their fields, read with their types.
#ifndef HALYARD_MODELS_JSON_H
#define HALYARD_MODELS_JSON_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fail.h"

namespace halyard::models {

/// A value of a JSON file. nlohmann::json, which parses, is not kept: its destructor allocates memory, and where there
/// is none it ends the program.
struct Json {
    struct Real {
        double value;
        std::string text;  // as in the file
    };
    using Array = std::vector<Json>;
    using Object = std::map<std::string, Json>;
    /// Integers are unsigned unless they are negative; null is the first alternative.
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, Real, std::string, Array, Object> value;

    /// Null if it is of another type.
    template<class Type>
    const Type *as() const noexcept {
        return std::get_if<Type>(&value);
    }
};

/// The object that `text` holds. Throws `Error` if it is anything else, is longer than `max_bytes`, holds more than a
/// million values, is nested deeper than 64 levels, or has two entries of one name in one object.
Json::Object parse_json(std::string_view text, const std::filesystem::path &file, std::size_t max_bytes);

/// An object as JSON, which parse_json reads back. Strings are UTF-8.
std::string json_text(const Json::Object &object);
/// A finite number as JSON: the shortest text that is this f32 or f64, with a point or an exponent.
Json real_json(float value);
Json real_json(double value);

/// One object's fields. Those that are absent take the fallback; without one they are refused. Null is of no type but
/// its own. Messages name the file and the field.
class Fields {
public:
    using Names = std::map<std::string, std::string>;

    /// names: what messages call fields that the file spells otherwise; must outlive this.
    Fields(const Json::Object &object, std::filesystem::path file, const Names *names = nullptr,
           std::string within = "")
        : object_(object), file_(std::move(file)), names_(names), within_(std::move(within)) {}

    /// A null pointer if the field is absent or null.
    const Json *find(const char *name) const;
    bool has(const char *name) const { return find(name) != nullptr; }
    /// Whether it is there, if only as null.
    bool present(const char *name) const { return object_.count(name) > 0; }

    /// An integer in [least, most].
    std::int64_t integer(const char *name, std::int64_t least, std::int64_t most,
                         std::optional<std::int64_t> fallback = std::nullopt) const;
    /// A finite number in [least, most].
    double number(const char *name, double least, double most, std::optional<double> fallback = std::nullopt) const;
    bool flag(const char *name) const;
    std::string text(const char *name, std::optional<std::string> fallback = std::nullopt) const;
    /// A field that is an object.
    Fields object(const char *name) const;

    /// What messages call a field.
    std::string called(const std::string &name) const;
    /// The field is wrong.
    template<class... Parts>
    [[noreturn]] void refuse(const char *name, const Parts &...parts) const {
        models::refuse(file_, ": ", called(name), " ", parts...);
    }
    /// The field asks for what this library lacks.
    template<class... Parts>
    [[noreturn]] void unsupported(const char *name, const Parts &...parts) const {
        models::unsupported(file_, ": ", called(name), " ", parts...);
    }
    const std::filesystem::path &file() const noexcept { return file_; }

private:
    const Json &required(const char *name) const;
    /// The value of a field of this type, which `wanted` describes.
    template<class Type>
    const Type &typed(const char *name, const char *wanted) const;

    const Json::Object &object_;
    std::filesystem::path file_;
    const Names *names_;
    std::string within_;
};

/// A value as a message shows it.
std::string shown(const Json &value);

}  // namespace halyard::models

#endif
