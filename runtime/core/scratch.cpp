// The pool of scratch memory.
#include "core/scratch.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/system/fork.h"

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

bool ScratchPool::Block::free() const {
    return user.load(std::memory_order_relaxed) != process_number();
}

bool ScratchPool::Block::take() {
    uint32_t other = user.load(std::memory_order_relaxed);
    return other != process_number() && user.compare_exchange_strong(other, process_number());
}

// A fork may come in between: what has no bytes has no data that the child could free.
void ScratchPool::Block::resize(int64_t wanted) {
    if (bytes.exchange(0) > 0) {
        ::free(data);
    }
    data = wanted > 0 ? allocate(wanted) : nullptr;
    bytes.store(data ? wanted : 0);
}

void ScratchPool::release() {
    for (Block &block : blocks_) {
        if (block.take()) {
            block.resize(0);
            block.give_back();
        }
    }
}

/** The smallest free block that is large enough; else the largest free one, which is to be made larger. */
ScratchPool::Block *ScratchPool::best_for(int64_t wanted) {
    Block *best = nullptr;
    int64_t best_bytes = 0;
    for (Block &block : blocks_) {
        const int64_t bytes = block.bytes.load(std::memory_order_relaxed);
        if (block.free() &&
            (!best || (bytes >= wanted ? best_bytes < wanted || bytes < best_bytes : bytes > best_bytes))) {
            best = &block;
            best_bytes = bytes;
        }
    }
    return best;
}

Scratch::Scratch(ScratchPool &pool, int64_t bytes) {
    do {
        block_ = pool.best_for(bytes);
    } while (block_ && !block_->take());
    if (!block_) {
        data_ = allocate(bytes);
        return;
    }
    if (block_->bytes.load(std::memory_order_relaxed) < bytes) {
        block_->resize(bytes);
    }
    data_ = block_->data;
}

Scratch::~Scratch() {
    if (block_) {
        block_->give_back();
    } else {
        free(data_);
    }
}

}  // namespace halyard
