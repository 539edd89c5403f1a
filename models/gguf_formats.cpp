#include "gguf_formats.h"

#include <algorithm>
#include <iterator>

namespace halyard::models {

namespace {

constexpr BlockFormat formats[] = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {30, "BF16", 1, 2},
    {8, "Q8_0", 32, 34, HALYARD_CODES_Q8_0},
    {2, "Q4_0", 32, 18, HALYARD_CODES_Q4_0},
    {3, "Q4_1", 32, 20, HALYARD_CODES_Q4_1},
    {6, "Q5_0", 32, 22, HALYARD_CODES_Q5_0},
    {7, "Q5_1", 32, 24, HALYARD_CODES_Q5_1},
    {12, "Q4_K", 256, 144, HALYARD_CODES_Q4_K},
    {13, "Q5_K", 256, 176, HALYARD_CODES_Q5_K},
    {14, "Q6_K", 256, 210, HALYARD_CODES_Q6_K},

    {9, "Q8_1"},
    {10, "Q2_K"},
    {11, "Q3_K"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {20, "IQ4_NL"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {23, "IQ4_XS"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {39, "MXFP4"},
    {40, "NVFP4"},
    {41, "Q1_0"},
};

}  // namespace

const BlockFormat *block_format(std::uint32_t type) noexcept {
    const auto *const at = std::find_if(std::begin(formats), std::end(formats),
                                        [&](const BlockFormat &format) { return format.type == type; });
    return at != std::end(formats) ? at : nullptr;
}

const BlockFormat *block_format(std::string_view name) noexcept {
    const auto *const at = std::find_if(std::begin(formats), std::end(formats),
                                        [&](const BlockFormat &format) { return format.name == name; });
    return at != std::end(formats) ? at : nullptr;
}

std::string supported_block_formats() {
    std::string names;
    for (const BlockFormat &format : formats) {
        if (format.elements > 0) {
            names.append(names.empty() ? "" : ", ").append(format.name);
        }
    }
    return names;
}

}  // namespace halyard::models
