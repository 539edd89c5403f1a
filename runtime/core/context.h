// What halyard_context holds, and how a call runs its tasks.
#ifndef HALYARD_RUNTIME_CORE_CONTEXT_H
#define HALYARD_RUNTIME_CORE_CONTEXT_H

#include "core/dispatch.h"
#include "core/handles/weights.h"
#include "core/scratch.h"
#include "halyard/halyard.h"

namespace halyard {

/** HALYARD_PRODUCTS, or what holds without it. */
halyard_products default_products();

}  // namespace halyard

struct halyard_context {
    int num_threads = 0;      // 0: the default
    int default_threads = 0;  // found out when the context was made; 0: when the library was loaded
    halyard_isa max_isa = halyard::isa_cap_none;
    halyard_products products = halyard::default_products();
    int64_t streaming_min_bytes = -1;  // negative: three quarters of the last-level cache
    halyard_parallel_for parallel_for = nullptr;
    void *parallel_for_user = nullptr;
    void *cuda_stream = nullptr;
    mutable halyard::ScratchPool scratch;  // for several calls at once, as is the next
    mutable halyard::DeviceScratchPool device_scratch;
};

namespace halyard {

/** The context a call works with: the caller's, or the defaults. */
const halyard_context &context_or_default(const halyard_context *context);

/** Whether what lies between products whose weights and activations are of these dtypes is rounded to bf16 before a product. (To 8
 *  bits cpu/linear/blocked_rows.h rounds.) */
inline bool rounds_between(const halyard_context &context, DType weights, DType activations, bool quantized = false) {
    switch (context.products) {
    case HALYARD_PRODUCTS_STORAGE:
    case HALYARD_PRODUCTS_INT8:
        return weights == DType::bf16 && activations == DType::bf16;
    case HALYARD_PRODUCTS_BF16:
        return weights == DType::bf16 || quantized;
    case HALYARD_PRODUCTS_FULL:
        break;
    }
    return false;
}
inline bool rounds_between(const halyard_context &context, const halyard_weights &weights, DType activations) {
    return rounds_between(context, weights.dtype, activations, static_cast<bool>(weights.codes));
}

/** Threads that a context made now has if it is not told. */
int new_default_threads();

/** The bound on threads of a context. */
int thread_bound(const halyard_context &context);

/** Runs task(closure, i) for i in [0, count) on the context's threads; count at most thread_bound(). */
void run_tasks(const halyard_context &context, int count, void (*task)(void *closure, int index), void *closure);
template<typename Task>
void run_tasks(const halyard_context &context, int count, const Task &task) {
    run_tasks(
        context, count, [](void *closure, int index) { (*static_cast<const Task *>(closure))(index); },
        const_cast<Task *>(&task));
}

}  // namespace halyard

#endif
