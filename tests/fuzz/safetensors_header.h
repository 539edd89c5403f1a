// The length that a file in the safetensors format begins with. Few mutations would come past the first check if it were left as
// it becomes.
#ifndef HALYARD_FUZZ_SAFETENSORS_HEADER_H
#define HALYARD_FUZZ_SAFETENSORS_HEADER_H

#include <cstddef>
#include <cstdint>
#include <cstring>

/** Makes the header end with its last brace. */
inline void fit_header_length(std::uint8_t *file, std::size_t size) {
    if (size <= 8) {
        return;
    }
    std::size_t end = size;
    while (end > 8 && file[end - 1] != '}') {
        end--;
    }
    const std::uint64_t length = end - 8;
    std::memcpy(file, &length, 8);
}

#endif
