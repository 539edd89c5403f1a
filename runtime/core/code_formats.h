// Quantized matrices as files have them: what lies where in each format, and how 16 outputs of one are read.
#ifndef HALYARD_RUNTIME_CORE_CODE_FORMATS_H
#define HALYARD_RUNTIME_CORE_CODE_FORMATS_H

#include <cstdint>

#include "core/check.h"
#include "layout/code_panels.h"

namespace halyard {

/** A matrix of elements of some bytes, each of which may hold several numbers. */
struct CodeTensor {
    View memory;  // that it lies in, as f32
    const char *data = nullptr;
    int64_t output_pitch = 0, input_pitch = 0;  // bytes from one element to the next; the latter of scales: of groups

    const char *at(int64_t output, int64_t input) const { return data + output * output_pitch + input * input_pitch; }
};

struct CodeFormat;

/** One quantized matrix, checked. */
struct CodeSource {
    const CodeFormat *format = nullptr;
    CodeLayout layout;  // of the packed form
    int64_t group = 0;  // inputs that have one scale in the source
    CodeTensor codes, scales, zeros;
    // Where a file gives the group of each input (GPTQ's g_idx, one s32 for each). Readers take inputs in order.
    CodeTensor order;
    bool is_in_order = true;  // input / group; not known without data
};

/** Where a k block of a panel is to be: words of codes, and scales as [groups][16]. What is not there is 0. */
struct CodeTarget {
    uint32_t (*words)[panel_width];
    char *scales, *minima;
    uint8_t *factors, *zeros;
};

struct CodeFormat {
    const char *name;
    // The packed form. Blocks of GGUF have their group; of other formats a caller says it, and the bits where they are 0.
    ScaleKind kind;
    int bits, group;
    // GGUF: inputs and bytes of a block; 0: scales and zeros are tensors of their own.
    int block_inputs, block_bytes;
    // Others: the type of an element of the codes, and whether these are [in, out], scales [groups, out].
    DLDataType element;
    bool transposed;
    /** Whether an element has codes of several outputs, and not of inputs. */
    bool joins_outputs;
    /** Reads `inputs` inputs from `k` on of `columns` outputs from `column` on. Codes of other inputs and outputs, which words
     *  may have besides, are anything. */
    void (*read)(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                 const CodeTarget &target);

    /** Codes in an element, of `bits` bits. */
    int64_t joined(int code_bits) const { return element.bits / code_bits; }
};

/** Null if there is none. */
const CodeFormat *code_format(halyard_code_format format);

}  // namespace halyard

#endif
