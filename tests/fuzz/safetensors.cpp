// A libFuzzer target for files in the safetensors format. A file that is accepted must be what it says: every byte of
// its data in one tensor, and all of them readable.
//
// Half of the mutations get a length of the header that fits, without which few would come past the first check.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "halyard/model.hpp"
#include "safetensors_header.h"

extern "C" {

// libFuzzer defines it.
std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t max_size);

std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 2 == 0) {
        fit_header_length(data, size);
    }
    return size;
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    // Exactly as long as the input, so that AddressSanitizer sees the first byte too many.
    const std::unique_ptr<std::uint8_t[]> file(new std::uint8_t[size]);
    if (size > 0) {
        std::memcpy(file.get(), data, size);
    }
    try {
        const auto tensors = halyard::SafeTensors::from_memory(file.get(), size, "the file");
        std::uint64_t length = 0;
        std::memcpy(&length, file.get(), 8);
        std::size_t bytes = 0;
        volatile unsigned sum = 0;
        for (const auto &info : tensors.tensors()) {
            for (std::int64_t i = 0; i < info.bytes; i++) {
                sum = sum + static_cast<unsigned>(info.data[i]);
            }
            bytes += static_cast<std::size_t>(info.bytes);
            if (tensors.find(info.name) != &info) {
                std::abort();
            }
        }
        if (8 + length + bytes != size) {
            std::abort();
        }
    } catch (const halyard::Error &error) {
        if (std::string(error.what()).rfind("the file", 0) != 0) {
            std::abort();
        }
    }
    return 0;
}

}  // extern "C"
