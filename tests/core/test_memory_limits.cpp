// Memory that there is not is refused when it is asked for, and not when it is first written.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "support/attention.h"
#include "support/small_block.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

/** Options of a cache of `count` heads of 1 MiB. */
halyard_kv_cache_options heads_of_a_mebibyte(std::int64_t count) {
    halyard_kv_cache_options options{1, count, 1, 64, 2048, {kDLFloat, 32, 1}};
    std::int64_t bytes = 0;
    EXPECT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(bytes, count << 20);
    return options;
}

/** A matrix of f32 all of whose rows are the same memory. */
struct RepeatedRow {
    RepeatedRow(std::int64_t rows, std::int64_t width)
        : values(static_cast<std::size_t>(width)), shape{rows, width}, strides{0, 1} {
        view.data = values.data();
        view.device = {kDLCPU, 0};
        view.ndim = 2;
        view.dtype = {kDLFloat, 32, 1};
        view.shape = shape;
        view.strides = strides;
    }
    std::vector<float> values;
    std::int64_t shape[2], strides[2];
    DLTensor view{};
};

bool refused_with_size(halyard_status status, std::int64_t bytes) {
    return status == HALYARD_OUT_OF_MEMORY &&
           std::string(halyard_last_error()).find(std::to_string(bytes)) != std::string::npos;
}

halyard_status make_cache(const halyard_kv_cache_options &options) {
    halyard_kv_cache *cache = nullptr;
    const halyard_status status = halyard_kv_cache_create(&options, nullptr, 0, &cache);
    halyard_kv_cache_destroy(cache);
    return status;
}

halyard_status make_rope(std::int64_t max_positions, std::int64_t dim = 32) {
    halyard_rope_options options{};
    options.head_dim = dim;
    options.max_positions = max_positions;
    options.rope_theta = 10000;
    halyard_rope *rope = nullptr;
    const halyard_status status = halyard_rope_create(&options, &rope);
    halyard_rope_destroy(rope);
    return status;
}

halyard_status pack(const RepeatedRow &matrix) {
    halyard_weights *weights = nullptr;
    const halyard_status status = halyard_weights_pack(nullptr, &matrix.view, nullptr, nullptr, 0, &weights);
    halyard_weights_destroy(weights);
    return status;
}

TEST(Memory, OfWhichNoMachineHasSoMuchIsRefused) {
    int overcommit = 0;
    std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
    if (overcommit == 1 || emulated) {
        GTEST_SKIP() << "the system gives more than it has";
    }
    // 32 TiB.
    const RepeatedRow matrix(1 << 22, 1 << 21);
    EXPECT_EQ(pack(matrix), HALYARD_OUT_OF_MEMORY);
    EXPECT_NE(std::string(halyard_last_error()).find("bytes of packed weights"), std::string::npos)
        << halyard_last_error();
    // 64 GiB, where there is not so much.
    long long memory = 0, swap = 0;
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::sscanf(line.c_str(), "MemTotal: %lld kB", &memory);
        std::sscanf(line.c_str(), "SwapTotal: %lld kB", &swap);
    }
    if (memory + swap < 64ll << 20) {
        const std::int64_t positions = 1 << 24, pairs = 512;
        EXPECT_TRUE(refused_with_size(make_rope(positions, 2 * pairs), positions * pairs * 8)) << halyard_last_error();
    }
}

/** Whether `work` gives true in a child that may have 64 MiB more than this process has. */
bool holds_in_little_memory(const std::function<bool()> &work) {
    const pid_t child = fork();
    if (child == 0) {
        long pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlim_t bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (64 << 20));
        const rlimit limit = {bytes, bytes};
        const bool holds = setrlimit(RLIMIT_AS, &limit) == 0 && work();
        if (!holds) {
            std::fprintf(stderr, "last error: %s\n", halyard_last_error());
        }
        _exit(holds ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

TEST(Memory, BeyondTheLimitOfTheProcessIsRefused) {
    if (reduced) {
        GTEST_SKIP() << "sanitizers take all addresses, and an emulator its own";
    }
    constexpr std::int64_t large = 256 << 20;
    const halyard_kv_cache_options cache = heads_of_a_mebibyte(large >> 20), small = heads_of_a_mebibyte(8);
    EXPECT_TRUE(holds_in_little_memory([&] { return refused_with_size(make_cache(cache), large); }));
    // 16 pairs of a cosine and a sine.
    EXPECT_TRUE(holds_in_little_memory([] { return refused_with_size(make_rope(large / 128), large); }));
    const RepeatedRow matrix(1 << 13, 1 << 13);
    EXPECT_TRUE(holds_in_little_memory([&] { return pack(matrix) == HALYARD_OUT_OF_MEMORY; }));
    BlockForm form = good_form();
    const BlockTensors tensors(form);
    form.config.max_position_embeddings = large / (head_dim * 4);
    EXPECT_TRUE(holds_in_little_memory([&] {
        halyard_block *block = nullptr;
        return refused_with_size(halyard_block_create(nullptr, &form.config, &tensors.weights, &block), large);
    }));
    // Piece by piece, until there is no more; given back, it is there again.
    EXPECT_TRUE(holds_in_little_memory([&] {
        for (int round = 0; round < 2; round++) {
            halyard_kv_cache *caches[20] = {};
            int count = 0;
            while (count < 20 && halyard_kv_cache_create(&small, nullptr, 0, &caches[count]) == HALYARD_OK) {
                count++;
            }
            for (int i = 0; i < count; i++) {
                halyard_kv_cache_destroy(caches[i]);
            }
            if (count < 4 || count > 8 || !refused_with_size(HALYARD_OUT_OF_MEMORY, 8 << 20)) {
                return false;
            }
        }
        return make_rope(1000) == HALYARD_OK;
    }));
}

TEST(Memory, OfANormWithAWeightInF32IsThereBeforeItsSumIsWritten) {
    if (reduced) {
        GTEST_SKIP() << "sanitizers take all addresses, and an emulator its own";
    }
    constexpr std::int64_t width = 1 << 24;  // two rows in f32 are 128 MiB
    Tensor x(Dtype::bf16, {{1, width}, {}}), sum(Dtype::bf16, {{1, width}, {}}), weight(Dtype::f32, {{width}, {}});
    sum.set(0, width - 1, 3);
    const Context context(supported_isas().back(), 1);
    EXPECT_TRUE(holds_in_little_memory([&] {
        return halyard_add_rms_norm(context.get(), &x.view, &x.view, &weight.view, 1e-5f, 0, &sum.view, &x.view) ==
                   HALYARD_OUT_OF_MEMORY &&
               sum.get(0, width - 1) == 3;
    }));
}

}  // namespace
}  // namespace halyard::tests
