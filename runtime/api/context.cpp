// The context: the public functions.
#include <cstdlib>
#include <new>

#include "core/backend.h"
#include "core/system/thread_pool.h"

using halyard::Checker;

halyard_status halyard_context_create(halyard_context **context) {
    Checker check("halyard_context_create");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    void *memory = malloc(sizeof(halyard_context));
    if (!memory) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a context");
    }
    halyard_context *const made = new (memory) halyard_context;
    made->default_threads = halyard::new_default_threads();
    *context = made;
    return HALYARD_OK;
}

void halyard_context_destroy(halyard_context *context) {
    if (context) {
        halyard_context_release_scratch(context);
        free(context);
    }
}

halyard_status halyard_context_set_num_threads(halyard_context *context, int num_threads) {
    Checker check("halyard_context_set_num_threads");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    if (num_threads < 0 || num_threads > halyard::max_threads) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "num_threads is %d, but must be 0 (the default) to %d", num_threads,
                          halyard::max_threads);
    }
    context->num_threads = num_threads;
    return HALYARD_OK;
}

int halyard_context_num_threads(const halyard_context *context) {
    return halyard::thread_bound(halyard::context_or_default(context));
}

halyard_status halyard_context_set_parallel_for(halyard_context *context, halyard_parallel_for parallel_for,
                                                void *user) {
    Checker check("halyard_context_set_parallel_for");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    context->parallel_for = parallel_for;
    context->parallel_for_user = user;
    return HALYARD_OK;
}

halyard_status halyard_context_set_max_isa(halyard_context *context, halyard_isa isa) {
    Checker check("halyard_context_set_max_isa");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    if (!halyard_isa_name(isa)) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "isa is %d, which is no value of halyard_isa",
                          static_cast<int>(isa));
    }
    if (!halyard::is_built(isa)) {
        return check.fail(HALYARD_UNSUPPORTED,
                          "isa is %s, which this library was built without; see its option HALYARD_ISAS",
                          halyard_isa_name(isa));
    }
    context->max_isa = isa;
    return HALYARD_OK;
}

halyard_status halyard_context_set_products(halyard_context *context, halyard_products products) {
    Checker check("halyard_context_set_products");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    if (products < HALYARD_PRODUCTS_STORAGE || products > HALYARD_PRODUCTS_INT8) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "products is %d, which is no value of halyard_products",
                          static_cast<int>(products));
    }
    context->products = products;
    return HALYARD_OK;
}

halyard_products halyard_context_products(const halyard_context *context) {
    return halyard::context_or_default(context).products;
}

halyard_status halyard_context_set_streaming_min_bytes(halyard_context *context, int64_t min_bytes) {
    Checker check("halyard_context_set_streaming_min_bytes");
    if (!check.not_null("context", context)) {
        return check.status();
    }
    if (min_bytes < -1) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "min_bytes is %lld, but must be -1 (the default) or more",
                          static_cast<long long>(min_bytes));
    }
    context->streaming_min_bytes = min_bytes;
    return HALYARD_OK;
}

halyard_status halyard_context_set_cuda_stream(halyard_context *context, void *stream) {
    Checker check("halyard_context_set_cuda_stream");
    if (check.not_null("context", context)) {
        context->cuda_stream = stream;
    }
    return check.status();
}

halyard_status halyard_cuda_prepare(int device) {
    Checker check("halyard_cuda_prepare");
    if (const halyard::Backend *const devices = halyard::device_backend()) {
        devices->prepare(check, device);
    } else {
        check.fail(HALYARD_UNSUPPORTED, "this library was built without CUDA kernels, so device %d is of no use to it",
                   device);
    }
    return check.status();
}

void halyard_context_release_scratch(const halyard_context *context) {
    const halyard_context &c = halyard::context_or_default(context);
    c.scratch.release();
    if (const halyard::Backend *const devices = halyard::device_backend()) {
        devices->release_scratch(c);
    }
}

halyard_isa halyard_context_isa(const halyard_context *context) {
    return halyard::best_isa(halyard::context_or_default(context).max_isa);
}
