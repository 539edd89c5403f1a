// Devices, modules and functions, each looked up once.
#include "cuda/device.h"

#include <pthread.h>

#include <cstdlib>
#include <new>

extern "C" {
#define HALYARD_DEVICE_WORDS(kernel, dtype) int hk_##kernel##_##dtype##_cuda_words_argv(void **);
#define HALYARD_DEVICE_ELEMENTS(kernel, dtype) int hk_##kernel##_##dtype##_cuda_elements_argv(void **);
#define HALYARD_DEVICE_WORDS_ELEMENTS(kernel, dtype)                                                                   \
    HALYARD_DEVICE_WORDS(kernel, dtype) HALYARD_DEVICE_ELEMENTS(kernel, dtype)
#define HALYARD_DEVICE_WORDS_ELEMENTS_STAGED(kernel, dtype)                                                            \
    HALYARD_DEVICE_WORDS_ELEMENTS(kernel, dtype) int hk_##kernel##_##dtype##_cuda_staged_argv(void **);
#define HALYARD_DEVICE_ABSENT(kernel, dtype)
#include "kernels/device_variants.inc"
#undef HALYARD_DEVICE_ABSENT
#undef HALYARD_DEVICE_WORDS_ELEMENTS_STAGED
#undef HALYARD_DEVICE_WORDS_ELEMENTS
#undef HALYARD_DEVICE_ELEMENTS
#undef HALYARD_DEVICE_WORDS

#define HALYARD_DEVICE_IMAGE(kernel, sm) extern const char hk_image_##kernel##_##sm[];
#define HALYARD_DEVICE_PTX(kernel) extern const char hk_image_##kernel##_ptx[];
#include "kernels/device_images.inc"
#undef HALYARD_DEVICE_PTX
#undef HALYARD_DEVICE_IMAGE
}

