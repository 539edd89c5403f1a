// How the readers of files say what is wrong: one sentence that begins with the file's name.
#ifndef HALYARD_MODELS_FAIL_H
#define HALYARD_MODELS_FAIL_H

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "halyard/halyard.hpp"

namespace halyard::models {

template<class... Parts>
std::string sentence(const Parts &...parts) {
    std::ostringstream text;
    text.exceptions(std::ios::badbit);  // or it would swallow bad_alloc and leave words out
    (text << ... << parts);
    return text.str();
}

/// `text` from a file, in quotes, and cut where it is very long.
inline std::string in_quotes(std::string_view text) {
    constexpr std::size_t most = 200;
    std::size_t kept = std::min(text.size(), most);
    while (kept < text.size() && kept > 0 && (text[kept] & 0xc0) == 0x80) {
        kept--;  // not within a character
    }
    return "'" + std::string(text.substr(0, kept)) + (kept < text.size() ? "...'" : "'");
}

/// "[2, 3]", cut where a file has very many axes.
inline std::string shape_text(const std::vector<std::int64_t> &shape) {
    constexpr std::size_t most = 10;
    std::string text = "[";
    for (std::size_t axis = 0; axis < std::min(shape.size(), most); axis++) {
        text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
    }
    return text + (shape.size() > most ? ", ...]" : "]");
}

template<class... Parts>
[[noreturn]] void fail(halyard_status status, const std::filesystem::path &file, const Parts &...parts) {
    const std::string what = sentence(parts...), name = file.empty() ? in_quotes("") : file.string();
    std::string message = name + (what.front() == ':' ? "" : " ") + what;
    // Names in files may hold anything, and a terminal obeys control characters.
    const auto is_control = [](unsigned char code) { return code < 0x20 || code == 0x7f; };
    std::replace_if(message.begin(), message.end(), is_control, '?');
    throw Error(status, message.c_str());
}

/// The file is wrong.
template<class... Parts>
[[noreturn]] void refuse(const std::filesystem::path &file, const Parts &...parts) {
    fail(HALYARD_INVALID_ARGUMENT, file, parts...);
}

/// The file may be right, and this library lacks what it asks for.
template<class... Parts>
[[noreturn]] void unsupported(const std::filesystem::path &file, const Parts &...parts) {
    fail(HALYARD_UNSUPPORTED, file, parts...);
}

}  // namespace halyard::models

#endif
