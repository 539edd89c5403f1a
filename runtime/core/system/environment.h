// What environment variables say. An empty one says nothing; a value that makes no sense is ignored, and that is said.
// And when a library finds out what does not change.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_ENVIRONMENT_H
#define HALYARD_RUNTIME_CORE_SYSTEM_ENVIRONMENT_H

/** Makes an object when the library is loaded or, where it is linked with a program, before that makes its own. */
#define HALYARD_AT_LOAD [[gnu::init_priority(101)]]
/** Makes an object that needs all of those. */
#define HALYARD_AT_LOAD_LAST [[gnu::init_priority(102)]]

namespace halyard {

/** The value of a variable; null if it is empty or not set, or where the process has more rights than the user that set it
 *  (a set-uid program). */
const char *environment(const char *variable);

/** Says on stderr that a value is ignored. `takes`: what the variable does take. */
void say_ignored(const char *variable, const char *value, const char *takes);

/** A number in decimal digits and nothing else; 0 if the text is none from 1 to `most`. */
int number_in_digits(const char *text, int most);

}  // namespace halyard

#endif
