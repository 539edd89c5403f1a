// Contexts, statuses and messages, instruction sets, and calls from many threads at once.
#include "operations/isas.h"
#include "support/invocation.h"
#include "support/threads.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <thread>

namespace halyard::tests {
namespace {

// ---- Queries -----------------------------------------------------------------------------------------------------

TEST(Queries, NamesOfStatuses) {
    EXPECT_STREQ(halyard_status_name(HALYARD_OK), "ok");
    EXPECT_STREQ(halyard_status_name(HALYARD_INVALID_ARGUMENT), "invalid argument");
    EXPECT_STREQ(halyard_status_name(HALYARD_UNSUPPORTED), "unsupported");
    EXPECT_STREQ(halyard_status_name(HALYARD_OUT_OF_MEMORY), "out of memory");
}

TEST(Queries, VersionIsThatOfTheProject) {
    EXPECT_STREQ(halyard_version(), HALYARD_TEST_VERSION);
    EXPECT_EQ(std::to_string(HALYARD_VERSION_MAJOR) + "." + std::to_string(HALYARD_VERSION_MINOR) + "." +
                  std::to_string(HALYARD_VERSION_PATCH),
              HALYARD_TEST_VERSION);
}

TEST(Queries, InstructionSets) {
    // The values are promised to stay.
    const std::map<int, const char *> names = {
        {10, "sse41"}, {20, "avx2"},       {30, "avx512"},     {40, "avx512_bf16"}, {50, "amx"},
        {110, "neon"}, {120, "neon_fp16"}, {130, "neon_bf16"}, {140, "neon_bfdot"}, {150, "neon_bfmmla"}};
    ASSERT_EQ(halyard_isa_count(), static_cast<int>(names.size()));
    int index = 0;
    for (const auto &[value, name] : names) {
        EXPECT_EQ(halyard_isa_at(index++), value);
        EXPECT_STREQ(halyard_isa_name(static_cast<halyard_isa>(value)), name);
    }
    for (const int none : {-1, index, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
        EXPECT_EQ(halyard_isa_at(none), -1);
    }
    for (int value = -2; value < 200; value++) {
        const auto isa = static_cast<halyard_isa>(value);
        if (names.count(value) == 0) {
            EXPECT_EQ(halyard_isa_name(isa), nullptr);
            EXPECT_EQ(halyard_isa_supported(isa), 0);
        }
        EXPECT_LE(halyard_isa_preferred(isa), halyard_isa_supported(isa));
    }
    EXPECT_EQ(halyard_isa_supported(weakest_isa), 1);
    EXPECT_EQ(halyard_isa_preferred(weakest_isa), 1);
    // What the compiler or the kernel says of this machine.
#if defined(__x86_64__)
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AVX2),
              __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0);
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AVX512),
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") ? 1 : 0);
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AVX512_BF16), __builtin_cpu_supports("avx512bf16") ? 1 : 0);
    EXPECT_EQ(halyard_isa_preferred(HALYARD_ISA_AVX512_BF16),
              __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel") ? 1 : 0);
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_NEON), 0);
#else
    std::ifstream file("/proc/cpuinfo");
    const std::string cpuinfo(std::istreambuf_iterator<char>(file), {});
    if (cpuinfo.find("Features") != std::string::npos) {
        EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_NEON_FP16), cpuinfo.find(" asimdhp") != std::string::npos ? 1 : 0);
        EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_NEON_BF16), cpuinfo.find(" bf16") != std::string::npos ? 1 : 0);
    }
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AVX2), 0);
#endif
}

// ---- Before main ---------------------------------------------------------------------------------------------------

/** Calls by the constructor of a global object, which runs before those of a library that comes later. */
struct BeforeMain {
    static constexpr std::int64_t d = 512;

    std::vector<float> x = std::vector<float>(d * d, 1.0f), y = std::vector<float>(d * d), z = y;
    halyard_status softmax, pack, linear;
    halyard_isa isa;
    int num_threads;

