// Models of transformers as GGUF files, in the way of llama.cpp's converter.
#ifndef HALYARD_TESTS_SUPPORT_GGUF_MODEL_H
#define HALYARD_TESTS_SUPPORT_GGUF_MODEL_H

#include "support/gguf.h"
#include "support/model_folder.h"

namespace halyard::tests {

/** `folder`, whose model must be one that GGUF can express. */
GgufFile gguf_of(const Folder &folder);

/** Changes a fixture's configuration where GGUF cannot express it. */
void make_expressible(Folder &folder);

/** Makes rows of `width` elements, or twice as many, of a fixture in f32. */
void widen(Folder &folder, std::int64_t width = 256);

/** Gives a fixture that is widened biases of 0. */
void add_attention_biases(Folder &folder, std::int64_t width);

/** The prompt of the fixture llama3_f32, for all models of its vocabulary. */
const std::vector<std::int64_t> &llama_prompt();

/** The elements of a tensor as f32. */
std::vector<float> floats_of(const StoredTensor &tensor);

}  // namespace halyard::tests

#endif
