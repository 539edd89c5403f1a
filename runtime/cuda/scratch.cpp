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

DeviceScratch::DeviceScratch(Launches &launches, int64_t bytes) : pool_(launches.scratch_pool()) {
    Checker &check = launches.check();
    if (check.failed() || bytes == 0) {
        return;
    }
    const Driver &driver = *launches.driver();
    const bool in_capture = capturing(launches);
    if (check.failed()) {
        return;
    }
    {
        // The smallest free block of this stream that is large enough; else the largest that may be made larger; else a
        // new one.
        const Locked locked(pool_.lock);
        int larger = -1, growing = -1, empty = -1;
        for (int i = 0; i < DeviceScratchPool::max_blocks; i++) {
            const DeviceScratchPool::Block &block = pool_.blocks[i];
            if (block.used) {
                continue;
            }
            if (!block.data) {
                empty = empty < 0 ? i : empty;
            } else if (block.device == launches.ordinal() && block.stream == launches.stream()) {
                if (block.bytes >= bytes) {
                    larger = larger < 0 || block.bytes < pool_.blocks[larger].bytes ? i : larger;
                } else if (!block.captured) {
                    growing = growing < 0 || block.bytes > pool_.blocks[growing].bytes ? i : growing;
                }
            }
        }
        block_ = larger >= 0 ? larger : growing >= 0 ? growing : empty;
        if (block_ >= 0) {
            pool_.blocks[block_].used = true;
        }
    }
    if (block_ < 0) {
        check.fail(HALYARD_OUT_OF_MEMORY,
                   "%d streams or calls at once have memory on devices, and there is no place for more",
                   DeviceScratchPool::max_blocks);
        return;
    }
    DeviceScratchPool::Block &block = pool_.blocks[block_];
    if (block.bytes < bytes) {
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
        if (!succeeded(check, driver, driver.memory_allocate(&pointer, static_cast<size_t>(rounded)),
                       "allocating scratch memory on the device")) {
            return;
        }
        block.data = reinterpret_cast<char *>(pointer);
        block.bytes = rounded;
        block.device = launches.ordinal();
        block.stream = launches.stream();
        block.captured = false;
    }
    block.captured = block.captured || in_capture;
    data_ = block.data;
}

DeviceScratch::~DeviceScratch() {
    if (block_ >= 0) {
        const Locked locked(pool_.lock);
        pool_.blocks[block_].used = false;
    }
}

}  // namespace halyard::cuda
