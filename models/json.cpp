#include "json.h"

#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace halyard::models {

namespace {

/// Takes the text token by token and makes the values of it.
class Builder {
public:
    explicit Builder(const std::filesystem::path &file) : file_(file) {}

    Json root;

    bool null() {
        place();
        return true;
    }
    bool boolean(bool value) { return put(value); }
    bool number_integer(std::int64_t value) { return put(value); }
    bool number_unsigned(std::uint64_t value) { return put(value); }
    bool number_float(double value, const std::string &text) { return put(Json::Real{value, text}); }
    bool string(const std::string &value) { return put(value); }
    bool binary(nlohmann::json::binary_t &) { return false; }  // not in JSON
    bool start_object(std::size_t) { return open(Json::Object()); }
    bool key(const std::string &name) {
        const auto [member, is_new] = std::get<Json::Object>(open_.back()->value).try_emplace(name);
        if (!is_new) {
            refuse(file_, "has two fields named ", in_quotes(name), " in one object");
        }
        member_ = &member->second;
        return true;
    }
    bool end_object() { return close(); }
    bool start_array(std::size_t) { return open(Json::Array()); }
    bool end_array() { return close(); }
    bool parse_error(std::size_t position, const std::string &, const nlohmann::json::exception &error) {
        if (dynamic_cast<const nlohmann::json::out_of_range *>(&error) != nullptr) {
            refuse(file_, "is not valid JSON: it has a number that is out of range");
        }
        refuse(file_, "is not valid JSON, at its byte ", position);
    }

private:
    /// Where the next value goes.
    Json &place() {
        constexpr std::size_t max_values = 1'000'000;
        if (++values_ > max_values) {
            refuse(file_, "holds more than ", max_values, " values");
        }
        if (open_.empty()) {
            return root;
        }
        auto *const array = std::get_if<Json::Array>(&open_.back()->value);
        return array != nullptr ? array->emplace_back() : *member_;
    }
    template<class Value>
    bool put(Value &&value) {
        place().value = std::forward<Value>(value);
        return true;
    }
    template<class Structure>
    bool open(Structure &&structure) {
        constexpr std::size_t max_depth = 64;
        if (open_.size() == max_depth) {
            refuse(file_, "is nested deeper than ", max_depth, " levels");
        }
        Json &at = place();
        at.value = std::forward<Structure>(structure);
        open_.push_back(&at);
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const std::filesystem::path &file_;
    std::vector<Json *> open_;  // the arrays and objects that the next value is in, outermost first
    Json *member_ = nullptr;    // of the innermost object
    std::size_t values_ = 0;
};

}  // namespace

Json::Object parse_json(std::string_view text, const std::filesystem::path &file, std::size_t max_bytes) {
    if (text.size() > max_bytes) {
        refuse(file, "has ", text.size(), " bytes, above the limit of ", max_bytes);
    }
    // It would be taken for the end of the text.
    if (text.find('\0') != std::string_view::npos) {
        refuse(file, "is not valid JSON: it has a zero byte");
    }
    Builder builder(file);
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    auto *const object = std::get_if<Json::Object>(&builder.root.value);
    if (object == nullptr) {
        refuse(file, "holds ", shown(builder.root), " instead of an object");
    }
    return std::move(*object);
}

namespace {

void append_text(const std::string &text, std::string &to) {
    to += '"';
    for (const char code : text) {
        if (code == '"' || code == '\\') {
            to += '\\';
            to += code;
        } else if (static_cast<unsigned char>(code) < 0x20) {
            char escaped[7];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(code));
            to += escaped;
        } else {
            to += code;
        }
    }
    to += '"';
}

constexpr std::size_t json_indent = 2;

void append(const Json &value, std::size_t depth, std::string &to);

/// Members of an object or an array, a line each, or all in one line.
template<class Members, class Append>
void append_members(const Members &members, const char *brackets, bool lines, std::size_t depth, std::string &to,
                    const Append &append_member) {
    to += brackets[0];
    for (auto at = members.begin(); at != members.end(); ++at) {
        to += at == members.begin() ? "" : lines ? "," : ", ";
        to += lines ? "\n" + std::string(json_indent * (depth + 1), ' ') : "";
        append_member(*at);
    }
    to += lines && !members.empty() ? "\n" + std::string(json_indent * depth, ' ') : "";
    to += brackets[1];
}

void append(const Json::Object &object, std::size_t depth, std::string &to) {
    append_members(object, "{}", true, depth, to, [&](const auto &member) {
        append_text(member.first, to);
        to += ": ";
        append(member.second, depth + 1, to);
    });
}

void append(const Json &value, std::size_t depth, std::string &to) {
    if (const auto *const object = value.as<Json::Object>()) {
        append(*object, depth, to);
    } else if (const auto *const array = value.as<Json::Array>()) {
        append_members(*array, "[]", false, depth, to, [&](const Json &each) { append(each, depth + 1, to); });
    } else if (const auto *const text = value.as<std::string>()) {
        append_text(*text, to);
    } else {
        to += shown(value);
    }
}

template<class Real>
Json shortest(Real value) {
    char text[32];
    std::string all(text, std::to_chars(text, text + sizeof text, value).ptr);
    all += all.find_first_of(".e") == std::string::npos ? ".0" : "";
    return {Json::Real{static_cast<double>(value), all}};
}

}  // namespace

