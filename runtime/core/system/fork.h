// What fork() does to the library: a child can use it, whatever the other threads of its parent were doing.
//
// The child has the parent's memory and one thread. Locks that others held are held for ever, and their calls end in the
// middle. So the list of shared ropes is locked while the process is copied; the thread pool begins anew; scratch memory
// is marked with the process whose call uses it, and what others marked is free; and of CUDA nothing is touched.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_FORK_H
#define HALYARD_RUNTIME_CORE_SYSTEM_FORK_H

#include <cstdint>

namespace halyard {

/** 1, and one more in each child. */
uint32_t process_number();

}  // namespace halyard

#endif
