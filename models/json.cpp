#include "json.h"

#include <cmath>
#include <set>
#include <vector>

namespace halyard::models {

using nlohmann::json;

json parse_json(std::string_view text, const std::filesystem::path &file) {
    constexpr std::size_t max_bytes = 100'000'000, max_depth = 64;
    if (text.size() > max_bytes) {
        refuse(file, "has ", text.size(), " bytes, above the limit of ", max_bytes);
    }
    // It would be taken for the end of the text.
    if (text.find('\0') != std::string_view::npos) {
        refuse(file, "is not valid JSON: it has a zero byte");
    }
    std::vector<std::set<std::string>> names;  // of the objects that are open
    std::size_t depth = 0;
    const auto watch = [&](int, json::parse_event_t event, json &value) {
        switch (event) {
        case json::parse_event_t::object_start:
            names.emplace_back();
            [[fallthrough]];
        case json::parse_event_t::array_start:
            if (++depth > max_depth) {
                refuse(file, "is nested deeper than ", max_depth, " levels");
            }
            break;
        case json::parse_event_t::key:
            if (!names.back().insert(value.get_ref<const std::string &>()).second) {
                refuse(file, "has two fields named ", in_quotes(value.get_ref<const std::string &>()),
                       " in one object");
            }
            break;
        case json::parse_event_t::object_end:
            names.pop_back();
            [[fallthrough]];
        case json::parse_event_t::array_end:
            depth--;
            break;
        case json::parse_event_t::value:
            break;
        }
        return true;
    };
    json result;
    try {
        result = json::parse(text.begin(), text.end(), watch);
    } catch (const json::parse_error &error) {
        refuse(file, "is not valid JSON, at its byte ", error.byte);
    } catch (const json::exception &) {
        refuse(file, "is not valid JSON: it has a number that is out of range");
    }
    if (!result.is_object()) {
        refuse(file, "holds ", result.type_name(), " instead of an object");
    }
    return result;
}

std::string shown(const json &value) {
    if (value.is_string()) {
        return in_quotes(value.get_ref<const std::string &>());
    }
    if (value.is_structured()) {
        return std::string("an ") + value.type_name();
    }
    return value.dump();
}

const json *Fields::find(const char *name) const {
    const auto at = object_.find(name);
    return at != object_.end() && !at->is_null() ? &*at : nullptr;
}

const json &Fields::required(const char *name) const {
    const json *const value = find(name);
    if (value == nullptr) {
        refuse(name, "is missing");
    }
    return *value;
}

void Fields::wrong_type(const char *name, const json &value, const char *wanted) const {
    refuse(name, "is ", shown(value), " instead of ", wanted);
}

std::int64_t Fields::integer(const char *name, std::int64_t least, std::int64_t most,
                             std::optional<std::int64_t> fallback) const {
    if (fallback && !has(name)) {
        return *fallback;
    }
    const json &value = required(name);
    if (!value.is_number_integer()) {
        wrong_type(name, value, "an integer");
    }
    const bool too_large = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
    if (too_large || value.get<std::int64_t>() < least) {
        refuse(name, "is ", value.dump(), "; supported are ", least, " to ", most);
    }
    return value.get<std::int64_t>();
}

double Fields::number(const char *name, double least, double most, std::optional<double> fallback) const {
    if (fallback && !has(name)) {
        return *fallback;
    }
    const json &value = required(name);
    if (!value.is_number()) {
        wrong_type(name, value, "a number");
    }
    const double result = value.get<double>();
    if (!(result >= least && result <= most)) {
        refuse(name, "is ", value.dump(), "; supported are ", least, " to ", most);
    }
    return result;
}

bool Fields::flag(const char *name, std::optional<bool> fallback) const {
    if (fallback && !has(name)) {
        return *fallback;
    }
    const json &value = required(name);
    if (!value.is_boolean()) {
        wrong_type(name, value, "true or false");
    }
    return value.get<bool>();
}

std::string Fields::text(const char *name, std::optional<std::string> fallback) const {
    if (fallback && !has(name)) {
        return *fallback;
    }
    const json &value = required(name);
    if (!value.is_string()) {
        wrong_type(name, value, "a string");
    }
    return value.get<std::string>();
}

Fields Fields::object(const char *name) const {
    const json &value = required(name);
    if (!value.is_object()) {
        wrong_type(name, value, "an object");
    }
    return Fields(value, file_, within_ + name + ".");
}

}  // namespace halyard::models
