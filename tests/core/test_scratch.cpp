// The memory that linear layers and feed-forward networks take beside their operands: nothing in steady state, no more
// than documented at the peak, given back when asked. The program is linked so that what the library calls to get
// memory and threads is counted here.
#include "halyard/training.h"
#include "support/linear.h"
#include "support/test_scale.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

std::atomic<long> calls{0};  // that ask for memory or a thread

/** What was asked for and not given back, by address. malloc_usable_size would also count what alignment wastes. */
class Ledger {
public:
    void add(const void *memory, std::size_t bytes) {
        const Lock lock(*this);
        if (memory == nullptr) {
            return;
        }
        Entry *const entry = find(nullptr);
        if (entry == nullptr) {
            std::abort();
        }
        *entry = {memory, static_cast<long>(bytes)};
        live += entry->bytes;
        peak = live > peak ? live : peak;
    }

    void remove(const void *memory) {
        const Lock lock(*this);
        Entry *const entry = memory == nullptr ? nullptr : find(memory);
        if (entry != nullptr) {
            live -= entry->bytes;
            *entry = {};
        }
    }

    /** Counts from here on. */
    void reset() {
        const Lock lock(*this);
        live = peak = 0;
    }

    long live_bytes() {
        const Lock lock(*this);
        return live;
    }
    long peak_bytes() {
        const Lock lock(*this);
        return peak;
    }

private:
    struct Entry {
        const void *memory = nullptr;
        long bytes = 0;
    };
    struct Lock {
        explicit Lock(Ledger &ledger) : mutex(ledger.mutex) { pthread_mutex_lock(&mutex); }
        ~Lock() { pthread_mutex_unlock(&mutex); }
        pthread_mutex_t &mutex;
    };

    Entry *find(const void *memory) {
        for (Entry &entry : entries) {
            if (entry.memory == memory) {
                return &entry;
            }
        }
        return nullptr;
    }

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    Entry entries[1000];
    long live = 0, peak = 0;
};

Ledger ledger;

void reset() {
    calls = 0;
    ledger.reset();
}

}  // namespace

