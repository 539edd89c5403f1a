// See hash.h.
#include "hash.h"

#include <cstdio>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace halyard::tune {

std::string hash_of(const std::string &bytes) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
    return text;
}

}  // namespace halyard::tune