    BeforeMain() {
        std::int64_t shape[] = {d, d};
        const auto view = [&](std::vector<float> &values) {
            return DLTensor{values.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
        };
        DLTensor xs = view(x), ys = view(y), zs = view(z);
        halyard_weights *weights = nullptr;
        softmax = halyard_softmax(nullptr, &xs, 1.0f, &ys);
        pack = halyard_weights_pack(nullptr, &xs, nullptr, nullptr, 0, &weights);
        linear = weights != nullptr ? halyard_linear(nullptr, &xs, weights, nullptr, &zs) : pack;
        halyard_weights_destroy(weights);
        isa = halyard_context_isa(nullptr);
        num_threads = halyard_context_num_threads(nullptr);
    }
};

const BeforeMain before_main;

TEST(BeforeMain, TheLibraryIsReady) {
    EXPECT_EQ(before_main.softmax, HALYARD_OK);
    EXPECT_EQ(before_main.pack, HALYARD_OK);
    EXPECT_EQ(before_main.linear, HALYARD_OK);
    EXPECT_TRUE(before_main.y == std::vector<float>(before_main.y.size(), 1.0f / BeforeMain::d));
    EXPECT_TRUE(before_main.z == std::vector<float>(before_main.z.size(), BeforeMain::d));
    EXPECT_EQ(before_main.isa, halyard_context_isa(nullptr));
    EXPECT_EQ(before_main.num_threads, halyard_context_num_threads(nullptr));
}

// ---- Contexts ----------------------------------------------------------------------------------------------------

TEST(Contexts, CapTheInstructionSet) {
    if (std::getenv("HALYARD_MAX_ISA") != nullptr) {
        GTEST_SKIP() << "HALYARD_MAX_ISA caps every context";
    }
    const Context context;
    halyard_isa preferred = weakest_isa;
    for (const halyard_isa cap : built_isas) {
        ASSERT_EQ(halyard_context_set_max_isa(context.get(), cap), HALYARD_OK);
        preferred = halyard_isa_preferred(cap) != 0 ? cap : preferred;
        EXPECT_EQ(halyard_context_isa(context.get()), halyard_isa_supported(cap) != 0 ? cap : preferred);
    }
    EXPECT_EQ(halyard_context_isa(Context().get()), preferred);
    EXPECT_EQ(halyard_context_isa(nullptr), preferred);
}

TEST(Contexts, RefuseTheInstructionSetsOfOtherProcessors) {
    const Context context;
    for (int i = 0; i < halyard_isa_count(); i++) {
        const halyard_isa foreign = halyard_isa_at(i);
        if (std::count(std::begin(built_isas), std::end(built_isas), foreign) != 0) {
            continue;
        }
        EXPECT_EQ(halyard_isa_supported(foreign), 0);
        EXPECT_EQ(halyard_context_set_max_isa(context.get(), foreign), HALYARD_UNSUPPORTED);
        EXPECT_NE(std::string(halyard_last_error()).find(halyard_isa_name(foreign)), std::string::npos);
    }
    EXPECT_EQ(halyard_context_isa(context.get()), halyard_context_isa(nullptr));
}

TEST(Contexts, UseTheInstructionSetTheySay) {
    // SSE4.1 has no fused multiply-add, so some result in many differs from AVX2's. Those of other processors all have.
    if (halyard_isa_supported(HALYARD_ISA_AVX2) == 0 || halyard_context_isa(nullptr) < HALYARD_ISA_AVX2) {
        GTEST_SKIP() << "this machine has one instruction set, or HALYARD_MAX_ISA allows one";
    }
    const auto bits_with = [](halyard_isa isa) {
        Invocation call(operation("gelu"), Dtype::f32, {4096});
        call.fill(73);
        EXPECT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
        return call.output_bits();
    };
    EXPECT_NE(bits_with(HALYARD_ISA_SSE41), bits_with(HALYARD_ISA_AVX2));
}

TEST(Contexts, BoundTheThreads) {
    const Context context;
    const int by_default = halyard_context_num_threads(context.get());
    EXPECT_GE(by_default, 1);
    EXPECT_LE(by_default, 256);
    EXPECT_EQ(halyard_context_num_threads(nullptr), by_default);
    for (const int threads : {1, 2, 7, 256}) {
        ASSERT_EQ(halyard_context_set_num_threads(context.get(), threads), HALYARD_OK);
        EXPECT_EQ(halyard_context_num_threads(context.get()), threads);
    }
    EXPECT_EQ(halyard_context_num_threads(nullptr), by_default);
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 0), HALYARD_OK);
    EXPECT_EQ(halyard_context_num_threads(context.get()), by_default);
}

