// Stands in for the CUDA driver where there is no GPU, as libcuda.so.1: memory of the device is that of the process, and a
// launch runs the kernel of the same name that Halide made for OpenCL, on the processor (PoCL), or, if the image is PTX, that
// (ptx.h).
//
// It is as strict as the driver: images must be for the device, functions must be in their image, a launch needs a
// current context, and blocks have at most 1024 threads. Environment variables:
//   STAND_IN_KERNELS     directory of <function>.device_code, OpenCL sources; or "ptx"
//   STAND_IN_VERSION     what the driver says it is for, 13000 by default
//   STAND_IN_DEVICES     how many there are, 1 by default
//   STAND_IN_CAPABILITY  of each, 90 by default
//   STAND_IN_FAIL        the name of a function that fails with "out of memory"
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ptx.h"
#include "stand_in_opencl.h"

namespace {

using Result = int;
enum : Result {
    success = 0,
    invalid_value = 1,
    out_of_memory = 2,
    not_initialized = 3,
    invalid_device = 101,
    invalid_image = 200,
    invalid_context = 201,
    no_binary_for_gpu = 209,
    unsupported_ptx_version = 222,
    not_found = 500,
    stream_capture_unsupported = 900,
};

struct Context {
    int device;
};

struct Module {
    const char *image;
    std::size_t size;  // 0: PTX
};

struct Function {
    std::shared_ptr<const halyard::tests::ptx::Program> program;
    std::shared_ptr<const halyard::tests::opencl::Kernel> kernel;  // where both are null, a launch is nothing
    unsigned shared_bytes = 48 * 1024;                             // that a block may have
};

std::mutex lock;
bool initialized = false;
Context contexts[64];
thread_local std::vector<Context *> current;
std::map<std::string, Function *> functions;
std::map<std::uint64_t, std::size_t> allocations;
long allocation_count = 0;
long allocations_left = -1;  // negative: any number
std::atomic<bool> capturing{false};
constexpr std::size_t guard_bytes = 65536;

/** As the driver declares it. */
struct Copy2D {
    std::size_t source_x, source_y;
    int source_memory;  // 1: of the process, 2: of the device
    const void *source_host;
    std::uint64_t source_device;
    void *source_array;
    std::size_t source_pitch;
    std::size_t target_x, target_y;
    int target_memory;
    void *target_host;
    std::uint64_t target_device;
    void *target_array;
    std::size_t target_pitch;
    std::size_t width, rows;
};

int number(const char *variable, int otherwise) {
    const char *text = std::getenv(variable);
    return text ? std::atoi(text) : otherwise;
}

/** The shared memory that a block may have. */
int most_shared_bytes() {
    const int capability = number("STAND_IN_CAPABILITY", 90);
    const bool large = capability == 90 || capability == 100;
    return 1024 * (large ? 227 : capability == 80 ? 163 : 99);
}

bool fails(const char *function) {
    const char *text = std::getenv("STAND_IN_FAIL");
    return text && std::strcmp(text, function) == 0;
}

[[noreturn]] void stop(const std::string &message) {
    std::fprintf(stderr, "stand-in driver: %s\n", message.c_str());
    std::abort();
}

/** Size of an image by its ELF header, 0 for PTX. */
std::size_t size_of_image(const char *image) {
    if (std::memcmp(image,
                    "\x7f"
                    "ELF",
                    4) != 0) {
        return 0;
    }
    std::uint64_t sections;
    std::uint16_t section_size, section_count;
    std::memcpy(&sections, image + 0x28, sizeof sections);
    std::memcpy(&section_size, image + 0x3a, sizeof section_size);
    std::memcpy(&section_count, image + 0x3c, sizeof section_count);
    return sections + std::size_t{section_size} * section_count;
}

}  // namespace

