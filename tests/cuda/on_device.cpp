// Runs the tests of its program through CUDA where there is a device, and says why not where there is none. It fails where
// there is one that the library cannot use.
//
// The tensors of the tests are in memory of the process. It is registered with the driver, so that the device reads and
// writes it at the addresses that the process knows.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "bench/cuda/cuda.h"
#include "halyard/halyard.h"
#include "support/device_hooks.h"

namespace {

using Result = int;

struct Driver {
    Result (*retain)(void **context, int device);
    Result (*set_current)(void *context);
    Result (*version)(int *version);
    Result (*name)(char *name, int size, int device);
    Result (*attribute)(int *value, int attribute, int device);
    Result (*register_memory)(void *memory, std::size_t bytes, unsigned flags);
    Result (*unregister_memory)(void *memory);
    Result (*synchronize)();
    Result (*copy_to_host)(void *to, std::uint64_t from, std::size_t bytes);
} driver;

[[noreturn]] void stop(const char *what, Result result) {
    std::fprintf(stderr, "%s failed: error %d of the CUDA driver\n", what, result);
    std::exit(1);
}

template<typename Function>
void find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) {
        std::fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        std::exit(1);
    }
}

void check(const char *what, Result result) {
    if (result != 0) {
        stop(what, result);
    }
}

/** Which cuBLASLt the library computes products by. */
std::string blaslt() {
    const char *const wanted = std::getenv("HALYARD_CUBLASLT");
    if (wanted != nullptr && std::strcmp(wanted, "off") == 0) {
        return "products by the library's own kernels, as HALYARD_CUBLASLT says";
    }
    int version = 0;
    check("cuDriverGetVersion", driver.version(&version));
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
        const bool fits = version >= (std::strstr(name, ".13") != nullptr ? 13000 : 12000);
        void *const library = fits ? dlopen(name, RTLD_NOW) : nullptr;
        Dl_info found{};
        if (library != nullptr && dladdr(dlsym(library, "cublasLtMatmul"), &found) != 0) {
            return std::string("products by ") + found.dli_fname;
        }
    }
    return "cuBLASLt was not found: PRODUCTS BY IT ARE NOT TESTED, but the library's own kernels in its place";
}

void open() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    find(library, "cuDevicePrimaryCtxRetain", driver.retain);
    find(library, "cuCtxSetCurrent", driver.set_current);
    find(library, "cuDriverGetVersion", driver.version);
    find(library, "cuDeviceGetName", driver.name);
    find(library, "cuDeviceGetAttribute", driver.attribute);
    find(library, "cuMemHostRegister_v2", driver.register_memory);
    find(library, "cuMemHostUnregister", driver.unregister_memory);
    find(library, "cuCtxSynchronize", driver.synchronize);
    find(library, "cuMemcpyDtoH_v2", driver.copy_to_host);
    void *context = nullptr;
    check("cuDevicePrimaryCtxRetain", driver.retain(&context, 0));
    check("cuCtxSetCurrent", driver.set_current(context));
    char name[256] = "";
    check("cuDeviceGetName", driver.name(name, sizeof name, 0));
    std::printf("on %s\n%s\n", name, blaslt().c_str());
    constexpr int same_addresses = 91;  // CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    int same = 0;
    check("cuDeviceGetAttribute", driver.attribute(&same, same_addresses, 0));
    if (same == 0) {
        std::fprintf(stderr, "the device does not know memory of the process by its address, which these tests need\n");
        std::exit(1);
    }
}

void mapped(void *memory, std::size_t bytes) {
    constexpr unsigned for_devices = 1 | 2;  // CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP
    check("cuMemHostRegister", driver.register_memory(memory, bytes, for_devices));
}

void unmapping(void *memory) {
    check("cuMemHostUnregister", driver.unregister_memory(memory));
}

void called() {
    check("cuCtxSynchronize", driver.synchronize());
}

void fetch(void *to, const void *from, std::size_t bytes) {
    check("cuCtxSynchronize", driver.synchronize());
    check("cuMemcpyDtoH", driver.copy_to_host(to, reinterpret_cast<std::uint64_t>(from), bytes));
}

}  // namespace

int main(int count, char **arguments) {
    testing::InitGoogleTest(&count, arguments);
    const halyard_status prepared = halyard_cuda_prepare(0);
    if (prepared == HALYARD_NO_DEVICE) {
        return halyard::bench::cuda::say_no_device(halyard_last_error());
    }
    if (prepared != HALYARD_OK) {
        std::printf("%s\n", halyard_last_error());
        return 1;
    }
    open();
    halyard::tests::device_hooks = {mapped, unmapping, called, fetch};
    return RUN_ALL_TESTS();
}
