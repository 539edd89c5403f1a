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

/** The smallest free block that is large enough; else the largest free one, which is to be made larger; -1 if none is
 *  free. Blocks are used from the first on, so that those after an unused one are of no interest. */
int ScratchPool::best_for(int64_t wanted) const {
    int best = -1;
    int64_t best_bytes = 0;
    for (int i = 0; i < max_blocks; i++) {
        const int64_t bytes = blocks_[i].bytes.load(std::memory_order_relaxed);
        if (blocks_[i].free()) {
            if (best < 0 || (bytes >= wanted ? best_bytes < wanted || bytes < best_bytes : bytes > best_bytes)) {
                best = i;
                best_bytes = bytes;
            }
            if (bytes == 0) {
                break;
            }
        }
    }
    return best;
}

ScratchMemory ScratchPool::take(int64_t bytes) {
    int i;
    do {
        i = best_for(bytes);
    } while (i >= 0 && !blocks_[i].take());
    if (i < 0) {
        return {allocate(bytes), -1};
    }
    Block &block = blocks_[i];
    if (block.bytes.load(std::memory_order_relaxed) < bytes) {
        block.resize(bytes);
    }
    if (block.bytes.load(std::memory_order_relaxed) == 0) {
        block.give_back();
        return {};
    }
    return {block.data, i};
}

void ScratchPool::give_back(const ScratchMemory &memory) {
    if (memory.block >= 0) {
        blocks_[memory.block].give_back();
    } else {
        free(memory.data);
    }
}

}  // namespace halyard
