// The hash that tells whether two pieces of text or code are the same.
#ifndef HALYARD_TUNE_HASH_H
#define HALYARD_TUNE_HASH_H

#include <string>

namespace halyard::tune {

/** XXH3 of bytes, as 16 hexadecimal digits. */
std::string hash_of(const std::string &bytes);

}  // namespace halyard::tune

#endif
