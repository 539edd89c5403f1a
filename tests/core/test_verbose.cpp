// HALYARD_VERBOSE: what is written of calls and kernels. CTest runs this with each level, and with a file's name.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "operations/isas.h"
#include "support/invocation.h"
#include "support/stack.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

using Fields = std::vector<std::string>;

int level() {
    const char *const value = std::getenv("HALYARD_VERBOSE");
    return value == nullptr ? 0 : std::atoi(value);
}

Fields split(const std::string &line) {
    Fields fields(1);
    for (const char each : line) {
        if (each == ',') {
            fields.emplace_back();
        } else {
            fields.back() += each;
        }
    }
    return fields;
}

/** What this process and its children have written: the lines from the last one on with which a library begins. */
std::vector<Fields> lines() {
    std::ifstream file(std::getenv("HALYARD_VERBOSE_FILE"));
    std::vector<Fields> all;
    for (std::string line; std::getline(file, line);) {
        Fields fields = split(line);
        if (fields.size() > 1 && fields[1] == "info") {
            all.clear();
        }
        all.push_back(std::move(fields));
    }
    return all;
}

/** The lines that `work` adds. */
template<typename Work>
std::vector<Fields> lines_of(const Work &work) {
    const std::size_t before = lines().size();
    work();
    std::vector<Fields> all = lines();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(before));
    return all;
}

bool is_time(const std::string &text) {
    char *end = nullptr;
    return !text.empty() && std::strtod(text.c_str(), &end) >= 0.0 && *end == '\0';
}

/** Whether a line is one of a call or of a kernel, whole. */
bool is_whole(const Fields &line) {
    if (line.size() < 2 || line[0] != "halyard_verbose") {
        return false;
    }
    const std::size_t fields = line[1] == "call" ? 8 : line[1] == "kernel" ? 7 : 0;
    return line.size() == fields && is_time(line.back());
}

struct Norm {
    Norm() : invocation(operation("rms_norm"), Dtype::f32, {3, 64}) { invocation.fill(1); }
    halyard_status run(const halyard_context *context) const { return invocation.run(context); }

    Invocation invocation;
};

TEST(Verbose, TheFirstLineSaysWhatRuns) {
    if (level() == 0) {
        EXPECT_NE(access(std::getenv("HALYARD_VERBOSE_FILE"), F_OK), 0) << "there is a file";
        return;
    }
    const std::vector<Fields> all = lines();
    ASSERT_FALSE(all.empty());
    const Fields expected = {"halyard_verbose", "info", std::string("version:") + halyard_version(),
                             std::string("isa:") + halyard_isa_name(halyard_context_isa(nullptr)),
                             "threads:" + std::to_string(halyard_context_num_threads(nullptr))};
    EXPECT_EQ(all[0], expected);
}

TEST(Verbose, ACallHasALineAndEachKernelIfAsked) {
    const Norm norm;
    const Context context(weakest_isa, 3);
    const std::vector<Fields> written = lines_of([&] { ASSERT_EQ(norm.run(context.get()), HALYARD_OK); });
    ASSERT_EQ(written.size(), static_cast<std::size_t>(level()));
    for (const Fields &line : written) {
        EXPECT_TRUE(is_whole(line));
    }
    const std::string isa = halyard_isa_name(weakest_isa);
    if (level() > 0) {
        const Fields &call = written.back();
        EXPECT_EQ(Fields(call.begin() + 1, call.end() - 1),
                  (Fields{"call", "halyard_rms_norm", "x:f32:3x64 y:f32:3x64 weight:f32:64", isa, "3", "ok"}));
    }
    if (level() > 1) {
        const Fields &kernel = written.front();
        EXPECT_EQ(Fields(kernel.begin() + 1, kernel.end() - 1),
                  (Fields{"kernel", "rms_norm_weight", "f32", isa, "x:3x64 weight:64 y:3x64"}));
    }
}

/** The buffers of a kernel's line that have an axis of no extent, or of more than `most`. */
std::string buffers_beyond(const std::string &buffers, int most) {
    std::string beyond;
    std::istringstream words(buffers);
    for (std::string buffer; words >> buffer;) {
        std::istringstream axes(buffer.substr(buffer.find(':') + 1));
        bool wrong = false;
        for (std::string extent; std::getline(axes, extent, 'x');) {
            wrong = wrong || std::atoi(extent.c_str()) < 1 || std::atoi(extent.c_str()) > most;
        }
        beyond += wrong ? buffer + " " : "";
    }
    return beyond;
}

