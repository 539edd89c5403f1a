// JSON files, read with limits, and their fields, read with their types.
#ifndef HALYARD_MODELS_JSON_H
#define HALYARD_MODELS_JSON_H

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "fail.h"

namespace halyard::models {

/// The object that `text` holds. Throws `Error` if it is anything else, is nested deeper than 64 levels, is longer than
/// 100 MB, or has two entries of one name in one object.
nlohmann::json parse_json(std::string_view text, const std::filesystem::path &file);

/// One object's fields. Those that are absent or null take the fallback; without one they are refused. Messages name
/// the file and the field.
class Fields {
public:
    Fields(const nlohmann::json &object, std::filesystem::path file, std::string within = "")
        : object_(object), file_(std::move(file)), within_(std::move(within)) {}

    /// Null if the field is absent or null.
    const nlohmann::json *find(const char *name) const;
    bool has(const char *name) const { return find(name) != nullptr; }
    /// Whether it is there, if only as null.
    bool present(const char *name) const { return object_.contains(name); }

    /// An integer in [least, most].
    std::int64_t integer(const char *name, std::int64_t least, std::int64_t most,
                         std::optional<std::int64_t> fallback = std::nullopt) const;
    /// A finite number in [least, most].
    double number(const char *name, double least, double most, std::optional<double> fallback = std::nullopt) const;
    bool flag(const char *name, std::optional<bool> fallback = std::nullopt) const;
    std::string text(const char *name, std::optional<std::string> fallback = std::nullopt) const;
    /// A field that is an object.
    Fields object(const char *name) const;

    /// The field is wrong.
    template<class... Parts>
    [[noreturn]] void refuse(const char *name, const Parts &...parts) const {
        models::refuse(file_, ": ", within_, name, " ", parts...);
    }
    /// The field asks for what this library lacks.
    template<class... Parts>
    [[noreturn]] void unsupported(const char *name, const Parts &...parts) const {
        models::unsupported(file_, ": ", within_, name, " ", parts...);
    }
    const std::filesystem::path &file() const noexcept { return file_; }

private:
    const nlohmann::json &required(const char *name) const;
    [[noreturn]] void wrong_type(const char *name, const nlohmann::json &value, const char *wanted) const;

    const nlohmann::json &object_;
    std::filesystem::path file_;
    std::string within_;
};

/// A value as a message shows it.
std::string shown(const nlohmann::json &value);

}  // namespace halyard::models

#endif