namespace halyard::cuda {
namespace {

struct Variant {
    KernelFunction host;
    const char *name;  // in the module
};

// [kernel][dtype][access]
constexpr Variant variants[][access_count] = {
#define HALYARD_DEVICE_NAMED(name)                                                                                     \
    { name##_argv, #name }
#define HALYARD_DEVICE_NAMED_WORDS(kernel, dtype) HALYARD_DEVICE_NAMED(hk_##kernel##_##dtype##_cuda_words)
#define HALYARD_DEVICE_NAMED_ELEMENTS(kernel, dtype) HALYARD_DEVICE_NAMED(hk_##kernel##_##dtype##_cuda_elements)
#define HALYARD_DEVICE_WORDS(kernel, dtype) {HALYARD_DEVICE_NAMED_WORDS(kernel, dtype)},
#define HALYARD_DEVICE_ELEMENTS(kernel, dtype) {{}, HALYARD_DEVICE_NAMED_ELEMENTS(kernel, dtype)},
#define HALYARD_DEVICE_WORDS_ELEMENTS(kernel, dtype)                                                                   \
    {HALYARD_DEVICE_NAMED_WORDS(kernel, dtype), HALYARD_DEVICE_NAMED_ELEMENTS(kernel, dtype)},
#define HALYARD_DEVICE_WORDS_ELEMENTS_STAGED(kernel, dtype)                                                            \
    {HALYARD_DEVICE_NAMED_WORDS(kernel, dtype), HALYARD_DEVICE_NAMED_ELEMENTS(kernel, dtype),                          \
     HALYARD_DEVICE_NAMED(hk_##kernel##_##dtype##_cuda_staged)},
#define HALYARD_DEVICE_ABSENT(kernel, dtype) {},
#include "kernels/device_variants.inc"
#undef HALYARD_DEVICE_ABSENT
#undef HALYARD_DEVICE_WORDS_ELEMENTS_STAGED
#undef HALYARD_DEVICE_WORDS_ELEMENTS
#undef HALYARD_DEVICE_ELEMENTS
#undef HALYARD_DEVICE_WORDS
#undef HALYARD_DEVICE_NAMED_ELEMENTS
#undef HALYARD_DEVICE_NAMED_WORDS
#undef HALYARD_DEVICE_NAMED
};

const Variant &variant(Kernel kernel, DType dtype, Access access) {
    return variants[static_cast<int>(kernel) * dtype_count + static_cast<int>(dtype)][static_cast<int>(access)];
}

struct Image {
    Kernel kernel;
    int compute_capability;  // 0: PTX
    const char *code;
};

const Image images[] = {
#define HALYARD_DEVICE_IMAGE(kernel, sm) {Kernel::kernel, sm, hk_image_##kernel##_##sm},
#define HALYARD_DEVICE_PTX(kernel) {Kernel::kernel, 0, hk_image_##kernel##_ptx},
#include "kernels/device_images.inc"
#undef HALYARD_DEVICE_PTX
#undef HALYARD_DEVICE_IMAGE
};

constexpr int max_devices = 64;
std::atomic<Device *> devices[max_devices];

// Guards what is found out once; a call in steady state does not take it.
pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;

class Finding {
public:
    Finding() { pthread_mutex_lock(&finding); }
    ~Finding() { pthread_mutex_unlock(&finding); }
    Finding(const Finding &) = delete;
    Finding &operator=(const Finding &) = delete;
};

Device *open(Checker &check, const Driver &driver, int ordinal) {
    constexpr int major_attribute = 75, minor_attribute = 76, shared_bytes_attribute = 97;
    int number = 0, major = 0, minor = 0, shared_bytes = 0;
    Context context = nullptr;
    if (!succeeded(check, driver, driver.device_get(&number, ordinal), "finding the CUDA device") ||
        !succeeded(check, driver, driver.device_attribute(&major, major_attribute, number),
                   "asking for the compute capability") ||
        !succeeded(check, driver, driver.device_attribute(&minor, minor_attribute, number),
                   "asking for the compute capability") ||
        !succeeded(check, driver, driver.device_attribute(&shared_bytes, shared_bytes_attribute, number),
                   "asking for the shared memory of a block")) {
        return nullptr;
    }
    if (10 * major + minor < HALYARD_CUDA_MIN_CAPABILITY) {
        check.fail(HALYARD_NO_DEVICE, "CUDA device %d has compute capability %d.%d, but the kernels need %d.%d",
                   ordinal, major, minor, HALYARD_CUDA_MIN_CAPABILITY / 10, HALYARD_CUDA_MIN_CAPABILITY % 10);
        return nullptr;
    }
    if (!succeeded(check, driver, driver.primary_context_retain(&context, number), "retaining the primary context")) {
        return nullptr;
    }
    void *const memory = calloc(1, sizeof(Device));
    if (!memory) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for what is known of a CUDA device");
        return nullptr;
    }
    Device *const device = new (memory) Device();
    device->context = context;
    device->compute_capability = 10 * major + minor;
    device->shared_bytes = shared_bytes;
    return device;
}

}  // namespace

KernelFunction host_function(Kernel kernel, DType dtype, Access access) {
    return variant(kernel, dtype, access).host;
}

Device *device(Checker &check, const Driver &driver, int ordinal) {
    if (ordinal < 0 || ordinal >= driver.devices || ordinal >= max_devices) {
        check.fail(HALYARD_NO_DEVICE, "there is no CUDA device %d: the driver has %d, counted from 0", ordinal,
                   driver.devices);
        return nullptr;
    }
    Device *known = devices[ordinal].load(std::memory_order_acquire);
    if (known) {
        return known;
    }
    const Finding lock;
    known = devices[ordinal].load(std::memory_order_acquire);
    if (!known) {
        known = open(check, driver, ordinal);
        devices[ordinal].store(known, std::memory_order_release);
    }
    return known;
}

const void *image(Kernel kernel, int compute_capability) {
    // Code for one minor version runs on later ones of the same major version.
    const Image *best = nullptr;
    for (const Image &candidate : images) {
        const bool runs =
            candidate.compute_capability == 0 || (candidate.compute_capability / 10 == compute_capability / 10 &&
                                                  candidate.compute_capability <= compute_capability);
        if (candidate.kernel == kernel && runs && (!best || candidate.compute_capability > best->compute_capability)) {
            best = &candidate;
        }
    }
    return best ? best->code : nullptr;
}

const void *ptx(Kernel kernel) {
    return image(kernel, 0);
}

Function function(Checker &check, const Driver &driver, Device &device, Kernel kernel, DType dtype, Access access) {
    const int k = static_cast<int>(kernel);
    std::atomic<Function> &slot = device.functions[k][static_cast<int>(dtype)][static_cast<int>(access)];
    Function known = slot.load(std::memory_order_acquire);
    if (known) {
        return known;
    }
    const Finding lock;
    Module module = device.modules[k].load(std::memory_order_acquire);
    if (!module) {
        const void *const code = driver.loads_assembled ? image(kernel, device.compute_capability) : ptx(kernel);
        if (!succeeded(check, driver, driver.module_load(&module, code), "loading a kernel")) {
            return nullptr;
        }
        device.modules[k].store(module, std::memory_order_release);
    }
    if (!succeeded(check, driver, driver.module_function(&known, module, variant(kernel, dtype, access).name),
                   "looking up a kernel")) {
        return nullptr;
    }
    constexpr int most_shared_bytes = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (access == Access::staged &&
        !succeeded(check, driver, driver.function_attribute(known, most_shared_bytes, device.shared_bytes),
                   "giving a kernel shared memory")) {
        return nullptr;
    }
    slot.store(known, std::memory_order_release);
    return known;
}

}  // namespace halyard::cuda
