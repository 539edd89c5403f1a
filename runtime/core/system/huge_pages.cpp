// Memory from the system, placed so that it may lie on huge pages.
#include "core/system/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

namespace halyard {
namespace {

// Memory that is large enough to span several gets pages of this size.
constexpr int64_t min_huge_bytes = 2 * huge_page_bytes;

}  // namespace

char *map_pages(int64_t bytes, bool whole) {
    const int64_t extra = whole && bytes >= min_huge_bytes ? huge_page_bytes : 0;
    int64_t reserved;
    if (__builtin_add_overflow(bytes, extra, &reserved)) {
        return nullptr;
    }
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (whole ? 0 : MAP_NORESERVE);
    void *memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    char *first = static_cast<char *>(memory);
    if (extra == 0) {
        madvise(first, bytes, MADV_NOHUGEPAGE);
        return first;
    }
    const int64_t head = -reinterpret_cast<intptr_t>(first) & (huge_page_bytes - 1);
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t kept = (bytes + page - 1) / page * page;
    if (head > 0) {
        munmap(first, head);
    }
    if (reserved - head > kept) {
        munmap(first + head + kept, reserved - head - kept);
    }
    madvise(first + head, kept, MADV_HUGEPAGE);
    return first + head;
}

}  // namespace halyard
