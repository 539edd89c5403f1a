// The list of tables of angles that are in use.
#include "core/handles/shared_rope.h"

#include <pthread.h>

#include <cstdlib>

namespace halyard {
namespace {

struct SharedRope {
    halyard_rope_options options;
    halyard_rope *rope;
    int64_t users;
    SharedRope *next;
};

pthread_mutex_t shared_ropes_lock = PTHREAD_MUTEX_INITIALIZER;
SharedRope *shared_ropes = nullptr;

bool same_options(const halyard_rope_options &a, const halyard_rope_options &b) {
    return a.head_dim == b.head_dim && a.rotary_dim == b.rotary_dim && a.max_positions == b.max_positions &&
           a.rope_theta == b.rope_theta && (a.interleaved != 0) == (b.interleaved != 0) && a.scaling == b.scaling &&
           a.factor == b.factor && a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
           a.original_max_position_embeddings == b.original_max_position_embeddings;
}

void lock_shared_ropes() {
    pthread_mutex_lock(&shared_ropes_lock);
}

void unlock_shared_ropes() {
    pthread_mutex_unlock(&shared_ropes_lock);
}

// Nobody holds the lock while the process forks.
__attribute__((constructor)) void lock_at_forks() {
    pthread_atfork(lock_shared_ropes, unlock_shared_ropes, unlock_shared_ropes);
}

class Locked {
public:
    Locked() { lock_shared_ropes(); }
    ~Locked() { unlock_shared_ropes(); }
    Locked(const Locked &) = delete;
    Locked &operator=(const Locked &) = delete;
};

/** Null if there is none. With the lock held. */
const halyard_rope *find(const halyard_rope_options &options) {
    for (SharedRope *shared = shared_ropes; shared; shared = shared->next) {
        if (same_options(shared->options, options)) {
            shared->users++;
            return shared->rope;
        }
    }
    return nullptr;
}

void destroy(SharedRope *shared) {
    free_rope(shared->rope);
    free(shared);
}

}  // namespace

// A table takes long to fill: nobody waits for that with the lock. If two fill the same one, the first is kept.
const halyard_rope *acquire_rope(Checker &check, const halyard_rope_options &options) {
    {
        const Locked lock;
        if (const halyard_rope *const known = find(options)) {
            return known;
        }
    }
    auto *const made = static_cast<SharedRope *>(malloc(sizeof(SharedRope)));
    if (!made) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a table of angles");
    }
    halyard_rope *const rope = check.failed() ? nullptr : make_rope(check, options);
    if (!rope) {
        free(made);
        return nullptr;
    }
    *made = {options, rope, 1, nullptr};
    const halyard_rope *known;
    {
        const Locked lock;
        known = find(options);
        if (!known) {
            made->next = shared_ropes;
            shared_ropes = made;
        }
    }
    if (known) {
        destroy(made);
    }
    return known ? known : rope;
}

void release_rope(const halyard_rope *rope) {
    if (!rope) {
        return;
    }
    SharedRope *unused = nullptr;
    {
        const Locked lock;
        SharedRope **link = &shared_ropes;
        while ((*link)->rope != rope) {
            link = &(*link)->next;
        }
        if (--(*link)->users == 0) {
            unused = *link;
            *link = unused->next;
        }
    }
    if (unused) {
        destroy(unused);
    }
}

}  // namespace halyard
