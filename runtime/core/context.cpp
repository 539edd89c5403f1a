// The context: thread bound, caller's parallel-for, cap on the instruction set.
#include "core/context.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "core/check.h"
#include "core/system/environment.h"
#include "core/system/floating_point.h"
#include "core/system/processors.h"
#include "core/system/thread_pool.h"
#include "cuda/launch.h"

namespace halyard {
namespace {

/** 0 if the environment does not say. */
int read_num_threads() {
    const char *const variable = "HALYARD_NUM_THREADS", *const value = environment(variable);
    const int number = value ? number_in_digits(value, max_threads) : 0;
    if (value && number == 0) {
        char takes[32];
        snprintf(takes, sizeof(takes), "a number from 1 to %d", max_threads);
        say_ignored(variable, value, takes);
    }
    return number;
}

int default_num_threads(int of_environment) {
    return of_environment > 0 ? of_environment : static_cast<int>(std::min<int64_t>(usable_processors(), max_threads));
}

struct DefaultThreads {
    const int of_environment = read_num_threads();
    const int at_load = default_num_threads(of_environment);
};

HALYARD_AT_LOAD const DefaultThreads default_threads;

const halyard_context defaults;

}  // namespace

const halyard_context &context_or_default(const halyard_context *context) {
    return context ? *context : defaults;
}

int thread_bound(const halyard_context &context) {
    return context.num_threads > 0       ? context.num_threads
           : context.default_threads > 0 ? context.default_threads
                                         : default_threads.at_load;
}

void run_tasks(const halyard_context &context, int count, void (*task)(void *, int), void *closure) {
    if (count == 1) {
        task(closure, 0);
    } else if (context.parallel_for) {
        struct Closure {
            void (*task)(void *, int);
            void *closure;
        } callers = {task, closure};
        context.parallel_for(
            context.parallel_for_user, count,
            [](void *opaque, int index) {
                const DefaultFloatingPoint floating_point;
                const Closure &c = *static_cast<Closure *>(opaque);
                c.task(c.closure, index);
            },
            &callers);
    } else {
        run_on_pool(count, task, closure);
    }
}

}  // namespace halyard

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
    made->default_threads = halyard::default_num_threads(halyard::default_threads.of_environment);
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
        return check.fail(HALYARD_UNSUPPORTED, "isa is %s, which is for other processors than this library",
                          halyard_isa_name(isa));
    }
    context->max_isa = isa;
    return HALYARD_OK;
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
    if constexpr (halyard::has_cuda) {
        halyard::cuda::prepare(check, device);
    } else {
        check.fail(HALYARD_UNSUPPORTED, "this library was built without CUDA kernels, so device %d is of no use to it",
                   device);
    }
    return check.status();
}

void halyard_context_release_scratch(const halyard_context *context) {
    const halyard_context &c = halyard::context_or_default(context);
    c.scratch.release();
    if constexpr (halyard::has_cuda) {
        c.device_scratch.release();
    }
}

halyard_isa halyard_context_isa(const halyard_context *context) {
    return halyard::best_isa(halyard::context_or_default(context).max_isa);
}