TEST(Contexts, TakeTheProcessorsOfTheThreadThatMakesThem) {
    if (std::getenv("HALYARD_NUM_THREADS") != nullptr) {
        GTEST_SKIP() << "HALYARD_NUM_THREADS says how many threads there are";
    }
    const Context before;
    const int by_default = halyard_context_num_threads(nullptr);
    std::thread([&] {
        const int processor = sched_getcpu();
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        const Context narrow;
        EXPECT_EQ(halyard_context_num_threads(narrow.get()), 1);
        ASSERT_EQ(halyard_context_set_num_threads(narrow.get(), 2), HALYARD_OK);
        ASSERT_EQ(halyard_context_set_num_threads(narrow.get(), 0), HALYARD_OK);
        EXPECT_EQ(halyard_context_num_threads(narrow.get()), 1);
        EXPECT_EQ(halyard_context_num_threads(before.get()), by_default);
        EXPECT_EQ(halyard_context_num_threads(nullptr), by_default);
    }).join();
    EXPECT_EQ(halyard_context_num_threads(Context().get()), by_default);
}

TEST(Contexts, SayWhatProductsAreOf) {
    const Context context;
    const halyard_products by_default = halyard_context_products(nullptr);
    EXPECT_EQ(halyard_context_products(context.get()), by_default);
    EXPECT_EQ(by_default, std::getenv("HALYARD_PRODUCTS") == nullptr ? HALYARD_PRODUCTS_STORAGE : by_default);
    for (const halyard_products products :
         {HALYARD_PRODUCTS_FULL, HALYARD_PRODUCTS_BF16, HALYARD_PRODUCTS_INT8, HALYARD_PRODUCTS_STORAGE}) {
        ASSERT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
        EXPECT_EQ(halyard_context_products(context.get()), products);
    }
    EXPECT_EQ(halyard_context_products(nullptr), by_default);
}

TEST(Contexts, RefuseBadArguments) {
    const auto expect_message = [](halyard_status status, const char *function, const char *argument) {
        EXPECT_EQ(status, HALYARD_INVALID_ARGUMENT);
        const std::string message = halyard_last_error();
        EXPECT_EQ(message.find(std::string(function) + ": " + argument), 0u) << message;
    };
    const auto nothing = [](void *, int, void (*)(void *, int), void *) {};
    expect_message(halyard_context_create(nullptr), "halyard_context_create", "context");
    expect_message(halyard_context_set_num_threads(nullptr, 1), "halyard_context_set_num_threads", "context");
    expect_message(halyard_context_set_max_isa(nullptr, weakest_isa), "halyard_context_set_max_isa", "context");
    expect_message(halyard_context_set_parallel_for(nullptr, nothing, nullptr), "halyard_context_set_parallel_for",
                   "context");

    expect_message(halyard_context_set_products(nullptr, HALYARD_PRODUCTS_FULL), "halyard_context_set_products",
                   "context");

    const Context context;
    for (const int products : {-1, 4, std::numeric_limits<int>::max()}) {
        expect_message(halyard_context_set_products(context.get(), static_cast<halyard_products>(products)),
                       "halyard_context_set_products", "products");
    }
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 3), HALYARD_OK);
    for (const int threads : {-1, 257, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
        expect_message(halyard_context_set_num_threads(context.get(), threads), "halyard_context_set_num_threads",
                       "num_threads");
    }
    EXPECT_EQ(halyard_context_num_threads(context.get()), 3);
    const halyard_isa before = halyard_context_isa(context.get());
    expect_message(halyard_context_set_max_isa(context.get(), static_cast<halyard_isa>(7)),
                   "halyard_context_set_max_isa", "isa");
    EXPECT_EQ(halyard_context_isa(context.get()), before);
    halyard_context_destroy(nullptr);
}

