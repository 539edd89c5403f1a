// See text.h.
#include "text.h"

#include <cstdio>
#include <sstream>
#include <stdexcept>

namespace halyard::tune {

std::vector<std::string> words_of(const std::string &list) {
    std::vector<std::string> words;
    std::istringstream in(list);
    for (std::string word; std::getline(in, word, ',');) {
        words.push_back(word);
    }
    return words;
}

std::string join(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? "" : ", ") + word;
    }
    return text;
}

double seconds_of(const std::string &text) {
    std::size_t end = 0;
    double value = -1;
    try {
        value = std::stod(text, &end);
    } catch (const std::exception &) {
    }
    const std::string unit = text.substr(end);
    const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : -1;
    if (!(value > 0 && factor > 0)) {
        throw std::invalid_argument("--budget is '" + text + "'; give a time like 90s, 10m or 2h");
    }
    return value * factor;
}

std::string readable(double seconds) {
    char text[32];
    const int whole = static_cast<int>(seconds + 0.5);
    if (whole < 120) {
        std::snprintf(text, sizeof(text), "%d s", whole);
    } else {
        std::snprintf(text, sizeof(text), "%d min", (whole + 30) / 60);
    }
    return text;
}

std::string number(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

}  // namespace halyard::tune