extern "C" {
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void __real_free(void *);
int __real_posix_memalign(void **, size_t, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__real_mmap(void *, size_t, int, int, int, off_t);
int __real_munmap(void *, size_t);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

void *__wrap_malloc(size_t bytes) {
    calls++;
    void *const memory = __real_malloc(bytes);
    ledger.add(memory, bytes);
    return memory;
}

void *__wrap_calloc(size_t count, size_t bytes) {
    calls++;
    void *const memory = __real_calloc(count, bytes);
    ledger.add(memory, count * bytes);
    return memory;
}

void __wrap_free(void *memory) {
    ledger.remove(memory);
    __real_free(memory);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    calls++;
    ledger.remove(memory);
    void *const moved = __real_realloc(memory, bytes);
    ledger.add(moved, bytes);
    return moved;
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    calls++;
    const int error = __real_posix_memalign(memory, alignment, bytes);
    if (error == 0) {
        ledger.add(*memory, bytes);
    }
    return error;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    calls++;
    void *const memory = __real_aligned_alloc(alignment, bytes);
    ledger.add(memory, bytes);
    return memory;
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    calls++;
    void *const memory = __real_mmap(at, bytes, protection, flags, file, offset);
    if (memory != MAP_FAILED) {
        ledger.add(memory, bytes);
    }
    return memory;
}

int __wrap_munmap(void *at, size_t bytes) {
    ledger.remove(at);
    return __real_munmap(at, bytes);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    calls++;
    return __real_pthread_create(thread, attributes, start, argument);
}
}

namespace halyard::tests {
namespace {

constexpr long megabyte = 1 << 20;

/** A network and its operands, large enough for several threads. */
struct Network {
    Network(std::int64_t rows, std::int64_t d_model, std::int64_t d_ff, bool gated, Dtype type)
        : up(form(d_model, d_ff, gated, type), small), down(form(d_ff, d_model, false, type), small),
          x(type, compact_form({rows, d_model})), y(type, compact_form({rows, d_model})),
          hidden(Dtype::f32, compact_form({rows, d_ff})), norm_weight(type, compact_form({d_model})),
          bias(Dtype::bf16, compact_form({d_ff})) {
        fill_rows(x, 3);
        norm_weight.fill([](std::int64_t, std::int64_t) { return 1.0; });
        bias.fill([](std::int64_t, std::int64_t i) { return 0.25 * static_cast<double>(i % 3); });
        options.norm = HALYARD_NORM_RMS;
        options.eps = 1e-6f;
        options.activation = HALYARD_SILU;
        options.bias = &bias.view;
        options.norm_weight = &norm_weight.view;
        options.residual = 1;
    }

    static WeightForm form(std::int64_t in, std::int64_t out, bool gated, Dtype type) {
        WeightForm form;
        form.dtype = type;
        form.in = in;
        form.out = out;
        form.gated = gated;
        return form;
    }
    static double small(int, std::int64_t k, std::int64_t n) { return static_cast<double>((k + n) % 5 - 2) / 64; }

    halyard_status run_ffn(const halyard_context *context) {
        return halyard_ffn(context, &x.view, up.get(), down.get(), &options, &y.view);
    }
    halyard_status run_linear(const halyard_context *context) {
        halyard_linear_options linear{};
        linear.bias = &bias.view;
        linear.activation = HALYARD_GELU;
        return halyard_linear(context, &x.view, up.get(), &linear, &hidden.view);
    }

    const Weights up, down;
    Tensor x, y, hidden, norm_weight, bias;
    halyard_ffn_options options{};
};

TEST(Scratch, TheCountersSeeTheLibrary) {
    reset();
    halyard_context *context = nullptr;
    ASSERT_EQ(halyard_context_create(&context), HALYARD_OK);
    const long counted = calls, bytes = ledger.live_bytes();
    halyard_context_destroy(context);
    EXPECT_GE(counted, 1);
    EXPECT_GE(bytes, 1);
    EXPECT_EQ(ledger.live_bytes(), 0);
}

TEST(Scratch, SteadyStateAllocatesNothing) {
    const std::vector<std::int64_t> some = {1, 5, 64, 300}, few = {1, 20};
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        for (const std::int64_t rows : emulated ? few : some) {
            Network network(rows, 300, 520, true, type);
            for (const int threads : {1, 2}) {
                const Context context(supported_isas().back(), threads);
                const auto call_all = [&] {
                    ASSERT_EQ(network.run_linear(context.get()), HALYARD_OK) << halyard_last_error();
                    ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
                };
                call_all();
                call_all();
                reset();
                for (int i = 0; i < (emulated ? 2 : 10); i++) {
                    call_all();
                }
                EXPECT_EQ(calls, 0) << rows << " rows on " << threads << " threads";
                EXPECT_EQ(ledger.live_bytes(), 0);
            }
        }
    }
}

TEST(Scratch, WeightsAreUpdatedWithoutAnAllocation) {
    for (const bool gated : {false, true}) {
        for (const std::int64_t out : {17, 700}) {
            Tensor matrix(Dtype::f32, compact_form({out, 300})), up(Dtype::f32, compact_form({out, 300}));
            fill_rows(matrix, 5);
            fill_rows(up, 6);
            halyard_pack_options options{};
            options.up = gated ? &up.view : nullptr;
            for (const int threads : {1, 2}) {
                const Context context(supported_isas().back(), threads);
                halyard_weights *weights = nullptr;
                ASSERT_EQ(halyard_weights_pack(context.get(), &matrix.view, &options, nullptr, 0, &weights), HALYARD_OK)
                    << halyard_last_error();
                reset();
                for (int i = 0; i < 3; i++) {
                    EXPECT_EQ(halyard_weights_update(context.get(), weights, &matrix.view, &options), HALYARD_OK)
                        << halyard_last_error();
                }
                EXPECT_EQ(calls, 0) << out << " outputs on " << threads << " threads";
                halyard_weights_destroy(weights);
            }
        }
    }
}

TEST(Scratch, OptimizersAllocateNothing) {
    Tensor parameter(Dtype::f32, compact_form({300, 520})), gradient(Dtype::f32, compact_form({300, 520})),
        first(Dtype::f32, compact_form({300, 520})), second(Dtype::f32, compact_form({300, 520}));
    for (Tensor *const tensor : {&parameter, &gradient, &first, &second}) {
        tensor->fill([](std::int64_t, std::int64_t i) { return 1 + static_cast<double>(i % 3); });
    }
    const halyard_sgd_options sgd = {0.1, 0.9, 0.01, 1, 1};
    const halyard_adamw_options adamw = {0.1, 0.9, 0.999, 1e-8, 0.01, 1, 1};
    const DLTensor *const gradients[] = {&gradient.view, &parameter.view};
    for (const int threads : {1, 2}) {
        const Context context(supported_isas().back(), threads);
        const auto call_all = [&] {
            double norm = 0;
            ASSERT_EQ(halyard_gradient_norm(context.get(), gradients, 2, &norm), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(halyard_sgd_step(context.get(), &parameter.view, &gradient.view, &first.view, &sgd), HALYARD_OK)
                << halyard_last_error();
            ASSERT_EQ(halyard_adamw_step(context.get(), &parameter.view, &gradient.view, &first.view, &second.view, 1,
                                         &adamw),
                      HALYARD_OK)
                << halyard_last_error();
        };
        call_all();
        reset();
        call_all();
        EXPECT_EQ(calls, 0) << threads << " threads";
    }
}

TEST(Scratch, SmallerCallsUseWhatTheLargestLeft) {
    Network large(emulated ? 70 : 300, 300, 520, true, Dtype::f32), small(7, 130, 260, true, Dtype::bf16);
    const Context context(supported_isas().back(), 2);
    ASSERT_EQ(large.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
    reset();
    ASSERT_EQ(small.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(small.run_linear(context.get()), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(large.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(calls, 0);
}

TEST(Scratch, IsGivenBack) {
    Network network(40, 300, 520, true, Dtype::f32);
    const Context context(supported_isas().back(), 2);
    ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();  // Starts the threads.
    halyard_context_release_scratch(context.get());
    reset();
    ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_GT(ledger.live_bytes(), 0);
    halyard_context_release_scratch(context.get());
    EXPECT_EQ(ledger.live_bytes(), 0);
    halyard_context_release_scratch(context.get());
    EXPECT_EQ(ledger.live_bytes(), 0);
    // The default context's, too; and it works afterwards.
    halyard_context_release_scratch(nullptr);
    reset();
    ASSERT_EQ(network.run_ffn(nullptr), HALYARD_OK) << halyard_last_error();
    EXPECT_GT(ledger.live_bytes(), 0);
    halyard_context_release_scratch(nullptr);
    EXPECT_EQ(ledger.live_bytes(), 0);
    ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
    // With the context everything goes.
    halyard_context *own = nullptr;
    reset();
    ASSERT_EQ(halyard_context_create(&own), HALYARD_OK);
    ASSERT_EQ(network.run_ffn(own), HALYARD_OK) << halyard_last_error();
    halyard_context_destroy(own);
    EXPECT_EQ(ledger.live_bytes(), 0);
}

/** Stops a call where its tasks would run, until it is let go. */
struct Stop {
    std::atomic<bool> reached{false}, released{false};

    static void run(void *user, int count, void (*task)(void *closure, int index), void *closure) {
        Stop &self = *static_cast<Stop *>(user);
        self.reached = true;
        while (!self.released) {
            std::this_thread::yield();
        }
        for (int i = 0; i < count; i++) {
            task(closure, i);
        }
    }
};

TEST(Scratch, OfCallsThatAForkCutOffIsUsedAgain) {
    Network network(40, 300, 520, true, Dtype::f32), other(40, 300, 520, true, Dtype::f32);
    const Context context(supported_isas().back(), 2);
    Stop stop;
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), Stop::run, &stop), HALYARD_OK);
    std::thread caller([&] { EXPECT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error(); });
    while (!stop.reached) {
        std::this_thread::yield();
    }
    const pid_t child = fork();
    if (child == 0) {
        const bool own = halyard_context_set_parallel_for(context.get(), nullptr, nullptr) == HALYARD_OK &&
                         halyard_context_set_num_threads(context.get(), 1) == HALYARD_OK;
        reset();
        const bool done = other.run_ffn(context.get()) == HALYARD_OK;
        _exit(own && done && calls == 0 ? 0 : 1);
    }
    stop.released = true;
    caller.join();
    ASSERT_GT(child, 0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

/** Bytes of this process in memory. */
long resident() {
    long pages = 0;
    std::FILE *const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%*d %ld", &pages) != 1) {
        ADD_FAILURE() << "/proc/self/statm cannot be read";
    }
    std::fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

TEST(Scratch, OfAFfnIsBounded) {
    struct Size {
        std::int64_t rows, d_model, d_ff;
    };
    const std::vector<Size> sizes = {{512, 1024, 4096}, {300, 64, 8192}, {8, 512, 2048}, {512, 40, 50}};
    const std::vector<Size> few = {{512, 40, 530}, {8, 512, 1024}, {512, 40, 50}};
    for (const Size &size : emulated ? few : sizes) {
        for (const int threads : {1, 2}) {
            Network network(size.rows, size.d_model, size.d_ff, false, Dtype::bf16);
            const Context context(supported_isas().back(), threads);
            ASSERT_EQ(network.run_linear(context.get()), HALYARD_OK) << halyard_last_error();  // Starts the threads.
            ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
            halyard_context_release_scratch(context.get());
            reset();
            const long before = resident();
            ASSERT_EQ(network.run_ffn(context.get()), HALYARD_OK) << halyard_last_error();
            const std::string what = std::to_string(size.rows) + " rows, " + std::to_string(size.d_model) + " to " +
                                     std::to_string(size.d_ff) + " on " + std::to_string(threads) + " threads";
            // As the header says.
            const auto whole_blocks = [](std::int64_t inputs) { return (inputs + 511) / 512; };
            const std::int64_t rows = std::min<std::int64_t>(size.rows, 256) + 8;
            const std::int64_t between = 2112 * rows * (whole_blocks(size.d_model) + whole_blocks(size.d_ff));
            EXPECT_LE(ledger.peak_bytes(), between + 4 * size.d_ff + threads * (megabyte + 8 * size.d_model)) << what;
#ifndef HALYARD_TESTS_REDUCED
            // And never more than 512 rows of the hidden width and 4 MB, also counted in pages.
            EXPECT_LE(resident() - before, 4 * 512 * size.d_ff + 4 * megabyte) << what;
#else
            static_cast<void>(before);
#endif
        }
    }
}

}  // namespace
}  // namespace halyard::tests
