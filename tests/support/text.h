// Words in messages.
#ifndef HALYARD_TESTS_TEXT_H
#define HALYARD_TESTS_TEXT_H

#include <cctype>
#include <cstddef>
#include <string>

namespace halyard::tests {

/** Whether `word` stands in `text` by itself, not as a part of a longer name. */
inline bool contains_word(const std::string &text, const std::string &word) {
    const auto part_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || !part_of_word(text[at - 1])) && (end == text.size() || !part_of_word(text[end]))) {
            return true;
        }
    }
    return false;
}

}  // namespace halyard::tests

#endif