TEST(Verbose, EveryAxisOfAKernelsBuffersHasItsExtent) {
    constexpr std::int64_t in = 70, out = 48, rows = 3;
    Tensor matrix(Dtype::f32, compact_form({out, in})), weight(Dtype::f32, compact_form({in}));
    Tensor x(Dtype::f32, compact_form({rows, in})), y(Dtype::f32, compact_form({rows, out}));
    Tensor heads(Dtype::f32, compact_form({rows, 1, in})), attended(Dtype::f32, compact_form({rows, 1, in}));
    for (Tensor *tensor : {&matrix, &weight, &x, &heads}) {
        tensor->fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    }
    halyard_pack_options folded{}, quantized{};
    folded.norm_weight = folded.norm_bias = &weight.view;
    quantized.quantization = {8, 32, 0, {}};
    const std::vector<Fields> written = lines_of([&] {
        for (const halyard_pack_options *options : {&folded, &quantized}) {
            halyard_weights *weights = nullptr;
            ASSERT_EQ(halyard_weights_pack(nullptr, &matrix.view, options, nullptr, 0, &weights), HALYARD_OK);
            EXPECT_EQ(halyard_linear(nullptr, &x.view, weights, nullptr, &y.view), HALYARD_OK);
            halyard_weights_destroy(weights);
        }
        EXPECT_EQ(halyard_attention(nullptr, &heads.view, &heads.view, &heads.view, nullptr, &attended.view),
                  HALYARD_OK)
            << halyard_last_error();
    });
    int sums = 0, weighted_sums = 0;
    for (const Fields &line : written) {
        if (line[1] != "kernel") {
            continue;
        }
        const bool of_sums = line[2] == "pack_sums", of_weighted_sums = line[2] == "pack_weighted_sums";
        EXPECT_EQ(buffers_beyond(line[5], 1 << 16), of_sums ? "factor:0 " : "") << line[2] << " " << line[5];
        EXPECT_TRUE(!of_weighted_sums || line[5] == "panel:70x16 factor:70 so_far:16 sums:16") << line[5];
        sums += of_sums;
        weighted_sums += of_weighted_sums;
    }
    EXPECT_EQ(sums > 0, level() > 1);
    EXPECT_EQ(weighted_sums > 0, level() > 1);
}

/** A matrix [out, in], packed. */
class PackedMatrix {
public:
    PackedMatrix(std::int64_t out, std::int64_t in, const halyard_quantization &quantization) {
        Tensor matrix(Dtype::f32, {{out, in}, {}, Placement::ends_at_guard, 0, 0});
        matrix.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
        halyard_pack_options options{};
        options.quantization = quantization;
        EXPECT_EQ(halyard_weights_pack(nullptr, &matrix.view, &options, nullptr, 0, &weights_), HALYARD_OK)
            << halyard_last_error();
    }
    ~PackedMatrix() { halyard_weights_destroy(weights_); }
    PackedMatrix(const PackedMatrix &) = delete;
    PackedMatrix &operator=(const PackedMatrix &) = delete;

    const halyard_weights *get() const { return weights_; }

private:
    halyard_weights *weights_ = nullptr;
};

TEST(Verbose, ACallSaysHowItsWeightsAreQuantized) {
    const PackedMatrix symmetric(48, 64, {4, 32, 0, {}}), asymmetric(64, 48, {8, 0, 1, {kDLBfloat, 16, 1}});
    const PackedMatrix not_quantized(48, 64, {});
    Tensor x(Dtype::f32, {{3, 64}, {}, Placement::ends_at_guard, 0, 0});
    Tensor y(Dtype::f32, {{3, 64}, {}, Placement::ends_at_guard, 0, 0});
    Tensor hidden(Dtype::f32, {{3, 48}, {}, Placement::ends_at_guard, 0, 0});
    x.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
    const auto operands_of = [](const auto &call) {
        const std::vector<Fields> written = lines_of([&] { ASSERT_EQ(call(), HALYARD_OK) << halyard_last_error(); });
        return level() > 0 && is_whole(written.back()) ? written.back()[3] : "";
    };
    const auto expected = [](const std::string &operands) { return level() > 0 ? operands : ""; };
    EXPECT_EQ(operands_of([&] { return halyard_linear(nullptr, &x.view, symmetric.get(), nullptr, &hidden.view); }),
              expected("x:f32:3x64 y:f32:3x48 weights:4bit:group32:plain:f16"));
    EXPECT_EQ(operands_of([&] { return halyard_linear(nullptr, &hidden.view, asymmetric.get(), nullptr, &y.view); }),
              expected("x:f32:3x48 y:f32:3x64 weights:8bit:group0:zero:bf16"));
    EXPECT_EQ(
        operands_of([&] { return halyard_ffn(nullptr, &x.view, symmetric.get(), asymmetric.get(), nullptr, &y.view); }),
        expected("x:f32:3x64 y:f32:3x64 up:4bit:group32:plain:f16 down:8bit:group0:zero:bf16"));
    EXPECT_EQ(operands_of([&] { return halyard_linear(nullptr, &x.view, not_quantized.get(), nullptr, &hidden.view); }),
              expected("x:f32:3x64 y:f32:3x48"));
}