extern "C" {

Result cuInit(unsigned) {
    if (fails("cuInit")) {
        return out_of_memory;
    }
    initialized = true;
    return success;
}

Result cuDriverGetVersion(int *version) {
    *version = number("STAND_IN_VERSION", 13000);
    return success;
}

Result cuDeviceGetCount(int *count) {
    *count = number("STAND_IN_DEVICES", 1);
    return initialized ? success : not_initialized;
}

Result cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal < number("STAND_IN_DEVICES", 1) ? success : invalid_device;
}

Result cuFuncSetAttribute(Function *function, int attribute, int value) {
    constexpr int dynamic_shared_bytes = 8;
    if (current.empty()) {
        return invalid_context;
    }
    if (attribute != dynamic_shared_bytes || value < 0 || value > most_shared_bytes()) {
        return invalid_value;
    }
    const std::lock_guard<std::mutex> guard(lock);
    function->shared_bytes = static_cast<unsigned>(value);
    return success;
}

Result cuDeviceGetAttribute(int *value, int attribute, int) {
    const int capability = number("STAND_IN_CAPABILITY", 90);
    switch (attribute) {
    case 38:  // of the second-level cache: bytes, few, so that benchmarks need little memory
        *value = 1 << 16;
        return success;
    case 75:
        *value = capability / 10;
        return success;
    case 76:
        *value = capability % 10;
        return success;
    case 91:  // memory of the process has one address
        *value = 1;
        return success;
    case 97:  // what a block may have if its kernel asks for it
        *value = most_shared_bytes();
        return success;
    default:
        return invalid_value;
    }
}

Result cuDeviceGetName(char *name, int size, int) {
    std::snprintf(name, static_cast<std::size_t>(size), "stand-in driver");
    return success;
}

Result cuDeviceTotalMem_v2(std::size_t *bytes, int) {
    *bytes = std::size_t{1} << 30;
    return success;
}

Result cuDevicePrimaryCtxRetain(Context **context, int device) {
    if (fails("cuDevicePrimaryCtxRetain")) {
        return out_of_memory;
    }
    contexts[device].device = device;
    *context = &contexts[device];
    return success;
}

Result cuCtxGetCurrent(Context **context) {
    *context = current.empty() ? nullptr : current.back();
    return success;
}

Result cuCtxSetCurrent(Context *context) {
    current.assign(1, context);
    return success;
}

Result cuCtxSynchronize() {
    return current.empty() ? invalid_context : success;
}

Result cuCtxPushCurrent_v2(Context *context) {
    current.push_back(context);
    return success;
}

Result cuCtxPopCurrent_v2(Context **context) {
    if (current.empty()) {
        return invalid_context;
    }
    *context = current.back();
    current.pop_back();
    return success;
}

Result cuModuleLoadData(Module **module, const char *image) {
    if (current.empty()) {
        return invalid_context;
    }
    if (fails("cuModuleLoadData")) {
        return out_of_memory;
    }
    const std::size_t size = size_of_image(image);
    if (size == 0) {
        // PTX 7.0 came with CUDA 11.0, and every minor version with one of CUDA.
        const char *const version = std::strstr(image, ".version ");
        int major = 0, minor = 0;
        if (!version || std::sscanf(version, ".version %d.%d", &major, &minor) != 2) {
            return invalid_image;
        }
        if ((major + 4) * 1000 + minor * 10 > number("STAND_IN_VERSION", 13000)) {
            return unsupported_ptx_version;
        }
    } else {
        if (number("STAND_IN_VERSION", 13000) / 1000 < HALYARD_CUDA_VERSION / 1000) {
            return invalid_image;
        }
        // The architecture stands in the second byte of the flags.
        const int architecture = static_cast<unsigned char>(image[0x31]),
                  capability = number("STAND_IN_CAPABILITY", 90);
        if (architecture / 10 != capability / 10 || architecture > capability) {
            return no_binary_for_gpu;
        }
    }
    *module = new Module{image, size};
    return success;
}

