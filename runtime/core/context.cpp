// The context of a call: its defaults, and how it runs tasks.
#include "core/context.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/system/environment.h"
#include "core/system/floating_point.h"
#include "core/system/processors.h"
#include "core/system/thread_pool.h"

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

halyard_products read_products() {
    const char *const variable = "HALYARD_PRODUCTS", *const value = environment(variable);
    constexpr struct {
        const char *name;
        halyard_products products;
    } all[] = {{"storage", HALYARD_PRODUCTS_STORAGE},
               {"full", HALYARD_PRODUCTS_FULL},
               {"bf16", HALYARD_PRODUCTS_BF16},
               {"int8", HALYARD_PRODUCTS_INT8}};
    for (const auto &each : all) {
        if (value && strcmp(value, each.name) == 0) {
            return each.products;
        }
    }
    if (value) {
        say_ignored(variable, value, "storage, full, bf16 or int8");
    }
    return HALYARD_PRODUCTS_STORAGE;
}

struct DefaultProducts {
    const halyard_products of_environment = read_products();
};

HALYARD_AT_LOAD const DefaultProducts default_products_at_load;

HALYARD_AT_LOAD_LAST const halyard_context defaults;

}  // namespace

halyard_products default_products() {
    return default_products_at_load.of_environment;
}

int new_default_threads() {
    return default_num_threads(default_threads.of_environment);
}

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