TEST(Verbose, BlocksAndStacksSayHowTheirWeightsAreQuantized) {
    BlockTensors tensors(preset_block("llama"));
    tensors.weights.quantization = {8, 64, 0, {}};
    halyard_block *block = nullptr;
    ASSERT_EQ(halyard_block_create(nullptr, &tensors.form.config, &tensors.weights, &block), HALYARD_OK)
        << halyard_last_error();
    const std::int64_t width = tensors.form.config.hidden_size;
    Tensor x(Dtype::f32, compact_form({2, width})), y(Dtype::f32, compact_form({2, width}));
    x.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    Tensor table(Dtype::f32, compact_form({5, width})), logits(Dtype::f32, compact_form({5}));
    table.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
    halyard_stack_config config{};
    config.vocab_size = 5;
    config.hidden_size = width;
    halyard_stack_weights weights{};
    weights.embed_tokens = &table.view;
    weights.quantization = {4, 32, 1, {}};
    halyard_stack *stack = nullptr;
    const halyard_block *const blocks[] = {block};
    ASSERT_EQ(halyard_stack_create(nullptr, &config, &weights, blocks, 1, &stack), HALYARD_OK) << halyard_last_error();
    const IdTensor ids(Ids{1, 2});

    const std::vector<Fields> written = lines_of([&] {
        EXPECT_EQ(halyard_block_forward(nullptr, block, &x.view, nullptr, 0, nullptr, &y.view), HALYARD_OK);
        EXPECT_EQ(halyard_stack_forward(nullptr, stack, &ids.view, nullptr, nullptr, nullptr, &logits.view), HALYARD_OK)
            << halyard_last_error();
    });
    halyard_stack_destroy(stack);
    halyard_block_destroy(block);
    std::vector<std::string> calls;
    for (const Fields &line : written) {
        EXPECT_TRUE(is_whole(line));
        if (line[1] == "call") {
            calls.push_back(line[3]);
        }
    }
    ASSERT_EQ(calls.size(), level() > 0 ? 2u : 0u);
    if (level() > 0) {
        const std::string rows = "f32:2x" + std::to_string(width), form = ":8bit:group64:plain:f16";
        EXPECT_EQ(calls[0], "x:" + rows + " y:" + rows + " qkv" + form + " o" + form + " up" + form + " down" + form);
        EXPECT_EQ(calls[1], "input_ids:i64:2 blocks[0].qkv" + form + " blocks[0].o" + form + " blocks[0].up" + form +
                                " blocks[0].down" + form + " lm_head:4bit:group32:zero:f16 logits:f32:5");
    }
}