Result cuModuleGetFunction(Function **function, Module *module, const char *name) {
    if (current.empty()) {
        return invalid_context;
    }
    const std::string image(module->image, module->size != 0 ? module->size : std::strlen(module->image));
    if (image.find(name) == std::string::npos) {
        return not_found;
    }
    const std::lock_guard<std::mutex> guard(lock);
    Function *&known = functions[name];
    if (!known) {
        const char *const kernels = std::getenv("STAND_IN_KERNELS");
        known = new Function;
        if (kernels && std::strcmp(kernels, "ptx") == 0) {
            known->program = halyard::tests::ptx::parse(image, name);
            if (!known->program) {
                stop("the image of " + std::string(name) + " is not PTX");
            }
        } else if (kernels) {
            known->kernel = halyard::tests::opencl::compile(std::string(kernels) + "/" + name + ".device_code");
        }
    }
    *function = known;
    return success;
}

Result cuLaunchKernel(Function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, void *, void **parameters, void **) {
    if (current.empty()) {
        return invalid_context;
    }
    if (fails("cuLaunchKernel")) {
        return out_of_memory;
    }
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535 || block_z > 64 ||
        block_x * block_y * block_z == 0 || block_x * block_y * block_z > 1024 ||
        shared_bytes > function->shared_bytes) {
        return invalid_value;
    }
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    const std::lock_guard<std::mutex> guard(lock);
    if (function->program) {
        halyard::tests::ptx::run(*function->program, grid, block, shared_bytes, parameters);
    }
    return !function->kernel || halyard::tests::opencl::run(*function->kernel, grid, block, shared_bytes, parameters)
               ? success
               : invalid_value;
}

