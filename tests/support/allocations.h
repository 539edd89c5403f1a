// What the library asks the system for, counted, and refused when a test says so. Programs with this are linked with
// --wrap for each of the functions in allocations.cpp.
#ifndef HALYARD_TESTS_ALLOCATIONS_H
#define HALYARD_TESTS_ALLOCATIONS_H

#include <climits>

namespace halyard::tests {

struct Allocations {
    long calls, bytes;               // of all threads, since count_allocations()
    long bytes_in_use, most_in_use;  // now, and the most since count_allocations()
};

void count_allocations();
Allocations allocations();

/** Lets `count` calls for memory fail after `after` that do not, while `work` runs; false if none had to. */
bool refuse_allocations(long after, long count, void (*work)(void *), void *argument);

template<typename Work>
bool refuse_allocations(long after, long count, const Work &work) {
    return refuse_allocations(
        after, count, [](void *argument) { (*static_cast<const Work *>(argument))(); }, const_cast<Work *>(&work));
}

/** Lets one call for memory fail after `after` that do not, while `work` runs; false if there were none to fail. */
template<typename Work>
bool with_failure_after(long after, const Work &work) {
    return refuse_allocations(after, 1, work);
}

/** Lets every call for memory fail while `work` runs; false if there were none. */
template<typename Work>
bool without_memory(const Work &work) {
    return refuse_allocations(0, LONG_MAX, work);
}

}  // namespace halyard::tests

#endif
