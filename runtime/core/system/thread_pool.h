// The library's own threads.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_THREAD_POOL_H
#define HALYARD_RUNTIME_CORE_SYSTEM_THREAD_POOL_H

namespace halyard {

constexpr int max_threads = 256;

/** Runs task(closure, i) for i in [0, count), count <= max_threads, on the calling thread and up to count - 1 others,
 *  and returns when all are done. Index i goes to the same thread in every call with the same count as long as that
 *  thread is on time, so that data stays in its cache; late threads' indices are taken over. If the pool is busy with
 *  another caller's work, the calling thread does everything itself. */
void run_on_pool(int count, void (*task)(void *closure, int index), void *closure);

/** To be called in a forked child: the pool has no threads and no job. */
void renew_thread_pool();

}  // namespace halyard

#endif
