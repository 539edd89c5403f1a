// What the processor and CUDA devices each do for the functions above them: one table of functions for either. Public
// functions, blocks and stacks check their arguments into a call, and hand it to the backend of its tensors' device.
#ifndef HALYARD_RUNTIME_CORE_BACKEND_H
#define HALYARD_RUNTIME_CORE_BACKEND_H

#include "core/calls/attention.h"
#include "core/calls/codes.h"
#include "core/calls/cross_entropy.h"
#include "core/calls/embed.h"
#include "core/calls/linear.h"
#include "core/calls/ops.h"
#include "core/calls/optimizers.h"
#include "core/calls/pack.h"
#include "core/calls/param_vectors.h"
#include "core/device.h"

namespace halyard {

struct Backend {
    template<typename Call>
    using Operation = void(Checker &check, const halyard_context &context, const Call &call);

    // ---- Operations: they do what a call asks for, or fail `check`. On a device they return when the work is in the
    // stream. The call's y is not empty. ----
    Operation<ElementwiseCall> *elementwise;
    Operation<NormCall> *norm;
    Operation<NormBackwardCall> *norm_backward = nullptr;  // of processors alone
    Operation<SoftmaxCall> *softmax;
    Operation<SoftmaxBackwardCall> *softmax_backward = nullptr;  // of processors alone
    Operation<NormStatisticsCall> *norm_statistics;
    Operation<LinearCall> *linear;
    Operation<LinearBackwardCall> *linear_backward = nullptr;  // of processors alone
    Operation<FfnCall> *ffn;
    Operation<FfnBackwardCall> *ffn_backward = nullptr;  // of processors alone
    Operation<AttentionCall> *attention;
    Operation<AttentionBackwardCall> *attention_backward = nullptr;  // of processors alone
    Operation<RopeCall> *rope;
    Operation<KvAppendCall> *kv_append;
    Operation<KvReadCall> *kv_read;
    Operation<EmbedCall> *embed;
    Operation<EmbedBackwardCall> *embed_backward = nullptr;  // of processors alone
    Operation<CrossEntropyCall> *cross_entropy = nullptr;    // of processors alone
    Operation<DequantizeCall> *dequantize = nullptr;         // of processors alone

    // Optimizers, of processors alone.
    Operation<GradientNormCall> *gradient_norm = nullptr;
    Operation<SgdCall> *sgd = nullptr;
    Operation<AdamwCall> *adamw = nullptr;

    // ---- Packed weights ----
    int64_t (*packed_bytes)(const PackSources &sources);
    /** Into `memory`, of `bytes` bytes, or into memory of its own where that is null. */
    void (*pack)(Checker &check, const halyard_context &context, const PackSources &sources, void *memory,
                 int64_t bytes, halyard_weights **weights);
    /** Into the memory of weights of this form, without an allocation. */
    void (*update)(Checker &check, const halyard_context &context, const PackSources &sources,
                   const halyard_weights &weights) = nullptr;  // of processors alone
    /** The memory that the weights own. */
    void (*free_weights)(const halyard_weights &weights);

    // ---- Memory of device number `device`. What is allocated begins at a whole cache line; null after a failure. ----
    char *(*allocate)(Checker &check, int device, int64_t bytes, const char *what);
    void (*free)(int device, void *memory);
    /** For a cache of keys and values: zeros, which take memory as they are written where that can be had. */
    char *(*allocate_cache)(Checker &check, int device, int64_t bytes);
    void (*free_cache)(int device, char *memory, int64_t bytes);

    // ---- What blocks and stacks do besides. These have done it when they return ----
    void (*convert_vectors)(Checker &check, const halyard_context &context, int device, const ParamSource *sources,
                            int count);
    /** Copies elements as they are, of rank 2 or 3. Either tensor may be in memory of the process. */
    void (*copy)(Checker &check, const halyard_context &context, int device, const View &from, const View &to);
    void (*fill)(Checker &check, const halyard_context &context, int device, float *data, float value, int64_t count);
    /** Sees to it that calls find a table of angles. */
    void (*prepare_rope)(Checker &check, const halyard_context &context, int device, const halyard_rope &rope);
    /** Whether the context's stream is being captured, so that no call may wait for it. */
    bool (*capturing)(Checker &check, const halyard_context &context, int device);

    // ---- Memory for the intermediates of a call, which the context keeps: see core/workspace.h ----
    /** `data` is null after a failure. */
    ScratchMemory (*take_scratch)(Checker &check, const halyard_context &context, int device, int64_t bytes);
    void (*give_back_scratch)(const halyard_context &context, const ScratchMemory &memory);

    // ---- Of devices alone: null in the processor's table ----
    /** Loads every kernel. */
    void (*prepare)(Checker &check, int device) = nullptr;
    void (*free_copies)(DeviceCopies &copies) = nullptr;
    /** Frees the memory that a context keeps for the intermediates of calls. */
    void (*release_scratch)(const halyard_context &context) = nullptr;
    void (*after_fork_in_child)() = nullptr;
};

extern const Backend cpu_backend;
#ifdef HALYARD_CUDA_VERSION
extern const Backend cuda_backend;
#endif

/** The table of devices; null in a library without. */
inline const Backend *device_backend() {
#ifdef HALYARD_CUDA_VERSION
    return &cuda_backend;
#else
    return nullptr;
#endif
}

inline const Backend &backend_of(bool on_cuda) {
    return has_cuda && on_cuda ? *device_backend() : cpu_backend;
}

inline const View &as_view(const View &view) {
    return view;
}
inline const View &as_view(const Heads &heads) {
    return heads.view;
}

/** Does what a call asks for, unless something has failed or there is nothing to do. */
template<typename Call>
halyard_status run_call(Checker &check, const halyard_context *context, Backend::Operation<Call> *Backend::*operation,
                        const Call &call) {
    check.set_context(context);
    const View &y = as_view(call.y);
    if (!check.failed() && !y.empty()) {
        (backend_of(y.on_cuda).*operation)(check, context_or_default(context), call);
    }
    return check.status();
}

}  // namespace halyard

#endif
