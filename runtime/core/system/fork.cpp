// See fork.h.
#include "core/system/fork.h"

#include <pthread.h>

#include <atomic>

#include "core/backend.h"
#include "core/system/thread_pool.h"

namespace halyard {
namespace {

std::atomic<uint32_t> number{1};

void after_fork_in_child() {
    number.fetch_add(1);
    renew_thread_pool();
    if (const Backend *const devices = device_backend()) {
        devices->after_fork_in_child();
    }
}

__attribute__((constructor)) void watch_forks() {
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

}  // namespace

uint32_t process_number() {
    return number.load(std::memory_order_relaxed);
}

}  // namespace halyard