std::string json_text(const Json::Object &object) {
    std::string text;
    append(object, 0, text);
    return text + "\n";
}

Json real_json(float value) {
    return shortest(value);
}

Json real_json(double value) {
    return shortest(value);
}

std::string shown(const Json &value) {
    if (const auto *const text = value.as<std::string>()) {
        return in_quotes(*text);
    }
    if (const auto *const number = value.as<Json::Real>()) {
        return number->text;
    }
    if (const auto *const number = value.as<std::int64_t>()) {
        return std::to_string(*number);
    }
    if (const auto *const number = value.as<std::uint64_t>()) {
        return std::to_string(*number);
    }
    if (const bool *const flag = value.as<bool>()) {
        return *flag ? "true" : "false";
    }
    return value.as<Json::Array>() != nullptr ? "an array" : value.as<Json::Object>() != nullptr ? "an object" : "null";
}

const Json *Fields::find(const char *name) const {
    const auto at = object_.find(name);
    return at != object_.end() && at->second.as<std::monostate>() == nullptr ? &at->second : nullptr;
}

const Json &Fields::required(const char *name) const {
    const auto at = object_.find(name);
    if (at == object_.end()) {
        refuse(name, "is missing");
    }
    return at->second;
}

template<class Type>
const Type &Fields::typed(const char *name, const char *wanted) const {
    const Json &value = required(name);
    const auto *const typed = value.as<Type>();
    if (typed == nullptr) {
        refuse(name, "is ", shown(value), " instead of ", wanted);
    }
    return *typed;
}

std::int64_t Fields::integer(const char *name, std::int64_t least, std::int64_t most,
                             std::optional<std::int64_t> fallback) const {
    if (fallback && !present(name)) {
        return *fallback;
    }
    const Json &value = required(name);
    const auto *const negative = value.as<std::int64_t>();
    if (negative == nullptr) {
        const auto positive = typed<std::uint64_t>(name, "an integer");
        if (positive <= static_cast<std::uint64_t>(most) && static_cast<std::int64_t>(positive) >= least) {
            return static_cast<std::int64_t>(positive);
        }
    } else if (*negative >= least && *negative <= most) {
        return *negative;
    }
    refuse(name, "is ", shown(value), "; supported are ", least, " to ", most);
}

double Fields::number(const char *name, double least, double most, std::optional<double> fallback) const {
    if (fallback && !present(name)) {
        return *fallback;
    }
    const Json &value = required(name);
    const auto *const negative = value.as<std::int64_t>();
    const auto *const positive = value.as<std::uint64_t>();
    const double result = negative != nullptr   ? static_cast<double>(*negative)
                          : positive != nullptr ? static_cast<double>(*positive)
                                                : typed<Json::Real>(name, "a number").value;
    if (!(result >= least && result <= most)) {
        refuse(name, "is ", shown(value), "; supported are ", least, " to ", most);
    }
    return result;
}

bool Fields::flag(const char *name) const {
    return typed<bool>(name, "true or false");
}

std::string Fields::text(const char *name, std::optional<std::string> fallback) const {
    return fallback && !present(name) ? *fallback : typed<std::string>(name, "a string");
}

Fields Fields::object(const char *name) const {
    return Fields(typed<Json::Object>(name, "an object"), file_, names_, within_ + name + ".");
}

std::string Fields::called(const std::string &name) const {
    if (names_ != nullptr) {
        if (const auto at = names_->find(within_ + name); at != names_->end()) {
            return at->second;
        }
    }
    return within_ + name;
}

}  // namespace halyard::models
