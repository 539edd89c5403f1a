// Large blocks of memory straight from the system.
#ifndef HALYARD_RUNTIME_PAGES_H
#define HALYARD_RUNTIME_PAGES_H

#include <cstdint>

namespace halyard {

constexpr int64_t huge_page_bytes = int64_t{2} << 20;

/** Zeroed memory, physically there from the first access on; null if the system refuses so much (which it does for what
 * is larger than memory and swap, or by vm.overcommit_memory and the process' limits). Freed by munmap(memory, bytes).
 * With `huge` it lies on huge pages if it spans several and the system has them, else on small ones. */
char *map_pages(int64_t bytes, bool huge);

}  // namespace halyard

#endif