/** Counts what the library asks of a caller's parallel-for, and runs it here. */
struct Counter {
    int calls = 0, tasks = 0;

    static void run(void *user, int count, void (*task)(void *closure, int index), void *closure) {
        auto &self = *static_cast<Counter *>(user);
        self.calls++;
        self.tasks += count;
        for (int i = 0; i < count; i++) {
            task(closure, i);
        }
    }
};

TEST(Contexts, CallTheCallersParallelFor) {
    const Context context;
    Counter counter;
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), Counter::run, &counter), HALYARD_OK);
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 3), HALYARD_OK);
    for (const char *label : {"rms_norm", "silu", "add_layer_norm", "swiglu.interleaved"}) {
        counter = {};
        Invocation large(operation(label), Dtype::f32, {301, 1024});
        large.fill(79);
        ASSERT_EQ(large.run(context.get()), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(counter.calls, 1) << label;
        EXPECT_EQ(counter.tasks, 3) << label;
        EXPECT_TRUE(large.check(large.expected()));
    }
    // Back to the library's own threads.
    counter = {};
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), nullptr, nullptr), HALYARD_OK);
    Invocation again(operation("silu"), Dtype::f32, {301, 1024});
    again.fill(79);
    ASSERT_EQ(again.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(counter.calls, 0);
    EXPECT_TRUE(again.check(again.expected()));
}

TEST(Contexts, KeepSmallCallsAndOneThreadOnTheCaller) {
    const Context context;
    Counter counter;
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), Counter::run, &counter), HALYARD_OK);
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 4), HALYARD_OK);
    Invocation small(operation("rms_norm"), Dtype::f32, {2, 64});
    small.fill(83);
    ASSERT_EQ(small.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_LE(counter.tasks, 1);
    counter = {};
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 1), HALYARD_OK);
    Invocation large(operation("rms_norm"), Dtype::f32, {301, 1024});
    large.fill(83);
    ASSERT_EQ(large.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_LE(counter.tasks, 1);
}

// ---- Messages ----------------------------------------------------------------------------------------------------

TEST(Messages, BelongToTheThread) {
    EXPECT_EQ(halyard_relu(nullptr, nullptr, nullptr), HALYARD_INVALID_ARGUMENT);
    const std::string own = halyard_last_error();
    EXPECT_NE(own.find("halyard_relu"), std::string::npos) << own;
    std::thread([] {
        EXPECT_STREQ(halyard_last_error(), "");
        EXPECT_EQ(halyard_softmax(nullptr, nullptr, 1, nullptr), HALYARD_INVALID_ARGUMENT);
        EXPECT_NE(std::strstr(halyard_last_error(), "halyard_softmax"), nullptr);
    }).join();
    EXPECT_EQ(halyard_last_error(), own);
}

TEST(Messages, OutliveSuccessfulCalls) {
    EXPECT_EQ(halyard_tanh(nullptr, nullptr, nullptr), HALYARD_INVALID_ARGUMENT);
    const std::string message = halyard_last_error();
    Invocation call(operation("relu"), Dtype::f32, {4});
    call.fill(1);
    ASSERT_EQ(call.run(nullptr), HALYARD_OK);
    EXPECT_EQ(halyard_last_error(), message);
}

// ---- Many threads ------------------------------------------------------------------------------------------------

#ifdef HALYARD_TESTS_REDUCED
constexpr int rounds = 3;
#else
constexpr int rounds = 20;
#endif

enum class Sharing { null_context, one_context, own_contexts };

class ManyThreads : public testing::TestWithParam<Sharing> {};