TEST(Verbose, ARefusedCallSaysSo) {
    const Norm norm;
    DLTensor without_shape = *norm.invocation.arguments[0];
    without_shape.shape = nullptr;
    const std::vector<Fields> written = lines_of([&] {
        EXPECT_EQ(halyard_relu(nullptr, &without_shape, nullptr), HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(halyard_relu(nullptr, nullptr, nullptr), HALYARD_INVALID_ARGUMENT);
    });
    ASSERT_EQ(written.size(), level() > 0 ? 2u : 0u);
    for (const Fields &line : written) {
        ASSERT_TRUE(is_whole(line));
        EXPECT_EQ(line[2], "halyard_relu");
        EXPECT_EQ(line[6], "invalid argument");
    }
}

TEST(Verbose, ARefusedCallOfAStackSaysSoToo) {
    const Stack stack(preset_stack("llama"));
    const IdTensor ids(Ids{1, 2, 3});
    DLTensor unsigned_ids = ids.view;
    unsigned_ids.dtype.code = kDLUInt;
    halyard_stack_options options{};
    options.token_types = &ids.view;  // of which the stack has no table
    const std::vector<Fields> written = lines_of([&] {
        EXPECT_EQ(halyard_stack_forward(nullptr, stack.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
                  HALYARD_INVALID_ARGUMENT);
        EXPECT_EQ(halyard_stack_forward(nullptr, stack.get(), &unsigned_ids, nullptr, nullptr, nullptr, nullptr),
                  HALYARD_UNSUPPORTED);
        EXPECT_EQ(halyard_stack_hidden_states(nullptr, stack.get(), &ids.view, nullptr, nullptr, &options, nullptr),
                  HALYARD_INVALID_ARGUMENT);
        EXPECT_NE(std::string(halyard_last_error()).find("halyard_stack_hidden_states: token_types"), std::string::npos)
            << halyard_last_error();
    });
    ASSERT_EQ(written.size(), level() > 0 ? 3u : 0u);
    const std::string statuses[] = {"invalid argument", "unsupported", "invalid argument"},
                      tensors[] = {"", "", "input_ids:i64:3 token_types:i64:3"};
    for (std::size_t i = 0; i < written.size(); i++) {
        ASSERT_TRUE(is_whole(written[i]));
        EXPECT_EQ(written[i][3], tensors[i]);
        EXPECT_EQ(written[i][6], statuses[i]);
    }
}

TEST(Verbose, IntegersHaveTheirOwnTypesAndShapes) {
    halyard_rope_options options{};
    options.head_dim = 8;
    options.max_positions = 10;
    options.rope_theta = 10000;
    halyard_rope *rope = nullptr;
    ASSERT_EQ(halyard_rope_create(&options, &rope), HALYARD_OK) << halyard_last_error();
    Tensor x(Dtype::f32, compact_form({3, 2, 8})), y(Dtype::f32, compact_form({3, 2, 8}));
    x.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    std::vector<std::int32_t> positions{5, 6, 7};
    std::vector<std::uint8_t> blocks(20 * 68);
    std::int64_t three[] = {3}, bytes_of_rows[] = {20, 68}, size = 0;
    DLTensor of_tokens{}, matrix{};
    of_tokens.data = positions.data();
    of_tokens.device = {kDLCPU, 0};
    of_tokens.ndim = 1;
    of_tokens.dtype = {kDLInt, 32, 1};
    of_tokens.shape = three;
    matrix.data = blocks.data();
    matrix.device = {kDLCPU, 0};
    matrix.ndim = 2;
    matrix.dtype = {kDLUInt, 8, 1};
    matrix.shape = bytes_of_rows;
    halyard_codes codes{};
    codes.format = HALYARD_CODES_Q8_0;
    codes.in_features = 64;
    codes.out_features = 20;
    codes.matrix = &matrix;
    std::vector<std::string> calls;
    for (const Fields &line : lines_of([&] {
             EXPECT_EQ(halyard_rope_apply(nullptr, rope, &x.view, &of_tokens, &y.view), HALYARD_OK);
             EXPECT_EQ(halyard_weights_codes_size(&codes, nullptr, &size), HALYARD_OK) << halyard_last_error();
         })) {
        if (line[1] == "call") {
            calls.push_back(line[3]);
        }
    }
    halyard_rope_destroy(rope);
    EXPECT_EQ(calls, level() > 0 ? (std::vector<std::string>{"x:f32:3x2x8 y:f32:3x2x8 positions:i32:3",
                                                             "codes.matrix:u8:20x68"})
                                 : std::vector<std::string>{});
}

TEST(Verbose, ALineIsWholeWhateverItSays) {
    Invocation silu(operation("silu"), Dtype::bf16, {1, 1, 1, 5});
    silu.fill(1);
    DLTensor x = *silu.arguments[0];
    std::int64_t shape[64];
    std::fill(std::begin(shape), std::end(shape), std::int64_t{1} << 62);
    x.shape = shape;
    x.ndim = 64;
    const std::vector<Fields> written =
        lines_of([&] { EXPECT_EQ(halyard_silu(nullptr, &x, silu.arguments[1]), HALYARD_INVALID_ARGUMENT); });
    ASSERT_EQ(written.size(), level() > 0 ? 1u : 0u);
    for (const Fields &line : written) {
        EXPECT_TRUE(is_whole(line));
    }
}

TEST(Verbose, LinesOfThreadsDoNotMix) {
    constexpr int threads = 4, calls = reduced ? 20 : 200;
    const std::vector<Fields> written = lines_of([] {
        std::vector<std::thread> all;
        for (int i = 0; i < threads; i++) {
            all.emplace_back([] {
                const Norm norm;
                for (int call = 0; call < calls; call++) {
                    norm.run(nullptr);
                }
            });
        }
        for (std::thread &thread : all) {
            thread.join();
        }
    });
    EXPECT_EQ(written.size(), static_cast<std::size_t>(level() * threads * calls));
    for (const Fields &line : written) {
        ASSERT_TRUE(is_whole(line));
    }
}

TEST(Verbose, AForkedChildWritesTheSameLines) {
    const Norm norm;
    const std::vector<Fields> written = lines_of([&] {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            _exit(norm.run(nullptr) == HALYARD_OK ? 0 : 1);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    });
    EXPECT_EQ(written.size(), static_cast<std::size_t>(level()));
    for (const Fields &line : written) {
        EXPECT_TRUE(is_whole(line));
    }
}

}  // namespace
}  // namespace halyard::tests
