// The occupancy of every kernel on every architecture, by the rules of the CUDA toolkit (cuda_occupancy.h): a table, and a
// failure where fewer than half of the threads that a multiprocessor holds can run at once (attention: a quarter).
//
//   cuda_occupancy DIRECTORY     of *.registers, see cmake/AssembleDeviceKernel.cmake
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "cuda_occupancy.h"

namespace {

/** What the toolkit's documentation says of a multiprocessor (CUDA C++ Programming Guide, technical specifications). */
struct Multiprocessor {
    int threads;
    size_t shared_bytes;
};

const std::map<int, Multiprocessor> multiprocessors = {
    {80, {2048, 164 << 10}}, {86, {1536, 100 << 10}},  {89, {1536, 100 << 10}},
    {90, {2048, 228 << 10}}, {100, {2048, 228 << 10}}, {120, {1536, 100 << 10}},
};

/** Threads of such blocks that run at once on a multiprocessor, as a fraction of those that it holds; negative if the
 *  toolkit does not know the device. */
double occupancy(int architecture, int registers, int threads, size_t shared_bytes) {
    const Multiprocessor &m = multiprocessors.at(architecture);
    cudaOccDeviceProp properties;
    properties.computeMajor = architecture / 10;
    properties.computeMinor = architecture % 10;
    properties.maxThreadsPerBlock = 1024;
    properties.maxThreadsPerMultiprocessor = m.threads;
    properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
    properties.warpSize = 32;
    properties.sharedMemPerBlock = 48 << 10;
    properties.sharedMemPerMultiprocessor = m.shared_bytes;
    properties.numSms = 1;
    properties.sharedMemPerBlockOptin = m.shared_bytes - 1024;
    properties.reservedSharedMemPerBlock = 1024;
    cudaOccFuncAttributes attributes;
    attributes.maxThreadsPerBlock = 1024;
    attributes.numRegs = registers;
    cudaOccDeviceState state;
    cudaOccResult result;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state, threads, shared_bytes) !=
        CUDA_OCC_SUCCESS) {
        return -1;
    }
    return static_cast<double>(result.activeBlocksPerMultiprocessor * threads) / m.threads;
}

/** Shared memory of a block: a few numbers for each thread of a row kernel; what schedules/gpu/matmul.cpp says of a product; of the
 *  splits of attention the values of 4 rows by 8 slices, here of 128 features, and two weights a thread and row. */
size_t shared_bytes(const std::string &kernel, int threads) {
    const bool is_product = kernel.find("hk_product_") == 0, is_split = kernel.find("hk_attention_split_") == 0;
    return is_product ? (64 * 64 + 2 * 16 * 68) * sizeof(float)
           : is_split ? (4 * 8 * 128 + 2 * 4 * static_cast<size_t>(threads) + 128) * sizeof(float)
                      : 16 * static_cast<size_t>(threads);
}

/** Half; a quarter where a block holds what would else be read again. */
double least_occupancy(const std::string &kernel) {
    return kernel.find("hk_attention_split_") == 0 ? 0.25 : 0.5;
}

}  // namespace

int main(int count, char **arguments) {
    DIR *const directory = count == 2 ? opendir(arguments[1]) : nullptr;
    if (!directory) {
        std::fprintf(stderr, "usage: cuda_occupancy DIRECTORY\n");
        return 2;
    }
    // [kernel][architecture]: registers
    std::map<std::string, std::map<int, int>> registers;
    std::map<std::string, int> block;
    const std::string ending = ".registers";
    while (const dirent *entry = readdir(directory)) {
        const std::string name = entry->d_name;
        if (name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
            std::ifstream file(std::string(arguments[1]) + "/" + name);
            std::string kernel;
            int architecture, used, threads;
            while (file >> kernel >> architecture >> used >> threads) {
                registers[kernel][architecture] = used;
                block[kernel] = threads;
            }
        }
    }
    closedir(directory);
    if (registers.empty()) {
        std::fprintf(stderr, "%s holds no kernels\n", arguments[1]);
        return 1;
    }
    bool good = true;
    std::printf("Registers of a thread, and threads at once in percent of those that a multiprocessor holds: for row "
                "kernels the "
                "least of blocks of 128 to 512 threads.\n");
    for (const auto &[kernel, by_architecture] : registers) {
        std::printf("%-52s", kernel.c_str());
        for (const auto &[architecture, used] : by_architecture) {
            double least = 1;
            // A row kernel's blocks are as large as its rows ask for, up to what its registers were chosen for.
            for (int threads = block[kernel] == 512 ? 128 : block[kernel]; threads <= block[kernel]; threads *= 2) {
                least = std::min(least, occupancy(architecture, used, threads, shared_bytes(kernel, threads)));
            }
            std::printf("  sm_%d %d %3.0f %%", architecture, used, 100 * least);
            good = good && least >= least_occupancy(kernel);
        }
        std::printf("\n");
    }
    return good ? 0 : 1;
}