TEST_P(ManyThreads, GetTheResultsThatOneGets) {
    const char *const labels[] = {"rms_norm", "gelu", "swiglu", "softmax", "add_layer_norm", "cast_to_bf16"};
    // From calls that stay on their thread to calls that want several.
    const Shape shapes[] = {{64}, {3, 1000}, {64, 2048}};
    const Context shared;
    ASSERT_EQ(halyard_context_set_num_threads(shared.get(), 3), HALYARD_OK);

    const Context serial(supported_isas().back(), 1);

    std::atomic<int> wrong{0};
    const auto work = [&](int thread) {
        const Context own;
        if (halyard_context_set_num_threads(own.get(), 1 + thread % 3) != HALYARD_OK) {
            wrong++;
        }
        const halyard_context *const context = GetParam() == Sharing::null_context  ? nullptr
                                               : GetParam() == Sharing::one_context ? shared.get()
                                                                                    : own.get();
        for (const char *label : labels) {
            for (const Shape &shape : shapes) {
                Invocation call(operation(label), Dtype::f32, shape);
                call.fill(static_cast<std::uint64_t>(thread + 1));
                if (call.run(serial.get()) != HALYARD_OK) {
                    wrong++;
                    continue;
                }
                const std::vector<std::uint32_t> expected = call.output_bits();
                for (int round = 0; round < rounds; round++) {
                    call.tensors.back()->fill([](std::int64_t, std::int64_t) { return 1234.0; });
                    if (call.run(context) != HALYARD_OK || call.output_bits() != expected) {
                        wrong++;
                    }
                    Tensor &y = *call.tensors.back();
                    // Failures in between, each with its own message.
                    if (halyard_glu(context, &y.view, nullptr, &y.view) != HALYARD_INVALID_ARGUMENT ||
                        std::strstr(halyard_last_error(), "halyard_glu: up") == nullptr) {
                        wrong++;
                    }
                }
            }
        }
    };
    run_at_once(6, work);
    EXPECT_EQ(wrong, 0);
}

std::string name_of_sharing(const testing::TestParamInfo<Sharing> &info) {
    static const char *const names[] = {"NullContext", "OneContext", "OwnContexts"};
    return names[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Sharing, ManyThreads,
                         testing::Values(Sharing::null_context, Sharing::one_context, Sharing::own_contexts),
                         name_of_sharing);

/** Calls back into the library from inside a task. */
struct Nested {
    static void run(void *user, int count, void (*task)(void *closure, int index), void *closure) {
        for (int i = 0; i < count; i++) {
            Invocation inner(operation("silu"), Dtype::f32, {64, 2048});
            inner.fill(5);
            if (inner.run(nullptr) == HALYARD_OK && inner.check(inner.expected())) {
                (*static_cast<int *>(user))++;
            }
            task(closure, i);
        }
    }
};

TEST(Threads, MayCallFromInsideAParallelFor) {
    const Context context;
    int inner_calls = 0;
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), Nested::run, &inner_calls), HALYARD_OK);
    ASSERT_EQ(halyard_context_set_num_threads(context.get(), 2), HALYARD_OK);
    Invocation outer(operation("gelu"), Dtype::f32, {64, 2048});
    outer.fill(6);
    ASSERT_EQ(outer.run(context.get()), HALYARD_OK);
    EXPECT_TRUE(outer.check(outer.expected()));
    EXPECT_EQ(inner_calls, 2);
}

TEST(Threads, ComeAndGo) {
    // The library's threads serve callers that end.
    for (int i = 0; i < 20; i++) {
        std::thread([i] {
            const Context context;
            EXPECT_EQ(halyard_context_set_num_threads(context.get(), 1 + i % 5), HALYARD_OK);
            Invocation call(operation("relu"), Dtype::f32, {128, 1024});
            call.fill(static_cast<std::uint64_t>(i));
            EXPECT_EQ(call.run(context.get()), HALYARD_OK);
            EXPECT_TRUE(call.check(call.expected()));
        }).join();
    }
}

