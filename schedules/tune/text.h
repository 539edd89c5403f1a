// Words of a command line, and numbers and times for people.
#ifndef HALYARD_TUNE_TEXT_H
#define HALYARD_TUNE_TEXT_H

#include <string>
#include <vector>

namespace halyard::tune {

/** "a,b" as two words, and the other way round with a space. */
std::vector<std::string> words_of(const std::string &list);
std::string join(const std::vector<std::string> &words);

/** Seconds of "90", "90s", "10m" or "2h"; throws std::invalid_argument. */
double seconds_of(const std::string &text);
/** "90 s" or "10 min" */
std::string readable(double seconds);
/** A number as printf prints it. */
std::string number(const char *format, double value);

}  // namespace halyard::tune

#endif
