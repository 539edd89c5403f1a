// Opening the driver, and why it could not be.
#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>

namespace halyard::cuda {
namespace {

// As the driver counts: 13.0 is 13000. Assembled kernels need a driver of the major version of the toolkit that assembled
// them; older drivers compile the PTX, whose version 7.0 came with CUDA 11.0 (cmake/AssembleDeviceKernel.cmake).
constexpr int assembled_version = HALYARD_CUDA_VERSION / 1000 * 1000, ptx_version = 11000;

Driver opened;
char why_not[256];  // empty: the driver is there
pthread_once_t once = PTHREAD_ONCE_INIT;
std::atomic<bool> in_use{false}, left_to_parent{false};

bool find(void *library, const char *name, void *function) {
    void *const address = dlsym(library, name);
    *static_cast<void **>(function) = address;
    if (!address) {
        snprintf(why_not, sizeof(why_not), "the CUDA driver is too old: libcuda.so.1 has no %s", name);
    }
    return address != nullptr;
}

bool find_all(void *library) {
    return find(library, "cuInit", &opened.init) && find(library, "cuDriverGetVersion", &opened.driver_version) &&
           find(library, "cuDeviceGetCount", &opened.device_count) &&
           find(library, "cuDeviceGet", &opened.device_get) &&
           find(library, "cuDeviceGetAttribute", &opened.device_attribute) &&
           find(library, "cuDevicePrimaryCtxRetain", &opened.primary_context_retain) &&
           find(library, "cuCtxGetCurrent", &opened.context_current) &&
           find(library, "cuCtxPushCurrent_v2", &opened.context_push) &&
           find(library, "cuCtxPopCurrent_v2", &opened.context_pop) &&
           find(library, "cuModuleLoadData", &opened.module_load) &&
           find(library, "cuModuleGetFunction", &opened.module_function) &&
           find(library, "cuFuncSetAttribute", &opened.function_attribute) &&
           find(library, "cuLaunchKernel", &opened.launch) && find(library, "cuMemAlloc_v2", &opened.memory_allocate) &&
           find(library, "cuMemFree_v2", &opened.memory_free) && find(library, "cuMemcpy2DAsync_v2", &opened.copy_2d) &&
           find(library, "cuMemsetD32Async", &opened.fill_32) &&
           find(library, "cuStreamSynchronize", &opened.stream_synchronize) &&
           find(library, "cuStreamIsCapturing", &opened.stream_is_capturing) &&
           find(library, "cuGetErrorString", &opened.error_string);
}

const char *words(const Driver &driver, Result result) {
    const char *text = nullptr;
    return driver.error_string(result, &text) == success && text ? text : "an error that the driver has no words for";
}

void open() {
    // Never closed: the process may have got it from elsewhere too, and contexts live in it.
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why_not, sizeof(why_not), "there is no CUDA driver: %s", dlerror());
        return;
    }
    if (!find_all(library)) {
        return;
    }
    opened.driver_version(&opened.version);
    if (opened.version < ptx_version) {
        snprintf(why_not, sizeof(why_not), "the CUDA driver is too old: it is for CUDA %d.%d, the kernels need %d.%d",
                 opened.version / 1000, opened.version % 1000 / 10, ptx_version / 1000, ptx_version % 1000 / 10);
        return;
    }
    opened.loads_assembled = opened.version >= assembled_version;
    in_use.store(true);
    const Result initialized = opened.init(0);
    if (initialized != success) {
        in_use.store(false);
        snprintf(why_not, sizeof(why_not), "the CUDA driver cannot be used: %s", words(opened, initialized));
        return;
    }
    const Result counted = opened.device_count(&opened.devices);
    if (counted != success || opened.devices == 0) {
        snprintf(why_not, sizeof(why_not), "the CUDA driver finds no GPU");
    }
}

}  // namespace

const Driver *driver(Checker &check) {
    if (left_to_parent.load()) {
        check.fail(HALYARD_NO_DEVICE,
                   "this process was forked from one that uses CUDA, and CUDA cannot be used in both: fork before the "
                   "first call that uses it, or execute a program in the child");
        return nullptr;
    }
    pthread_once(&once, open);
    if (why_not[0] != '\0') {
        check.fail(HALYARD_NO_DEVICE, "%s", why_not);
        return nullptr;
    }
    return &opened;
}

int driver_version() {
    if (left_to_parent.load()) {
        return 0;
    }
    pthread_once(&once, open);
    return why_not[0] == '\0' ? opened.version : 0;
}

bool driver_in_use() {
    return in_use.load();
}

void leave_driver_to_parent() {
    left_to_parent.store(in_use.exchange(false) || left_to_parent.load());
}

bool succeeded(Checker &check, const Driver &driver, Result result, const char *what) {
    constexpr Result out_of_memory = 2;
    if (result != success) {
        check.fail(result == out_of_memory ? HALYARD_OUT_OF_MEMORY : HALYARD_DEVICE_ERROR, "%s failed: %s", what,
                   words(driver, result));
    }
    return result == success;
}

}  // namespace halyard::cuda
