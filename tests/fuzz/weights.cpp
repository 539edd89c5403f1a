// A libFuzzer target for packed weights that come from outside: halyard_weights_from_memory, which does all that
// halyard_weights_load does but map the file. Weights that are accepted must be what they say.
//
// Half of the mutations get checksums that fit, without which none would come past the checks of the header.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "halyard/halyard.h"
#include "support/packed_block.h"

namespace packed = halyard::tests::packed;

extern "C" {

// libFuzzer defines it.
std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t max_size);

std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t max_size, unsigned int seed) {
    if (size < packed::header_size || seed % 8 == 0) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    // The header alone, the rest alone, or the length as well.
    if (seed % 8 < 4) {
        LLVMFuzzerMutate(data + packed::version, packed::header_size - packed::version,
                         packed::header_size - packed::version);
    } else {
        size = packed::header_size +
               LLVMFuzzerMutate(data + packed::header_size, size - packed::header_size, max_size - packed::header_size);
    }
    if (seed / 8 % 2 == 0) {
        std::memcpy(data, "HALYARDW", 8);
        halyard::tests::store_to<std::uint32_t>(data, packed::version, 1 + seed % 3);
        if (seed / 16 % 2 == 0) {
            halyard::tests::store_to(data, packed::bytes, static_cast<std::int64_t>(size));
        }
        halyard::tests::sign(data, size);
    }
    return size;
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    // Exactly as long as the input, so that AddressSanitizer sees the first byte too many.
    void *block = nullptr;
    if (posix_memalign(&block, 64, size) != 0) {
        std::abort();
    }
    if (size > 0) {
        std::memcpy(block, data, size);
    }
    halyard_weights *weights = nullptr;
    if (halyard_weights_from_memory(block, static_cast<std::int64_t>(size), &weights) == HALYARD_OK) {
        halyard_weights_info info;
        if (halyard_weights_get_info(weights, &info) != HALYARD_OK || info.in_features < 1 || info.out_features < 1) {
            std::abort();
        }
        // What is in today's form is used where it lies; what was converted is a block of its own.
        const void *const used = halyard_weights_data(weights);
        halyard_weights *again = nullptr;
        if (used == block
                ? info.bytes != static_cast<std::int64_t>(size)
                : data[packed::version] != 1 || halyard_weights_from_memory(used, info.bytes, &again) != HALYARD_OK ||
                      halyard_weights_data(again) != used) {
            std::abort();
        }
        halyard_weights_destroy(again);
    } else if (weights != nullptr || *halyard_last_error() == '\0') {
        std::abort();
    }
    halyard_weights_destroy(weights);
    std::free(block);
    return 0;
}

}  // extern "C"
