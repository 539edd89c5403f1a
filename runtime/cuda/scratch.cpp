// The pool of scratch memory on devices.
#include "cuda/scratch.h"

#include "core/context.h"
#include "cuda/transfers.h"

namespace halyard::cuda {
namespace {

/** The pool's lock for as long as this lives. */
class Locked {
public:
    explicit Locked(pthread_mutex_t &lock) : lock_(lock) { pthread_mutex_lock(&lock_); }
    ~Locked() { pthread_mutex_unlock(&lock_); }
    Locked(const Locked &) = delete;
    Locked &operator=(const Locked &) = delete;

private:
    pthread_mutex_t &lock_;
};

// Blocks grow in steps, so that calls a little larger than the last find them large enough.
constexpr int64_t step = 2 << 20;

DevicePointer address(const char *data) {
    return reinterpret_cast<DevicePointer>(data);
}

}  // namespace

void release_scratch(const halyard_context &context) {
    DeviceScratchPool &pool = context.device_scratch;
    if (!driver_in_use()) {
        return;
    }
    const Locked locked(pool.lock);
    for (DeviceScratchPool::Block &block : pool.blocks) {
        if (block.data && !block.used) {
            Checker check("halyard_context_release_scratch");
            const Launches launches(check, context_or_default(nullptr), block.device);
            if (!check.failed()) {
                // Waits for what uses the memory.
                launches.driver()->memory_free(address(block.data));
            }
            block = DeviceScratchPool::Block();
        }
    }
}

namespace {

/** The number of a free block of the stream, which is the call's from now on: the smallest one that is large enough; else
 *  the largest one that may be made larger; else a new one. -1 if there is none. */
int claim_block(DeviceScratchPool &pool, const Launches &launches, int64_t bytes) {
    const Locked locked(pool.lock);
    int larger = -1, growing = -1, empty = -1;
    for (int i = 0; i < DeviceScratchPool::max_blocks; i++) {
        const DeviceScratchPool::Block &block = pool.blocks[i];
        if (block.used) {
            continue;
        }
        if (!block.data) {
            empty = empty < 0 ? i : empty;
        } else if (block.device == launches.ordinal() && block.stream == launches.stream()) {
            if (block.bytes >= bytes) {
                larger = larger < 0 || block.bytes < pool.blocks[larger].bytes ? i : larger;
            } else if (!block.captured) {
                growing = growing < 0 || block.bytes > pool.blocks[growing].bytes ? i : growing;
            }
        }
    }
    const int claimed = larger >= 0 ? larger : growing >= 0 ? growing : empty;
    if (claimed >= 0) {
        pool.blocks[claimed].used = true;
    }
    return claimed;
}

/** Sees to it that a block has so many bytes. */
void grow_block(Launches &launches, DeviceScratchPool::Block &block, int64_t bytes, bool in_capture) {
    Checker &check = launches.check();
    const Driver &driver = *launches.driver();
    if (in_capture) {
        check.fail(HALYARD_DEVICE_ERROR,
                   "the stream is being captured, and the call needs %lld bytes of scratch memory on the "
                   "device, which has to be allocated by such a call before",
                   static_cast<long long>(bytes));
        return;
    }
    if (block.data) {
        driver.stream_synchronize(launches.stream());
        driver.memory_free(address(block.data));
        block.data = nullptr;
        block.bytes = 0;
    }
    const int64_t rounded = (bytes + step - 1) / step * step;
    DevicePointer pointer = 0;
    if (succeeded(check, driver, driver.memory_allocate(&pointer, static_cast<size_t>(rounded)),
                  "allocating scratch memory on the device")) {
        block.data = reinterpret_cast<char *>(pointer);
        block.bytes = rounded;
        block.device = launches.ordinal();
        block.stream = launches.stream();
        block.captured = false;
    }
}

}  // namespace

ScratchMemory take_scratch(Checker &check, const halyard_context &context, int ordinal, int64_t bytes) {
    Launches launches(check, context, ordinal);
    const bool in_capture = capturing(launches);
    if (check.failed()) {
        return {};
    }
    DeviceScratchPool &pool = context.device_scratch;
    const int claimed = claim_block(pool, launches, bytes);
    if (claimed < 0) {
        check.fail(HALYARD_OUT_OF_MEMORY,
                   "%d streams or calls at once have memory on devices, and there is no place for more",
                   DeviceScratchPool::max_blocks);
        return {};
    }
    DeviceScratchPool::Block &block = pool.blocks[claimed];
    if (block.bytes < bytes) {
        grow_block(launches, block, bytes, in_capture);
    }
    if (check.failed()) {
        give_back_scratch(context, {nullptr, claimed});
        return {};
    }
    block.captured = block.captured || in_capture;
    return {block.data, claimed};
}

void give_back_scratch(const halyard_context &context, const ScratchMemory &memory) {
    const Locked locked(context.device_scratch.lock);
    context.device_scratch.blocks[memory.block].used = false;
}

}  // namespace halyard::cuda
