// The list of tables of angles that are in use.
#include "shared_rope.h"

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

const halyard_rope *find_or_create(const halyard_rope_options &options, halyard_status &status) {
    status = HALYARD_OK;
    for (SharedRope *shared = shared_ropes; shared; shared = shared->next) {
        if (same_options(shared->options, options)) {
            shared->users++;
            return shared->rope;
        }
    }
    halyard_rope *rope = nullptr;
    status = halyard_rope_create(&options, &rope);
    if (status != HALYARD_OK) {
        return nullptr;
    }
    auto *const shared = static_cast<SharedRope *>(malloc(sizeof(SharedRope)));
    if (!shared) {
        halyard_rope_destroy(rope);
        status = HALYARD_OUT_OF_MEMORY;
        return nullptr;
    }
    *shared = {options, rope, 1, shared_ropes};
    shared_ropes = shared;
    return rope;
}

}  // namespace

const halyard_rope *acquire_rope(const halyard_rope_options &options, halyard_status &status) {
    pthread_mutex_lock(&shared_ropes_lock);
    const halyard_rope *const rope = find_or_create(options, status);
    pthread_mutex_unlock(&shared_ropes_lock);
    return rope;
}

void release_rope(const halyard_rope *rope) {
    if (!rope) {
        return;
    }
    pthread_mutex_lock(&shared_ropes_lock);
    SharedRope **link = &shared_ropes;
    while ((*link)->rope != rope) {
        link = &(*link)->next;
    }
    SharedRope *const shared = *link;
    if (--shared->users == 0) {
        *link = shared->next;
        halyard_rope_destroy(shared->rope);
        free(shared);
    }
    pthread_mutex_unlock(&shared_ropes_lock);
}

}  // namespace halyard