Result cuMemAlloc_v2(std::uint64_t *pointer, std::size_t bytes) {
    if (current.empty()) {
        return invalid_context;
    }
    if (fails("cuMemAlloc_v2")) {
        return out_of_memory;
    }
    if (capturing) {
        return stream_capture_unsupported;
    }
    {
        const std::lock_guard<std::mutex> guard(lock);
        if (allocations_left == 0) {
            return out_of_memory;
        }
        allocations_left -= allocations_left > 0 ? 1 : 0;
    }
    // Between inaccessible pages; what is read before it was written is NaN.
    const std::size_t size = (bytes + guard_bytes - 1) / guard_bytes * guard_bytes;
    char *const mapping = static_cast<char *>(
        mmap(nullptr, size + 2 * guard_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (mapping == MAP_FAILED || mprotect(mapping + guard_bytes, size, PROT_READ | PROT_WRITE) != 0) {
        return out_of_memory;
    }
    std::memset(mapping + guard_bytes, 0xff, size);
    *pointer = reinterpret_cast<std::uint64_t>(mapping + guard_bytes);
    const std::lock_guard<std::mutex> guard(lock);
    allocations[*pointer] = size;
    allocation_count++;
    return success;
}

Result cuMemFree_v2(std::uint64_t pointer) {
    if (current.empty()) {
        return invalid_context;
    }
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = allocations.find(pointer);
    if (found == allocations.end()) {
        return invalid_value;
    }
    munmap(reinterpret_cast<char *>(pointer) - guard_bytes, found->second + 2 * guard_bytes);
    allocations.erase(found);
    return success;
}

Result cuMemcpy2DAsync_v2(const Copy2D *copy, void *) {
    if (current.empty()) {
        return invalid_context;
    }
    const auto end = [](int memory, const void *host, std::uint64_t device, std::size_t x, std::size_t y,
                        std::size_t pitch) {
        return (memory == 1 ? static_cast<char *>(const_cast<void *>(host)) : reinterpret_cast<char *>(device)) + x +
               y * pitch;
    };
    const char *from = end(copy->source_memory, copy->source_host, copy->source_device, copy->source_x, copy->source_y,
                           copy->source_pitch);
    char *to = end(copy->target_memory, copy->target_host, copy->target_device, copy->target_x, copy->target_y,
                   copy->target_pitch);
    for (std::size_t row = 0; row < copy->rows; row++) {
        std::memcpy(to + row * copy->target_pitch, from + row * copy->source_pitch, copy->width);
    }
    return success;
}

Result cuMemsetD32Async(std::uint64_t pointer, unsigned value, std::size_t count, void *) {
    if (current.empty()) {
        return invalid_context;
    }
    for (std::size_t i = 0; i < count; i++) {
        reinterpret_cast<unsigned *>(pointer)[i] = value;
    }
    return success;
}

Result cuStreamSynchronize(void *) {
    return current.empty() ? invalid_context : capturing ? stream_capture_unsupported : success;
}

Result cuStreamIsCapturing(void *, int *status) {
    *status = capturing ? 1 : 0;
    return current.empty() ? invalid_context : success;
}

Result cuMemcpyHtoD_v2(std::uint64_t target, const void *source, std::size_t bytes) {
    std::memcpy(reinterpret_cast<void *>(target), source, bytes);
    return current.empty() ? invalid_context : success;
}

Result cuMemcpyDtoH_v2(void *target, std::uint64_t source, std::size_t bytes) {
    std::memcpy(target, reinterpret_cast<const void *>(source), bytes);
    return current.empty() ? invalid_context : success;
}

Result cuMemcpyDtoDAsync_v2(std::uint64_t target, std::uint64_t source, std::size_t bytes, void *) {
    std::memcpy(reinterpret_cast<void *>(target), reinterpret_cast<const void *>(source), bytes);
    return current.empty() ? invalid_context : success;
}

Result cuMemHostRegister_v2(void *, std::size_t, unsigned) {
    return current.empty() ? invalid_context : success;
}

Result cuMemHostUnregister(void *) {
    return current.empty() ? invalid_context : success;
}

// Streams, events and graphs: all work is done at once, and a graph holds none.
Result cuStreamCreate(void **stream, unsigned) {
    static char there;
    *stream = &there;
    return current.empty() ? invalid_context : success;
}

Result cuStreamBeginCapture_v2(void *, int) {
    capturing = true;
    return success;
}

Result cuStreamEndCapture(void *, void **graph) {
    static char there;
    *graph = &there;
    return capturing.exchange(false) ? success : invalid_value;
}

Result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
    *executable = graph;
    return success;
}

Result cuGraphLaunch(void *, void *) {
    return success;
}

Result cuGraphExecDestroy(void *) {
    return success;
}

Result cuGraphDestroy(void *) {
    return success;
}

Result cuEventCreate(std::chrono::steady_clock::time_point **event, unsigned) {
    *event = new std::chrono::steady_clock::time_point;
    return success;
}

Result cuEventRecord(std::chrono::steady_clock::time_point *event, void *) {
    *event = std::chrono::steady_clock::now();
    return success;
}

Result cuEventSynchronize(void *) {
    return success;
}

Result cuEventElapsedTime(float *milliseconds, const std::chrono::steady_clock::time_point *begin,
                          const std::chrono::steady_clock::time_point *end) {
    *milliseconds = std::chrono::duration<float, std::milli>(*end - *begin).count();
    return success;
}

/** For tests: how often memory has been allocated, how many pieces there are, how often it can be from now on (negative:
 *  always), and whether streams are being captured. */
long stand_in_allocations() {
    const std::lock_guard<std::mutex> guard(lock);
    return allocation_count;
}

long stand_in_allocated() {
    const std::lock_guard<std::mutex> guard(lock);
    return static_cast<long>(allocations.size());
}

void stand_in_limit_allocations(long count) {
    const std::lock_guard<std::mutex> guard(lock);
    allocations_left = count;
}

void stand_in_capture(int on) {
    capturing = on != 0;
}

Result cuGetErrorString(Result result, const char **text) {
    switch (result) {
    case out_of_memory:
        *text = "out of memory";
        return success;
    case invalid_value:
        *text = "invalid argument";
        return success;
    case no_binary_for_gpu:
        *text = "no kernel image is available for execution on the device";
        return success;
    case not_found:
        *text = "named symbol not found";
        return success;
    default:
        *text = "an error of the stand-in";
        return success;
    }
}
}
