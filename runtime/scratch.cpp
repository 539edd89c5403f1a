// The pool of scratch memory.
#include "scratch.h"

#include <stdlib.h>
#include <sys/mman.h>

namespace halyard {
namespace {

constexpr int64_t huge_page = 2 << 20;

// Large blocks lie on huge pages where the system gives them: the rows of a block of x are read in turn from all over
// it.
char *allocate(int64_t bytes) {
    const bool large = bytes >= 2 * huge_page;
    void *memory = nullptr;
    if (posix_memalign(&memory, large ? huge_page : 64, static_cast<size_t>(bytes)) != 0) {
        return nullptr;
    }
    if (large) {
        madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    }
    return static_cast<char *>(memory);
}

}  // namespace

void ScratchPool::release() {
    pthread_mutex_lock(&lock_);
    for (Block &block : blocks_) {
        if (!block.used) {
            free(block.data);
            block = Block();
        }
    }
    pthread_mutex_unlock(&lock_);
}

Scratch::Scratch(ScratchPool &pool, int64_t bytes) : pool_(pool) {
    // The smallest free block that is large enough; else the largest free one, which is made larger.
    pthread_mutex_lock(&pool.lock_);
    for (int i = 0; i < ScratchPool::max_blocks; i++) {
        const ScratchPool::Block &block = pool.blocks_[i];
        if (block.used) {
            continue;
        }
        if (block_ < 0) {
            block_ = i;
            continue;
        }
        const int64_t best = pool.blocks_[block_].bytes;
        if (block.bytes >= bytes ? best < bytes || block.bytes < best : block.bytes > best) {
            block_ = i;
        }
    }
    if (block_ >= 0) {
        pool.blocks_[block_].used = true;
    }
    pthread_mutex_unlock(&pool.lock_);

    if (block_ < 0) {
        data_ = allocate(bytes);
        return;
    }
    ScratchPool::Block &block = pool.blocks_[block_];
    if (block.bytes < bytes) {
        free(block.data);
        block.data = allocate(bytes);
        block.bytes = block.data ? bytes : 0;
    }
    data_ = block.data;
}

Scratch::~Scratch() {
    if (block_ < 0) {
        free(data_);
        return;
    }
    pthread_mutex_lock(&pool_.lock_);
    pool_.blocks_[block_].used = false;
    pthread_mutex_unlock(&pool_.lock_);
}

}  // namespace halyard
