// The driver's functions by name.
#include "cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace halyard::bench::cuda {
namespace {

using Result = int;

void *library() {
    static void *const opened = dlopen("libcuda.so.1", RTLD_NOW);
    if (opened == nullptr) {
        stop(std::string("there is no CUDA driver: ") + dlerror());
    }
    return opened;
}

/** A function of the driver, which must succeed. */
template<typename... Arguments>
void call(const char *name, Arguments... arguments) {
    void *const address = dlsym(library(), name);
    if (address == nullptr) {
        stop(std::string("libcuda.so.1 has no ") + name);
    }
    const Result result = reinterpret_cast<Result (*)(Arguments...)>(address)(arguments...);
    if (result != 0) {
        stop(std::string(name) + " failed: error " + std::to_string(result) + " of the CUDA driver");
    }
}

}  // namespace

void stop(const std::string &message) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
    std::exit(1);
}

int say_no_device(const char *reason) {
    glob_t devices{};
    const bool some = glob("/dev/nvidia*", GLOB_NOSORT, nullptr, &devices) == 0;
    if (some) {
        std::printf("there is %s, but the library cannot use it: %s\n", devices.gl_pathv[0], reason);
    } else {
        std::printf("skipped: %s\n", reason);
    }
    globfree(&devices);
    return some ? 1 : 0;
}

Gpu::Gpu(int ordinal) {
    int device = 0, l2 = 0;
    void *context = nullptr;
    constexpr int l2_attribute = 38;  // CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    constexpr unsigned non_blocking = 1;
    call("cuInit", 0u);
    call("cuDeviceGet", &device, ordinal);
    char text[256] = "";
    call("cuDeviceGetName", &text[0], int{sizeof text}, device);
    name = text;
    stand_in = name.find("stand-in") != std::string::npos;
    call("cuDeviceGetAttribute", &l2, l2_attribute, device);
    l2_bytes = l2;
    std::size_t total = 0;
    call("cuDeviceTotalMem_v2", &total, device);
    memory_bytes = static_cast<std::int64_t>(total);
    call("cuDevicePrimaryCtxRetain", &context, device);
    call("cuCtxSetCurrent", context);
    call("cuStreamCreate", &stream, non_blocking);
    call("cuEventCreate", &begin_, 0u);
    call("cuEventCreate", &end_, 0u);
}

std::uint64_t Gpu::allocate(std::int64_t bytes) {
    std::uint64_t memory = 0;
    call("cuMemAlloc_v2", &memory, static_cast<std::size_t>(bytes));
    return memory;
}

void Gpu::free(std::uint64_t memory) {
    call("cuMemFree_v2", memory);
}

void Gpu::fill(std::uint64_t memory, std::int64_t bytes) {
    // Sign and mantissa are chance, the exponent is that of numbers from 0.5 to 2 in bf16 (and f32), below that in f16.
    static const std::vector<std::uint16_t> pattern = [] {
        std::vector<std::uint16_t> words(std::size_t{4} << 20);
        std::uint32_t state = 1;
        for (std::uint16_t &word : words) {
            state = state * 1664525u + 1013904223u;
            word = static_cast<std::uint16_t>((state >> 16 & 0x80ffu) | 0x3f00u);
        }
        return words;
    }();
    const std::int64_t size = static_cast<std::int64_t>(pattern.size() * sizeof(pattern[0]));
    for (std::int64_t at = 0; at < bytes; at += size) {
        call("cuMemcpyHtoD_v2", memory + static_cast<std::uint64_t>(at), static_cast<const void *>(pattern.data()),
             static_cast<std::size_t>(std::min(size, bytes - at)));
    }
}

void Gpu::copy(std::uint64_t from, std::uint64_t to, std::int64_t bytes) {
    call("cuMemcpyDtoDAsync_v2", to, from, static_cast<std::size_t>(bytes), stream);
}

void Gpu::wait() {
    call("cuStreamSynchronize", stream);
}

double Gpu::microseconds(const std::function<void()> &work) {
    float milliseconds = 0;
    call("cuEventRecord", begin_, stream);
    work();
    call("cuEventRecord", end_, stream);
    call("cuEventSynchronize", end_);
    call("cuEventElapsedTime", &milliseconds, begin_, end_);
    return 1e3 * static_cast<double>(milliseconds);
}

Gpu::Graph::Graph(Gpu &gpu, const std::function<void()> &work) : gpu_(gpu) {
    constexpr int thread_local_mode = 1;
    void *graph = nullptr;
    call("cuStreamBeginCapture_v2", gpu.stream, thread_local_mode);
    work();
    call("cuStreamEndCapture", gpu.stream, &graph);
    call("cuGraphInstantiateWithFlags", &executable_, graph, 0ull);
    call("cuGraphDestroy", graph);
}

Gpu::Graph::~Graph() {
    call("cuGraphExecDestroy", executable_);
}

void Gpu::Graph::launch() {
    call("cuGraphLaunch", executable_, gpu_.stream);
}

}  // namespace halyard::bench::cuda
