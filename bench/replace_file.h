// Files that are whole at any moment.
#ifndef HALYARD_BENCH_REPLACE_FILE_H
#define HALYARD_BENCH_REPLACE_FILE_H

#include <string>

namespace halyard::bench {

/** Writes text to a file that is replaced at once when it is complete; throws std::runtime_error and leaves the file as it
 * was if it cannot. A device is written to as it is, and a link stays a link. */
void replace_file(const std::string &file, const std::string &text);

/** Throws std::runtime_error if replace_file() could not write there. */
void require_replaceable(const std::string &file);

}  // namespace halyard::bench

#endif
