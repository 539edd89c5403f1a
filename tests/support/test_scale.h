// How much of the tests runs: everything natively, smaller samples where everything would take too long.
#ifndef HALYARD_TESTS_SUPPORT_TEST_SCALE_H
#define HALYARD_TESTS_SUPPORT_TEST_SCALE_H

namespace halyard::tests {

/** Under sanitizers, which look for faults of access and not of accuracy, and in an emulator. */
#ifdef HALYARD_TESTS_REDUCED
constexpr bool reduced = true;
#else
constexpr bool reduced = false;
#endif

#ifdef HALYARD_TESTS_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/** Under ThreadSanitizer, which looks for races between threads: what the library does on one thread says nothing there. */
#ifdef HALYARD_TESTS_FOR_RACES
constexpr bool for_races = true;
#else
constexpr bool for_races = false;
#endif

/** In an emulator, where a multiply-add takes some ten times as long as anywhere else. */
#ifdef HALYARD_TESTS_EMULATED
constexpr bool emulated = true;
#else
constexpr bool emulated = false;
#endif

}  // namespace halyard::tests

#endif
