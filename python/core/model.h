// The models library in functions of C, for the table of functions and the types of models: none of them throws.
#ifndef HALYARD_PYTHON_CORE_MODEL_H
#define HALYARD_PYTHON_CORE_MODEL_H

#include "halyard/block.h"

namespace halyard::python {

/** A halyard::Model. */
struct LoadedModel;
/** The tokens after a prompt. */
struct TokenStream;

/** What a call says of its failure, where halyard_last_error() does not. */
struct Failure {
    char *sentence;    // allocated by malloc; null: none
    int error_number;  // of the system; 0: none
};

/** Values are null where nothing was given. */
struct Ids {
    int64_t *values;
    int64_t count;
};

/** Options of load_model(). */
struct LoadDescription {
    int64_t max_positions;
    DLDataType dtype;  // what quantized weights become; all zero: they stay
    halyard_quantization quantization;
};

/** Options of make_model_cache(). */
struct CacheDescription {
    int64_t max_positions, n_sequences;
    DLDataType dtype;  // all zero: that of the embedding
};

/** Options of open_stream(). */
struct StreamDescription {
    int64_t max_tokens;
    double temperature;
    int64_t top_k;
    double top_p;
    int64_t seed;
};

/** What a model is. Pointers are valid as long as it is. */
struct ModelFacts {
    const char *architecture;
    int64_t layers, max_positions, block_bytes;
    halyard_block_config block;  // of the first layer
    halyard_stack_config stack;
    int64_t max_position_embeddings;
    int tie_word_embeddings;
    Ids ends;         // tokens that end a text
    int64_t formats;  // of matrices
};

halyard_status load_model(const halyard_context *context, const char *path, const LoadDescription *description,
                          Failure *failure, LoadedModel **model);
halyard_status make_model_cache(const LoadedModel *model, const CacheDescription *description, Failure *failure,
                                halyard_kv_cache **cache);
halyard_status forward_model(const halyard_context *context, const LoadedModel *model, const DLTensor *input_ids,
                             halyard_kv_cache *cache, const int64_t *sequences, const halyard_stack_options *options,
                             DLTensor *logits);
halyard_status model_hidden(const halyard_context *context, const LoadedModel *model, const DLTensor *input_ids,
                            halyard_kv_cache *cache, const int64_t *sequences, const halyard_stack_options *options,
                            DLTensor *hidden);
/** The model must outlive the stream. */
halyard_status open_stream(const LoadedModel *model, Ids prompt, const StreamDescription *description, Ids stop,
                           Failure *failure, TokenStream **stream);
/** Sets the token, or -1 at the end. A failure ends the stream. */
halyard_status next_token(const halyard_context *context, TokenStream *stream, Failure *failure, int64_t *token);

const halyard_stack *stack_of_model(const LoadedModel *model);
ModelFacts facts_of(const LoadedModel *model);
/** The name of a format of matrices, and how many there are of it. */
const char *format_of(const LoadedModel *model, int64_t index, int64_t *count);

void destroy_model(void *model);
void destroy_token_stream(void *stream);

}  // namespace halyard::python

#endif
