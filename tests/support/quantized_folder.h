// Folders of transformers with quantized matrices that a test writes: a quantizer, and the tensors of each method, written down from
// what the projects that define them do.
#ifndef HALYARD_TESTS_SUPPORT_QUANTIZED_FOLDER_H
#define HALYARD_TESTS_SUPPORT_QUANTIZED_FOLDER_H

#include "support/gguf_model.h"

namespace halyard::tests {

enum class Method { pack_quantized, int_quantized, gptq, gptq_v2, awq };

struct QuantizedForm {
    Method method;
    int bits = 4;
    std::int64_t group = 16;  // -1: all inputs
    bool symmetric = true;
    const char *scales = "F32";
    bool with_head = false;  // lm_head is quantized too
    bool ordered = false;    // groups have inputs in another order

    std::string name() const;  // as Model::matrix_formats has it
};

/** Replaces the matrices of a folder in f32 by codes, and says so in its configuration. The result: its tensors with the numbers that
    the codes stand for. */
std::map<std::string, StoredTensor> quantize(Folder &folder, const QuantizedForm &form);

}  // namespace halyard::tests

#endif
