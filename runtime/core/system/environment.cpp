// See environment.h.
#include "core/system/environment.h"

#include <cstdio>
#include <cstdlib>

namespace halyard {

const char *environment(const char *variable) {
    const char *const value = secure_getenv(variable);
    return value && *value != '\0' ? value : nullptr;
}

void say_ignored(const char *variable, const char *value, const char *takes) {
    fprintf(stderr, "halyard: %s is '%s' and ignored; it takes %s.\n", variable, value, takes);
}

int number_in_digits(const char *text, int most) {
    int number = 0;
    for (; *text >= '0' && *text <= '9' && number <= most; text++) {
        number = 10 * number + (*text - '0');
    }
    return *text == '\0' && number <= most ? number : 0;
}

}  // namespace halyard
