// The models library, whose exceptions become statuses here.
#include "model.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <halyard/model.hpp>
#include <new>
#include <system_error>

namespace halyard::python {

struct LoadedModel {
    Model model;
};

struct TokenStream {
    const Model &model;
    std::vector<std::int64_t> pending;  // what the model has not read
    std::int64_t left;                  // tokens that may still come
    std::vector<std::int64_t> stop;
    Sampler sampler;
    KvCache cache;
    std::vector<float> logits;
};

namespace {

/** The status of what is thrown; its sentence goes into the failure. */
template<class Action>
halyard_status guarded(Failure *failure, const Action &action) noexcept {
    try {
        action();
        return HALYARD_OK;
    } catch (const Error &error) {
        failure->sentence = strdup(error.what());
        return error.status();
    } catch (const std::bad_alloc &) {
        failure->sentence = strdup("halyard.Model: memory could not be had");
        return HALYARD_OUT_OF_MEMORY;
    } catch (const std::system_error &error) {
        failure->sentence = strdup(error.what());
        failure->error_number = error.code().value();
        return HALYARD_INVALID_ARGUMENT;
    } catch (const std::exception &error) {
        failure->sentence = strdup(error.what());
        return HALYARD_INVALID_ARGUMENT;
    }
}

std::optional<DLDataType> dtype_or_none(DLDataType dtype) {
    return dtype.bits != 0 ? std::optional(dtype) : std::nullopt;
}

std::vector<std::int64_t> to_vector(const Ids &ids) {
    return {ids.values, ids.values + ids.count};
}

[[noreturn]] void refuse(const std::string &what) {
    throw Error(HALYARD_INVALID_ARGUMENT, ("halyard.Model.stream: " + what).c_str());
}

TokenStream *make_stream(const Model &model, const Ids &prompt, const StreamDescription &description, const Ids &stop) {
    const std::int64_t room = model.max_positions() - prompt.count;
    if (prompt.count == 0) {
        refuse("ids is empty");
    }
    if (room < 0) {
        refuse("ids has " + std::to_string(prompt.count) + " tokens, but the model has " +
               std::to_string(model.max_positions()) + " positions");
    }
    if (description.max_tokens < 0) {
        refuse("max_tokens is negative");
    }
    SamplingOptions sampling;
    sampling.temperature = description.temperature;
    sampling.top_k = description.top_k;
    sampling.top_p = description.top_p;
    sampling.seed = static_cast<std::uint64_t>(description.seed);
    // The last token is not read back.
    const std::int64_t left = std::min(description.max_tokens, room + 1);
    return new TokenStream{model,
                           to_vector(prompt),
                           left,
                           stop.values != nullptr ? to_vector(stop) : model.config().eos_token_ids,
                           Sampler(sampling),
                           model.make_cache(prompt.count + std::max<std::int64_t>(left, 1) - 1),
                           std::vector<float>(static_cast<std::size_t>(model.config().stack.vocab_size))};
}

}  // namespace

halyard_status load_model(const halyard_context *context, const char *path, const LoadDescription *description,
                          Failure *failure, LoadedModel **model) {
    const halyard_status status = guarded(failure, [&] {
        LoadOptions options;
        options.context = context;
        options.max_positions = description->max_positions;
        options.unpacked_dtype = dtype_or_none(description->dtype);
        options.quantization = description->quantization;
        *model = new LoadedModel{Model::load(path, options)};
    });
    if (status == HALYARD_INVALID_ARGUMENT && access(path, R_OK) != 0) {
        failure->error_number = errno;
    }
    return status;
}

halyard_status make_model_cache(const LoadedModel *model, const CacheDescription *description, Failure *failure,
                                halyard_kv_cache **cache) {
    halyard_kv_cache_options options{};
    const halyard_status status = guarded(failure, [&] {
        // One that is dropped again says what the model needs.
        const KvCache like = model->model.make_cache(description->max_positions, dtype_or_none(description->dtype));
        check(halyard_kv_cache_get_options(like.get(), &options));
    });
    options.n_sequences = description->n_sequences;
    return status == HALYARD_OK ? halyard_kv_cache_create(&options, nullptr, 0, cache) : status;
}

halyard_status forward_model(const halyard_context *context, const LoadedModel *model, const DLTensor *input_ids,
                             halyard_kv_cache *cache, const int64_t *sequences, const halyard_stack_options *options,
                             DLTensor *logits) {
    return halyard_stack_forward(context, stack_of_model(model), input_ids, cache, sequences, options, logits);
}

halyard_status model_hidden(const halyard_context *context, const LoadedModel *model, const DLTensor *input_ids,
                            halyard_kv_cache *cache, const int64_t *sequences, const halyard_stack_options *options,
                            DLTensor *hidden) {
    return halyard_stack_hidden_states(context, stack_of_model(model), input_ids, cache, sequences, options, hidden);
}

halyard_status open_stream(const LoadedModel *model, Ids prompt, const StreamDescription *description, Ids stop,
                           Failure *failure, TokenStream **stream) {
    return guarded(failure, [&] { *stream = make_stream(model->model, prompt, *description, stop); });
}

halyard_status next_token(const halyard_context *context, TokenStream *stream, Failure *failure, int64_t *token) {
    *token = -1;
    const std::int64_t left = std::exchange(stream->left, 0);
    if (left == 0) {
        return HALYARD_OK;
    }
    return guarded(failure, [&] {
        stream->model.forward(stream->pending, stream->cache, stream->logits, context);
        const std::int64_t next = stream->sampler(stream->logits);
        stream->pending.assign(1, next);
        const bool is_end = std::find(stream->stop.begin(), stream->stop.end(), next) != stream->stop.end();
        stream->left = is_end ? 0 : left - 1;
        *token = next;
    });
}

const halyard_stack *stack_of_model(const LoadedModel *model) {
    return model->model.stack().get();
}

ModelFacts facts_of(const LoadedModel *loaded) {
    const Model &model = loaded->model;
    const ModelConfig &config = model.config();
    ModelFacts facts{};
    facts.architecture = to_string(config.architecture);
    facts.layers = static_cast<std::int64_t>(config.blocks.size());
    facts.max_positions = model.max_positions();
    facts.block_bytes = model.block_bytes();
    facts.block = config.blocks.front().get();
    halyard_stack_get_config(model.stack().get(), &facts.stack);
    facts.max_position_embeddings = config.max_position_embeddings;
    facts.tie_word_embeddings = config.tie_word_embeddings ? 1 : 0;
    facts.ends = {const_cast<std::int64_t *>(config.eos_token_ids.data()),
                  static_cast<std::int64_t>(config.eos_token_ids.size())};
    facts.formats = static_cast<std::int64_t>(model.matrix_formats().size());
    return facts;
}

const char *format_of(const LoadedModel *model, int64_t index, int64_t *count) {
    const auto &format = model->model.matrix_formats()[static_cast<std::size_t>(index)];
    *count = format.second;
    return format.first.c_str();
}

void destroy_model(void *model) {
    delete static_cast<LoadedModel *>(model);
}

void destroy_token_stream(void *stream) {
    delete static_cast<TokenStream *>(stream);
}

}  // namespace halyard::python
