// Large blocks of memory straight from the system.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_HUGE_PAGES_H
#define HALYARD_RUNTIME_CORE_SYSTEM_HUGE_PAGES_H

#include <cstdint>

namespace halyard {

constexpr int64_t huge_page_bytes = int64_t{2} << 20;

/** Zeroed memory; null if the system refuses so much. Freed by munmap(memory, bytes).
 *
 *  `whole`: all of it will be written. Then more than memory and swap can hold is refused (vm.overcommit_memory says how
 *  strictly), and it lies on huge pages if it spans several and the system has them. Else it is there as far as it has been
 *  written, by small pages, and may be larger than memory. */
char *map_pages(int64_t bytes, bool whole);

}  // namespace halyard

#endif
