// Products of bf16 on AMX: bit by bit those of the instruction's model, for every number of rows; within the bound of their
// order; and no tile is left in use when a call returns.
#include "support/amx_model.h"
#include "support/linear.h"
#include "support/threads.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace halyard::tests {
namespace {

class Amx : public testing::Test {
protected:
    void SetUp() override {
        if (halyard_isa_supported(HALYARD_ISA_AMX) == 0) {
            GTEST_SKIP() << "this machine or this library has no AMX";
        }
    }
};

/** Kinds of values, each with rounding or range of its own to go wrong. */
enum Kind { ordinary, cancelling, all_exponents, tiny, huge, kinds };

/** bf16. Finite, so that all NaN of a result come of infinite sums. */
double value_of(int kind, std::uint64_t seed, std::int64_t row, std::int64_t i) {
    const std::uint64_t random = hash(seed, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
    const auto sign_and_fraction = static_cast<std::uint32_t>(random & 0x807f);
    const auto exponents = [&](unsigned first, unsigned count) {
        return decode(Dtype::bf16, sign_and_fraction | (first + static_cast<unsigned>(random >> 32) % count) << 7);
    };
    switch (kind) {
    case cancelling:
        return std::copysign(random >> 32 & 7 ? 1.0 : 0x1p12, random & 1 ? 1 : -1);
    case all_exponents:
        return exponents(0, 255);
    case tiny:  // products about the least normal number
        return exponents(random >> 60 ? 62 : 0, 4);
    case huge:  // sums about the largest
        return exponents(189, 3);
    default:
        return exponents(121, 8);
    }
}

/** A call with bf16 operands of one kind. */
struct KindCall {
    KindCall(int kind, std::int64_t rows, std::int64_t in, std::int64_t out)
        : weights(weight_form(Dtype::bf16, in, out),
                  [=](int, std::int64_t k, std::int64_t n) { return value_of(kind, 211, k, n); }),
          call(weights, call_form(Dtype::bf16, Dtype::f32, {rows})) {
        call.x.fill([=](std::int64_t row, std::int64_t k) { return value_of(kind, 223, row, k); });
    }

    std::unique_ptr<Tensor> model() const {
        auto result = std::make_unique<Tensor>(Dtype::f32, compact_form(call.y.shape()));
        const WeightMatrix &w = weights.values.matrix;
        for (std::int64_t n = 0; n < w.out; n++) {
            for (std::int64_t row = 0; row < call.x.rows(); row++) {
                const float sum = amx_sum(
                    w.in, [&](std::int64_t k) { return static_cast<float>(call.x.get(row, k)); },
                    [&](std::int64_t k) {
                        return static_cast<float>(w.values[static_cast<std::size_t>(k * w.out + n)]);
                    });
                result->set(row, n, static_cast<double>(sum + 0.0f));  // the epilogue makes +0 of -0
            }
        }
        return result;
    }

    const Weights weights;
    LinearCall call;
};

TEST_F(Amx, ResultsAreThoseOfTheModel) {
    struct Size {
        std::int64_t rows, in, out;
    };
    std::vector<Size> sizes = {{1, 1, 1},      {2, 2, 17},    {1, 3, 70},    {16, 32, 64},  {5, 33, 100},
                               {17, 31, 33},   {31, 64, 16},  {32, 63, 65},  {33, 65, 40},  {48, 511, 32},
                               {49, 512, 20},  {3, 513, 90},  {65, 545, 50}, {1, 1030, 80}, {127, 96, 48},
                               {130, 600, 17}, {257, 70, 65}, {300, 33, 130}};
    // Weights that the second-level caches do not hold, which a single tile of rows reads without k blocks.
    sizes.push_back({3, 1570, 2500});
    for (std::int64_t in = 1; in <= 35; in++) {
        sizes.push_back({1 + in * 7 % 35, in, 1 + in * 11 % 70});
    }
    for (const Size &size : sizes) {
        for (int kind = 0; kind < kinds; kind++) {
            KindCall test(kind, size.rows, size.in, size.out);
            const std::unique_ptr<Tensor> model = test.model();
            for (const int threads : {1, 2, 3}) {
                test.call.y.clear();
                ASSERT_EQ(test.call.run(Context(HALYARD_ISA_AMX, threads).get()), HALYARD_OK) << halyard_last_error();
                ASSERT_TRUE(same_rows(*model, test.call.y))
                    << "kind " << kind << ", " << threads << " threads; " << test.call.describe();
                ASSERT_TRUE(test.call.surroundings_intact());
            }
        }
    }
}

TEST_F(Amx, DenormalResultsAreZero) {
    // 2^-126 - d 2^-150: between the two last places before 2^-126, were there such.
    struct Case {
        double d, result;
    };
    for (const Case &c : {Case{0.5, 0x1p-126}, Case{0.75, 0}, Case{1, 0}, Case{1.5, 0}, Case{-1, 0x1p-126}}) {
        const Weights weights(weight_form(Dtype::bf16, 3, 1), [](int, std::int64_t k, std::int64_t) {
            return k == 0 ? 0x1p-63 : k == 2 ? -0x1p-75 : 1;
        });
        LinearCall call(weights, call_form(Dtype::bf16, Dtype::f32, {1}));
        call.x.fill([&](std::int64_t, std::int64_t k) { return k == 0 ? 0x1p-63 : k == 2 ? c.d * 0x1p-75 : 0; });
        ASSERT_EQ(call.run(Context(HALYARD_ISA_AMX).get()), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.y.get(0, 0), c.result) << c.d;
    }
}

TEST_F(Amx, ErrorsAreWithinTheBoundOfTheOrder) {
    // A product takes part in at most 15 rounded additions to its chain, in that of the two chains, and in one for each
    // tile of inputs behind its own.
    for (const std::int64_t in : {40, 1000, 11008, 100003}) {
        constexpr std::int64_t rows = 3, out = 5;
        const Weights weights(weight_form(Dtype::bf16, in, out, false, 227));
        LinearCall call(weights, call_form(Dtype::bf16, Dtype::f32, {rows}), 229);
        ASSERT_EQ(call.run(Context(HALYARD_ISA_AMX).get()), HALYARD_OK) << halyard_last_error();
        const double roundings = 16 + static_cast<double>((in + 31) / 32 - 1), u = 0x1p-24;
        const double gamma = roundings * u / (1 - roundings * u);
        for (std::int64_t row = 0; row < rows; row++) {
            for (std::int64_t n = 0; n < out; n++) {
                double exact = 0, magnitudes = 0;
                for (std::int64_t k = 0; k < in; k++) {
                    const double product =
                        call.x.get(row, k) * weights.values.matrix.values[static_cast<std::size_t>(k * out + n)];
                    exact += product;
                    magnitudes += std::fabs(product);
                }
                EXPECT_LE(std::fabs(call.y.get(row, n) - exact), gamma * magnitudes) << call.describe();
            }
        }
    }
}

#if defined(__x86_64__)

/** Which of the tiles' states the processor would have to save for this thread. */
std::uint32_t tiles_in_use() {
    std::uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low & (3u << 17);
}

TEST_F(Amx, LeavesNoTilesInUse) {
    alignas(64) static const unsigned char configuration[64] = {1};
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
    EXPECT_NE(tiles_in_use(), 0u) << "which this test would see";
    __asm__ volatile("tilerelease");
    EXPECT_EQ(tiles_in_use(), 0u);

    KindCall test(ordinary, 70, 700, 900);
    ASSERT_EQ(test.call.run(Context(HALYARD_ISA_AMX).get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(tiles_in_use(), 0u) << "on the calling thread";

    struct Watch {
        std::atomic<int> tasks{0}, left{0};
    } watch;
    const Context context(HALYARD_ISA_AMX, 3);
    const auto parallel_for = [](void *user, int count, void (*task)(void *closure, int index), void *closure) {
        run_at_once(count, [=](int index) {
            task(closure, index);
            static_cast<Watch *>(user)->tasks++;
            static_cast<Watch *>(user)->left += tiles_in_use() != 0;
        });
    };
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), parallel_for, &watch), HALYARD_OK);
    ASSERT_EQ(test.call.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_GT(watch.tasks, 1);
    EXPECT_EQ(watch.left, 0);
}

/** Makes the system refuse tiles to programs that this process becomes. False if it cannot. */
bool forbid_tiles() {
    constexpr std::uint32_t request_permission = 0x1023;
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, request_permission, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(Amx, IsNotSupportedWithoutPermission) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (!forbid_tiles()) {
            _exit(77);
        }
        setenv("HALYARD_TESTS_WITHOUT_TILES", "1", 1);
        execl("/proc/self/exe", "test_amx", "--gtest_brief=1", "--gtest_filter=WithoutTiles.*", nullptr);
        _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        GTEST_SKIP() << "this system has no filters of system calls";
    }
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif

/** In the child of IsNotSupportedWithoutPermission. */
TEST(WithoutTiles, CallsTakeAnotherInstructionSet) {
    if (std::getenv("HALYARD_TESTS_WITHOUT_TILES") == nullptr) {
        GTEST_SKIP() << "runs where the system refuses tiles";
    }
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AMX), 0);
    const Weights weights(weight_form(Dtype::bf16, 70, 40));
    LinearCall call(weights, call_form(Dtype::bf16, Dtype::f32, {20}));
    EXPECT_EQ(call.run(Context(HALYARD_ISA_AMX).get()), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(call.check(call.expected()));
}

}  // namespace
}  // namespace halyard::tests
