// Products of bf16 on AMX: bit by bit those of the instruction's model, for every number of rows; within the bound of their
// order; no tile is left in use when a call returns; and the system is asked for tiles where a call may use them, not before.
#include "support/bf16_models.h"
#include "support/bf16_products.h"
#include "support/threads.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace halyard::tests {
namespace {

class Amx : public testing::Test {
protected:
    void SetUp() override {
        if (halyard_isa_supported(HALYARD_ISA_AMX) == 0 ||
            halyard_context_isa(Context(HALYARD_ISA_AMX).get()) != HALYARD_ISA_AMX) {
            GTEST_SKIP() << "this machine or this library has no AMX, or HALYARD_MAX_ISA forbids it";
        }
    }
};

TEST_F(Amx, ResultsAreThoseOfTheModel) {
    expect_model(HALYARD_ISA_AMX,
                 [](std::int64_t inputs, const auto &x, const auto &w) { return amx_sum(inputs, x, w); });
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

/** Whether this process has the system's permission to use tiles. */
bool tiles_permitted() {
    constexpr long get_permissions = 0x1022;  // ARCH_GET_XCOMP_PERM
    std::uint64_t permissions = 0;
    return syscall(SYS_arch_prctl, get_permissions, &permissions) == 0 && (permissions & 1u << 18) != 0;
}

/** The exit status of this program with the tests of `suite` alone, in a process of its own that has asked for nothing yet,
 *  after `prepare`; 77 if that fails. */
template<typename Prepare>
int status_of(const char *suite, const Prepare &prepare) {
    const pid_t child = fork();
    if (child == 0) {
        if (!prepare()) {
            _exit(77);
        }
        setenv("HALYARD_TESTS_OF_TILES", suite, 1);
        execl("/proc/self/exe", "test_amx", "--gtest_brief=1", (std::string("--gtest_filter=") + suite + ".*").c_str(),
              nullptr);
        _exit(1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_child_of(const char *suite) {
    const char *const wanted = std::getenv("HALYARD_TESTS_OF_TILES");
    return wanted != nullptr && std::strcmp(wanted, suite) == 0;
}

TEST_F(Amx, IsNotSupportedWithoutPermission) {
    const int status = status_of("WithoutTiles", forbid_tiles);
    if (status == 77) {
        GTEST_SKIP() << "this system has no filters of system calls";
    }
    EXPECT_EQ(status, 0);
}

TEST_F(Amx, AsksForPermissionWhenItIsNeeded) {
    if (!tiles_permitted()) {
        GTEST_SKIP() << "this system does not say what it permits";
    }
    EXPECT_EQ(status_of("TilesAtNeed", [] { return unsetenv("HALYARD_MAX_ISA") == 0; }), 0);
    EXPECT_EQ(status_of("TilesUnderCap", [] { return setenv("HALYARD_MAX_ISA", "avx512", 1) == 0; }), 0);
}

/** A product that tiles are for. */
void expect_right_product(const halyard_context *context) {
    const Weights weights(weight_form(Dtype::bf16, 70, 40));
    LinearCall call(weights, call_form(Dtype::bf16, Dtype::f32, {20}));
    EXPECT_EQ(call.run(context), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(call.check(call.expected()));
}

/** In the children of the tests above. */
TEST(WithoutTiles, CallsTakeAnotherInstructionSet) {
    if (!is_child_of("WithoutTiles")) {
        GTEST_SKIP() << "runs where the system refuses tiles";
    }
    EXPECT_EQ(halyard_isa_supported(HALYARD_ISA_AMX), 0);
    EXPECT_LT(halyard_context_isa(nullptr), HALYARD_ISA_AMX);
    expect_right_product(Context(HALYARD_ISA_AMX).get());
}

TEST(TilesAtNeed, AreAskedForWhenACallMayUseThem) {
    if (!is_child_of("TilesAtNeed")) {
        GTEST_SKIP() << "runs in a process of its own";
    }
    Tensor x(Dtype::bf16, compact_form({20, 70})), w(Dtype::bf16, compact_form({40, 70})),
        y(Dtype::f32, compact_form({20, 40}));
    for (Tensor *each : {&x, &w}) {
        each->fill([](std::int64_t row, std::int64_t i) { return bell(233, row, i); });
    }
    const Context lesser(HALYARD_ISA_AVX512_BF16);
    halyard_weights *weights = nullptr;
    ASSERT_EQ(halyard_weights_pack(lesser.get(), &w.view, nullptr, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(halyard_linear(lesser.get(), &x.view, weights, nullptr, &y.view), HALYARD_OK) << halyard_last_error();
    halyard_weights_destroy(weights);
    EXPECT_FALSE(tiles_permitted()) << "although no call may use them";
    expect_right_product(nullptr);
    EXPECT_TRUE(tiles_permitted());
    EXPECT_EQ(halyard_context_isa(nullptr), HALYARD_ISA_AMX);
}

TEST(TilesUnderCap, AreNotAskedFor) {
    if (!is_child_of("TilesUnderCap")) {
        GTEST_SKIP() << "runs where the environment caps the instruction set";
    }
    expect_right_product(nullptr);
    expect_right_product(Context(HALYARD_ISA_AMX).get());
    EXPECT_EQ(halyard_context_isa(nullptr), HALYARD_ISA_AVX512);
    EXPECT_FALSE(tiles_permitted());
}

#endif

}  // namespace
}  // namespace halyard::tests