TEST(Threads, HaveTheStackThatTasksNeed) {
    // More threads than any call before has asked for.
    pthread_attr_t before, small;
    ASSERT_EQ(pthread_getattr_default_np(&before), 0);
    ASSERT_EQ(pthread_getattr_default_np(&small), 0);
    const long least = sysconf(_SC_THREAD_STACK_MIN);  // 128 KiB on 64-bit ARM
    ASSERT_EQ(pthread_attr_setstacksize(&small, static_cast<std::size_t>(std::max(least, 64L << 10))), 0);
    ASSERT_EQ(pthread_setattr_default_np(&small), 0);
    Invocation call(operation("softmax"), Dtype::f32, {1024, 2048});
    call.fill(7);
    EXPECT_EQ(call.run(Context(supported_isas().back(), 24).get()), HALYARD_OK);
    EXPECT_TRUE(call.check(call.expected()));
    EXPECT_EQ(pthread_setattr_default_np(&before), 0);
    pthread_attr_destroy(&small);
    pthread_attr_destroy(&before);
}

// ---- The caller's floating-point environment -----------------------------------------------------------------------

struct Environment {
    const char *name;
    void (*enter)();
};

const Environment environments[] = {
    {"rounding upward", [] { std::fesetround(FE_UPWARD); }},
#if defined(__x86_64__)
    {"flushing denormals", [] { __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); }},
    {"trapping all but inexact results", [] { __builtin_ia32_ldmxcsr(0x1000); }},
#elif defined(__aarch64__)
    {"flushing denormals", [] { asm volatile("msr fpcr, %0"
                                             :
                                             : "r"(std::uint64_t{1} << 24)); }},
#endif
};

/** Runs a call in an environment and comes back to the default one. */
halyard_status run_in(const Environment &environment, const Invocation &call, const halyard_context *context) {
    std::fenv_t before, within, after;
    std::fegetenv(&before);
    environment.enter();
    std::fegetenv(&within);
    const halyard_status status = call.run(context);
    std::fegetenv(&after);
    std::fesetenv(&before);
#if defined(__x86_64__)
    EXPECT_EQ(after.__mxcsr & 0xffc0, within.__mxcsr & 0xffc0) << environment.name;
#elif defined(__aarch64__)
    EXPECT_EQ(after.__fpcr, within.__fpcr) << environment.name;
#endif
    return status;
}

TEST(FloatingPoint, OfTheCallerChangesNoBit) {
    Counter here;
    ReverseThreads elsewhere;
    const Context by_itself, with_workers, with_caller, with_threads;
    ASSERT_EQ(halyard_context_set_num_threads(by_itself.get(), 1), HALYARD_OK);
    ASSERT_EQ(halyard_context_set_parallel_for(with_caller.get(), Counter::run, &here), HALYARD_OK);
    ASSERT_EQ(halyard_context_set_parallel_for(with_threads.get(), ReverseThreads::run, &elsewhere), HALYARD_OK);
    int threads = 32;  // more than any call before has asked for
    for (const Environment &environment : environments) {
        for (const char *label : {"softmax", "rms_norm", "add_layer_norm", "tanh", "add", "swiglu"}) {
            Invocation call(operation(label), Dtype::f32, {3 * threads, 1024});
            call.fill(11);
            call.tensors.front()->fill([](std::int64_t row, std::int64_t i) {
                const double value = 4 * bell(12, row, i);
                return i % 5 == 0 ? std::ldexp(value, -133) : value;  // denormal
            });
            ASSERT_EQ(call.run(by_itself.get()), HALYARD_OK);
            const std::vector<std::uint32_t> expected = call.output_bits();
            for (const Context *context : {&by_itself, &with_workers, &with_caller, &with_threads}) {
                if (context != &by_itself) {
                    ASSERT_EQ(halyard_context_set_num_threads(context->get(), threads), HALYARD_OK);
                }
                call.clear_outputs();
                EXPECT_EQ(run_in(environment, call, context->get()), HALYARD_OK);
                EXPECT_TRUE(call.output_bits() == expected) << label << ", " << environment.name;
            }
            // By workers that were started in that environment, if they are.
            call.clear_outputs();
            EXPECT_EQ(call.run(with_workers.get()), HALYARD_OK);
            EXPECT_TRUE(call.output_bits() == expected) << label << " after " << environment.name;
        }
        threads += 4;
    }
}

}  // namespace
}  // namespace halyard::tests
